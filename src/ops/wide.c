// Order-free sums: numbers are added to a wide fixed-point integer (base/wide.h), so equal addends give equal bits however they are
// ordered or cut; and what is made of the sum of squares, the gradient norm and its clipping factor.
#include "part.h"
#include "base/wide.h"

#include <math.h>
#include <string.h>

static void digits_read(const double *from, int64_t *digits) {
    for (int i = 0; i < CT_WIDE_DIGITS; i++) digits[i] = (int64_t)from[i];
}

// ---- acc' = acc + Σ x, or Σ x² ----

static void sum_reference(const ct_reference *call) {
    int64_t digits[CT_WIDE_DIGITS];
    ct_wide_clear(digits);
    if (call->in[2][0] == 0) digits_read(call->in[1], digits);
    for (int64_t i = 0; i < ct_type_elems(call->in_types[0]); i++) {
        double x = call->in[0][i];
        ct_wide_add(digits, call->attrs[0] != 0 ? x * x : x);
    }
    ct_wide_normalise(digits);
    for (int i = 0; i < CT_WIDE_DIGITS; i++) call->out[0][i] = (double)digits[i];
}

const ct_op ct_op_wide_sum = {
    .name = "wide_sum",
    .formula = "acc' = (first ? 0 : acc) + Σ x (square: Σ x²), exact",
    .rule = "*, W!,  -> W!",
    .dtypes = "fli>l",
    .inputs = 3, .outputs = 1,
    .attrs = {"square"},
    .flags = CT_OP_SUM | CT_OP_ADDITIVE,
    .must_alias = {2},
    .reference = sum_reference,
};

ct_value ct_wide_sum(ct_graph *g, ct_value x, ct_value acc_W, ct_value first, int square) {
    return build(g, &ct_op_wide_sum, 3, (ct_value[]){x, acc_W, first}, (double[]){square != 0});
}

// ---- the digits of Σ x, or Σ x², alone, and the total of several such ----

static int bind_digits(const ct_graph *graph, const ct_node *node, const char *letter, ct_dim *out_dim) {
    (void)graph, (void)node;
    *out_dim = ct_dim_make("W", CT_WIDE_DIGITS);
    return !strcmp(letter, "W");
}

static void of_reference(const ct_reference *call) {
    int64_t digits[CT_WIDE_DIGITS];
    ct_wide_clear(digits);
    for (int64_t i = 0; i < ct_type_elems(call->in_types[0]); i++) {
        double x = call->in[0][i];
        ct_wide_add(digits, call->attrs[0] != 0 ? x * x : x);
    }
    ct_wide_normalise(digits);
    for (int i = 0; i < CT_WIDE_DIGITS; i++) call->out[0][i] = (double)digits[i];
}

const ct_op ct_op_wide_of = {
    .name = "wide_of",
    .formula = "digits of Σ x (square: Σ x²), exact",
    .rule = "* -> W!",
    .dtypes = "f>l",
    .inputs = 1, .outputs = 1,
    .attrs = {"square"},
    .flags = CT_OP_SUM,
    .bind = bind_digits, .reference = of_reference,
};

ct_value ct_wide_of(ct_graph *g, ct_value x, int square) {
    return build(g, &ct_op_wide_of, 1, &x, (double[]){square != 0});
}

static void total_reference(const ct_reference *call) {
    int64_t sum[CT_WIDE_DIGITS], digits[CT_WIDE_DIGITS];
    ct_wide_clear(sum);
    for (int64_t i = 0; i < in_extent(call, 0, 0) / CT_WIDE_DIGITS; i++) {
        digits_read(call->in[0] + i * CT_WIDE_DIGITS, digits);
        ct_wide_normalise(digits);
        ct_wide_merge(sum, digits);
    }
    ct_wide_normalise(sum);
    for (int i = 0; i < CT_WIDE_DIGITS; i++) call->out[0][i] = (double)sum[i];
}

const ct_op ct_op_wide_total = {
    .name = "wide_total",
    .formula = "digits of the sum of numbers whose digits stand in x one after another",
    .rule = "R! -> W!",
    .dtypes = "l>l",
    .inputs = 1, .outputs = 1,
    .bind = bind_digits, .reference = total_reference,
};

ct_value ct_wide_total(ct_graph *g, int count, const ct_value *digits) {
    ct_value all = count == 1 ? digits[0] : ct_concat(g, count, digits, 0, "W");
    return all.id < 0 ? all : build(g, &ct_op_wide_total, 1, &all, NULL);
}

// ---- norm = sqrt(acc) ----

static void norm_reference(const ct_reference *call) {
    int64_t digits[CT_WIDE_DIGITS];
    digits_read(call->in[0], digits);
    call->out[0][0] = sqrt(ct_wide_to_double(digits));
}

const ct_op ct_op_wide_norm = {
    .name = "wide_norm",
    .formula = "norm = sqrt(acc), rounded once; not finite where an addend was not",
    .rule = "W! -> ",
    .dtypes = "l>f",
    .inputs = 1, .outputs = 1,
    .reference = norm_reference,
};

ct_value ct_wide_norm(ct_graph *g, ct_value acc_W) { return build(g, &ct_op_wide_norm, 1, &acc_W, NULL); }

// ---- clip = min(1, max_norm/(norm + 1e-6)) ----

static void clip_reference(const ct_reference *call) {
    double norm = call->in[0][0], factor = call->attrs[0] / (norm + 1e-6);
    call->out[0][0] = isfinite(norm) ? fmin(1, factor) : NAN;
}

const ct_op ct_op_clip_factor = {
    .name = "clip_factor",
    .formula = "clip = min(1, max_norm/(norm + 1e-6)); NaN where the norm is not finite",
    .rule = " -> ",
    .dtypes = "f>f",
    .inputs = 1, .outputs = 1,
    .attrs = {"max_norm"},
    .reference = clip_reference,
};

ct_value ct_clip_factor(ct_graph *g, ct_value norm, double max_norm) {
    return build(g, &ct_op_clip_factor, 1, &norm, (double[]){max_norm});
}
