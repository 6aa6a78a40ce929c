// A safetensors header is believed only when all of it holds together: each tensor's type and extents give its byte count, and the ranges
// lie one behind the other from 0 to the end of the file, as the format's own library demands.
#include "pull.h"
#include "safetensors_header.h"

#include <stdio.h>
#include <stdlib.h>

static const struct {
    const char *name;
    int bits;
} types[CT_ST_TYPES] = {
    [CT_ST_F64] = {"F64", 64},         [CT_ST_I64] = {"I64", 64},         [CT_ST_U64] = {"U64", 64},
    [CT_ST_F32] = {"F32", 32},         [CT_ST_I32] = {"I32", 32},         [CT_ST_U32] = {"U32", 32},
    [CT_ST_F16] = {"F16", 16},         [CT_ST_BF16] = {"BF16", 16},       [CT_ST_I16] = {"I16", 16},
    [CT_ST_U16] = {"U16", 16},         [CT_ST_I8] = {"I8", 8},            [CT_ST_U8] = {"U8", 8},
    [CT_ST_BOOL] = {"BOOL", 8},        [CT_ST_F8_E4M3] = {"F8_E4M3", 8},  [CT_ST_F8_E5M2] = {"F8_E5M2", 8},
    [CT_ST_F8_E8M0] = {"F8_E8M0", 8},  [CT_ST_F6_E2M3] = {"F6_E2M3", 6},  [CT_ST_F6_E3M2] = {"F6_E3M2", 6},
    [CT_ST_F4] = {"F4", 4},
};

const char *ct_stored_type_name(ct_stored_type type) { return types[type].name; }
int ct_stored_type_bits(ct_stored_type type) { return types[type].bits; }

int ct_stored_type_parse(const char *name, ct_stored_type *out_type) {
    for (int i = 0; i < CT_ST_TYPES; i++)
        if (!strcmp(name, types[i].name)) return *out_type = (ct_stored_type)i, 1;
    return 0;
}

ct_stored_type ct_stored_type_of(ct_dtype dtype) {
    static const ct_stored_type of[CT_DTYPES] = {
        [CT_F32] = CT_ST_F32, [CT_BF16] = CT_ST_BF16, [CT_F64] = CT_ST_F64, [CT_I32] = CT_ST_I32, [CT_I64] = CT_ST_I64};
    return of[dtype];
}

int64_t ct_extents_product(const int64_t *extents, int dims) {
    int64_t product = 1;
    for (int d = 0; d < dims; d++)
        if (extents[d] < 0 || __builtin_mul_overflow(product, extents[d], &product) || product > INT64_C(1) << 62) return -1;
    return product;
}

const char *ct_shape_text(const int64_t *extents, int dims, char *buffer) {
    size_t n = (size_t)snprintf(buffer, CT_SHAPE_TEXT, "[");
    for (int d = 0; d < dims; d++)
        n += (size_t)snprintf(buffer + n, CT_SHAPE_TEXT - n, "%s%lld", d ? ", " : "", (long long)extents[d]);
    snprintf(buffer + n, CT_SHAPE_TEXT - n, "]");
    return buffer;
}

// ---- one tensor ----
enum { HAS_TYPE = 1, HAS_SHAPE = 2, HAS_OFFSETS = 4, HAS_ALL = 7 };

typedef struct {
    ct_safetensors_entry entry;
    int has;
} entry_reader;

static ct_status read_type(entry_reader *r, ct_pull *pull) {
    char *name;
    CT_TRY(ct_pull_string(pull, &name));
    if (!ct_stored_type_parse(name, &r->entry.type)) return ct_pull_error(pull, "element type '%.32s' is not known", name);
    return CT_OK;
}

static ct_status read_offsets(entry_reader *r, ct_pull *pull) {
    int64_t range[2];
    int count;
    CT_TRY(ct_pull_int_array(pull, range, 2, &count));
    if (count != 2 || range[0] < 0 || range[1] < range[0])
        return ct_pull_error(pull, "data_offsets must be [begin, end] with 0 ≤ begin ≤ end");
    r->entry.begin = (size_t)range[0];
    r->entry.end = (size_t)range[1];
    return CT_OK;
}

static ct_status read_member(void *context, ct_pull *pull, const char *key, size_t key_bytes) {
    (void)key_bytes;
    entry_reader *r = context;
    int bit = !strcmp(key, "dtype") ? HAS_TYPE : !strcmp(key, "shape") ? HAS_SHAPE : !strcmp(key, "data_offsets") ? HAS_OFFSETS : 0;
    if (r->has & bit) return ct_pull_error(pull, "'%s' stands twice", key);
    r->has |= bit;
    if (bit == HAS_TYPE) return read_type(r, pull);
    if (bit == HAS_SHAPE) return ct_pull_int_array(pull, r->entry.shape, CT_TENSOR_DIMS, &r->entry.dims);
    if (bit == HAS_OFFSETS) return read_offsets(r, pull);
    return ct_pull_skip(pull, NULL, NULL);
}

static int is_plain_name(const char *name, size_t bytes) {
    if (!bytes || bytes > 1024) return 0;
    for (size_t i = 0; i < bytes; i++)
        if ((unsigned char)name[i] < 0x20 || name[i] == 0x7f) return 0;
    return 1;
}

// ---- the header ----
typedef struct {
    ct_safetensors_entry *entries;
    int count, capacity, has_metadata;
} header_reader;

static ct_status read_tensor(void *context, ct_pull *pull, const char *key, size_t key_bytes) {
    header_reader *header = context;
    if (!strcmp(key, "__metadata__")) {
        if (header->has_metadata++) return ct_pull_error(pull, "__metadata__ stands twice");
        if (ct_pull_peek(pull) != '{') return ct_pull_error(pull, "__metadata__ must be an object");
        return ct_pull_skip(pull, NULL, NULL);
    }
    if (!is_plain_name(key, key_bytes)) return ct_pull_error(pull, "a tensor's name is empty, too long or has control characters");
    entry_reader r = {.entry.name = key};
    CT_TRY_AS(ct_pull_object(pull, read_member, &r), "tensor %.200s", key);
    if (r.has != HAS_ALL) return ct_pull_error(pull, "tensor %.200s needs dtype, shape and data_offsets", key);
    int64_t elems = ct_extents_product(r.entry.shape, r.entry.dims), bits;
    if (elems < 0 || __builtin_mul_overflow(elems, (int64_t)types[r.entry.type].bits, &bits) || bits % 8)
        return ct_pull_error(pull, "tensor %.200s has an impossible shape", key);
    if ((size_t)(bits / 8) != r.entry.end - r.entry.begin)
        return ct_pull_error(pull, "tensor %.200s has %lld bytes by its shape and %zu by its data_offsets", key, (long long)(bits / 8),
                             r.entry.end - r.entry.begin);
    CT_GROW(header->entries, header->count, header->capacity);
    header->entries[header->count++] = r.entry;
    return CT_OK;
}

static int by_place(const void *a, const void *b) {
    const ct_safetensors_entry *x = a, *y = b;
    if (x->begin != y->begin) return x->begin < y->begin ? -1 : 1;
    return x->end < y->end ? -1 : x->end > y->end;
}
static int by_name(const void *a, const void *b) {
    return strcmp(((const ct_safetensors_entry *)a)->name, ((const ct_safetensors_entry *)b)->name);
}

static ct_status check_places(const char *path, header_reader *header, size_t data_bytes) {
    size_t at = 0;
    if (header->count) qsort(header->entries, (size_t)header->count, sizeof *header->entries, by_place);
    for (int i = 0; i < header->count; i++) {
        const ct_safetensors_entry *e = &header->entries[i];
        CT_CHECK(e->end <= data_bytes, CT_CORRUPT, "%s: tensor %.200s ends at byte %zu of the data, the file at %zu", path, e->name, e->end,
                 data_bytes);
        CT_CHECK(e->begin == at, CT_CORRUPT, "%s: tensor %.200s begins at byte %zu of the data, %zu was expected (%s)", path, e->name,
                 e->begin, at, e->begin < at ? "it overlaps another" : "there is a hole");
        at = e->end;
    }
    CT_CHECK(at == data_bytes, CT_CORRUPT, "%s has %zu bytes of data, its header speaks of %zu", path, data_bytes, at);
    return CT_OK;
}

static ct_status check_names(const char *path, header_reader *header) {
    if (header->count) qsort(header->entries, (size_t)header->count, sizeof *header->entries, by_name);
    for (int i = 1; i < header->count; i++)
        CT_CHECK(strcmp(header->entries[i - 1].name, header->entries[i].name), CT_CORRUPT, "%s: tensor %.200s stands twice", path,
                 header->entries[i].name);
    return CT_OK;
}

static ct_status parse(ct_pull *pull, header_reader *header, size_t data_bytes) {
    CT_TRY(ct_pull_object(pull, read_tensor, header));
    CT_TRY(ct_pull_end(pull));
    CT_TRY(check_places(pull->json.name, header, data_bytes));
    return check_names(pull->json.name, header);
}

ct_status ct_safetensors_header_parse(ct_arena *arena, const char *path, const char *json, size_t json_bytes, size_t data_bytes,
                                      ct_safetensors_entry **out_entries, int *out_count) {
    ct_pull pull;
    ct_pull_init(&pull, path, json, json_bytes, arena);
    header_reader header = {0};
    ct_status status = parse(&pull, &header, data_bytes);
    if (!status) {
        *out_entries = CT_ARENA_ARRAY(arena, ct_safetensors_entry, header.count);
        if (header.count) memcpy(*out_entries, header.entries, sizeof **out_entries * (size_t)header.count);
        *out_count = header.count;
    }
    ct_pull_deinit(&pull);
    free(header.entries);
    return status;
}
