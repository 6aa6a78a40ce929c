// Training a BPE (Sennrich, Haddow and Birch 2016): again and again the most frequent pair of neighbours becomes a
// token. Counts are kept up to date: a merge visits only the words that hold its pair, and a heap with entries that
// may be out of date says which pair comes next. Equal counts are decided by the smaller left, then right symbol, as
// in Hugging Face's trainer.
#include "train_merge.h"
#include "bpe.h"
#include "vocab.h"

#include <stdlib.h>
#include <string.h>

typedef struct {
    int32_t left, right;
    int64_t count;
    uint32_t *words; // indices of words that hold or held the pair
    uint32_t word_count, word_capacity;
} pair_entry;

typedef struct {
    int64_t count;
    int32_t left, right;
    uint32_t pair;
} candidate;

typedef struct {
    int32_t *symbols; // all words' symbols, one behind the other
    size_t *begins;
    uint32_t *lengths;
    const ct_train_word *words;
    pair_entry *pairs;
    uint32_t pair_count, pair_capacity;
    uint32_t *slots; // pair + 1
    uint32_t mask;
    candidate *heap;
    size_t heap_count, heap_capacity;
    ct_vocab tokens; // texts in bytes, to see when two pairs make the same token
    ct_arena arena;
} trainer;

// ---- symbols and bytes ---------------------------------------------------------------------------

int ct_train_symbol_byte(int symbol) {
    int seen = 0;
    for (uint32_t point = 0; point < 0x180; point++) {
        int byte = ct_byte_from_point(point);
        if (byte >= 0 && seen++ == symbol) return byte;
    }
    return -1;
}

int ct_train_byte_symbol(int byte) {
    int seen = 0;
    for (uint32_t point = 0; point < (uint32_t)ct_byte_to_point(byte); point++)
        seen += ct_byte_from_point(point) >= 0;
    return seen;
}

// ---- pairs ---------------------------------------------------------------------------------------

static uint32_t hash_pair(int32_t left, int32_t right) {
    return (uint32_t)((((uint64_t)(uint32_t)left << 32 | (uint32_t)right) * 0x9e3779b97f4a7c15u) >> 32);
}

static void grow_slots(trainer *t) {
    free(t->slots);
    t->mask = t->mask ? 2 * t->mask + 1 : (1u << 16) - 1;
    t->slots = ct_calloc((size_t)t->mask + 1, sizeof *t->slots);
    for (uint32_t p = 0; p < t->pair_count; p++) {
        uint32_t i = hash_pair(t->pairs[p].left, t->pairs[p].right) & t->mask;
        while (t->slots[i]) i = (i + 1) & t->mask;
        t->slots[i] = p + 1;
    }
}

static pair_entry *pair_of(trainer *t, int32_t left, int32_t right) {
    if (!t->slots || (uint64_t)t->pair_count * 2 >= t->mask) grow_slots(t);
    uint32_t i = hash_pair(left, right) & t->mask;
    for (; t->slots[i]; i = (i + 1) & t->mask) {
        pair_entry *pair = &t->pairs[t->slots[i] - 1];
        if (pair->left == left && pair->right == right) return pair;
    }
    CT_GROW(t->pairs, t->pair_count, t->pair_capacity);
    t->pairs[t->pair_count] = (pair_entry){.left = left, .right = right};
    t->slots[i] = ++t->pair_count;
    return &t->pairs[t->pair_count - 1];
}

static void add_occurrence(trainer *t, int32_t left, int32_t right, uint32_t word) {
    pair_entry *pair = pair_of(t, left, right);
    pair->count += t->words[word].count;
    if (pair->word_count && pair->words[pair->word_count - 1] == word) return;
    CT_GROW(pair->words, pair->word_count, pair->word_capacity);
    pair->words[pair->word_count++] = word;
}

// ---- the heap ------------------------------------------------------------------------------------

static int comes_first(const candidate *a, const candidate *b) {
    if (a->count != b->count) return a->count > b->count;
    return a->left != b->left ? a->left < b->left : a->right < b->right;
}

static void push(trainer *t, uint32_t pair_index) {
    const pair_entry *pair = &t->pairs[pair_index];
    candidate added = {pair->count, pair->left, pair->right, pair_index};
    CT_GROW(t->heap, t->heap_count, t->heap_capacity);
    size_t i = t->heap_count++;
    for (; i > 0 && comes_first(&added, &t->heap[(i - 1) / 2]); i = (i - 1) / 2) t->heap[i] = t->heap[(i - 1) / 2];
    t->heap[i] = added;
}

static candidate pop(trainer *t) {
    candidate *heap = t->heap, top = heap[0], last = heap[--t->heap_count];
    size_t i = 0;
    for (size_t child; (child = 2 * i + 1) < t->heap_count; i = child) {
        if (child + 1 < t->heap_count && comes_first(&heap[child + 1], &heap[child])) child++;
        if (!comes_first(&heap[child], &last)) break;
        heap[i] = heap[child];
    }
    heap[i] = last;
    return top;
}

// The most frequent pair as it stands, or −1.
static int64_t best_pair(trainer *t, int64_t min_count) {
    while (t->heap_count) {
        candidate top = pop(t);
        int64_t count = t->pairs[top.pair].count;
        if (count == top.count && count > 0 && count >= min_count) return top.pair;
        if (count != top.count && count > 0) push(t, top.pair);
    }
    return -1;
}

// ---- merging -------------------------------------------------------------------------------------

static void take_words(trainer *t, const ct_train_word *words, int64_t count) {
    size_t total = 0;
    int32_t symbol_of[256];
    for (int byte = 0; byte < 256; byte++) symbol_of[byte] = ct_train_byte_symbol(byte);
    for (int64_t w = 0; w < count; w++) total += words[w].size;
    t->words = words;
    t->symbols = ct_malloc((total + 1) * sizeof *t->symbols);
    t->begins = ct_malloc(((size_t)count + 1) * sizeof *t->begins);
    t->lengths = ct_malloc(((size_t)count + 1) * sizeof *t->lengths);
    size_t at = 0;
    for (int64_t w = 0; w < count; w++) {
        t->begins[w] = at;
        t->lengths[w] = words[w].size;
        for (uint32_t i = 0; i < words[w].size; i++) t->symbols[at++] = symbol_of[words[w].bytes[i]];
        for (uint32_t i = 0; i + 1 < words[w].size; i++)
            add_occurrence(t, t->symbols[t->begins[w] + i], t->symbols[t->begins[w] + i + 1], (uint32_t)w);
    }
    for (uint32_t p = 0; p < t->pair_count; p++) push(t, p);
}

// A token's id by the pair that makes it: a new one, or the one that has the same bytes already.
static int32_t token_of(trainer *t, int32_t left, int32_t right) {
    ct_token a = t->tokens.tokens[left], b = t->tokens.tokens[right];
    char *text = ct_malloc((size_t)a.length + b.length);
    memcpy(text, a.text, a.length);
    memcpy(text + a.length, b.text, b.length);
    int32_t id = ct_vocab_find(&t->tokens, text, a.length + b.length);
    if (id < 0) {
        id = t->tokens.size;
        ct_status status = ct_vocab_add(&t->tokens, &t->arena, text, (size_t)a.length + b.length, id);
        CT_ASSERT(!status, "%s", ct_error_text(status));
    }
    free(text);
    return id;
}

// Merges a pair in one word; neighbours that come to stand together are counted, those that part uncounted. New pairs
// are noted in `fresh`.
static void merge_in_word(trainer *t, uint32_t word, int32_t left, int32_t right, int32_t id, ct_ids *fresh) {
    int32_t *s = t->symbols + t->begins[word];
    uint32_t length = t->lengths[word], kept = 0;
    int64_t count = t->words[word].count;
    for (uint32_t i = 0; i < length; i++) {
        if (s[i] != left || i + 1 >= length || s[i + 1] != right) {
            s[kept++] = s[i];
            continue;
        }
        if (kept > 0) {
            pair_of(t, s[kept - 1], left)->count -= count;
            add_occurrence(t, s[kept - 1], id, word);
            ct_ids_add(fresh, (int32_t)(pair_of(t, s[kept - 1], id) - t->pairs));
        }
        if (i + 2 < length) {
            pair_of(t, right, s[i + 2])->count -= count;
            add_occurrence(t, id, s[i + 2], word);
            ct_ids_add(fresh, (int32_t)(pair_of(t, id, s[i + 2]) - t->pairs));
        }
        s[kept++] = id;
        i++;
    }
    t->lengths[word] = kept;
}

static int by_number(const void *a, const void *b) {
    int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
    return (x > y) - (x < y);
}

static void merge_everywhere(trainer *t, uint32_t pair_index, int32_t id, ct_ids *fresh) {
    pair_entry pair = t->pairs[pair_index];
    t->pairs[pair_index].words = NULL;
    t->pairs[pair_index].word_count = t->pairs[pair_index].word_capacity = 0;
    fresh->count = 0;
    for (uint32_t i = 0; i < pair.word_count; i++) merge_in_word(t, pair.words[i], pair.left, pair.right, id, fresh);
    t->pairs[pair_index].count = 0;
    free(pair.words);
    if (fresh->count) qsort(fresh->ids, fresh->count, sizeof *fresh->ids, by_number);
    for (size_t i = 0; i < fresh->count; i++)
        if ((!i || fresh->ids[i] != fresh->ids[i - 1]) && t->pairs[fresh->ids[i]].count > 0)
            push(t, (uint32_t)fresh->ids[i]);
}

static void deinit(trainer *t) {
    for (uint32_t p = 0; p < t->pair_count; p++) free(t->pairs[p].words);
    free(t->pairs);
    free(t->slots);
    free(t->heap);
    free(t->symbols);
    free(t->begins);
    free(t->lengths);
    ct_vocab_deinit(&t->tokens);
    ct_arena_deinit(&t->arena);
}

void ct_train_find_merges(const ct_train_word *words, int64_t word_count, int tokens, int64_t min_count,
                          void (*progress)(void *context, int merges), void *context, ct_train_merge **out_merges,
                          int *out_count, int *out_tokens) {
    trainer t = {0};
    for (int symbol = 0; symbol < 256; symbol++) {
        char byte = (char)ct_train_symbol_byte(symbol);
        ct_status status = ct_vocab_add(&t.tokens, &t.arena, &byte, 1, symbol);
        CT_ASSERT(!status, "%s", ct_error_text(status));
    }
    take_words(&t, words, word_count);
    ct_train_merge *merges = NULL;
    ct_ids fresh = {0};
    int count = 0, capacity = 0;
    int64_t best;
    while (t.tokens.size < tokens && (best = best_pair(&t, min_count)) >= 0) {
        int32_t left = t.pairs[best].left, right = t.pairs[best].right, id = token_of(&t, left, right);
        CT_GROW(merges, count, capacity);
        merges[count++] = (ct_train_merge){left, right, id};
        merge_everywhere(&t, (uint32_t)best, id, &fresh);
        if (progress && count % 64 == 0) progress(context, count);
    }
    *out_merges = merges, *out_count = count, *out_tokens = t.tokens.size;
    ct_ids_deinit(&fresh);
    deinit(&t);
}
