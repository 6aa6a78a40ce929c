// Pre-tokenisation: cuts a piece of text into words, in steps as tokenizer.json lists them.
#pragma once
#include "pattern.h"
#include "utf8.h"
#include <stdint.h>

typedef struct {
    uint32_t begin, end;
} ct_span;
typedef struct {
    ct_span *items;
    size_t count, capacity;
} ct_spans;
void ct_spans_deinit(ct_spans *spans);

// Adds a word unless it is empty.
static inline void ct_spans_add(ct_spans *spans, uint32_t begin, uint32_t end);

// A fast scanner: cuts text[span) into words as its regular expression with behaviour "Isolated" does.
typedef void ct_scanner(const uint8_t *classes, const unsigned char *text, ct_span span, ct_spans *out);
typedef struct {
    const char *name;
    ct_scanner *scan;
} ct_scanner_entry;
// The scanner for a regular expression, or NULL.
const ct_scanner_entry *ct_scanner_find(const char *pattern, size_t length, ct_pattern_flavour flavour);
// The regular expression behind a well-known name ("gpt2", "cl100k_base", …), or NULL.
const char *ct_pattern_named(const char *name);

typedef enum {
    CT_SPLIT_ISOLATED,
    CT_SPLIT_REMOVED,
    CT_SPLIT_CONTIGUOUS,
    CT_SPLIT_PREVIOUS,
    CT_SPLIT_NEXT
} ct_split_behaviour;
typedef enum {
    CT_SPLIT_SCAN,        // a scanner, isolated
    CT_SPLIT_PATTERN,     // a regular expression
    CT_SPLIT_TEXT,        // a fixed text
    CT_SPLIT_SPACES,      // white space, one by one
    CT_SPLIT_DIGITS,      // numeric characters, one by one
    CT_SPLIT_PUNCTUATION, // punctuation, one by one
    CT_SPLIT_WORDS,       // runs of word characters, runs of what is neither word nor space
    CT_SPLIT_PREFIX,      // a space before every word that has none
    CT_SPLIT_BYTES,       // every byte becomes its character of the byte-level alphabet
    CT_SPLIT_METASPACE,   // spaces become a mark (text); words begin at marks
} ct_split_kind;
typedef enum { CT_PREPEND_NEVER, CT_PREPEND_FIRST, CT_PREPEND_ALWAYS } ct_prepend;

typedef struct {
    ct_split_kind kind;
    ct_split_behaviour behaviour;
    int invert;
    ct_pattern *pattern;
    const ct_scanner_entry *scanner;
    const char *text; // TEXT, METASPACE
    size_t text_length;
    ct_prepend prepend; // METASPACE
    int cut;            // METASPACE: cut at marks
} ct_split_step;

typedef struct {
    ct_split_step *steps;
    int count, capacity;
} ct_splitter;
void ct_splitter_deinit(ct_splitter *splitter);

// Scratch of a thread. text and words are the input and the output of ct_splitter_run.
typedef struct {
    ct_buffer text, other_text;
    ct_spans words, other_words, matches;
    unsigned char *is_match;
    size_t is_match_capacity;
    ct_pattern_scratch *pattern;
} ct_split_work;
void ct_split_work_deinit(ct_split_work *work);

// Cuts work->text into work->words. at_start: the piece begins the whole text.
ct_status ct_splitter_run(const ct_splitter *splitter, const uint8_t *classes, ct_split_work *work, int at_start);

void ct_spans_grow(ct_spans *spans);
static inline void ct_spans_add(ct_spans *spans, uint32_t begin, uint32_t end) {
    if (begin == end) return;
    if (spans->count == spans->capacity) ct_spans_grow(spans);
    spans->items[spans->count++] = (ct_span){begin, end};
}
