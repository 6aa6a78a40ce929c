// What attention's tiles need to know of shapes and masks. A query row r of one (batch, group) is position t = r / Q,
// head r % Q of the group. A key is allowed where k_pos ≤ q_pos and k_doc == q_doc; the smallest and largest of both
// decide for a whole tile.
#pragma once
#include "tile.h"

enum { ROWS = 48 }; // query rows of a tile's strip: a multiple of TILE and of 2

typedef struct {
    int64_t B, T, G, Q, S, d, e;
    const int32_t *q_pos, *k_pos, *q_doc, *k_doc;
    float scale, scale_log2; // scale, scale·log2 e
} shape;

// q, k, v are the inputs from `first`; q_pos, k_pos, q_doc, k_doc those from first_mask.
static inline shape shape_of(const ct_call *call, int first, int first_mask) {
    const int64_t *q = call->in[first].dims, *v = call->in[first + 2].dims;
    return (shape){.B = q[0],
                   .T = q[1],
                   .G = q[2],
                   .Q = q[3],
                   .S = v[1],
                   .d = q[4],
                   .e = v[3],
                   .q_pos = call->in[first_mask].data,
                   .k_pos = call->in[first_mask + 1].data,
                   .q_doc = call->in[first_mask + 2].data,
                   .k_doc = call->in[first_mask + 3].data,
                   .scale = (float)call->attrs[0],
                   .scale_log2 = (float)(call->attrs[0] * 1.4426950408889634)};
}

// Walks query rows r, r + 1, … of (b, g): `row` is the number of the row (…, G, Q) in q, o and lse.
typedef struct {
    int64_t row, head, heads, skip;
} row_walk;
static inline row_walk row_walk_begin(const shape *c, int64_t pair, int64_t r) {
    int64_t t = pair / c->G * c->T + r / c->Q;
    return (row_walk){(t * c->G + pair % c->G) * c->Q + r % c->Q, r % c->Q, c->Q, (c->G - 1) * c->Q};
}
static inline void row_walk_next(row_walk *w) {
    w->row++;
    if (++w->head < w->heads) return;
    w->head = 0;
    w->row += w->skip;
}

// The number of the row (…, G) in k and v that is key s of (b, g).
static inline int64_t key_row(const shape *c, int64_t pair, int64_t s) {
    return ((pair / c->G) * c->S + s) * c->G + pair % c->G;
}

typedef struct {
    int32_t pos_min, pos_max, doc_min, doc_max;
} span;
static inline span span_none(void) { return (span){INT32_MAX, INT32_MIN, INT32_MAX, INT32_MIN}; }
static inline void span_add(span *x, int32_t pos, int32_t doc) {
    x->pos_min = pos < x->pos_min ? pos : x->pos_min, x->pos_max = pos > x->pos_max ? pos : x->pos_max;
    x->doc_min = doc < x->doc_min ? doc : x->doc_min, x->doc_max = doc > x->doc_max ? doc : x->doc_max;
}

typedef enum { NONE, SOME, ALL } relation;
static inline relation relate(span q, span k) {
    if (k.pos_min > q.pos_max || k.doc_max < q.doc_min || k.doc_min > q.doc_max) return NONE;
    return k.pos_max <= q.pos_min && q.doc_min == q.doc_max && k.doc_min == k.doc_max ? ALL : SOME;
}

// A block of KEYS keys, those beyond `count` not allowed.
typedef struct {
    int32_t pos[KEYS], doc[KEYS];
    int count;
    span span;
} key_block;
static inline void key_block_read(const shape *c, int64_t pair, int64_t block, key_block *out) {
    int64_t first = block * KEYS, at = pair / c->G * c->S + first;
    out->count = c->S - first < KEYS ? (int)(c->S - first) : KEYS;
    out->span = span_none();
    for (int s = 0; s < KEYS; s++) {
        out->pos[s] = s < out->count ? c->k_pos[at + s] : INT32_MAX;
        out->doc[s] = s < out->count ? c->k_doc[at + s] : 0;
        if (s < out->count) span_add(&out->span, out->pos[s], out->doc[s]);
    }
}

// Whether some query of the span may look at key s; others may hold anything and are taken as zeros.
static inline int key_matters(const key_block *k, int s, span q) {
    return s < k->count && k->pos[s] <= q.pos_max && k->doc[s] >= q.doc_min && k->doc[s] <= q.doc_max;
}

// Bit s: key s of the block is allowed for a query.
static inline uint64_t allowed_keys(const key_block *k, int32_t pos, int32_t doc) {
    uint64_t bits = 0;
    for (int v = 0; v < KEY_VECTORS; v++) {
        __m512i p = _mm512_loadu_si512(k->pos + v * LANES), d = _mm512_loadu_si512(k->doc + v * LANES);
        __mmask16 in_doc = _mm512_cmpeq_epi32_mask(d, _mm512_set1_epi32(doc));
        bits |= (uint64_t)_mm512_mask_cmple_epi32_mask(in_doc, p, _mm512_set1_epi32(pos)) << (v * LANES);
    }
    return k->count < KEYS ? bits & (((uint64_t)1 << k->count) - 1) : bits;
}

// Query rows of one (b, g): [first, first + count), of which the caller packs the tensors.
typedef struct {
    int64_t first, count, padded; // padded: count in whole TILEs
    int32_t *pos, *doc;           // a row
    span *strips;                 // a strip of ROWS rows
    span span;
} query_chunk;
static inline void query_chunk_read(const shape *c, int64_t pair, int64_t first, int64_t count, query_chunk *chunk) {
    chunk->first = first;
    chunk->count = count;
    chunk->padded = rounded_up(count, TILE);
    chunk->span = span_none();
    int64_t t = pair / c->G * c->T + first / c->Q, head = first % c->Q;
    for (int64_t r = 0; r < chunk->padded; r++, head++) {
        if (r % ROWS == 0) chunk->strips[r / ROWS] = span_none();
        if (r >= count) {
            chunk->pos[r] = chunk->doc[r] = INT32_MIN;
            continue;
        }
        if (head == c->Q) head = 0, t++;
        chunk->pos[r] = c->q_pos[t];
        chunk->doc[r] = c->q_doc[t];
        span_add(&chunk->strips[r / ROWS], chunk->pos[r], chunk->doc[r]);
        span_add(&chunk->span, chunk->pos[r], chunk->doc[r]);
    }
}

// The keys that rows [r, r + TILE) of a chunk may look at, and one past the last of them.
static inline int tile_keys(const query_chunk *q, int64_t r, const key_block *k, relation how,
                            uint64_t *out_allowed) {
    uint64_t any = 0, all = k->count < KEYS ? ((uint64_t)1 << k->count) - 1 : ~(uint64_t)0;
    for (int i = 0; i < TILE; i++) {
        int again = i && q->pos[r + i] == q->pos[r + i - 1] && q->doc[r + i] == q->doc[r + i - 1];
        out_allowed[i] = how == ALL ? all
                         : again    ? out_allowed[i - 1]
                                    : allowed_keys(k, q->pos[r + i], q->doc[r + i]);
        any |= out_allowed[i];
    }
    return any ? 64 - __builtin_clzll(any) : 0;
}

// Hands out pieces of a scratch block; with base NULL it only counts.
typedef struct {
    char *base;
    size_t used;
} carver;
static inline void *carve(carver *c, int64_t elems, size_t size) {
    void *piece = c->base ? c->base + c->used : NULL;
    c->used += ((size_t)elems * size + 127) / 64 * 64; // at least a line of slack
    return piece;
}
