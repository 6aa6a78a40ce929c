// Regular expressions of tokenizers, run by PCRE2 but meaning what the reference implementations' engines mean by
// them.
#pragma once
#include "base/status.h"
#include <stddef.h>
#include <stdint.h>

typedef struct ct_pattern ct_pattern;
typedef struct ct_pattern_scratch ct_pattern_scratch;

typedef enum { CT_FLAVOUR_ONIG, CT_FLAVOUR_RUST } ct_pattern_flavour; // tokenizer.json; tiktoken

// classes: ct_unicode_expand's table (borrowed during the call). Errors: CT_INVALID (no regular expression),
// CT_UNSUPPORTED.
ct_status ct_pattern_compile(const char *text, size_t length, ct_pattern_flavour flavour, const uint8_t *classes,
                             ct_pattern **out_pattern);
void ct_pattern_free(ct_pattern *pattern);

// Finds the first match at or behind `from` in text[0, size). *out_begin = SIZE_MAX where there is none.
ct_status ct_pattern_find(const ct_pattern *pattern, ct_pattern_scratch *scratch, const unsigned char *text,
                          size_t size, size_t from, size_t *out_begin, size_t *out_end);

ct_pattern_scratch *ct_pattern_scratch_create(void);
void ct_pattern_scratch_destroy(ct_pattern_scratch *scratch);

// pattern_rewrite.c: the pattern in PCRE2's own terms, heap-allocated.
ct_status ct_pattern_rewrite(const char *text, size_t length, ct_pattern_flavour flavour, const uint8_t *classes,
                             char **out_text);
