// base's JSON reader as this folder uses it: a callback a member, strings in an arena, and every fault CT_CORRUPT.
#pragma once
#include "base/json.h"
#include "base/memory.h"
#include "base/status.h"

typedef struct {
    ct_json json;
    ct_arena *arena; // strings that are given out live here
} ct_pull;

// Borrows where (named in errors) and text until deinit.
void ct_pull_init(ct_pull *pull, const char *where, const char *text, size_t length, ct_arena *arena);
void ct_pull_deinit(ct_pull *pull);

// Reads the value of the member: must consume exactly that.
typedef ct_status ct_pull_member_fn(void *context, ct_pull *pull, const char *key, size_t key_bytes);
// Reads the rest of an element whose first token has been read: pull->json.kind.
typedef ct_status ct_pull_element_fn(void *context, ct_pull *pull);

char ct_pull_peek(ct_pull *pull); // where a value comes next: its first character, or 0 at the end
ct_status ct_pull_object(ct_pull *pull, ct_pull_member_fn *member, void *context);
ct_status ct_pull_members(ct_pull *pull, ct_pull_member_fn *member, void *context); // an object whose '{' has been read
ct_status ct_pull_array(ct_pull *pull, ct_pull_element_fn *element, void *context);
ct_status ct_pull_string(ct_pull *pull, char **out_text); // without zero characters
ct_status ct_pull_int(ct_pull *pull, int64_t *out_value);
ct_status ct_pull_number(ct_pull *pull, double *out_value);
ct_status ct_pull_bool(ct_pull *pull, int *out_value);
ct_status ct_pull_int_array(ct_pull *pull, int64_t *out_values, int max_count, int *out_count);
ct_status ct_pull_skip(ct_pull *pull, const char **out_begin, const char **out_end); // any value; its text (may be NULL)
ct_status ct_pull_end(ct_pull *pull);                                                // nothing is left

// An error at the token last read.
ct_status ct_pull_error(const ct_pull *pull, const char *format, ...) __attribute__((format(printf, 2, 3)));
