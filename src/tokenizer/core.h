// A tokenizer from the inside: parts that the loaders fill and that encoding and decoding read.
#pragma once
#include "tokenizer/tokenizer.h"
#include "added.h"
#include "bpe.h"
#include "normalize.h"
#include "split.h"
#include "unigram.h"
#include "vocab.h"
#include "base/memory.h"

typedef enum { CT_MODEL_BPE, CT_MODEL_UNIGRAM } ct_model_kind;

// Decoding: what a token's text becomes, then what the joined text loses at its beginning.
typedef enum {
    CT_DECODE_BYTE_LEVEL,    // the byte-level alphabet back to bytes
    CT_DECODE_BYTE_FALLBACK, // <0xHH> to a byte
    CT_DECODE_REPLACE,       // text by content
    CT_DECODE_METASPACE,     // text by a space; in the first token by nothing where `start`
    CT_DECODE_STRIP,         // up to `start` leading and `stop` trailing characters `text`, of each token
    CT_DECODE_SUFFIX,        // BPEDecoder: text, at a token's end, by a space if another token follows
} ct_decode_kind;

typedef struct {
    ct_decode_kind kind;
    const char *text, *content;
    size_t text_length, content_length;
    int start, stop;
} ct_decode_step;

typedef struct {
    ct_decode_step *steps;
    int count, capacity;
    // Behind "Fuse": leading characters `strip_text` that the whole text loses, at most strip_start.
    int fused, strip_start;
    const char *strip_text;
    int spaced;           // no decoder at all: tokens are joined with spaces
    int drop_specials;    // SentencePiece and llama2.c: control tokens decode to nothing
    const char *unk_text; // SentencePiece: what <unk> decodes to
} ct_decoder;

struct ct_tokenizer {
    ct_arena arena; // texts of every kind
    ct_tokenizer_info info;
    const uint8_t *classes; // ct_unicode_expand
    ct_vocab vocab;         // the model's tokens, hidden symbols behind them
    ct_added added;
    ct_normalizer normalizer;
    ct_splitter splitter;
    ct_model_kind model;
    ct_bpe bpe;
    ct_unigram unigram;
    // Words of character BPE may be cut further, so that they are short and met again: before U+2581 where no token
    // holds it behind another character (mark), and between two bytes that follow each other in no token (together).
    const char *mark;
    unsigned char *together; // NULL: not known; else bit (first << 8 | second)
    ct_decoder decoder;
    int32_t *before, *after; // the template: ids in front of a text and behind it
    int before_count, after_count;
    unsigned char *control; // SentencePiece: ids that are not matched in text, by id; NULL: none
};

// The loaders. Each fills a zeroed tokenizer; on an error the caller closes it.
ct_status ct_load_json(ct_tokenizer *tokenizer, const char *path);
ct_status ct_load_pair(ct_tokenizer *tokenizer, const char *vocab_path, const char *merges_path);
ct_status ct_load_ranks(ct_tokenizer *tokenizer, const char *path, const char *pattern);
ct_status ct_load_sentencepiece(ct_tokenizer *tokenizer, const char *path);
ct_status ct_load_llama2c(ct_tokenizer *tokenizer, const char *path);
// tokenizer_config.json in a folder, where there is one: BOS, EOS, tokens that it adds.
ct_status ct_load_config(ct_tokenizer *tokenizer, const char *folder);

// Makes the byte-level pre-tokeniser, decoder and byte ids of a GPT-2-like tokenizer out of one pattern.
ct_status ct_tokenizer_use_pattern(ct_tokenizer *tokenizer, const char *pattern, size_t length,
                                   ct_pattern_flavour flavour);
// Appends a step that cuts at a regular expression, isolated: by a scanner where one is known.
ct_status ct_splitter_add_pattern(ct_splitter *splitter, const char *pattern, size_t length,
                                  ct_pattern_flavour flavour, const uint8_t *classes);
// Fills the pair table from the tokens themselves, ranks by id. barred (by id, may be NULL): tokens that never come
// from merging. hide: characters that are no token of their own become hidden symbols, so that tokens can still be
// built over them.
void ct_bpe_pairs_from_tokens(ct_tokenizer *tokenizer, const uint32_t *ranks, const unsigned char *barred, int hide);
// Ranks (0 first) of scores, highest first, equal ones sharing a rank. Heap-allocated.
uint32_t *ct_ranks_of_scores(const double *scores, int count);
// Fills the tables that follow from the vocabulary: byte ids, fallback ids.
void ct_tokenizer_index_bytes(ct_tokenizer *tokenizer);
// Finds out where words may be cut further.
void ct_tokenizer_find_cuts(ct_tokenizer *tokenizer);
