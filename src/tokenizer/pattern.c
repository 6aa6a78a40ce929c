// PCRE2 with its just-in-time compiler; where that runs out of stack the interpreter takes over. Text is known to be
// UTF-8.
#define PCRE2_CODE_UNIT_WIDTH 8
#include "pattern.h"
#include "base/memory.h"

#include <pcre2.h>
#include <stdlib.h>
#include <string.h>

struct ct_pattern {
    pcre2_code *code;
};

struct ct_pattern_scratch {
    pcre2_match_data *match;
    pcre2_match_context *context;
    pcre2_jit_stack *stack;
};

#define OPTIONS (PCRE2_UTF | PCRE2_UCP | PCRE2_NO_UTF_CHECK | PCRE2_ALLOW_EMPTY_CLASS)

static ct_status compile(const char *text, pcre2_code **out_code) {
    int error;
    PCRE2_SIZE where;
    pcre2_compile_context *context = pcre2_compile_context_create(NULL);
    CT_CHECK(context, CT_NO_MEMORY, "no memory for a regular expression");
    pcre2_set_newline(context, PCRE2_NEWLINE_LF);
    pcre2_set_parens_nest_limit(context, 100);
    pcre2_code *code = pcre2_compile((PCRE2_SPTR)text, PCRE2_ZERO_TERMINATED, OPTIONS, &error, &where, context);
    pcre2_compile_context_free(context);
    if (!code) {
        PCRE2_UCHAR message[120];
        pcre2_get_error_message(error, message, sizeof message);
        CT_FAIL(CT_INVALID, "regular expression '%.200s': %s (at byte %zu of it)", text, (const char *)message,
                (size_t)where);
    }
    pcre2_jit_compile(code, PCRE2_JIT_COMPLETE); // without it the interpreter does the work
    *out_code = code;
    return CT_OK;
}

ct_status ct_pattern_compile(const char *text, size_t length, ct_pattern_flavour flavour, const uint8_t *classes,
                             ct_pattern **out_pattern) {
    CT_CHECK(length < 100000, CT_INVALID, "a regular expression of %zu bytes", length);
    CT_CHECK(!memchr(text, 0, length), CT_UNSUPPORTED, "a NUL inside a regular expression");
    char *rewritten;
    CT_TRY(ct_pattern_rewrite(text, length, flavour, classes, &rewritten));
    pcre2_code *code;
    ct_status status = compile(rewritten, &code);
    free(rewritten);
    if (status) return status;
    *out_pattern = ct_malloc(sizeof **out_pattern);
    (*out_pattern)->code = code;
    return CT_OK;
}

void ct_pattern_free(ct_pattern *pattern) {
    if (!pattern) return;
    pcre2_code_free(pattern->code);
    free(pattern);
}

ct_pattern_scratch *ct_pattern_scratch_create(void) {
    ct_pattern_scratch *scratch = ct_calloc(1, sizeof *scratch);
    scratch->match = pcre2_match_data_create(1, NULL);
    scratch->context = pcre2_match_context_create(NULL);
    scratch->stack = pcre2_jit_stack_create(64 << 10, 16 << 20, NULL);
    CT_ASSERT(scratch->match && scratch->context, "no memory for matching");
    if (scratch->stack) pcre2_jit_stack_assign(scratch->context, NULL, scratch->stack);
    return scratch;
}

void ct_pattern_scratch_destroy(ct_pattern_scratch *scratch) {
    if (!scratch) return;
    pcre2_match_data_free(scratch->match);
    pcre2_match_context_free(scratch->context);
    if (scratch->stack) pcre2_jit_stack_free(scratch->stack);
    free(scratch);
}

ct_status ct_pattern_find(const ct_pattern *pattern, ct_pattern_scratch *scratch, const unsigned char *text,
                          size_t size, size_t from, size_t *out_begin, size_t *out_end) {
    int count = pcre2_match(pattern->code, text, size, from, PCRE2_NO_UTF_CHECK, scratch->match, scratch->context);
    if (count == PCRE2_ERROR_JIT_STACKLIMIT)
        count = pcre2_match(pattern->code, text, size, from, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, scratch->match,
                            scratch->context);
    *out_begin = *out_end = SIZE_MAX;
    if (count == PCRE2_ERROR_NOMATCH) return CT_OK;
    if (count < 0) {
        PCRE2_UCHAR message[120];
        pcre2_get_error_message(count, message, sizeof message);
        CT_FAIL(CT_UNSUPPORTED, "the tokenizer's regular expression gave up at byte %zu of a text: %s", from,
                (const char *)message);
    }
    const PCRE2_SIZE *range = pcre2_get_ovector_pointer(scratch->match);
    *out_begin = range[0], *out_end = range[1];
    return CT_OK;
}
