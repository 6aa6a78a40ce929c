// The map's trie is a Darts-clone double array: a unit holds an offset to its children, a label and whether a value
// follows. After SentencePiece's normalizer.cc: the longest key that begins the text is replaced, else one character
// is copied; then spaces are tidied as the model says.
#include "charsmap.h"

#include <string.h>
#include <utf8proc.h>

static uint32_t unit_at(const ct_charsmap *map, size_t i) {
    const unsigned char *p = map->trie + 4 * i;
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

int ct_charsmap_parse(const void *bytes, size_t size, ct_charsmap *out_map) {
    *out_map = (ct_charsmap){0};
    if (!size) return 1;
    const unsigned char *p = bytes;
    if (size < 8) return 0;
    size_t trie_size = (size_t)p[0] | (size_t)p[1] << 8 | (size_t)p[2] << 16 | (size_t)p[3] << 24;
    if (trie_size < 4 || trie_size % 4 || trie_size > size - 4) return 0;
    const char *replacements = (const char *)p + 4 + trie_size;
    size_t replacements_size = size - 4 - trie_size;
    if (!replacements_size || replacements[replacements_size - 1]) return 0;
    *out_map = (ct_charsmap){p + 4, trie_size / 4, replacements, replacements_size};
    return 1;
}

static uint32_t offset_of(uint32_t unit) { return (unit >> 10) << ((unit & (1u << 9)) >> 6); }

size_t ct_charsmap_find(const ct_charsmap *map, const unsigned char *text, size_t size, int shortest,
                        const char **out_replacement) {
    if (!map->units) return 0;
    size_t node = offset_of(unit_at(map, 0)), best = 0;
    for (size_t i = 0; i < size; i++) {
        node ^= text[i];
        if (!text[i] || node >= map->units) break;
        uint32_t unit = unit_at(map, node);
        if ((unit & (1u << 31 | 0xff)) != text[i]) break;
        node ^= offset_of(unit);
        if (!(unit >> 8 & 1)) continue;
        if (node >= map->units) break;
        size_t value = unit_at(map, node) & 0x7fffffff;
        if (value >= map->replacements_size) break;
        *out_replacement = map->replacements + value;
        best = i + 1;
        if (shortest) break;
    }
    return best;
}

// ---- tokenizer.json ------------------------------------------------------------------------------

static void apply_to_part(const ct_charsmap *map, const unsigned char *text, size_t size, int by_character,
                          ct_buffer *out) {
    const char *replacement;
    if (ct_charsmap_find(map, text, size, 1, &replacement)) {
        ct_buffer_add(out, replacement, strlen(replacement));
    } else if (!by_character) {
        ct_buffer_add(out, text, size);
    } else {
        for (size_t i = 0, length; i < size; i += length) {
            length = (size_t)ct_utf8_length(text[i]);
            apply_to_part(map, text + i, length, 0, out);
        }
    }
}

void ct_charsmap_apply(const ct_charsmap *map, const ct_buffer *text, ct_buffer *out) {
    const unsigned char *bytes = text->bytes;
    size_t begin = 0;
    utf8proc_int32_t state = 0;
    for (size_t i = 0; i < text->size;) {
        int length, next_length;
        uint32_t point = ct_utf8_point(bytes + i, &length);
        i += (size_t)length;
        if (i < text->size &&
            !utf8proc_grapheme_break_stateful((utf8proc_int32_t)point,
                                              (utf8proc_int32_t)ct_utf8_point(bytes + i, &next_length), &state))
            continue;
        if (i - begin < 6)
            apply_to_part(map, bytes + begin, i - begin, 1, out);
        else
            for (size_t c = begin, step; c < i; c += step) {
                step = (size_t)ct_utf8_length(bytes[c]);
                apply_to_part(map, bytes + c, step, 0, out);
            }
        begin = i;
    }
}

// ---- SentencePiece -------------------------------------------------------------------------------

size_t ct_sentencepiece_symbol(const ct_sentencepiece_rules *rules, const unsigned char *text, size_t size) {
    size_t best = 0;
    for (int i = 0; i < rules->symbol_count && rules->first[text[0]]; i++) {
        size_t length = strlen(rules->symbols[i]);
        if (length > best && length <= size && !memcmp(rules->symbols[i], text, length)) best = length;
    }
    return best;
}

// What the next characters become: how many were read, and the replacement.
static size_t next_part(const ct_charsmap *map, const ct_sentencepiece_rules *rules, const unsigned char *text,
                        size_t size, const char **out_text, size_t *out_size) {
    *out_text = (const char *)text;
    *out_size = rules->symbol_count ? ct_sentencepiece_symbol(rules, text, size) : 0;
    if (*out_size) return *out_size;
    if (!map->units && !rules->symbol_count) { // nothing changes: all up to the next space at once
        const unsigned char *space = memchr(text + 1, ' ', size - 1);
        return *out_size = text[0] == ' ' ? 1 : space ? (size_t)(space - text) : size;
    }
    size_t read = ct_charsmap_find(map, text, size, 0, out_text);
    if (read) return *out_size = strlen(*out_text), read;
    *out_text = (const char *)text;
    return *out_size = (size_t)ct_utf8_length(text[0]);
}

#define MARK "\xe2\x96\x81"

static void add_space(const ct_sentencepiece_rules *rules, ct_buffer *out) {
    if (rules->escape_whitespaces)
        ct_buffer_add(out, MARK, 3);
    else
        ct_buffer_add(out, " ", 1);
}

static int ends_in_space(const ct_sentencepiece_rules *rules, const ct_buffer *out) {
    if (rules->escape_whitespaces) return out->size >= 3 && !memcmp(out->bytes + out->size - 3, MARK, 3);
    return out->size && out->bytes[out->size - 1] == ' ';
}

void ct_sentencepiece_normalize(const ct_charsmap *map, const ct_sentencepiece_rules *rules, const ct_buffer *text,
                                ct_buffer *out) {
    const unsigned char *p = text->bytes, *end = p + text->size;
    const char *part;
    size_t size, read;
    if (rules->remove_extra_whitespaces) // in front
        while (p < end && (read = next_part(map, rules, p, (size_t)(end - p), &part, &size)) && size == 1 &&
               part[0] == ' ')
            p += read;
    if (p >= end) return;
    if (rules->add_dummy_prefix && !rules->treat_whitespace_as_suffix) add_space(rules, out);
    int after_space = rules->remove_extra_whitespaces;
    while (p < end) {
        p += next_part(map, rules, p, (size_t)(end - p), &part, &size);
        while (after_space && size && part[0] == ' ') part++, size--;
        for (size_t i = 0, run; i < size; i += run) {
            const char *space = memchr(part + i, ' ', size - i);
            run = space ? (size_t)(space - part) - i : size - i;
            if (run)
                ct_buffer_add(out, part + i, run);
            else
                add_space(rules, out), run = 1;
        }
        if (size) after_space = part[size - 1] == ' ' && rules->remove_extra_whitespaces;
    }
    if (rules->remove_extra_whitespaces)
        while (ends_in_space(rules, out)) out->size -= rules->escape_whitespaces ? 3 : 1;
    if (rules->add_dummy_prefix && rules->treat_whitespace_as_suffix) add_space(rules, out);
}
