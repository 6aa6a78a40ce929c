// Normalisation: rewrites a piece of text before it is cut into words, in steps as tokenizer.json lists them.
#pragma once
#include "charsmap.h"
#include "pattern.h"
#include "utf8.h"

typedef enum {
    CT_NORM_NFC,
    CT_NORM_NFD,
    CT_NORM_NFKC,
    CT_NORM_NFKD,
    CT_NORM_LOWERCASE,
    CT_NORM_STRIP,         // white space at the ends: left, right
    CT_NORM_STRIP_ACCENTS, // combining marks
    CT_NORM_REPLACE,       // pattern or text, by content
    CT_NORM_PREPEND,       // content, unless the text is empty
    CT_NORM_NMT,           // control characters away, odd spaces to spaces
    CT_NORM_BYTES,         // the byte-level alphabet
    CT_NORM_CHARSMAP,      // tokenizer.json's "Precompiled"
    CT_NORM_SENTENCEPIECE, // SentencePiece's own normaliser
} ct_norm_kind;

typedef struct {
    ct_norm_kind kind;
    int left, right;
    ct_pattern *pattern;
    const char *text, *content;
    size_t text_length, content_length;
    ct_charsmap charsmap;
    ct_sentencepiece_rules rules; // SENTENCEPIECE
} ct_norm_step;

typedef struct {
    ct_norm_step *steps;
    int count, capacity;
} ct_normalizer;
void ct_normalizer_deinit(ct_normalizer *normalizer);

// Rewrites *text; *other is scratch, and the two may be exchanged. scratch may be NULL only where no step has a
// pattern.
ct_status ct_normalizer_run(const ct_normalizer *normalizer, const uint8_t *classes, ct_pattern_scratch *scratch,
                            ct_buffer *text, ct_buffer *other);
