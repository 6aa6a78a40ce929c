// Puts a TOML value into its place in the config, after a look at its type and range.
#include "keys.h"

#include <math.h>
#include <string.h>
#include <strings.h>

const char *config_where(ct_arena *arena, const char *file, int line, int column) {
    return file ? ct_arena_format(arena, "%s:%d:%d", file, line, column) : "command line";
}

static ct_status refuse(ct_arena *arena, const config_key *key, const char *index, const ct_toml_value *value,
                        const char *file) {
    ct_string found = {0}, wanted = {0};
    config_add_found(value, &found);
    if (index[0])
        ct_string_add(&wanted, "a string");
    else
        config_add_wanted(key, &wanted);
    ct_status status = ct_error_make(CT_INVALID, __FILE__, __LINE__, "%s: %s.%s%s = %s: %s is wanted",
                                     config_where(arena, file, value->line, value->column), key->section, key->name,
                                     index, found.text, wanted.text);
    ct_string_deinit(&found);
    ct_string_deinit(&wanted);
    return status;
}

static bool is_in_range(const config_range *range, double value) {
    if (isnan(value)) return false;
    if (!range || (range->or_minus_one && value == -1)) return true;
    if (range->not_one && value == 1) return false;
    bool above = range->above_min ? value > range->min : value >= range->min;
    return above && (range->below_max ? value < range->max : value <= range->max);
}

// Strings in a config are C strings.
static bool is_plain_string(const ct_toml_value *value) {
    return value->kind == CT_TOML_STRING && strlen(value->text) == value->bytes;
}

static bool set_bool(const config_key *key, void *at, const ct_toml_value *value) {
    if (value->kind != CT_TOML_BOOL) return false;
    if (key->optional)
        *(ct_opt_bool *)at = (ct_opt_bool){true, value->boolean};
    else
        *(bool *)at = value->boolean;
    return true;
}

static bool set_int(const config_key *key, void *at, const ct_toml_value *value) {
    if (value->kind != CT_TOML_INT || !is_in_range(key->range, (double)value->integer)) return false;
    if (key->optional)
        *(ct_opt_int *)at = (ct_opt_int){true, value->integer};
    else
        *(int64_t *)at = value->integer;
    return true;
}

static bool set_float(const config_key *key, void *at, const ct_toml_value *value) {
    if (value->kind != CT_TOML_FLOAT && value->kind != CT_TOML_INT) return false;
    double number = value->kind == CT_TOML_INT ? (double)value->integer : value->number;
    if (!is_in_range(key->range, number)) return false;
    if (key->optional)
        *(ct_opt_float *)at = (ct_opt_float){true, number};
    else
        *(double *)at = number;
    return true;
}

static bool set_string(ct_arena *arena, void *at, const ct_toml_value *value) {
    if (!is_plain_string(value)) return false;
    *(const char **)at = ct_arena_strdup(arena, value->text);
    return true;
}

static bool set_choice(const config_key *key, void *at, const ct_toml_value *value) {
    if (!is_plain_string(value)) return false;
    for (const config_choice *c = key->choices; c->name; c++) {
        if (key->any_case ? strcasecmp(c->name, value->text) : strcmp(c->name, value->text)) continue;
        memcpy(at, &c->value, sizeof c->value);
        return true;
    }
    return false;
}

static ct_status set_strings(ct_arena *arena, const config_key *key, ct_string_list *list, const ct_toml_value *value,
                             const char *file) {
    if (key->or_string && is_plain_string(value)) {
        *list = (ct_string_list){CT_ARENA_NEW(arena, const char *), 1};
        return set_string(arena, &list->items[0], value), CT_OK;
    }
    if (value->kind != CT_TOML_ARRAY) return refuse(arena, key, "", value, file);
    ct_string_list read = {0};
    if (value->item_count) read.items = CT_ARENA_ARRAY(arena, const char *, value->item_count);
    for (int64_t i = 0; i < value->item_count; i++) {
        const char *index = ct_arena_format(arena, "[%d]", read.count);
        if (!set_string(arena, &read.items[read.count++], value->items[i]))
            return refuse(arena, key, index, value->items[i], file);
    }
    *list = read;
    return CT_OK;
}

static ct_status set_string_lists(ct_arena *arena, const config_key *key, ct_string_lists *lists,
                                  const ct_toml_value *value, const char *file) {
    if (value->kind != CT_TOML_ARRAY) return refuse(arena, key, "", value, file);
    ct_string_lists read = {0};
    if (value->item_count) read.items = CT_ARENA_ARRAY(arena, ct_string_list, value->item_count);
    for (int64_t i = 0; i < value->item_count; i++)
        CT_TRY(set_strings(arena, key, &read.items[read.count++], value->items[i], file));
    *lists = read;
    return CT_OK;
}

// ---- groups ----
static const config_key *find_field(const config_key *key, const ct_toml_entry *entry) {
    for (int i = 0; i < key->field_count; i++) {
        const config_key *field = &key->fields[i];
        if (strlen(field->name) == entry->key_bytes && !memcmp(field->name, entry->key, entry->key_bytes))
            return field;
    }
    return NULL;
}

static ct_status refuse_field(ct_arena *arena, const config_key *key, const ct_toml_entry *entry, const char *file) {
    const char *known = key->fields[0].name;
    for (int i = 1; i < key->field_count; i++) known = ct_arena_format(arena, "%s, %s", known, key->fields[i].name);
    CT_FAIL(CT_INVALID, "%s: [[%s.%s]] has no key %s; it has %s",
            config_where(arena, file, entry->line, entry->column), key->section, key->name, entry->key, known);
}

static ct_status set_group(ct_arena *arena, const config_key *key, char *element, const ct_toml_value *table,
                           const char *file) {
    if (table->kind != CT_TOML_TABLE) return refuse(arena, key, "", table, file);
    for (int i = 0; i < key->field_count; i++) config_set_default(arena, &key->fields[i], element);
    for (int64_t i = 0; i < table->entry_count; i++) {
        const config_key *field = find_field(key, &table->entries[i]);
        if (!field) return refuse_field(arena, key, &table->entries[i], file);
        CT_TRY(config_set(arena, field, element, table->entries[i].value, file));
    }
    for (int i = 0; i < key->field_count; i++) {
        const config_key *field = &key->fields[i];
        if (field->default_text || field->optional || ct_toml_find(table, field->name)) continue;
        CT_FAIL(CT_INVALID, "%s: [[%s.%s]] lacks %s", config_where(arena, file, table->line, table->column),
                key->section, key->name, field->name);
    }
    return CT_OK;
}

static ct_status set_groups(ct_arena *arena, const config_key *key, char *base, const ct_toml_value *value,
                            const char *file) {
    if (value->kind != CT_TOML_ARRAY) return refuse(arena, key, "", value, file);
    char *elements = value->item_count ? ct_arena_alloc(arena, key->element_bytes * (size_t)value->item_count) : NULL;
    for (int64_t i = 0; i < value->item_count; i++)
        CT_TRY(set_group(arena, key, elements + (size_t)i * key->element_bytes, value->items[i], file));
    memcpy(base + key->offset, &elements, sizeof elements);
    *(int *)(base + key->count_offset) = (int)value->item_count;
    return CT_OK;
}

// ---- any key ----
ct_status config_set(ct_arena *arena, const config_key *key, void *base, const ct_toml_value *value,
                     const char *file) {
    void *at = (char *)base + key->offset;
    bool fits = false;
    switch (key->type) {
    case KEY_BOOL:
        fits = set_bool(key, at, value);
        break;
    case KEY_INT:
        fits = set_int(key, at, value);
        break;
    case KEY_FLOAT:
        fits = set_float(key, at, value);
        break;
    case KEY_STRING:
        fits = set_string(arena, at, value);
        break;
    case KEY_ENUM:
        fits = set_choice(key, at, value);
        break;
    case KEY_STRINGS:
        return set_strings(arena, key, at, value, file);
    case KEY_STRING_LISTS:
        return set_string_lists(arena, key, at, value, file);
    case KEY_GROUPS:
        return set_groups(arena, key, base, value, file);
    }
    return fits ? CT_OK : refuse(arena, key, "", value, file);
}

static void unset(const config_key *key, void *at) {
    switch (key->type) {
    case KEY_BOOL:
        *(ct_opt_bool *)at = (ct_opt_bool){0};
        return;
    case KEY_INT:
        *(ct_opt_int *)at = (ct_opt_int){0};
        return;
    case KEY_FLOAT:
        *(ct_opt_float *)at = (ct_opt_float){0};
        return;
    case KEY_STRING:
        *(const char **)at = NULL;
        return;
    case KEY_ENUM:
        memcpy(at, &key->unset_choice, sizeof key->unset_choice);
        return;
    default:
        CT_ASSERT(false, "%s.%s can't be unset", key->section, key->name);
    }
}

void config_set_default(ct_arena *arena, const config_key *key, void *base) {
    void *at = (char *)base + key->offset;
    if (!key->default_text) {
        // A list begins empty; a group's required field is filled in or refused.
        if (key->optional) unset(key, at);
        return;
    }
    ct_toml_value *value;
    ct_status status = ct_toml_parse_value(arena, key->name, key->default_text, strlen(key->default_text), &value);
    if (!status) status = config_set(arena, key, base, value, NULL);
    CT_ASSERT(!status, "the default of %s.%s: %s", key->section, key->name, ct_error_text(status));
}
