// Merging: words of a few symbols by searching the best pair anew each time, longer ones with a linked list and a
// heap (n log n, so that a megabyte of one letter is no trap). Both take the lowest rank first and, among equals, the
// leftmost pair. Leaves out BPE dropout.
#include "bpe.h"
#include "utf8.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SHORT_WORD 48

typedef struct ct_heap_entry {
    uint64_t key; // rank << 32 | position
    int32_t id;   // what the pair became when this was put in: out of date if it has changed since
} heap_entry;

// ---- the pair table ------------------------------------------------------------------------------

static ct_pair *slot_for(ct_pairs *pairs, uint32_t left, uint32_t right) {
    const ct_pair *found = ct_pairs_find(pairs, left, right);
    if (found) return (ct_pair *)found;
    uint64_t hash = ((uint64_t)left << 32 | right) * 0x9e3779b97f4a7c15u;
    uint32_t i = (uint32_t)(hash >> 32) & pairs->mask;
    while (pairs->slots[i].left != UINT32_MAX) i = (i + 1) & pairs->mask;
    pairs->count++;
    return &pairs->slots[i];
}

static void grow_pairs(ct_pairs *pairs) {
    ct_pairs old = *pairs;
    uint32_t slots = old.slots ? 2 * (old.mask + 1) : 1024;
    pairs->slots = ct_malloc(slots * sizeof *pairs->slots);
    memset(pairs->slots, 0xff, slots * sizeof *pairs->slots);
    pairs->mask = slots - 1;
    pairs->count = 0;
    for (uint32_t i = 0; old.slots && i <= old.mask; i++)
        if (old.slots[i].left != UINT32_MAX) *slot_for(pairs, old.slots[i].left, old.slots[i].right) = old.slots[i];
    free(old.slots);
}

void ct_pairs_put(ct_pairs *pairs, uint32_t left, uint32_t right, uint32_t rank, int32_t id) {
    if (!pairs->slots || (uint64_t)pairs->count * 2 >= pairs->mask) grow_pairs(pairs);
    *slot_for(pairs, left, right) = (ct_pair){left, right, rank, id};
}

void ct_pairs_deinit(ct_pairs *pairs) {
    free(pairs->slots);
    *pairs = (ct_pairs){0};
}

// ---- the byte-level alphabet ---------------------------------------------------------------------

static int is_own_character(int byte) {
    return (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || (byte >= 174 && byte <= 255);
}

int ct_byte_to_point(int byte) {
    if (is_own_character(byte)) return byte;
    return byte <= 32 ? 256 + byte : byte <= 160 ? 256 + 33 + byte - 127 : 256 + 33 + 34;
}

int ct_byte_from_point(uint32_t point) {
    if (point < 256) return is_own_character((int)point) ? (int)point : -1;
    if (point <= 256 + 32) return (int)point - 256;
    if (point < 256 + 33 + 34) return (int)point - 256 - 33 + 127;
    return point == 256 + 33 + 34 ? 173 : -1;
}

// ---- scratch -------------------------------------------------------------------------------------

void ct_bpe_scratch_deinit(ct_bpe_scratch *scratch) {
    free(scratch->ids);
    free(scratch->next);
    free(scratch->previous);
    free(scratch->found);
    free(scratch->heap);
    free(scratch->text);
    *scratch = (ct_bpe_scratch){0};
}

static void reserve_symbols(ct_bpe_scratch *scratch, size_t count) {
    if (count <= scratch->capacity) return;
    size_t capacity = count < 256 ? 256 : count + count / 2;
    scratch->ids = ct_realloc(scratch->ids, capacity * sizeof *scratch->ids);
    scratch->next = ct_realloc(scratch->next, capacity * sizeof *scratch->next);
    scratch->previous = ct_realloc(scratch->previous, capacity * sizeof *scratch->previous);
    scratch->found = ct_realloc(scratch->found, capacity * sizeof *scratch->found);
    scratch->capacity = capacity;
}

static char *reserve_text(ct_bpe_scratch *scratch, size_t size) {
    if (size > scratch->text_capacity) {
        scratch->text_capacity = size < 256 ? 256 : size + size / 2;
        scratch->text = ct_realloc(scratch->text, scratch->text_capacity);
    }
    return scratch->text;
}

// ---- symbols of a word ---------------------------------------------------------------------------

static size_t symbols_of_bytes(const ct_bpe *bpe, ct_bpe_scratch *scratch, const unsigned char *word, size_t size) {
    reserve_symbols(scratch, size);
    size_t count = 0;
    int unknown = 0; // an unknown byte waits to see whether the next one fuses with it
    for (size_t i = 0; i < size; i++) {
        int32_t id = bpe->byte_ids[word[i]];
        if (id >= 0) {
            if (unknown) scratch->ids[count++] = bpe->unk_id;
            unknown = 0;
            scratch->ids[count++] = id;
        } else if (bpe->unk_id >= 0) {
            if (unknown && !bpe->fuse_unk) scratch->ids[count++] = bpe->unk_id;
            unknown = 1;
        }
    }
    if (unknown) scratch->ids[count++] = bpe->unk_id;
    return count;
}

static int has_fallback(const ct_bpe *bpe, const unsigned char *text, size_t size) {
    for (size_t i = 0; i < size; i++)
        if (bpe->fallback_ids[text[i]] < 0) return 0;
    return bpe->byte_fallback;
}

// The id of a character that stands at a word's beginning, end or inside; *out_text is what was looked up.
static int32_t find_character(const ct_bpe *bpe, const ct_vocab *vocab, ct_bpe_scratch *scratch,
                              const unsigned char *text, size_t size, int first, int last,
                              const unsigned char **out_text, size_t *out_size) {
    *out_text = text, *out_size = size;
    const char *prefix = !first && bpe->prefix ? bpe->prefix : "", *suffix = last && bpe->suffix ? bpe->suffix : "";
    if (*prefix || *suffix) {
        size_t prefix_size = strlen(prefix), suffix_size = strlen(suffix);
        char *joined = reserve_text(scratch, prefix_size + size + suffix_size);
        memcpy(joined, prefix, prefix_size);
        memcpy(joined + prefix_size, text, size);
        memcpy(joined + prefix_size + size, suffix, suffix_size);
        *out_text = (const unsigned char *)joined, *out_size = prefix_size + size + suffix_size;
    }
    return ct_vocab_find(vocab, *out_text, *out_size);
}

static size_t symbols_of_characters(const ct_bpe *bpe, const ct_vocab *vocab, ct_bpe_scratch *scratch,
                                    const unsigned char *word, size_t size) {
    size_t affixes = (bpe->prefix ? strlen(bpe->prefix) : 0) + (bpe->suffix ? strlen(bpe->suffix) : 0);
    reserve_symbols(scratch, size + (bpe->byte_fallback ? size * affixes : 0) + 1);
    size_t count = 0;
    int unknown = 0;
    for (size_t i = 0; i < size;) {
        size_t length = (size_t)ct_utf8_length(word[i]), looked_size;
        size_t symbol = bpe->rules.symbol_count ? ct_sentencepiece_symbol(&bpe->rules, word + i, size - i) : 0;
        if (symbol) length = symbol;
        const unsigned char *looked;
        int32_t id =
            find_character(bpe, vocab, scratch, word + i, length, i == 0, i + length >= size, &looked, &looked_size);
        i += length;
        if (id >= 0) {
            if (unknown) scratch->ids[count++] = bpe->unk_id;
            unknown = 0;
            scratch->ids[count++] = id;
        } else if (has_fallback(bpe, looked, looked_size)) {
            for (size_t b = 0; b < looked_size; b++) scratch->ids[count++] = bpe->fallback_ids[looked[b]];
        } else if (bpe->unk_id >= 0) {
            if (unknown && !bpe->fuse_unk) scratch->ids[count++] = bpe->unk_id;
            unknown = 1;
        }
    }
    if (unknown) scratch->ids[count++] = bpe->unk_id;
    return count;
}

// ---- merging -------------------------------------------------------------------------------------

static inline ct_pair find_pair(const ct_bpe *bpe, int32_t left, int32_t right) {
    const ct_pair *pair = ct_pairs_find(&bpe->pairs, (uint32_t)left, (uint32_t)right);
    return pair ? *pair : (ct_pair){0, 0, UINT32_MAX, -1};
}

static size_t merge_short(const ct_bpe *bpe, ct_bpe_scratch *scratch, size_t count) {
    int32_t *ids = scratch->ids;
    ct_pair *found = scratch->found;
    for (size_t i = 0; i + 1 < count; i++) found[i] = find_pair(bpe, ids[i], ids[i + 1]);
    while (count > 1) {
        size_t best = 0;
        for (size_t i = 1; i + 1 < count; i++)
            if (found[i].rank < found[best].rank) best = i;
        if (found[best].rank == UINT32_MAX) break;
        ids[best] = found[best].id;
        memmove(ids + best + 1, ids + best + 2, (count - best - 2) * sizeof *ids);
        if (count - best > 2) memmove(found + best + 1, found + best + 2, (count - best - 3) * sizeof *found);
        count--;
        if (best + 1 < count) found[best] = find_pair(bpe, ids[best], ids[best + 1]);
        if (best > 0) found[best - 1] = find_pair(bpe, ids[best - 1], ids[best]);
    }
    return count;
}

static void heap_push(ct_bpe_scratch *scratch, heap_entry entry) {
    CT_GROW(scratch->heap, scratch->heap_count, scratch->heap_capacity);
    size_t i = scratch->heap_count++;
    for (; i > 0 && scratch->heap[(i - 1) / 2].key > entry.key; i = (i - 1) / 2)
        scratch->heap[i] = scratch->heap[(i - 1) / 2];
    scratch->heap[i] = entry;
}

static heap_entry heap_pop(ct_bpe_scratch *scratch) {
    heap_entry *heap = scratch->heap, top = heap[0], last = heap[--scratch->heap_count];
    size_t count = scratch->heap_count, i = 0;
    for (size_t child; (child = 2 * i + 1) < count; i = child) {
        if (child + 1 < count && heap[child + 1].key < heap[child].key) child++;
        if (heap[child].key >= last.key) break;
        heap[i] = heap[child];
    }
    heap[i] = last;
    return top;
}

static void push_pair(const ct_bpe *bpe, ct_bpe_scratch *scratch, int32_t left, int32_t right) {
    ct_pair pair = find_pair(bpe, scratch->ids[left], scratch->ids[right]);
    if (pair.id >= 0) heap_push(scratch, (heap_entry){(uint64_t)pair.rank << 32 | (uint32_t)left, pair.id});
}

static size_t merge_long(const ct_bpe *bpe, ct_bpe_scratch *scratch, size_t count) {
    int32_t *ids = scratch->ids, *next = scratch->next, *previous = scratch->previous;
    scratch->heap_count = 0;
    for (size_t i = 0; i < count; i++) {
        next[i] = i + 1 < count ? (int32_t)i + 1 : -1;
        previous[i] = (int32_t)i - 1;
        if (i + 1 < count) push_pair(bpe, scratch, (int32_t)i, (int32_t)i + 1);
    }
    while (scratch->heap_count) {
        heap_entry top = heap_pop(scratch);
        int32_t left = (int32_t)(uint32_t)top.key, right = ids[left] < 0 ? -1 : next[left];
        if (right < 0 || find_pair(bpe, ids[left], ids[right]).id != top.id) continue;
        ids[left] = top.id;
        ids[right] = -1;
        next[left] = next[right];
        if (next[left] >= 0) {
            previous[next[left]] = left;
            push_pair(bpe, scratch, left, next[left]);
        }
        if (previous[left] >= 0) push_pair(bpe, scratch, previous[left], left);
    }
    size_t kept = 0;
    for (int32_t i = 0; i >= 0; i = next[i]) ids[kept++] = ids[i];
    return kept;
}

// ---- a word --------------------------------------------------------------------------------------

static int32_t find_word(const ct_bpe *bpe, const ct_vocab *vocab, ct_bpe_scratch *scratch, const unsigned char *word,
                         size_t size) {
    if (!bpe->byte_level) return ct_vocab_find(vocab, word, size);
    unsigned char *mapped = (unsigned char *)reserve_text(scratch, 2 * size);
    size_t length = 0;
    for (size_t i = 0; i < size; i++)
        length += (size_t)ct_utf8_put((uint32_t)ct_byte_to_point(word[i]), mapped + length);
    return ct_vocab_find(vocab, mapped, length);
}

// What a hidden symbol ends as: the bytes of its character, or unk.
static void add_hidden(const ct_bpe *bpe, const ct_vocab *vocab, int32_t id, ct_ids *out, size_t first) {
    const ct_token *token = &vocab->tokens[id];
    if (has_fallback(bpe, (const unsigned char *)token->text, token->length)) {
        for (uint32_t i = 0; i < token->length; i++)
            ct_ids_add(out, bpe->fallback_ids[(unsigned char)token->text[i]]);
    } else if (bpe->unk_id >= 0 && !(out->count > first && out->ids[out->count - 1] == bpe->unk_id)) {
        ct_ids_add(out, bpe->unk_id);
    }
}

static void add_symbols(const ct_bpe *bpe, const ct_vocab *vocab, const int32_t *ids, size_t count, ct_ids *out) {
    size_t first = out->count;
    for (size_t i = 0; i < count; i++) {
        int32_t id = ids[i];
        if (id >= bpe->hidden_from)
            add_hidden(bpe, vocab, id, out, first);
        else if (!(bpe->fuse_at_end && id == bpe->unk_id && out->count > first && out->ids[out->count - 1] == id))
            ct_ids_add(out, id);
    }
}

void ct_bpe_encode_word(const ct_bpe *bpe, const ct_vocab *vocab, ct_bpe_scratch *scratch, const unsigned char *word,
                        size_t size, ct_ids *out) {
    if (bpe->whole_words) {
        int32_t id = find_word(bpe, vocab, scratch, word, size);
        if (id >= 0) {
            ct_ids_add(out, id);
            return;
        }
    }
    size_t count = bpe->byte_level ? symbols_of_bytes(bpe, scratch, word, size)
                                   : symbols_of_characters(bpe, vocab, scratch, word, size);
    if (count > 1 && bpe->pairs.count)
        count = count <= SHORT_WORD ? merge_short(bpe, scratch, count) : merge_long(bpe, scratch, count);
    add_symbols(bpe, vocab, scratch->ids, count, out);
}
