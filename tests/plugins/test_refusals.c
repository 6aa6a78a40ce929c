// What is no plugin is refused with one message that names it, and so is every mistake that a plugin can make with the host's functions.
#include "models/model.h"
#include "graph/op.h"
#include "ops/ops.h"
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

static void refused(const char *name, const char *words) {
    const char *path = path_of(name);
    for (int turn = 0; turn < 2; turn++) { // a second time, too
        ct_status status = ct_plugins_load(&path, 1);
        assert_non_null(status);
        if (!strstr(ct_error_text(status), words) || !strstr(ct_error_text(status), name)) fail_msg("%s: %s", name, ct_error_text(status));
    }
}

static void what_is_no_plugin_is_refused(void **state) {
    (void)state;
    refused("none.so", "cannot load it");
    refused("ctitan", "cannot load it");
    refused("bad_entry.so", "exports no function ctitan_plugin");
    refused("bad_host.so", "it says that it can't serve this ctitan");
    refused("bad_abi.so", "built for plugin ABI 77, this ctitan has 1");
    refused("bad_name.so", "there is an op matmul already");
    refused("bad_rule.so", "has no '->'");
    refused("bad_dtypes.so", "op new: the rule '* -> *' and the dtypes 'ff>f' do not fit its 1 inputs and 1 outputs");
    refused("bad_kernel.so", "op new: the kernel for 'f' has no function, or does not fit 1 inputs and 1 outputs");
    refused("bad_flags.so", "op new has flags 0x1 that mean nothing here");
    refused("bad_lowp.so", "op new: operand 0 is LOWP and not 'c'");
    refused("bad_source.so", "data source empty lacks open or read");
    assert_null(ct_op_find("new")); // a refused plugin adds nothing
}

static void a_mistake_in_a_model_is_one_message(void **state) {
    (void)state;
    static const struct {
        const char *flavor, *words;
    } cases[] = {
        {"words", "model mistaken: it is said in words"},
        {"no-parameters", "model mistaken lists no parameters"},
        {"many-dims", "its parameter w is there twice, or has no dims"},
        {"twice", "its parameter w is there twice"},
        {"unknown", "mistaken has no such flavour"},
        {"role", "role for a dim that has another, or none can have, \"T\" (in layers.3.wrong)"},
        {"role-number", "role for a dim that has another, or none can have, \"D\""},
        {"type", "feed has no type, or is there already, \"tokens\""},
        {"dim-name", "feed has no type"},
        {"parameter", "reads a parameter that it did not list, \"v\""},
        {"feed-twice", "feed has no type, or is there already, \"tokens\""},
        {"value", "node has an operand that is no value, op \"embed\""},
        {"operands", "1 operands, wanted 2"},
        {"many-operands", "too few or too many operands, op \"add\""},
        {"op", "node of an op that is not there, or a view, \"nothing\""},
        {"view", "node of an op that is not there, or a view, \"merge\""},
        {"shapes", "add in layers.3.wrong"},
        {"split", "split in layers.3.wrong"},
        {"split-dim", "split that does not fit its operand"},
        {"merge", "merge that does not fit its operand"},
        {"output", "output that is not there, of op \"embed\""},
        {"output-of-feed", "output of a value that no node made"},
        {"residual", "residual is no value"},
        {"loss", "token_loss is not f32[B T]"},
        {"none", "model does not say its token_loss: \"mistaken\""},
    };
    const char *path = path_of("mistakes.so");
    ct_status status = ct_plugins_load(&path, 1);
    if (status) fail_msg("%s", ct_error_text(status));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ct_arena arena = {0};
        ct_model model;
        ct_graph graph;
        ct_graph_init(&graph, "micro");
        status = ct_model_open(&arena, "mistaken", cases[i].flavor, NULL, 0, &model);
        if (!status) status = ct_model_build(&model, &graph, (ct_build_options){.batch = 2, .seq_len = 4, .kind = CT_BUILD_LOSS});
        if (!status || !strstr(ct_error_text(status), cases[i].words))
            fail_msg("%s: %s", cases[i].flavor, status ? ct_error_text(status) : "no error");
        ct_graph_deinit(&graph);
        ct_arena_deinit(&arena);
    }
}

static void a_gradient_that_is_no_value_is_an_error(void **state) {
    (void)state;
    const char *path = path_of("mistakes.so");
    assert_null(ct_plugins_load(&path, 1)); // twice is fine
    const ct_op *op = ct_op_find("wild");
    assert_non_null(op);
    ct_graph graph;
    ct_graph_init(&graph, "micro");
    ct_dim dim = ct_dim_make("D", 4);
    ct_value x = ct_build_input(&graph, CT_FEED, "x", ct_type_make(CT_F32, 1, &dim));
    int node = ct_build_node(&graph, op, 1, &x, NULL, NULL);
    ct_grad grad = {.graph = &graph, .node = node, .outputs = {x}, .inputs = {CT_NO_VALUE}};
    op->grad(&grad);
    assert_int_equal(grad.inputs[0].id, -1);
    ct_status status = ct_graph_status(&graph);
    assert_non_null(status);
    if (!strstr(ct_error_text(status), "gradient is no value, op \"wild\"")) fail_msg("%s", ct_error_text(status));
    ct_graph_deinit(&graph);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_no_plugin_is_refused),
        cmocka_unit_test(a_mistake_in_a_model_is_one_message),
        cmocka_unit_test(a_gradient_that_is_no_value_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
