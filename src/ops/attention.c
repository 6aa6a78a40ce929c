// Attention over grouped queries: head = group · queries a group + query. What a query may see is decided by positions and document
// ids, which are operands, so any part of the queries or keys may be anywhere. The kernels work in tiles with a running maximum
// (Dao 2023, arXiv 2307.08691); these loops say what must come out.
#include "part.h"

#include <math.h>
#include <string.h>

enum { Q_POS = 0, K_POS, Q_DOC, K_DOC }; // order of the mask's operands

typedef struct {
    int64_t B, T, G, Q, d, S, e;
    const double *mask[4];
    double scale;
} sizes;

static sizes sizes_of(const ct_reference *call, int q_input, int mask_input) {
    const ct_type *q = call->in_types[q_input], *k = call->in_types[q_input + 1], *v = call->in_types[q_input + 2];
    sizes s = {q->dims[0].extent, q->dims[1].extent, q->dims[2].extent, q->dims[3].extent,
               q->dims[4].extent, k->dims[1].extent, v->dims[3].extent, {0}, call->attrs[0]};
    for (int i = 0; i < 4; i++) s.mask[i] = call->in[mask_input + i];
    return s;
}

static int allowed(const sizes *z, int64_t b, int64_t t, int64_t s) {
    int64_t q = b * z->T + t, k = b * z->S + s;
    return z->mask[K_POS][k] <= z->mask[Q_POS][q] && z->mask[K_DOC][k] == z->mask[Q_DOC][q];
}

static double dot(const double *a, const double *b, int64_t n) {
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += a[i] * b[i];
    return sum;
}

// Which row of q, o (heads) and of k, v.
static int64_t query_row(const sizes *z, int64_t b, int64_t t, int64_t h) { return (b * z->T + t) * z->G * z->Q + h; }
static int64_t key_row(const sizes *z, int64_t b, int64_t s, int64_t h) { return (b * z->S + s) * z->G + h / z->Q; }

// One query: o and its log-sum-exp.
static double attend(const sizes *z, const ct_reference *call, int64_t b, int64_t t, int64_t h, double *o) {
    const double *q = call->in[0] + query_row(z, b, t, h) * z->d;
    double top = -INFINITY, sum = 0;
    memset(o, 0, (size_t)z->e * sizeof(double));
    for (int64_t s = 0; s < z->S; s++)
        if (allowed(z, b, t, s)) top = fmax(top, z->scale * dot(q, call->in[1] + key_row(z, b, s, h) * z->d, z->d));
    if (top == -INFINITY) return top;
    for (int64_t s = 0; s < z->S; s++) {
        if (!allowed(z, b, t, s)) continue;
        int64_t row = key_row(z, b, s, h);
        double p = exp(z->scale * dot(q, call->in[1] + row * z->d, z->d) - top);
        sum += p;
        for (int64_t i = 0; i < z->e; i++) o[i] += p * call->in[2][row * z->e + i];
    }
    for (int64_t i = 0; i < z->e; i++) o[i] /= sum;
    return top + log(sum);
}

static void forward_reference(const ct_reference *call) {
    sizes z = sizes_of(call, 0, 3);
    for (int64_t b = 0; b < z.B; b++)
        for (int64_t t = 0; t < z.T; t++)
            for (int64_t h = 0; h < z.G * z.Q; h++) {
                int64_t row = query_row(&z, b, t, h);
                call->out[1][row] = attend(&z, call, b, t, h, call->out[0] + row * z.e);
            }
}

// Products with d and with e, as multiples of the pairs (query head, key) that a causal mask leaves. A rank's part of them is that of its
// queries and keys: with head and tail dealt out, all see equally many.
static double pair_flops(const ct_graph *graph, const ct_node *node, int q_input, double d_products, double e_products) {
    double B = (double)extent(graph, node, q_input, 0), T = (double)extent(graph, node, q_input, 1);
    double heads = (double)extent(graph, node, q_input, 2) * (double)extent(graph, node, q_input, 3);
    double d = (double)extent(graph, node, q_input, 4), S = (double)extent(graph, node, q_input + 1, 1);
    double e = (double)extent(graph, node, q_input + 2, 3);
    const ct_graph *whole = graph->global ? graph->global : graph;
    double whole_T = (double)extent(whole, node, q_input, 1), whole_S = (double)extent(whole, node, q_input + 1, 1);
    double keys = whole_T == whole_S ? S * (whole_S + 1) / (2 * whole_S) : S;
    return 2 * B * heads * T * keys * (d_products * d + e_products * e);
}

static double forward_flops(const ct_graph *graph, const ct_node *node) { return pair_flops(graph, node, 0, 1, 1); }

static void forward_grad(ct_grad *grad) {
    ct_graph *g = grad->graph;
    if (!only_first_differentiated(grad, "attention", "its log-sum-exp")) return;
    ct_attention_mask mask = {operand(grad, 3), operand(grad, 4), operand(grad, 5), operand(grad, 6)};
    g->at.phase = CT_INPUT_GRAD;
    ct_attention_grad(g, grad->outputs[0], operand(grad, 0), operand(grad, 1), operand(grad, 2), result(grad, 0),
                      result(grad, 1), mask, g->nodes[grad->node].attrs[0], &grad->inputs[0], &grad->inputs[1],
                      &grad->inputs[2]);
}

const ct_op ct_op_attention = {
    .name = "attention",
    .formula = "o = softmax over s of scale·q·k, times v, where k_pos ≤ q_pos and k_doc = q_doc; lse = log Σ exp(scale·q·k); no such s: o = 0, lse = -inf",
    .rule = "B T G Q d!, B S! G d!, B S! G e!, B T, B S!, B T, B S! -> B T G Q e!, B T G Q",
    .dtypes = "ccciiii>cf",
    .inputs = 7, .outputs = 2,
    .attrs = {"scale"},
    .flags = CT_OP_LOWP0 | CT_OP_LOWP0 << 1 | CT_OP_LOWP0 << 2,
    .grad = forward_grad, .flops = forward_flops, .reference = forward_reference,
};

ct_value ct_attention(ct_graph *g, ct_value q_BTGQd, ct_value k_BSGd, ct_value v_BSGe, ct_attention_mask mask,
                      double scale, ct_value *out_lse_BTGQ) {
    const ct_value in[] = {q_BTGQd, k_BSGd, v_BSGe, mask.q_pos_BT, mask.k_pos_BS, mask.q_doc_BT, mask.k_doc_BS};
    int node = ct_build_node(g, &ct_op_attention, 7, in, (double[]){scale}, NULL);
    if (out_lse_BTGQ) *out_lse_BTGQ = ct_node_output(g, node, 1);
    return ct_node_output(g, node, 0);
}

// ---- gradient: p = exp(scale·q·k - lse), dv += p·do, ds = scale·p·(do·v - do·o), dq += ds·k, dk += ds·q ----

static void add_pair(const sizes *z, const ct_reference *call, int64_t row, int64_t kv) {
    const double *d_o = call->in[0] + row * z->e, *q = call->in[1] + row * z->d, *k = call->in[2] + kv * z->d;
    const double *v = call->in[3] + kv * z->e, *o = call->in[4] + row * z->e;
    double p = exp(z->scale * dot(q, k, z->d) - call->in[5][row]);
    double ds = z->scale * p * (dot(d_o, v, z->e) - dot(d_o, o, z->e));
    for (int64_t i = 0; i < z->d; i++) {
        call->out[0][row * z->d + i] += ds * k[i];
        call->out[1][kv * z->d + i] += ds * q[i];
    }
    for (int64_t i = 0; i < z->e; i++) call->out[2][kv * z->e + i] += p * d_o[i];
}

static void grad_reference(const ct_reference *call) {
    sizes z = sizes_of(call, 1, 6);
    for (int i = 0; i < 3; i++) memset(call->out[i], 0, (size_t)ct_type_elems(call->out_types[i]) * sizeof(double));
    for (int64_t b = 0; b < z.B; b++)
        for (int64_t t = 0; t < z.T; t++)
            for (int64_t h = 0; h < z.G * z.Q; h++)
                for (int64_t s = 0; s < z.S; s++)
                    if (allowed(&z, b, t, s)) add_pair(&z, call, query_row(&z, b, t, h), key_row(&z, b, s, h));
}

static double grad_flops(const ct_graph *graph, const ct_node *node) { return pair_flops(graph, node, 1, 3, 2); }

// With o and lse given, each key's share stands alone: dq is a sum over S, dk and dv over T and Q.
const ct_op ct_op_attention_grad = {
    .name = "attention_grad",
    .formula = "p = exp(scale·q·k - lse), dv = Σ p·do, ds = scale·p·(do·v - do·o), dq = Σ ds·k, dk = Σ ds·q",
    .rule = "B T G Q e!, B T G Q d!, B S G d!, B S G e!, B T G Q e!, B T G Q, B T, B S, B T, B S "
            "-> B T G Q d!, B S G d!, B S G e!",
    .dtypes = "cccccfiiii>ccc",
    .inputs = 10, .outputs = 3,
    .attrs = {"scale"},
    .flags = CT_OP_SUM | CT_OP_LINEAR0 | CT_OP_LOWP0 | CT_OP_LOWP0 << 1 | CT_OP_LOWP0 << 2 | CT_OP_LOWP0 << 3 |
             CT_OP_LOWP0 << 4,
    .flops = grad_flops, .reference = grad_reference,
};

void ct_attention_grad(ct_graph *g, ct_value d_o, ct_value q, ct_value k, ct_value v, ct_value o, ct_value lse,
                       ct_attention_mask mask, double scale, ct_value *out_dq, ct_value *out_dk, ct_value *out_dv) {
    const ct_value in[] = {d_o, q, k, v, o, lse, mask.q_pos_BT, mask.k_pos_BS, mask.q_doc_BT, mask.k_doc_BS};
    int node = ct_build_node(g, &ct_op_attention_grad, 10, in, (double[]){scale}, NULL);
    *out_dq = ct_node_output(g, node, 0);
    *out_dk = ct_node_output(g, node, 1);
    *out_dv = ct_node_output(g, node, 2);
}

// ---- blocks: parts of attention over keys that come by, merged by their log-sum-exp ----

const ct_op ct_op_attention_block = {
    .name = "attention_block",
    .formula = "attention of a block of queries over one block of keys, in f32; where T is cut, each rank's own",
    .rule = "B T! G Q d!, B T! G d!, B T! G e!, B T!, B T!, B T!, B T! -> B T! G Q e!, B T! G Q",
    .dtypes = "ccciiii>ff",
    .inputs = 7, .outputs = 2,
    .attrs = {"scale"},
    .flags = CT_OP_BLOCKS,
    .kernel = "attention",
    .flops = forward_flops, .reference = forward_reference,
};

ct_value ct_attention_block(ct_graph *g, ct_value q, ct_value k, ct_value v, ct_attention_mask mask, double scale, ct_value *out_lse) {
    const ct_value in[] = {q, k, v, mask.q_pos_BT, mask.k_pos_BS, mask.q_doc_BT, mask.k_doc_BS};
    int node = ct_build_node(g, &ct_op_attention_block, 7, in, (double[]){scale}, NULL);
    *out_lse = ct_node_output(g, node, 1);
    return ct_node_output(g, node, 0);
}

const ct_op ct_op_attention_block_grad = {
    .name = "attention_block_grad",
    .formula = "a block's part of attention_grad, in f32, o and lse being those over all blocks",
    .rule = "B T! G Q e!, B T! G Q d!, B T! G d!, B T! G e!, B T! G Q e!, B T! G Q, B T!, B T!, B T!, B T! "
            "-> B T! G Q d!, B T! G d!, B T! G e!",
    .dtypes = "cccccfiiii>fff",
    .inputs = 10, .outputs = 3,
    .attrs = {"scale"},
    .flags = CT_OP_BLOCKS | CT_OP_SUM,
    .kernel = "attention_grad",
    .flops = grad_flops, .reference = grad_reference,
};

void ct_attention_block_grad(ct_graph *g, ct_value d_o, ct_value q, ct_value k, ct_value v, ct_value o, ct_value lse,
                             ct_attention_mask mask, double scale, ct_value *out_dq, ct_value *out_dk, ct_value *out_dv) {
    const ct_value in[] = {d_o, q, k, v, o, lse, mask.q_pos_BT, mask.k_pos_BS, mask.q_doc_BT, mask.k_doc_BS};
    int node = ct_build_node(g, &ct_op_attention_block_grad, 10, in, (double[]){scale}, NULL);
    *out_dq = ct_node_output(g, node, 0);
    *out_dk = ct_node_output(g, node, 1);
    *out_dv = ct_node_output(g, node, 2);
}

static void merge_reference(const ct_reference *call) {
    int64_t rows = ct_type_elems(call->in_types[1]), e = in_extent(call, 0, 4);
    for (int64_t r = 0; r < rows; r++) {
        double a = call->in[1][r], b = call->in[3][r], m = fmax(a, b), none = m == -INFINITY;
        double wa = none ? 0 : exp(a - m), wb = none ? 0 : exp(b - m), sum = none ? 1 : wa + wb;
        for (int64_t i = 0; i < e; i++) call->out[0][r * e + i] = (call->in[0][r * e + i] * wa + call->in[2][r * e + i] * wb) / sum;
        call->out[1][r] = none ? m : m + log(sum);
    }
}

const ct_op ct_op_attention_merge = {
    .name = "attention_merge",
    .formula = "o, lse of a softmax over two sets of keys from those over each: weights exp(lse_a - lse), exp(lse_b - lse)",
    .rule = "B T G Q e!, B T G Q, B T G Q e!, B T G Q -> B T G Q e!, B T G Q",
    .dtypes = "ffff>ff",
    .inputs = 4, .outputs = 2,
    .may_alias = {1, 2},
    .reference = merge_reference,
};

ct_value ct_attention_merge(ct_graph *g, ct_value o_a, ct_value lse_a, ct_value o_b, ct_value lse_b, ct_value *out_lse) {
    int node = ct_build_node(g, &ct_op_attention_merge, 4, (ct_value[]){o_a, lse_a, o_b, lse_b}, NULL, NULL);
    *out_lse = ct_node_output(g, node, 1);
    return ct_node_output(g, node, 0);
}
