// Loading: which stored pieces overlap which wanted boxes, file by file in the order of their bytes. Nothing depends on how many ranks wrote
// or read. Pieces are checked against the manifest in type, shape and XXH3 before anyone can mistake their bytes for weights.
#include "checkpoint/checkpoint.h"
#include "folder.h"
#include "manifest.h"
#include "match.h"
#include "region.h"
#include "shard.h"

#include <stdlib.h>
#include <string.h>

struct ct_checkpoint {
    char *path;
    ct_manifest manifest;
};

ct_status ct_checkpoint_open(const char *path, ct_checkpoint **out_checkpoint) {
    char *manifest_path = ct_format("%s/" CT_MANIFEST_NAME, path);
    ct_manifest manifest;
    ct_status status = ct_manifest_read(manifest_path, &manifest);
    free(manifest_path);
    CT_TRY(status);
    ct_checkpoint *checkpoint = ct_calloc(1, sizeof *checkpoint);
    *checkpoint = (ct_checkpoint){ct_strdup(path), manifest};
    *out_checkpoint = checkpoint;
    return CT_OK;
}

void ct_checkpoint_close(ct_checkpoint *checkpoint) {
    if (!checkpoint) return;
    ct_manifest_deinit(&checkpoint->manifest);
    free(checkpoint->path);
    free(checkpoint);
}

int64_t ct_checkpoint_step(const ct_checkpoint *checkpoint) { return checkpoint->manifest.step; }
const char *ct_checkpoint_path(const ct_checkpoint *checkpoint) { return checkpoint->path; }
const char *ct_checkpoint_state(const ct_checkpoint *checkpoint) { return checkpoint->manifest.state; }
int ct_checkpoint_count(const ct_checkpoint *checkpoint) { return checkpoint->manifest.tensor_count; }

ct_named_tensor ct_checkpoint_tensor(const ct_checkpoint *checkpoint, int index) {
    const ct_manifest_tensor *t = &checkpoint->manifest.tensors[index];
    ct_named_tensor tensor = {.name = t->name, .dtype = t->dtype, .dims = t->dims};
    memcpy(tensor.shape, t->shape, sizeof tensor.shape);
    return tensor;
}

// ---- what must be read ----
typedef struct {
    const ct_manifest_tensor *tensor;
    const ct_manifest_piece *piece;
    const ct_named_tensor *wanted;
    const ct_safetensors_entry *entry; // once its file is open
} job;

typedef struct {
    job *items;
    int count, capacity;
    size_t bytes;
} jobs;

static void add_jobs(jobs *list, const ct_manifest_tensor *tensor, const ct_named_tensor *wanted, int whole_pieces) {
    ct_box box = ct_named_tensor_box(wanted);
    for (int p = 0; p < tensor->piece_count; p++) {
        int64_t overlap = ct_box_overlap(tensor->dims, &tensor->pieces[p].box, &box);
        if (!overlap) continue;
        CT_GROW(list->items, list->count, list->capacity);
        list->items[list->count++] = (job){tensor, &tensor->pieces[p], wanted, NULL};
        list->bytes += whole_pieces ? ct_manifest_piece_bytes(tensor, &tensor->pieces[p]) : (size_t)overlap * ct_dtype_bytes(tensor->dtype);
    }
}

static int by_file(const void *a, const void *b) { return ((const job *)a)->piece->file - ((const job *)b)->piece->file; }
static int by_place(const void *a, const void *b) {
    size_t x = ((const job *)a)->entry->begin, y = ((const job *)b)->entry->begin;
    return x < y ? -1 : x > y;
}

// ---- reading it ----
typedef struct {
    const ct_load_options *options;
    size_t done, total;
    ct_read_options read;
} loading;

static void advance(void *context, size_t bytes) {
    loading *l = context;
    l->done += bytes;
    if (l->done > l->total) l->done = l->total; // gaps between runs are read too
    if (l->options->progress) l->options->progress(l->options->context, l->done, l->total);
}

static ct_status run_job(loading *l, const ct_safetensors *file, const job *j) {
    ct_checksum found;
    int check = !l->options->skip_checksums;
    CT_TRY(ct_safetensors_read(file, j->entry, &j->piece->box, j->wanted, &l->read, check ? &found : NULL));
    CT_CHECK(!check || !strcmp(found.hex, j->piece->checksum.hex), CT_CORRUPT,
             "%s: tensor %.200s is damaged: its XXH3 is %s, the manifest says %s", file->path, j->tensor->name, found.hex,
             j->piece->checksum.hex);
    return CT_OK;
}

static ct_status run_file(loading *l, const ct_safetensors *file, job *items, int count) {
    for (int i = 0; i < count; i++) CT_TRY(ct_shard_entry(file, items[i].tensor, items[i].piece, &items[i].entry));
    qsort(items, (size_t)count, sizeof *items, by_place);
    for (int i = 0; i < count; i++) CT_TRY(run_job(l, file, &items[i]));
    return CT_OK;
}

static ct_status run_jobs(const ct_checkpoint *checkpoint, loading *l, jobs *list) {
    if (list->count) qsort(list->items, (size_t)list->count, sizeof *list->items, by_file);
    for (int i = 0, n; i < list->count; i += n) {
        int number = list->items[i].piece->file;
        for (n = 1; i + n < list->count && list->items[i + n].piece->file == number;) n++;
        ct_safetensors file;
        CT_TRY(ct_shard_open(checkpoint->path, &checkpoint->manifest.files[number], &file));
        ct_status status = run_file(l, &file, list->items + i, n);
        ct_safetensors_close(&file);
        CT_TRY(status);
    }
    if (l->options->progress) l->options->progress(l->options->context, l->total, l->total);
    return CT_OK;
}

static ct_status match(const ct_checkpoint *checkpoint, const ct_load_options *options, const ct_named_tensor *tensors, int count,
                       int *out_stored) {
    int stored_count = ct_checkpoint_count(checkpoint);
    ct_named_tensor *stored = ct_calloc((size_t)stored_count, sizeof *stored);
    for (int i = 0; i < stored_count; i++) stored[i] = ct_checkpoint_tensor(checkpoint, i);
    ct_status status = ct_tensors_match(checkpoint->path, stored, stored_count, tensors, count, options, out_stored);
    free(stored);
    return status;
}

ct_status ct_checkpoint_load(const ct_checkpoint *checkpoint, const ct_load_options *options, const ct_named_tensor *tensors, int count) {
    static const ct_load_options strict = {0};
    if (!options) options = &strict;
    int *stored = ct_calloc((size_t)count, sizeof *stored);
    jobs list = {0};
    ct_status status = match(checkpoint, options, tensors, count, stored);
    for (int i = 0; i < count && !status; i++)
        if (stored[i] >= 0) add_jobs(&list, &checkpoint->manifest.tensors[stored[i]], &tensors[i], !options->skip_checksums);
    if (!status) {
        loading l = {options, 0, list.bytes, {ct_malloc(CT_READ_BUFFER_BYTES), advance, &l}};
        status = run_jobs(checkpoint, &l, &list);
        free(l.read.buffer);
    }
    free(list.items), free(stored);
    return status;
}

// ---- the newest that loads ----
static ct_status load_from(const char *path, const ct_load_options *options, const ct_named_tensor *tensors, int count,
                           ct_checkpoint **out_checkpoint) {
    ct_checkpoint *checkpoint;
    CT_TRY(ct_checkpoint_open(path, &checkpoint));
    ct_status status = ct_checkpoint_load(checkpoint, options, tensors, count);
    if (status) ct_checkpoint_close(checkpoint);
    else *out_checkpoint = checkpoint;
    return status;
}

static int is_damage(ct_status status) {
    ct_code code = ct_error_code(status);
    return code == CT_CORRUPT || code == CT_IO || code == CT_NOT_FOUND;
}

static ct_status restore_newest(const char *root, const ct_load_options *options, const ct_named_tensor *tensors, int count,
                                ct_checkpoint **out_checkpoint) {
    int64_t before = INT64_MAX;
    for (ct_status failed = CT_OK;;) {
        char *path;
        CT_TRY(ct_checkpoint_find_before(root, before, options->warn, options->context, &path, &before));
        if (!path) return failed ? failed : (*out_checkpoint = NULL, CT_OK);
        ct_status status = load_from(path, options, tensors, count, out_checkpoint);
        free(path);
        if (!status || !is_damage(status)) return status;
        if (options->warn) options->warn(options->context, ct_error_text(status));
        failed = status;
    }
}

ct_status ct_checkpoint_restore(const char *root, int64_t step, const ct_load_options *options, const ct_named_tensor *tensors, int count,
                                ct_checkpoint **out_checkpoint) {
    static const ct_load_options strict = {0};
    if (!options) options = &strict;
    if (step < 0) return restore_newest(root, options, tensors, count, out_checkpoint);
    char *path;
    CT_TRY(ct_checkpoint_find(root, step, options->warn, options->context, &path));
    ct_status status = load_from(path, options, tensors, count, out_checkpoint);
    free(path);
    return status;
}
