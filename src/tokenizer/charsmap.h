// SentencePiece's precompiled character map (a double-array trie and the replacements behind it) and its normaliser.
#pragma once
#include "utf8.h"

typedef struct {
    const unsigned char *trie; // little-endian 32-bit units
    size_t units;
    const char *replacements; // NUL-terminated, one behind the other
    size_t replacements_size;
} ct_charsmap; // all zero: the identity

// Reads a map's header; the bytes are borrowed. 1 where it is well formed (an empty one is).
int ct_charsmap_parse(const void *bytes, size_t size, ct_charsmap *out_map);

// Looks up the longest key (shortest where `shortest`) that begins text[0, size): its length, 0 where there is none,
// and what stands for it.
size_t ct_charsmap_find(const ct_charsmap *map, const unsigned char *text, size_t size, int shortest,
                        const char **out_replacement);

// The map as tokenizer.json's "Precompiled" applies it, grapheme by grapheme.
void ct_charsmap_apply(const ct_charsmap *map, const ct_buffer *text, ct_buffer *out);

typedef struct {
    int add_dummy_prefix, remove_extra_whitespaces, escape_whitespaces, treat_whitespace_as_suffix;
    // User-defined symbols, which the map does not touch and which never merge.
    const char *const *symbols;
    int symbol_count;
    unsigned char first[256]; // whether a symbol begins with this byte
} ct_sentencepiece_rules;

// The length of the longest user-defined symbol that begins text[0, size), or 0.
size_t ct_sentencepiece_symbol(const ct_sentencepiece_rules *rules, const unsigned char *text, size_t size);

void ct_sentencepiece_normalize(const ct_charsmap *map, const ct_sentencepiece_rules *rules, const ct_buffer *text,
                                ct_buffer *out);
