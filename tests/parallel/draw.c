#include "draw.h"
#include "autodiff/autodiff.h"
#include "base/wide.h"
#include "passes/passes.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static uint64_t random_state;
static int below(int n) {
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (int)((random_state >> 33) % (uint64_t)n);
}

int draw_below(int n) { return below(n); }
void draw_seed(uint64_t seed) { random_state = seed; }

enum { POOL = 24 };
typedef struct {
    ct_graph *g;
    ct_dim B, T, D, F, G, Q, d, N, K, V;
    ct_value pool[POOL], tokens, positions, documents, labels, angles, first, count;
    int pooled, names;
    unsigned what;
} drawing;

static ct_value any(drawing *w) { return w->pool[below(w->pooled)]; }
static ct_value put(drawing *w, ct_value v) {
    if (below(3) == 0) ct_graph_hint(w->g, v, CT_HINT_RESIDUAL);
    if (w->pooled < POOL) w->pool[w->pooled++] = v;
    else w->pool[below(POOL)] = v;
    return v;
}

static ct_value parameter(drawing *w, int dims, ct_dim a, ct_dim b) {
    char name[32];
    snprintf(name, sizeof name, "p%d", w->names++);
    return ct_build_input(w->g, CT_PARAMETER, name, ct_type_make(CT_F32, dims, (ct_dim[]){a, b}));
}

static void accumulate(drawing *w, ct_value part) {
    char name[32];
    snprintf(name, sizeof name, "g%d", w->names++);
    ct_value acc = ct_build_input(w->g, CT_GRADIENT, name, *ct_value_type(w->g, part));
    ct_build_update(w->g, acc, ct_accumulate(w->g, acc, part, w->first));
}

static void feed_forward(drawing *w) {
    ct_graph *g = w->g;
    ct_value x = any(w), w1 = parameter(w, 2, w->F, w->D), w2 = parameter(w, 2, w->D, w->F);
    ct_value h = ct_matmul(g, x, w1, 0), y = ct_matmul(g, ct_silu_mul(g, h, h), w2, 0);
    put(w, below(2) ? y : ct_add(g, any(w), y));
    if (below(2)) { // backward of it, with another value as the gradient
        ct_value dy = any(w), dh = ct_matmul_dx(g, dy, w2);
        accumulate(w, ct_matmul_dw(g, dy, h));
        accumulate(w, ct_matmul_dw(g, dh, x));
        put(w, ct_add(g, ct_matmul_dx(g, dh, w1), ct_matmul_dx(g, ct_silu_mul(g, dh, h), w1)));
    }
}

static void attention(drawing *w) {
    ct_graph *g = w->g;
    ct_value x = any(w), wq = parameter(w, 2, w->N, w->D), wk = parameter(w, 2, w->K, w->D), wo = parameter(w, 2, w->D, w->N);
    ct_dim H = ct_dim_make("H", w->G.extent * w->Q.extent);
    ct_value q = ct_rope(g, ct_split(g, ct_matmul(g, x, wq, 0), 2, 2, (ct_dim[]){H, w->d}), w->angles, 0);
    ct_value k = ct_rope(g, ct_split(g, ct_matmul(g, x, wk, 0), 2, 2, (ct_dim[]){w->G, w->d}), w->angles, 0);
    ct_value v = ct_split(g, ct_matmul(g, any(w), wk, 0), 2, 2, (ct_dim[]){w->G, w->d}), lse, dq, dk, dv;
    ct_attention_mask mask = {w->positions, w->positions, w->documents, w->documents};
    q = ct_split(g, q, 2, 2, (ct_dim[]){w->G, w->Q});
    ct_value o = ct_attention(g, q, k, v, mask, 0.3, &lse);
    put(w, ct_matmul(g, ct_merge(g, o, 2, 3, "N"), wo, 0));
    if (below(2)) return;
    ct_value d_o = ct_split(g, ct_split(g, ct_matmul_dx(g, any(w), wo), 2, 2, (ct_dim[]){H, w->d}), 2, 2, (ct_dim[]){w->G, w->Q});
    ct_attention_grad(g, d_o, q, k, v, o, lse, mask, 0.3, &dq, &dk, &dv);
    ct_value dk_BTK = ct_merge(g, ct_rope(g, dk, w->angles, 1), 2, 2, "N");
    accumulate(w, ct_matmul_dw(g, dk_BTK, x));
    put(w, ct_add(g, ct_matmul_dx(g, dk_BTK, wk), ct_matmul_dx(g, ct_merge(g, dv, 2, 2, "N"), wk)));
    put(w, ct_matmul_dx(g, ct_merge(g, dq, 2, 3, "N"), wq));
}

static void embedding(drawing *w) {
    ct_value table = parameter(w, 2, w->V, w->D), x = ct_embed(w->g, table, w->tokens);
    put(w, x);
    accumulate(w, ct_embed_dw(w->g, any(w), w->tokens, w->V.extent));
}

static void norm(drawing *w) {
    ct_graph *g = w->g;
    ct_value x = any(w), weight = parameter(w, 1, w->D, w->D), dx, dw;
    int node = ct_build_node(g, ct_op_find("rmsnorm"), 2, (ct_value[]){x, weight}, (double[]){1e-3}, NULL);
    put(w, ct_node_output(g, node, 0));
    if (below(2)) return;
    if (below(2)) { // which makes y again
        int again = ct_build_node(g, ct_op_find("rmsnorm_grad_y"), 4, (ct_value[]){any(w), x, weight, ct_node_output(g, node, 1)}, NULL, NULL);
        dx = ct_node_output(g, again, 0), dw = ct_node_output(g, again, 1);
        put(w, ct_node_output(g, again, 2));
    } else ct_rmsnorm_grad(g, any(w), x, weight, ct_node_output(g, node, 1), &dx, &dw);
    put(w, dx);
    accumulate(w, dw);
}

static void loss(drawing *w) {
    ct_graph *g = w->g;
    char name[32];
    ct_value head = parameter(w, 2, w->V, w->D), h = any(w), logits = ct_matmul(g, h, head, 1);
    ct_value max = ct_vocab_max(g, logits), sum = ct_vocab_sumexp(g, logits, max), picked = ct_vocab_pick(g, logits, w->labels);
    ct_value lost = ct_token_loss(g, max, sum, picked, w->labels);
    ct_value d = ct_vocab_grad(g, logits, max, sum, w->labels, w->count, CT_F32);
    put(w, ct_matmul_dx(g, d, head));
    accumulate(w, ct_matmul_dw(g, d, h));
    snprintf(name, sizeof name, "s%d", w->names++);
    ct_dim W = ct_dim_make("W", CT_WIDE_DIGITS);
    ct_value state = ct_build_input(g, CT_STATE, name, ct_type_make(CT_I64, 1, &W));
    ct_build_update(g, state, ct_wide_sum(g, lost, state, w->first, 0));
}

// ---- what training programs have elsewhere, or other programs ----
static ct_value named(drawing *w, ct_input_kind kind, const char *prefix, ct_type type) {
    char name[32];
    snprintf(name, sizeof name, "%s%d", prefix, w->names++);
    return ct_build_input(w->g, kind, name, type);
}

static ct_value digits_state(drawing *w, const char *prefix) {
    ct_dim W = ct_dim_make("W", CT_WIDE_DIGITS);
    return named(w, CT_STATE, prefix, ct_type_make(CT_I64, 1, &W));
}

// The norm of two values, and a step of the optimizer by one of them on another.
static void optimizer(drawing *w) {
    ct_graph *g = w->g;
    ct_value grad = any(w), squares[] = {ct_wide_of(g, grad, 1), ct_wide_of(g, any(w), 1)}, moved[4];
    ct_value clip = ct_clip_factor(g, ct_wide_norm(g, ct_wide_total(g, 2, squares)), 0.5), acc = digits_state(w, "s");
    ct_type type = *ct_value_type(g, grad);
    ct_value p = named(w, CT_PARAMETER, "p", type), m = named(w, CT_MOMENT, "m", type), v = named(w, CT_MOMENT, "v", type);
    int averages = below(2);
    ct_dim fed = ct_dim_make("s", 2 + averages);
    ct_value scalars = named(w, CT_FEED, "scalars", ct_type_make(CT_F64, 1, &fed));
    ct_adamw_options options = {1, 0.9, 0.95, 1e-8, 0.1, below(2)};
    if (averages) {
        ct_value average = named(w, CT_MOMENT, "e", type);
        ct_adamw_ema(g, (ct_value[]){p, m, v, average}, grad, clip, scalars, options, moved);
        ct_build_update(g, average, moved[3]);
    } else {
        ct_adamw(g, p, m, v, grad, clip, scalars, options, &moved[0], &moved[1], &moved[2]);
    }
    ct_build_update(g, p, moved[0]);
    ct_build_update(g, m, moved[1]);
    ct_build_update(g, v, moved[2]);
    ct_build_update(g, acc, ct_wide_sum(g, any(w), acc, w->first, 1));
}

static void cache(drawing *w) {
    ct_graph *g = w->g;
    ct_value wk = parameter(w, 2, w->K, w->D), x = ct_split(g, ct_matmul(g, any(w), wk, 0), 2, 2, (ct_dim[]){w->G, w->d});
    ct_dim S = ct_dim_make("S", w->T.extent + 4);
    ct_value keys = named(w, CT_STATE, "keys", ct_type_make(CT_F32, 4, (ct_dim[]){w->B, S, w->G, w->d}));
    ct_build_update(g, keys, ct_cache_write(g, keys, x, w->positions));
}

// Attention over two blocks of keys, merged, and the gradient of one of them.
static void blocks(drawing *w) {
    ct_graph *g = w->g;
    ct_value wq = parameter(w, 2, w->N, w->D), wk = parameter(w, 2, w->K, w->D), wo = parameter(w, 2, w->D, w->N), k[2], o[2], lse[2], dq, dk, dv;
    ct_value q = ct_split(g, ct_matmul(g, any(w), wq, 0), 2, 3, (ct_dim[]){w->G, w->Q, w->d});
    ct_attention_mask mask = {w->positions, w->positions, w->documents, w->documents};
    for (int i = 0; i < 2; i++) {
        k[i] = ct_split(g, ct_matmul(g, any(w), wk, 0), 2, 2, (ct_dim[]){w->G, w->d});
        o[i] = ct_attention_block(g, q, k[i], k[0], mask, 0.3, &lse[i]);
    }
    ct_value both_lse, both = ct_attention_merge(g, o[0], lse[0], o[1], lse[1], &both_lse);
    put(w, ct_matmul(g, ct_merge(g, both, 2, 3, "N"), wo, 0));
    ct_value d_o = ct_split(g, ct_matmul_dx(g, any(w), wo), 2, 3, (ct_dim[]){w->G, w->Q, w->d});
    ct_attention_block_grad(g, d_o, q, k[1], k[0], both, both_lse, mask, 0.3, &dq, &dk, &dv);
    put(w, ct_matmul_dx(g, ct_merge(g, dq, 2, 3, "N"), wq));
    put(w, ct_matmul_dx(g, ct_merge(g, ct_add(g, dk, dv), 2, 2, "N"), wk));
}

// Rows apart and together again, in another order.
static void pieces(drawing *w) {
    ct_graph *g = w->g;
    ct_value x = any(w);
    int64_t half = w->B.extent / 2;
    // Sums of slices: what is joined lies in the whole, so it must be a value of its own.
    ct_value last = ct_slice(g, x, 0, half, w->B.extent - half, "B"), first = ct_slice(g, x, 0, 0, half, "B");
    put(w, ct_concat(g, 2, (ct_value[]){ct_add(g, last, last), ct_add(g, first, first)}, 0, "B"));
    ct_build_output(g, ct_arena_format(&g->arena, "low%d", w->names++), ct_cast(g, any(w), CT_BF16));
}

// Sums that go on in an accumulator, and SwiGLU backwards.
static void fused(drawing *w) {
    ct_graph *g = w->g;
    ct_value x = any(w), dy = any(w), da, db;
    ct_value acc = named(w, CT_GRADIENT, "g", ct_type_make(CT_F32, 2, (ct_dim[]){w->D, w->D}));
    acc.id >= 0 ? ct_build_update(g, acc, ct_matmul_dw_acc(g, acc, dy, ct_matmul(g, x, parameter(w, 2, w->D, w->D), 0), w->first)) : (void)0;
    ct_value table = named(w, CT_GRADIENT, "g", ct_type_make(CT_F32, 2, (ct_dim[]){w->V, w->D}));
    ct_build_update(g, table, ct_embed_dw_acc(g, table, dy, w->tokens, w->first));
    if (below(2)) { // which makes y again
        int again = ct_build_node(g, ct_op_find("silu_mul_grad_y"), 3, (ct_value[]){dy, x, any(w)}, NULL, NULL);
        da = ct_node_output(g, again, 0), db = ct_node_output(g, again, 1);
        put(w, ct_node_output(g, again, 2));
    } else ct_silu_mul_grad(g, dy, x, any(w), &da, &db);
    put(w, da);
    put(w, db);
}

// A loss of one of the values, whose gradients autodiff makes.
static void differentiate(drawing *w) {
    ct_value head = parameter(w, 2, w->V, w->D), h = any(w);
    ct_graph_at(w->g, CT_FORWARD, -1, "loss");
    ct_build_output(w->g, "token_loss", ct_lm_loss(w->g, h, head, w->labels, w->count, NULL, NULL));
    ct_status status = ct_autodiff_apply(w->g, "token_loss");
    if (status) fail_msg("%s", ct_error_text(status));
}

void draw_program(ct_graph *g, uint64_t seed, unsigned what) {
    random_state = seed * 0x9E3779B97F4A7C15ull + 1;
    ct_graph_init(g, "micro");
    static const ct_dim_role roles[] = {{"B", CT_ROLE_BATCH}, {"T", CT_ROLE_SEQUENCE}, {"S", CT_ROLE_SEQUENCE}, {"D", CT_ROLE_MODEL},
                                        {"F", CT_ROLE_HIDDEN}, {"H", CT_ROLE_HEADS}, {"G", CT_ROLE_HEADS}, {"N", CT_ROLE_HEADS},
                                        {"Q", CT_ROLE_NONE}, {"d", CT_ROLE_NONE}, {"V", CT_ROLE_VOCABULARY}, {"W", CT_ROLE_NONE},
                                        {"s", CT_ROLE_NONE}};
    for (size_t i = 0; i < sizeof roles / sizeof *roles; i++) ct_graph_role(g, roles[i].name, roles[i].role);
    // Batches and sequences of training divide by what cuts them; nothing else has to.
    int groups = 6, queries = 1 + below(2), size = 2, rows = what & DRAW_ALL ? 3 + below(4) : 12, tokens = what & DRAW_ALL ? 3 + below(6) : 12;
    drawing w = {.g = g, .what = what, .B = ct_dim_make("B", rows), .T = ct_dim_make("T", tokens), .D = ct_dim_make("D", 3 + below(5)), .F = ct_dim_make("F", 4 + below(9)),
                 .G = ct_dim_make("G", groups), .Q = ct_dim_make("Q", queries), .d = ct_dim_make("d", size),
                 .N = ct_dim_make("N", groups * queries * size), .K = ct_dim_make("N", groups * size), .V = ct_dim_make("V", 7 + below(9))};
    ct_dim BT[] = {w.B, w.T, w.D};
    w.tokens = ct_build_input(g, CT_FEED, "tokens", ct_type_make(CT_I32, 2, BT));
    w.positions = ct_build_input(g, CT_FEED, "positions", ct_type_make(CT_I32, 2, BT));
    w.documents = ct_build_input(g, CT_FEED, "documents", ct_type_make(CT_I32, 2, BT));
    w.labels = ct_build_input(g, CT_FEED, "labels", ct_type_make(CT_I32, 2, BT));
    w.first = ct_build_input(g, CT_FEED, "fresh", ct_type_make(CT_I32, 0, NULL));
    w.count = ct_build_input(g, CT_FEED, "inv_count", ct_type_make(CT_F32, 0, NULL));
    w.pool[w.pooled++] = ct_build_input(g, CT_FEED, "x", ct_type_make(CT_F32, 3, BT));
    ct_graph_at(g, CT_FORWARD, -1, "drawn");
    w.angles = ct_rope_angles(g, w.positions, size, (ct_rope_options){10000, 0, 1, 4, 8192});
    for (int i = 3 + below(6); i > 0; i--) {
        switch (below(what & DRAW_ALL ? 11 : 6)) {
        case 0: feed_forward(&w); break;
        case 1: attention(&w); break;
        case 2: embedding(&w); break;
        case 3: norm(&w); break;
        case 4: loss(&w); break;
        case 6: optimizer(&w); break;
        case 7: cache(&w); break;
        case 8: blocks(&w); break;
        case 9: pieces(&w); break;
        case 10: fused(&w); break;
        default: put(&w, ct_add(g, any(&w), any(&w))); break;
        }
    }
    if (what & DRAW_GRADIENTS) differentiate(&w);
    for (int i = 0; i < w.pooled; i++)
        if (g->values[w.pool[i].id].node >= 0 && below(2)) ct_build_output(g, ct_arena_format(&g->arena, "out%d", i), w.pool[i]);
    ct_status status = ct_graph_status(g);
    if (!status) status = ct_graph_verify(g);
    if (status) fail_msg("seed %llu: %s", (unsigned long long)seed, ct_error_text(status));
}

int draw_parallel(int ranks, ct_parallel *out) {
    int degrees[4] = {1, 1, 1, 1};
    for (int left = ranks, f; left > 1; left /= f) f = left % 3 ? 2 : 3, degrees[draw_below(4)] *= f;
    *out = (ct_parallel){.sequence_parallel = draw_below(2), .loss_parallel = draw_below(2), .reduce_once = draw_below(2), .ring = draw_below(2)};
    if (6 % degrees[3] || 12 % (degrees[0] * degrees[1]) || 12 % degrees[2]) return 0;
    ct_status status = ct_mesh_make((ct_degrees){1, degrees[0], degrees[1], degrees[2], degrees[3]}, ranks, &out->mesh);
    if (status) fail_msg("%s", ct_error_text(status));
    return 1;
}

// Replaces *graph by what a pass makes of it.
#define PASS(graph, call)                                                                                              \
    do {                                                                                                               \
        ct_graph after_ = {0};                                                                                         \
        ct_status status_ = (call);                                                                                    \
        ct_graph_deinit(graph);                                                                                        \
        *(graph) = after_;                                                                                             \
        if (status_) return status_;                                                                                   \
    } while (0)

ct_status draw_place(const ct_graph *g, const ct_parallel *p, ct_graph *placed) {
    CT_TRY(ct_place(g, p, CT_PLACE_BOUND, NULL, placed));
    if (p->ring) PASS(placed, ct_place_ring(placed, "cp", &after_));
    PASS(placed, ct_pass_expand_loss(placed, 6 + draw_below(20), &after_));
    PASS(placed, ct_place(placed, p, CT_PLACE_BOUND, NULL, &after_));
    if (draw_below(2)) PASS(placed, ct_pass_fuse_accumulate(placed, &after_));
    return ct_graph_verify(placed);
}

static double number_for(const ct_graph *g, const ct_input *in, int64_t k) {
    const ct_type *type = &g->values[in->value].type;
    int64_t T = type->dims_count > 1 ? type->dims[1].extent : 1, V = 7;
    if (!strcmp(in->name, "tokens")) return below((int)V);
    if (!strcmp(in->name, "labels")) return below(5) ? below((int)V) : -100;
    if (!strcmp(in->name, "positions")) return (double)(k % T);
    if (!strcmp(in->name, "documents")) return (double)(k % T / 5);
    if (!strcmp(in->name, "first")) return 1;
    if (!strcmp(in->name, "fresh") || !strcmp(in->name, "false")) return 0;
    if (!strcmp(in->name, "inv_count")) return 0.25;
    if (!strncmp(in->name, "scalars", 7)) return (double[]){0.01, 3, 0.25}[k]; // learning rate, step, share
    if (type->dtype == CT_I64) return 0;
    double x = (below(2001) - 1000) / 1500.0;
    return in->kind == CT_MOMENT && in->name[0] == 'v' ? x * x + 0.1 : x; // of a step that is as exact as its gradient
}

void draw_inputs(const ct_graph *g, ct_reference_values *values) {
    for (int i = 0; i < g->inputs_count; i++)
        for (int64_t k = 0; k < ct_type_elems(&g->values[g->inputs[i].value].type); k++) values->values[g->inputs[i].value][k] = number_for(g, &g->inputs[i], k);
}

static double number_of(const double *digits) {
    int64_t whole[CT_WIDE_DIGITS];
    for (int k = 0; k < CT_WIDE_DIGITS; k++) whole[k] = (int64_t)digits[k];
    return ct_wide_to_double(whole);
}

static int is_digits(const ct_graph *g, int value) { return g->values[value].type.dtype == CT_I64; }

static double compare(const ct_graph *g, int value, const char *name, const double *wanted, const double *got, double tolerance, const char *where) {
    int64_t n = ct_type_elems(&g->values[value].type);
    double largest = 1e-2, numbers[2], worst = 0;
    int is_low = g->values[value].type.dtype == CT_BF16;
    if (is_low && tolerance > 1e-9) tolerance += 0x1p-8; // a run that rounds
    if (is_digits(g, value)) {
        numbers[0] = number_of(wanted), numbers[1] = number_of(got);
        wanted = &numbers[0], got = &numbers[1], n = 1;
    }
    for (int64_t i = 0; i < n; i++) largest = fmax(largest, fabs(wanted[i]));
    for (int64_t i = 0; i < n; i++) {
        if (!(fabs(wanted[i] - got[i]) <= tolerance * largest))
            fail_msg("%s: %s[%lld] is %.15g, on one rank %.15g (the largest is %g)", where, name, (long long)i, got[i], wanted[i], largest);
        worst = fmax(worst, fabs(wanted[i] - got[i]) / largest);
    }
    return is_low ? 0 : worst;
}

void draw_scatter(const ct_graph *g, const ct_reference_values *alone, all_ranks *ranks) {
    const ct_graph *placed = ranks->placed;
    for (int i = 0; i < placed->inputs_count; i++) {
        int known = ct_graph_find_input(g, placed->inputs[i].name);
        const double zero = 0; // "false", that a pass brought in
        ranks_scatter(ranks, placed->inputs[i].value, known < 0 ? &zero : alone->values[g->inputs[known].value], &random_state);
    }
}

double draw_compare(const ct_graph *g, const ct_reference_values *alone, const all_ranks *ranks, double tolerance, const char *where) {
    const ct_graph *placed = ranks->placed;
    double *got = ct_malloc(sizeof(double) * 4096), worst = 0;
    for (int i = 0; i < g->outputs_count; i++) {
        ranks_gather(ranks, placed->outputs[i].value, got);
        worst = fmax(worst, compare(g, g->outputs[i].value, g->outputs[i].name, alone->values[g->outputs[i].value], got, tolerance, where));
    }
    for (int i = 0; i < g->inputs_count; i++) {
        if (g->inputs[i].update < 0) continue;
        ranks_gather(ranks, placed->inputs[ct_graph_find_input(placed, g->inputs[i].name)].update, got);
        worst = fmax(worst, compare(g, g->inputs[i].update, g->inputs[i].name, alone->values[g->inputs[i].update], got, tolerance, where));
    }
    free(got);
    return worst;
}

void draw_check(const ct_graph *g, const ct_reference_values *alone, all_ranks *ranks, double tolerance, const char *where) {
    draw_scatter(g, alone, ranks);
    for (int n = 0; n < ranks->placed->nodes_count; n++) ranks_run_node(ranks, n);
    draw_compare(g, alone, ranks, tolerance, where);
}
