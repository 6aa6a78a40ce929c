// What the parts of the TOML parser share: the cursor, messages with a place, and the tree's making.
#pragma once
#include "toml.h"

enum { TOML_MAX_DEPTH = 100, TOML_MAX_PARTS = 100 };

typedef struct {
    ct_arena *arena;
    const char *name;
    const char *text, *end, *at;
    const char *seen, *line_start; // how far lines and characters are counted
    int line, column;              // of seen
    int section;                   // number of the header whose keys are being read, from 1
    int depth;                     // of values in values
    ct_string scratch;             // the string being put together
} toml_parser;

// One part of a dotted key.
typedef struct {
    const char *text;
    size_t bytes;
    int line, column;
} toml_part;

typedef struct {
    toml_part parts[TOML_MAX_PARTS];
    int count;
} toml_key;

// toml_text.c: places, characters, strings, keys
ct_status toml_fail(toml_parser *p, const char *at, const char *format, ...) __attribute__((format(printf, 3, 4)));
void toml_place(toml_parser *p, const char *at, int *out_line, int *out_column);
const char *toml_shown(toml_parser *p); // what stands at the cursor, for messages
bool toml_at_newline(const toml_parser *p);
void toml_skip_blanks(toml_parser *p);
ct_status toml_skip_comment(toml_parser *p);          // a comment, if there is one, up to its newline
ct_status toml_skip_blanks_and_lines(toml_parser *p); // blanks, comments, newlines
ct_status toml_read_string(toml_parser *p, const char **out_text, size_t *out_bytes);
ct_status toml_read_key(toml_parser *p, toml_key *out_key);
const char *toml_key_text(toml_parser *p, const toml_key *key, int count); // dotted, for messages
ct_status toml_check_utf8(toml_parser *p);

// toml_value.c
ct_status toml_read_value(toml_parser *p, ct_toml_value **out_value);
ct_status toml_read_pair(toml_parser *p, toml_key *out_key, ct_toml_value **out_value); // key = value

// toml_number.c: a token that is no string, array or table
typedef enum { TOML_NO_MATCH, TOML_MATCH, TOML_OUT_OF_RANGE } toml_match;
toml_match toml_match_integer(const char *token, size_t bytes, int64_t *out_integer);
toml_match toml_match_float(const char *token, size_t bytes, double *out_number);
toml_match toml_match_date(const char *token, size_t bytes);

// toml_tree.c
ct_toml_value *toml_new_value(toml_parser *p, ct_toml_kind kind, const char *at);
void toml_array_add(toml_parser *p, ct_toml_value *array, ct_toml_value *item);
ct_toml_entry *toml_table_find(const ct_toml_value *table, const char *key, size_t key_bytes);
void toml_table_add(toml_parser *p, ct_toml_value *table, const toml_part *part, ct_toml_value *value);
ct_status toml_insert(toml_parser *p, ct_toml_value *table, const toml_key *key, ct_toml_value *value);
ct_status toml_open_table(toml_parser *p, ct_toml_value *root, const toml_key *key, ct_toml_value **out_table);
ct_status toml_open_array_item(toml_parser *p, ct_toml_value *root, const toml_key *key, ct_toml_value **out_table);
