// A save: shards into step-N.tmp, each fsynced; the manifest last; then one rename. Whatever fails, step-N.tmp is taken away and the error is
// the first one. Parts of a manifest travel between ranks as text, so that committing needs to know nothing of how they were sent.
#include "base/file.h"
#include "checkpoint/checkpoint.h"
#include "folder.h"
#include "manifest.h"
#include "region.h"
#include "safetensors_header.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    const ct_save_options *options;
    const ct_named_tensor *tensors;
    size_t done, total;
} shard;

static ct_status produce(void *context, int item, const void **out_bytes) {
    shard *s = context;
    const ct_named_tensor *tensor = &s->tensors[item];
    if (tensor->data) return *out_bytes = tensor->data, CT_OK;
    CT_ASSERT(s->options->fetch, "%s has no data", tensor->name);
    return s->options->fetch(s->options->context, tensor, out_bytes);
}

static void advance(void *context, size_t bytes) {
    shard *s = context;
    s->done += bytes;
    if (s->options->progress) s->options->progress(s->options->context, s->done, s->total);
}

// ---- what can be saved ----
static int by_name(const void *a, const void *b) { return strcmp(*(const char *const *)a, *(const char *const *)b); }

static ct_status check_unique(const ct_named_tensor *tensors, int count) {
    const char **names = ct_calloc((size_t)count, sizeof *names), *twice = NULL;
    for (int i = 0; i < count; i++) names[i] = tensors[i].name;
    qsort(names, (size_t)count, sizeof *names, by_name);
    for (int i = 1; i < count && !twice; i++)
        if (!strcmp(names[i - 1], names[i])) twice = names[i];
    free(names);
    CT_CHECK(!twice, CT_INVALID, "a checkpoint can't hold two tensors named %.200s", twice);
    return CT_OK;
}

static ct_status check_tensors(const ct_named_tensor *tensors, int count) {
    for (int i = 0; i < count; i++) {
        const ct_named_tensor *t = &tensors[i];
        CT_CHECK(t->dims >= 0 && t->dims <= CT_TENSOR_DIMS && ct_extents_product(t->shape, t->dims) >= 0, CT_INVALID,
                 "tensor %.200s has an impossible shape", t->name);
    }
    return check_unique(tensors, count);
}

static ct_status check_state(const char *json) {
    ct_arena arena = {0};
    ct_pull pull;
    ct_pull_init(&pull, "the checkpoint's state", json, strlen(json), &arena);
    ct_status status = ct_pull_peek(&pull) == '{' ? ct_pull_skip(&pull, NULL, NULL) : ct_pull_error(&pull, "an object was expected");
    if (!status) status = ct_pull_end(&pull);
    ct_pull_deinit(&pull);
    ct_arena_deinit(&arena);
    return status ? ct_error_make(CT_INVALID, __FILE__, __LINE__, "%s", ct_error_text(status)) : CT_OK;
}

// ---- the shard ----
static void describe(const char *file_name, const ct_named_tensor *tensors, const ct_safetensors_item *items, int count, size_t bytes,
                     ct_checksum checksum, ct_string *out_part) {
    ct_manifest m = {0};
    ct_manifest_file file = {file_name, bytes, checksum};
    m.files = &file, m.file_count = 1;
    m.tensors = ct_calloc((size_t)count, sizeof *m.tensors), m.tensor_count = count;
    ct_manifest_piece *pieces = ct_calloc((size_t)count, sizeof *pieces);
    for (int i = 0; i < count; i++) {
        const ct_named_tensor *t = &tensors[i];
        pieces[i] = (ct_manifest_piece){.key = t->name, .box = ct_named_tensor_box(t), .checksum = items[i].checksum};
        m.tensors[i] = (ct_manifest_tensor){.name = t->name, .dtype = t->dtype, .dims = t->dims, .piece_count = 1, .pieces = &pieces[i]};
        memcpy(m.tensors[i].shape, t->shape, sizeof t->shape);
    }
    ct_manifest_print_part(&m, out_part);
    free(pieces);
    free(m.tensors);
}

static ct_safetensors_item *items_of(const ct_named_tensor *tensors, int count, size_t *out_bytes) {
    ct_safetensors_item *items = ct_calloc((size_t)count, sizeof *items);
    for (int i = 0; i < count; i++) {
        ct_box box = ct_named_tensor_box(&tensors[i]);
        items[i] = (ct_safetensors_item){.name = tensors[i].name, .type = ct_stored_type_of(tensors[i].dtype), .dims = tensors[i].dims};
        memcpy(items[i].shape, box.extent, sizeof items[i].shape);
        *out_bytes += ct_named_tensor_bytes(&tensors[i]);
    }
    return items;
}

ct_status ct_checkpoint_shard_write(const ct_save_options *options, int rank, const ct_named_tensor *tensors, int count,
                                    ct_string *out_part) {
    CT_TRY(check_tensors(tensors, count));
    char name[64], metadata[128];
    snprintf(name, sizeof name, "shard-%d.safetensors", rank);
    snprintf(metadata, sizeof metadata, "{\"format\":\"pt\",\"step\":\"%lld\",\"rank\":\"%d\"}", (long long)options->step, rank);
    char *folder = ct_step_path(options->root, options->step, ".tmp"), *path = ct_format("%s/%s", folder, name);
    shard s = {.options = options, .tensors = tensors};
    ct_safetensors_item *items = items_of(tensors, count, &s.total);
    size_t bytes;
    ct_checksum checksum;
    ct_safetensors_write_options write = {path, metadata, produce, advance, &s};
    ct_status status = ct_safetensors_write(&write, items, count, &bytes, &checksum);
    if (!status) describe(name, tensors, items, count, bytes, checksum, out_part);
    free(items), free(path), free(folder);
    return status;
}

// ---- around it ----
ct_status ct_checkpoint_prepare(const ct_save_options *options) {
    CT_CHECK(options->step >= 0, CT_INVALID, "a checkpoint can't be of step %lld", (long long)options->step);
    CT_TRY(check_state(options->state_json ? options->state_json : "{}"));
    CT_TRY(ct_folder_make(options->root));
    CT_TRY(ct_step_folder_clean(options->root, options->step));
    char *folder = ct_step_path(options->root, options->step, ".tmp");
    ct_status status = ct_folder_make(folder);
    free(folder);
    return status;
}

static ct_status gather(const ct_save_options *options, const char *const *parts, int part_count, ct_manifest *manifest) {
    for (int i = 0; i < part_count; i++)
        CT_TRY(ct_manifest_add_part("a rank's part of the manifest", parts[i], strlen(parts[i]), manifest));
    manifest->step = options->step;
    manifest->state = options->state_json ? options->state_json : "{}";
    return ct_manifest_check("the new manifest", manifest);
}

static ct_status write_manifest(const ct_save_options *options, const ct_manifest *manifest) {
    ct_string text = {0};
    ct_manifest_print(manifest, &text);
    char *folder = ct_step_path(options->root, options->step, ".tmp"), *path = ct_format("%s/" CT_MANIFEST_NAME, folder);
    ct_status status = ct_file_write_atomic(path, text.text, text.length);
    if (!status) status = ct_folder_sync(folder);
    free(path), free(folder);
    ct_string_deinit(&text);
    return status;
}

ct_status ct_checkpoint_commit(const ct_save_options *options, const char *const *parts, int part_count) {
    ct_manifest manifest = {0};
    ct_status status = gather(options, parts, part_count, &manifest);
    if (!status) status = write_manifest(options, &manifest);
    ct_manifest_deinit(&manifest);
    CT_TRY(status);
    CT_TRY(ct_step_folder_commit(options->root, options->step));
    status = ct_checkpoint_prune(options->root, options->keep_latest_k, options->step);
    if (status && options->warn) options->warn(options->context, ct_error_text(status));
    return CT_OK;
}

void ct_checkpoint_abandon(const ct_save_options *options) { ct_step_folder_clean(options->root, options->step); }

static ct_status save(const ct_save_options *options, const ct_named_tensor *tensors, int count) {
    CT_TRY(ct_checkpoint_prepare(options));
    ct_string part = {0};
    ct_status status = ct_checkpoint_shard_write(options, 0, tensors, count, &part);
    if (!status) status = ct_checkpoint_commit(options, (const char *const[]){part.text}, 1);
    ct_string_deinit(&part);
    return status;
}

ct_status ct_checkpoint_save(const ct_save_options *options, const ct_named_tensor *tensors, int count) {
    ct_status status = save(options, tensors, count);
    if (!status) return CT_OK;
    ct_checkpoint_abandon(options);
    return ct_error_note(status, "saving step %lld; earlier checkpoints are as they were", (long long)options->step);
}
