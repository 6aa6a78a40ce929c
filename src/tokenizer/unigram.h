// The unigram model: of all ways to cut a text into pieces the one with the largest sum of scores.
#pragma once
#include "tokenizer/tokenizer.h"
#include "vocab.h"

typedef struct {
    double *scores;         // by id
    unsigned char *usable;  // by id: may be a piece of a text
    unsigned char *defined; // by id: a user-defined symbol (its score counts by its length); NULL: none
    size_t longest;         // bytes of the longest piece
    double unk_score;       // of a character that no piece covers
    double score_max;
    int single_precision; // sums are kept in float, as SentencePiece does; else in double, as Hugging Face does
    int32_t unk_id;
    int byte_fallback;
    int32_t fallback_ids[256];
    uint32_t *prefixes; // hashes of all beginnings of pieces, a set
    uint32_t prefix_mask;
} ct_unigram;
void ct_unigram_deinit(ct_unigram *unigram);

// Makes the set of beginnings; scores and usable are in place.
void ct_unigram_index(ct_unigram *unigram, const ct_vocab *vocab);

typedef struct {
    double *best;
    int32_t *id;
    uint32_t *from;
    size_t capacity;
} ct_unigram_scratch;
void ct_unigram_scratch_deinit(ct_unigram_scratch *scratch);

void ct_unigram_encode(const ct_unigram *unigram, const ct_vocab *vocab, ct_unigram_scratch *scratch,
                       const unsigned char *text, size_t size, ct_ids *out);
