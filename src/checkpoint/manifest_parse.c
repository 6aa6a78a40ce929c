// The manifest's JSON into arrays. Parts of many ranks are merged as they are read: a tensor that is known already gets more pieces.
// Tensors are looked up by a hash of their names while parts come in; ct_manifest_check sorts them afterwards.
#include "hash.h"
#include "manifest.h"

#include <stdio.h>
#include <stdlib.h>

typedef struct {
    ct_manifest *manifest;
    const char *where;
    int *slots; // open addressing over tensors: index + 1; 0: free
    int slot_count, files_before, tensors_before, seen;
    char file_name[256]; // the last file looked up, for runs of pieces of one file
    int file;
} reader;

// ---- looking up ----
static int slot_of(const reader *r, const char *name) {
    int slot = (int)(XXH3_64bits(name, strlen(name)) & (uint64_t)(r->slot_count - 1));
    while (r->slots[slot] && strcmp(r->manifest->tensors[r->slots[slot] - 1].name, name)) slot = (slot + 1) & (r->slot_count - 1);
    return slot;
}

static void index_tensors(reader *r) {
    if (2 * (r->manifest->tensor_count + 1) <= r->slot_count) return;
    free(r->slots);
    while (r->slot_count < 4 * (r->manifest->tensor_count + 1)) r->slot_count = r->slot_count ? 2 * r->slot_count : 64;
    r->slots = ct_calloc((size_t)r->slot_count, sizeof *r->slots);
    for (int i = 0; i < r->manifest->tensor_count; i++) r->slots[slot_of(r, r->manifest->tensors[i].name)] = i + 1;
}

static int find_file(reader *r, const char *name) {
    if (!strcmp(name, r->file_name)) return r->file;
    for (int i = 0; i < r->manifest->file_count; i++)
        if (!strcmp(name, r->manifest->files[i].name)) return snprintf(r->file_name, sizeof r->file_name, "%s", name), r->file = i;
    return -1;
}

// Nothing that could leave the folder.
static int is_file_name(const char *name) {
    size_t n = strlen(name), tail = strlen(".safetensors");
    return n > tail && n < 200 && !strchr(name, '/') && name[0] != '.' && !strcmp(name + n - tail, ".safetensors");
}

static ct_status pull_checksum(ct_pull *pull, ct_checksum *out_sum) {
    char *text;
    CT_TRY(ct_pull_string(pull, &text));
    if (strlen(text) != 32 || strspn(text, "0123456789abcdef") != 32)
        return ct_pull_error(pull, "a checksum has 32 hexadecimal digits, not '%.40s'", text);
    memcpy(out_sum->hex, text, 33);
    return CT_OK;
}

static int bit_of(const char *key, const char *const *names, int count) {
    for (int i = 0; i < count; i++)
        if (!strcmp(key, names[i])) return 1 << i;
    return 0;
}

// Notes that a member was seen; an error the second time.
static ct_status see(ct_pull *pull, int *seen, int bit, const char *key) {
    if (*seen & bit) return ct_pull_error(pull, "'%.64s' stands twice", key);
    *seen |= bit;
    return CT_OK;
}

// ---- files ----
typedef struct {
    ct_manifest_file *file;
    int seen;
} file_reader;

static ct_status file_member(void *context, ct_pull *pull, const char *key, size_t key_bytes) {
    (void)key_bytes;
    file_reader *f = context;
    int64_t bytes;
    int bit = bit_of(key, (const char *[]){"bytes", "xxh3_128"}, 2);
    CT_TRY(see(pull, &f->seen, bit, key));
    if (bit == 1) {
        CT_TRY(ct_pull_int(pull, &bytes));
        if (bytes < 0) return ct_pull_error(pull, "a file can't have %lld bytes", (long long)bytes);
        f->file->bytes = (size_t)bytes;
        return CT_OK;
    }
    if (bit == 2) return pull_checksum(pull, &f->file->checksum);
    return ct_pull_skip(pull, NULL, NULL);
}

static ct_status read_file(void *context, ct_pull *pull, const char *key, size_t key_bytes) {
    reader *r = context;
    if (strlen(key) != key_bytes || !is_file_name(key)) return ct_pull_error(pull, "'%.64s' is no name of a shard", key);
    if (find_file(r, key) >= 0) return ct_pull_error(pull, "file %s stands twice", key);
    ct_manifest_file file = {.name = key};
    file_reader f = {&file, 0};
    CT_TRY(ct_pull_object(pull, file_member, &f));
    if (f.seen != 3) return ct_pull_error(pull, "file %s needs bytes and xxh3_128", key);
    ct_manifest *m = r->manifest;
    CT_GROW(m->files, m->file_count, m->file_capacity);
    m->files[m->file_count++] = file;
    return CT_OK;
}

// ---- pieces ----
typedef struct {
    reader *reader;
    ct_manifest_piece piece;
    int seen, offset_dims, extent_dims;
} piece_reader;

static ct_status piece_member(void *context, ct_pull *pull, const char *key, size_t key_bytes) {
    (void)key_bytes;
    piece_reader *p = context;
    char *text;
    int bit = bit_of(key, (const char *[]){"file", "key", "offset", "extent", "xxh3_128"}, 5);
    CT_TRY(see(pull, &p->seen, bit, key));
    switch (bit) {
    case 1:
        CT_TRY(ct_pull_string(pull, &text));
        p->piece.file = find_file(p->reader, text);
        return p->piece.file >= 0 ? CT_OK : ct_pull_error(pull, "file '%.64s' is not among the files", text);
    case 2:
        CT_TRY(ct_pull_string(pull, &text));
        p->piece.key = text;
        return CT_OK;
    case 4: return ct_pull_int_array(pull, p->piece.box.offset, CT_TENSOR_DIMS, &p->offset_dims);
    case 8: return ct_pull_int_array(pull, p->piece.box.extent, CT_TENSOR_DIMS, &p->extent_dims);
    case 16: return pull_checksum(pull, &p->piece.checksum);
    }
    return ct_pull_skip(pull, NULL, NULL);
}

// ---- tensors ----
typedef struct {
    reader *reader;
    ct_manifest_tensor tensor;
    int seen, piece_dims; // dims of the pieces; -1: none yet
} tensor_reader;

static ct_status read_piece(void *context, ct_pull *pull) {
    tensor_reader *t = context;
    piece_reader p = {.reader = t->reader};
    if (pull->json.kind != CT_JSON_OBJECT) return ct_pull_error(pull, "found %s, wanted a piece", ct_json_kind_name(pull->json.kind));
    CT_TRY(ct_pull_members(pull, piece_member, &p));
    if (p.seen != 31) return ct_pull_error(pull, "a piece needs file, key, offset, extent and xxh3_128");
    if (p.offset_dims != p.extent_dims || (t->piece_dims >= 0 && t->piece_dims != p.offset_dims))
        return ct_pull_error(pull, "a piece's offset and extent have %d and %d dims", p.offset_dims, p.extent_dims);
    t->piece_dims = p.offset_dims;
    CT_GROW(t->tensor.pieces, t->tensor.piece_count, t->tensor.piece_capacity);
    t->tensor.pieces[t->tensor.piece_count++] = p.piece;
    return CT_OK;
}

static ct_status tensor_member(void *context, ct_pull *pull, const char *key, size_t key_bytes) {
    (void)key_bytes;
    tensor_reader *t = context;
    char *text;
    int bit = bit_of(key, (const char *[]){"dtype", "shape", "pieces"}, 3);
    CT_TRY(see(pull, &t->seen, bit, key));
    switch (bit) {
    case 1:
        CT_TRY(ct_pull_string(pull, &text));
        return ct_dtype_parse(text, &t->tensor.dtype) ? CT_OK : ct_pull_error(pull, "dtype '%.32s' is not known", text);
    case 2: return ct_pull_int_array(pull, t->tensor.shape, CT_TENSOR_DIMS, &t->tensor.dims);
    case 4: return ct_pull_array(pull, read_piece, t);
    }
    return ct_pull_skip(pull, NULL, NULL);
}

// A tensor that an earlier part brought gets this part's pieces.
static ct_status merge(ct_pull *pull, ct_manifest *m, int at, const ct_manifest_tensor *more) {
    ct_manifest_tensor *t = &m->tensors[at];
    if (t->dtype != more->dtype || t->dims != more->dims || memcmp(t->shape, more->shape, sizeof t->shape))
        return ct_pull_error(pull, "tensor %.200s has another dtype or shape on another rank", t->name);
    for (int i = 0; i < more->piece_count; i++) {
        CT_GROW(t->pieces, t->piece_count, t->piece_capacity);
        t->pieces[t->piece_count++] = more->pieces[i];
    }
    return CT_OK;
}

static ct_status add_tensor(reader *r, ct_pull *pull, ct_manifest_tensor *tensor) {
    ct_manifest *m = r->manifest;
    index_tensors(r);
    int slot = slot_of(r, tensor->name), known = r->slots[slot] - 1;
    if (known >= r->tensors_before) return ct_pull_error(pull, "tensor %.200s stands twice", tensor->name);
    if (known >= 0) return merge(pull, m, known, tensor);
    CT_GROW(m->tensors, m->tensor_count, m->tensor_capacity);
    m->tensors[m->tensor_count++] = *tensor;
    r->slots[slot] = m->tensor_count;
    tensor->pieces = NULL; // moved
    return CT_OK;
}

static ct_status read_tensor(void *context, ct_pull *pull, const char *key, size_t key_bytes) {
    tensor_reader t = {.reader = context, .tensor.name = key, .piece_dims = -1};
    ct_status status = ct_pull_object(pull, tensor_member, &t);
    if (!status && (t.seen != 7 || strlen(key) != key_bytes))
        status = ct_pull_error(pull, "tensor %.200s needs dtype, shape and pieces", key);
    if (!status && t.piece_dims >= 0 && t.piece_dims != t.tensor.dims)
        status = ct_pull_error(pull, "tensor %.200s has %d dims, its pieces %d", key, t.tensor.dims, t.piece_dims);
    if (!status) status = add_tensor(context, pull, &t.tensor);
    free(t.tensor.pieces);
    return status;
}

// ---- the whole ----
enum { FORMAT = 1, VERSION = 2, STEP = 4, FILES = 8, TENSORS = 16, STATE = 32, SEAL = 64 };

static ct_status read_format(ct_pull *pull) {
    char *text;
    CT_TRY(ct_pull_string(pull, &text));
    return strcmp(text, "ctitan-checkpoint") ? ct_pull_error(pull, "the format is '%.40s', not ctitan-checkpoint", text) : CT_OK;
}

static ct_status read_version(ct_pull *pull) {
    int64_t version;
    CT_TRY(ct_pull_int(pull, &version));
    if (version == 1) return CT_OK;
    CT_FAIL(CT_UNSUPPORTED, "%s is of version %lld; this program reads version 1", pull->json.name, (long long)version);
}

static ct_status read_step(reader *r, ct_pull *pull) {
    CT_TRY(ct_pull_int(pull, &r->manifest->step));
    return r->manifest->step < 0 ? ct_pull_error(pull, "step %lld", (long long)r->manifest->step) : CT_OK;
}

static ct_status read_state(reader *r, ct_pull *pull) {
    if (ct_pull_peek(pull) != '{') return ct_pull_error(pull, "the state must be an object");
    const char *begin, *end;
    CT_TRY(ct_pull_skip(pull, &begin, &end));
    r->manifest->state = ct_arena_strndup(&r->manifest->arena, begin, (size_t)(end - begin));
    return CT_OK;
}

static ct_status member(void *context, ct_pull *pull, const char *key, size_t key_bytes) {
    (void)key_bytes;
    reader *r = context;
    int bit = bit_of(key, (const char *[]){"format", "version", "step", "files", "tensors", "state", "manifest_xxh3_128"}, 7);
    CT_TRY(see(pull, &r->seen, bit, key));
    switch (bit) {
    case FORMAT: return read_format(pull);
    case VERSION: return read_version(pull);
    case STEP: return read_step(r, pull);
    case FILES: return ct_pull_object(pull, read_file, r);
    case TENSORS: return ct_pull_object(pull, read_tensor, r);
    case STATE: return read_state(r, pull);
    }
    return ct_pull_skip(pull, NULL, NULL);
}

static ct_status parse(const char *where, const char *json, size_t json_bytes, int wanted, ct_manifest *manifest) {
    reader r = {.manifest = manifest, .where = where, .tensors_before = manifest->tensor_count};
    ct_pull pull;
    ct_pull_init(&pull, where, json, json_bytes, &manifest->arena);
    ct_status status = ct_pull_object(&pull, member, &r);
    if (!status) status = ct_pull_end(&pull);
    if (!status && (r.seen & wanted) != wanted)
        status = ct_error_make(CT_CORRUPT, __FILE__, __LINE__, "%s lacks some of format, version, step, files, tensors, state", where);
    ct_pull_deinit(&pull);
    free(r.slots);
    return status;
}

ct_status ct_manifest_add_part(const char *where, const char *json, size_t json_bytes, ct_manifest *manifest) {
    return parse(where, json, json_bytes, FILES | TENSORS, manifest);
}

ct_status ct_manifest_parse(const char *path, const char *json, size_t json_bytes, ct_manifest *manifest) {
    CT_TRY(parse(path, json, json_bytes, FORMAT | VERSION | STEP | FILES | TENSORS | STATE, manifest));
    return ct_manifest_check(path, manifest);
}
