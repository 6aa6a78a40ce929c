// The command line: `--section.key value`, `--section.key=value`, and for booleans `--section.flag` and
// `--section.no_flag`.
#include "keys.h"
#include "toml_parse.h"

#include <stdlib.h>
#include <string.h>

enum { NAME_BYTES = 128 };

// An override as it stands on the command line.
typedef struct {
    char name[NAME_BYTES]; // the section, a NUL in place of the last dot, the key; hyphens made underscores
    size_t key;            // where in name the key begins
    int index;             // in the table; -1: unknown
    bool no;               // --section.no_flag
    const char *value;     // behind '=', or the next argument; NULL: none
    int taken;             // arguments
} override;

static bool is_override(const char *arg) {
    size_t bytes = strcspn(arg, "=");
    return !strncmp(arg, "--", 2) && memchr(arg, '.', bytes);
}

static void find_key(override *o) {
    const char *key = o->name + o->key;
    size_t section_bytes = strlen(o->name);
    o->index = config_key_find(o->name, section_bytes, key, strlen(key));
    if (o->index >= 0 || strncmp(key, "no_", 3)) return;
    int index = config_key_find(o->name, section_bytes, key + 3, strlen(key + 3));
    if (index >= 0 && config_key_at(index)->type == KEY_BOOL) o->index = index, o->no = true;
}

static bool is_truth(const char *text) { return !strcmp(text, "true") || !strcmp(text, "false"); }

// Parts argv[0] into name and value. argv[0] must be an override.
static override split(int argc, char **argv) {
    override o = {.taken = 1};
    const char *name = argv[0] + 2, *equals = strchr(name, '=');
    size_t bytes = equals ? (size_t)(equals - name) : strlen(name);
    if (bytes >= NAME_BYTES) bytes = NAME_BYTES - 1;
    memcpy(o.name, name, bytes);
    for (char *c = o.name; *c; c++)
        if (*c == '-') *c = '_';
    char *dot = strrchr(o.name, '.');
    o.key = dot ? (size_t)(dot + 1 - o.name) : bytes;
    if (dot) *dot = 0;
    find_key(&o);
    bool flag = o.index >= 0 && config_key_at(o.index)->type == KEY_BOOL;
    if (equals) {
        o.value = equals + 1;
    } else if (argc > 1 && (flag ? !o.no && is_truth(argv[1]) : strncmp(argv[1], "--", 2) != 0)) {
        o.value = argv[1];
        o.taken = 2;
    }
    return o;
}

int ct_config_args_split(int argc, char **argv) {
    char **overrides = ct_malloc(sizeof *overrides * (size_t)(argc + 1));
    int others = 0, count = 0;
    for (int i = 0; i < argc;) {
        if (!is_override(argv[i])) {
            argv[others++] = argv[i++];
            continue;
        }
        for (int taken = split(argc - i, argv + i).taken; taken; taken--) overrides[count++] = argv[i++];
    }
    for (int i = 0; i < count; i++) argv[others + i] = overrides[i];
    free(overrides);
    return others;
}

const char *config_file_argument(int argc, char **argv) {
    const char *file = NULL;
    for (int i = 0; i < argc;) {
        if (!is_override(argv[i])) {
            i++;
            continue;
        }
        override o = split(argc - i, argv + i);
        if (!strcmp(o.name, "job") && !strcmp(o.name + o.key, "config_file") && o.value) file = o.value;
        i += o.taken;
    }
    return file;
}

// ---- values ----
static ct_toml_value *new_string(ct_arena *arena, const char *text, size_t bytes) {
    ct_toml_value *value = CT_ARENA_NEW(arena, ct_toml_value);
    value->kind = CT_TOML_STRING;
    value->text = ct_arena_strndup(arena, text, bytes);
    value->bytes = bytes;
    return value;
}

// "a,b" as an array of strings; "" is the empty one.
static ct_toml_value *split_list(ct_arena *arena, const char *text) {
    ct_toml_value *array = CT_ARENA_NEW(arena, ct_toml_value);
    array->kind = CT_TOML_ARRAY;
    array->items = CT_ARENA_ARRAY(arena, ct_toml_value *, strlen(text) + 1);
    while (*text) {
        size_t bytes = strcspn(text, ",");
        array->items[array->item_count++] = new_string(arena, text, bytes);
        text += bytes + (text[bytes] == ',');
    }
    return array;
}

static bool read_number(ct_toml_value *value, config_type type, const char *text) {
    size_t bytes = strlen(text);
    value->kind = CT_TOML_INT;
    if (bytes && toml_match_integer(text, bytes, &value->integer) == TOML_MATCH) return true;
    if (type == KEY_INT || !bytes) return false;
    value->kind = CT_TOML_FLOAT;
    char *end;
    value->number = strtod(text, &end);
    return !*end;
}

static ct_toml_value *read_scalar(ct_arena *arena, config_type type, const char *text) {
    ct_toml_value *value = CT_ARENA_NEW(arena, ct_toml_value);
    value->kind = CT_TOML_BOOL;
    value->boolean = !strcmp(text, "true");
    if (type == KEY_BOOL && is_truth(text)) return value;
    if (type != KEY_BOOL && read_number(value, type, text)) return value;
    return new_string(arena, text, strlen(text)); // whose type is then refused
}

static ct_status read_argument(ct_arena *arena, const config_key *key, const char *text, ct_toml_value **out_value) {
    CT_CHECK(ct_toml_is_utf8(text, strlen(text)), CT_INVALID, "command line: %s.%s is no UTF-8 text", key->section,
             key->name);
    bool list = key->type == KEY_STRINGS || key->type == KEY_STRING_LISTS || key->type == KEY_GROUPS;
    if (list && text[0] == '[') return ct_toml_parse_value(arena, "command line", text, strlen(text), out_value);
    if (key->type == KEY_STRINGS)
        *out_value = split_list(arena, text);
    else if (key->type == KEY_STRING || key->type == KEY_ENUM || list)
        *out_value = new_string(arena, text, strlen(text));
    else
        *out_value = read_scalar(arena, key->type, text);
    return CT_OK;
}

static ct_status refuse_unknown(const override *o) {
    ct_string nearest = {0};
    const char *key = o->name + o->key;
    size_t bytes = strlen(o->name);
    bool section = bytes && config_is_section(o->name, bytes);
    config_add_nearest(o->name, section ? key : NULL, &nearest);
    ct_status status = section ? ct_error_make(CT_INVALID, __FILE__, __LINE__,
                                               "command line: there is no key %s.%s%s", o->name, key, nearest.text)
                               : ct_error_make(CT_INVALID, __FILE__, __LINE__,
                                               "command line: there is no section [%s]%s", o->name, nearest.text);
    ct_string_deinit(&nearest);
    return status;
}

static ct_status refuse_missing(const config_key *key) {
    ct_string wanted = {0};
    config_add_wanted(key, &wanted);
    ct_status status =
        ct_error_make(CT_INVALID, __FILE__, __LINE__, "command line: --%s.%s has no value: %s is wanted",
                      key->section, key->name, wanted.text);
    ct_string_deinit(&wanted);
    return status;
}

static bool is_none(const config_key *key, const char *text) {
    return key->optional && (!strcmp(text, "none") || !strcmp(text, "None"));
}

static ct_status apply(ct_arena *arena, ct_config *config, const override *o) {
    const config_key *key = config_key_at(o->index);
    const char *text = o->value;
    CT_CHECK(!o->no || !text, CT_INVALID, "command line: --%s.no_%s takes no value", key->section, key->name);
    if (key->type == KEY_BOOL && !text) text = o->no ? "false" : "true";
    if (!text) return refuse_missing(key);
    if (is_none(key, text)) return config_set_default(arena, key, config), CT_OK;
    ct_toml_value *value;
    CT_TRY(read_argument(arena, key, text, &value));
    return config_set(arena, key, config, value, NULL);
}

ct_status config_take_argument(ct_arena *arena, ct_config *config, int argc, char **argv, int *out_taken) {
    CT_CHECK(is_override(argv[0]), CT_INVALID, "command line: found '%s' where --section.key is wanted", argv[0]);
    override o = split(argc, argv);
    if (o.index < 0) return refuse_unknown(&o);
    CT_TRY(apply(arena, config, &o));
    const config_key *key = config_key_at(o.index);
    config->origins[o.index] = (ct_config_origin){
        ORIGIN_ARGUMENT, ct_arena_format(arena, "--%s.%s%s", key->section, o.no ? "no_" : "", key->name)};
    *out_taken = o.taken;
    return CT_OK;
}
