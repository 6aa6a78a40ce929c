// The vocabulary's two directions. The hash mixes eight bytes a round (multiply and fold), which is enough for texts
// nobody chooses to collide: a hostile file only makes its own look-ups slow.
#include "vocab.h"

#include <stdlib.h>
#include <string.h>

#define LARGEST_ID (1 << 28)

uint64_t ct_hash_bytes(const void *bytes, size_t length) {
    const unsigned char *p = bytes;
    uint64_t hash = 0x9e3779b97f4a7c15u ^ length;
    while (length >= 8) {
        uint64_t word;
        memcpy(&word, p, 8);
        hash = (hash ^ word) * 0xff51afd7ed558ccdu;
        hash ^= hash >> 32;
        p += 8, length -= 8;
    }
    uint64_t word = 0;
    if (length) memcpy(&word, p, length);
    hash = (hash ^ word) * 0xff51afd7ed558ccdu;
    hash ^= hash >> 29;
    hash *= 0xc4ceb9fe1a85ec53u;
    return hash ^ hash >> 32;
}

static uint32_t *slot_of(const ct_vocab *vocab, const void *text, size_t length) {
    uint32_t i = (uint32_t)ct_hash_bytes(text, length) & vocab->mask;
    for (;; i = (i + 1) & vocab->mask) {
        if (!vocab->slots[i]) return &vocab->slots[i];
        const ct_token *token = &vocab->tokens[vocab->slots[i] - 1];
        if (token->length == length && !memcmp(token->text, text, length)) return &vocab->slots[i];
    }
}

static void rehash(ct_vocab *vocab, uint32_t slots) {
    uint32_t *old = vocab->slots, old_mask = vocab->mask;
    vocab->slots = ct_calloc(slots, sizeof *vocab->slots);
    vocab->mask = slots - 1;
    for (uint32_t i = 0; old && i <= old_mask; i++)
        if (old[i]) {
            const ct_token *token = &vocab->tokens[old[i] - 1];
            *slot_of(vocab, token->text, token->length) = old[i];
        }
    free(old);
}

static void grow_ids(ct_vocab *vocab, int size) {
    if (size > vocab->capacity) {
        int capacity = vocab->capacity ? vocab->capacity : 512;
        while (capacity < size) capacity *= 2;
        vocab->tokens = ct_realloc(vocab->tokens, (size_t)capacity * sizeof *vocab->tokens);
        memset(vocab->tokens + vocab->capacity, 0, (size_t)(capacity - vocab->capacity) * sizeof *vocab->tokens);
        vocab->capacity = capacity;
    }
    if (size > vocab->size) vocab->size = size;
}

ct_status ct_vocab_add(ct_vocab *vocab, ct_arena *arena, const char *text, size_t length, int id) {
    CT_CHECK(id >= 0 && id < LARGEST_ID, CT_INVALID, "token id %d is out of range (0 to %d)", id, LARGEST_ID - 1);
    CT_CHECK(length < (1u << 24), CT_INVALID, "the token with id %d is %zu bytes long", id, length);
    if (id < vocab->size && vocab->tokens[id].text) {
        const ct_token *token = &vocab->tokens[id];
        CT_CHECK(token->length == length && !memcmp(token->text, text, length), CT_INVALID,
                 "id %d is given to two tokens, '%.60s' and '%.60s'", id, token->text, text);
        return CT_OK;
    }
    if (!vocab->slots || (uint64_t)vocab->count * 2 >= vocab->mask)
        rehash(vocab, vocab->slots ? 2 * (vocab->mask + 1) : 1024);
    grow_ids(vocab, id + 1);
    vocab->tokens[id] = (ct_token){ct_arena_strndup(arena, text, length), (uint32_t)length};
    vocab->count++;
    *slot_of(vocab, text, length) = (uint32_t)id + 1;
    return CT_OK;
}

int ct_vocab_find(const ct_vocab *vocab, const void *text, size_t length) {
    return vocab->slots ? (int)*slot_of(vocab, text, length) - 1 : -1;
}

void ct_vocab_deinit(ct_vocab *vocab) {
    free(vocab->tokens);
    free(vocab->slots);
    *vocab = (ct_vocab){0};
}
