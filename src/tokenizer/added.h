// Added tokens: texts that are recognised in the input before anything else happens to it.
#pragma once
#include "vocab.h"
#include "base/memory.h"
#include <stdint.h>

typedef struct {
    const char *text; // as it stands in the input (normalised where it is looked for behind the normaliser)
    uint32_t length;
    int32_t id;
    uint8_t special, single_word, lstrip, rstrip, normalized;
} ct_added_token;

// Texts in lexical order, to be narrowed down byte by byte.
typedef struct {
    ct_added_token *items;
    int count, capacity;
    uint8_t first[256]; // whether a token begins with this byte
    int only;           // the one byte that all begin with, or -1
    int ready;
} ct_added_set;

typedef struct {
    ct_added_token *tokens; // in the order in which they were added
    int count, capacity;
    ct_vocab texts; // their texts and ids
    ct_added_set raw, normalized;
} ct_added;

// Adds a token as Hugging Face's add_tokens does: a token of the vocabulary keeps its id, another gets the next one;
// one that is there already takes the new flags. vocab_count: tokens of the model.
ct_status ct_added_add(ct_added *added, const ct_vocab *vocab, ct_arena *arena, ct_added_token token);
const ct_added_token *ct_added_find(const ct_added *added, int32_t id); // NULL: not an added token
// Sorts what was added; texts of normalized tokens must be final.
void ct_added_index(ct_added *added);
void ct_added_deinit(ct_added *added);

// The next token in text[from, size): index in set, or NULL. skip_special: special ones are passed over.
const ct_added_token *ct_added_next(const ct_added_set *set, const uint8_t *classes, const unsigned char *text,
                                    size_t size, size_t from, size_t floor, int skip_special, size_t *out_begin,
                                    size_t *out_end);
