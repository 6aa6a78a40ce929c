// Golden IR: small graphs as text before and after each pass, the second written by hand.
#include "ops/ops.h"
#include "passes/passes.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#define assert_ok(status_expression)                                                                                   \
    do {                                                                                                               \
        ct_status assert_ok_ = (status_expression);                                                                    \
        if (assert_ok_) fail_msg("%s", ct_error_text(assert_ok_));                                                     \
    } while (0)

#define DIMS " dim B batch dim T sequence dim D model dim N heads dim V vocabulary\n"

static void parse(ct_graph *graph, const char *text) {
    assert_ok(ct_graph_parse(graph, text, "test", ct_op_find));
    assert_ok(ct_graph_verify(graph));
}

// Both are printed by the printer, so that white space and quotes don't matter.
static void assert_is(const ct_graph *graph, const char *expected) {
    ct_graph wanted;
    ct_string a = {0}, b = {0};
    assert_ok(ct_graph_verify(graph));
    parse(&wanted, expected);
    ct_graph_print(graph, &a);
    ct_graph_print(&wanted, &b);
    if (strcmp(a.text, b.text)) fail_msg("got:\n%s\nwanted:\n%s", a.text, b.text);
    ct_string_deinit(&a);
    ct_string_deinit(&b);
    ct_graph_deinit(&wanted);
}

// ---- precision ----
static const char mixed[] = "program micro {" DIMS
                            " %0 = feed tokens : i32[B=2, T=3]\n"
                            " %1 = parameter e : f32[V=5, D=4]\n"
                            " %2 = parameter g : f32[D=4]\n"
                            " %3 = parameter w : f32[N=6, D=4]\n"
                            " %4 = embed(%1, %0) : f32[B=2, T=3, D=4] @ forward e\n"
                            " %5, %6 = rmsnorm(%4, %2) {eps=0.001} : f32[B=2, T=3, D=4], f32[B=2, T=3] @ forward g\n"
                            " %7 = matmul(%5, %3) {out_f32=0} : f32[B=2, T=3, N=6] @ forward w\n"
                            " %8 = matmul_dx(%7, %3) : f32[B=2, T=3, D=4] @ input-grad w\n"
                            " %9 = matmul_dw(%7, %5) : f32[N=6, D=4] @ weight-grad w\n"
                            " output dx = %8\n output dw = %9\n}";

static void precision_reads_weights_in_bf16_and_keeps_norms_and_sums_in_f32(void **state) {
    (void)state;
    ct_graph from, to, prologue;
    parse(&from, mixed);
    assert_ok(ct_pass_precision(&from, CT_BF16, &to));
    assert_is(&to, "program micro {" DIMS
                   " %0 = feed tokens : i32[B=2, T=3]\n"
                   " %1 = parameter e : f32[V=5, D=4]\n"
                   " %2 = parameter g : f32[D=4]\n"
                   " %3 = parameter w : f32[N=6, D=4]\n"
                   " %4 = weight-lowp \"e.bf16\" : bf16[V=5, D=4]\n"
                   " %5 = weight-lowp \"w.bf16\" : bf16[N=6, D=4]\n" // one cast, read by two
                   " %6 = embed(%4, %0) : bf16[B=2, T=3, D=4] @ forward e\n"
                   " %7, %8 = rmsnorm(%6, %2) {eps=0.001} : bf16[B=2, T=3, D=4], f32[B=2, T=3] @ forward g\n"
                   " %9 = matmul(%7, %5) {out_f32=0} : bf16[B=2, T=3, N=6] @ forward w\n"
                   " %10 = matmul_dx(%9, %5) : bf16[B=2, T=3, D=4] @ input-grad w\n"
                   " %11 = matmul_dw(%9, %7) : f32[N=6, D=4] @ weight-grad w\n"
                   " output dx = %10\n output dw = %11\n}");
    assert_ok(ct_pass_prologue(&(const ct_graph *){&to}, 1, &prologue));
    assert_is(&prologue, "program prologue {" DIMS
                         " %0 = parameter e : f32[V=5, D=4]\n"
                         " %1 = weight-lowp \"e.bf16\" : bf16[V=5, D=4]\n"
                         " %3 = parameter w : f32[N=6, D=4]\n"
                         " %4 = weight-lowp \"w.bf16\" : bf16[N=6, D=4]\n"
                         " %2 = cast(%0) {to=1} : bf16[V=5, D=4] @ forward e\n"
                         " %5 = cast(%3) {to=1} : bf16[N=6, D=4] @ forward w\n"
                         " update \"e.bf16\" = %2\n update \"w.bf16\" = %5\n}");
    ct_graph_deinit(&prologue);
    ct_graph_deinit(&to);
    assert_ok(ct_pass_precision(&from, CT_F32, &to));
    assert_is(&to, mixed);
    ct_graph_deinit(&to);
    ct_graph_deinit(&from);
}

// ---- the loss ----
static const char loss_of_a_row[] = "program eval {" DIMS
                                    " %0 = feed h : f32[B=1, T=3, D=4]\n"
                                    " %1 = parameter w : f32[V=5, D=4]\n"
                                    " %2 = feed labels : i32[B=1, T=3]\n"
                                    " %3 = feed inv_count : f32[]\n"
                                    " %4, %5, %6 = lm_loss(%0, %1, %2, %3) : f32[B=1, T=3], f32[B=1, T=3, D=4], f32[V=5, D=4] @ forward output\n"
                                    " output loss = %4\n}";

static void the_loss_of_part_of_a_row_is_chunked_forward_only(void **state) {
    (void)state;
    ct_graph from, to;
    parse(&from, loss_of_a_row);
    assert_ok(ct_pass_expand_loss(&from, 2, &to));
    assert_is(&to, "program eval {" DIMS
                   " %0 = feed h : f32[B=1, T=3, D=4]\n"
                   " %1 = parameter w : f32[V=5, D=4]\n"
                   " %2 = feed labels : i32[B=1, T=3]\n"
                   " %3 = feed inv_count : f32[]\n"
                   " %4 = slice(%0) {dim=1, start=0} : f32[B=1, T=2, D=4] @ forward output\n"
                   " %5 = slice(%2) {dim=1, start=0} : i32[B=1, T=2] @ forward output\n"
                   " %6 = matmul(%4, %1) {out_f32=1} : f32[B=1, T=2, V=5] @ forward output\n"
                   " %7 = vocab_max(%6) : f32[B=1, T=2] @ forward output\n"
                   " %8 = vocab_sumexp(%6, %7) : f32[B=1, T=2] @ forward output\n"
                   " %9 = vocab_pick(%6, %5) : f32[B=1, T=2] @ forward output\n"
                   " %10 = token_loss(%7, %8, %9, %5) : f32[B=1, T=2] @ forward output\n"
                   " %11 = slice(%0) {dim=1, start=2} : f32[B=1, T=1, D=4] @ forward output\n"
                   " %12 = slice(%2) {dim=1, start=2} : i32[B=1, T=1] @ forward output\n"
                   " %13 = matmul(%11, %1) {out_f32=1} : f32[B=1, T=1, V=5] @ forward output\n"
                   " %14 = vocab_max(%13) : f32[B=1, T=1] @ forward output\n"
                   " %15 = vocab_sumexp(%13, %14) : f32[B=1, T=1] @ forward output\n"
                   " %16 = vocab_pick(%13, %12) : f32[B=1, T=1] @ forward output\n"
                   " %17 = token_loss(%14, %15, %16, %12) : f32[B=1, T=1] @ forward output\n"
                   " %18 = concat(%10, %17) {dim=1} : f32[B=1, T=3] @ forward output\n"
                   " output loss = %18\n}");
    ct_graph_deinit(&to);
    ct_graph_deinit(&from);
}

static void a_loss_in_one_chunk_yields_its_gradients_in_the_same_visit(void **state) {
    (void)state;
    ct_graph from, to;
    parse(&from, "program micro {" DIMS
                 " %0 = feed h : bf16[B=2, T=3, D=4]\n"
                 " %1 = weight-lowp w : bf16[V=5, D=4]\n"
                 " %2 = feed labels : i32[B=2, T=3]\n"
                 " %3 = feed inv_count : f32[]\n"
                 " %4, %5, %6 = lm_loss(%0, %1, %2, %3) : f32[B=2, T=3], bf16[B=2, T=3, D=4], f32[V=5, D=4] @ forward output\n"
                 " %7 = add(%5, %0) : bf16[B=2, T=3, D=4] @ input-grad norm\n"
                 " output loss = %4\n output dh = %7\n output dw = %6\n}");
    assert_ok(ct_pass_expand_loss(&from, 6, &to));
    assert_is(&to, "program micro {" DIMS
                   " %0 = feed h : bf16[B=2, T=3, D=4]\n"
                   " %1 = weight-lowp w : bf16[V=5, D=4]\n"
                   " %2 = feed labels : i32[B=2, T=3]\n"
                   " %3 = feed inv_count : f32[]\n"
                   " %4 = feed false : i32[]\n"
                   " %5 = matmul(%0, %1) {out_f32=1} : f32[B=2, T=3, V=5] @ forward output\n"
                   " %6 = vocab_max(%5) : f32[B=2, T=3] @ forward output\n"
                   " %7 = vocab_sumexp(%5, %6) : f32[B=2, T=3] @ forward output\n"
                   " %8 = vocab_pick(%5, %2) : f32[B=2, T=3] @ forward output\n"
                   " %9 = token_loss(%6, %7, %8, %2) : f32[B=2, T=3] @ forward output\n"
                   " %10 = vocab_grad(%5, %6, %7, %2, %3) {to=1} : bf16[B=2, T=3, V=5] @ forward output\n"
                   " %11 = matmul_dx(%10, %1) : bf16[B=2, T=3, D=4] @ forward output\n"
                   " %12 = matmul_dw(%10, %0) : f32[V=5, D=4] @ forward output\n"
                   " %13 = add(%11, %0) : bf16[B=2, T=3, D=4] @ input-grad norm\n"
                   " output loss = %9\n output dh = %13\n output dw = %12\n}");
    ct_graph_deinit(&to);
    ct_graph_deinit(&from);
}

// ---- recomputation: %3 and %4 are a layer's forward, the rest its backward ----
#define LAYER_INPUTS                                                                                                   \
    " %0 = feed x : f32[B=2, T=3, D=4]\n %1 = parameter w : f32[N=4, D=4]\n %2 = feed dy : f32[B=2, T=3, N=4]\n"          \
    " %3 = matmul(%0, %1) {out_f32=0} : f32[B=2, T=3, N=4] @ forward a layer 0\n"                                      \
    " %4 = silu_mul(%3, %3) : f32[B=2, T=3, N=4] @ forward b layer 0\n"

static const char layer[] = "program micro {" DIMS LAYER_INPUTS
                            " %5, %6 = silu_mul_grad(%2, %3, %3) : f32[B=2, T=3, N=4], f32[B=2, T=3, N=4] @ input-grad b layer 0\n"
                            " %7 = silu_mul(%5, %4) : f32[B=2, T=3, N=4] @ input-grad c layer 0\n"
                            " output da = %5\n output c = %7\n output y = %4\n}";

static void recompute(ct_recompute_mode mode, int every, const char *expected) {
    ct_graph from, to;
    parse(&from, layer);
    assert_ok(ct_pass_recompute(&from, (ct_recompute_options){.mode = mode, .every = every}, &to));
    assert_is(&to, expected);
    ct_graph_deinit(&to);
    ct_graph_deinit(&from);
}

static void recomputation_copies_what_backward_reads_next_to_its_reader(void **state) {
    (void)state;
    recompute(CT_RECOMPUTE_NONE, 1, layer);
    const char *whole = "program micro {" DIMS LAYER_INPUTS
                        " %5 = matmul(%0, %1) {out_f32=0} : f32[B=2, T=3, N=4] @ recompute a layer 0\n"
                        " %6, %7 = silu_mul_grad(%2, %5, %5) : f32[B=2, T=3, N=4], f32[B=2, T=3, N=4] @ input-grad b layer 0\n"
                        " %8 = silu_mul(%5, %5) : f32[B=2, T=3, N=4] @ recompute b layer 0\n"
                        " %9 = silu_mul(%6, %8) : f32[B=2, T=3, N=4] @ input-grad c layer 0\n"
                        " output da = %6\n output c = %9\n output y = %4\n}";
    recompute(CT_RECOMPUTE_FULL, 1, whole);
    recompute(CT_RECOMPUTE_EVERY, 2, whole); // layer 0 is one of them
    recompute(CT_RECOMPUTE_OP, 1, "program micro {" DIMS LAYER_INPUTS // the layer's first matmul is kept
                                  " %5, %6 = silu_mul_grad(%2, %3, %3) : f32[B=2, T=3, N=4], f32[B=2, T=3, N=4] @ input-grad b layer 0\n"
                                  " %7 = silu_mul(%3, %3) : f32[B=2, T=3, N=4] @ recompute b layer 0\n"
                                  " %8 = silu_mul(%5, %7) : f32[B=2, T=3, N=4] @ input-grad c layer 0\n"
                                  " output da = %5\n output c = %8\n output y = %4\n}");
}

// ---- made again: the gate's %4 is kept for a weight gradient only, or (where `other` reads it) for something else too ----
#define GATE                                                                                                           \
    "program micro {" DIMS " %0 = feed a : f32[B=2, T=3, N=4]\n %1 = feed b : f32[B=2, T=3, N=4]\n %2 = feed dz : f32[B=2, T=3, D=4]\n" \
    " %3 = parameter w : f32[D=4, N=4]\n"                                                                             \
    " %4 = silu_mul(%0, %1) : f32[B=2, T=3, N=4] @ forward gate layer 0\n"                                            \
    " %5 = matmul(%4, %3) {out_f32=0} : f32[B=2, T=3, D=4] @ forward down layer 0\n"                                  \
    " %6 = matmul_dx(%2, %3) : f32[B=2, T=3, N=4] @ input-grad down layer 0\n"

static void what_only_weight_gradients_want_is_made_again(void **state) {
    (void)state;
    ct_graph from, to;
    parse(&from, GATE " %7 = matmul_dw(%2, %4) : f32[D=4, N=4] @ weight-grad down layer 0\n"
                      " %8 = add(%7, %7) : f32[D=4, N=4] @ weight-grad down layer 0\n"
                      " %9, %10 = silu_mul_grad(%6, %0, %1) : f32[B=2, T=3, N=4], f32[B=2, T=3, N=4] @ input-grad gate layer 0\n"
                      " output z = %5\n output dw = %8\n output da = %9\n output db = %10\n}");
    assert_ok(ct_pass_again(&from, &to));
    assert_is(&to, GATE " %7, %8, %9 = silu_mul_grad_y(%6, %0, %1) : f32[B=2, T=3, N=4], f32[B=2, T=3, N=4], f32[B=2, T=3, N=4] @ input-grad gate layer 0\n"
                        " %10 = matmul_dw(%2, %9) : f32[D=4, N=4] @ weight-grad down layer 0\n"
                        " %11 = add(%10, %10) : f32[D=4, N=4] @ weight-grad down layer 0\n"
                        " output z = %5\n output dw = %11\n output da = %7\n output db = %8\n}");
    ct_graph_deinit(&to);
    ct_graph_deinit(&from);
    const char *other = GATE " %7 = matmul_dw(%2, %4) : f32[D=4, N=4] @ weight-grad down layer 0\n"
                             " %8 = add(%6, %4) : f32[B=2, T=3, N=4] @ input-grad down layer 0\n"
                             " %9, %10 = silu_mul_grad(%8, %0, %1) : f32[B=2, T=3, N=4], f32[B=2, T=3, N=4] @ input-grad gate layer 0\n"
                             " output z = %5\n output dw = %7\n output da = %9\n output db = %10\n}";
    parse(&from, other);
    assert_ok(ct_pass_again(&from, &to));
    assert_is(&to, other);
    ct_graph_deinit(&to);
    ct_graph_deinit(&from);
}

// Two layers, each a product, a gate and a product (x, h, s, y): backward reads h and s of its own layer, and y of the layer before, which stays.
#define TWO_LAYERS                                                                                                     \
    "program micro {" DIMS " %0 = feed x : f32[B=2, T=3, D=4]\n %1 = parameter w : f32[D=4, D=4]\n %2 = feed dy : f32[B=2, T=3, D=4]\n" \
    " %3 = matmul(%0, %1) {out_f32=0} : f32[B=2, T=3, D=4] @ forward layers.0.h layer 0\n"                             \
    " %4 = silu_mul(%3, %3) : f32[B=2, T=3, D=4] @ forward layers.0.s layer 0\n"                                        \
    " %5 = matmul(%4, %1) {out_f32=0} : f32[B=2, T=3, D=4] @ forward layers.0.y layer 0\n"                             \
    " %6 = matmul(%5, %1) {out_f32=0} : f32[B=2, T=3, D=4] @ forward layers.1.h layer 1\n"                             \
    " %7 = silu_mul(%6, %6) : f32[B=2, T=3, D=4] @ forward layers.1.s layer 1\n"                                        \
    " %8 = matmul(%7, %1) {out_f32=0} : f32[B=2, T=3, D=4] @ forward layers.1.y layer 1\n"

static const char two_layers[] = TWO_LAYERS
    " %9 = matmul_dw(%2, %7) : f32[D=4, D=4] @ weight-grad layers.1.y layer 1\n"
    " %10, %11 = silu_mul_grad(%2, %6, %6) : f32[B=2, T=3, D=4], f32[B=2, T=3, D=4] @ input-grad layers.1.s layer 1\n"
    " %12 = matmul_dw(%10, %5) : f32[D=4, D=4] @ weight-grad layers.1.h layer 1\n"
    " %13 = matmul_dw(%10, %4) : f32[D=4, D=4] @ weight-grad layers.0.y layer 0\n"
    " output a = %9\n output b = %12\n output c = %13\n output y = %8\n}";

static void check_two_layers(ct_recompute_options options, const char *expected) {
    ct_graph from, to;
    parse(&from, two_layers);
    assert_ok(ct_pass_recompute(&from, options, &to));
    assert_is(&to, expected);
    ct_graph_deinit(&to);
    ct_graph_deinit(&from);
}

static void a_layers_backward_recomputes_its_own_layer_only(void **state) {
    (void)state;
    check_two_layers((ct_recompute_options){.mode = CT_RECOMPUTE_FULL, .every = 1}, TWO_LAYERS
        " %9 = matmul(%5, %1) {out_f32=0} : f32[B=2, T=3, D=4] @ recompute layers.1.h layer 1\n" // for s; h's reader finds it made
        " %10 = silu_mul(%9, %9) : f32[B=2, T=3, D=4] @ recompute layers.1.s layer 1\n"
        " %11 = matmul_dw(%2, %10) : f32[D=4, D=4] @ weight-grad layers.1.y layer 1\n"
        " %12, %13 = silu_mul_grad(%2, %9, %9) : f32[B=2, T=3, D=4], f32[B=2, T=3, D=4] @ input-grad layers.1.s layer 1\n"
        " %14 = matmul_dw(%12, %5) : f32[D=4, D=4] @ weight-grad layers.1.h layer 1\n"
        " %15 = matmul(%0, %1) {out_f32=0} : f32[B=2, T=3, D=4] @ recompute layers.0.h layer 0\n"
        " %16 = silu_mul(%15, %15) : f32[B=2, T=3, D=4] @ recompute layers.0.s layer 0\n"
        " %17 = matmul_dw(%12, %16) : f32[D=4, D=4] @ weight-grad layers.0.y layer 0\n"
        " output a = %11\n output b = %14\n output c = %17\n output y = %8\n}");
    check_two_layers((ct_recompute_options){.mode = CT_RECOMPUTE_EVERY, .every = 2}, TWO_LAYERS // layer 0 only
        " %9 = matmul_dw(%2, %7) : f32[D=4, D=4] @ weight-grad layers.1.y layer 1\n"
        " %10, %11 = silu_mul_grad(%2, %6, %6) : f32[B=2, T=3, D=4], f32[B=2, T=3, D=4] @ input-grad layers.1.s layer 1\n"
        " %12 = matmul_dw(%10, %5) : f32[D=4, D=4] @ weight-grad layers.1.h layer 1\n"
        " %13 = matmul(%0, %1) {out_f32=0} : f32[B=2, T=3, D=4] @ recompute layers.0.h layer 0\n"
        " %14 = silu_mul(%13, %13) : f32[B=2, T=3, D=4] @ recompute layers.0.s layer 0\n"
        " %15 = matmul_dw(%10, %14) : f32[D=4, D=4] @ weight-grad layers.0.y layer 0\n"
        " output a = %9\n output b = %12\n output c = %15\n output y = %8\n}");
    check_two_layers((ct_recompute_options){.mode = CT_RECOMPUTE_OP, .every = 1}, TWO_LAYERS // each layer's first product is kept, its gate is not
        " %9 = silu_mul(%6, %6) : f32[B=2, T=3, D=4] @ recompute layers.1.s layer 1\n"
        " %10 = matmul_dw(%2, %9) : f32[D=4, D=4] @ weight-grad layers.1.y layer 1\n"
        " %11, %12 = silu_mul_grad(%2, %6, %6) : f32[B=2, T=3, D=4], f32[B=2, T=3, D=4] @ input-grad layers.1.s layer 1\n"
        " %13 = matmul_dw(%11, %5) : f32[D=4, D=4] @ weight-grad layers.1.h layer 1\n"
        " %14 = silu_mul(%3, %3) : f32[B=2, T=3, D=4] @ recompute layers.0.s layer 0\n"
        " %15 = matmul_dw(%11, %14) : f32[D=4, D=4] @ weight-grad layers.0.y layer 0\n"
        " output a = %10\n output b = %13\n output c = %15\n output y = %8\n}");
    static const char first_products[] = "program micro {" DIMS // a layer's products are counted from its own first
        " %0 = feed x : f32[B=2, T=3, D=4]\n %1 = parameter w : f32[D=4, D=4]\n"
        " %2 = matmul(%0, %1) {out_f32=0} : f32[B=2, T=3, D=4] @ forward layers.0.h layer 0\n"
        " %3 = matmul(%2, %1) {out_f32=0} : f32[B=2, T=3, D=4] @ forward layers.1.h layer 1\n"
        " %4 = matmul_dw(%3, %2) : f32[D=4, D=4] @ weight-grad layers.1.h layer 1\n"
        " %5 = matmul_dw(%2, %0) : f32[D=4, D=4] @ weight-grad layers.0.h layer 0\n"
        " output a = %4\n output b = %5\n}";
    ct_graph from, to;
    parse(&from, first_products);
    assert_ok(ct_pass_recompute(&from, (ct_recompute_options){.mode = CT_RECOMPUTE_OP, .every = 1}, &to));
    assert_is(&to, first_products);
    ct_graph_deinit(&to);
    ct_graph_deinit(&from);
    parse(&from, two_layers);
    ct_status status = ct_pass_recompute(&from, (ct_recompute_options){.mode = CT_RECOMPUTE_EVERY, .every = 0}, &to);
    assert_non_null(status);
    assert_string_equal(ct_error_text(status), "recomputing every 0-th layer: a number ≥ 1 is wanted");
    ct_graph_deinit(&from);
}

// ---- fusion and pruning ----
#define PRODUCT                                                                                                        \
    " %0 = gradient acc : f32[N=6, D=4]\n %1 = feed first : i32[]\n %2 = feed dy : f32[B=2, T=3, N=6]\n"                   \
    " %3 = feed x : f32[B=2, T=3, D=4]\n"

static void an_accumulated_product_is_fused_unless_somebody_else_reads_it(void **state) {
    (void)state;
    const char *plain = "program micro {" DIMS PRODUCT " %4 = matmul_dw(%2, %3) : f32[N=6, D=4] @ weight-grad w layer 1\n"
                        " %5 = accumulate(%0, %4, %1) : f32[N=6, D=4] @ weight-grad w layer 1\n update acc = %5\n}";
    const char *read_twice = "program micro {" DIMS PRODUCT " %4 = matmul_dw(%2, %3) : f32[N=6, D=4] @ weight-grad w layer 1\n"
                             " %5 = accumulate(%0, %4, %1) : f32[N=6, D=4] @ weight-grad w layer 1\n update acc = %5\n output dw = %4\n}";
    ct_graph from, to;
    parse(&from, plain);
    assert_ok(ct_pass_fuse_accumulate(&from, &to));
    assert_is(&to, "program micro {" DIMS PRODUCT
                   " %4 = matmul_dw_acc(%0, %2, %3, %1) : f32[N=6, D=4] @ weight-grad w layer 1\n update acc = %4\n}");
    ct_graph_deinit(&to);
    ct_graph_deinit(&from);
    parse(&from, read_twice);
    assert_ok(ct_pass_fuse_accumulate(&from, &to));
    assert_is(&to, read_twice);
    ct_graph_deinit(&to);
    ct_graph_deinit(&from);
}

static void pruning_drops_what_nobody_reads(void **state) {
    (void)state;
    ct_graph from, to;
    parse(&from, "program micro {" DIMS
                 " %0 = feed x : f32[D=4]\n %1 = feed unused : f32[D=4]\n"
                 " %2 = add(%0, %1) : f32[D=4] @ forward dead\n %3 = add(%0, %0) : f32[D=4] @ forward live\n"
                 " %4 = add(%2, %3) : f32[D=4] @ forward dead\n output y = %3\n}");
    assert_ok(ct_pass_prune(&from, &to));
    assert_is(&to, "program micro {" DIMS " %0 = feed x : f32[D=4]\n %1 = add(%0, %0) : f32[D=4] @ forward live\n output y = %1\n}");
    ct_graph_deinit(&to);
    ct_graph_deinit(&from);
}

static void pruning_keeps_updates_and_whole_nodes(void **state) {
    (void)state;
    static const char whole[] = "program micro {" DIMS " %0 = feed x : f32[D=4]\n %1 = gradient acc : f32[D=4]\n %2 = feed first : i32[]\n"
                                " %3, %4 = silu_mul_grad(%0, %0, %0) : f32[D=4], f32[D=4] @ forward half\n" // only %4 is read
                                " %5 = accumulate(%1, %4, %2) : f32[D=4] @ weight-grad w\n update acc = %5\n}";
    ct_graph from, to;
    parse(&from, whole);
    assert_ok(ct_pass_prune(&from, &to));
    assert_is(&to, whole);
    ct_graph_deinit(&to);
    ct_graph_deinit(&from);
}

static void embedding_gradients_are_fused_and_norms_are_not(void **state) {
    (void)state;
#define EMBEDDING                                                                                                      \
    "program micro {" DIMS " %0 = gradient e : f32[V=5, D=4]\n %1 = gradient g : f32[D=4]\n %2 = feed first : i32[]\n"   \
    " %3 = feed dy : f32[B=2, T=3, D=4]\n %4 = feed tokens : i32[B=2, T=3]\n %5 = parameter w : f32[D=4]\n"              \
    " %6, %7 = rmsnorm(%3, %5) {eps=0} : f32[B=2, T=3, D=4], f32[B=2, T=3] @ forward n\n"
    ct_graph from, to;
    parse(&from, EMBEDDING " %8 = embed_dw(%3, %4) {rows=5} : f32[V=5, D=4] @ weight-grad e layer 3\n"
                           " %9, %10 = rmsnorm_grad(%3, %3, %5, %7) : f32[B=2, T=3, D=4], f32[D=4] @ input-grad n\n"
                           " %11 = accumulate(%1, %10, %2) : f32[D=4] @ weight-grad n\n"
                           " %12 = accumulate(%0, %8, %2) : f32[V=5, D=4] @ weight-grad e\n update e = %12\n update g = %11\n}");
    assert_ok(ct_pass_fuse_accumulate(&from, &to));
    assert_is(&to, EMBEDDING " %8, %9 = rmsnorm_grad(%3, %3, %5, %7) : f32[B=2, T=3, D=4], f32[D=4] @ input-grad n\n"
                             " %10 = accumulate(%1, %9, %2) : f32[D=4] @ weight-grad n\n" // and embed_dw goes where it was accumulated
                             " %11 = embed_dw_acc(%0, %3, %4, %2) : f32[V=5, D=4] @ weight-grad e layer 3\n update e = %11\n update g = %10\n}");
    ct_graph_deinit(&to);
    ct_graph_deinit(&from);
#undef EMBEDDING
}

static void a_cache_is_kept_in_the_compute_dtype(void **state) {
    (void)state;
    ct_graph from, to;
    parse(&from, "program generate { dim B batch dim T sequence dim S sequence dim G heads dim d none dim D model\n"
                 " %0 = feed slots : i32[B=1, T=1]\n %1 = parameter w : f32[D=4, D=4]\n %2 = parameter e : f32[D=4, D=4]\n"
                 " %3 = state cache : f32[B=1, S=3, G=1, d=4]\n %4 = embed(%2, %0) : f32[B=1, T=1, D=4] @ forward e\n"
                 " %5 = split(%4) {dim=2, parts=2} : f32[B=1, T=1, G=1, d=4] @ forward e\n"
                 " %6 = cache_write(%3, %5, %0) : f32[B=1, S=3, G=1, d=4] @ forward a\n update cache = %6\n}");
    assert_ok(ct_pass_precision(&from, CT_BF16, &to));
    assert_is(&to, "program generate { dim B batch dim T sequence dim S sequence dim G heads dim d none dim D model\n"
                   " %0 = feed slots : i32[B=1, T=1]\n %1 = parameter w : f32[D=4, D=4]\n %2 = parameter e : f32[D=4, D=4]\n"
                   " %3 = state cache : bf16[B=1, S=3, G=1, d=4]\n %4 = weight-lowp \"e.bf16\" : bf16[D=4, D=4]\n"
                   " %5 = embed(%4, %0) : bf16[B=1, T=1, D=4] @ forward e\n"
                   " %6 = split(%5) {dim=2, parts=2} : bf16[B=1, T=1, G=1, d=4] @ forward e\n"
                   " %7 = cache_write(%3, %6, %0) : bf16[B=1, S=3, G=1, d=4] @ forward a\n update cache = %7\n}");
    ct_graph_deinit(&to);
    ct_graph_deinit(&from);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(precision_reads_weights_in_bf16_and_keeps_norms_and_sums_in_f32),
        cmocka_unit_test(the_loss_of_part_of_a_row_is_chunked_forward_only),
        cmocka_unit_test(a_loss_in_one_chunk_yields_its_gradients_in_the_same_visit),
        cmocka_unit_test(recomputation_copies_what_backward_reads_next_to_its_reader),
        cmocka_unit_test(a_layers_backward_recomputes_its_own_layer_only),
        cmocka_unit_test(what_only_weight_gradients_want_is_made_again),
        cmocka_unit_test(an_accumulated_product_is_fused_unless_somebody_else_reads_it),
        cmocka_unit_test(pruning_drops_what_nobody_reads),
        cmocka_unit_test(pruning_keeps_updates_and_whole_nodes),
        cmocka_unit_test(embedding_gradients_are_fused_and_norms_are_not),
        cmocka_unit_test(a_cache_is_kept_in_the_compute_dtype),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
