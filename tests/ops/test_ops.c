// The op table tests itself: what stands in ct_ops gets every check here with no code of its own. The report says for each op which
// indices were cut, which gradients were compared, which kernels were run, and the worst errors.
#include "example.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

enum { OPS_MAX = 256 };
typedef struct {
    finding of[OPS_MAX];
} report;

// ---- entries ----

static void every_entry_of_the_table_is_well_formed(void **state) {
    (void)state;
    for (int i = 0; ct_ops[i]; i++) check_entry(ct_ops[i]);
}

static void every_gradient_agrees_with_finite_differences(void **state) {
    report *r = *state;
    for (int i = 0; ct_ops[i]; i++) check_gradient(ct_ops[i], &r->of[i]);
}

static void every_op_is_linear_where_it_says_so(void **state) {
    report *r = *state;
    for (int i = 0; ct_ops[i]; i++) check_linear(ct_ops[i], &r->of[i]);
}

static void partial_sums_pass_where_an_op_says_so(void **state) {
    report *r = *state;
    for (int i = 0; ct_ops[i]; i++) check_shares(ct_ops[i], &r->of[i]);
}

static void every_sharding_agrees_with_one_rank(void **state) {
    report *r = *state;
    for (int i = 0; ct_ops[i]; i++) check_cuts(ct_ops[i], &r->of[i]);
}

static void every_kernel_agrees_with_its_reference(void **state) {
    report *r = *state;
    for (int i = 0; ct_ops[i]; i++) check_kernels(ct_ops[i], &r->of[i]);
    int missing = 0;
    for (int i = 0; ct_ops[i]; i++)
        if (r->of[i].missing[0]) missing++, print_message("no kernel: %s %s\n", ct_ops[i]->name, r->of[i].missing);
    assert_int_equal(missing, 0);
}

// ---- costs, against hand calculation ----

static double flops_of(ct_graph *g, ct_value y) { return ct_op_cost(g, &g->nodes[g->values[y.id].node]).flops; }

static void products_and_attention_count_their_flops(void **state) {
    (void)state;
    ct_graph g;
    ct_graph_init(&g, "p");
    ct_dim B = ct_dim_make("B", 2), T = ct_dim_make("T", 8), D = ct_dim_make("D", 16), H = ct_dim_make("H", 24);
    ct_value x = ct_build_input(&g, CT_FEED, "x", ct_type_make(CT_F32, 3, (ct_dim[]){B, T, D}));
    ct_value w = ct_build_input(&g, CT_PARAMETER, "w", ct_type_make(CT_F32, 2, (ct_dim[]){H, D}));
    ct_value first = ct_build_input(&g, CT_FEED, "first", ct_type_make(CT_I32, 0, NULL));
    ct_value y = ct_matmul(&g, x, w, 0);
    double product = 2.0 * 2 * 8 * 16 * 24;
    assert_float_equal(flops_of(&g, y), product, 0);
    assert_float_equal(flops_of(&g, ct_matmul_dx(&g, y, w)), product, 0);
    assert_float_equal(flops_of(&g, ct_matmul_dw(&g, y, x)), product, 0);
    assert_float_equal(flops_of(&g, ct_matmul_dw_acc(&g, w, y, x, first)), product, 0);
    ct_dim G = ct_dim_make("G", 2), Q = ct_dim_make("Q", 3), d = ct_dim_make("d", 4);
    ct_value q = ct_build_input(&g, CT_FEED, "q", ct_type_make(CT_F32, 5, (ct_dim[]){B, T, G, Q, d}));
    ct_value k = ct_build_input(&g, CT_FEED, "k", ct_type_make(CT_F32, 4, (ct_dim[]){B, T, G, d}));
    ct_value pos = ct_build_input(&g, CT_FEED, "pos", ct_type_make(CT_I32, 2, (ct_dim[]){B, T}));
    ct_value lse, dq, dk, dv;
    ct_attention_mask mask = {pos, pos, pos, pos};
    ct_value o = ct_attention(&g, q, k, k, mask, 0.5, &lse);
    double causal = 2.0 * 2 * (2 * 2 * 3 * 4) * 8 * (8 + 1) / 2; // 2·2·B·G·Q·d·T·(S+1)/2
    assert_float_equal(flops_of(&g, o), causal, 0);
    ct_attention_grad(&g, o, q, k, k, o, lse, mask, 0.5, &dq, &dk, &dv);
    assert_float_equal(flops_of(&g, dq), 2.5 * causal, 0);
    ct_status status = ct_graph_status(&g);
    if (status) fail_msg("%s", ct_error_text(status));
    ct_graph_deinit(&g);
}

static int print_report(void **state) {
    const report *r = *state;
    printf("\n%-20s %-8s %-8s %-8s %-8s %-20s %-8s %-12s %-8s %-8s %-8s kernels\n", "op", "linear", "error", "partial", "error",
           "gradient of inputs", "error", "cut in", "error", "f32 err", "bf16 err");
    for (int i = 0; ct_ops[i]; i++) {
        const finding *f = &r->of[i];
        printf("%-20s %-8s %-8.1e %-8s %-8.1e %-20s %-8.1e %-12s %-8.1e %-8.1e %-8.1e %s\n", ct_ops[i]->name, f->linear, f->linear_error,
               f->shared, f->share_error, f->gradient, f->gradient_error, f->cuts, f->cut_error, f->kernel_error[CT_F32],
               f->kernel_error[CT_BF16], f->kernels);
        printf("    %s\n", ct_ops[i]->check ? "(a view)" : ct_ops[i]->rule);
    }
    return 0;
}

static report the_report; // cmocka hands state on only within a test; the group's is this

static int start_report(void **state) {
    *state = &the_report;
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_entry_of_the_table_is_well_formed),
        cmocka_unit_test(products_and_attention_count_their_flops),
        cmocka_unit_test(every_op_is_linear_where_it_says_so),
        cmocka_unit_test(partial_sums_pass_where_an_op_says_so),
        cmocka_unit_test(every_gradient_agrees_with_finite_differences),
        cmocka_unit_test(every_sharding_agrees_with_one_rank),
        cmocka_unit_test(every_kernel_agrees_with_its_reference),
    };
    return cmocka_run_group_tests_name("ops", tests, start_report, print_report);
}
