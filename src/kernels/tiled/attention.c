// Attention in tiles, after FlashAttention (Dao 2022, 2023): six query rows against a block of 64 keys at a time, the
// running maximum, the running sum and the output rescaled block by block in f32. Blocks begin at multiples of 64
// keys, and keys that no row may see change nothing, so a row's bits do not depend on its neighbours, on threads, or
// on masked keys before or behind. Threads take (batch, group, run of query rows) from one counter, the longest
// first.
#include "../simd/isa.h"
#include "span.h"

#include <math.h>
#include <stdatomic.h>

enum { CHUNK_BYTES = 384 * 1024, STRIP_TILES = ROWS / TILE };

typedef struct {
    const ct_call *call;
    shape shape;
    int64_t chunk_rows, chunks; // of one (batch, group)
    atomic_llong next;
} job;

// A thread's own memory. Chunk rows: r; padded sizes: kw words of q and k, ew words of v, E numbers of o.
typedef struct {
    uint32_t *q_rk, *k_sk, *k_ks, *v_se, *v_pairs;
    float *o_rE, *sum_r16, *max_r;
    query_chunk chunk;
    key_block block;
    // Of a strip of rows against the block: which keys each row sees, and how far a tile's go; scores, then weights
    // as words; and what a new maximum does to the past of a row, LANES a tile.
    uint64_t allowed[ROWS];
    int keys[STRIP_TILES];
    _Alignas(64) float score[ROWS * KEYS + LANES];
    _Alignas(64) float correction[STRIP_TILES * LANES];
} room;

static size_t room_place(room *w, char *base, const shape *c, int64_t rows) {
    carver from = {base, 0};
    int64_t kw = depth_words(c->d), ew = depth_words(c->e), E = rounded_up(c->e, LANES);
    w->q_rk = carve(&from, rows * kw, 4);
    w->k_sk = carve(&from, KEYS * kw, 4);
    w->k_ks = carve(&from, KEYS * kw, 4);
    w->v_se = carve(&from, KEYS * ew, 4);
    w->v_pairs = BF16_DOT ? carve(&from, KEY_WORDS * E, 4) : w->v_se;
    w->o_rE = carve(&from, rows * E, 4);
    w->sum_r16 = carve(&from, rows * LANES, 4);
    w->max_r = carve(&from, rows + LANES, 4);
    w->chunk.pos = carve(&from, rows, 4);
    w->chunk.doc = carve(&from, rows, 4);
    w->chunk.strips = carve(&from, rows / ROWS + 1, sizeof(span));
    return from.used;
}

// Long runs of rows use a packed block of keys often, but q and o must stay in the second cache, and all threads must
// have some.
static int64_t chunk_rows(const shape *c, int threads) {
    int64_t most = CHUNK_BYTES / (4 * (depth_words(c->d) + rounded_up(c->e, LANES))) / ROWS * ROWS;
    int64_t even = rounded_up(c->B * c->G * c->T * c->Q / (6 * (int64_t)threads) + 1, ROWS);
    return most < ROWS ? ROWS : even < most ? even : most;
}
static size_t forward_scratch(const ct_call *call, int threads) {
    shape c = shape_of(call, 0, 3);
    room w;
    return (size_t)threads * room_place(&w, NULL, &c, chunk_rows(&c, threads));
}

// ---- one block of keys ---------------------------------------------------------------------------------------

CT_INLINE void pack_keys(const job *j, room *w, int64_t pair, int64_t block, ct_dtype dtype) {
    const shape *c = &j->shape;
    int64_t kw = depth_words(c->d), ew = depth_words(c->e);
    for (int s = 0; s < KEYS; s++) {
        fetch_row(j->call->in[1].data, key_row(c, pair, block * KEYS + s + AHEAD), c->d, dtype);
        fetch_row(j->call->in[2].data, key_row(c, pair, block * KEYS + s + AHEAD), c->e, dtype);
        int matters = key_matters(&w->block, s, w->chunk.span);
        int64_t key = matters ? key_row(c, pair, block * KEYS + s) : 0;
        pack_row(w->k_sk + s * kw, kw, j->call->in[1].data, key * c->d, matters ? c->d : 0, dtype);
        pack_row(w->v_se + s * ew, ew, j->call->in[2].data, key * c->e, matters ? c->e : 0, dtype);
    }
    pack_across(w->k_ks, w->k_sk, kw);
    if (BF16_DOT) pack_pairs(w->v_pairs, c->e, w->v_se, ew, KEYS);
}

// New maxima (in units of log 2) of the tile's rows, and the factors that bring the past to them. Tile `at` of the
// strip is row r on.
CT_INLINE void tile_maxima(room *w, int at, int64_t r, float scale_log2) {
    _Alignas(64) float max[LANES] = {0};
    for (int i = 0; i < TILE; i++) {
        __m512 m = _mm512_set1_ps(-INFINITY);
        uint64_t seen = w->allowed[at * TILE + i];
        for (int v = 0; v * LANES < w->keys[at]; v++)
            m = _mm512_mask_max_ps(m, (__mmask16)(seen >> (v * LANES)), m,
                                   _mm512_load_ps(w->score + (at * TILE + i) * KEYS + v * LANES));
        max[i] = _mm512_reduce_max_ps(m);
    }
    __mmask16 six = (1 << TILE) - 1;
    __m512 old = _mm512_maskz_loadu_ps(six, w->max_r + r);
    __m512 new = _mm512_max_ps(old, _mm512_mul_ps(_mm512_load_ps(max), _mm512_set1_ps(scale_log2)));
    __mmask16 some = _mm512_cmp_ps_mask(new, _mm512_set1_ps(-INFINITY), _CMP_NEQ_UQ);
    _mm512_mask_storeu_ps(w->max_r + r, six, new);
    _mm512_store_ps(w->correction + at * LANES, power_of_two(0xffff, _mm512_maskz_sub_ps(some, old, new)));
}

// Scores → weights 2^(score - max) as words for the second product, and the running sums.
CT_INLINE void row_weights(room *w, int at, int i, int64_t r, int vectors, float scale_log2) {
    uint64_t seen = w->allowed[at * TILE + i];
    float max = w->max_r[r + i], *score = w->score + (at * TILE + i) * KEYS, *sum = w->sum_r16 + (r + i) * LANES;
    __m512 m = _mm512_set1_ps(max == -INFINITY ? 0 : max), scale = _mm512_set1_ps(scale_log2), p[KEY_VECTORS];
#pragma GCC unroll 4
    for (int v = 0; v < KEY_VECTORS; v++)
        p[v] = v < vectors ? power_of_two((__mmask16)(seen >> (v * LANES)),
                                          _mm512_fmsub_ps(_mm512_load_ps(score + v * LANES), scale, m))
                           : _mm512_setzero_ps();
#if CT_BF16_DOT
    _mm512_store_si512(score, (__m512i)_mm512_cvtne2ps_pbh(p[1], p[0]));
    if (vectors > 2) _mm512_store_si512(score + LANES, (__m512i)_mm512_cvtne2ps_pbh(p[3], p[2]));
#else
#pragma GCC unroll 4
    for (int v = 0; v < KEY_VECTORS; v++)
        if (v < vectors) _mm512_store_ps(score + v * LANES, p[v]);
#endif
    __m512 part = _mm512_add_ps(_mm512_add_ps(p[0], p[1]), _mm512_add_ps(p[2], p[3]));
    _mm512_store_ps(sum, _mm512_fmadd_ps(_mm512_load_ps(sum), _mm512_set1_ps(w->correction[at * LANES + i]), part));
}
CT_INLINE void tile_weights(room *w, int at, int64_t r, float scale_log2) {
    int vectors = (w->keys[at] + LANES - 1) / LANES;
    for (int i = 0; i < TILE; i++)
        if (vectors == KEY_VECTORS)
            row_weights(w, at, i, r, KEY_VECTORS, scale_log2);
        else
            row_weights(w, at, i, r, vectors, scale_log2);
}

// Rows [first, end) against the block, a phase at a time for all tiles, so that one tile's waits are another's work.
static void strip_block(const shape *c, room *w, int64_t first, int64_t end, relation how) {
    int64_t kw = depth_words(c->d), E = rounded_up(c->e, LANES);
    int tiles = (int)((end - first) / TILE);
    for (int t = 0; t < tiles; t++) {
        int64_t r = first + t * TILE;
        w->keys[t] = tile_keys(&w->chunk, r, &w->block, how, w->allowed + t * TILE);
        if (w->keys[t])
            rows_fresh((w->keys[t] + LANES - 1) / LANES, kw, (a_operand){w->q_rk + r * kw, kw, 1}, w->k_ks, KEYS,
                       w->score + t * TILE * KEYS, KEYS);
    }
    for (int t = 0; t < tiles; t++)
        if (w->keys[t]) tile_maxima(w, t, first + t * TILE, c->scale_log2);
    for (int t = 0; t < tiles; t++)
        if (w->keys[t]) tile_weights(w, t, first + t * TILE, c->scale_log2);
    for (int t = 0; t < tiles; t++)
        if (w->keys[t])
            rows_scaled((int)(E / LANES), BF16_DOT ? (w->keys[t] + 1) / 2 : w->keys[t],
                        (a_operand){(uint32_t *)w->score + t * TILE * KEYS, KEYS, 1}, w->v_pairs, E,
                        w->o_rE + (first + t * TILE) * E, E, w->correction + t * LANES);
}

// ---- one chunk of query rows -----------------------------------------------------------------------------------

CT_INLINE void begin_chunk(const job *j, room *w, int64_t pair, int64_t first, int64_t count, ct_dtype dtype) {
    const shape *c = &j->shape;
    int64_t kw = depth_words(c->d), E = rounded_up(c->e, LANES);
    query_chunk_read(c, pair, first, count, &w->chunk);
    row_walk walk = row_walk_begin(c, pair, first), ahead = row_walk_begin(c, pair, first + AHEAD);
    for (int64_t r = 0; r < count; r++, row_walk_next(&walk), row_walk_next(&ahead)) {
        fetch_row(j->call->in[0].data, ahead.row, c->d, dtype);
        pack_row(w->q_rk + r * kw, kw, j->call->in[0].data, walk.row * c->d, c->d, dtype);
    }
    memset(w->q_rk + count * kw, 0, 4 * (size_t)((w->chunk.padded - count) * kw));
    memset(w->o_rE, 0, 4 * (size_t)(w->chunk.padded * E));
    memset(w->sum_r16, 0, 4 * (size_t)(w->chunk.padded * LANES));
    for (int64_t r = 0; r < w->chunk.padded; r++) w->max_r[r] = -INFINITY;
}

// lse = max·ln 2 + log(sum) of rows [r, r + n); n ≤ LANES.
CT_INLINE void store_lse(const job *j, const room *w, int64_t r, int n, const int64_t *row, const float *sum) {
    _Alignas(64) float lse[LANES];
    __m512 max = _mm512_loadu_ps(w->max_r + r), log_sum = logarithm(_mm512_load_ps(sum));
    _mm512_store_ps(lse, _mm512_fmadd_ps(max, _mm512_set1_ps(0.6931472f), log_sum));
    for (int i = 0; i < n; i++) ((float *)j->call->out[1].data)[row[i]] = sum[i] == 0 ? -INFINITY : lse[i];
}

CT_INLINE void end_chunk(const job *j, room *w, int64_t pair) {
    const shape *c = &j->shape;
    int64_t E = rounded_up(c->e, LANES), row[LANES];
    _Alignas(64) float sum[LANES] = {0};
    row_walk walk = row_walk_begin(c, pair, w->chunk.first);
    for (int64_t r = 0; r < w->chunk.count; r += LANES) {
        int n = w->chunk.count - r < LANES ? (int)(w->chunk.count - r) : LANES;
        for (int k = 0; k < n; k++, row_walk_next(&walk)) {
            row[k] = walk.row;
            sum[k] = v_sum((v16f)_mm512_load_ps(w->sum_r16 + (r + k) * LANES));
            v16f by = v_set(sum[k] == 0 ? 1 : sum[k]); // nothing allowed: o is 0
            for (int64_t i = 0; i < c->e; i += LANES)
                v_store(j->call->out[0].data, walk.row * c->e + i, c->e - i < LANES ? (int)(c->e - i) : LANES, j->call->out[0].dtype,
                        v_load(w->o_rE, (r + k) * E + i, LANES, CT_F32) / by);
        }
        store_lse(j, w, r, n, row, sum);
    }
}

CT_INLINE void forward_chunk(const job *j, room *w, int64_t pair, int64_t first, ct_dtype dtype) {
    const shape *c = &j->shape;
    int64_t rows = c->T * c->Q;
    begin_chunk(j, w, pair, first, rows - first < j->chunk_rows ? rows - first : j->chunk_rows, dtype);
    for (int64_t block = 0; block * KEYS < c->S; block++) {
        key_block_read(c, pair, block, &w->block);
        if (relate(w->chunk.span, w->block.span) == NONE) continue;
        pack_keys(j, w, pair, block, dtype);
        for (int64_t r = 0; r < w->chunk.padded; r += ROWS) {
            relation how = relate(w->chunk.strips[r / ROWS], w->block.span);
            if (how != NONE) strip_block(c, w, r, r + ROWS < w->chunk.padded ? r + ROWS : w->chunk.padded, how);
        }
    }
    end_chunk(j, w, pair);
}

CT_INLINE void forward_share(job *j, int thread, ct_dtype dtype) {
    room w;
    size_t bytes = room_place(&w, NULL, &j->shape, j->chunk_rows);
    room_place(&w, (char *)j->call->scratch + (size_t)thread * bytes, &j->shape, j->chunk_rows);
    int64_t pairs = j->shape.B * j->shape.G;
    for (long long i; (i = atomic_fetch_add(&j->next, 1)) < pairs * j->chunks;)
        forward_chunk(j, &w, i % pairs, (j->chunks - 1 - i / pairs) * j->chunk_rows, dtype);
}

static void forward(const ct_call *call, ct_team *team, ct_task *task) {
    job j = {.call = call, .shape = shape_of(call, 0, 3)};
    CT_ASSERT(j.shape.scale >= 0, "scale %g", (double)j.shape.scale); // the largest product is the largest score
    j.chunk_rows = chunk_rows(&j.shape, ct_team_size(team));
    j.chunks = (j.shape.T * j.shape.Q + j.chunk_rows - 1) / j.chunk_rows;
    atomic_init(&j.next, 0);
    ct_team_run(team, task, &j);
}
static void bf16_task(void *j, int thread, int threads) {
    (void)threads;
    forward_share(j, thread, CT_BF16);
}
static void forward_bf16(const ct_call *call, ct_team *team) { forward(call, team, bf16_task); }
#if !CT_BF16_DOT
static void f32_task(void *j, int thread, int threads) {
    (void)threads;
    forward_share(j, thread, CT_F32);
}
static void forward_f32(const ct_call *call, ct_team *team) { forward(call, team, f32_task); }
#endif

extern const ct_kernel CT_TABLE(attention)[];
const ct_kernel CT_TABLE(attention)[] = {
#if CT_BF16_DOT
    {"attention", "bbbiiii>.f", ISA, forward_bf16, forward_scratch,
     "bf16 products (denormals taken as 0), f32 softmax, weights rounded to bf16; blocks of 64 keys ascending"},
#else
    {"attention", "fffiiii>ff", ISA, forward_f32, forward_scratch, "f32 (exp 1 ulp), blocks of 64 keys ascending"},
    {"attention", "bbbiiii>.f", ISA, forward_bf16, forward_scratch,
     "f32 inside (exp 1 ulp), blocks of 64 keys ascending; o rounded once"},
#endif
    {0},
};
