// Values as text: TOML that reads back to the same value, JSON, and what messages show.
#include "keys.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void add_quoted(const char *text, size_t bytes, ct_string *out) {
    ct_string_add(out, "\"");
    for (size_t i = 0; i < bytes; i++) {
        unsigned char c = (unsigned char)text[i];
        if (c == '"' || c == '\\')
            ct_string_add(out, "\\%c", c);
        else if (c == '\n')
            ct_string_add(out, "\\n");
        else if (c == '\t')
            ct_string_add(out, "\\t");
        else if (c < 0x20 || c == 0x7f)
            ct_string_add(out, "\\u%04x", c);
        else
            ct_string_add_bytes(out, &text[i], 1);
    }
    ct_string_add(out, "\"");
}

// The shortest digits that read back to the same double, with a point or an exponent so that it stays a float.
static void add_float(double number, bool json, ct_string *out) {
    char text[40];
    if (isinf(number)) {
        const char *word = number > 0 ? "inf" : "-inf";
        ct_string_add(out, json ? "\"%s\"" : "%s", word);
        return;
    }
    for (int digits = 1; digits <= 17; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, number);
        if (strtod(text, NULL) == number) break;
    }
    ct_string_add(out, strpbrk(text, ".e") ? "%s" : "%s.0", text);
}

static void add_strings(const ct_string_list *list, ct_string *out) {
    ct_string_add(out, "[");
    for (int i = 0; i < list->count; i++) {
        if (i) ct_string_add(out, ", ");
        add_quoted(list->items[i], strlen(list->items[i]), out);
    }
    ct_string_add(out, "]");
}

static void add_string_lists(const ct_string_lists *lists, ct_string *out) {
    ct_string_add(out, "[");
    for (int i = 0; i < lists->count; i++) {
        if (i) ct_string_add(out, ", ");
        add_strings(&lists->items[i], out);
    }
    ct_string_add(out, "]");
}

static void add_group(const config_key *key, const char *element, config_text text, ct_string *out) {
    bool first = true;
    ct_string_add(out, "{");
    for (int i = 0; i < key->field_count; i++) {
        ct_string value = {0};
        const config_key *field = &key->fields[i];
        if (config_add_value(field, element, text == TEXT_PLAIN ? TEXT_TOML : text, &value)) {
            ct_string_add(out, text == TEXT_JSON ? "%s\"%s\": %s" : "%s%s = %s", first ? "" : ", ", field->name,
                          value.text);
            first = false;
        }
        ct_string_deinit(&value);
    }
    ct_string_add(out, "}");
}

static void add_groups(const config_key *key, const void *base, config_text text, ct_string *out) {
    const char *const *elements = (const void *)((const char *)base + key->offset);
    int count = *(const int *)((const char *)base + key->count_offset);
    ct_string_add(out, "[");
    for (int i = 0; i < count; i++) {
        if (i) ct_string_add(out, ", ");
        add_group(key, *elements + (size_t)i * key->element_bytes, text, out);
    }
    ct_string_add(out, "]");
}

// Whether an optional value is given.
static bool is_set(const config_key *key, const void *at) {
    if (key->type == KEY_STRING) return *(const char *const *)at != NULL;
    if (!key->optional) return true;
    switch (key->type) {
    case KEY_BOOL:
        return ((const ct_opt_bool *)at)->has;
    case KEY_INT:
        return ((const ct_opt_int *)at)->has;
    case KEY_FLOAT:
        return ((const ct_opt_float *)at)->has;
    default:
        return *(const int *)at != key->unset_choice;
    }
}

static const char *choice_name(const config_key *key, int value) {
    const config_choice *choice = key->choices;
    while (choice->name && choice->value != value) choice++;
    CT_ASSERT(choice->name, "%s.%s holds %d, which is none of its values", key->section, key->name, value);
    return choice->name;
}

static void add_text(const char *value, config_text text, ct_string *out) {
    if (text == TEXT_PLAIN)
        ct_string_add(out, "%s", value);
    else if (text == TEXT_JSON)
        ct_string_add_json(out, value);
    else
        add_quoted(value, strlen(value), out);
}

bool config_add_value(const config_key *key, const void *base, config_text text, ct_string *out) {
    const void *at = (const char *)base + key->offset;
    if (!is_set(key, at)) {
        if (text == TEXT_JSON) ct_string_add(out, "null");
        return false;
    }
    switch (key->type) {
    case KEY_BOOL:
        ct_string_add(out, (key->optional ? ((const ct_opt_bool *)at)->value : *(const bool *)at) ? "true" : "false");
        break;
    case KEY_INT:
        ct_string_add(out, "%lld",
                      (long long)(key->optional ? ((const ct_opt_int *)at)->value : *(const int64_t *)at));
        break;
    case KEY_FLOAT:
        add_float(key->optional ? ((const ct_opt_float *)at)->value : *(const double *)at, text == TEXT_JSON, out);
        break;
    case KEY_STRING:
        add_text(*(const char *const *)at, text, out);
        break;
    case KEY_ENUM:
        add_text(choice_name(key, *(const int *)at), text, out);
        break;
    case KEY_STRINGS:
        add_strings(at, out);
        break;
    case KEY_STRING_LISTS:
        add_string_lists(at, out);
        break;
    case KEY_GROUPS:
        add_groups(key, base, text, out);
        break;
    }
    return true;
}

bool config_add_default(const config_key *key, ct_string *out) {
    if (key->type == KEY_GROUPS)
        ct_string_add(out, "[]");
    else if (key->default_text)
        ct_string_add(out, "%s", key->default_text);
    return key->type == KEY_GROUPS || key->default_text;
}

// ---- for messages ----
static void add_found_string(const ct_toml_value *value, ct_string *out) {
    size_t bytes = value->bytes;
    if (bytes > 60)
        for (bytes = 60; ((unsigned char)value->text[bytes] & 0xc0) == 0x80;) bytes--;
    add_quoted(value->text, bytes, out);
    if (bytes < value->bytes) ct_string_add(out, "...");
}

void config_add_found(const ct_toml_value *value, ct_string *out) {
    switch (value->kind) {
    case CT_TOML_STRING:
        add_found_string(value, out);
        return;
    case CT_TOML_INT:
        ct_string_add(out, "%lld", (long long)value->integer);
        return;
    case CT_TOML_FLOAT:
        if (isnan(value->number))
            ct_string_add(out, "nan");
        else
            add_float(value->number, false, out);
        return;
    case CT_TOML_BOOL:
        ct_string_add(out, value->boolean ? "true" : "false");
        return;
    case CT_TOML_DATE:
        ct_string_add(out, "%s", value->text);
        return;
    default:
        ct_string_add(out, "%s", ct_toml_kind_text(value->kind));
    }
}

static void add_choices(const config_key *key, ct_string *out) {
    for (const config_choice *c = key->choices; c->name; c++)
        ct_string_add(out, "%s\"%s\"", c == key->choices ? "" : c[1].name ? ", " : " or ", c->name);
}

void config_add_wanted(const config_key *key, ct_string *out) {
    static const char *const texts[] = {
        [KEY_BOOL] = "true or false",
        [KEY_INT] = "an integer",
        [KEY_FLOAT] = "a number",
        [KEY_STRING] = "a string",
        [KEY_STRINGS] = "an array of strings",
        [KEY_STRING_LISTS] = "an array of arrays of strings",
    };
    if (key->type == KEY_ENUM)
        add_choices(key, out);
    else if (key->type == KEY_GROUPS)
        ct_string_add(out, "tables under [[%s.%s]]", key->section, key->name);
    else
        ct_string_add(out, "%s", texts[key->type]);
    if (key->range) ct_string_add(out, " %s", key->range->text);
}
