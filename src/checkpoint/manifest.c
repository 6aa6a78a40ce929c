// What a manifest says is printed and checked here (manifest_parse.c reads it). Its last line holds the XXH3 of all bytes before, so that
// a cut-off or changed manifest is never taken for one.
#include "manifest.h"
#include "base/file.h"
#include "hash.h"
#include "region.h"
#include "safetensors_header.h"

#include <stdlib.h>

#define SEAL "\"manifest_xxh3_128\": \""
enum { SEAL_BYTES = sizeof SEAL - 1 + 32 + 4 }; // … "\n}\n

void ct_manifest_deinit(ct_manifest *manifest) {
    for (int i = 0; i < manifest->tensor_count; i++) free(manifest->tensors[i].pieces);
    free(manifest->tensors);
    free(manifest->files);
    ct_arena_deinit(&manifest->arena);
    *manifest = (ct_manifest){0};
}

// ---- printing ----
static void print_piece(const ct_manifest *m, const ct_manifest_tensor *t, const ct_manifest_piece *p, ct_string *out) {
    char offset[CT_SHAPE_TEXT], extent[CT_SHAPE_TEXT];
    ct_string_add(out, "{\"file\": ");
    ct_string_add_json(out, m->files[p->file].name);
    ct_string_add(out, ", \"key\": ");
    ct_string_add_json(out, p->key);
    ct_string_add(out, ", \"offset\": %s, \"extent\": %s, \"xxh3_128\": \"%s\"}", ct_shape_text(p->box.offset, t->dims, offset),
                  ct_shape_text(p->box.extent, t->dims, extent), p->checksum.hex);
}

static void print_files(const ct_manifest *m, ct_string *out) {
    ct_string_add(out, "\"files\": {");
    for (int i = 0; i < m->file_count; i++) {
        ct_string_add(out, "%s\n    ", i ? "," : "");
        ct_string_add_json(out, m->files[i].name);
        ct_string_add(out, ": {\"bytes\": %zu, \"xxh3_128\": \"%s\"}", m->files[i].bytes, m->files[i].checksum.hex);
    }
    ct_string_add(out, "\n  }");
}

static void print_tensors(const ct_manifest *m, ct_string *out) {
    char shape[CT_SHAPE_TEXT];
    ct_string_add(out, "\"tensors\": {");
    for (int i = 0; i < m->tensor_count; i++) {
        const ct_manifest_tensor *t = &m->tensors[i];
        ct_string_add(out, "%s\n    ", i ? "," : "");
        ct_string_add_json(out, t->name);
        ct_string_add(out, ": {\"dtype\": \"%s\", \"shape\": %s, \"pieces\": [", ct_dtype_name(t->dtype),
                      ct_shape_text(t->shape, t->dims, shape));
        for (int p = 0; p < t->piece_count; p++) {
            ct_string_add(out, "%s", p ? ",\n      " : "");
            print_piece(m, t, &t->pieces[p], out);
        }
        ct_string_add(out, "]}");
    }
    ct_string_add(out, "\n  }");
}

void ct_manifest_print_part(const ct_manifest *manifest, ct_string *out_text) {
    ct_string_add(out_text, "{\n  ");
    print_files(manifest, out_text);
    ct_string_add(out_text, ",\n  ");
    print_tensors(manifest, out_text);
    ct_string_add(out_text, "\n}\n");
}

void ct_manifest_print(const ct_manifest *manifest, ct_string *out_text) {
    ct_string_add(out_text, "{\n  \"format\": \"ctitan-checkpoint\",\n  \"version\": 1,\n  \"step\": %lld,\n  ", (long long)manifest->step);
    print_files(manifest, out_text);
    ct_string_add(out_text, ",\n  ");
    print_tensors(manifest, out_text);
    ct_string_add(out_text, ",\n  \"state\": ");
    ct_string_add_bytes(out_text, manifest->state, strlen(manifest->state));
    ct_string_add(out_text, ",\n  ");
    ct_checksum sum = ct_checksum_of(out_text->text, out_text->length);
    ct_string_add(out_text, SEAL "%s\"\n}\n", sum.hex);
}

// ---- the seal ----
static ct_status check_seal(const char *path, const char *text, size_t size) {
    CT_CHECK(size > SEAL_BYTES && !memcmp(text + size - SEAL_BYTES, SEAL, sizeof SEAL - 1) && !memcmp(text + size - 4, "\"\n}\n", 4),
             CT_CORRUPT, "%s does not end as a manifest does (%zu bytes; cut off?)", path, size);
    ct_checksum sum = ct_checksum_of(text, size - SEAL_BYTES);
    CT_CHECK(!memcmp(text + size - 36, sum.hex, 32), CT_CORRUPT, "%s was changed: its XXH3 is %s, its last line says %.32s", path, sum.hex,
             text + size - 36);
    return CT_OK;
}

ct_status ct_manifest_read(const char *path, ct_manifest *out_manifest) {
    char *text;
    size_t size;
    CT_TRY(ct_file_read(path, (size_t)1 << 32, &text, &size));
    ct_manifest manifest = {0};
    ct_status status = check_seal(path, text, size);
    if (!status) status = ct_manifest_parse(path, text, size, &manifest);
    free(text);
    if (status) ct_manifest_deinit(&manifest);
    else *out_manifest = manifest;
    return status;
}

// ---- sense ----
static int by_name(const void *a, const void *b) {
    return strcmp(((const ct_manifest_tensor *)a)->name, ((const ct_manifest_tensor *)b)->name);
}
static int by_offset(const void *a, const void *b) {
    const ct_manifest_piece *x = a, *y = b;
    for (int d = 0; d < CT_TENSOR_DIMS; d++)
        if (x->box.offset[d] != y->box.offset[d]) return x->box.offset[d] < y->box.offset[d] ? -1 : 1;
    return 0;
}

// Pieces are inside the tensor, disjoint, and their volumes add up: so they cover it once.
static ct_status check_cover(const char *where, ct_manifest_tensor *t) {
    int64_t total = ct_extents_product(t->shape, t->dims), sum = 0;
    CT_CHECK(total >= 0, CT_CORRUPT, "%s: tensor %.200s has an impossible shape", where, t->name);
    if (t->piece_count) qsort(t->pieces, (size_t)t->piece_count, sizeof *t->pieces, by_offset);
    for (int i = 0; i < t->piece_count; i++) {
        const ct_box *box = &t->pieces[i].box;
        for (int d = 0; d < t->dims; d++)
            CT_CHECK(box->offset[d] >= 0 && box->extent[d] >= 0 && box->offset[d] <= t->shape[d] &&
                         box->extent[d] <= t->shape[d] - box->offset[d],
                     CT_CORRUPT, "%s: tensor %.200s has a piece outside its shape", where, t->name);
        for (int j = i + 1; j < t->piece_count; j++) {
            if (t->dims && t->pieces[j].box.offset[0] >= box->offset[0] + box->extent[0]) break;
            CT_CHECK(!ct_box_overlap(t->dims, box, &t->pieces[j].box), CT_CORRUPT, "%s: tensor %.200s has pieces that overlap", where,
                     t->name);
        }
        sum += ct_extents_product(box->extent, t->dims);
    }
    CT_CHECK(sum == total, CT_CORRUPT, "%s: tensor %.200s has %lld elements, its pieces %lld", where, t->name, (long long)total,
             (long long)sum);
    return CT_OK;
}

ct_status ct_manifest_check(const char *where, ct_manifest *manifest) {
    if (manifest->tensor_count) qsort(manifest->tensors, (size_t)manifest->tensor_count, sizeof *manifest->tensors, by_name);
    for (int i = 0; i < manifest->tensor_count; i++) {
        CT_CHECK(!i || strcmp(manifest->tensors[i - 1].name, manifest->tensors[i].name), CT_CORRUPT, "%s: tensor %.200s stands twice", where,
                 manifest->tensors[i].name);
        CT_TRY(check_cover(where, &manifest->tensors[i]));
    }
    return CT_OK;
}

static int name_order(const void *name, const void *tensor) { return strcmp(name, ((const ct_manifest_tensor *)tensor)->name); }

const ct_manifest_tensor *ct_manifest_find(const ct_manifest *manifest, const char *name) {
    if (!manifest->tensor_count) return NULL;
    return bsearch(name, manifest->tensors, (size_t)manifest->tensor_count, sizeof *manifest->tensors, name_order);
}

size_t ct_manifest_piece_bytes(const ct_manifest_tensor *tensor, const ct_manifest_piece *piece) {
    return (size_t)ct_extents_product(piece->box.extent, tensor->dims) * ct_dtype_bytes(tensor->dtype);
}
