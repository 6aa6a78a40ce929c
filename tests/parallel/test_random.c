// Random programs that placement has never seen, on meshes of 2, 3, 4, 6, 8 and 12 ranks: forward values, sums of losses and accumulated weight
// gradients are those of one rank, and the placed program verifies. Extents are uneven; the residual hint, sequence parallelism and when
// gradients are added up are drawn as well.
#include "ranks.h"
#include "base/wide.h"
#include "parallel/place.h"

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

enum { POOL = 24 };
typedef struct {
    ct_graph *g;
    ct_dim B, T, D, F, G, Q, d, N, K, V;
    ct_value pool[POOL], tokens, positions, documents, labels, angles, first, count;
    int pooled, names;
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
    ct_rmsnorm_grad(g, any(w), x, weight, ct_node_output(g, node, 1), &dx, &dw);
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

static void draw(ct_graph *g, uint64_t seed) {
    random_state = seed * 0x9E3779B97F4A7C15ull + 1;
    ct_graph_init(g, "micro");
    static const ct_dim_role roles[] = {{"B", CT_ROLE_BATCH}, {"T", CT_ROLE_SEQUENCE}, {"S", CT_ROLE_SEQUENCE}, {"D", CT_ROLE_MODEL},
                                        {"F", CT_ROLE_HIDDEN}, {"H", CT_ROLE_HEADS}, {"G", CT_ROLE_HEADS}, {"N", CT_ROLE_HEADS},
                                        {"Q", CT_ROLE_NONE}, {"d", CT_ROLE_NONE}, {"V", CT_ROLE_VOCABULARY}, {"W", CT_ROLE_NONE}};
    for (size_t i = 0; i < sizeof roles / sizeof *roles; i++) ct_graph_role(g, roles[i].name, roles[i].role);
    int groups = 6, queries = 1 + below(2), size = 2;
    drawing w = {.g = g, .B = ct_dim_make("B", 12), .T = ct_dim_make("T", 12), .D = ct_dim_make("D", 3 + below(5)), .F = ct_dim_make("F", 4 + below(9)),
                 .G = ct_dim_make("G", groups), .Q = ct_dim_make("Q", queries), .d = ct_dim_make("d", size),
                 .N = ct_dim_make("N", groups * queries * size), .K = ct_dim_make("N", groups * size), .V = ct_dim_make("V", 7 + below(9))};
    ct_dim BT[] = {w.B, w.T, w.D}, none = {0};
    (void)none;
    w.tokens = ct_build_input(g, CT_FEED, "tokens", ct_type_make(CT_I32, 2, BT));
    w.positions = ct_build_input(g, CT_FEED, "positions", ct_type_make(CT_I32, 2, BT));
    w.documents = ct_build_input(g, CT_FEED, "documents", ct_type_make(CT_I32, 2, BT));
    w.labels = ct_build_input(g, CT_FEED, "labels", ct_type_make(CT_I32, 2, BT));
    w.first = ct_build_input(g, CT_FEED, "first", ct_type_make(CT_I32, 0, NULL));
    w.count = ct_build_input(g, CT_FEED, "inv_count", ct_type_make(CT_F32, 0, NULL));
    w.pool[w.pooled++] = ct_build_input(g, CT_FEED, "x", ct_type_make(CT_F32, 3, BT));
    ct_graph_at(g, CT_FORWARD, -1, "drawn");
    w.angles = ct_rope_angles(g, w.positions, size, (ct_rope_options){10000, 0, 1, 4, 8192});
    for (int i = 3 + below(6); i > 0; i--) {
        switch (below(6)) {
        case 0: feed_forward(&w); break;
        case 1: attention(&w); break;
        case 2: embedding(&w); break;
        case 3: norm(&w); break;
        case 4: loss(&w); break;
        default: put(&w, ct_add(g, any(&w), any(&w))); break;
        }
    }
    for (int i = 0; i < w.pooled; i++)
        if (g->values[w.pool[i].id].node >= 0 && below(2)) ct_build_output(g, ct_arena_format(&g->arena, "out%d", i), w.pool[i]);
    ct_status status = ct_graph_status(g);
    if (!status) status = ct_graph_verify(g);
    if (status) fail_msg("seed %llu: %s", (unsigned long long)seed, ct_error_text(status));
}

static double number_for(const ct_graph *g, const ct_input *in, int64_t k) {
    int64_t T = 12, V = 7;
    if (!strcmp(in->name, "tokens")) return below((int)V);
    if (!strcmp(in->name, "labels")) return below(5) ? below((int)V) : -100;
    if (!strcmp(in->name, "positions")) return (double)(k % T);
    if (!strcmp(in->name, "documents")) return (double)(k % T / 5);
    if (!strcmp(in->name, "first")) return 0;
    if (!strcmp(in->name, "inv_count")) return 0.25;
    if (in->kind == CT_STATE) return 0;
    (void)g;
    return (below(2001) - 1000) / 1500.0;
}

static void compare(const char *what, const double *want, const double *got, int64_t n, uint64_t seed, const char *mesh) {
    double largest = 1e-2;
    for (int64_t i = 0; i < n; i++) largest = fmax(largest, fabs(want[i]));
    for (int64_t i = 0; i < n; i++)
        if (!(fabs(want[i] - got[i]) <= 1e-9 * largest)) fail_msg("seed %llu on %s: %s[%lld] is %.12g, on one rank %.12g", (unsigned long long)seed, mesh, what, (long long)i, got[i], want[i]);
}

static int moves_seen[8];

static void check(const ct_graph *g, const ct_reference_values *alone, ct_parallel p, uint64_t seed) {
    ct_graph first, placed;
    ct_string name = {0};
    for (int a = 0; a < p.mesh.axes_count; a++) ct_string_add(&name, "%s %d ", p.mesh.axes[a].name, p.mesh.axes[a].size);
    ct_status status = ct_place(g, &p, CT_PLACE_BOUND, NULL, &first);
    if (!status) status = ct_place_overlap(&first, (ct_near){0, 1 + below(3), 1}, below(2), &placed); // in the order that hides messages
    if (!status) status = ct_graph_verify(&placed);
    if (status) fail_msg("seed %llu on %s: %s", (unsigned long long)seed, name.text, ct_error_text(status));
    all_ranks ranks;
    ranks_open(&ranks, &placed);
    for (int i = 0; i < placed.inputs_count; i++) ranks_scatter(&ranks, placed.inputs[i].value, alone->values[g->inputs[i].value], &random_state);
    for (int n = 0; n < placed.nodes_count; n++) {
        ranks_run_node(&ranks, n);
        static const char *const names[] = {"all_gather", "reduce_scatter", "all_reduce", "all_to_all", "local_slice", "reshard"};
        for (int k = 0; k < 6; k++) moves_seen[k] += !strcmp(placed.nodes[n].op->name, names[k]);
    }
    double *got = ct_malloc(sizeof(double) * 4096);
    for (int i = 0; i < g->outputs_count; i++) {
        int64_t n = ct_type_elems(&g->values[g->outputs[i].value].type);
        ranks_gather(&ranks, placed.outputs[i].value, got);
        compare(g->outputs[i].name, alone->values[g->outputs[i].value], got, n, seed, name.text);
    }
    for (int i = 0; i < g->inputs_count; i++) {
        if (g->inputs[i].update < 0) continue;
        int64_t n = ct_type_elems(&g->values[g->inputs[i].value].type);
        ranks_gather(&ranks, placed.inputs[i].update, got);
        const double *want = alone->values[g->inputs[i].update];
        if (g->inputs[i].kind == CT_STATE) { // digits: as numbers
            int64_t a[CT_WIDE_DIGITS], b[CT_WIDE_DIGITS];
            for (int k = 0; k < CT_WIDE_DIGITS; k++) a[k] = (int64_t)want[k], b[k] = (int64_t)got[k];
            double x = ct_wide_to_double(a), y = ct_wide_to_double(b);
            compare(g->inputs[i].name, &x, &y, 1, seed, name.text);
        } else compare(g->inputs[i].name, want, got, n, seed, name.text);
    }
    free(got);
    ranks_close(&ranks);
    ct_string_deinit(&name);
    ct_graph_deinit(&placed);
    ct_graph_deinit(&first);
}

static void random_programs_on_random_meshes_are_those_of_one_rank(void **state) {
    (void)state;
    static const int sizes[] = {2, 3, 4, 6, 8, 12};
    int programs = 0, nodes = 0;
    for (uint64_t seed = 1; seed <= 600; seed++) {
        ct_graph g;
        draw(&g, seed);
        ct_reference_values alone;
        ct_reference_init(&alone, &g);
        for (int i = 0; i < g.inputs_count; i++)
            for (int64_t k = 0; k < ct_type_elems(&g.values[g.inputs[i].value].type); k++) alone.values[g.inputs[i].value][k] = number_for(&g, &g.inputs[i], k);
        ct_reference_run(&g, &alone, 0);
        for (int tries = 0; tries < 3; tries++) {
            int n = sizes[below(6)], degrees[4] = {1, 1, 1, 1};
            for (int left = n, f; left > 1; left /= f) f = left % 3 ? 2 : 3, degrees[below(4)] *= f;
            ct_parallel p = {.sequence_parallel = below(2), .loss_parallel = below(2), .reduce_once = below(2)};
            if (6 % degrees[3] || 12 % (degrees[0] * degrees[1]) || 12 % degrees[2]) continue; // heads and batches divide
            ct_status status = ct_mesh_make((ct_degrees){1, degrees[0], degrees[1], degrees[2], degrees[3]}, n, &p.mesh);
            if (status) fail_msg("%s", ct_error_text(status));
            check(&g, &alone, p, seed);
            programs++;
        }
        nodes += g.nodes_count;
        ct_reference_deinit(&alone);
        ct_graph_deinit(&g);
    }
    printf("%d placed programs of %d nodes; all_gather %d, reduce_scatter %d, all_reduce %d, all_to_all %d, local_slice %d, reshard %d\n", programs, nodes,
           moves_seen[0], moves_seen[1], moves_seen[2], moves_seen[3], moves_seen[4], moves_seen[5]);
    for (int k = 0; k < 5; k++) assert_true(moves_seen[k] > 0 || k == 3); // the roles of dense axes never want an exchange
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(random_programs_on_random_meshes_are_those_of_one_rank)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
