// Any mesh gives one rank's losses (a few of the loss matrix' cells; `scripts/loss-matrix` has them all), and splitting a batch over ranks
// gives the bits of accumulating it on one, losses and norms, with any recomputation and any number of threads.
#include "matrix.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

enum { STEPS = 6 };

static mesh_result run(mesh_cell cell) {
    mesh_result r;
    ct_status status = mesh_run(&cell, STEPS, &r);
    char name[160];
    mesh_print(&cell, name, sizeof name);
    if (status) fail_msg("%s: %s", name, ct_error_text(status));
    return r;
}

static void check(mesh_cell cell, const mesh_result *alone, double most, int same_bits) {
    mesh_result r = run(cell);
    char name[160];
    mesh_print(&cell, name, sizeof name);
    int same;
    double error = mesh_compare(alone, &r, &same);
    printf("%-60s %.1e %s\n", name, error, same ? "same bits" : "");
    if (!(error <= most)) fail_msg("%s: losses differ by %.2e, at most %.0e", name, error, most);
    if (same_bits && !same) fail_msg("%s: losses or norms have other bits", name);
    mesh_result_free(&r);
}

static void batch_splits_have_the_bits_of_accumulating(void **state) {
    (void)state;
    mesh_result alone = run((mesh_cell){MESH(1, 1, 1, 1)});
    check((mesh_cell){MESH(2, 1, 1, 1)}, &alone, 0, 1);
    check((mesh_cell){MESH(1, 2, 1, 1)}, &alone, 0, 1);
    check((mesh_cell){MESH(1, 3, 1, 1), .recompute = "full"}, &alone, 0, 1);
    check((mesh_cell){MESH(2, 2, 1, 1), .reshard = "never"}, &alone, 0, 1);
    check((mesh_cell){MESH(2, 3, 1, 1), .recompute = "selective"}, &alone, 0, 1);
    check((mesh_cell){MESH(1, 8, 1, 1), .reshard = "always"}, &alone, 0, 1);
    check((mesh_cell){MESH(1, 2, 1, 1), .threads = 2}, &alone, 0, 1);
    mesh_result_free(&alone);
}

static void every_axis_gives_the_losses_of_one_rank(void **state) {
    (void)state;
    mesh_result alone = run((mesh_cell){MESH(1, 1, 1, 1)});
    check((mesh_cell){MESH(1, 1, 2, 1)}, &alone, 5e-6, 0);
    check((mesh_cell){MESH(1, 1, 3, 1)}, &alone, 5e-6, 0);
    check((mesh_cell){MESH(1, 1, 2, 1), .rotate = "alltoall"}, &alone, 5e-6, 0);
    check((mesh_cell){MESH(1, 1, 4, 1), .rotate = "alltoall", .recompute = "selective"}, &alone, 5e-6, 0);
    check((mesh_cell){MESH(1, 2, 3, 1), .rotate = "alltoall", .recompute = "full"}, &alone, 5e-6, 0);
    check((mesh_cell){MESH(1, 1, 1, 2)}, &alone, 5e-6, 0);
    check((mesh_cell){MESH(1, 1, 1, 3), .no_sp = 1}, &alone, 5e-6, 0);
    check((mesh_cell){MESH(1, 1, 1, 4), .no_loss_parallel = 1}, &alone, 5e-6, 0);
    check((mesh_cell){MESH(1, 1, 1, 8)}, &alone, 5e-6, 0);
    check((mesh_cell){MESH(1, 1, 2, 3), .recompute = "full"}, &alone, 5e-6, 0);
    check((mesh_cell){MESH(2, 1, 2, 2), .recompute = "selective"}, &alone, 5e-6, 0);
    check((mesh_cell){MESH(1, 2, 2, 2)}, &alone, 5e-6, 0);
    check((mesh_cell){MESH(2, 2, 1, 2), .no_sp = 1, .no_loss_parallel = 1}, &alone, 5e-6, 0);
    mesh_result_free(&alone);
}

// What changes the model or the order of sums, each against one rank of the same.
static void tied_weights_few_key_heads_and_late_sums_hold_as_well(void **state) {
    (void)state;
    static const char *const tied[] = {"--model.args.enable_weight_tying", NULL};
    static const char *const grouped[] = {"--model.args.n_kv_heads", "6", "--model.args.attn_mask_type", "block_causal", NULL};
    static const char *const late[] = {"--parallelism.gradient_reduction", "step", NULL};
    static const char *const late_tied[] = {"--parallelism.gradient_reduction", "step", "--model.args.enable_weight_tying", NULL};
    static const char *const plain[] = {"--parallelism.context_parallel_load_balancer", "none", NULL};
    mesh_result alone = run((mesh_cell){MESH(1, 1, 1, 1), .more = tied});
    check((mesh_cell){MESH(1, 3, 1, 1), .more = tied}, &alone, 0, 1);
    check((mesh_cell){MESH(2, 1, 1, 2), .more = tied}, &alone, 5e-6, 0);
    check((mesh_cell){MESH(1, 2, 1, 2), .more = late_tied}, &alone, 5e-6, 0);
    mesh_result_free(&alone);
    alone = run((mesh_cell){MESH(1, 1, 1, 1), .more = grouped});
    check((mesh_cell){MESH(1, 1, 1, 6), .more = grouped}, &alone, 5e-6, 0);
    check((mesh_cell){MESH(1, 1, 2, 3), .more = grouped}, &alone, 5e-6, 0);
    check((mesh_cell){MESH(1, 2, 4, 1), .more = grouped, .rotate = "alltoall"}, &alone, 5e-6, 0);
    mesh_result_free(&alone);
    alone = run((mesh_cell){MESH(1, 1, 1, 1)});
    check((mesh_cell){MESH(2, 2, 1, 1), .more = late}, &alone, 5e-6, 0);
    check((mesh_cell){MESH(1, 2, 2, 2), .more = late}, &alone, 5e-6, 0);
    check((mesh_cell){MESH(1, 1, 4, 1), .more = plain}, &alone, 5e-6, 0);
    mesh_result_free(&alone);
}

// Compute in bf16: batch splits are still bit-identical; the rest within what bf16 does to one rank (it is 2e-4 of an fp32 run here).
static void bf16_keeps_what_it_can(void **state) {
    (void)state;
    mesh_result exact = run((mesh_cell){MESH(1, 1, 1, 1)}), alone = run((mesh_cell){MESH(1, 1, 1, 1), .dtype = "bfloat16"});
    int same;
    double own = mesh_compare(&exact, &alone, &same);
    printf("one rank's bf16 against fp32: %.1e\n", own);
    check((mesh_cell){MESH(2, 2, 1, 1), .dtype = "bfloat16"}, &alone, 0, 1);
    check((mesh_cell){MESH(1, 3, 1, 1), .dtype = "bfloat16", .recompute = "full"}, &alone, 0, 1);
    check((mesh_cell){MESH(1, 1, 1, 3), .dtype = "bfloat16"}, &exact, 2 * own, 0);
    check((mesh_cell){MESH(1, 1, 2, 2), .dtype = "bfloat16", .no_sp = 1}, &exact, 2 * own, 0);
    check((mesh_cell){MESH(1, 1, 2, 1), .dtype = "bfloat16", .rotate = "alltoall"}, &exact, 2 * own, 0);
    mesh_result_free(&alone);
    mesh_result_free(&exact);
}

// Where nodes end, and what is hidden behind what, changes no bit: messages begun early, sums ended late, products in parts, all in memory that
// holds NaN until something is written to it.
static void nodes_and_overlap_change_no_bit(void **state) {
    (void)state;
    static const char *const poison[] = {"--debug.poison", NULL}, *const late[] = {"--comm.no_overlap", NULL};
    const mesh_cell meshes[] = {{MESH(1, 2, 1, 2)}, {MESH(1, 1, 2, 2), .rotate = "alltoall"}, {MESH(1, 1, 1, 3), .dtype = "bfloat16"},
                                {MESH(2, 2, 1, 1), .recompute = "full"}, {MESH(1, 1, 1, 4), .no_sp = 1}, {MESH(1, 1, 2, 4), .recompute = "selective"}};
    for (size_t i = 0; i < sizeof meshes / sizeof *meshes; i++) {
        mesh_cell c = meshes[i];
        mesh_result near = run(c);
        c.per_node = 1;
        check(c, &near, 0, 1);
        c.async_tp = c.tp > 1;
        check(c, &near, 0, 1);
        c.more = late;
        check(c, &near, 0, 1);
        c.per_node = 2, c.more = poison;
        check(c, &near, 0, 1);
        mesh_result_free(&near);
    }
}

// Heads that a degree does not divide: one error that names the legal ones.
static void heads_that_cannot_be_cut_are_an_error(void **state) {
    (void)state;
    static const char *const grouped[] = {"--model.args.n_kv_heads", "6", NULL};
    mesh_cell cell = {MESH(1, 1, 1, 4), .more = grouped};
    mesh_result r;
    ct_status status = mesh_run(&cell, 1, &r);
    assert_non_null(status);
    assert_int_equal(ct_error_code(status), CT_INVALID);
    assert_non_null(strstr(ct_error_text(status), "heads can be cut in 1, 2, 3, 6"));
    mesh_result_free(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(batch_splits_have_the_bits_of_accumulating),
        cmocka_unit_test(every_axis_gives_the_losses_of_one_rank),
        cmocka_unit_test(tied_weights_few_key_heads_and_late_sums_hold_as_well),
        cmocka_unit_test(bf16_keeps_what_it_can),
        cmocka_unit_test(nodes_and_overlap_change_no_bit),
        cmocka_unit_test(heads_that_cannot_be_cut_are_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
