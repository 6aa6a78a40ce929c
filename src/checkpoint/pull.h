// A pull reader of JSON that is strict, knows where it is, and never trusts its input: depth, lengths and numbers are checked.
#pragma once
#include "base/memory.h"
#include "base/status.h"
#include <stdint.h>

typedef struct {
    const char *begin, *at, *end;
    const char *where; // named in errors: a path
    ct_arena *arena;   // strings that are given out live here
    int depth;
} ct_pull;

// Reads the value at hand: must consume exactly one.
typedef ct_status ct_pull_member_fn(void *context, ct_pull *pull, const char *key, size_t key_bytes);
typedef ct_status ct_pull_element_fn(void *context, ct_pull *pull);

char ct_pull_peek(ct_pull *pull); // the next character that is no space, or 0 at the end
ct_status ct_pull_object(ct_pull *pull, ct_pull_member_fn *member, void *context);
ct_status ct_pull_array(ct_pull *pull, ct_pull_element_fn *element, void *context);
ct_status ct_pull_string(ct_pull *pull, char **out_text, size_t *out_bytes); // out_bytes may be NULL: then \u0000 is refused
ct_status ct_pull_int(ct_pull *pull, int64_t *out_value);
ct_status ct_pull_number(ct_pull *pull, double *out_value);
ct_status ct_pull_bool(ct_pull *pull, int *out_value);
ct_status ct_pull_int_array(ct_pull *pull, int64_t *out_values, int max_count, int *out_count);
ct_status ct_pull_skip(ct_pull *pull); // any value
ct_status ct_pull_end(ct_pull *pull);  // nothing but space is left

// An error at the reader's place.
ct_status ct_pull_error(const ct_pull *pull, const char *format, ...) __attribute__((format(printf, 2, 3)));
