// Rotary embedding (Su et al. 2021, arXiv 2104.09864) on interleaved pairs, with Llama 3.1's frequency scaling. The angles' cosines
// and sines come from positions that are an operand, so that shards and packed documents are right in any order.
#include "part.h"

#include <math.h>
#include <string.h>

// ---- angles[.., 2i] = cos, [.., 2i+1] = sin of position · freq_i ----

// Frequency i of d/2, step by step in f32 as torchtitan's precompute_freqs_cis has it.
static float frequency(const double *attrs, int64_t i) {
    float freq = 1.0f / (float)pow(attrs[1], (double)((float)(2 * i) / (float)attrs[0]));
    double factor = attrs[2], low = attrs[3], high = attrs[4], original = attrs[5];
    if (factor <= 0 || factor == 1) return freq;
    float wavelength = (float)(2 * M_PI) / freq;
    if (wavelength > (float)(original / low)) return freq / (float)factor;
    if (wavelength < (float)(original / high)) return freq;
    float smooth = ((float)original / wavelength - (float)low) / (float)(high - low);
    return (1 - smooth) * freq / (float)factor + smooth * freq;
}

static void angles_reference(const ct_reference *call) {
    int64_t rows = ct_type_elems(call->in_types[0]), d = call->out_types[0]->dims[2].extent;
    for (int64_t i = 0; i < d / 2; i++) {
        float freq = frequency(call->attrs, i);
        for (int64_t r = 0; r < rows; r++) {
            float angle = (float)call->in[0][r] * freq;
            call->out[0][r * d + 2 * i] = cos((double)angle);
            call->out[0][r * d + 2 * i + 1] = sin((double)angle);
        }
    }
}

static int bind_head(const ct_graph *graph, const ct_node *node, const char *letter, ct_dim *out_dim) {
    (void)graph;
    double d = node->attrs[0];
    if (strcmp(letter, "d") || !(d >= 2 && d <= 1 << 20) || (int64_t)d % 2) return 0;
    *out_dim = ct_dim_make("d", (int64_t)d);
    return 1;
}

const ct_op ct_op_rope_angles = {
    .name = "rope_angles",
    .formula = "angles[.., 2i] = cos(position·freq_i), angles[.., 2i+1] = sin(position·freq_i), freq_i = theta^(-2i/d), scaled as Llama 3.1",
    .rule = "B T -> B T d!",
    .dtypes = "i>f",
    .inputs = 1, .outputs = 1,
    .attrs = {"dim", "theta", "factor", "low", "high", "original"},
    .bind = bind_head, .reference = angles_reference,
};

ct_value ct_rope_angles(ct_graph *g, ct_value positions_BT, int64_t head_dim, ct_rope_options options) {
    const double attrs[] = {(double)head_dim, options.theta, options.factor, options.low, options.high, options.original};
    return build(g, &ct_op_rope_angles, 1, &positions_BT, attrs);
}

// ---- y: pairs (x[2i], x[2i+1]) rotated by the angle, or back ----

static void rotate_head(double *y, const double *x, const double *angles, int64_t d, double sign) {
    for (int64_t i = 0; i + 1 < d; i += 2) {
        double c = angles[i], s = sign * angles[i + 1];
        y[i] = x[i] * c - x[i + 1] * s;
        y[i + 1] = x[i] * s + x[i + 1] * c;
    }
}

static void rope_reference(const ct_reference *call) {
    int64_t rows = in_extent(call, 0, 0) * in_extent(call, 0, 1), H = in_extent(call, 0, 2), d = in_extent(call, 0, 3);
    double sign = call->attrs[0] != 0 ? -1 : 1;
    for (int64_t r = 0; r < rows; r++)
        for (int64_t h = 0; h < H; h++)
            rotate_head(call->out[0] + (r * H + h) * d, call->in[0] + (r * H + h) * d, call->in[1] + r * d, d, sign);
}

static void rope_grad(ct_grad *grad) {
    ct_graph *g = grad->graph;
    int inverse = g->nodes[grad->node].attrs[0] != 0;
    g->at.phase = CT_INPUT_GRAD;
    grad->inputs[0] = ct_rope(g, grad->outputs[0], operand(grad, 1), !inverse);
}

const ct_op ct_op_rope = {
    .name = "rope",
    .formula = "(y[2i], y[2i+1]) = (x[2i], x[2i+1]) rotated by the angle; inverse: rotated back",
    .rule = "B T H d!, B T d! -> B T H d!",
    .dtypes = "cf>c",
    .inputs = 2, .outputs = 1,
    .attrs = {"inverse"},
    .flags = CT_OP_LINEAR0 | CT_OP_LOWP0,
    .may_alias = {1},
    .grad = rope_grad, .reference = rope_reference,
};

ct_value ct_rope(ct_graph *g, ct_value x_BTHd, ct_value angles_BTd, int inverse) {
    return build(g, &ct_op_rope, 2, (ct_value[]){x_BTHd, angles_BTd}, (double[]){inverse != 0});
}
