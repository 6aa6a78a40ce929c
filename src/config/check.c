// What `train` says of a config before anything is built: keys without use here, values that are not built,
// contradictions.
#include "keys.h"

#include <stdlib.h>
#include <string.h>

static bool differs_from_default(const config_key *key, const ct_config *config, ct_string *value) {
    ct_config fresh = {0};
    ct_arena arena = {0};
    ct_string normal = {0};
    config_set_default(&arena, key, &fresh);
    bool set = config_add_value(key, config, TEXT_TOML, value),
         set_by_default = config_add_value(key, &fresh, TEXT_TOML, &normal);
    bool differs = set != set_by_default || (set && strcmp(value->text, normal.text) != 0);
    ct_string_deinit(&normal);
    ct_arena_deinit(&arena);
    return differs;
}

static void note_no_effect(const ct_config *config, int index, void (*note)(void *, const char *), void *context) {
    const config_key *key = config_key_at(index);
    ct_string value = {0};
    if (key->use == USE_NONE && differs_from_default(key, config, &value)) {
        char *line = ct_format("%s: %s.%s = %s has no effect here: %s", config->origins[index].text, key->section,
                               key->name, value.text ? value.text : "unset", key->why);
        note(context, line);
        free(line);
    }
    ct_string_deinit(&value);
}

// Is text one of the words parted by blanks? The empty list of words holds the empty text.
static bool is_among(const char *words, const char *text) {
    size_t bytes = strlen(text);
    for (;;) {
        size_t n = strcspn(words, " ");
        if (n == bytes && !memcmp(words, text, n)) return true;
        if (!words[n]) return false;
        words += n + 1;
    }
}

// Appends a line where this version doesn't build a key's value.
static void add_unbuilt(const ct_config *config, int index, ct_string *out) {
    const config_key *key = config_key_at(index);
    if (!key->built || (key->is_unread && key->is_unread(config))) return;
    ct_string plain = {0}, value = {0};
    config_add_value(key, config, TEXT_PLAIN, &plain);
    if (!is_among(key->built, plain.text ? plain.text : "")) {
        config_add_value(key, config, TEXT_TOML, &value);
        ct_string_add(out, "%s%s: %s.%s = %s is not built yet", out->length ? "\n" : "", config->origins[index].text,
                      key->section, key->name, value.text);
        if (key->built[0]) ct_string_add(out, " (built: %s)", key->built);
    }
    ct_string_deinit(&plain);
    ct_string_deinit(&value);
}

// ---- keys that contradict each other ----
static ct_status check_data(const ct_config *config, const char *section, ct_cfg_dataset dataset, const char *path) {
    bool needs_path = dataset == CT_CFG_TEXT || dataset == CT_CFG_JSONL || dataset == CT_CFG_CORPUS;
    const char *key = section[0] == 't' ? "training.dataset" : "validation.dataset";
    CT_CHECK(!needs_path || path, CT_INVALID, "%s: %s.dataset wants a %s.dataset_path",
             ct_config_origin_text(config, key), section, section);
    return CT_OK;
}

static ct_status check_batches(const ct_config *config) {
    const ct_config_training *t = &config->training;
    int64_t shards = config->parallelism.data_parallel_shard_degree;
    int64_t rows = t->local_batch_size,
            ranks = config->parallelism.data_parallel_replicate_degree * (shards > 0 ? shards : 1);
    CT_CHECK(t->global_batch_size < 0 ||
                 (rows <= t->global_batch_size && t->global_batch_size / rows * rows == t->global_batch_size &&
                  t->global_batch_size / rows % ranks == 0),
             CT_INVALID,
             "%s: training.global_batch_size = %lld is no multiple of local_batch_size %lld times %lld data-parallel "
             "ranks",
             ct_config_origin_text(config, "training.global_batch_size"), (long long)t->global_batch_size,
             (long long)rows, (long long)ranks);
    return CT_OK;
}

static ct_status check_excluded(const ct_config *config) {
    const ct_config_checkpoint *c = &config->checkpoint;
    static const char parts[] = "optimizer lr_scheduler dataloader train_state";
    for (int i = 0; i < c->exclude_from_loading.count; i++)
        CT_CHECK(is_among(parts, c->exclude_from_loading.items[i]), CT_INVALID,
                 "%s: checkpoint.exclude_from_loading has \"%s\": the parts are %s",
                 ct_config_origin_text(config, "checkpoint.exclude_from_loading"), c->exclude_from_loading.items[i], parts);
    return CT_OK;
}

static ct_status check_checkpoint(const ct_config *config) {
    const ct_config_checkpoint *c = &config->checkpoint;
    CT_TRY(check_excluded(config));
    CT_CHECK(c->export_dtype != CT_CFG_FLOAT16 || !c->last_save_model_only || c->last_save_in_hf, CT_INVALID,
             "%s: checkpoint.export_dtype = \"float16\" wants last_save_in_hf: our checkpoints hold float32 or bfloat16",
             ct_config_origin_text(config, "checkpoint.export_dtype"));
    CT_CHECK(!c->initial_load_in_hf || c->initial_load_path, CT_INVALID,
             "%s: checkpoint.initial_load_in_hf wants a checkpoint.initial_load_path",
             ct_config_origin_text(config, "checkpoint.initial_load_in_hf"));
    CT_CHECK(
        !c->initial_load_in_hf || c->initial_load_model_only, CT_INVALID,
        "%s: checkpoint.initial_load_in_hf wants initial_load_model_only: a Hugging Face folder holds nothing else",
        ct_config_origin_text(config, "checkpoint.initial_load_in_hf"));
    CT_CHECK(!c->last_save_in_hf || c->last_save_model_only, CT_INVALID,
             "%s: checkpoint.last_save_in_hf wants last_save_model_only: a Hugging Face folder holds nothing else",
             ct_config_origin_text(config, "checkpoint.last_save_in_hf"));
    return CT_OK;
}

static ct_status check_contradictions(const ct_config *config) {
    const ct_config_training *t = &config->training;
    CT_CHECK(!t->source_count || !t->dataset_path, CT_INVALID,
             "%s: training.dataset_path is not read beside [[training.sources]] (%s): give one of them",
             ct_config_origin_text(config, "training.dataset_path"),
             ct_config_origin_text(config, "training.sources"));
    if (!t->source_count) CT_TRY(check_data(config, "training", t->dataset, t->dataset_path));
    if (config->validation.enable)
        CT_TRY(check_data(config, "validation", config->validation.dataset, config->validation.dataset_path));
    CT_TRY(check_batches(config));
    return check_checkpoint(config);
}

ct_status ct_config_check_train(const ct_config *config, void (*note)(void *context, const char *line),
                                void *context) {
    ct_string unbuilt = {0};
    ct_status status = check_contradictions(config);
    for (int i = 0, count = config_key_count(); i < count; i++) {
        if (note) note_no_effect(config, i, note, context);
        add_unbuilt(config, i, &unbuilt);
    }
    if (!status && unbuilt.length) status = ct_error_make(CT_UNSUPPORTED, __FILE__, __LINE__, "%s", unbuilt.text);
    ct_string_deinit(&unbuilt);
    return status;
}
