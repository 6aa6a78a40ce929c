// Rows by number: the embedding's look-up, its gradient, and the writing of a generation's cache.
// The gradient first chains the tokens that read one row (ascending), then sums each chain and stores or adds it
// once: the bits are those of summing all parts in order of tokens. Threads take columns, so a token that is
// everywhere costs no balance.
#include "isa.h"
#include "vec.h"

// ---- look-up ----------------------------------------------------------------------------------------------

static void embed_task(void *context, int thread, int threads) {
    const ct_call *call = context;
    const int32_t *tokens = call->in[1].data;
    int64_t V = call->in[0].dims[0];
    size_t row_bytes = (size_t)call->in[0].dims[1] * ct_dtype_bytes(call->in[0].dtype);
    long long t, end;
    ct_share(ct_tensor_elems(&call->in[1]), 1, thread, threads, &t, &end);
    for (; t < end; t++) {
        int64_t row = (int64_t)tokens[t] - call->in[0].origin[0];
        char *to = (char *)call->out[0].data + (size_t)t * row_bytes;
        if (row >= 0 && row < V) memcpy(to, (const char *)call->in[0].data + (size_t)row * row_bytes, row_bytes);
        else memset(to, 0, row_bytes); // another shard's
    }
}
// The same with f32 rows from a bf16 table: a part of a sum over shards.
static void embed_wide_task(void *context, int thread, int threads) {
    const ct_call *call = context;
    const int32_t *tokens = call->in[1].data;
    const uint16_t *table = call->in[0].data;
    int64_t V = call->in[0].dims[0], D = call->in[0].dims[1];
    long long t, end;
    ct_share(ct_tensor_elems(&call->in[1]), 1, thread, threads, &t, &end);
    for (; t < end; t++) {
        int64_t row = (int64_t)tokens[t] - call->in[0].origin[0];
        float *to = (float *)call->out[0].data + t * D;
        int here = row >= 0 && row < V;
        for (int64_t d = 0; d < D; d++) to[d] = here ? ct_f32_from_bf16(table[row * D + d]) : 0;
    }
}
static void embed_wide(const ct_call *call, ct_team *team) { ct_team_run(team, embed_wide_task, (void *)call); }
static void embed(const ct_call *call, ct_team *team) { ct_team_run(team, embed_task, (void *)call); }

// ---- gradient ---------------------------------------------------------------------------------------------

typedef struct {
    ct_team *team;
    const void *dy_TD;
    const int32_t *tokens;
    float *dw_VD;
    int32_t *head,
        *next; // V and T numbers: the first token that reads a row, and the next that reads the same; -1 ends
    int64_t T, V, D;
    int64_t origin; // the token that row 0 is; those of other shards are left out
    int first; // rows are stored (and those nobody read are 0), not added to
    ct_dtype dtype;
} scatter;

// The row of token t; -1: another shard's.
CT_INLINE int64_t row_of(const scatter *s, int64_t t) {
    int64_t row = (int64_t)s->tokens[t] - s->origin;
    return row >= 0 && row < s->V ? row : -1;
}

static void build_chains(const scatter *s, int thread, int threads) {
    long long begin, end;
    ct_share(s->V, 1, thread, threads, &begin, &end);
    memset(s->head + begin, 0xff, 4 * (size_t)(end - begin));
    if (s->first) memset(s->dw_VD + begin * s->D, 0, 4 * (size_t)((end - begin) * s->D));
    ct_team_barrier(s->team);
    if (thread == 0)
        for (int64_t t = s->T - 1; t >= 0; t--) {
            int64_t row = row_of(s, t);
            if (row < 0) continue;
            s->next[t] = s->head[row];
            s->head[row] = (int32_t)t;
        }
    ct_team_barrier(s->team);
}

CT_INLINE void sum_chain_16(const scatter *s, int64_t t, int64_t j, int n, ct_dtype dtype) {
    float *row = s->dw_VD + row_of(s, t) * s->D;
    v16f sum = v_zero();
    for (int64_t i = t; i >= 0; i = s->next[i]) sum += v_load(s->dy_TD, i * s->D + j, n, dtype);
    v_store(row, j, n, CT_F32, s->first ? sum : v_load(row, j, n, CT_F32) + sum);
}
CT_INLINE void scatter_share(const scatter *s, int thread, int threads, ct_dtype dtype) {
    build_chains(s, thread, threads);
    long long begin, end;
    ct_share(s->D, 2 * LANES, thread, threads, &begin, &end);
    for (int64_t t = 0; t < s->T; t++) {
        int64_t row = row_of(s, t);
        if (row < 0 || s->head[row] != t) continue;
        int64_t j = begin;
        for (; j + LANES <= end; j += LANES) sum_chain_16(s, t, j, LANES, dtype);
        if (j < end) sum_chain_16(s, t, j, (int)(end - j), dtype);
    }
}
static void scatter_task(void *context, int thread, int threads) {
    const scatter *s = context;
    if (s->dtype == CT_BF16)
        scatter_share(s, thread, threads, CT_BF16);
    else
        scatter_share(s, thread, threads, CT_F32);
}

static void scatter_run(const ct_call *call, ct_team *team, const ct_tensor *dy, const ct_tensor *tokens, int first) {
    scatter s = {.team = team,
                 .dy_TD = dy->data,
                 .tokens = tokens->data,
                 .dw_VD = call->out[0].data,
                 .first = first,
                 .T = ct_tensor_elems(tokens),
                 .V = call->out[0].dims[0],
                 .origin = call->out[0].origin[0],
                 .D = call->out[0].dims[1],
                 .dtype = dy->dtype};
    s.head = call->scratch;
    s.next = s.head + s.V;
    ct_team_run(team, scatter_task, &s);
}
static void embed_dw(const ct_call *call, ct_team *team) { scatter_run(call, team, &call->in[0], &call->in[1], 1); }
static void embed_dw_acc(const ct_call *call, ct_team *team) {
    scatter_run(call, team, &call->in[1], &call->in[2], *(const int32_t *)call->in[3].data != 0);
}
static size_t embed_dw_scratch(const ct_call *call, int threads) {
    (void)threads;
    const ct_tensor *tokens = &call->in[call->inputs == 2 ? 1 : 2];
    return 4 * (size_t)(call->out[0].dims[0] + ct_tensor_elems(tokens));
}

// ---- cache ------------------------------------------------------------------------------------------------

static void cache_write_task(void *context, int thread, int threads) {
    const ct_call *call = context;
    const int32_t *slots = call->in[2].data;
    int64_t B = call->in[2].dims[0], T = call->in[2].dims[1], S = call->out[0].dims[1];
    if (!B || !T) return;
    size_t row_bytes = (size_t)(ct_tensor_elems(&call->in[1]) / (B * T)) * ct_dtype_bytes(call->in[1].dtype);
    long long b, end;
    ct_share(B, 1, thread, threads, &b, &end);
    for (; b < end; b++)
        for (int64_t t = 0; t < T; t++) {
            int32_t slot = slots[b * T + t];
            CT_ASSERT(slot >= 0 && slot < S, "slot %d of %lld", slot, (long long)S);
            memcpy((char *)call->out[0].data + (size_t)(b * S + slot) * row_bytes,
                   (const char *)call->in[1].data + (size_t)(b * T + t) * row_bytes, row_bytes);
        }
}
static void cache_write(const ct_call *call, ct_team *team) { ct_team_run(team, cache_write_task, (void *)call); }

extern const ct_kernel CT_TABLE(embed)[];
const ct_kernel CT_TABLE(embed)[] = {
    {"embed", "fi>f", ISA, embed, NULL, "exact"},
    {"embed", "bi>b", ISA, embed, NULL, "exact"},
    {"embed", "bi>f", ISA, embed_wide, NULL, "exact"},
    {"embed_dw", "fi>f", ISA, embed_dw, embed_dw_scratch, "one flat f32 sum a row, tokens ascending"},
    {"embed_dw", "bi>f", ISA, embed_dw, embed_dw_scratch, "one flat f32 sum a row, tokens ascending"},
    {"embed_dw_acc", "ffii>f", ISA, embed_dw_acc, embed_dw_scratch,
     "a row's flat f32 sum added once; rows that no token reads are not touched; in place"},
    {"embed_dw_acc", "fbii>f", ISA, embed_dw_acc, embed_dw_scratch,
     "a row's flat f32 sum added once; rows that no token reads are not touched; in place"},
    {"cache_write", "ffi>f", ISA, cache_write, NULL, "exact; of equal slots the last row wins; in place"},
    {"cache_write", "bbi>b", ISA, cache_write, NULL, "exact; of equal slots the last row wins; in place"},
    {0},
};
