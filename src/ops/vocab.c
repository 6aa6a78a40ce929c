// The pieces of a cross-entropy over a vocabulary that may be cut: maximum, sum of exponentials, the label's logit, the token's loss,
// and the gradient of the logits. Labels are global, the logits at hand begin at their origin: -100 is ignored, any other label that is not
// among them is another shard's.
#include "part.h"

#include <math.h>

enum { IGNORED = -100 };

static double origin_of(const ct_reference *call) { return call->in_origin[0] ? (double)call->in_origin[0][2] : 0; }

static int64_t rows_of(const ct_reference *call) { return in_extent(call, 0, 0) * in_extent(call, 0, 1); }

// ---- m = max over V ----

static void max_reference(const ct_reference *call) {
    int64_t V = in_extent(call, 0, 2);
    for (int64_t r = 0; r < rows_of(call); r++) {
        double m = -INFINITY;
        for (int64_t v = 0; v < V; v++) m = fmax(m, call->in[0][r * V + v]);
        call->out[0][r] = m;
    }
}

const ct_op ct_op_vocab_max = {
    .name = "vocab_max",
    .formula = "m = max over v of logits",
    .rule = "B T V -> B T",
    .dtypes = "f>f",
    .inputs = 1, .outputs = 1,
    .flags = CT_OP_MAX,
    .reference = max_reference,
};

ct_value ct_vocab_max(ct_graph *g, ct_value logits_BTV) { return build(g, &ct_op_vocab_max, 1, &logits_BTV, NULL); }

// ---- s = Σ exp(logit - m) ----

static void sumexp_reference(const ct_reference *call) {
    int64_t V = in_extent(call, 0, 2);
    for (int64_t r = 0; r < rows_of(call); r++) {
        double sum = 0;
        for (int64_t v = 0; v < V; v++) sum += exp(call->in[0][r * V + v] - call->in[1][r]);
        call->out[0][r] = sum;
    }
}

const ct_op ct_op_vocab_sumexp = {
    .name = "vocab_sumexp",
    .formula = "s = Σ over v of exp(logits - m)",
    .rule = "B T V, B T -> B T",
    .dtypes = "ff>f",
    .inputs = 2, .outputs = 1,
    .flags = CT_OP_SUM,
    .reference = sumexp_reference,
};

ct_value ct_vocab_sumexp(ct_graph *g, ct_value logits_BTV, ct_value max_BT) {
    return build(g, &ct_op_vocab_sumexp, 2, (ct_value[]){logits_BTV, max_BT}, NULL);
}

// ---- p = the label's logit ----

static void pick_reference(const ct_reference *call) {
    int64_t V = in_extent(call, 0, 2);
    for (int64_t r = 0; r < rows_of(call); r++) {
        double label = call->in[1][r] == IGNORED ? -1 : call->in[1][r] - origin_of(call);
        call->out[0][r] = label >= 0 && label < (double)V ? call->in[0][r * V + (int64_t)label] : 0;
    }
}

const ct_op ct_op_vocab_pick = {
    .name = "vocab_pick",
    .formula = "p = logits[label]; 0 where the label is not among them",
    .rule = "B T V, B T -> B T",
    .dtypes = "fi>f",
    .inputs = 2, .outputs = 1,
    .flags = CT_OP_SUM | CT_OP_LINEAR0,
    .reference = pick_reference,
};

ct_value ct_vocab_pick(ct_graph *g, ct_value logits_BTV, ct_value labels_BT) {
    return build(g, &ct_op_vocab_pick, 2, (ct_value[]){logits_BTV, labels_BT}, NULL);
}

// ---- loss = log(s) + m - p ----

static void loss_reference(const ct_reference *call) {
    for (int64_t r = 0; r < rows_of(call); r++)
        call->out[0][r] = call->in[3][r] == IGNORED ? 0 : log(call->in[1][r]) + call->in[0][r] - call->in[2][r];
}

const ct_op ct_op_token_loss = {
    .name = "token_loss",
    .formula = "loss = log(s) + m - p; 0 where the label is -100",
    .rule = "B T, B T, B T, B T -> B T",
    .dtypes = "fffi>f",
    .inputs = 4, .outputs = 1,
    .may_alias = {7},
    .reference = loss_reference,
};

ct_value ct_token_loss(ct_graph *g, ct_value max_BT, ct_value sumexp_BT, ct_value picked_BT, ct_value labels_BT) {
    return build(g, &ct_op_token_loss, 4, (ct_value[]){max_BT, sumexp_BT, picked_BT, labels_BT}, NULL);
}

// ---- dlogits = (exp(logit - m)/s - [v = label]) · inv_count ----

static void grad_reference(const ct_reference *call) {
    int64_t V = in_extent(call, 0, 2);
    double inv_count = call->in[4][0];
    for (int64_t r = 0; r < rows_of(call); r++) {
        double m = call->in[1][r], s = call->in[2][r], label = call->in[3][r];
        for (int64_t v = 0; v < V; v++) {
            double p = exp(call->in[0][r * V + v] - m) / s;
            call->out[0][r * V + v] = label == IGNORED ? 0 : (p - (label - origin_of(call) == (double)v)) * inv_count;
        }
    }
}

const ct_op ct_op_vocab_grad = {
    .name = "vocab_grad",
    .formula = "dlogits = (exp(logits - m)/s - [v = label])·inv_count; 0 where the label is -100",
    .rule = "B T V, B T, B T, B T,  -> B T V",
    .dtypes = "fffif>a",
    .inputs = 5, .outputs = 1,
    .attrs = {"to"},
    .flags = CT_OP_LINEAR0 << 4,
    .may_alias = {1},
    .reference = grad_reference,
};

ct_value ct_vocab_grad(ct_graph *g, ct_value logits_BTV, ct_value max_BT, ct_value sumexp_BT, ct_value labels_BT,
                       ct_value inv_count, ct_dtype out) {
    return build(g, &ct_op_vocab_grad, 5, (ct_value[]){logits_BTV, max_BT, sumexp_BT, labels_BT, inv_count},
                 (double[]){(double)out});
}
