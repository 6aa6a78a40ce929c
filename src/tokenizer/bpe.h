// Byte-pair encoding of one word: symbols merge in order of rank until no pair that is left may merge.
#pragma once
#include "charsmap.h"
#include "tokenizer/tokenizer.h"
#include "vocab.h"
#include <stddef.h>

// (left, right) → (rank, merged id): open addressing, at most half full.
typedef struct {
    uint32_t left, right; // left = UINT32_MAX: empty
    uint32_t rank;
    int32_t id;
} ct_pair;
typedef struct {
    ct_pair *slots;
    uint32_t mask;
    int count;
} ct_pairs;
void ct_pairs_put(ct_pairs *pairs, uint32_t left, uint32_t right, uint32_t rank,
                  int32_t id); // the last one put counts
void ct_pairs_deinit(ct_pairs *pairs);

static inline const ct_pair *ct_pairs_find(const ct_pairs *pairs, uint32_t left, uint32_t right) {
    uint64_t hash = ((uint64_t)left << 32 | right) * 0x9e3779b97f4a7c15u;
    for (uint32_t i = (uint32_t)(hash >> 32) & pairs->mask;; i = (i + 1) & pairs->mask) {
        const ct_pair *pair = &pairs->slots[i];
        if (pair->left == left && pair->right == right) return pair;
        if (pair->left == UINT32_MAX) return NULL;
    }
}

typedef struct {
    ct_pairs pairs;
    int byte_level;            // symbols are bytes (byte_ids); else they are characters, looked up in the vocabulary
    int whole_words;           // a word that is a token is that token, whatever the merges say
    int32_t byte_ids[256];     // -1: the byte is not in the vocabulary
    int32_t fallback_ids[256]; // <0x00>…<0xFF>, all -1 without byte fallback
    int byte_fallback;
    int32_t unk_id; // -1: what is unknown vanishes
    int fuse_unk;
    int fuse_at_end;              // SentencePiece: unknown symbols fuse in the result, not before merging
    const char *prefix, *suffix;  // put before every character but the first, behind the last; "" or NULL: none
    ct_sentencepiece_rules rules; // SentencePiece: its user-defined symbols
    int32_t hidden_from; // ids from here on are symbols that only occur inside tokens: they end as bytes or unk
} ct_bpe;

// Scratch space of a thread. Zero-initialise.
typedef struct {
    int32_t *ids;
    int32_t *next, *previous;
    ct_pair *found; // rank and id of the pair that begins here
    size_t capacity;
    struct ct_heap_entry *heap;
    size_t heap_count, heap_capacity;
    char *text; // a character with its prefix and suffix, or a word in the byte-level alphabet
    size_t text_capacity;
} ct_bpe_scratch;
void ct_bpe_scratch_deinit(ct_bpe_scratch *scratch);

// Appends a word's ids. Word: well-formed UTF-8, or any bytes where symbols are bytes. Cost: n log n in its length.
void ct_bpe_encode_word(const ct_bpe *bpe, const ct_vocab *vocab, ct_bpe_scratch *scratch, const unsigned char *word,
                        size_t size, ct_ids *out);

// The byte-level alphabet of GPT-2: the character that stands for a byte (as a code point below 0x180), and back (-1:
// none).
int ct_byte_to_point(int byte);
int ct_byte_from_point(uint32_t point);
