// The gradient of attention in tiles: scores and weights are recomputed from lse, then five products a tile.
//   p = 2^(scores - lse), ds = p·(do·vᵀ - delta), delta = sum(do·o):  dv += pᵀ do, dk += dsᵀ q, dq += ds k.
// dq is one chain over keys, dk and dv one over query rows (t, then Q), ascending: neither tiles, threads nor what is
// skipped changes a bit. Where there are enough (batch, group) pairs for the threads, one pass makes all three; else
// dq by runs of rows, and dk and dv by runs of keys, recomputing the weights (7 products instead of 5).
#include "../simd/isa.h"
#include "span.h"

#include <math.h>
#include <stdatomic.h>

enum { CHUNK_ROWS = 8 * ROWS, RUN_BLOCKS = 4, STRIP_TILES = ROWS / TILE };

typedef struct {
    const ct_call *call;
    shape shape;
    int64_t kw, ew, D, E; // words of a row of q and k, of v and do; numbers of a row, in whole vectors
    int64_t pairs, rows, blocks, run_blocks, chunks, runs, tasks;
    int one_pass;
    atomic_llong next;
} job;

// A thread's own memory; names end in what their dims are: r row of the chunk, s key of the block, k/e words of
// depth, D/E numbers.
typedef struct {
    uint32_t *q_rk, *do_re, *q_pairs, *do_pairs; // pairs: as the B operand of products over rows
    uint32_t *k_sk, *k_ks, *k_pairs, *v_se, *v_es;
    uint32_t *p_rs, *ds_rs, *ds_words; // p and ds of a strip, as A operands over rows; ds over keys
    float *dq_rD, *dk_sD, *dv_sE;      // the last two a block of the run
    float *lse_r, *delta_r;
    query_chunk chunk;
    key_block block;
    uint64_t allowed[ROWS]; // a row of the strip; and how far the keys of a tile go
    int keys[STRIP_TILES];
    int first_row[KEY_VECTORS], end_row[KEY_VECTORS]; // rows of the strip that see any of 16 keys
    float *score_rs, *dp_rs;                          // of the strip
} room;

static size_t room_place(room *w, char *base, const job *j) {
    carver from = {base, 0};
    w->q_rk = carve(&from, CHUNK_ROWS * j->kw, 4);
    w->do_re = carve(&from, CHUNK_ROWS * j->ew, 4);
    w->q_pairs = BF16_DOT ? carve(&from, CHUNK_ROWS / 2 * j->D, 4) : w->q_rk;
    w->do_pairs = BF16_DOT ? carve(&from, CHUNK_ROWS / 2 * j->E, 4) : w->do_re;
    w->k_sk = carve(&from, KEYS * j->kw, 4);
    w->k_ks = carve(&from, KEYS * j->kw, 4);
    w->k_pairs = BF16_DOT ? carve(&from, KEY_WORDS * j->D, 4) : w->k_sk;
    w->v_se = carve(&from, KEYS * j->ew, 4);
    w->v_es = carve(&from, KEYS * j->ew, 4);
    w->score_rs = carve(&from, ROWS * KEYS, 4);
    w->dp_rs = carve(&from, ROWS * KEYS, 4);
    w->p_rs = BF16_DOT ? carve(&from, ROWS / 2 * KEYS, 4) : (uint32_t *)w->score_rs;
    w->ds_rs = BF16_DOT ? carve(&from, ROWS / 2 * KEYS, 4) : (uint32_t *)w->dp_rs;
    w->ds_words = BF16_DOT ? carve(&from, ROWS * KEY_WORDS, 4) : w->ds_rs;
    w->dq_rD = carve(&from, CHUNK_ROWS * j->D, 4);
    w->dk_sD = carve(&from, j->run_blocks * KEY_ROWS * j->D, 4);
    w->dv_sE = carve(&from, j->run_blocks * KEY_ROWS * j->E, 4);
    w->lse_r = carve(&from, CHUNK_ROWS, 4);
    w->delta_r = carve(&from, CHUNK_ROWS, 4);
    w->chunk.pos = carve(&from, CHUNK_ROWS, 4);
    w->chunk.doc = carve(&from, CHUNK_ROWS, 4);
    w->chunk.strips = carve(&from, CHUNK_ROWS / ROWS + 1, sizeof(span));
    return from.used;
}

static void job_init(job *j, const ct_call *call, int threads) {
    shape c = shape_of(call, 1, 6);
    *j = (job){.call = call,
               .shape = c,
               .kw = depth_words(c.d),
               .ew = depth_words(c.e),
               .D = rounded_up(c.d, LANES),
               .E = rounded_up(c.e, LANES),
               .pairs = c.B * c.G,
               .rows = c.T * c.Q,
               .blocks = (c.S + KEYS - 1) / KEYS};
    int64_t rounds = (j->pairs + threads - 1) / threads;
    j->one_pass = rounds * threads * 5 <= j->pairs * 7;
    j->run_blocks = j->one_pass || j->blocks < RUN_BLOCKS ? j->blocks : RUN_BLOCKS;
    j->chunks = (j->rows + CHUNK_ROWS - 1) / CHUNK_ROWS;
    j->runs = j->run_blocks ? (j->blocks + j->run_blocks - 1) / j->run_blocks : 0;
    j->tasks = j->one_pass ? j->pairs : j->pairs * (j->chunks + j->runs);
    atomic_init(&j->next, 0);
}
static size_t gradient_scratch(const ct_call *call, int threads) {
    job j;
    room w;
    job_init(&j, call, threads);
    return (size_t)threads * room_place(&w, NULL, &j);
}

// ---- packing -------------------------------------------------------------------------------------------------

CT_INLINE float delta_of(const ct_call *call, int64_t row, int64_t e, ct_dtype dtype) {
    v16f sum = v_zero();
    for (int64_t i = 0; i < e; i += LANES) {
        int n = e - i < LANES ? (int)(e - i) : LANES;
        sum = v_fma(v_load(call->in[0].data, row * e + i, n, dtype), v_load(call->in[4].data, row * e + i, n, dtype),
                    sum);
    }
    return v_sum(sum);
}

CT_INLINE void begin_chunk(const job *j, room *w, int64_t pair, int64_t first, ct_dtype dtype) {
    const shape *c = &j->shape;
    int64_t count = j->rows - first < CHUNK_ROWS ? j->rows - first : CHUNK_ROWS;
    query_chunk_read(c, pair, first, count, &w->chunk);
    row_walk walk = row_walk_begin(c, pair, first), ahead = row_walk_begin(c, pair, first + AHEAD);
    for (int64_t r = 0; r < w->chunk.padded; r++, row_walk_next(&walk), row_walk_next(&ahead)) {
        fetch_row(j->call->in[1].data, ahead.row, c->d, dtype);
        fetch_row(j->call->in[0].data, ahead.row, c->e, dtype);
        fetch_row(j->call->in[4].data, ahead.row, c->e, dtype);
        int real = r < count;
        int64_t row = real ? walk.row : 0;
        pack_row(w->q_rk + r * j->kw, j->kw, j->call->in[1].data, row * c->d, real ? c->d : 0, dtype);
        pack_row(w->do_re + r * j->ew, j->ew, j->call->in[0].data, row * c->e, real ? c->e : 0, dtype);
        w->delta_r[r] = real ? delta_of(j->call, row, c->e, dtype) : 0;
        w->lse_r[r] = real ? ((const float *)j->call->in[5].data)[row] * 1.44269504f : 0;
    }
    if (BF16_DOT) {
        pack_pairs(w->q_pairs, c->d, w->q_rk, j->kw, w->chunk.padded);
        pack_pairs(w->do_pairs, c->e, w->do_re, j->ew, w->chunk.padded);
    }
}

CT_INLINE void pack_keys(const job *j, room *w, int64_t pair, int64_t block, ct_dtype dtype) {
    const shape *c = &j->shape;
    for (int s = 0; s < KEYS; s++) {
        fetch_row(j->call->in[2].data, key_row(c, pair, block * KEYS + s + AHEAD), c->d, dtype);
        fetch_row(j->call->in[3].data, key_row(c, pair, block * KEYS + s + AHEAD), c->e, dtype);
        int matters = key_matters(&w->block, s, w->chunk.span);
        int64_t key = matters ? key_row(c, pair, block * KEYS + s) : 0;
        pack_row(w->k_sk + s * j->kw, j->kw, j->call->in[2].data, key * c->d, matters ? c->d : 0, dtype);
        pack_row(w->v_se + s * j->ew, j->ew, j->call->in[3].data, key * c->e, matters ? c->e : 0, dtype);
    }
    pack_across(w->k_ks, w->k_sk, j->kw);
    pack_across(w->v_es, w->v_se, j->ew);
    if (BF16_DOT) pack_pairs(w->k_pairs, c->d, w->k_sk, j->kw, KEYS);
}

// ---- a tile of weights ------------------------------------------------------------------------------------------

typedef struct {
    __m512 p, ds;
} weights;

// Weights of row `at` of the strip, which is row r of the chunk, for 16 keys; 0 where masked.
CT_INLINE weights weights_of(const room *w, int64_t at, int64_t r, int v, float scale_log2) {
    __mmask16 seen = (__mmask16)(w->allowed[at] >> (v * LANES));
    __m512 score = _mm512_load_ps(w->score_rs + at * KEYS + v * LANES),
           dp = _mm512_load_ps(w->dp_rs + at * KEYS + v * LANES);
    __m512 x = _mm512_fmsub_ps(score, _mm512_set1_ps(scale_log2), _mm512_set1_ps(w->lse_r[r]));
    weights out = {.p = power_of_two(seen, x)};
    out.ds = _mm512_maskz_mul_ps(seen, out.p, _mm512_sub_ps(dp, _mm512_set1_ps(w->delta_r[r])));
    return out;
}

#if CT_BF16_DOT
// Word of lane i: even[i] in the low half, odd[i] in the high one, rounded to nearest even (denormals to 0).
CT_INLINE __m512i row_pairs(__m512 even, __m512 odd) {
    const __m512i order = _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8, 23, 7, 22, 6,
                                           21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
    return _mm512_permutexvar_epi16(order, (__m512i)_mm512_cvtne2ps_pbh(odd, even));
}
#endif

// p and ds of a tile, as the products want them; rows from `at` of the strip, r of the chunk.
CT_INLINE void tile_weights(room *w, int64_t at, int64_t r, int vectors, float scale_log2) {
#if CT_BF16_DOT
    for (int i = 0; i < TILE; i += 2) {
        weights even[KEY_VECTORS], odd[KEY_VECTORS];
        const weights none = {_mm512_setzero_ps(), _mm512_setzero_ps()};
#pragma GCC unroll 4
        for (int v = 0; v < KEY_VECTORS; v++) {
            even[v] = v < vectors ? weights_of(w, at + i, r + i, v, scale_log2) : none;
            odd[v] = v < vectors ? weights_of(w, at + i + 1, r + i + 1, v, scale_log2) : none;
            _mm512_store_si512(w->p_rs + (at + i) / 2 * KEYS + v * LANES, row_pairs(even[v].p, odd[v].p));
            _mm512_store_si512(w->ds_rs + (at + i) / 2 * KEYS + v * LANES, row_pairs(even[v].ds, odd[v].ds));
        }
#pragma GCC unroll 2
        for (int v = 0; v < KEY_VECTORS; v += 2) {
            uint32_t *words = w->ds_words + (at + i) * KEY_WORDS + v / 2 * LANES;
            _mm512_store_si512(words, (__m512i)_mm512_cvtne2ps_pbh(even[v + 1].ds, even[v].ds));
            _mm512_store_si512(words + KEY_WORDS, (__m512i)_mm512_cvtne2ps_pbh(odd[v + 1].ds, odd[v].ds));
        }
    }
#else
    for (int i = 0; i < TILE; i++)
#pragma GCC unroll 4
        for (int v = 0; v < KEY_VECTORS; v++) {
            weights x = {_mm512_setzero_ps(), _mm512_setzero_ps()};
            if (v < vectors) x = weights_of(w, at + i, r + i, v, scale_log2);
            _mm512_store_ps((float *)w->p_rs + (at + i) * KEYS + v * LANES, x.p);
            _mm512_store_ps((float *)w->ds_rs + (at + i) * KEYS + v * LANES, x.ds);
        }
#endif
}

static void note_rows(room *w, int64_t at) {
    uint64_t any = 0;
    for (int i = 0; i < TILE; i++) any |= w->allowed[at + i];
    for (int v = 0; v < KEY_VECTORS; v++) {
        if (!(any >> (v * LANES) & 0xffff)) continue;
        if (w->end_row[v] == 0) w->first_row[v] = (int)at;
        w->end_row[v] = (int)at + TILE;
    }
}

// ---- a strip of rows against a block of keys ----------------------------------------------------------------------

// Rows [first, end) of the chunk: p and ds into the strip, a phase at a time for all tiles, so that one tile's waits
// are another's work; and dq where wanted.
static void strip_rows(const job *j, room *w, int64_t first, int64_t end, relation how, int want_dq) {
    int64_t rows = end - first;
    memset(w->end_row, 0, sizeof w->end_row);
    for (int64_t at = 0; at < rows; at += TILE) {
        int64_t r = first + at;
        int keys = tile_keys(&w->chunk, r, &w->block, how, w->allowed + at), vectors = (keys + LANES - 1) / LANES;
        w->keys[at / TILE] = keys;
        note_rows(w, at);
        if (!keys) continue;
        rows_fresh(vectors, j->kw, (a_operand){w->q_rk + r * j->kw, j->kw, 1}, w->k_ks, KEYS, w->score_rs + at * KEYS,
                   KEYS);
        rows_fresh(vectors, j->ew, (a_operand){w->do_re + r * j->ew, j->ew, 1}, w->v_es, KEYS, w->dp_rs + at * KEYS,
                   KEYS);
    }
    for (int64_t at = 0; at < rows; at += TILE) {
        int vectors = (w->keys[at / TILE] + LANES - 1) / LANES;
        if (vectors == KEY_VECTORS)
            tile_weights(w, at, first + at, KEY_VECTORS, j->shape.scale_log2);
        else
            tile_weights(w, at, first + at, vectors, j->shape.scale_log2);
    }
    for (int64_t at = 0; at < rows && want_dq; at += TILE) {
        int keys = w->keys[at / TILE];
        if (keys)
            rows_added((int)(j->D / LANES), BF16_DOT ? (keys + 1) / 2 : keys,
                       (a_operand){w->ds_words + at * KEY_WORDS, KEY_WORDS, 1}, w->k_pairs, j->D,
                       w->dq_rD + (first + at) * j->D, j->D);
    }
}

// dk and dv of the block += the strip's rows. Rows before the first and from the last that see a key add nothing and
// are left out.
static void strip_keys(const job *j, room *w, int64_t first, float *dk_sD, float *dv_sE) {
    enum { PER_WORD = BF16_DOT ? 2 : 1 };
    for (int s = 0; s < KEYS; s += TILE) {
        int a = s / LANES, b = s + TILE - 1 < KEYS ? (s + TILE - 1) / LANES : a;
        int end = w->end_row[a] > w->end_row[b] ? w->end_row[a] : w->end_row[b];
        if (!end) continue;
        int begin = !w->end_row[a] || (w->end_row[b] && w->first_row[b] < w->first_row[a]) ? w->first_row[b]
                                                                                           : w->first_row[a];
        int64_t steps = (end - begin) / PER_WORD, at = begin / PER_WORD, row = (first + begin) / PER_WORD;
        rows_added((int)(j->E / LANES), steps, (a_operand){w->p_rs + at * KEYS + s, 1, KEYS},
                   w->do_pairs + row * j->E, j->E, dv_sE + s * j->E, j->E);
        rows_added((int)(j->D / LANES), steps, (a_operand){w->ds_rs + at * KEYS + s, 1, KEYS},
                   w->q_pairs + row * j->D, j->D, dk_sD + s * j->D, j->D);
    }
}

// ---- runs
// ----------------------------------------------------------------------------------------------------------

typedef struct {
    int64_t pair, chunk, chunks_end, block, blocks_end;
    int want_dq, want_dkv;
} task;

CT_INLINE void store_row(void *y, int64_t at, const float *x, int64_t n, float scale, ct_dtype dtype) {
    for (int64_t i = 0; i < n; i += LANES)
        v_store(y, at + i, n - i < LANES ? (int)(n - i) : LANES, dtype, v_load(x, i, LANES, CT_F32) * v_set(scale));
}

CT_INLINE void store_dq(const job *j, const room *w, int64_t pair) {
    row_walk walk = row_walk_begin(&j->shape, pair, w->chunk.first);
    for (int64_t r = 0; r < w->chunk.count; r++, row_walk_next(&walk))
        store_row(j->call->out[0].data, walk.row * j->shape.d, w->dq_rD + r * j->D, j->shape.d, j->shape.scale,
                  j->call->out[0].dtype);
}
CT_INLINE void store_dkv(const job *j, const room *w, const task *t) {
    const shape *c = &j->shape;
    int64_t end = t->blocks_end * KEYS < c->S ? t->blocks_end * KEYS : c->S;
    for (int64_t s = t->block * KEYS; s < end; s++) {
        int64_t key = key_row(c, t->pair, s), own = (s / KEYS - t->block) * KEY_ROWS + s % KEYS;
        store_row(j->call->out[1].data, key * c->d, w->dk_sD + own * j->D, c->d, c->scale, j->call->out[1].dtype);
        store_row(j->call->out[2].data, key * c->e, w->dv_sE + own * j->E, c->e, 1, j->call->out[2].dtype);
    }
}

CT_INLINE void chunk_block(const job *j, room *w, const task *t, int64_t block, ct_dtype dtype) {
    key_block_read(&j->shape, t->pair, block, &w->block);
    if (relate(w->chunk.span, w->block.span) == NONE) return;
    pack_keys(j, w, t->pair, block, dtype);
    int64_t own = (block - t->block) * KEY_ROWS;
    for (int64_t r = 0; r < w->chunk.padded; r += ROWS) {
        relation how = relate(w->chunk.strips[r / ROWS], w->block.span);
        if (how == NONE) continue;
        strip_rows(j, w, r, r + ROWS < w->chunk.padded ? r + ROWS : w->chunk.padded, how, t->want_dq);
        if (t->want_dkv) strip_keys(j, w, r, w->dk_sD + own * j->D, w->dv_sE + own * j->E);
    }
}

CT_INLINE void run_task(const job *j, room *w, const task *t, ct_dtype dtype) {
    int64_t own_rows = (t->blocks_end - t->block) * KEY_ROWS;
    if (t->want_dkv) {
        memset(w->dk_sD, 0, 4 * (size_t)(own_rows * j->D));
        memset(w->dv_sE, 0, 4 * (size_t)(own_rows * j->E));
    }
    for (int64_t chunk = t->chunk; chunk < t->chunks_end; chunk++) {
        begin_chunk(j, w, t->pair, chunk * CHUNK_ROWS, dtype);
        if (t->want_dq) memset(w->dq_rD, 0, 4 * (size_t)(w->chunk.padded * j->D));
        for (int64_t block = t->block; block < t->blocks_end; block++) chunk_block(j, w, t, block, dtype);
        if (t->want_dq) store_dq(j, w, t->pair);
    }
    if (t->want_dkv) store_dkv(j, w, t);
}

static task task_of(const job *j, int64_t i) {
    task t = {.pair = i % j->pairs, .chunks_end = j->chunks, .blocks_end = j->blocks, .want_dq = 1, .want_dkv = 1};
    if (j->one_pass) return t;
    int64_t part = i / j->pairs;
    if (part < j->chunks) { // the last rows see most keys
        t.want_dkv = 0;
        t.chunk = j->chunks - 1 - part;
        t.chunks_end = t.chunk + 1;
        return t;
    }
    t.want_dq = 0;
    t.block = (part - j->chunks) * j->run_blocks;
    t.blocks_end = t.block + j->run_blocks < j->blocks ? t.block + j->run_blocks : j->blocks;
    return t;
}

CT_INLINE void gradient_share(job *j, int thread, ct_dtype dtype) {
    room w;
    size_t bytes = room_place(&w, NULL, j);
    room_place(&w, (char *)j->call->scratch + (size_t)thread * bytes, j);
    for (long long i; (i = atomic_fetch_add(&j->next, 1)) < j->tasks;) {
        task t = task_of(j, i);
        run_task(j, &w, &t, dtype);
    }
}
static void bf16_task(void *j, int thread, int threads) {
    (void)threads;
    gradient_share(j, thread, CT_BF16);
}
static void gradient_bf16(const ct_call *call, ct_team *team) {
    job j;
    job_init(&j, call, ct_team_size(team));
    ct_team_run(team, bf16_task, &j);
}
#if !CT_BF16_DOT
static void f32_task(void *j, int thread, int threads) {
    (void)threads;
    gradient_share(j, thread, CT_F32);
}
static void gradient_f32(const ct_call *call, ct_team *team) {
    job j;
    job_init(&j, call, ct_team_size(team));
    ct_team_run(team, f32_task, &j);
}
#endif

extern const ct_kernel CT_TABLE(attention_grad)[];
const ct_kernel CT_TABLE(attention_grad)[] = {
#if CT_BF16_DOT
    {"attention_grad", "bbbbbfiiii>...", ISA, gradient_bf16, gradient_scratch,
     "bf16 products (denormals taken as 0) summed in f32, p and ds rounded to bf16; sums over keys, and over t then "
     "Q, ascending"},
#else
    {"attention_grad", "ffffffiiii>fff", ISA, gradient_f32, gradient_scratch,
     "f32 (exp 1 ulp); sums over keys, and over t then Q, ascending"},
    {"attention_grad", "bbbbbfiiii>...", ISA, gradient_bf16, gradient_scratch,
     "f32 inside (exp 1 ulp), rounded once; sums over keys, and over t then Q, ascending"},
#endif
    {0},
};
