// Any mesh gives one rank's losses (a few of the loss matrix' cells; `scripts/loss-matrix` has them all), and splitting a batch over ranks
// gives the bits of accumulating it on one, losses and norms, with any recomputation and any number of threads.
#include "matrix.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
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

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(batch_splits_have_the_bits_of_accumulating),
        cmocka_unit_test(every_axis_gives_the_losses_of_one_rank),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
