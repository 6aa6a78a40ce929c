// A Llama of two layers on dp_shard 2 × cp 2 × tp 2, on each axis alone, with sequence parallelism and without: where every kept value and
// every operand of a layer must lie, which collectives a layer has, over which axes, and what a rank moves in them. All of it is worked out by hand from
// the roles of the axes: an axis alone makes of a layout what it is without the cuts by the others.
#include "graph/local.h"
#include "train/step.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

// Two sequences a data rank; 8 heads of 8 and 4 of keys: N = 64 for queries, K = 32 for keys and values.
enum { LAYERS = 2, BATCH = 2, T = 16, D = 64, N = 64, K = 32, F = 96, V = 128 };

typedef struct {
    int dp, cp, tp, sp;
    ct_recompute_mode recompute;
    int replicas; // 0: one
} setting;

typedef struct {
    setting is;
    ct_arena arena;
    ct_model model;
    ct_step step;
    const ct_graph *micro, *update;
    char name[80];
} example;

static void open_example(example *e, setting is) {
    *e = (example){.is = is};
    const ct_model_override sizes[] = {{"dim", D, NULL},        {"n_layers", LAYERS, NULL}, {"n_heads", 8, NULL},
                                       {"n_kv_heads", 4, NULL}, {"hidden_dim", F, NULL},    {"vocab_size", V, NULL}};
    int replicas = is.replicas ? is.replicas : 1;
    ct_step_options o = {.batch = BATCH, .seq_len = T, .compute = CT_BF16, .max_norm = 1, .plan = {.threads = 1},
                         .recompute = {.mode = is.recompute, .every = 1, .regather = 1},
                         .parallel = {.sequence_parallel = is.sp, .loss_parallel = 1}};
    ct_status status = ct_model_open(&e->arena, "llama3", "debugmodel", sizes, sizeof sizes / sizeof *sizes, &e->model);
    if (!status) status = ct_mesh_make((ct_degrees){1, replicas, is.dp, is.cp, is.tp}, replicas * is.dp * is.cp * is.tp, &o.parallel.mesh);
    if (!status) status = ct_step_make(&e->model, &o, &e->step);
    if (status) fail_msg("%s", ct_error_text(status));
    e->micro = &e->step.programs[CT_PROGRAM_MICRO];
    e->update = &e->step.programs[CT_PROGRAM_UPDATE];
    snprintf(e->name, sizeof e->name, "replicas %d, dp %d, cp %d, tp %d, sp %d", replicas, is.dp, is.cp, is.tp, is.sp);
}

static void close_example(example *e) {
    ct_step_deinit(&e->step);
    ct_arena_deinit(&e->arena);
}

static unsigned axes_of(const ct_graph *g, const char *names) {
    unsigned axes = 0;
    char text[64], *rest = text;
    snprintf(text, sizeof text, "%s", names);
    for (char *name; (name = strsep(&rest, " ")) != NULL;) {
        int axis = ct_mesh_find(&g->mesh, name);
        if (axis >= 0) axes |= 1u << axis;
    }
    return axes;
}

// ---- layouts ----
// A layout over all axes, without those that the mesh lacks. "sp": tp, where it cuts what lies between products.
static void restrict_layout(const example *e, const char *all, char *out, size_t size) {
    char text[128], *rest = text;
    snprintf(text, sizeof text, "%s", all);
    *out = 0;
    for (char *cut; (cut = strsep(&rest, ",")) != NULL;) {
        while (*cut == ' ') cut++;
        if (!*cut || (!strncmp(cut, "dp_shard", 8) && e->is.dp == 1) || (!strncmp(cut, "cp", 2) && e->is.cp == 1) ||
            ((!strncmp(cut, "tp", 2) || !strncmp(cut, "sp", 2)) && e->is.tp == 1) || (!strncmp(cut, "sp", 2) && !e->is.sp))
            continue;
        size_t n = strlen(out);
        snprintf(out + n, size - n, "%s%s%s", n ? ", " : " {", strncmp(cut, "sp", 2) ? "" : "tp", strncmp(cut, "sp", 2) ? cut : cut + 2);
    }
    if (*out) strncat(out, "}", size - strlen(out) - 1);
}

static void assert_lies(const example *e, const ct_graph *g, int value, const char *all, const char *what) {
    char wanted[160];
    ct_string got = {0};
    restrict_layout(e, all, wanted, sizeof wanted);
    ct_layout_print(&g->mesh, &g->values[value].layout, &g->values[value].type, &got);
    if (strcmp(got.text ? got.text : "", wanted)) fail_msg("%s: %s lies%s, wanted%s", e->name, what, got.text ? got.text : " {}", wanted);
    ct_string_deinit(&got);
}

#define ROWS "dp_shard: S(B), cp: S(T)" // what the data gives
#define RESIDUAL ROWS ", sp: S(T)"
#define HEADS ROWS ", tp: S(N)"
#define HIDDEN ROWS ", tp: S(F)"
#define GROUPS ROWS ", tp: S(G)"
#define KEYS "dp_shard: S(B), tp: S(G)"
#define SUM ROWS ", tp: P(f32)"
#define GRAD_BY(tp_cut) tp_cut ", dp_shard: P(f32), cp: P(f32)"

// Weights, by what they make of their input.
static const struct {
    const char *name, *lies;
} weights[] = {
    {"attention.wq", "tp: S(N), dp_shard: S(N), cp: S(N)"},    {"attention.wk", "tp: S(N), dp_shard: S(N), cp: S(N)"},
    {"attention.wv", "tp: S(N), dp_shard: S(N), cp: S(N)"},    {"attention.wo", "dp_shard: S(D), cp: S(D), tp: S(N)"},
    {"feed_forward.w1", "tp: S(F), dp_shard: S(F), cp: S(F)"}, {"feed_forward.w2", "dp_shard: S(D), cp: S(D), tp: S(F)"},
    {"feed_forward.w3", "tp: S(F), dp_shard: S(F), cp: S(F)"}, {"attention_norm", "dp_shard: S(D), cp: S(D)"},
    {"ffn_norm", "dp_shard: S(D), cp: S(D)"},
};
enum { MATRICES = 7, WEIGHTS = sizeof weights / sizeof *weights };

static void assert_input(const example *e, const ct_graph *g, const char *lies, const char *format, ...) {
    char name[128];
    va_list args;
    va_start(args, format);
    vsnprintf(name, sizeof name, format, args);
    va_end(args);
    int input = ct_graph_find_input(g, name);
    if (input < 0) fail_msg("%s: no input %s", g->name, name);
    assert_lies(e, g, g->inputs[input].value, lies, name);
}

// Parameter, moments and accumulator lie alike, so the optimizer moves none of them. A norm's gradient is a sum over tp too, where
// that cuts the tokens: its accumulator is spread over tp as well.
static void check_state(const example *e, const char *name, const char *lies, const char *gradient, int has_lowp) {
    assert_input(e, e->update, lies, "%s.weight", name);
    assert_input(e, e->update, lies, "optimizer.%s.weight.exp_avg", name);
    assert_input(e, e->update, lies, "optimizer.%s.weight.exp_avg_sq", name);
    assert_input(e, e->update, gradient, "%s.weight.grad", name);
    assert_input(e, e->micro, gradient, "%s.weight.grad", name);
    assert_input(e, e->micro, lies, has_lowp ? "%s.weight.bf16" : "%s.weight", name);
}

static void check_states(const example *e) {
    static const char norm[] = "dp_shard: S(D), cp: S(D)", table[] = "tp: S(V), dp_shard: S(V), cp: S(V)", spread[] = "dp_shard: S(D), cp: S(D), sp: S(D)";
    for (int layer = 0; layer < LAYERS; layer++)
        for (int w = 0; w < WEIGHTS; w++) {
            char name[64];
            snprintf(name, sizeof name, "layers.%d.%s", layer, weights[w].name);
            check_state(e, name, weights[w].lies, w < MATRICES ? weights[w].lies : spread, w < MATRICES);
        }
    check_state(e, "norm", norm, spread, 0);
    check_state(e, "tok_embeddings", table, table, 1);
    check_state(e, "output", table, table, 1);
    static const char *const feeds[] = {"tokens", "positions", "documents", "labels"};
    for (int i = 0; i < 4; i++) assert_input(e, e->micro, ROWS, "%s", feeds[i]);
    assert_input(e, e->micro, "", "inv_count");
    assert_input(e, e->micro, "dp_shard: P(i64), cp: P(i64)", "loss_sum");
}

// Where a node's operands and results lie. `at`: operand 0, 1, …, or OUT, OUT + 1.
enum { OUT = 100 };
static const struct {
    const char *op;
    ct_phase phase;
    const char *module;
    int nth, at; // of several such nodes, this one
    const char *lies;
} wanted[] = {
    // forward
    {"rmsnorm", CT_FORWARD, "attention_norm", 0, 0, RESIDUAL},
    {"rmsnorm", CT_FORWARD, "attention_norm", 0, 1, ""},
    {"rmsnorm", CT_FORWARD, "attention_norm", 0, OUT, RESIDUAL},
    {"rmsnorm", CT_FORWARD, "attention_norm", 0, OUT + 1, RESIDUAL},
    {"matmul", CT_FORWARD, "attention.wq", 0, 0, ROWS},
    {"matmul", CT_FORWARD, "attention.wq", 0, 1, "tp: S(N)"},
    {"matmul", CT_FORWARD, "attention.wq", 0, OUT, HEADS},
    {"matmul", CT_FORWARD, "attention.wk", 0, 1, "tp: S(N)"},
    {"matmul", CT_FORWARD, "attention.wk", 0, OUT, HEADS},
    {"matmul", CT_FORWARD, "attention.wv", 0, 1, "tp: S(N)"},
    {"matmul", CT_FORWARD, "attention.wv", 0, OUT, HEADS},
    {"rope", CT_FORWARD, "attention", 0, 1, ROWS},
    {"rope", CT_FORWARD, "attention", 0, OUT, ROWS ", tp: S(H)"},
    {"rope", CT_FORWARD, "attention", 1, OUT, GROUPS},
    {"attention", CT_FORWARD, "attention", 0, 0, GROUPS},
    {"attention", CT_FORWARD, "attention", 0, 1, KEYS},
    {"attention", CT_FORWARD, "attention", 0, 2, KEYS},
    {"attention", CT_FORWARD, "attention", 0, 3, ROWS},
    {"attention", CT_FORWARD, "attention", 0, 4, "dp_shard: S(B)"},
    {"attention", CT_FORWARD, "attention", 0, OUT, GROUPS},
    {"attention", CT_FORWARD, "attention", 0, OUT + 1, GROUPS},
    {"matmul", CT_FORWARD, "attention.wo", 0, 0, HEADS},
    {"matmul", CT_FORWARD, "attention.wo", 0, 1, "tp: S(N)"},
    {"matmul", CT_FORWARD, "attention.wo", 0, OUT, SUM},
    {"add", CT_FORWARD, "attention", 0, 0, RESIDUAL},
    {"add", CT_FORWARD, "attention", 0, 1, RESIDUAL},
    {"add", CT_FORWARD, "attention", 0, OUT, RESIDUAL},
    {"rmsnorm", CT_FORWARD, "ffn_norm", 0, OUT, RESIDUAL},
    {"matmul", CT_FORWARD, "feed_forward.w1", 0, 0, ROWS},
    {"matmul", CT_FORWARD, "feed_forward.w1", 0, 1, "tp: S(F)"},
    {"matmul", CT_FORWARD, "feed_forward.w1", 0, OUT, HIDDEN},
    {"matmul", CT_FORWARD, "feed_forward.w3", 0, OUT, HIDDEN},
    {"silu_mul", CT_FORWARD, "feed_forward", 0, OUT, HIDDEN},
    {"matmul", CT_FORWARD, "feed_forward.w2", 0, 1, "tp: S(F)"},
    {"matmul", CT_FORWARD, "feed_forward.w2", 0, OUT, SUM},
    {"add", CT_FORWARD, "feed_forward", 0, 1, RESIDUAL},
    {"add", CT_FORWARD, "feed_forward", 0, OUT, RESIDUAL},
    // backward
    {"matmul_dx", CT_INPUT_GRAD, "feed_forward.w2", 0, 0, ROWS},
    {"matmul_dx", CT_INPUT_GRAD, "feed_forward.w2", 0, 1, "tp: S(F)"},
    {"matmul_dx", CT_INPUT_GRAD, "feed_forward.w2", 0, OUT, HIDDEN},
    {"matmul_dx", CT_INPUT_GRAD, "feed_forward.w1", 0, OUT, SUM},
    {"matmul_dx", CT_INPUT_GRAD, "feed_forward.w3", 0, OUT, SUM},
    {"rmsnorm_grad", CT_INPUT_GRAD, "ffn_norm", 0, 0, RESIDUAL},
    {"rmsnorm_grad", CT_INPUT_GRAD, "ffn_norm", 0, OUT, RESIDUAL},
    {"rmsnorm_grad", CT_INPUT_GRAD, "ffn_norm", 0, OUT + 1, "dp_shard: P(f32), cp: P(f32), sp: P(f32)"},
    {"matmul_dx", CT_INPUT_GRAD, "attention.wo", 0, 0, ROWS},
    {"matmul_dx", CT_INPUT_GRAD, "attention.wo", 0, OUT, HEADS},
    {"attention_grad", CT_INPUT_GRAD, "attention", 0, 0, GROUPS},
    {"attention_grad", CT_INPUT_GRAD, "attention", 0, 2, KEYS},
    {"attention_grad", CT_INPUT_GRAD, "attention", 0, 3, KEYS},
    {"attention_grad", CT_INPUT_GRAD, "attention", 0, OUT, GROUPS},
    {"attention_grad", CT_INPUT_GRAD, "attention", 0, OUT + 1, KEYS ", cp: P(f32)"},
    {"attention_grad", CT_INPUT_GRAD, "attention", 0, OUT + 2, KEYS ", cp: P(f32)"},
    {"matmul_dx", CT_INPUT_GRAD, "attention.wq", 0, 0, HEADS},
    {"matmul_dx", CT_INPUT_GRAD, "attention.wq", 0, OUT, SUM},
    {"matmul_dx", CT_INPUT_GRAD, "attention.wk", 0, 0, HEADS},
    {"matmul_dx", CT_INPUT_GRAD, "attention.wk", 0, OUT, SUM},
    {"matmul_dx", CT_INPUT_GRAD, "attention.wv", 0, 0, HEADS},
    {"matmul_dx", CT_INPUT_GRAD, "attention.wv", 0, OUT, SUM},
    {"rmsnorm_grad", CT_INPUT_GRAD, "attention_norm", 0, OUT + 1, "dp_shard: P(f32), cp: P(f32), sp: P(f32)"},
    // weights: whole in T, a sum over the rows that are elsewhere. "dw": with its accumulation in it or not
    {"dw", CT_WEIGHT_GRAD, "feed_forward.w2", 0, 1, HIDDEN},
    {"dw", CT_WEIGHT_GRAD, "feed_forward.w2", 0, OUT, GRAD_BY("tp: S(F)")},
    {"dw", CT_WEIGHT_GRAD, "feed_forward.w1", 0, 1, ROWS},
    {"dw", CT_WEIGHT_GRAD, "feed_forward.w1", 0, OUT, GRAD_BY("tp: S(F)")},
    {"dw", CT_WEIGHT_GRAD, "feed_forward.w3", 0, OUT, GRAD_BY("tp: S(F)")},
    {"dw", CT_WEIGHT_GRAD, "attention.wo", 0, 0, ROWS},
    {"dw", CT_WEIGHT_GRAD, "attention.wo", 0, OUT, GRAD_BY("tp: S(N)")},
    {"dw", CT_WEIGHT_GRAD, "attention.wq", 0, OUT, GRAD_BY("tp: S(N)")},
    {"dw", CT_WEIGHT_GRAD, "attention.wk", 0, OUT, GRAD_BY("tp: S(N)")},
    {"dw", CT_WEIGHT_GRAD, "attention.wv", 0, OUT, GRAD_BY("tp: S(N)")},
};

// "dw" is matmul_dw, or matmul_dw_acc where no rank has anything to add: its operands then stand one place later. A gradient may make what its op made
// once more ("_y").
static const ct_node *find_node(const ct_graph *g, const char *op, ct_phase phase, int nth, const char *module) {
    for (int n = 0; n < g->nodes_count; n++) {
        const ct_node *node = &g->nodes[n];
        size_t length = strlen(op);
        int same = strcmp(op, "dw") ? !strncmp(node->op->name, op, length) && (!node->op->name[length] || !strcmp(node->op->name + length, "_y"))
                                    : !strncmp(node->op->name, "matmul_dw", 9);
        if (same && node->from.phase == phase && !strcmp(node->from.module, module) && nth-- == 0) return node;
    }
    fail_msg("no %s in %s, %s", op, module, ct_phase_name(phase));
    return NULL;
}

static void check_nodes(const example *e) {
    for (int layer = 0; layer < LAYERS; layer++)
        for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
            char module[64], what[128];
            snprintf(module, sizeof module, "layers.%d.%s", layer, wanted[i].module);
            const ct_node *node = find_node(e->micro, wanted[i].op, wanted[i].phase, wanted[i].nth, module);
            int at = wanted[i].at, later = !strcmp(node->op->name, "matmul_dw_acc");
            snprintf(what, sizeof what, "%s %d of %s in %s", at < OUT ? "operand" : "result", at % OUT, node->op->name, module);
            assert_lies(e, e->micro, at < OUT ? node->inputs[at + later] : node->outputs[at - OUT], wanted[i].lies, what);
        }
    const ct_node *node = find_node(e->micro, "embed", CT_FORWARD, 0, "tok_embeddings");
    assert_lies(e, e->micro, node->inputs[0], "tp: S(V)", "the embedding as it is read");
    assert_lies(e, e->micro, node->outputs[0], SUM, "what is looked up"); // rows that are elsewhere give zero
    assert_lies(e, e->micro, find_node(e->micro, "matmul", CT_FORWARD, 0, "output")->outputs[0], ROWS ", tp: S(V)", "the logits");
    assert_lies(e, e->micro, find_node(e->micro, "vocab_max", CT_FORWARD, 0, "output")->outputs[0], ROWS ", tp: Pmax", "their maximum");
    assert_lies(e, e->micro, find_node(e->micro, "vocab_sumexp", CT_FORWARD, 0, "output")->outputs[0], SUM, "the sum of exponentials");
    assert_lies(e, e->micro, find_node(e->micro, "vocab_pick", CT_FORWARD, 0, "output")->outputs[0], SUM, "the label's logit");
    assert_lies(e, e->micro, find_node(e->micro, "token_loss", CT_FORWARD, 0, "output")->outputs[0], ROWS, "the loss of a token");
}

static const setting settings[] = {
    {2, 2, 2, 1, CT_RECOMPUTE_NONE, 0}, {2, 2, 2, 0, CT_RECOMPUTE_NONE, 0}, {2, 1, 1, 1, CT_RECOMPUTE_NONE, 0}, {1, 2, 1, 1, CT_RECOMPUTE_NONE, 0},
    {1, 1, 2, 1, CT_RECOMPUTE_NONE, 0}, {1, 1, 2, 0, CT_RECOMPUTE_NONE, 0}, {4, 1, 2, 1, CT_RECOMPUTE_NONE, 0}, {1, 2, 4, 1, CT_RECOMPUTE_NONE, 0},
    {1, 1, 1, 1, CT_RECOMPUTE_NONE, 0},
};
enum { SETTINGS = sizeof settings / sizeof *settings };

static void every_value_of_a_layer_lies_as_worked_out(void **state) {
    (void)state;
    for (int i = 0; i < SETTINGS; i++) {
        example e;
        open_example(&e, settings[i]);
        check_states(&e);
        check_nodes(&e);
        close_example(&e);
    }
}

// ---- counts ----
typedef struct {
    int count;
    double bytes; // that a rank gets from others
} tally;

// Moves of a layer (−1: of what is in none) over exactly these axes. axes and kind NULL, phase below 0, dims 0: any. Not those of whole numbers.
static tally count_moves(const example *e, int layer, const char *axes, const char *kind, int phase, int dims) {
    const ct_graph *g = e->micro;
    tally t = {0};
    for (int n = 0; n < g->nodes_count; n++) {
        const ct_node *node = &g->nodes[n];
        const ct_type *type = &g->values[node->outputs[0]].type;
        if (!(node->op->flags & CT_OP_MOVE) || node->from.layer != layer || type->dtype == CT_I32) continue;
        const char *name = strcmp(node->op->name, "reduce_accumulate") ? node->op->name : "reduce_scatter";
        if ((axes && ct_move_axes(g, node) != axes_of(g, axes)) || (kind && strcmp(kind, name)) || (dims && type->dims_count != dims) ||
            (phase >= 0 && (int)node->from.phase != phase))
            continue;
        t.count++;
        t.bytes += ct_move_bytes(g, node, 0);
        for (int r = 1; r < ct_mesh_ranks(&g->mesh); r++) assert_true(ct_move_bytes(g, node, r) == ct_move_bytes(g, node, 0)); // all extents divide
    }
    return t;
}

// `full`: bytes of what a group moves, all of these collectives together. Of a gather or a scatter a rank gets (n − 1) / n, of what all get whole n − 1.
static int expect(const example *e, int layer, const char *axes, const char *kind, ct_phase phase, int dims, int count, double full) {
    unsigned over = axes_of(e->micro, axes);
    double n = ct_mesh_group(&e->micro->mesh, 0, over, NULL), part = strcmp(kind, "all_reduce") ? (n - 1) / n : n - 1;
    if (!over) return 0; // none of these axes is there
    tally got = count_moves(e, layer, axes, kind, (int)phase, dims);
    if (got.count != count || got.bytes != full * part)
        fail_msg("%s: layer %d has %d %s over %s in %s of %.0f bytes, wanted %d of %.0f", e->name, layer, got.count, kind, axes, ct_phase_name(phase), got.bytes,
                 count, full * part);
    return count;
}

static int expect_of_weights(const example *e, int layer) {
    const double matrices = (2.0 * N * D + 2.0 * K * D + 3.0 * F * D) / e->is.tp;
    const char *norm_axes = e->is.sp ? "dp_shard cp tp" : "dp_shard cp";
    int n = 0;
    // Gathered in bf16 for the forward, and again for the backward; gradients are reduced in f32. Norms are read, and gathered, in f32.
    n += expect(e, layer, "dp_shard cp", "all_gather", CT_FORWARD, 2, MATRICES, 2 * matrices);
    n += expect(e, layer, "dp_shard cp", "all_gather", CT_FORWARD, 1, 2, 2 * 4.0 * D);
    n += expect(e, layer, "dp_shard cp", "all_gather", CT_RECOMPUTE, 2, MATRICES, 2 * matrices);
    n += expect(e, layer, "dp_shard cp", "all_gather", CT_RECOMPUTE, 1, 2, 2 * 4.0 * D);
    n += expect(e, layer, "dp_shard cp", "reduce_scatter", CT_WEIGHT_GRAD, 2, MATRICES, 4 * matrices);
    n += expect(e, layer, norm_axes, "reduce_scatter", CT_WEIGHT_GRAD, 1, 2, 2 * 4.0 * D);
    return n;
}

static int expect_of_layer(const example *e, int layer) {
    const double stream = (double)BATCH * T / e->is.cp * D, keys = (double)BATCH * T * K / e->is.tp;
    int n = expect_of_weights(e, layer);
    if (e->is.sp) { // h of attention and feed-forward, and dY of wo and w2; o, and dX of (q k v), and of (w1 w3)
        n += expect(e, layer, "tp", "all_gather", CT_FORWARD, 3, 2, 2 * 2 * stream);
        n += expect(e, layer, "tp", "reduce_scatter", CT_FORWARD, 3, 2, 2 * 4 * stream);
        n += expect(e, layer, "tp", "all_gather", CT_INPUT_GRAD, 3, 2, 2 * 2 * stream);
        n += expect(e, layer, "tp", "reduce_scatter", CT_INPUT_GRAD, 3, 2, 2 * 4 * stream);
    } else {
        n += expect(e, layer, "tp", "all_reduce", CT_FORWARD, 3, 2, 2 * 4 * stream);
        n += expect(e, layer, "tp", "all_reduce", CT_INPUT_GRAD, 3, 2, 2 * 4 * stream);
    }
    n += expect(e, layer, "cp", "all_gather", CT_FORWARD, 4, 2, 2 * 2 * keys); // K and V, kept for the backward
    n += expect(e, layer, "cp", "reduce_scatter", CT_INPUT_GRAD, 0, 2, 2 * 4 * keys);
    return n;
}

// The embedding and the loss.
static int expect_outside(const example *e) {
    const double stream = (double)BATCH * T / e->is.cp * D, tokens = (double)BATCH * T / e->is.cp, tables = 2.0 * V * D / e->is.tp;
    const char *norm_axes = e->is.sp ? "dp_shard cp tp" : "dp_shard cp";
    int n = 0;
    n += expect(e, -1, "dp_shard cp", "all_gather", CT_FORWARD, 2, 2, 2 * tables);
    n += expect(e, -1, "dp_shard cp", "all_gather", CT_FORWARD, 1, 1, 4.0 * D);
    n += expect(e, -1, "dp_shard cp", "all_gather", CT_RECOMPUTE, 1, 1, 4.0 * D); // the head is used forward and back at one visit
    n += expect(e, -1, "dp_shard cp", "reduce_scatter", CT_WEIGHT_GRAD, 2, 2, 4 * tables);
    n += expect(e, -1, norm_axes, "reduce_scatter", CT_WEIGHT_GRAD, 1, 1, 4.0 * D);
    n += expect(e, -1, "tp", "all_reduce", CT_FORWARD, 2, 3, 3 * 4 * tokens); // maximum, sum of exponentials, the label's logit
    if (e->is.sp) {
        n += expect(e, -1, "tp", "reduce_scatter", CT_FORWARD, 3, 1, 4 * stream);    // what was looked up
        n += expect(e, -1, "tp", "all_gather", CT_FORWARD, 3, 1, 2 * stream);        // h of the head
        n += expect(e, -1, "tp", "reduce_scatter", CT_INPUT_GRAD, 3, 1, 4 * stream); // its gradient
        n += expect(e, -1, "tp", "all_gather", CT_WEIGHT_GRAD, 3, 1, 2 * stream);    // the embedding's
    } else {
        n += expect(e, -1, "tp", "all_reduce", CT_FORWARD, 3, 1, 4 * stream);
        n += expect(e, -1, "tp", "all_reduce", CT_INPUT_GRAD, 3, 1, 4 * stream);
    }
    return n;
}

// Positions and documents of all keys are gathered once for all layers, and nothing else that is whole numbers.
static void expect_keys_once(const example *e) {
    const ct_graph *g = e->micro;
    int count = 0;
    for (int n = 0; n < g->nodes_count; n++) {
        const ct_node *node = &g->nodes[n];
        if (!(node->op->flags & CT_OP_MOVE) || g->values[node->outputs[0]].type.dtype != CT_I32) continue;
        assert_int_equal(ct_move_axes(g, node), axes_of(g, "cp"));
        assert_true(ct_move_bytes(g, node, 0) == 4.0 * BATCH * T * (e->is.cp - 1) / e->is.cp);
        count++;
    }
    assert_int_equal(count, e->is.cp > 1 ? 2 : 0);
}

static void every_collective_is_one_that_was_worked_out(void **state) {
    (void)state;
    for (int i = 0; i < SETTINGS; i++) {
        example e;
        open_example(&e, settings[i]);
        for (int layer = -1; layer < LAYERS; layer++) {
            int all = count_moves(&e, layer, NULL, NULL, -1, 0).count, counted = layer < 0 ? expect_outside(&e) : expect_of_layer(&e, layer);
            if (all != counted) fail_msg("%s: layer %d moves %d times, wanted %d", e.name, layer, all, counted);
        }
        expect_keys_once(&e);
        close_example(&e);
    }
}

static void layers_made_again_gather_again_what_was_not_kept(void **state) {
    (void)state;
    setting is = settings[0];
    is.recompute = CT_RECOMPUTE_FULL;
    example e;
    open_example(&e, is);
    const double stream = (double)BATCH * T / 2 * D, keys = (double)BATCH * T * K / 2;
    for (int layer = 0; layer < LAYERS; layer++) {
        expect(&e, layer, "tp", "all_gather", CT_FORWARD, 3, 2, 2 * 2 * stream);
        expect(&e, layer, "tp", "all_gather", CT_RECOMPUTE, 3, 2, 2 * 2 * stream); // h, twice
        expect(&e, layer, "tp", "all_gather", CT_INPUT_GRAD, 3, 2, 2 * 2 * stream);
        expect(&e, layer, "tp", "reduce_scatter", CT_INPUT_GRAD, 3, 2, 2 * 4 * stream);
        expect(&e, layer, "cp", "all_gather", CT_FORWARD, 4, 2, 2 * 2 * keys);
        expect(&e, layer, "cp", "all_gather", CT_RECOMPUTE, 4, 2, 2 * 2 * keys); // K and V
        expect(&e, layer, "cp", "reduce_scatter", CT_INPUT_GRAD, 0, 2, 2 * 4 * keys);
    }
    close_example(&e);
}

// ---- what must not be, and what must be one ----
static int is_weight(const ct_graph *g, int value) {
    const ct_value_info *v = &g->values[value];
    return v->node == -1 && (g->inputs[v->output].kind == CT_PARAMETER || g->inputs[v->output].kind == CT_WEIGHT_LOWP);
}

static int is_gradient_of_matrix(const ct_graph *g, const ct_node *node) {
    return node->inputs_count > 1 && g->values[node->outputs[0]].type.dims_count > 1;
}

static void no_weight_and_no_gradient_of_a_matrix_moves_over_tp(void **state) {
    (void)state;
    for (int i = 0; i < SETTINGS; i++) {
        example e;
        open_example(&e, settings[i]);
        for (int w = CT_PROGRAM_PROLOGUE; w <= CT_PROGRAM_UPDATE; w++) {
            const ct_graph *g = &e.step.programs[w];
            for (int n = 0; n < g->nodes_count; n++) {
                const ct_node *node = &g->nodes[n];
                if (!(node->op->flags & CT_OP_MOVE) || !(ct_move_axes(g, node) & axes_of(g, "tp"))) continue;
                if (is_weight(g, node->inputs[0]) || is_gradient_of_matrix(g, node)) fail_msg("%s: %s of %s over tp", e.name, node->op->name, node->from.module);
            }
        }
        close_example(&e);
    }
}

static int reader_count(const ct_graph *g, int value) {
    int readers = 0;
    for (int n = 0; n < g->nodes_count; n++)
        for (int i = 0; i < g->nodes[n].inputs_count; i++) readers += g->nodes[n].inputs[i] == value;
    return readers;
}

// The node that made a value, all the way to sources: how many of its terms are results of this op.
static int terms_of_sum(const ct_graph *g, int value, const char *op) {
    const ct_node *node = g->values[value].node >= 0 ? &g->nodes[g->values[value].node] : NULL;
    if (!node) return 0;
    if (!strcmp(node->op->name, op)) return 1;
    if (strcmp(node->op->name, "add")) return 0;
    return terms_of_sum(g, node->inputs[0], op) + terms_of_sum(g, node->inputs[1], op);
}

static void what_has_many_readers_is_moved_once_and_what_is_added_after_it_is_added(void **state) {
    (void)state;
    for (int sp = 0; sp < 2; sp++) {
        example e;
        open_example(&e, settings[1 - sp]);
        const ct_graph *g = e.micro;
        for (int layer = 0; layer < LAYERS; layer++) {
            static const char *const readers[] = {"attention.wk", "attention.wv", "attention.wq", "feed_forward.w3", "feed_forward.w1"};
            int read[5];
            for (int i = 0; i < 5; i++) {
                char module[64];
                snprintf(module, sizeof module, "layers.%d.%s", layer, readers[i]);
                read[i] = find_node(g, "matmul", CT_FORWARD, 0, module)->inputs[0];
                int again = find_node(g, "dw", CT_WEIGHT_GRAD, 0, module)->inputs[1]; // what was gathered is kept for the weight's gradient
                if (sp) assert_int_equal(read[i], again);
                else assert_string_equal(g->nodes[g->values[again].node].op->name, "rmsnorm_grad_y");
            }
            assert_true(read[0] == read[1] && read[1] == read[2] && read[3] == read[4]);
            static const struct {
                const char *norm;
                int terms;
            } sums[] = {{"attention_norm", 3}, {"ffn_norm", 2}}; // dX of q, k and v; of w1 and w3
            for (int i = 0; i < 2; i++) {
                char module[64];
                snprintf(module, sizeof module, "layers.%d.%s", layer, sums[i].norm);
                int dy = find_node(g, "rmsnorm_grad", CT_INPUT_GRAD, 0, module)->inputs[0];
                const ct_node *move = &g->nodes[g->values[dy].node];
                assert_string_equal(move->op->name, sp ? "reduce_scatter" : "all_reduce");
                assert_int_equal(ct_move_axes(g, move), axes_of(g, "tp"));
                assert_int_equal(terms_of_sum(g, move->inputs[0], "matmul_dx"), sums[i].terms);
                assert_int_equal(reader_count(g, move->inputs[0]), 1);
            }
        }
        close_example(&e);
    }
}

// ---- the step's other programs ----
static void casts_and_the_optimizer_work_where_things_lie(void **state) {
    (void)state;
    for (int i = 0; i < SETTINGS; i++) {
        example e;
        open_example(&e, settings[i]);
        const ct_graph *casts = &e.step.programs[CT_PROGRAM_PROLOGUE], *g = e.update;
        for (int n = 0; n < casts->nodes_count; n++) assert_false(casts->nodes[n].op->flags & CT_OP_MOVE);
        int norms = 0, sums = 0;
        for (int n = 0; n < g->nodes_count; n++) {
            const ct_node *node = &g->nodes[n];
            if (!(node->op->flags & CT_OP_MOVE)) continue;
            if (g->values[node->outputs[0]].type.dtype == CT_I64) { // squares' digits, all at once
                assert_string_equal(node->op->name, "all_reduce");
                sums++;
                continue;
            }
            assert_true(!strcmp(node->op->name, "all_gather") && ct_move_axes(g, node) == axes_of(g, "tp") && g->values[node->outputs[0]].type.dims_count == 1);
            norms++;
        }
        if (e.is.sp || e.is.tp == 1) assert_int_equal(sums, ct_mesh_ranks(&g->mesh) > 1); // else a norm's digits are whole on tp, and others are not
        assert_int_equal(norms, e.is.tp > 1 && e.is.sp ? 2 * LAYERS + 1 : 0); // their gradients were spread over tp
        close_example(&e);
    }
}

// Squares are a sum over every axis that the gradient is cut by, and only those: what all have counts once.
static void the_norm_counts_each_element_once(void **state) {
    (void)state;
    for (int i = 0; i < SETTINGS; i++) {
        example e;
        open_example(&e, settings[i]);
        static const char *const modules[] = {"layers.0.attention.wq.weight", "layers.1.feed_forward.w2.weight", "output.weight", "layers.1.ffn_norm.weight"};
        for (int k = 0; k < 4; k++) {
            int n = 0;
            while (n < e.update->nodes_count && (strcmp(e.update->nodes[n].op->name, "wide_of") || strcmp(e.update->nodes[n].from.module, modules[k]))) n++;
            assert_true(n < e.update->nodes_count);
            assert_lies(&e, e.update, e.update->nodes[n].outputs[0],
                        k < 3 ? "dp_shard: P(i64), cp: P(i64), tp: P(i64)" : "dp_shard: P(i64), cp: P(i64), sp: P(i64)", modules[k]);
        }
        close_example(&e);
    }
}

// The replicas' parts join the same flat sum, by the owner of each slice; then the replicas exchange what they changed.
static void replicas_add_in_one_sum_and_exchange_slices(void **state) {
    (void)state;
    setting is = {2, 1, 2, 1, CT_RECOMPUTE_NONE, 2};
    example e;
    open_example(&e, is);
    const double matrices = (2.0 * N * D + 2.0 * K * D + 3.0 * F * D) / 2;
    assert_lies(&e, e.micro, find_node(e.micro, "matmul", CT_FORWARD, 0, "layers.0.attention.wq")->inputs[1], "tp: S(N)", "wq as it is read");
    for (int layer = 0; layer < LAYERS; layer++) {
        expect(&e, layer, "dp_shard", "all_gather", CT_FORWARD, 2, MATRICES, 2 * matrices);
        expect(&e, layer, "dp_replicate dp_shard", "reduce_scatter", CT_WEIGHT_GRAD, 2, MATRICES, 4 * matrices);
        expect(&e, layer, "dp_replicate dp_shard tp", "reduce_scatter", CT_WEIGHT_GRAD, 1, 2, 2 * 4.0 * D);
        assert_int_equal(count_moves(&e, layer, "dp_replicate", NULL, -1, 0).count, 0);
    }
    for (int w = 0; w < MATRICES; w++) { // whole on every replica, between steps
        assert_input(&e, e.micro, weights[w].lies, "layers.1.%s.weight.bf16", weights[w].name);
        assert_input(&e, e.update, weights[w].lies, "layers.1.%s.weight", weights[w].name);
    }
    int gathers = 0;
    for (int n = 0; n < e.update->nodes_count; n++) {
        const ct_node *node = &e.update->nodes[n];
        gathers += !strcmp(node->op->name, "all_gather") && ct_move_axes(e.update, node) & axes_of(e.update, "dp_replicate");
    }
    assert_int_equal(gathers, WEIGHTS * LAYERS + 3);
    close_example(&e);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_value_of_a_layer_lies_as_worked_out),
        cmocka_unit_test(every_collective_is_one_that_was_worked_out),
        cmocka_unit_test(layers_made_again_gather_again_what_was_not_kept),
        cmocka_unit_test(no_weight_and_no_gradient_of_a_matrix_moves_over_tp),
        cmocka_unit_test(what_has_many_readers_is_moved_once_and_what_is_added_after_it_is_added),
        cmocka_unit_test(casts_and_the_optimizer_work_where_things_lie),
        cmocka_unit_test(the_norm_counts_each_element_once),
        cmocka_unit_test(replicas_add_in_one_sum_and_exchange_slices),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
