// The parser's eye: words, strings, numbers and their places in a text. White space is free, # starts a comment.
#pragma once
#include "base/memory.h"
#include "base/status.h"

typedef struct {
    const char *file, *text, *at; // at: the next byte
    ct_string word;               // the last word or string read
} ct_scan;

const char *ct_scan_skip(ct_scan *scan); // to the next byte that means something, which it returns

// The error "file:line:column: found …, wanted …", where `at` points into the text.
ct_status ct_scan_fail(const ct_scan *scan, const char *at, const char *wanted);

int ct_scan_accept(ct_scan *scan, const char *token);        // 1 and past it where the token is next
ct_status ct_scan_expect(ct_scan *scan, const char *token);
int ct_scan_accept_word(ct_scan *scan, const char *word);    // the same for a bare word

// Reads into scan->word: letters, digits and _.+-/, or a string in double quotes with JSON's escapes below \u0080.
ct_status ct_scan_word(ct_scan *scan, const char *wanted);
ct_status ct_scan_integer(ct_scan *scan, int64_t least, int64_t most, const char *wanted, int64_t *out);
ct_status ct_scan_number(ct_scan *scan, double *out);

// Which of `count` names the next word is.
ct_status ct_scan_name(ct_scan *scan, int count, const char *(*name)(int), const char *wanted, int *out);
