// The matrix products of the op table: y = x wᵀ, dx = dy w, dw = dyᵀ x, and dw added to an accumulator. Each form is
// only a choice of steps for the one blocked product of matmul_block.c; each set of instructions brings packing and a
// tile.
#include "matmul.h"

extern const ct_kernel ct_kernels_matmul[];

static int64_t last_dim(const ct_tensor *t) { return t->dims[t->dims_count - 1]; }
static int64_t lead_elems(const ct_tensor *t) {
    int64_t n = 1;
    for (int i = 0; i < t->dims_count - 1; i++) n *= t->dims[i];
    return n;
}

// An operand stored [rows, depth] or [depth, rows].
static ct_matmul_side side_along(const ct_tensor *t) {
    return (ct_matmul_side){t->data, lead_elems(t), last_dim(t), 1};
}
static ct_matmul_side side_across(const ct_tensor *t) {
    return (ct_matmul_side){t->data, last_dim(t), 1, last_dim(t)};
}

static ct_matmul_finish finish_of(const ct_tensor *out) {
    return out->dtype == CT_BF16 ? CT_FINISH_BF16 : CT_FINISH_F32;
}

typedef ct_matmul_product ct_form(const ct_call *call, const ct_matmul_isa *isas);

static ct_matmul_product form_y(const ct_call *c, const ct_matmul_isa *isas) {
    const ct_tensor *x = &c->in[0], *w = &c->in[1], *y = &c->out[0];
    return (ct_matmul_product){&isas[x->dtype == CT_BF16],
                               side_along(x),
                               side_along(w),
                               last_dim(x),
                               x->dtype,
                               y->data,
                               finish_of(y),
                               c->scratch};
}
static ct_matmul_product form_dx(const ct_call *c, const ct_matmul_isa *isas) {
    const ct_tensor *dy = &c->in[0], *w = &c->in[1], *dx = &c->out[0];
    return (ct_matmul_product){&isas[dy->dtype == CT_BF16],
                               side_along(dy),
                               side_across(w),
                               last_dim(dy),
                               dy->dtype,
                               dx->data,
                               finish_of(dx),
                               c->scratch};
}
static ct_matmul_product form_dw(const ct_call *c, const ct_matmul_isa *isas) {
    const ct_tensor *dy = &c->in[0], *x = &c->in[1], *dw = &c->out[0];
    return (ct_matmul_product){&isas[dy->dtype == CT_BF16],
                               side_across(dy),
                               side_across(x),
                               lead_elems(dy),
                               dy->dtype,
                               dw->data,
                               CT_FINISH_F32,
                               c->scratch};
}
static ct_matmul_product form_dw_acc(const ct_call *c, const ct_matmul_isa *isas) {
    const ct_tensor *dy = &c->in[1], *x = &c->in[2], *dw = &c->out[0];
    const int32_t *first = c->in[3].data;
    ct_matmul_finish finish = first && *first ? CT_FINISH_F32 : CT_FINISH_ADD_F32;
    return (ct_matmul_product){&isas[dy->dtype == CT_BF16],
                               side_across(dy),
                               side_across(x),
                               lead_elems(dy),
                               dy->dtype,
                               dw->data,
                               finish,
                               c->scratch};
}

static void run(ct_form *form, const ct_matmul_isa *isas, const ct_call *call, ct_team *team) {
    ct_matmul_product product = form(call, isas);
    ct_matmul_product_run(&product, team);
}
static size_t scratch(ct_form *form, const ct_matmul_isa *isas, const ct_call *call, int threads) {
    ct_matmul_product product = form(call, isas);
    return ct_matmul_scratch_bytes(&product, threads);
}

// A kernel's entry holds plain functions, so each form meets each set of instructions once here.
static void y_bf(const ct_call *c, ct_team *t) { run(form_y, ct_matmul_avx512bf16, c, t); }
static void dx_bf(const ct_call *c, ct_team *t) { run(form_dx, ct_matmul_avx512bf16, c, t); }
static void dw_bf(const ct_call *c, ct_team *t) { run(form_dw, ct_matmul_avx512bf16, c, t); }
static void acc_bf(const ct_call *c, ct_team *t) { run(form_dw_acc, ct_matmul_avx512bf16, c, t); }
static size_t y_bf_scratch(const ct_call *c, int n) { return scratch(form_y, ct_matmul_avx512bf16, c, n); }
static size_t dx_bf_scratch(const ct_call *c, int n) { return scratch(form_dx, ct_matmul_avx512bf16, c, n); }
static size_t dw_bf_scratch(const ct_call *c, int n) { return scratch(form_dw, ct_matmul_avx512bf16, c, n); }
static size_t acc_bf_scratch(const ct_call *c, int n) { return scratch(form_dw_acc, ct_matmul_avx512bf16, c, n); }

static void y_512(const ct_call *c, ct_team *t) { run(form_y, ct_matmul_avx512, c, t); }
static void dx_512(const ct_call *c, ct_team *t) { run(form_dx, ct_matmul_avx512, c, t); }
static void dw_512(const ct_call *c, ct_team *t) { run(form_dw, ct_matmul_avx512, c, t); }
static void acc_512(const ct_call *c, ct_team *t) { run(form_dw_acc, ct_matmul_avx512, c, t); }
static size_t y_512_scratch(const ct_call *c, int n) { return scratch(form_y, ct_matmul_avx512, c, n); }
static size_t dx_512_scratch(const ct_call *c, int n) { return scratch(form_dx, ct_matmul_avx512, c, n); }
static size_t dw_512_scratch(const ct_call *c, int n) { return scratch(form_dw, ct_matmul_avx512, c, n); }
static size_t acc_512_scratch(const ct_call *c, int n) { return scratch(form_dw_acc, ct_matmul_avx512, c, n); }

static void y_avx2(const ct_call *c, ct_team *t) { run(form_y, ct_matmul_avx2, c, t); }
static void dx_avx2(const ct_call *c, ct_team *t) { run(form_dx, ct_matmul_avx2, c, t); }
static void dw_avx2(const ct_call *c, ct_team *t) { run(form_dw, ct_matmul_avx2, c, t); }
static void acc_avx2(const ct_call *c, ct_team *t) { run(form_dw_acc, ct_matmul_avx2, c, t); }
static size_t y_avx2_scratch(const ct_call *c, int n) { return scratch(form_y, ct_matmul_avx2, c, n); }
static size_t dx_avx2_scratch(const ct_call *c, int n) { return scratch(form_dx, ct_matmul_avx2, c, n); }
static size_t dw_avx2_scratch(const ct_call *c, int n) { return scratch(form_dw, ct_matmul_avx2, c, n); }
static size_t acc_avx2_scratch(const ct_call *c, int n) { return scratch(form_dw_acc, ct_matmul_avx2, c, n); }

static void y_c(const ct_call *c, ct_team *t) { run(form_y, ct_matmul_generic, c, t); }
static void dx_c(const ct_call *c, ct_team *t) { run(form_dx, ct_matmul_generic, c, t); }
static void dw_c(const ct_call *c, ct_team *t) { run(form_dw, ct_matmul_generic, c, t); }
static void acc_c(const ct_call *c, ct_team *t) { run(form_dw_acc, ct_matmul_generic, c, t); }
static size_t y_c_scratch(const ct_call *c, int n) { return scratch(form_y, ct_matmul_generic, c, n); }
static size_t dx_c_scratch(const ct_call *c, int n) { return scratch(form_dx, ct_matmul_generic, c, n); }
static size_t dw_c_scratch(const ct_call *c, int n) { return scratch(form_dw, ct_matmul_generic, c, n); }
static size_t acc_c_scratch(const ct_call *c, int n) { return scratch(form_dw_acc, ct_matmul_generic, c, n); }

#define NOTE_BF16 "f32 sums of bf16 pairs (VDPBF16PS, denormals as zero), depth ascending"
#define NOTE_FMA "f32 fused multiply-adds, depth ascending"
#define NOTE_C "f32 multiply, add, depth ascending"

// Operand patterns: y takes bf16 to bf16 or f32 (logits); dw is always f32; dw_acc is acc, dy, x, first.
const ct_kernel ct_kernels_matmul[] = {
    {"matmul", "bb>.", "avx512bf16", y_bf, y_bf_scratch, NOTE_BF16},
    {"matmul", "bb>.", "avx512", y_512, y_512_scratch, NOTE_FMA},
    {"matmul", "bb>.", "avx2", y_avx2, y_avx2_scratch, NOTE_FMA},
    {"matmul", "bb>.", "generic", y_c, y_c_scratch, NOTE_C},
    {"matmul", "ff>f", "avx512", y_512, y_512_scratch, NOTE_FMA},
    {"matmul", "ff>f", "avx2", y_avx2, y_avx2_scratch, NOTE_FMA},
    {"matmul", "ff>f", "generic", y_c, y_c_scratch, NOTE_C},
    {"matmul_dx", "bb>.", "avx512bf16", dx_bf, dx_bf_scratch, NOTE_BF16},
    {"matmul_dx", "bb>.", "avx512", dx_512, dx_512_scratch, NOTE_FMA},
    {"matmul_dx", "bb>.", "avx2", dx_avx2, dx_avx2_scratch, NOTE_FMA},
    {"matmul_dx", "bb>.", "generic", dx_c, dx_c_scratch, NOTE_C},
    {"matmul_dx", "ff>f", "avx512", dx_512, dx_512_scratch, NOTE_FMA},
    {"matmul_dx", "ff>f", "avx2", dx_avx2, dx_avx2_scratch, NOTE_FMA},
    {"matmul_dx", "ff>f", "generic", dx_c, dx_c_scratch, NOTE_C},
    {"matmul_dw", "bb>f", "avx512bf16", dw_bf, dw_bf_scratch, NOTE_BF16},
    {"matmul_dw", "bb>f", "avx512", dw_512, dw_512_scratch, NOTE_FMA},
    {"matmul_dw", "bb>f", "avx2", dw_avx2, dw_avx2_scratch, NOTE_FMA},
    {"matmul_dw", "bb>f", "generic", dw_c, dw_c_scratch, NOTE_C},
    {"matmul_dw", "ff>f", "avx512", dw_512, dw_512_scratch, NOTE_FMA},
    {"matmul_dw", "ff>f", "avx2", dw_avx2, dw_avx2_scratch, NOTE_FMA},
    {"matmul_dw", "ff>f", "generic", dw_c, dw_c_scratch, NOTE_C},
    {"matmul_dw_acc", "fbbi>f", "avx512bf16", acc_bf, acc_bf_scratch, NOTE_BF16},
    {"matmul_dw_acc", "fbbi>f", "avx512", acc_512, acc_512_scratch, NOTE_FMA},
    {"matmul_dw_acc", "fbbi>f", "avx2", acc_avx2, acc_avx2_scratch, NOTE_FMA},
    {"matmul_dw_acc", "fbbi>f", "generic", acc_c, acc_c_scratch, NOTE_C},
    {"matmul_dw_acc", "fffi>f", "avx512", acc_512, acc_512_scratch, NOTE_FMA},
    {"matmul_dw_acc", "fffi>f", "avx2", acc_avx2, acc_avx2_scratch, NOTE_FMA},
    {"matmul_dw_acc", "fffi>f", "generic", acc_c, acc_c_scratch, NOTE_C},
    {0},
};
