// A TOML 1.0 document (https://toml.io/en/v1.0.0), line by line: [headers], [[headers]] and key = value. Strings and
// keys are in toml_text.c, values in toml_value.c and toml_number.c, the rules of the tree in toml_tree.c. Left out:
// writing TOML, and turning dates into anything but text.
#include "toml.h"
#include "toml_parse.h"

#include <stdlib.h>
#include <string.h>

static ct_status expect_line_end(toml_parser *p) {
    toml_skip_blanks(p);
    CT_TRY(toml_skip_comment(p));
    if (p->at == p->end || toml_at_newline(p)) return CT_OK;
    return toml_fail(p, p->at, "the end of the line is wanted here, found %s", toml_shown(p));
}

static ct_status read_header(toml_parser *p, ct_toml_value *root, ct_toml_value **out_table) {
    bool array = p->end - p->at > 1 && p->at[1] == '[';
    p->at += array ? 2 : 1;
    p->section++;
    toml_key key;
    toml_skip_blanks(p);
    CT_TRY(toml_read_key(p, &key));
    const char *closing = array ? "]]" : "]";
    size_t bytes = strlen(closing);
    if ((size_t)(p->end - p->at) < bytes || memcmp(p->at, closing, bytes))
        return toml_fail(p, p->at, "'%s' is wanted behind the table's name, found %s", closing, toml_shown(p));
    p->at += bytes;
    return array ? toml_open_array_item(p, root, &key, out_table) : toml_open_table(p, root, &key, out_table);
}

static ct_status read_document(toml_parser *p, ct_toml_value *root) {
    ct_toml_value *table = root;
    CT_TRY(toml_check_utf8(p));
    for (;;) {
        CT_TRY(toml_skip_blanks_and_lines(p));
        if (p->at == p->end) return CT_OK;
        if (*p->at == '[') {
            CT_TRY(read_header(p, root, &table));
        } else {
            toml_key key;
            ct_toml_value *value;
            CT_TRY(toml_read_pair(p, &key, &value));
            CT_TRY(toml_insert(p, table, &key, value));
        }
        CT_TRY(expect_line_end(p));
    }
}

static toml_parser start(ct_arena *arena, const char *name, const char *text, size_t bytes) {
    if (!bytes) text = "";
    return (toml_parser){.arena = arena,
                         .name = name,
                         .text = text,
                         .end = text + bytes,
                         .at = text,
                         .seen = text,
                         .line_start = text,
                         .line = 1,
                         .column = 1,
                         .section = 1};
}

ct_status ct_toml_parse(ct_arena *arena, const char *name, const char *text, size_t bytes, ct_toml_value **out_root) {
    if (bytes >= 3 && !memcmp(text, "\xef\xbb\xbf", 3)) text += 3, bytes -= 3;
    toml_parser p = start(arena, name, text, bytes);
    ct_toml_value *root = toml_new_value(&p, CT_TOML_TABLE, p.at);
    root->by_header = true;
    ct_status status = read_document(&p, root);
    ct_string_deinit(&p.scratch);
    if (!status) *out_root = root;
    return status;
}

static ct_status read_single_value(toml_parser *p, ct_toml_value **out_value) {
    CT_TRY(toml_check_utf8(p));
    toml_skip_blanks(p);
    CT_TRY(toml_read_value(p, out_value));
    toml_skip_blanks(p);
    if (p->at != p->end) return toml_fail(p, p->at, "nothing is wanted behind the value, found %s", toml_shown(p));
    return CT_OK;
}

ct_status ct_toml_parse_value(ct_arena *arena, const char *name, const char *text, size_t bytes,
                              ct_toml_value **out_value) {
    toml_parser p = start(arena, name, text, bytes);
    ct_toml_value *value;
    ct_status status = read_single_value(&p, &value);
    ct_string_deinit(&p.scratch);
    if (!status) *out_value = value;
    return status;
}

const char *ct_toml_kind_text(ct_toml_kind kind) {
    static const char *const texts[] = {"a string", "an integer", "a float", "a boolean",
                                        "a date",   "an array",   "a table"};
    return texts[kind];
}
