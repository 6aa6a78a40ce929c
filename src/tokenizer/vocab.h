// Token texts by id and ids by text: an open-addressing hash over texts that live in an arena.
#pragma once
#include "base/memory.h"
#include "base/status.h"
#include <stdint.h>

typedef struct {
    const char *text; // NULL: no token has this id
    uint32_t length;
} ct_token;

// Zero-initialise. Several ids may not share a text, and an id has one text.
typedef struct {
    ct_token *tokens; // by id
    int size;         // largest id + 1
    int count;        // ids that have a text
    int capacity;
    uint32_t *slots; // id + 1, 0 empty
    uint32_t mask;
} ct_vocab;

// Adds a token; the text is copied into the arena. Where the text is there already, the new id takes its place in
// look-ups. Errors: an id below 0 or above 2^28, or one that has another text.
ct_status ct_vocab_add(ct_vocab *vocab, ct_arena *arena, const char *text, size_t length, int id);
int ct_vocab_find(const ct_vocab *vocab, const void *text, size_t length); // -1: not there
void ct_vocab_deinit(ct_vocab *vocab);

uint64_t ct_hash_bytes(const void *bytes, size_t length);
