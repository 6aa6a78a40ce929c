// The verifier: what it lets through, and each thing that it must refuse, with a message that names node and value.
#include "ops/ops.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#define HEAD                                                                                                           \
    "program p {\n dim D model\n dim N none\n dim W none\n %0 = feed \"x\" : f32[D=4]\n %1 = gradient \"acc\" : f32[D=4]\n"        \
    " %2 = feed \"first\" : i32[]\n"

static void parse(ct_graph *g, const char *text) {
    ct_status status = ct_graph_parse(g, text, "text", ct_op_find);
    if (status) fail_msg("%s", ct_error_text(status));
}

static void assert_accepted(const char *text) {
    ct_graph g;
    parse(&g, text);
    ct_status status = ct_graph_verify(&g);
    if (status) fail_msg("%s", ct_error_text(status));
    ct_graph_deinit(&g);
}

static void assert_rejected_graph(ct_graph *g, const char *wanted) {
    ct_status status = ct_graph_verify(g);
    if (!status) fail_msg("accepted; wanted: %s", wanted);
    assert_int_equal(ct_error_code(status), CT_INVALID);
    assert_string_equal(ct_error_text(status), wanted);
    ct_graph_deinit(g);
}

static void assert_rejected(const char *text, const char *wanted) {
    ct_graph g;
    parse(&g, text);
    assert_rejected_graph(&g, wanted);
}

static void verifier_accepts_a_state_updated_in_place(void **state) {
    (void)state;
    assert_accepted(HEAD " %3 = accumulate(%1, %0, %2) : f32[D=4] @ forward a\n update acc = %3 }");
}

static void verifier_accepts_reads_of_a_state_before_its_update(void **state) {
    (void)state;
    assert_accepted(HEAD " %3 = add(%1, %0) : f32[D=4] @ forward a\n %4 = accumulate(%1, %3, %2) : f32[D=4] @ forward a\n"
                         " %5 = add(%4, %0) : f32[D=4] @ forward a\n update acc = %4 output y = %5 }");
}

static void verifier_accepts_two_updates_in_a_row_and_views_between_them(void **state) {
    (void)state;
    assert_accepted(HEAD " %3 = accumulate(%1, %0, %2) : f32[D=4] @ forward a\n"
                         " %4 = split(%3) {dim=0, parts=2} : f32[N=2, D=2] @ forward a\n"
                         " %5 = merge(%4) {dim=0, count=2} : f32[D=4] @ forward a\n"
                         " %6 = accumulate(%5, %0, %2) : f32[D=4] @ forward a\n update acc = %6 }");
}

static void verifier_rejects_a_use_before_definition(void **state) {
    (void)state;
    assert_rejected(HEAD " %3 = add(%4, %0) : f32[D=4] @ forward a\n %4 = add(%0, %0) : f32[D=4] @ forward b }",
                    "%4 is used before its definition, node 1 (operand 0; node 0, add in 'a'; program p)");
}

static void verifier_rejects_a_node_that_uses_itself(void **state) {
    (void)state;
    assert_rejected(HEAD " %3 = add(%0, %3) : f32[D=4] @ forward a }",
                    "%3 is used before its definition, node 0 (operand 1; node 0, add in 'a'; program p)");
}

static void verifier_rejects_a_type_that_the_op_does_not_give(void **state) {
    (void)state;
    assert_rejected(HEAD " %3 = add(%0, %0) : f32[D=5] @ forward layers.0.a layer 0 }",
                    "%3 is f32[D=5], but the op gives f32[D=4] (node 0, add in 'layers.0.a'; program p)");
    assert_rejected(HEAD " %3 = add(%0, %0) : bf16[D=4] @ forward a }",
                    "%3 is bf16[D=4], but the op gives f32[D=4] (node 0, add in 'a'; program p)");
    assert_rejected(HEAD " %3 = add(%0, %0) : f32[N=4] @ forward a }",
                    "%3 is f32[N=4], but the op gives f32[D=4] (node 0, add in 'a'; program p)");
}

static void verifier_rejects_operands_that_do_not_fit(void **state) {
    (void)state;
    assert_rejected(HEAD " %3 = add(%0) : f32[D=4] @ forward a }", "1 operands, wanted 2 (node 0, add in 'a'; program p)");
    assert_rejected(HEAD " %3 = add(%0, %2) : f32[D=4] @ forward a }",
                    "operand 1 is i32, wanted f32 or bf16 (node 0, add in 'a'; program p)");
    assert_rejected(HEAD " %3 = concat() {dim=0} : f32[D=4] @ forward a }",
                    "no operands, wanted 1 or more (node 0, concat in 'a'; program p)");
}

static void verifier_rejects_views_that_are_none(void **state) {
    (void)state;
    assert_rejected(HEAD " %3 = split(%0) {dim=0, parts=2} : f32[N=2, D=3] @ forward a }",
                    "factors of D=4 multiply to 6 (node 0, split in 'a'; program p)");
    assert_rejected(HEAD " %3 = split(%0) {dim=1, parts=2} : f32[N=2, D=2] @ forward a }",
                    "dim 1 of 1 dims (node 0, split in 'a'; program p)");
    assert_rejected(HEAD " %3 = slice(%0) {dim=0, start=2} : f32[N=3] @ forward a }",
                    "[2, 5) of D=4 (node 0, slice in 'a'; program p)");
    assert_rejected(HEAD " %3 = concat(%0, %0) {dim=0} : f32[D=9] @ forward a }",
                    "parts of 8 for D=9 (node 0, concat in 'a'; program p)");
    assert_rejected(HEAD " %3 = merge(%0) {dim=0, count=1e300} : f32[D=4] @ forward a }",
                    "1 dims for 1 with one made of 1e+300 (node 0, merge in 'a'; program p)");
}

static void verifier_rejects_attributes_that_are_no_numbers(void **state) {
    (void)state;
    assert_rejected("program p { %0 = feed x : f32[] %1 = clip_factor(%0) {max_norm=nan} : f32[] @ optimizer a }",
                    "max_norm = nan (node 0, clip_factor in 'a'; program p)");
    assert_rejected(HEAD " %3 = cast(%0) {to=9} : f32[D=4] @ forward a }", "to = 9 is no dtype (node 0, cast in 'a'; program p)");
}

static void verifier_rejects_two_inputs_of_one_name(void **state) {
    (void)state;
    assert_rejected("program p { %0 = feed x : f32[] %1 = feed x : f32[] }", "two inputs are named 'x' (program p)");
    assert_rejected("program p { %0 = feed x : f32[] output y = %0 output y = %0 }", "two outputs are named 'y' (program p)");
}

static void verifier_rejects_a_dim_without_a_role(void **state) {
    (void)state;
    assert_rejected("program p { dim D model %0 = feed x : f32[D=1, E=2] }", "%0: dim 'E' has no declared role (input 'x'; program p)");
}

static void verifier_rejects_an_update_of_another_type(void **state) {
    (void)state;
    assert_rejected(HEAD " %3 = accumulate(%1, %0, %2) : f32[D=4] @ forward a\n"
                         " %4 = split(%3) {dim=0, parts=2} : f32[N=2, D=2] @ forward a\n update acc = %4 }",
                    "its update %4 has another type (input 'acc', %1; program p)");
}

static void verifier_rejects_an_update_that_stands_elsewhere(void **state) {
    (void)state;
    assert_rejected(HEAD " %3 = add(%1, %0) : f32[D=4] @ forward a\n update acc = %3 }",
                    "%1 is read by node 0, add in 'a' although its update %3 is made in its memory before (input 'acc', %1; program p)");
    assert_rejected(HEAD " %3 = accumulate(%1, %0, %2) : f32[D=4] @ forward a\n update acc = %3 update x = %3 }",
                    "its update %3 is another input (input 'x', %0; program p)");
    assert_rejected(HEAD " update acc = %0 }", "its update %0 is another input (input 'acc', %1; program p)");
}

static void verifier_accepts_an_update_that_replaces_what_nobody_reads_later(void **state) {
    (void)state;
    assert_accepted(HEAD " %3 = add(%1, %0) : f32[D=4] @ forward a\n %4 = add(%3, %0) : f32[D=4] @ forward a\n update acc = %4 }");
}

static void verifier_rejects_a_replacement_that_is_overwritten_itself(void **state) {
    (void)state;
    assert_rejected(HEAD " %3 = add(%0, %0) : f32[D=4] @ forward a\n %4 = accumulate(%3, %0, %2) : f32[D=4] @ forward b\n update acc = %3 }",
                    "%3 is read after its memory was overwritten by node 1, accumulate in 'b' (its update; input 'acc', %1; program p)");
}

static void verifier_rejects_an_output_that_is_replaced(void **state) {
    (void)state;
    assert_rejected(HEAD " %3 = add(%0, %0) : f32[D=4] @ forward a\n update acc = %3 output old = %1 }",
                    "output 'old', %1, is what its update %3 replaces (input 'acc', %1; program p)");
}

static void verifier_rejects_one_update_for_two_inputs(void **state) {
    (void)state;
    assert_rejected(HEAD " %3 = add(%0, %0) : f32[D=4] @ forward a\n update x = %3 update acc = %3 }",
                    "%0 is read by node 0, add in 'a' although its update %3 is made in its memory before (input 'x', %0; program p)");
    assert_rejected(HEAD " %3 = gradient b : f32[D=4] %4 = add(%0, %0) : f32[D=4] @ forward a\n update acc = %4 update b = %4 }",
                    "its update %4 shares memory with the update of input 'acc' (input 'b', %3; program p)");
}

static void verifier_rejects_a_read_of_what_was_overwritten(void **state) {
    (void)state;
    assert_rejected(HEAD " %3 = accumulate(%1, %0, %2) : f32[D=4] @ forward a\n %4 = add(%1, %0) : f32[D=4] @ forward b\n update acc = %3 }",
                    "%1 is read after its memory was overwritten by node 0, accumulate in 'a' (node 1, add in 'b'; program p)");
}

static void verifier_rejects_a_read_through_a_view_of_what_was_overwritten(void **state) {
    (void)state;
    assert_rejected(HEAD " %3 = split(%1) {dim=0, parts=2} : f32[N=2, D=2] @ forward a\n"
                         " %4 = accumulate(%1, %0, %2) : f32[D=4] @ forward b\n"
                         " %5 = add(%3, %3) : f32[N=2, D=2] @ forward c\n update acc = %4 }",
                    "%3 is read after its memory was overwritten by node 1, accumulate in 'b' (node 2, add in 'c'; program p)");
}

static void verifier_rejects_an_output_that_was_overwritten(void **state) {
    (void)state;
    assert_rejected(HEAD " %3 = accumulate(%1, %0, %2) : f32[D=4] @ forward a\n update acc = %3 output old = %1 }",
                    "%1 is read after its memory was overwritten by node 0, accumulate in 'a' (output 'old'; program p)");
}

static void verifier_rejects_an_update_that_is_not_the_last(void **state) {
    (void)state;
    assert_rejected(HEAD " %3 = accumulate(%1, %0, %2) : f32[D=4] @ forward a\n %4 = accumulate(%3, %0, %2) : f32[D=4] @ forward b\n"
                         " update acc = %3 }",
                    "%3 is read after its memory was overwritten by node 1, accumulate in 'b' (its update; input 'acc', %1; program p)");
}

static void verifier_rejects_an_input_overwritten_without_an_update(void **state) {
    (void)state;
    assert_rejected(HEAD " %3 = accumulate(%1, %0, %2) : f32[D=4] @ forward a }",
                    "input 'acc', %1, is overwritten by node 0, accumulate in 'a' and has no update (program p)");
}

static void verifier_rejects_an_operand_in_the_memory_that_is_overwritten(void **state) {
    (void)state;
    assert_rejected(HEAD " %3 = accumulate(%1, %1, %2) : f32[D=4] @ forward a\n update acc = %3 }",
                    "operand 1, %1, shares memory with operand 0, which is overwritten (node 0, accumulate in 'a'; program p)");
}

static void verifier_rejects_a_write_through_a_concat(void **state) {
    (void)state;
    assert_rejected(HEAD " %3 = add(%0, %0) : f32[D=4] @ forward a\n %4 = concat(%3, %0) {dim=0} : f32[D=8] @ forward a\n"
                         " %5 = accumulate(%4, %4, %2) : f32[D=8] @ forward b }",
                    "operand 1, %4, shares memory with operand 0, which is overwritten (node 2, accumulate in 'b'; program p)");
}

static void verifier_rejects_records_that_disagree(void **state) {
    (void)state;
    ct_graph g;
    parse(&g, HEAD " %3 = add(%0, %0) : f32[D=4] @ forward a }");
    g.values[3].node = 7;
    assert_rejected_graph(&g, "%3 is defined twice, or its record is wrong (node 0, add in 'a'; program p)");
    parse(&g, HEAD " %3 = add(%0, %0) : f32[D=4] @ forward a }");
    g.nodes[0].inputs[1] = 99;
    assert_rejected_graph(&g, "%99 is not defined (operand 1; node 0, add in 'a'; program p)");
    parse(&g, HEAD " %3 = add(%0, %0) : f32[D=4] @ forward a }");
    g.nodes[0].from.layer = -2;
    assert_rejected_graph(&g, "bad provenance (node 0, add in 'a'; program p)");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(verifier_accepts_a_state_updated_in_place),
        cmocka_unit_test(verifier_accepts_reads_of_a_state_before_its_update),
        cmocka_unit_test(verifier_accepts_two_updates_in_a_row_and_views_between_them),
        cmocka_unit_test(verifier_rejects_a_use_before_definition),
        cmocka_unit_test(verifier_rejects_a_node_that_uses_itself),
        cmocka_unit_test(verifier_rejects_a_type_that_the_op_does_not_give),
        cmocka_unit_test(verifier_rejects_operands_that_do_not_fit),
        cmocka_unit_test(verifier_rejects_views_that_are_none),
        cmocka_unit_test(verifier_rejects_attributes_that_are_no_numbers),
        cmocka_unit_test(verifier_rejects_two_inputs_of_one_name),
        cmocka_unit_test(verifier_rejects_a_dim_without_a_role),
        cmocka_unit_test(verifier_rejects_an_update_of_another_type),
        cmocka_unit_test(verifier_rejects_an_update_that_stands_elsewhere),
        cmocka_unit_test(verifier_accepts_an_update_that_replaces_what_nobody_reads_later),
        cmocka_unit_test(verifier_rejects_a_replacement_that_is_overwritten_itself),
        cmocka_unit_test(verifier_rejects_an_output_that_is_replaced),
        cmocka_unit_test(verifier_rejects_one_update_for_two_inputs),
        cmocka_unit_test(verifier_rejects_a_read_of_what_was_overwritten),
        cmocka_unit_test(verifier_rejects_a_read_through_a_view_of_what_was_overwritten),
        cmocka_unit_test(verifier_rejects_an_output_that_was_overwritten),
        cmocka_unit_test(verifier_rejects_an_update_that_is_not_the_last),
        cmocka_unit_test(verifier_rejects_an_input_overwritten_without_an_update),
        cmocka_unit_test(verifier_rejects_an_operand_in_the_memory_that_is_overwritten),
        cmocka_unit_test(verifier_rejects_a_write_through_a_concat),
        cmocka_unit_test(verifier_rejects_records_that_disagree),
    };
    return cmocka_run_group_tests_name("verify", tests, NULL, NULL);
}
