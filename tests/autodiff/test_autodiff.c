// Golden IR: small graphs as text before and after differentiation, the second written by hand.
#include "autodiff/autodiff.h"
#include "ops/ops.h"

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

static void parse(ct_graph *graph, const char *text) {
    assert_ok(ct_graph_parse(graph, text, "test", ct_op_find));
    assert_ok(ct_graph_verify(graph));
}

// `added` is what differentiation adds to `before`: the text of both together is the graph that is wanted.
static void check(const char *before, const char *added) {
    ct_graph got, wanted;
    ct_string whole = {0}, a = {0}, b = {0};
    ct_string_add(&whole, "%.*s%s}", (int)(strrchr(before, '}') - before), before, added);
    parse(&got, before);
    assert_ok(ct_autodiff_apply(&got, "loss"));
    assert_ok(ct_graph_verify(&got));
    parse(&wanted, whole.text);
    ct_graph_print(&got, &a);
    ct_graph_print(&wanted, &b);
    if (strcmp(a.text, b.text)) fail_msg("got:\n%s\nwanted:\n%s", a.text, b.text);
    ct_string_deinit(&whole), ct_string_deinit(&a), ct_string_deinit(&b);
    ct_graph_deinit(&wanted);
    ct_graph_deinit(&got);
}

#define LOSS_DIMS "program micro {\n dim B batch dim T sequence dim D model dim V vocabulary dim N heads dim H heads dim d none\n"
#define LABELS " %0 = feed tokens : i32[B=2, T=3]\n %1 = feed labels : i32[B=2, T=3]\n %2 = feed inv_count : f32[]\n"
#define BTD "f32[B=2, T=3, D=4]"

// The embedding's use is the first, the head's the second; each has its accumulator, made where backward comes by: the head's first.
static void a_tied_weight_has_an_accumulator_for_each_use(void **state) {
    (void)state;
    check(LOSS_DIMS LABELS " %3 = parameter e : f32[V=5, D=4]\n"
                           " %4 = embed(%3, %0) : " BTD " @ forward e\n"
                           " %5, %6, %7 = lm_loss(%4, %3, %1, %2) : f32[B=2, T=3], " BTD ", f32[V=5, D=4] @ forward head\n"
                           " output loss = %5\n}",
          " %8 = feed first : i32[]\n"
          " %9 = gradient \"e.grad.1\" : f32[V=5, D=4]\n"
          " %10 = accumulate(%9, %7, %8) : f32[V=5, D=4] @ weight-grad head\n"
          " %11 = embed_dw(%6, %0) {rows=5} : f32[V=5, D=4] @ weight-grad e\n"
          " %12 = gradient \"e.grad\" : f32[V=5, D=4]\n"
          " %13 = accumulate(%12, %11, %8) : f32[V=5, D=4] @ weight-grad e\n"
          " update \"e.grad.1\" = %10 update \"e.grad\" = %13\n");
}

// x is read by two products and by a sum with itself: its contributions come last reader first, each added where it comes.
static void contributions_of_a_values_readers_are_added(void **state) {
    (void)state;
    check(LOSS_DIMS LABELS " %3 = parameter e : f32[V=5, D=4]\n %4 = parameter a : f32[D=4, D=4]\n %5 = parameter h : f32[V=5, D=4]\n"
                           " %6 = embed(%3, %0) : " BTD " @ forward e layer 0\n"
                           " %7 = matmul(%6, %4) {out_f32=0} : " BTD " @ forward a layer 1\n"
                           " %8 = add(%6, %6) : " BTD " @ forward twice layer 2\n"
                           " %9 = add(%7, %8) : " BTD " @ forward sum layer 3\n"
                           " %10, %11, %12 = lm_loss(%9, %5, %1, %2) : f32[B=2, T=3], " BTD ", f32[V=5, D=4] @ forward head\n"
                           " output loss = %10\n}",
          " %13 = feed first : i32[]\n"
          " %14 = gradient \"h.grad\" : f32[V=5, D=4]\n"
          " %15 = accumulate(%14, %12, %13) : f32[V=5, D=4] @ weight-grad head\n"
          " %16 = add(%11, %11) : " BTD " @ input-grad twice layer 2\n" // %6 twice of %8; the sum's own operands get %11 as it is
          " %17 = matmul_dx(%11, %4) : " BTD " @ input-grad a layer 1\n"
          " %18 = matmul_dw(%11, %6) : f32[D=4, D=4] @ weight-grad a layer 1\n"
          " %19 = add(%16, %17) : " BTD " @ input-grad a layer 1\n"
          " %20 = gradient \"a.grad\" : f32[D=4, D=4]\n"
          " %21 = accumulate(%20, %18, %13) : f32[D=4, D=4] @ weight-grad a layer 1\n"
          " %22 = embed_dw(%19, %0) {rows=5} : f32[V=5, D=4] @ weight-grad e layer 0\n"
          " %23 = gradient \"e.grad\" : f32[V=5, D=4]\n"
          " %24 = accumulate(%23, %22, %13) : f32[V=5, D=4] @ weight-grad e layer 0\n"
          " update \"h.grad\" = %15 update \"a.grad\" = %21 update \"e.grad\" = %24\n");
}

// What the loss does not depend on has no gradient: a branch beside it, a parameter read only there, feeds; views are undone by views.
static void what_the_loss_does_not_depend_on_gets_nothing(void **state) {
    (void)state;
    check(LOSS_DIMS LABELS " %3 = feed x : " BTD "\n %4 = parameter a : f32[D=4, D=4]\n %5 = parameter h : f32[V=5, D=4]\n"
                           " %6 = parameter b : f32[D=4, D=4]\n"
                           " %7 = matmul(%3, %6) {out_f32=0} : " BTD " @ forward beside\n"
                           " %8 = matmul(%3, %4) {out_f32=0} : " BTD " @ forward a\n"
                           " %9 = split(%8) {dim=2, parts=2} : f32[B=2, T=3, H=2, d=2] @ forward a\n"
                           " %10 = merge(%9) {dim=2, count=2} : " BTD " @ forward a\n"
                           " %11, %12, %13 = lm_loss(%10, %5, %1, %2) : f32[B=2, T=3], " BTD ", f32[V=5, D=4] @ forward head\n"
                           " output loss = %11\n output beside = %7\n}",
          " %14 = feed first : i32[]\n"
          " %15 = gradient \"h.grad\" : f32[V=5, D=4]\n"
          " %16 = accumulate(%15, %13, %14) : f32[V=5, D=4] @ weight-grad head\n"
          " %17 = split(%12) {dim=2, parts=2} : f32[B=2, T=3, H=2, d=2] @ input-grad a\n"
          " %18 = merge(%17) {dim=2, count=2} : " BTD " @ input-grad a\n"
          " %19 = matmul_dx(%18, %4) : " BTD " @ input-grad a\n" // nobody reads it: x is a feed; pruned later
          " %20 = matmul_dw(%18, %3) : f32[D=4, D=4] @ weight-grad a\n"
          " %21 = gradient \"a.grad\" : f32[D=4, D=4]\n"
          " %22 = accumulate(%21, %20, %14) : f32[D=4, D=4] @ weight-grad a\n"
          " update \"h.grad\" = %16 update \"a.grad\" = %22\n");
}

// A parameter's uses are numbered among those that have a gradient, so that whoever adds them up finds them from 0 on.
static void uses_without_a_gradient_are_not_counted(void **state) {
    (void)state;
    check(LOSS_DIMS LABELS " %3 = feed x : " BTD "\n %4 = parameter a : f32[D=4, D=4]\n %5 = parameter h : f32[V=5, D=4]\n"
                           " %6 = matmul(%3, %4) {out_f32=0} : " BTD " @ forward beside\n"
                           " %7 = matmul(%3, %4) {out_f32=0} : " BTD " @ forward a\n"
                           " %8, %9, %10 = lm_loss(%7, %5, %1, %2) : f32[B=2, T=3], " BTD ", f32[V=5, D=4] @ forward head\n"
                           " output loss = %8\n output beside = %6\n}",
          " %11 = feed first : i32[]\n"
          " %12 = gradient \"h.grad\" : f32[V=5, D=4]\n"
          " %13 = accumulate(%12, %10, %11) : f32[V=5, D=4] @ weight-grad head\n"
          " %14 = matmul_dx(%9, %4) : " BTD " @ input-grad a\n"
          " %15 = matmul_dw(%9, %3) : f32[D=4, D=4] @ weight-grad a\n"
          " %16 = gradient \"a.grad\" : f32[D=4, D=4]\n"
          " %17 = accumulate(%16, %15, %11) : f32[D=4, D=4] @ weight-grad a\n"
          " update \"h.grad\" = %13 update \"a.grad\" = %17\n");
}

static void only_an_output_can_be_differentiated(void **state) {
    (void)state;
    ct_graph g;
    parse(&g, LOSS_DIMS " %0 = feed x : f32[D=4]\n output y = %0\n}");
    ct_status status = ct_autodiff_apply(&g, "loss");
    assert_non_null(status);
    assert_string_equal(ct_error_text(status), "program micro has no output \"loss\" to differentiate");
    ct_graph_deinit(&g);
}

static void a_gradient_through_a_statistic_is_refused(void **state) {
    (void)state;
    ct_graph g;
    parse(&g, LOSS_DIMS " %0 = feed x : " BTD "\n %1 = parameter w : f32[D=4]\n"
                        " %2, %3 = rmsnorm(%0, %1) {eps=0} : " BTD ", f32[B=2, T=3] @ forward n\n"
                        " output loss = %3\n}");
    ct_status status = ct_autodiff_apply(&g, "loss");
    assert_non_null(status);
    assert_int_equal(ct_error_code(status), CT_INVALID);
    assert_non_null(strstr(ct_error_text(status), "rmsnorm is not differentiated through rstd (node 0)"));
    ct_graph_deinit(&g);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_tied_weight_has_an_accumulator_for_each_use),
        cmocka_unit_test(contributions_of_a_values_readers_are_added),
        cmocka_unit_test(what_the_loss_does_not_depend_on_gets_nothing),
        cmocka_unit_test(uses_without_a_gradient_are_not_counted),
        cmocka_unit_test(only_an_output_can_be_differentiated),
        cmocka_unit_test(a_gradient_through_a_statistic_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
