// A TOML 1.0 document as a tree in which every value knows its line and column.
#pragma once
#include "base/memory.h"
#include "base/status.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum {
    CT_TOML_STRING,
    CT_TOML_INT,
    CT_TOML_FLOAT,
    CT_TOML_BOOL,
    CT_TOML_DATE, // date, time or both; kept as the text that was written
    CT_TOML_ARRAY,
    CT_TOML_TABLE,
} ct_toml_kind;

typedef struct ct_toml_value ct_toml_value;

// A table's entry. key is NUL-terminated, but may hold a NUL of its own ("\u0000"): key_bytes counts.
typedef struct {
    const char *key;
    size_t key_bytes;
    int line, column; // of the key, from 1; columns count characters
    ct_toml_value *value;
} ct_toml_entry;

struct ct_toml_value {
    ct_toml_kind kind;
    int line, column; // where the value begins, from 1
    union {
        struct {
            const char *text; // STRING and DATE: NUL-terminated; may hold NULs of its own
            size_t bytes;
        };
        int64_t integer;
        double number;
        bool boolean;
        struct {
            ct_toml_value **items; // ARRAY
            int64_t item_count, item_capacity;
        };
        struct {
            ct_toml_entry *entries; // TABLE, in the order in which they were written
            int64_t entry_count, entry_capacity;
            int32_t *slots; // open-addressing index of entries (entry + 1; 0 is free); 2 × entry_capacity
        };
    };
    bool frozen;      // an inline table or a literal array: nothing can be added
    bool by_header;   // a table that a [header] defined, or an array of [[headers]]
    int dotted_since; // the section in which a dotted key made or extended this table; 0: none did
};

// Reads a document. name stands for the file in messages ("name:line:column: …", CT_INVALID). The tree lives in arena
// and does not refer to text. Refused beyond TOML itself: integers outside 64 bits (as TOML asks), values nested more
// than 100 deep, keys of more than 100 parts, the year 0. A byte order mark at the start is skipped.
ct_status ct_toml_parse(ct_arena *arena, const char *name, const char *text, size_t bytes, ct_toml_value **out_root);

// Reads a single value: `8e-4`, `"text"`, `["a", "b"]`.
ct_status ct_toml_parse_value(ct_arena *arena, const char *name, const char *text, size_t bytes,
                              ct_toml_value **out_value);

// The value of a table's key, or NULL.
ct_toml_value *ct_toml_find(const ct_toml_value *table, const char *key);

// Is this text well-formed UTF-8?
bool ct_toml_is_utf8(const char *text, size_t bytes);

// "string", "integer", … with an article: "a string", "an integer".
const char *ct_toml_kind_text(ct_toml_kind kind);
