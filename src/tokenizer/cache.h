// A context's bounded memory of words: a word's bytes → its ids. Sets of two entries, the older of which gives way.
#pragma once
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define CT_CACHE_KEY 24 // longest word that is remembered, bytes
#define CT_CACHE_IDS 9  // most ids

typedef struct {
    uint64_t key[3]; // the word, zero-padded
    uint8_t size;    // bytes; 0: empty
    uint8_t count;   // ids
    uint16_t unused;
    int32_t ids[CT_CACHE_IDS];
} ct_cache_entry; // 64 bytes

#define CT_CACHE_SETS (1u << 15)

typedef struct {
    ct_cache_entry *entries; // 2 a set
} ct_cache;

// Loads a word of at most CT_CACHE_KEY bytes; 24 bytes can be read at p.
static inline void ct_cache_key(const unsigned char *p, size_t size, uint64_t key[3]) {
    memcpy(key, p, 24);
    if (size <= 8) {
        key[0] &= size == 8 ? ~0ull : (1ull << size * 8) - 1;
        key[1] = key[2] = 0;
    } else if (size <= 16) {
        key[1] &= size == 16 ? ~0ull : (1ull << (size - 8) * 8) - 1;
        key[2] = 0;
    } else {
        key[2] &= size == 24 ? ~0ull : (1ull << (size - 16) * 8) - 1;
    }
}

static inline uint32_t ct_cache_set(const uint64_t key[3], size_t size) {
    uint64_t hash = (key[0] ^ size) * 0x9e3779b97f4a7c15u;
    hash ^= hash >> 32;
    hash = (hash ^ key[1]) * 0xc2b2ae3d27d4eb4fu;
    hash ^= hash >> 29;
    hash = (hash ^ key[2]) * 0x9e3779b97f4a7c15u;
    return (uint32_t)(hash >> 40) & (CT_CACHE_SETS - 1);
}

static inline int ct_cache_hit(const ct_cache_entry *entry, const uint64_t key[3], size_t size) {
    return entry->size == size && entry->key[0] == key[0] && entry->key[1] == key[1] && entry->key[2] == key[2];
}
