// A plugin's ops pass what the table's own ops have to: well-formed, gradients against finite differences, every index that may be cut on 2 and 3
// ranks, linear where they say so, kernels against the reference on any threads and in pieces.
#include "../ops/example.h"
#include "plugins/plugins.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static const char *path_of(const char *name) {
    static char path[4096];
    const char *binary = getenv("CT_BINARY"), *slash = strrchr(binary, '/');
    snprintf(path, sizeof path, "%.*s/%s", (int)(slash - binary), binary, name);
    return path;
}

static void a_plugins_ops_pass_the_tables_checks(void **state) {
    (void)state;
    const char *path = path_of("grouped_matmul.so");
    ct_status status = ct_plugins_load(&path, 1);
    if (!status) status = ct_plugins_load(&path, 1); // twice is fine
    if (status) fail_msg("%s", ct_error_text(status));
    static const char *const names[] = {"grouped_matmul", "grouped_matmul_dx", "grouped_matmul_dw"};
    for (int i = 0; i < 3; i++) {
        const ct_op *op = ct_op_find(names[i]);
        assert_non_null(op);
        finding found = {.op = op};
        check_entry(op);
        if (op->grad) check_gradient(op, &found);
        check_linear(op, &found);
        check_cuts(op, &found);
        check_kernels(op, &found);
        printf("%-18s gradient of %s off by %.1e; cut in %s off by %.1e; kernels %s\n", op->name, found.gradient, found.gradient_error, found.cuts,
               found.cut_error, found.kernels);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_plugins_ops_pass_the_tables_checks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
