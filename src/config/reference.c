// The reference of all keys, from the table: for a terminal of 100 columns, as JSON, as Markdown.
#include "keys.h"

#include <string.h>

enum { COLUMNS = 100, INDENT = 6 };

// Columns that UTF-8 text takes: characters.
static int width(const char *text, size_t bytes) {
    int columns = 0;
    for (size_t i = 0; i < bytes; i++) columns += ((unsigned char)text[i] & 0xc0) != 0x80;
    return columns;
}

// Appends text word by word, in lines of at most COLUMNS that begin with `indent` blanks.
static void add_wrapped(const char *text, int indent, ct_string *out) {
    int column = indent;
    ct_string_add(out, "%*s", indent, "");
    for (bool first = true; *text; first = false) {
        size_t bytes = strcspn(text, " ");
        int word = width(text, bytes);
        if (!first && column + 1 + word > COLUMNS) {
            ct_string_add(out, "\n%*s", indent, "");
            column = indent;
        } else if (!first) {
            ct_string_add(out, " ");
            column++;
        }
        ct_string_add_bytes(out, text, bytes);
        column += word;
        text += bytes + (text[bytes] == ' ');
    }
    ct_string_add(out, "\n");
}

// "integer ≥ 1, steps": the wanted value without its article, and its unit.
static void add_type(const config_key *key, ct_string *out) {
    ct_string wanted = {0};
    config_add_wanted(key, &wanted);
    const char *text = wanted.text;
    if (!strncmp(text, "an ", 3))
        text += 3;
    else if (!strncmp(text, "a ", 2))
        text += 2;
    ct_string_add(out, "%s", text);
    if (key->unit) ct_string_add(out, ", %s", key->unit);
    ct_string_deinit(&wanted);
}

static const char *source_text(const config_key *key) {
    return key->source == FROM_US ? "extension" : key->source == FROM_TITAN_MAIN ? "from torchtitan main" : "";
}

// What this version makes of the key; empty where it simply has its effect.
static void add_standing(const config_key *key, ct_string *out) {
    if (key->use == USE_NONE) ct_string_add(out, "No effect here: %s.", key->why);
    if (key->use == USE_GATED) ct_string_add(out, "Speaks only with %s.", key->why);
    if (key->built && key->built[0]) ct_string_add(out, "Built so far: %s.", key->built);
    if (key->built && !key->built[0]) ct_string_add(out, "Not built.");
}

static void add_meaning(const config_key *key, ct_string *out) {
    ct_string standing = {0};
    add_standing(key, &standing);
    ct_string_add(out, "%s", key->help);
    if (standing.length) ct_string_add(out, " %s", standing.text);
    ct_string_deinit(&standing);
}

static bool starts_section(int index) {
    return index == 0 || strcmp(config_key_at(index - 1)->section, config_key_at(index)->section) != 0;
}

static const char *section_help(const char *name) {
    const config_section *s = config_sections();
    while (strcmp(s->name, name) != 0) s++;
    return s->help;
}

// ---- for a terminal ----
static void print_key_text(const config_key *key, int indent, ct_string *out) {
    ct_string head = {0}, meaning = {0};
    ct_string_add(&head, "%s", key->name);
    if (key->type != KEY_GROUPS) {
        ct_string_add(&head, " = ");
        if (!config_add_default(key, &head)) ct_string_add(&head, key->optional ? "(unset)" : "(required)");
    }
    ct_string_add(&head, "   ");
    add_type(key, &head);
    if (key->source != FROM_TITAN) ct_string_add(&head, "   [%s]", source_text(key));
    add_meaning(key, &meaning);
    add_wrapped(head.text, indent, out);
    add_wrapped(meaning.text, indent + 4, out);
    for (int i = 0; i < key->field_count; i++) print_key_text(&key->fields[i], indent + 4, out);
    ct_string_deinit(&head);
    ct_string_deinit(&meaning);
}

static void print_text(ct_string *out) {
    for (int i = 0, count = config_key_count(); i < count; i++) {
        const config_key *key = config_key_at(i);
        if (starts_section(i))
            ct_string_add(out, "%s[%s]  %s\n", i ? "\n" : "", key->section, section_help(key->section));
        print_key_text(key, 2, out);
    }
}

// ---- JSON ----
static void add_json_choices(const config_key *key, ct_string *out) {
    if (!key->choices) return;
    ct_string_add(out, ", \"values\": [");
    for (const config_choice *c = key->choices; c->name; c++)
        ct_string_add(out, "%s\"%s\"", c == key->choices ? "" : ", ", c->name);
    ct_string_add(out, "]");
}

static void add_json_text(const char *name, const char *text, ct_string *out) {
    ct_string_add(out, ", \"%s\": ", name);
    if (text)
        ct_string_add_json(out, text);
    else
        ct_string_add(out, "null");
}

static void print_key_json(const config_key *key, ct_string *out) {
    static const char *const types[] = {"boolean", "integer", "number",           "string",
                                        "choice",  "strings", "lists of strings", "tables"};
    ct_string text = {0};
    ct_string_add(out, "{\"section\": \"%s\", \"key\": \"%s\", \"type\": \"%s\"", key->section, key->name,
                  types[key->type]);
    add_json_text("default", config_add_default(key, &text) ? text.text : NULL, out);
    add_json_choices(key, out);
    if (key->range) add_json_text("range", key->range->text, out);
    if (key->unit) add_json_text("unit", key->unit, out);
    add_json_text("help", key->help, out);
    if (key->built) add_json_text("built", key->built, out);
    if (key->use == USE_NONE) add_json_text("no_effect", key->why, out);
    if (key->use == USE_GATED) add_json_text("only_with", key->why, out);
    ct_string_add(out, ", \"changes_numbers\": %s, \"extension\": %s", key->numbers ? "true" : "false",
                  key->source == FROM_US ? "true" : "false");
    if (key->field_count) ct_string_add(out, ", \"fields\": [");
    for (int i = 0; i < key->field_count; i++) {
        if (i) ct_string_add(out, ", ");
        print_key_json(&key->fields[i], out);
    }
    ct_string_add(out, key->field_count ? "]}" : "}");
    ct_string_deinit(&text);
}

static void print_json(ct_string *out) {
    ct_string_add(out, "[\n");
    for (int i = 0, count = config_key_count(); i < count; i++) {
        if (i) ct_string_add(out, ",\n");
        print_key_json(config_key_at(i), out);
    }
    ct_string_add(out, "\n]\n");
}

// ---- Markdown ----
static void add_cell(const char *text, ct_string *out) {
    for (; *text; text++) ct_string_add(out, *text == '|' ? "\\|" : "%c", *text);
}

static void print_row_markdown(const config_key *key, const char *prefix, ct_string *out) {
    ct_string fallback = {0}, type = {0}, meaning = {0};
    if (!config_add_default(key, &fallback)) ct_string_add(&fallback, key->optional ? "unset" : "required");
    add_type(key, &type);
    add_meaning(key, &meaning);
    ct_string_add(out, "| `%s%s` | `%s` | ", prefix, key->name, fallback.text);
    add_cell(type.text, out);
    ct_string_add(out, " | %s%s", source_text(key), key->source == FROM_TITAN ? "" : ": ");
    add_cell(meaning.text, out);
    ct_string_add(out, " |\n");
    for (int i = 0; i < key->field_count; i++) print_row_markdown(&key->fields[i], "&nbsp;&nbsp;", out);
    ct_string_deinit(&fallback);
    ct_string_deinit(&type);
    ct_string_deinit(&meaning);
}

static const char markdown_head[] = "# Configuration\n\n"
                                    "Written by `scripts/config-reference` from the table of keys; `ctitan config` "
                                    "prints the same. Sections and keys are those of\n"
                                    "torchtitan v0.2.2, and some of our own, marked *extension*. The command line "
                                    "(`--section.key value`, `--section.key=value`, for\n"
                                    "booleans also `--section.flag` and `--section.no_flag`) goes before the TOML "
                                    "file, and that before the defaults; lists are\n"
                                    "comma-separated on the command line, and `none` unsets what may be unset.\n";

static void print_markdown(ct_string *out) {
    ct_string_add(out, "%s", markdown_head);
    for (int i = 0, count = config_key_count(); i < count; i++) {
        const config_key *key = config_key_at(i);
        if (starts_section(i))
            ct_string_add(out, "\n## `[%s]`\n\n%s\n\n| key | default | type | meaning |\n|---|---|---|---|\n",
                          key->section, section_help(key->section));
        print_row_markdown(key, "", out);
    }
}

void ct_config_print_keys(ct_config_format format, ct_string *out) {
    if (format == CT_CONFIG_TEXT)
        print_text(out);
    else if (format == CT_CONFIG_JSON)
        print_json(out);
    else
        print_markdown(out);
}
