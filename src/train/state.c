// What a checkpoint holds, and saving it. Names are torchtitan's; the trainer's own state (step, data position, schedule,
// seed, model shape) is a JSON object in the manifest.
#include "trainer_parts.h"
#include "base/file.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

char *ct_trainer_checkpoint_root(const ct_trainer *t) {
    return ct_format("%s/%s", t->config->job.dump_folder, t->config->checkpoint.folder);
}

// Appends what the rank has of a state; nothing where that is nothing.
static void add_tensor(ct_state_view v, const char *name, const ct_type *type, int owned, ct_named_tensor *list, int *count) {
    if (!ct_state_is_here(v.step, name)) return;
    ct_named_tensor tensor = {.name = name, .dtype = CT_F32, .dims = type->dims_count, .data = ct_exec_data(v.exec, name)};
    int owner;
    ct_region region = ct_region_of_state(v.step, v.rank, name, &owner);
    for (int d = 0; d < type->dims_count; d++) {
        tensor.shape[d] = type->dims[d].extent;
        tensor.box.offset[d] = region.offset[d];
        tensor.box.extent[d] = region.extent[d];
        tensor.is_piece |= region.extent[d] != type->dims[d].extent;
        if (!region.extent[d]) return;
    }
    if (!owned || owner) list[(*count)++] = tensor;
}

ct_named_tensor *ct_state_tensors(ct_arena *arena, ct_state_view v, int with, int owned, int *out_count) {
    ct_named_tensor *list = CT_ARENA_ARRAY(arena, ct_named_tensor, 4 * v.model->parameters_count);
    *out_count = 0;
    for (int i = 0; i < v.model->parameters_count; i++) {
        const ct_parameter *p = &v.model->parameters[i];
        add_tensor(v, p->name, &p->type, owned, list, out_count);
        for (int second = 0; with & CT_WITH_MOMENTS && second < 2; second++)
            add_tensor(v, ct_moment_name(arena, p->name, second), &p->type, owned, list, out_count);
        if (with & CT_WITH_AVERAGE) add_tensor(v, ct_average_name(arena, p->name), &p->type, owned, list, out_count);
    }
    return list;
}

ct_llama_shape ct_shape_of_model(const ct_model *model) {
    const ct_model_shape *s = &model->shape;
    int scaled = s->rope_factor > 1;
    return (ct_llama_shape){.dim = s->dim,
                            .n_layers = s->n_layers,
                            .n_heads = s->n_heads,
                            .n_kv_heads = s->n_kv_heads,
                            .ffn_dim = s->ffn_dim,
                            .vocab_size = s->vocab_size,
                            .max_seq_len = s->max_seq_len,
                            .norm_eps = s->norm_eps,
                            .rope_theta = s->rope_theta,
                            .rope_scaling_factor = scaled ? s->rope_factor : 0,
                            .rope_low_freq_factor = scaled ? s->rope_low : 0,
                            .rope_high_freq_factor = scaled ? s->rope_high : 0,
                            .rope_original_max_seq_len = scaled ? s->rope_original : 0,
                            .tied = s->tied};
}

// ---- saving ----
ct_status ct_trainer_make_saver(ct_trainer *t) {
    ct_arena arena = {0};
    int count;
    ct_named_tensor *tensors = ct_state_tensors(&arena, ct_trainer_view(t), CT_WITH_MOMENTS | CT_WITH_AVERAGE, 1, &count);
    ct_saver_options options = {.team = t->team, .staging_bytes = ct_saver_staging_bytes(tensors, count)};
    ct_status status = ct_saver_create(&options, &t->saver);
    ct_arena_deinit(&arena);
    return status;
}

static char *state_text(const ct_trainer *t) {
    ct_string s = {0};
    ct_llama_shape shape = ct_shape_of_model(&t->model);
    ct_string_add(&s, "{\"ctitan\": \"%s\", \"config_hash\": \"%016llx\", \"plan_hash\": \"%016llx\", \"model\": ", CT_VERSION,
                  (unsigned long long)ct_config_hash(t->config), (unsigned long long)t->step.plan.hash);
    ct_llama_shape_print(&shape, &s);
    const ct_tokenizer_info *info = ct_tokenizer_describe(ct_encoder_tokenizer(t->encoder));
    ct_string_add(&s, ", \"tokenizer\": {\"bos_id\": %d, \"eos_id\": %d}", info->bos_id, info->eos_id);
    char *data;
    ct_data_state_save(t->data, &data);
    ct_string_add(&s, ", \"train_state\": {\"step\": %lld, \"ntokens_seen\": %lld, \"seed\": %lld}, \"optimizer\": {\"step\": %lld}, "
                      "\"lr_scheduler\": {\"step\": %lld}, \"ema\": {\"step\": %lld}, \"dataloader\": %s}",
                  (long long)t->position, (long long)t->tokens_seen,
                  (long long)(t->config->debug.seed.has ? t->config->debug.seed.value : 0), (long long)t->optimizer_step,
                  (long long)t->schedule_step, (long long)t->averaged, data);
    free(data);
    return s.text;
}

// Many ranks: each writes what it speaks for, the first puts the parts together.
static ct_status commit_together(ct_trainer *t, const ct_save_options *options, ct_status mine, const ct_string *part) {
    void **parts = NULL;
    size_t *bytes = NULL;
    ct_status status = ct_trainer_agree(t, mine);
    if (!status) status = ct_comm_gather(t->comm, 0, part->text ? part->text : "", part->text ? part->length + 1 : 1, &parts, &bytes);
    ct_status committed = CT_OK;
    if (!status && t->rank == 0) committed = ct_checkpoint_commit(options, (const char *const *)parts, ct_comm_size(t->comm));
    if (!status) status = ct_trainer_agree(t, committed);
    if (status && t->rank == 0) ct_checkpoint_abandon(options);
    for (int r = 0; parts && r < ct_comm_size(t->comm); r++) free(parts[r]);
    free(parts);
    free(bytes);
    return status;
}

static ct_status save_together(ct_trainer *t, const ct_save_options *options, const ct_named_tensor *tensors, int count) {
    CT_TRY(ct_trainer_agree(t, t->rank == 0 ? ct_checkpoint_prepare(options) : CT_OK));
    ct_string part = {0};
    ct_status status = commit_together(t, options, ct_checkpoint_shard_write(options, t->rank, tensors, count, &part), &part);
    ct_string_deinit(&part);
    return status;
}

// The same in the background: parts are put together after a later step, when all are written.
static ct_status begin_together(ct_trainer *t, const ct_save_options *options, const ct_named_tensor *tensors, int count) {
    CT_TRY(ct_trainer_settle_save(t, 1));
    CT_TRY(ct_trainer_agree(t, t->rank == 0 ? ct_checkpoint_prepare(options) : CT_OK));
    ct_status status = ct_trainer_agree(t, ct_checkpoint_shard_begin(t->saver, options, t->rank, tensors, count));
    if (status) {
        if (t->rank == 0) ct_checkpoint_abandon(options);
        return status;
    }
    t->pending = *options;
    t->pending.root = ct_format("%s", options->root);
    t->pending.state_json = ct_format("%s", options->state_json);
    return CT_OK;
}

ct_status ct_trainer_settle_save(ct_trainer *t, int wait) {
    if (!t->pending.root) return CT_OK;
    int64_t running = !wait && ct_checkpoint_save_is_running(t->saver);
    CT_TRY(ct_comm_max_i64(t->comm, &running, 1));
    if (running) return CT_OK;
    ct_string part = {0};
    ct_status status = ct_checkpoint_shard_end(t->saver, &part);
    status = commit_together(t, &t->pending, status, &part);
    if (status) status = ct_error_note(status, "saving step %lld in the background", (long long)t->pending.step);
    ct_string_deinit(&part);
    free((char *)t->pending.root);
    free((char *)t->pending.state_json);
    t->pending = (ct_save_options){0};
    return status;
}

static uint16_t **rounded(ct_arena *arena, ct_named_tensor *tensors, int count) {
    uint16_t **low = CT_ARENA_ARRAY(arena, uint16_t *, count + 1);
    for (int i = 0; i < count; i++) {
        int64_t n = ct_named_tensor_elems(&tensors[i]);
        low[i] = ct_malloc(2 * (size_t)n);
        for (int64_t k = 0; k < n; k++) low[i][k] = ct_bf16_from_f32(((const float *)tensors[i].data)[k]);
        tensors[i].data = low[i];
        tensors[i].dtype = CT_BF16;
    }
    return low;
}

static int is_alone(const ct_trainer *t) { return !t->comm || ct_comm_size(t->comm) == 1; }

static ct_status save_checkpoint(ct_trainer *t, const char *root, int64_t keep, int with, int at_once, ct_export_dtype dtype) {
    ct_arena arena = {0};
    int count;
    ct_named_tensor *tensors = ct_state_tensors(&arena, ct_trainer_view(t), with, 1, &count);
    char *state = state_text(t);
    ct_save_options options = {.root = root, .step = t->position, .state_json = state, .keep_latest_k = keep};
    uint16_t **low = !(with & CT_WITH_MOMENTS) && dtype == CT_EXPORT_BF16 ? rounded(&arena, tensors, count) : NULL;
    int behind = t->saver && !at_once;
    ct_status status = !is_alone(t) ? (behind ? begin_together : save_together)(t, &options, tensors, count)
                       : behind     ? ct_checkpoint_save_begin(t->saver, &options, tensors, count)
                                    : ct_checkpoint_save(&options, tensors, count);
    for (int i = 0; low && i < count; i++) free(low[i]);
    free(state);
    ct_arena_deinit(&arena);
    return status;
}

// A tensor of a checkpoint, whole, in `data` until the next one.
typedef struct {
    const ct_checkpoint *checkpoint;
    void *data;
} whole_reader;

static ct_status read_whole(void *context, const ct_named_tensor *tensor, const void **out_data) {
    whole_reader *r = context;
    free(r->data);
    r->data = ct_malloc(ct_named_tensor_bytes(tensor) + 1);
    ct_named_tensor wanted = *tensor;
    wanted.data = r->data;
    *out_data = r->data;
    return ct_checkpoint_load(r->checkpoint, &(ct_load_options){.allow_unexpected = 1}, &wanted, 1);
}

static ct_status export_hf(ct_trainer *t, const char *root, ct_export_dtype dtype, const ct_named_tensor *tensors, int count, ct_fetch_fn *fetch,
                           void *context) {
    const ct_tokenizer_info *info = ct_tokenizer_describe(ct_encoder_tokenizer(t->encoder));
    char *folder = ct_format("%s/step-%lld-hf", root, (long long)t->position), *fresh = ct_format("%s.new", folder);
    ct_hf_export_options options = {.folder = fresh,
                                    .dtype = dtype,
                                    .has_tokens = info->bos_id >= 0 && info->eos_id >= 0,
                                    .bos_token_id = info->bos_id,
                                    .eos_token_id = info->eos_id,
                                    .fetch = fetch,
                                    .context = context};
    ct_llama_shape shape = ct_shape_of_model(&t->model);
    ct_status status = ct_folder_make(root);
    if (!status) status = ct_folder_remove(fresh); // a killed run's
    if (!status) status = ct_hf_export(&options, &shape, tensors, count);
    if (!status) status = ct_folder_remove(folder); // an earlier run's last save of this step
    if (!status && rename(fresh, folder))
        status = ct_error_make(CT_IO, __FILE__, __LINE__, "cannot rename %s to %s: %s", fresh, folder, strerror(errno));
    free(folder);
    free(fresh);
    return status;
}

// From a checkpoint of the weights, one tensor after the other.
static ct_status export_from(ct_trainer *t, const char *root, const char *shards, ct_export_dtype dtype) {
    char *path = ct_format("%s/step-%lld", shards, (long long)t->position);
    ct_checkpoint *checkpoint;
    ct_status status = ct_checkpoint_open(path, &checkpoint);
    free(path);
    CT_TRY(status);
    int count = ct_checkpoint_count(checkpoint);
    ct_named_tensor *tensors = ct_malloc(sizeof *tensors * (size_t)(count + 1));
    for (int i = 0; i < count; i++) tensors[i] = ct_checkpoint_tensor(checkpoint, i);
    whole_reader reader = {checkpoint, NULL};
    status = export_hf(t, root, dtype, tensors, count, read_whole, &reader);
    free(reader.data);
    free(tensors);
    ct_checkpoint_close(checkpoint);
    return status;
}

static ct_status save_hf(ct_trainer *t, const char *root, ct_export_dtype dtype) {
    if (is_alone(t)) {
        ct_arena arena = {0};
        int count;
        ct_named_tensor *tensors = ct_state_tensors(&arena, ct_trainer_view(t), 0, 1, &count);
        ct_status status = export_hf(t, root, dtype, tensors, count, NULL, NULL);
        ct_arena_deinit(&arena);
        return status;
    }
    char *shards = ct_format("%s/step-%lld-hf.shards", root, (long long)t->position); // ranks' parts, put together by the first
    ct_status status = save_checkpoint(t, shards, 0, 0, 1, CT_EXPORT_F32);
    if (!status) status = ct_trainer_agree(t, t->rank == 0 ? export_from(t, root, shards, dtype) : CT_OK);
    if (t->rank == 0 && ct_path_is_folder(shards)) {
        ct_status removed = ct_folder_remove(shards);
        if (!status) status = removed;
    }
    free(shards);
    return ct_trainer_agree(t, status);
}

typedef struct {
    const float *data;
    int64_t count;
    atomic_int *is_bad;
} finite_search;

static void search_part(void *context, int thread, int threads) {
    const finite_search *s = context;
    long long begin, end;
    float sum = 0; // of zeros: a NaN where a value is not finite
    ct_share(s->count, 1024, thread, threads, &begin, &end);
    for (long long i = begin; i < end; i++) sum += s->data[i] * 0;
    if (sum != 0) atomic_store(s->is_bad, 1);
}

// A checkpoint to go on from has no use where a weight is not finite (the optimizer can make one from a finite gradient).
static ct_status check_finite(const ct_trainer *t) {
    for (int i = 0; i < t->model.parameters_count; i++) {
        const ct_parameter *p = &t->model.parameters[i];
        atomic_int is_bad = 0;
        if (!ct_state_is_here(&t->step, p->name)) continue;
        int owner;
        ct_region region = ct_region_of_state(&t->step, t->rank, p->name, &owner);
        int64_t elems = 1;
        for (int d = 0; d < p->type.dims_count; d++) elems *= region.extent[d];
        finite_search search = {ct_exec_data(t->exec, p->name), elems, &is_bad};
        ct_team_run(t->team, search_part, &search);
        CT_CHECK(!is_bad, CT_NONFINITE, "step %lld: the update made values of %s that are not finite; nothing is saved of it",
                 (long long)t->position, p->name);
    }
    return CT_OK;
}

ct_status ct_trainer_save(ct_trainer *t, int last) {
    const ct_config_checkpoint *c = &t->config->checkpoint;
    CT_TRY(ct_trainer_agree(t, check_finite(t)));
    ct_export_dtype dtype = c->export_dtype == CT_CFG_BFLOAT16  ? CT_EXPORT_BF16
                            : c->export_dtype == CT_CFG_FLOAT16 ? CT_EXPORT_F16
                                                                : CT_EXPORT_F32;
    char *root = ct_trainer_checkpoint_root(t);
    ct_status status = last && c->last_save_model_only && c->last_save_in_hf
                           ? save_hf(t, root, dtype)
                           : save_checkpoint(t, root, c->keep_latest_k, (last && c->last_save_model_only ? 0 : CT_WITH_MOMENTS) | CT_WITH_AVERAGE, 0, dtype);
    if (status) status = ct_error_note(status, "saving step %lld", (long long)t->position);
    free(root);
    return status;
}
