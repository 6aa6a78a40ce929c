// Permutations of [0, count) that are computed, not stored.
#pragma once
#include <stdint.h>

typedef struct {
    uint64_t count;
    uint32_t key[2];
    int half_bits;
} permutation;

// What a permutation orders; kept apart so that no two use the same random numbers.
typedef enum { SHUFFLE_DOCUMENTS, SHUFFLE_FILES, SHUFFLE_BLOCK } shuffle_use;

permutation permutation_make(uint64_t count, uint64_t seed, shuffle_use use, uint32_t source, uint32_t epoch,
                             uint64_t block);

// Where i < count goes; every value in [0, count) comes once.
uint64_t permutation_at(const permutation *p, uint64_t i);
