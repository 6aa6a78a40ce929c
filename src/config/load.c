// Reads a config: defaults from the table, then the TOML file, then the command line; then what follows from one key
// for another.
#include "keys.h"

#include "base/file.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_FILE_BYTES = 4 << 20 };

typedef struct {
    ct_arena *arena;
    ct_config *config;
    const char *file;
} loader;

// A key's name for messages: control characters as '?'.
static const char *shown(ct_arena *arena, const ct_toml_entry *entry) {
    char *name = ct_arena_strndup(arena, entry->key, entry->key_bytes);
    for (size_t i = 0; i < entry->key_bytes; i++)
        if ((unsigned char)name[i] < 0x20 || name[i] == 0x7f) name[i] = '?';
    return name;
}

static ct_status refuse_entry(loader *l, const char *section, const ct_toml_entry *entry) {
    const char *name = shown(l->arena, entry), *where = config_where(l->arena, l->file, entry->line, entry->column);
    const char *full = section[0] ? ct_arena_format(l->arena, "%s.%s", section, name) : name;
    bool table = entry->value->kind == CT_TOML_TABLE, top = !section[0];
    if (!table && config_is_section(full, strlen(full)))
        CT_FAIL(CT_INVALID, "%s: %s is a section: its keys are wanted below [%s], found %s", where, full, full,
                ct_toml_kind_text(entry->value->kind));
    ct_string nearest = {0};
    bool as_section = table || top;
    config_add_nearest(as_section ? full : section, as_section ? NULL : name, &nearest);
    ct_status status =
        table ? ct_error_make(CT_INVALID, __FILE__, __LINE__, "%s: there is no section [%s]%s", where, full,
                              nearest.text)
        : top
            ? ct_error_make(CT_INVALID, __FILE__, __LINE__, "%s: the key %s stands before any [section]", where, full)
            : ct_error_make(CT_INVALID, __FILE__, __LINE__, "%s: there is no key %s%s", where, full, nearest.text);
    ct_string_deinit(&nearest);
    return status;
}

static ct_status take_entry(loader *l, const char *section, const ct_toml_entry *entry);

static ct_status take_table(loader *l, const char *section, const ct_toml_value *table) {
    for (int64_t i = 0; i < table->entry_count; i++) CT_TRY(take_entry(l, section, &table->entries[i]));
    return CT_OK;
}

static ct_status take_entry(loader *l, const char *section, const ct_toml_entry *entry) {
    const ct_toml_value *value = entry->value;
    int index = config_key_find(section, strlen(section), entry->key, entry->key_bytes);
    if (index >= 0) {
        l->config->origins[index] =
            (ct_config_origin){ORIGIN_FILE, config_where(l->arena, l->file, value->line, value->column)};
        return config_set(l->arena, config_key_at(index), l->config, value, l->file);
    }
    const char *full = section[0] ? ct_arena_format(l->arena, "%s.%s", section, entry->key) : entry->key;
    if (value->kind != CT_TOML_TABLE || strlen(entry->key) != entry->key_bytes ||
        !config_is_section(full, strlen(full)))
        return refuse_entry(l, section, entry);
    return take_table(l, full, value);
}

static ct_config *new_config(ct_arena *arena) {
    ct_config *config = CT_ARENA_NEW(arena, ct_config);
    int count = config_key_count();
    config->origins = CT_ARENA_ARRAY(arena, ct_config_origin, count);
    for (int i = 0; i < count; i++) {
        config_set_default(arena, config_key_at(i), config);
        config->origins[i] = (ct_config_origin){ORIGIN_DEFAULT, "default"};
    }
    return config;
}

static ct_config_origin *origin_of(const ct_config *config, const char *full) {
    const char *dot = strrchr(full, '.');
    int index = dot ? config_key_find(full, (size_t)(dot - full), dot + 1, strlen(dot + 1)) : -1;
    return index < 0 ? NULL : &config->origins[index];
}

const char *ct_config_origin_text(const ct_config *config, const char *key) {
    const ct_config_origin *origin = origin_of(config, key);
    return origin ? origin->text : "";
}

// ---- what follows from a key for others ----
static ct_status derive_selective_every(ct_config *config) {
    ct_config_activation_checkpoint *ac = &config->activation_checkpoint;
    const char *option = ac->selective_ac_option;
    ac->selective_every = 0;
    if (!strcmp(option, "op")) return CT_OK;
    bool digits =
        option[0] && option[0] != '0' && strspn(option, "0123456789") == strlen(option) && strlen(option) < 10;
    if (digits) return ac->selective_every = atoll(option), CT_OK;
    CT_FAIL(CT_INVALID,
            "%s: activation_checkpoint.selective_ac_option = \"%s\": \"op\" or an integer ≥ 1 as a string is wanted",
            ct_config_origin_text(config, "activation_checkpoint.selective_ac_option"), option);
}

static ct_status derive(ct_config *config) {
    if (config->model.tokenizer_path) {
        config->model.hf_assets_path = config->model.tokenizer_path;
        *origin_of(config, "model.hf_assets_path") = *origin_of(config, "model.tokenizer_path");
    }
    config->job.config_file = config->path;
    return derive_selective_every(config);
}

// ---- entry points ----
static ct_status take_file(loader *l, const char *text, size_t bytes) {
    ct_toml_value *root;
    CT_TRY(ct_toml_parse(l->arena, l->file, text, bytes, &root));
    return take_table(l, "", root);
}

static ct_status take_arguments(loader *l, int argc, char **argv) {
    for (int taken; argc > 0; argc -= taken, argv += taken)
        CT_TRY(config_take_argument(l->arena, l->config, argc, argv, &taken));
    return CT_OK;
}

ct_status ct_config_parse(ct_arena *arena, const char *name, const char *text, size_t bytes, int argc, char **argv,
                          ct_config **out_config) {
    loader l = {arena, new_config(arena), name};
    l.config->path = name ? ct_arena_strdup(arena, name) : NULL;
    if (name) CT_TRY(take_file(&l, text, bytes));
    CT_TRY(take_arguments(&l, argc, argv));
    CT_TRY(derive(l.config));
    *out_config = l.config;
    return CT_OK;
}

ct_status ct_config_load(ct_arena *arena, const char *path, int argc, char **argv, ct_config **out_config) {
    const char *argument = config_file_argument(argc, argv);
    CT_CHECK(!path || !argument || !strcmp(path, argument), CT_INVALID,
             "command line: two config files: %s and --job.config_file %s", path, argument);
    if (!path) path = argument;
    if (!path) return ct_config_parse(arena, NULL, NULL, 0, argc, argv, out_config);
    char *text;
    size_t bytes;
    CT_TRY(ct_file_read(path, MAX_FILE_BYTES, &text, &bytes));
    ct_status status = ct_config_parse(arena, path, text, bytes, argc, argv, out_config);
    free(text);
    return status;
}
