// AdamW (Loshchilov & Hutter 2019, arXiv 1711.05101), and with `l2` Adam (Kingma & Ba 2015, arXiv 1412.6980), in torch's order of operations, with clipping folded in: one pass over memory.
// adamw_ema also moves the weights' exponential moving average (Polyak & Juditsky 1992) in that pass.
#include "part.h"

#include <math.h>

// attrs: lr_scale, beta1, beta2, eps, weight_decay, l2.
static void reference(const ct_reference *call) {
    const double *a = call->attrs, clip = call->in[4][0], step = call->in[5][1];
    double lr = call->in[5][0] * a[0], first = 1 - pow(a[1], step), second = sqrt(1 - pow(a[2], step));
    for (int64_t i = 0; i < ct_type_elems(call->out_types[0]); i++) {
        double p = call->in[0][i], m = call->in[1][i], v = call->in[2][i], g = call->in[3][i] * clip;
        if (isfinite(clip)) {
            if (a[5] != 0) g += a[4] * p;
            else p *= 1 - lr * a[4];
            m += (1 - a[1]) * (g - m);
            v = a[2] * v + (1 - a[2]) * g * g;
            p -= lr / first * m / (sqrt(v) / second + a[3]);
        }
        call->out[0][i] = p;
        call->out[1][i] = m;
        call->out[2][i] = v;
        if (call->out[3]) call->out[3][i] = call->in[6][i] + (isfinite(clip) ? call->in[5][2] * (p - call->in[6][i]) : 0);
    }
}

const ct_op ct_op_adamw = {
    .name = "adamw",
    .formula = "g·clip; l2 ? g += wd·p : p *= 1 - lr·wd; m += (1-b1)(g-m); v = b2·v + (1-b2)·g²; p -= lr/(1-b1^t)·m/(sqrt(v)/sqrt(1-b2^t) + eps); nothing where clip is not finite",
    .rule = "*, *, *, *, , s! -> *, *, *",
    .dtypes = "fffffd>fff",
    .inputs = 6, .outputs = 3,
    .attrs = {"lr_scale", "beta1", "beta2", "eps", "weight_decay", "l2"},
    .must_alias = {1, 2, 3},
    .reference = reference,
};

const ct_op ct_op_adamw_ema = {
    .name = "adamw_ema",
    .formula = "adamw; then e += w (p - e), w the third scalar; nothing where clip is not finite",
    .rule = "*, *, *, *, , s!, * -> *, *, *, *",
    .dtypes = "fffffdf>ffff",
    .inputs = 7, .outputs = 4,
    .attrs = {"lr_scale", "beta1", "beta2", "eps", "weight_decay", "l2"},
    .must_alias = {1, 2, 3, 7},
    .reference = reference,
};

void ct_adamw(ct_graph *g, ct_value p, ct_value m, ct_value v, ct_value grad, ct_value clip, ct_value scalars,
              ct_adamw_options options, ct_value *out_p, ct_value *out_m, ct_value *out_v) {
    const double attrs[] = {options.lr_scale, options.beta1, options.beta2, options.eps, options.weight_decay, options.l2};
    int node = ct_build_node(g, &ct_op_adamw, 6, (ct_value[]){p, m, v, grad, clip, scalars}, attrs, NULL);
    *out_p = ct_node_output(g, node, 0);
    *out_m = ct_node_output(g, node, 1);
    *out_v = ct_node_output(g, node, 2);
}

void ct_adamw_ema(ct_graph *g, const ct_value state[4], ct_value grad, ct_value clip, ct_value scalars, ct_adamw_options options, ct_value out[4]) {
    const double attrs[] = {options.lr_scale, options.beta1, options.beta2, options.eps, options.weight_decay, options.l2};
    int node = ct_build_node(g, &ct_op_adamw_ema, 7, (ct_value[]){state[0], state[1], state[2], grad, clip, scalars, state[3]}, attrs, NULL);
    for (int i = 0; i < 4; i++) out[i] = ct_node_output(g, node, i);
}
