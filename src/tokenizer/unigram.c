// Viterbi over byte positions, from left to right (Kudo 2018; SentencePiece's EncodeOptimized). Instead of a trie, a
// set of the hashes of all beginnings of pieces says when a longer match has become impossible. Leaves out sampling.
#include "unigram.h"
#include "utf8.h"
#include "base/memory.h"

#include <stdlib.h>
#include <string.h>

void ct_unigram_deinit(ct_unigram *unigram) {
    free(unigram->scores);
    free(unigram->usable);
    free(unigram->defined);
    free(unigram->prefixes);
    *unigram = (ct_unigram){0};
}

void ct_unigram_scratch_deinit(ct_unigram_scratch *scratch) {
    free(scratch->best);
    free(scratch->id);
    free(scratch->from);
    *scratch = (ct_unigram_scratch){0};
}

#define HASH_START 0x811c9dc5u
static uint32_t hash_step(uint32_t hash, unsigned char byte) {
    hash = (hash ^ byte) * 0x01000193u;
    return hash ^ hash >> 15;
}

static int has_prefix(const ct_unigram *unigram, uint32_t hash) {
    hash |= !hash;
    for (uint32_t i = hash & unigram->prefix_mask;; i = (i + 1) & unigram->prefix_mask) {
        if (unigram->prefixes[i] == hash) return 1;
        if (!unigram->prefixes[i]) return 0;
    }
}

static void put_prefix(ct_unigram *unigram, uint32_t hash) {
    hash |= !hash;
    uint32_t i = hash & unigram->prefix_mask;
    while (unigram->prefixes[i] && unigram->prefixes[i] != hash) i = (i + 1) & unigram->prefix_mask;
    unigram->prefixes[i] = hash;
}

void ct_unigram_index(ct_unigram *unigram, const ct_vocab *vocab) {
    uint64_t bytes = 1, slots = 1024;
    for (int id = 0; id < vocab->size; id++) bytes += vocab->tokens[id].length;
    while (slots < 2 * bytes) slots *= 2;
    unigram->prefixes = ct_calloc(slots, sizeof *unigram->prefixes);
    unigram->prefix_mask = (uint32_t)(slots - 1);
    for (int id = 0; id < vocab->size; id++) {
        const ct_token *token = &vocab->tokens[id];
        uint32_t hash = HASH_START;
        for (uint32_t i = 0; unigram->usable[id] && i < token->length; i++)
            put_prefix(unigram, hash = hash_step(hash, (unsigned char)token->text[i]));
        if (unigram->usable[id] && token->length > unigram->longest) unigram->longest = token->length;
    }
}

static void reserve(ct_unigram_scratch *scratch, size_t count) {
    if (count > scratch->capacity) {
        scratch->capacity = count + count / 2;
        scratch->best = ct_realloc(scratch->best, scratch->capacity * sizeof *scratch->best);
        scratch->id = ct_realloc(scratch->id, scratch->capacity * sizeof *scratch->id);
        scratch->from = ct_realloc(scratch->from, scratch->capacity * sizeof *scratch->from);
    }
    memset(scratch->id, 0xff, count * sizeof *scratch->id);
    scratch->best[0] = 0;
}

static void offer(const ct_unigram *unigram, ct_unigram_scratch *scratch, size_t from, size_t to, int32_t id,
                  double score) {
    score += scratch->best[from];
    if (unigram->single_precision) score = (double)(float)score;
    if (scratch->id[to] >= 0 && !(score > scratch->best[to])) return;
    scratch->best[to] = score;
    scratch->id[to] = id;
    scratch->from[to] = (uint32_t)from;
}

static double score_of(const ct_unigram *unigram, int32_t id, size_t length) {
    if (unigram->defined && unigram->defined[id]) return (double)(float)((double)length * unigram->score_max) - 0.1;
    return unigram->scores[id];
}

// A character that no piece covers: unk, or its bytes.
static void add_unknown(const ct_unigram *unigram, const unsigned char *text, size_t size, int fused, ct_ids *out) {
    if (unigram->byte_fallback) {
        for (size_t i = 0; i < size; i++) ct_ids_add(out, unigram->fallback_ids[text[i]]);
    } else if (!fused && unigram->unk_id >= 0) {
        ct_ids_add(out, unigram->unk_id);
    }
}

static void add_path(const ct_unigram *unigram, ct_unigram_scratch *scratch, const unsigned char *text, size_t size,
                     ct_ids *out) {
    uint32_t *from = scratch->from, behind = 0; // turned round in place, so that from[a piece's beginning] is its end
    int32_t *ids = scratch->id, id = -1;
    for (uint32_t at = (uint32_t)size;;) {
        uint32_t before = at ? from[at] : 0;
        int32_t ends_here = ids[at];
        from[at] = behind, ids[at] = id;
        if (!at) break;
        behind = at, id = ends_here, at = before;
    }
    int unknown = 0;
    for (uint32_t at = 0; at < size; at = from[at]) {
        int now = ids[at] == unigram->unk_id || ids[at] == INT32_MAX;
        if (now)
            add_unknown(unigram, text + at, from[at] - at, unknown, out);
        else
            ct_ids_add(out, ids[at]);
        unknown = now;
    }
}

// SentencePiece (from 0.2.2 on) keeps its float sums small: beyond −100,000 they start again from zero, those that
// are under way with them.
static void rebase(const ct_unigram *unigram, ct_unigram_scratch *scratch, size_t from, size_t size) {
    double base = scratch->best[from];
    if (!unigram->single_precision || base > -100000) return;
    for (size_t at = from; at <= size && at - from <= unigram->longest; at++)
        if (scratch->id[at] >= 0 || at == from) scratch->best[at] = (double)(float)(scratch->best[at] - base);
}

void ct_unigram_encode(const ct_unigram *unigram, const ct_vocab *vocab, ct_unigram_scratch *scratch,
                       const unsigned char *text, size_t size, ct_ids *out) {
    reserve(scratch, size + 1);
    for (size_t from = 0, length; from < size; from += length) {
        length = (size_t)ct_utf8_length(text[from]);
        int single = 0;
        rebase(unigram, scratch, from, size);
        uint32_t hash = HASH_START;
        for (size_t to = from + 1; to <= size && to - from <= unigram->longest; to++) {
            hash = hash_step(hash, text[to - 1]);
            if (!has_prefix(unigram, hash)) break;
            if (to < size && (text[to] & 0xc0) == 0x80) continue; // inside a character
            int32_t id = ct_vocab_find(vocab, text + from, to - from);
            if (id < 0 || !unigram->usable[id]) continue;
            offer(unigram, scratch, from, to, id, score_of(unigram, id, to - from));
            single |= to - from == length;
        }
        if (!single)
            offer(unigram, scratch, from, from + length, unigram->unk_id >= 0 ? unigram->unk_id : INT32_MAX,
                  unigram->unk_score);
    }
    add_path(unigram, scratch, text, size, out);
}
