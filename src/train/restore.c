// Where a run's weights and state come from: its own newest checkpoint, another's, Hugging Face's or llama2.c's files, or initial values.
#include "trainer_parts.h"
#include "base/file.h"

#include <cjson/cJSON.h>
#include <stdlib.h>
#include <string.h>

static void warn(void *context, const char *text) {
    (void)context;
    fprintf(stderr, "ctitan: %s\n", text);
}

// A tensor that the model has, here or in another pipeline stage.
static int is_of_model(const void *elsewhere, const char *name) {
    const ct_model *model = elsewhere;
    for (int i = 0; i < model->parameters_count; i++) {
        const char *own = model->parameters[i].name, *rest = strstr(name, own);
        size_t n = strlen(own), prefix = strlen(CT_AVERAGE_PREFIX);
        if (rest == name && !name[n]) return 1;
        if (rest == name + prefix && !strncmp(name, CT_AVERAGE_PREFIX, prefix) && !rest[n]) return 1;
        if (rest == name + 10 && !strncmp(name, "optimizer.", 10) && (!strcmp(rest + n, ".exp_avg") || !strcmp(rest + n, ".exp_avg_sq"))) return 1;
    }
    return 0;
}

static int excluded(const ct_config_checkpoint *c, const char *what) {
    for (int i = 0; i < c->exclude_from_loading.count; i++)
        if (!strcmp(c->exclude_from_loading.items[i], what)) return 1;
    return 0;
}

// A count that the state has as part.step, or -1.
static int64_t state_count(const cJSON *state, const char *part, const char *name) {
    const cJSON *count = cJSON_GetObjectItemCaseSensitive(cJSON_GetObjectItemCaseSensitive(state, part), name);
    int is_count = cJSON_IsNumber(count) && count->valuedouble >= 0 && count->valuedouble < 9e15;
    return is_count ? (int64_t)count->valuedouble : -1;
}

static ct_status restore_counts(ct_trainer *t, const cJSON *state, int has_moments) {
    const ct_config_checkpoint *c = &t->config->checkpoint;
    int64_t step = state_count(state, "train_state", "step"), seen = state_count(state, "train_state", "ntokens_seen");
    CT_CHECK(step >= 0 && seen >= 0, CT_CORRUPT, "its train_state has no step or no ntokens_seen");
    if (!excluded(c, "train_state")) t->position = step, t->tokens_seen = seen;
    int64_t moments = state_count(state, "optimizer", "step"), schedule = state_count(state, "lr_scheduler", "step");
    if (has_moments) t->optimizer_step = moments >= 0 ? moments : step;
    t->averaged = state_count(state, "ema", "step");
    if (t->averaged < 0) t->averaged = 0;
    if (!excluded(c, "lr_scheduler")) t->schedule_step = schedule >= 0 ? schedule : step;
    return CT_OK;
}

// What a checkpoint says beside its tensors. One that was imported says nothing of a run: then it is only weights.
static ct_status restore_state(ct_trainer *t, const char *json, int has_moments) {
    cJSON *state = cJSON_Parse(json);
    const cJSON *data = cJSON_GetObjectItemCaseSensitive(state, "dataloader");
    ct_status status = CT_OK;
    if (cJSON_HasObjectItem(state, "train_state")) status = restore_counts(t, state, has_moments);
    if (!status && data && !excluded(&t->config->checkpoint, "dataloader")) {
        char *text = cJSON_PrintUnformatted(data);
        status = ct_data_state_restore(t->data, text, strlen(text));
        cJSON_free(text);
        if (status) status = ct_error_note(status, "checkpoint.exclude_from_loading = [\"dataloader\"] reads from the beginning");
    }
    cJSON_Delete(state);
    return status;
}

static int has_any(const ct_checkpoint *checkpoint, const char *prefix) {
    for (int i = 0; i < ct_checkpoint_count(checkpoint); i++)
        if (!strncmp(ct_checkpoint_tensor(checkpoint, i).name, prefix, strlen(prefix))) return 1;
    return 0;
}

// Moments that the checkpoint lacks are zero (a damaged one may have been read into them before), and the run says so.
static void start_moments(ct_trainer *t, const ct_named_tensor *tensors, int count, const char *path) {
    for (int i = 0; i < count; i++)
        if (!strncmp(tensors[i].name, "optimizer.", 10)) memset(tensors[i].data, 0, ct_named_tensor_bytes(&tensors[i]));
    if (t->position == 0 || t->position >= t->config->training.steps) return;
    if (t->rank) return;
    char *text = ct_format("%s holds weights only (checkpoint.last_save_model_only): AdamW's moments start again from zero; "
                           "checkpoint.load_step goes on from an earlier checkpoint that has them", path);
    warn(NULL, text);
    free(text);
}

// An average that one of checkpoint and run lacks begins with the weights, or is dropped, and the run says so.
static void settle_average(ct_trainer *t, const ct_checkpoint *checkpoint) {
    int stored = has_any(checkpoint, CT_AVERAGE_PREFIX), loaded = stored && !excluded(&t->config->checkpoint, "optimizer");
    if (t->options.average && !loaded) ct_average_begin(t);
    if (t->options.average == (t->options.average ? loaded : stored) || t->rank) return;
    char *text = ct_format("%s holds %s average of the weights: %s", ct_checkpoint_path(checkpoint), stored ? "an" : "no",
                           !t->options.average ? "it is dropped, as optimizer.ema_decay is 0"
                           : stored ? "checkpoint.exclude_from_loading leaves it out, and it begins with the weights"
                                    : "it begins with the weights (optimizer.ema_decay)");
    warn(NULL, text);
    free(text);
}

static ct_status open_and_load(const char *path, const ct_load_options *options, const ct_named_tensor *tensors, int count,
                               ct_checkpoint **out_checkpoint) {
    CT_TRY(ct_checkpoint_open(path, out_checkpoint));
    ct_status status = ct_checkpoint_load(*out_checkpoint, options, tensors, count);
    if (!status) return CT_OK;
    ct_checkpoint_close(*out_checkpoint);
    *out_checkpoint = NULL;
    return status;
}

static int is_step_folder(const char *path) {
    char *manifest = ct_format("%s/manifest.json", path);
    int is = ct_path_exists(manifest);
    free(manifest);
    return is;
}

// The newest whole checkpoint that is older than `before` (-1: the newest); NULL where there is none. Caller frees.
static ct_status next_older(const char *root, int64_t before, char **out_path, int64_t *out_step) {
    ct_checkpoint_info *infos;
    int count;
    *out_path = NULL;
    CT_TRY(ct_checkpoint_list(root, &infos, &count));
    for (int i = count - 1; i >= 0 && !*out_path; i--)
        if (infos[i].whole && (before < 0 || infos[i].step < before)) *out_path = ct_strdup(infos[i].path), *out_step = infos[i].step;
    ct_checkpoint_list_free(infos, count);
    return CT_OK;
}

// The first rank's path, on all; "" is NULL.
static ct_status tell_path(ct_trainer *t, char **path) {
    char text[4096] = "";
    if (t->rank == 0 && *path) snprintf(text, sizeof text, "%s", *path);
    free(*path);
    *path = NULL;
    CT_TRY(ct_comm_broadcast(t->comm, 0, text, sizeof text));
    if (text[0]) *path = ct_strdup(text);
    return CT_OK;
}

// All ranks load their parts of one checkpoint; where one finds it damaged, all go on to the next older one.
static ct_status load_together(ct_trainer *t, const char *root, int64_t step, const ct_load_options *options, const ct_named_tensor *tensors,
                               int count, ct_checkpoint **out_checkpoint) {
    *out_checkpoint = NULL;
    for (int64_t before = -1;;) {
        char *path = NULL;
        ct_status status = CT_OK;
        if (t->rank == 0)
            status = is_step_folder(root) ? (path = before < 0 ? ct_strdup(root) : NULL, CT_OK)
                     : step >= 0          ? ct_checkpoint_find(root, step, options->warn, options->context, &path)
                                          : next_older(root, before, &path, &before);
        status = ct_trainer_agree(t, status);
        if (!status) status = tell_path(t, &path);
        if (status || !path) return free(path), status;
        status = ct_trainer_agree(t, open_and_load(path, options, tensors, count, out_checkpoint));
        if (status && *out_checkpoint) ct_checkpoint_close(*out_checkpoint), *out_checkpoint = NULL;
        int goes_on = status && step < 0 && !is_step_folder(root) && ct_error_code(status) == CT_CORRUPT;
        if (goes_on && t->rank == 0) fprintf(stderr, "ctitan: passing over %s: %s\n", path, ct_error_text(status));
        free(path);
        if (!goes_on) return status;
    }
}

// Loads a whole checkpoint of ours, weights and the run's state: `path` is a step-N folder, or holds them.
static ct_status restore(ct_trainer *t, const char *path, int64_t step, int *out_found) {
    ct_arena arena = {0};
    int count, moments = !excluded(&t->config->checkpoint, "optimizer");
    ct_named_tensor *tensors = ct_state_tensors(&arena, ct_trainer_view(t), moments ? CT_WITH_MOMENTS | CT_WITH_AVERAGE : 0, 0, &count);
    const char *const ignored[] = {CT_AVERAGE_PREFIX, "optimizer."}, *const optional[] = {CT_AVERAGE_PREFIX, "optimizer."};
    ct_load_options options = {.warn = t->rank ? NULL : warn, .optional_prefixes = optional, .optional_count = 2, .ignored_prefixes = ignored,
                               .ignored_count = moments ? 1 : 2,
                               .is_elsewhere = is_of_model, .elsewhere = &t->model};
    ct_checkpoint *checkpoint = NULL;
    ct_status status = t->comm && ct_comm_size(t->comm) > 1
                           ? load_together(t, path, step, &options, tensors, count, &checkpoint)
                       : is_step_folder(path) ? open_and_load(path, &options, tensors, count, &checkpoint)
                                              : ct_checkpoint_restore(path, step, &options, tensors, count, &checkpoint);
    *out_found = checkpoint != NULL;
    if (!status && checkpoint) {
        int found_moments = moments && has_any(checkpoint, "optimizer.");
        if (t->rank == 0) fprintf(stderr, "ctitan: loaded %s\n", ct_checkpoint_path(checkpoint));
        status = restore_state(t, ct_checkpoint_state(checkpoint), found_moments);
        if (status) status = ct_error_note(status, "%s", ct_checkpoint_path(checkpoint));
        else if (moments && !found_moments) start_moments(t, tensors, count, ct_checkpoint_path(checkpoint));
        if (!status) settle_average(t, checkpoint);
    }
    if (checkpoint) ct_checkpoint_close(checkpoint);
    ct_arena_deinit(&arena);
    return status;
}

static ct_status load_foreign(const char *path, ct_state_view view, const ct_named_tensor *tensors, int count) {
    const ct_model *model = view.model;
    ct_warn_fn *say = view.rank ? NULL : warn; // all ranks read the same files
    ct_llama_shape known = ct_shape_of_model(model);
    ct_weights *weights;
    CT_TRY(ct_weights_open(path, &known, say, NULL, &weights));
    ct_status status = ct_weights_load(weights, &(ct_load_options){.warn = say, .is_elsewhere = is_of_model, .elsewhere = model}, tensors, count);
    ct_weights_close(weights);
    return status;
}

static ct_status load_own(const char *path, ct_state_view view, const ct_named_tensor *tensors, int count) {
    const char *const ignored[] = {"optimizer.", CT_AVERAGE_PREFIX};
    ct_load_options options = {.warn = view.rank ? NULL : warn, .ignored_prefixes = ignored, .ignored_count = 2, .is_elsewhere = is_of_model,
                               .elsewhere = view.model};
    ct_checkpoint *checkpoint = NULL;
    ct_status status = is_step_folder(path) ? open_and_load(path, &options, tensors, count, &checkpoint)
                                            : ct_checkpoint_restore(path, -1, &options, tensors, count, &checkpoint);
    if (!status && !checkpoint) CT_FAIL(CT_NOT_FOUND, "there is no checkpoint in %s", path);
    if (checkpoint) ct_checkpoint_close(checkpoint);
    return status;
}

// A folder of ours has a manifest.json, or step-N folders that do; all else is read as Hugging Face's or llama2.c's.
static int is_own(const char *path) {
    int own = is_step_folder(path);
    ct_checkpoint_info *infos;
    int count;
    if (own || !ct_path_is_folder(path) || ct_checkpoint_list(path, &infos, &count)) return own;
    own = count > 0;
    ct_checkpoint_list_free(infos, count);
    return own;
}

ct_status ct_load_weights(const char *path, ct_state_view view, int average) {
    CT_CHECK(ct_path_exists(path), CT_NOT_FOUND, "there is no %s", path);
    ct_arena arena = {0};
    int count;
    ct_named_tensor *tensors = ct_state_tensors(&arena, view, 0, 0, &count);
    int own = is_own(path);
    for (int i = 0; average && i < count; i++) tensors[i].name = ct_average_name(&arena, tensors[i].name);
    ct_status status = own       ? load_own(path, view, tensors, count)
                       : average ? ct_error_make(CT_INVALID, __FILE__, __LINE__, "%s is no checkpoint of ctitan: it holds no average of the weights", path)
                                 : load_foreign(path, view, tensors, count);
    ct_arena_deinit(&arena);
    return status;
}

static void initial_values(ct_trainer *t) {
    uint64_t seed = t->config->debug.seed.has ? (uint64_t)t->config->debug.seed.value : 0;
    for (int i = 0; i < t->model.parameters_count; i++) {
        const ct_parameter *p = &t->model.parameters[i];
        int owner;
        if (!ct_state_is_here(&t->step, p->name)) continue;
        ct_region region = ct_region_of_state(&t->step, t->rank, p->name, &owner);
        ct_init_parameter(p, i, seed, &region, t->team, ct_exec_data(t->exec, p->name));
    }
}

static ct_status load_initial(ct_trainer *t) {
    const ct_config_checkpoint *c = &t->config->checkpoint;
    if (!c->enable || !c->initial_load_path) {
        initial_values(t);
        ct_average_begin(t);
        return CT_OK;
    }
    int found;
    if (!c->initial_load_in_hf && !c->initial_load_model_only && is_own(c->initial_load_path)) {
        CT_TRY(restore(t, c->initial_load_path, -1, &found));
        CT_CHECK(found, CT_NOT_FOUND, "there is no checkpoint in %s", c->initial_load_path);
        return CT_OK;
    }
    CT_TRY(ct_trainer_agree(t, ct_load_weights(c->initial_load_path, ct_trainer_view(t), 0)));
    ct_average_begin(t);
    return CT_OK;
}

ct_status ct_trainer_load(ct_trainer *t) {
    const ct_config_checkpoint *c = &t->config->checkpoint;
    int found = 0;
    if (c->enable) {
        char *root = ct_trainer_checkpoint_root(t);
        ct_status status = ct_trainer_agree(t, c->load_only || t->rank ? CT_OK : ct_checkpoint_clean(root));
        if (!status) status = restore(t, root, c->load_step, &found);
        free(root);
        CT_TRY_AS(status, "resuming");
    }
    if (found) return CT_OK;
    CT_TRY_AS(load_initial(t), "initial weights, checkpoint.initial_load_path from %s",
              ct_config_origin_text(t->config, "checkpoint.initial_load_path"));
    return CT_OK;
}
