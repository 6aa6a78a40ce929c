// Finds added tokens: the leftmost, and of those that begin there the longest, as an Aho-Corasick automaton of that
// kind would. The texts lie sorted, and each byte of the input narrows the range of those that still fit.
#include "added.h"
#include "unicode.h"
#include "utf8.h"

#include <stdlib.h>
#include <string.h>

const ct_added_token *ct_added_find(const ct_added *added, int32_t id) {
    if (id < 0 || id >= added->texts.size || !added->texts.tokens[id].text) return NULL;
    for (int i = 0; i < added->count; i++)
        if (added->tokens[i].id == id) return &added->tokens[i];
    return NULL;
}

static int32_t next_id(const ct_added *added, const ct_vocab *vocab) {
    int32_t id = vocab->count;
    for (int i = 0; i < added->count; i++)
        if (added->tokens[i].id >= id) id = added->tokens[i].id + 1;
    return id;
}

ct_status ct_added_add(ct_added *added, const ct_vocab *vocab, ct_arena *arena, ct_added_token token) {
    if (!token.length) return CT_OK;
    token.id = ct_vocab_find(&added->texts, token.text, token.length);
    if (token.id >= 0) { // flags of the match are the new ones; what kind of token it is stays
        for (int i = 0; i < added->count; i++) {
            ct_added_token *old = &added->tokens[i];
            if (old->id != token.id) continue;
            old->single_word = token.single_word, old->lstrip = token.lstrip, old->rstrip = token.rstrip;
            if (token.special && !old->special) old->special = 1, old->normalized = token.normalized;
        }
        return CT_OK;
    }
    token.id = ct_vocab_find(vocab, token.text, token.length);
    if (token.id < 0) token.id = next_id(added, vocab);
    CT_TRY(ct_vocab_add(&added->texts, arena, token.text, token.length, token.id));
    token.text = added->texts.tokens[token.id].text;
    CT_GROW(added->tokens, added->count, added->capacity);
    added->tokens[added->count++] = token;
    return CT_OK;
}

static int compare(const void *a, const void *b) {
    const ct_added_token *x = a, *y = b;
    uint32_t length = x->length < y->length ? x->length : y->length;
    int order = memcmp(x->text, y->text, length);
    return order ? order : x->length < y->length ? -1 : x->length > y->length ? 1 : (x->id > y->id) - (x->id < y->id);
}

static void sort_set(ct_added_set *set) {
    if (set->count) qsort(set->items, (size_t)set->count, sizeof *set->items, compare);
    int firsts = 0;
    set->only = -1;
    memset(set->first, 0, sizeof set->first);
    for (int i = 0; i < set->count; i++) {
        unsigned char c = (unsigned char)set->items[i].text[0];
        if (!set->first[c]) set->only = firsts++ ? -1 : c;
        set->first[c] = 1;
    }
}

void ct_added_index(ct_added *added) {
    added->raw.count = added->normalized.count = 0;
    for (int i = 0; i < added->count; i++) {
        ct_added_set *set = added->tokens[i].normalized ? &added->normalized : &added->raw;
        if (!added->tokens[i].length) continue;
        CT_GROW(set->items, set->count, set->capacity);
        set->items[set->count++] = added->tokens[i];
    }
    sort_set(&added->raw);
    sort_set(&added->normalized);
}

void ct_added_deinit(ct_added *added) {
    free(added->tokens);
    free(added->raw.items);
    free(added->normalized.items);
    ct_vocab_deinit(&added->texts);
    *added = (ct_added){0};
}

// ---- finding -------------------------------------------------------------------------------------

static const unsigned char *next_candidate(const ct_added_set *set, const unsigned char *p,
                                           const unsigned char *end) {
    if (set->only >= 0) {
        p = memchr(p, set->only, (size_t)(end - p));
        return p ? p : end;
    }
    while (p < end && !set->first[*p]) p++;
    return p;
}

// The first of items[low, high) whose byte at `depth` is at least `byte` (a text that ends there comes first).
static int lower(const ct_added_set *set, int low, int high, uint32_t depth, int byte) {
    while (low < high) {
        int middle = (low + high) / 2;
        const ct_added_token *token = &set->items[middle];
        if (depth >= token->length || (unsigned char)token->text[depth] < byte)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static const ct_added_token *longest_at(const ct_added_set *set, const unsigned char *p, const unsigned char *end) {
    int low = 0, high = set->count;
    const ct_added_token *best = NULL;
    for (uint32_t depth = 0; p + depth < end && low < high; depth++) {
        int byte = p[depth];
        low = lower(set, low, high, depth, byte);
        high = lower(set, low, high, depth, byte + 1);
        if (low < high && set->items[low].length == depth + 1) best = &set->items[low];
    }
    return best;
}

static int is_word_before(const uint8_t *classes, const unsigned char *text, const unsigned char *p) {
    int length;
    return p > text && classes[ct_utf8_point(ct_utf8_back(p, text), &length)] & CT_UNICODE_WORD;
}

static int is_word_behind(const uint8_t *classes, const unsigned char *p, const unsigned char *end) {
    int length;
    return p < end && classes[ct_utf8_point(p, &length)] & CT_UNICODE_WORD;
}

const ct_added_token *ct_added_next(const ct_added_set *set, const uint8_t *classes, const unsigned char *text,
                                    size_t size, size_t from, size_t floor, int skip_special, size_t *out_begin,
                                    size_t *out_end) {
    const unsigned char *end = text + size, *p = text + from;
    for (;;) {
        p = next_candidate(set, p, end);
        if (p >= end) return NULL;
        const ct_added_token *token = longest_at(set, p, end);
        if (!token) {
            p++;
            continue;
        }
        const unsigned char *begin = p, *stop = p + token->length;
        p = stop;
        if (token->special && skip_special) continue;
        if (token->single_word && (is_word_before(classes, text, begin) || is_word_behind(classes, stop, end)))
            continue;
        int length;
        while (token->lstrip && begin > text + floor &&
               ct_unicode_is_space(ct_utf8_point(ct_utf8_back(begin, text), &length)))
            begin = ct_utf8_back(begin, text);
        while (token->rstrip && stop < end && ct_unicode_is_space(ct_utf8_point(stop, &length))) stop += length;
        *out_begin = (size_t)(begin - text), *out_end = (size_t)(stop - text);
        return token;
    }
}
