// Is an entry of the op table well-formed?
#include "example.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>

static void check_dtypes(const ct_op *op) {
    const char *arrow = strchr(op->dtypes, '>');
    if (!arrow) fail_msg("%s: no '>' in its dtypes", op->name);
    if (op->inputs >= 0) assert_int_equal(arrow - op->dtypes, op->inputs);
    assert_int_equal((int)strlen(arrow + 1), op->outputs);
    for (int i = 0; i < op->inputs; i++)
        if (op->flags & CT_OP_LOWP0 << i && op->dtypes[i] != 'c') fail_msg("%s: operand %d is LOWP and not 'c'", op->name, i);
}

void check_entry(const ct_op *op) {
    assert_ptr_equal(ct_op_find(op->name), op);
    assert_true(op->formula && *op->formula);
    assert_true(op->outputs >= 1 && op->outputs <= CT_MAX_OUTPUTS && op->inputs <= CT_MAX_INPUTS);
    check_dtypes(op);
    if (!(op->flags & (CT_OP_VIEW | CT_OP_MOVE)) && !op->reference) fail_msg("%s has no reference", op->name);
    if (!op->check) {
        ct_rule rule;
        ct_status status = ct_rule_parse(op->rule, &rule);
        if (status) fail_msg("%s", ct_error_text(status));
        assert_int_equal(rule.inputs, op->inputs);
        assert_int_equal(rule.outputs, op->outputs);
    }
    for (unsigned seed = 0; seed < 3; seed++) {
        example e;
        ct_graph graph;
        example_init(&e, op, seed ? CT_F32 : CT_BF16, SMALL, seed);
        int node = example_build(&e, &graph);
        for (int i = 0; i < e.outputs; i++) {
            const ct_type *out = &graph.values[graph.nodes[node].outputs[i]].type;
            if (op->must_alias[i] && !(op->flags & CT_OP_VIEW)) assert_true(ct_type_equal(out, &e.in[op->must_alias[i] - 1]));
            assert_true(op->may_alias[i] >> e.inputs == 0);
        }
        ct_cost cost = ct_op_cost(&graph, &graph.nodes[node]);
        assert_true(cost.flops >= 0 && (op->flags & CT_OP_VIEW ? cost.bytes_read == 0 : cost.bytes_written > 0));
        ct_graph_deinit(&graph);
        example_deinit(&e);
    }
}
