// The merging half of training a BPE: words with counts in, merges out. See train_merge.c.
#pragma once
#include "tokenizer/train.h"
#include "base/memory.h"

typedef struct {
    const unsigned char *bytes; // borrowed
    uint32_t size;
    int64_t count;
} ct_train_word;

typedef struct {
    int32_t left, right, id; // the pair, and the token it becomes
} ct_train_merge;

// Finds merges until there are `tokens` tokens (the 256 bytes included) or no pair occurs min_count times. Symbols 0
// to 255 are the bytes in the order of their characters in the byte-level alphabet. *out_merges is heap-allocated.
void ct_train_find_merges(const ct_train_word *words, int64_t word_count, int tokens, int64_t min_count,
                          void (*progress)(void *context, int merges), void *context, ct_train_merge **out_merges,
                          int *out_count, int *out_tokens);

// The byte behind symbol 0 to 255, and back.
int ct_train_symbol_byte(int symbol);
int ct_train_byte_symbol(int byte);
