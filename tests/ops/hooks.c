// What the numbers of some ops' inputs must be, and the shapes of views, which no rule gives.
#include "example.h"
#include "base/wide.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { IGNORED = -100 };

static int64_t count(const example *e, int input) { return ct_type_elems(&e->in[input]); }

static void fill_below(example *e, int input, int64_t n) {
    for (int64_t j = 0; j < count(e, input); j++) e->data[input][j] = example_below(e, n);
}

static void fill_positive(example *e, int input, double least) {
    for (int64_t j = 0; j < count(e, input); j++) e->data[input][j] = least + fabs(example_uniform(e));
}

// ---- tokens and labels ----

static void fill_embed(example *e) { fill_below(e, 1, e->in[0].dims[0].extent); }
static void fill_embed_dw(example *e) { fill_below(e, 1, (int64_t)e->attrs[0]); }
static void fill_embed_dw_acc(example *e) { fill_below(e, 2, e->in[0].dims[0].extent); }
static void attrs_embed_dw(example *e) { e->attrs[0] = 5 + (double)(e->seed % 3); }

static void fill_labels(example *e, int input, int64_t V) {
    for (int64_t j = 0; j < count(e, input); j++)
        e->data[input][j] = example_below(e, 5) ? example_below(e, V) : IGNORED;
}

static void fill_pick(example *e) { fill_labels(e, 1, e->in[0].dims[2].extent); }
static void fill_token_loss(example *e) {
    fill_positive(e, 1, 1);
    fill_labels(e, 3, 10);
}

// The true maximum and sum of exponentials of the logits (input 0).
static void fill_row_sums(example *e, int max_input, int sum_input) {
    int64_t V = e->in[0].dims[2].extent;
    for (int64_t r = 0; r < count(e, max_input); r++) {
        const double *l = e->data[0] + r * V;
        double m = -INFINITY, s = 0;
        for (int64_t v = 0; v < V; v++) m = fmax(m, l[v]);
        for (int64_t v = 0; v < V; v++) s += exp(l[v] - m);
        e->data[max_input][r] = m;
        if (sum_input >= 0) e->data[sum_input][r] = s;
    }
}

static void fill_sumexp(example *e) { fill_row_sums(e, 1, -1); }
static void fill_vocab_grad(example *e) {
    fill_row_sums(e, 1, 2);
    fill_labels(e, 3, e->in[0].dims[2].extent);
    e->data[4][0] = 0.25;
}
static void attrs_to_compute(example *e) { e->attrs[0] = e->seed % 2 ? CT_BF16 : CT_F32; }
static void attrs_cast(example *e) { e->attrs[0] = e->in[0].dtype == CT_F32 ? CT_BF16 : CT_F32; }
static void attrs_seed_parity(example *e) { e->attrs[0] = e->seed % 2; }

static void fill_lm_loss(example *e) {
    fill_labels(e, 2, e->in[1].dims[0].extent);
    e->data[3][0] = 0.25;
}

// ---- norms and rotary embedding ----

static void fill_rmsnorm_grad(example *e) {
    int64_t D = e->in[1].dims[2].extent;
    for (int64_t r = 0; r < count(e, 3); r++) {
        double sum = 0;
        for (int64_t d = 0; d < D; d++) sum += e->data[1][r * D + d] * e->data[1][r * D + d];
        e->data[3][r] = 1 / sqrt(sum / (double)D + 1e-3);
    }
}

static int64_t even_head(const example *e, const char *letter, int64_t proposed) {
    (void)e;
    return strcmp(letter, "d") ? proposed : (proposed + 1) / 2 * 2;
}
static void attrs_rope_angles(example *e) {
    e->attrs[0] = 2 + 2 * (double)(e->seed % 33);
    if (e->seed % 2) e->attrs[2] = 0; // no scaling
}
static void fill_rope_angles(example *e) { fill_below(e, 0, 2000); }
static void fill_rope(example *e) {
    for (int64_t j = 0; j + 1 < count(e, 1); j += 2) {
        double angle = 3 * example_uniform(e);
        e->data[1][j] = cos(angle);
        e->data[1][j + 1] = sin(angle);
    }
}

// ---- attention: keys at positions 0 … S-1 in documents, queries the last T of them and, for some seeds, one from no document ----

static void fill_mask(example *e, int first) {
    int64_t T = e->in[first].dims[1].extent, S = e->in[first + 1].dims[1].extent;
    for (int64_t b = 0; b < e->in[first].dims[0].extent; b++) {
        int64_t doc = 0, start = 0;
        for (int64_t s = 0; s < S; s++) {
            if (s && e->seed % 2 && !example_below(e, 4)) doc++, start = s;
            e->data[first + 1][b * S + s] = (double)(s - start);
            e->data[first + 3][b * S + s] = (double)doc;
        }
        for (int64_t t = 0; t < T; t++) {
            int64_t s = t + S - T > 0 ? t + S - T : 0; // T may be more than S
            e->data[first][b * T + t] = e->data[first + 1][b * S + s];
            e->data[first + 2][b * T + t] = e->data[first + 3][b * S + s];
            if (e->seed % 3 == 1 && !example_below(e, 6)) e->data[first + 2][b * T + t] = 1000; // sees nothing
        }
    }
}
static void fill_attention(example *e) { fill_mask(e, 3); }

// o and lse by the forward op.
static void fill_attention_grad(example *e) {
    fill_mask(e, 6);
    ct_reference call = {.inputs = 7, .outputs = 2, .attrs = e->attrs};
    for (int i = 0; i < 3; i++) call.in[i] = e->data[1 + i], call.in_types[i] = &e->in[1 + i];
    for (int i = 0; i < 4; i++) call.in[3 + i] = e->data[6 + i], call.in_types[3 + i] = &e->in[6 + i];
    for (int i = 0; i < 2; i++) call.out[i] = e->data[4 + i], call.out_types[i] = &e->in[4 + i];
    ct_op_find("attention")->reference(&call);
}

// ---- exact sums and the optimizer ----

static int64_t wide_extent(const example *e, const char *letter, int64_t proposed) {
    (void)e;
    return strcmp(letter, "W") ? proposed : CT_WIDE_DIGITS;
}
static void write_digits(const int64_t *digits, double *out) {
    for (int i = 0; i < CT_WIDE_DIGITS; i++) out[i] = (double)digits[i];
}
static void fill_wide(example *e, int input) {
    int64_t digits[CT_WIDE_DIGITS];
    ct_wide_clear(digits);
    for (int i = 0; i < 5; i++) ct_wide_add(digits, fabs(example_uniform(e)) * pow(2, example_below(e, 40)));
    ct_wide_normalise(digits);
    for (int i = 0; i < CT_WIDE_DIGITS && e->seed % 2; i++) digits[i] *= 1 + example_below(e, 1 << 20); // a sum of so many
    write_digits(digits, e->data[input]);
}
static void fill_wide_sum(example *e) {
    fill_wide(e, 1);
    if (e->seed % 5 == 4) e->data[0][0] = INFINITY;
}
static int64_t numbers_extent(const example *e, const char *letter, int64_t proposed) {
    (void)e;
    return strcmp(letter, "R") ? proposed : CT_WIDE_DIGITS * (1 + proposed % 4);
}
static void fill_wide_total(example *e) {
    for (int64_t i = 0; i < count(e, 0); i += CT_WIDE_DIGITS) {
        int64_t digits[CT_WIDE_DIGITS];
        ct_wide_clear(digits);
        for (int k = 0; k < 5; k++) ct_wide_add(digits, fabs(example_uniform(e)) * pow(2, example_below(e, 40)));
        ct_wide_normalise(digits);
        for (int k = 0; k < CT_WIDE_DIGITS; k++) digits[k] *= 1 + example_below(e, 1 << 20); // no longer normal: a sum of so many
        write_digits(digits, e->data[0] + i);
    }
}
static void fill_wide_norm(example *e) { fill_wide(e, 0); }
static void canonical_wide(const example *e, double **out) {
    (void)e;
    int64_t digits[CT_WIDE_DIGITS];
    for (int i = 0; i < CT_WIDE_DIGITS; i++) digits[i] = (int64_t)out[0][i];
    ct_wide_normalise(digits);
    write_digits(digits, out[0]);
}
static void fill_clip(example *e) { e->data[0][0] = e->seed % 5 == 4 ? NAN : 3 * fabs(example_uniform(e)); }

static int64_t pair_extent(const example *e, const char *letter, int64_t proposed) {
    (void)e;
    return strcmp(letter, "s") ? proposed : 2;
}
static int64_t triple_extent(const example *e, const char *letter, int64_t proposed) {
    (void)e;
    return strcmp(letter, "s") ? proposed : 3;
}
static void attrs_adamw(example *e) { e->attrs[5] = e->seed % 2; } // Adam, AdamW
static void fill_adamw(example *e) {
    fill_positive(e, 2, 0.01);
    e->data[4][0] = e->seed % 5 == 4 ? NAN : 0.5;
    e->data[5][0] = 1e-2;
    e->data[5][1] = 1 + (double)(e->seed * 13);
}
static void fill_adamw_ema(example *e) {
    fill_adamw(e);
    e->data[5][2] = (double[]){0, 0.01, 0.3, 0.9, 1}[e->seed % 5];
}

// ---- generation ----

static int64_t slots_extent(const example *e, const char *letter, int64_t proposed) {
    (void)e;
    if (!strcmp(letter, "T")) return proposed < 4 ? proposed : 4;
    return !strcmp(letter, "S") && proposed < 9 ? 9 : proposed;
}
static void fill_slots(example *e) {
    int64_t S = e->in[0].dims[1].extent, T = e->in[2].dims[1].extent;
    for (int64_t b = 0; b < e->in[2].dims[0].extent; b++)
        for (int64_t t = 0, slot = example_below(e, S - T + 1); t < T; t++) e->data[2][b * T + t] = (double)slot++;
}

// ---- views ----

static ct_type type(int dims_count, const ct_dim *dims) { return ct_type_make(CT_F32, dims_count, dims); }
static ct_dim dim(const char *name, int64_t extent) { return ct_dim_make(name, extent); }

static void types_split(example *e) {
    e->in[0] = type(3, (ct_dim[]){dim("B", 2), dim("N", 6), dim("D", 3)});
    e->out[0] = type(4, (ct_dim[]){dim("B", 2), dim("G", 3), dim("Q", 2), dim("D", 3)});
    e->attrs[0] = 1;
    e->attrs[1] = 2;
}
static void types_merge(example *e) {
    e->in[0] = type(4, (ct_dim[]){dim("B", 2), dim("T", 3), dim("G", 2), dim("d", 4)});
    e->out[0] = type(3, (ct_dim[]){dim("B", 2), dim("T", 3), dim("D", 8)});
    e->attrs[0] = 2;
    e->attrs[1] = 2;
}
static void types_slice(example *e) {
    e->in[0] = type(3, (ct_dim[]){dim("B", 1), dim("T", 7), dim("D", 3)});
    e->out[0] = type(3, (ct_dim[]){dim("B", 1), dim("c", 3), dim("D", 3)});
    e->attrs[0] = 1;
    e->attrs[1] = 2;
}
static void types_concat(example *e) {
    e->inputs = 3;
    for (int i = 0; i < 3; i++) e->in[i] = type(3, (ct_dim[]){dim("B", 1), dim("c", 1 + i), dim("D", 3)});
    e->out[0] = type(3, (ct_dim[]){dim("B", 1), dim("T", 6), dim("D", 3)});
    e->attrs[0] = 1;
}

static const example_hook hooks[] = {
    {.op = "matmul", .attrs = attrs_seed_parity},
    {.op = "cast", .attrs = attrs_cast},
    {.op = "embed", .fill = fill_embed},
    {.op = "embed_dw", .attrs = attrs_embed_dw, .fill = fill_embed_dw},
    {.op = "embed_dw_acc", .fill = fill_embed_dw_acc},
    {.op = "rmsnorm_grad", .fill = fill_rmsnorm_grad},
    {.op = "rope_angles", .attrs = attrs_rope_angles, .fill = fill_rope_angles},
    {.op = "rope", .extent = even_head, .attrs = attrs_seed_parity, .fill = fill_rope},
    {.op = "attention", .fill = fill_attention, .wide_outputs = 1}, // parts of a softmax are merged in f32
    {.op = "attention_grad", .fill = fill_attention_grad},
    {.op = "attention_block", .fill = fill_attention},
    {.op = "attention_block_grad", .fill = fill_attention_grad},
    {.op = "lm_loss", .fill = fill_lm_loss, .seed_gradient = 0.25},
    {.op = "vocab_sumexp", .fill = fill_sumexp},
    {.op = "vocab_pick", .fill = fill_pick},
    {.op = "token_loss", .fill = fill_token_loss},
    {.op = "vocab_grad", .attrs = attrs_to_compute, .fill = fill_vocab_grad},
    {.op = "wide_sum", .extent = wide_extent, .attrs = attrs_seed_parity, .fill = fill_wide_sum, .canonical = canonical_wide},
    {.op = "wide_of", .attrs = attrs_seed_parity, .canonical = canonical_wide},
    {.op = "wide_total", .extent = numbers_extent, .fill = fill_wide_total, .canonical = canonical_wide},
    {.op = "wide_norm", .extent = wide_extent, .fill = fill_wide_norm},
    {.op = "clip_factor", .fill = fill_clip},
    {.op = "adamw", .extent = pair_extent, .attrs = attrs_adamw, .fill = fill_adamw},
    {.op = "adamw_ema", .extent = triple_extent, .attrs = attrs_adamw, .fill = fill_adamw_ema},
    {.op = "cache_write", .extent = slots_extent, .fill = fill_slots},
    {.op = "split", .types = types_split},
    {.op = "merge", .types = types_merge},
    {.op = "slice", .types = types_slice},
    {.op = "concat", .types = types_concat},
};

const example_hook *example_hook_of(const char *op) {
    for (size_t i = 0; i < sizeof hooks / sizeof *hooks; i++)
        if (!strcmp(hooks[i].op, op)) return &hooks[i];
    return NULL;
}
