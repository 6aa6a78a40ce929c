// graph: builder, inference, printer and parser. Golden text is written by hand from graph.h's notation.
#include "ops/ops.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <cmocka.h>

static void assert_ok(ct_status status) {
    if (status) fail_msg("%s", ct_error_text(status));
}

static void assert_has(const char *text, const char *part) {
    if (!strstr(text, part)) fail_msg("'%s' does not say '%s'", text, part);
}

static char *print(const ct_graph *graph) {
    ct_string out = {0};
    ct_graph_print(graph, &out);
    return out.text;
}

static ct_type f32_type(int count, const ct_dim *dims) { return ct_type_make(CT_F32, count, dims); }

// A norm, a product, a loss sum kept as state; provenance with and without a layer.
static void build_small(ct_graph *g) {
    ct_graph_init(g, "micro");
    ct_dim B = ct_dim_make("B", 2), T = ct_dim_make("T", 3), D = ct_dim_make("D", 4), H = ct_dim_make("H", 5);
    ct_graph_role(g, "B", CT_ROLE_BATCH);
    ct_graph_role(g, "T", CT_ROLE_SEQUENCE);
    ct_graph_role(g, "D", CT_ROLE_MODEL);
    ct_graph_role(g, "H", CT_ROLE_HIDDEN);
    ct_value x = ct_build_input(g, CT_FEED, "x", f32_type(3, (ct_dim[]){B, T, D}));
    ct_value norm = ct_build_input(g, CT_PARAMETER, "norm.weight", f32_type(1, (ct_dim[]){D}));
    ct_value w = ct_build_input(g, CT_PARAMETER, "wq \"q\"", f32_type(2, (ct_dim[]){H, D}));
    ct_value total = ct_build_input(g, CT_STATE, "total", f32_type(3, (ct_dim[]){B, T, H}));
    ct_value first = ct_build_input(g, CT_FEED, "first", ct_type_make(CT_I32, 0, NULL));
    ct_graph_at(g, CT_FORWARD, 1, "layers.%d.norm", 1);
    ct_value h = ct_rmsnorm(g, x, norm, 1e-5);
    g->at.stage = 2;
    ct_graph_at(g, CT_RECOMPUTE, -1, "wq of 2");
    ct_value y = ct_matmul(g, h, w, 0);
    g->at.stage = 0;
    ct_graph_at(g, CT_FORWARD, -1, "%s", "");
    ct_value sum = ct_accumulate(g, total, y, first);
    ct_build_update(g, total, sum);
    ct_build_output(g, "y", y);
    assert_ok(ct_graph_status(g));
}

static const char small_text[] =
    "program micro {\n"
    "  dim B batch\n"
    "  dim T sequence\n"
    "  dim D model\n"
    "  dim H hidden\n"
    "  %0 = feed \"x\" : f32[B=2, T=3, D=4]\n"
    "  %1 = parameter \"norm.weight\" : f32[D=4]\n"
    "  %2 = parameter \"wq \\\"q\\\"\" : f32[H=5, D=4]\n"
    "  %3 = state \"total\" : f32[B=2, T=3, H=5]\n"
    "  %4 = feed \"first\" : i32[]\n"
    "  %5, %6 = rmsnorm(%0, %1) {eps=1e-05} : f32[B=2, T=3, D=4], f32[B=2, T=3] @ forward layers.1.norm layer 1\n"
    "  %7 = matmul(%5, %2) {out_f32=0} : f32[B=2, T=3, H=5] @ recompute \"wq of 2\" stage 2\n"
    "  %8 = accumulate(%3, %7, %4) : f32[B=2, T=3, H=5] @ forward \"\"\n"
    "  update \"total\" = %8\n"
    "  output \"y\" = %7\n"
    "}\n";

static void a_graph_prints_as_the_notation_says(void **state) {
    (void)state;
    ct_graph g;
    build_small(&g);
    assert_ok(ct_graph_verify(&g));
    char *text = print(&g);
    assert_string_equal(text, small_text);
    free(text);
    ct_graph_deinit(&g);
}

static void assert_same_node(const ct_node *a, const ct_node *b) {
    assert_ptr_equal(a->op, b->op);
    assert_int_equal(a->inputs_count, b->inputs_count);
    assert_int_equal(a->outputs_count, b->outputs_count);
    assert_memory_equal(a->inputs, b->inputs, sizeof(int) * (size_t)a->inputs_count);
    assert_memory_equal(a->outputs, b->outputs, sizeof(int) * (size_t)a->outputs_count);
    assert_memory_equal(a->attrs, b->attrs, sizeof a->attrs);
    assert_string_equal(a->from.module, b->from.module);
    assert_int_equal(a->from.phase, b->from.phase);
    assert_int_equal(a->from.layer, b->from.layer);
    assert_int_equal(a->from.stage, b->from.stage);
}

static void assert_same_graph(const ct_graph *a, const ct_graph *b) {
    assert_string_equal(a->name, b->name);
    assert_int_equal(a->values_count, b->values_count);
    for (int i = 0; i < a->values_count; i++) {
        assert_true(ct_type_equal(&a->values[i].type, &b->values[i].type));
        assert_int_equal(a->values[i].node, b->values[i].node);
        assert_int_equal(a->values[i].output, b->values[i].output);
    }
    assert_int_equal(a->nodes_count, b->nodes_count);
    for (int i = 0; i < a->nodes_count; i++) assert_same_node(&a->nodes[i], &b->nodes[i]);
    assert_int_equal(a->inputs_count, b->inputs_count);
    for (int i = 0; i < a->inputs_count; i++) {
        assert_string_equal(a->inputs[i].name, b->inputs[i].name);
        assert_int_equal(a->inputs[i].kind, b->inputs[i].kind);
        assert_int_equal(a->inputs[i].value, b->inputs[i].value);
        assert_int_equal(a->inputs[i].update, b->inputs[i].update);
    }
    assert_int_equal(a->outputs_count, b->outputs_count);
    for (int i = 0; i < a->outputs_count; i++) {
        assert_string_equal(a->outputs[i].name, b->outputs[i].name);
        assert_int_equal(a->outputs[i].value, b->outputs[i].value);
    }
    assert_int_equal(a->roles_count, b->roles_count);
    for (int i = 0; i < a->roles_count; i++) {
        assert_string_equal(a->roles[i].name, b->roles[i].name);
        assert_int_equal(a->roles[i].role, b->roles[i].role);
    }
}

static void parsing_a_print_gives_the_same_graph(void **state) {
    (void)state;
    ct_graph g, parsed;
    build_small(&g);
    assert_ok(ct_graph_parse(&parsed, small_text, "small", ct_op_find));
    assert_same_graph(&g, &parsed);
    assert_ok(ct_graph_verify(&parsed));
    ct_graph_deinit(&g);
    ct_graph_deinit(&parsed);
}

static void ids_with_gaps_and_out_of_order_survive(void **state) {
    (void)state;
    static const char text[] =
        "program gaps {\n"
        "  dim D model\n"
        "  %9 = feed \"x\" : bf16[D=4]\n"
        "  %2 = add(%9, %9) : bf16[D=4] @ forward a\n"
        "  %7 = add(%2, %9) : bf16[D=4] @ input-grad a layer 0\n"
        "  output \"y\" = %7\n"
        "}\n";
    ct_graph g;
    assert_ok(ct_graph_parse(&g, text, "gaps", ct_op_find));
    assert_ok(ct_graph_verify(&g));
    char *again = print(&g);
    assert_string_equal(again, text);
    free(again);
    ct_graph_deinit(&g);
}

static void white_space_and_comments_are_free(void **state) {
    (void)state;
    static const char text[] = "# a graph\nprogram \"micro\"{dim B batch dim T sequence\ndim \"D\" model dim H hidden\n"
                               "%0=feed \"x\":f32[B=2,T=3,D=4]%1=parameter \"norm.weight\" : f32[D=4] # a weight\n"
                               "%2=parameter \"wq \\u0022q\\u0022\":f32[H=5,D=4]%3=state total:f32[B=2,T=3,H=5]%4=feed first:i32[]\n"
                               "%5,\n%6=rmsnorm(%0,%1){eps=0.00001}:f32[B=2,T=3,D=4],f32[B=2,T=3]@forward layers.1.norm layer 1 stage 0\n"
                               "%7=matmul(%5,%2):f32[B=2,T=3,H=5]@recompute \"wq of 2\" stage 2\n"
                               "%8=accumulate(%3,%7,%4):f32[B=2,T=3,H=5]@forward \"\" layer -1\r\n"
                               "update total=%8 output y=%7}";
    ct_graph g;
    assert_ok(ct_graph_parse(&g, text, "free", ct_op_find));
    char *again = print(&g);
    assert_string_equal(again, small_text);
    free(again);
    ct_graph_deinit(&g);
}

static void numbers_survive_exactly(void **state) {
    (void)state;
    const double numbers[] = {0, -0.0, 1, 0.1, 1e-5, 1.0 / 3, 500000, 8192, 1e300, 4.9e-324, 3.0000000000000004, 123456789.5};
    const char *texts[] = {"0", "-0", "1", "0.1", "1e-05", "0.3333333333333333", "500000", "8192", "1e+300", NULL,
                           "3.0000000000000004", "123456789.5"};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        ct_graph g, parsed;
        ct_graph_init(&g, "n");
        ct_value norm = ct_build_input(&g, CT_FEED, "norm", f32_type(0, NULL));
        ct_build_output(&g, "clip", ct_clip_factor(&g, norm, numbers[i]));
        char *text = print(&g);
        assert_ok(ct_graph_parse(&parsed, text, "n", ct_op_find));
        assert_memory_equal(&parsed.nodes[0].attrs[0], &numbers[i], sizeof(double));
        char wanted[64];
        snprintf(wanted, sizeof wanted, "{max_norm=%s}", texts[i] ? texts[i] : "");
        if (texts[i]) assert_has(text, wanted);
        free(text);
        ct_graph_deinit(&parsed);
        ct_graph_deinit(&g);
    }
}

static void assert_parse_error(const char *text, const char *wanted) {
    ct_graph g;
    ct_status status = ct_graph_parse(&g, text, "f.graph", ct_op_find);
    if (!status) fail_msg("parsed: %s", text);
    assert_int_equal(ct_error_code(status), CT_INVALID);
    assert_string_equal(ct_error_text(status), wanted);
}

static void parse_errors_say_where_and_what_was_wanted(void **state) {
    (void)state;
#define HEAD "program p {\n  dim D model\n  %0 = feed \"x\" : f32[D=4]\n"
    assert_parse_error("", "f.graph:1:1: found end, wanted 'program'");
    assert_parse_error("programme", "f.graph:1:1: found 'programme', wanted 'program'");
    assert_parse_error("program p {", "f.graph:1:12: found end, wanted '%', axis, dim, update, output or '}'");
    assert_parse_error("program p {\n  dom D model }", "f.graph:2:3: found 'dom', wanted '%', axis, dim, update, output or '}'");
    assert_parse_error("program p { dim D modle }",
                       "f.graph:1:19: found 'modle', wanted a role: none, batch, sequence, heads, hidden, vocabulary, expert or model");
    assert_parse_error("program p { dim D model dim D batch }", "f.graph:1:29: found 'D', wanted a dim that is not declared yet");
    assert_parse_error("program p { dim LongDims model }", "f.graph:1:17: found 'LongDims', wanted a dim's name of at most 7 bytes");
    assert_parse_error(HEAD "  %0 = feed \"y\" : f32[] }", "f.graph:4:3: found '%0', wanted a value that is not defined yet");
    assert_parse_error(HEAD "  %1 = feed \"y\" : f16[] }", "f.graph:4:19: found 'f16', wanted a dtype: f32, bf16, f64, i32 or i64");
    assert_parse_error(HEAD "  %1 = feed \"y : f32[]\n }", "f.graph:4:13: found '\"', wanted a string that ends on its line");
    assert_parse_error(HEAD "  %1 = feed \"\\u00e9\" : f32[] }", "f.graph:4:14: found '\\u00e9', wanted an escape of a character below 128");
    assert_parse_error(HEAD "  %1 = feed \"y\" : f32[D=-1] }", "f.graph:4:25: found '-1', wanted an extent (at most 2^58 elements)");
    assert_parse_error(HEAD "  %1 = feed \"y\" : f32[D=9999999999, D=9999999999] }",
                       "f.graph:4:39: found '9999999999', wanted an extent (at most 2^58 elements)");
    assert_parse_error(HEAD "  %1 = feed \"y\" : f32[D=1,D=1,D=1,D=1,D=1,D=1,D=1] }", "f.graph:4:47: found 'D', wanted no more dims");
    assert_parse_error(HEAD "  %1 = sub(%0, %0) : f32[D=4] @ forward a }", "f.graph:4:8: found 'sub', wanted an op, or an input's kind");
    assert_parse_error(HEAD "  %1, %2 = add(%0, %0) : f32[D=4] @ forward a }", "f.graph:4:12: found 'add', wanted an op of 2 outputs");
    assert_parse_error(HEAD "  %1 = add(%0, %9) : f32[D=4] @ forward a }", "f.graph:4:16: found '%9', wanted a value that is defined somewhere");
    assert_parse_error(HEAD "  %99999999 = add(%0, %0) : f32[D=4] @ forward a }",
                       "f.graph:4:4: found '99999999', wanted a value's number, less than the bytes of the text");
    assert_parse_error(HEAD "  %1 = add(%0 %0) : f32[D=4] @ forward a }", "f.graph:4:15: found '%0', wanted ','");
    assert_parse_error(HEAD "  %1 = cast(%0) {from=1} : f32[D=4] @ forward a }", "f.graph:4:18: found 'from', wanted an attribute that the op has, once");
    assert_parse_error(HEAD "  %1 = cast(%0) {to=1, to=1} : f32[D=4] @ forward a }", "f.graph:4:24: found 'to', wanted an attribute that the op has, once");
    assert_parse_error(HEAD "  %1 = cast(%0) {to=bf16} : f32[D=4] @ forward a }", "f.graph:4:21: found 'bf16', wanted a number");
    assert_parse_error(HEAD "  %1 = cast(%0) {to=0} @ forward a }", "f.graph:4:24: found '@', wanted ':'");
    assert_parse_error(HEAD "  %1 = cast(%0) {to=0} : f32[D=4] }", "f.graph:4:35: found '}', wanted '@'");
    assert_parse_error(HEAD "  %1 = cast(%0) {to=0} : f32[D=4] @ backward a }",
                       "f.graph:4:37: found 'backward', wanted a phase: forward, recompute, input-grad, weight-grad or optimizer");
    assert_parse_error(HEAD "  %1 = cast(%0) {to=0} : f32[D=4] @ forward a layer x }", "f.graph:4:53: found 'x', wanted a layer's number");
    assert_parse_error(HEAD "  update \"y\" = %0 }", "f.graph:4:10: found '\"', wanted the name of an input");
    assert_parse_error(HEAD "  update \"x\" = %0 update \"x\" = %0 }", "f.graph:4:26: found '\"', wanted an input that has no update yet");
    assert_parse_error(HEAD "} }", "f.graph:4:3: found '}', wanted the end");
#undef HEAD
}

static void a_shape_that_does_not_fit_sticks_as_the_first_error(void **state) {
    (void)state;
    ct_graph g;
    ct_graph_init(&g, "p");
    ct_dim B = ct_dim_make("B", 2), T = ct_dim_make("T", 3), D = ct_dim_make("D", 4), K = ct_dim_make("K", 5);
    ct_value x = ct_build_input(&g, CT_FEED, "x", f32_type(3, (ct_dim[]){B, T, D}));
    ct_value w = ct_build_input(&g, CT_PARAMETER, "w", f32_type(2, (ct_dim[]){D, K}));
    ct_graph_at(&g, CT_FORWARD, 0, "layers.0.wq");
    ct_value y = ct_matmul(&g, x, w, 0);
    assert_int_equal(y.id, -1);
    assert_int_equal(ct_add(&g, y, y).id, -1);
    assert_int_equal(ct_merge(&g, y, 0, 1, "a").id, -1);
    ct_status status = ct_graph_status(&g);
    assert_non_null(status);
    assert_string_equal(ct_error_text(status), "program p: operand 1 is f32[D=4, K=5], but K is 4 in another operand (rule "
                                               "'B T K, N K -> B T N') (matmul in layers.0.wq)");
    ct_graph_deinit(&g);
}

static void big_build(ct_graph *g, int nodes) {
    ct_graph_init(g, "big");
    ct_graph_role(g, "B", CT_ROLE_BATCH);
    ct_graph_role(g, "T", CT_ROLE_SEQUENCE);
    ct_graph_role(g, "D", CT_ROLE_MODEL);
    ct_dim dims[] = {ct_dim_make("B", 8), ct_dim_make("T", 8192), ct_dim_make("D", 16384)};
    ct_value x = ct_build_input(g, CT_FEED, "x", f32_type(3, dims));
    for (int i = 0; i < nodes; i++) {
        ct_graph_at(g, CT_FORWARD, i / 20, "layers.%d.feed_forward", i / 20);
        char name[64];
        snprintf(name, sizeof name, "layers.%d.weight", i);
        ct_value w = i % 5 ? x : ct_build_input(g, CT_PARAMETER, name, f32_type(3, dims));
        x = ct_add(g, x, w);
    }
    ct_build_output(g, "x", x);
}

static void twenty_thousand_nodes_print_parse_and_verify_quickly(void **state) {
    (void)state;
    ct_graph g, parsed;
    big_build(&g, 20000);
    clock_t start = clock();
    char *text = print(&g);
    assert_ok(ct_graph_parse(&parsed, text, "big", ct_op_find));
    assert_ok(ct_graph_verify(&parsed));
    double seconds = (double)(clock() - start) / CLOCKS_PER_SEC;
    printf("20,000 nodes, %zu bytes: printed, parsed and verified in %.3f s\n", strlen(text), seconds);
    assert_true(seconds < 5); // 0.1 here; sanitizers and a busy machine have room
    assert_same_graph(&g, &parsed);
    free(text);
    ct_graph_deinit(&g);
    ct_graph_deinit(&parsed);
}

static void every_op_can_print_itself(void **state) {
    (void)state;
    for (int i = 0; ct_ops[i]; i++) {
        ct_string out = {0};
        ct_op_print(ct_ops[i], &out);
        assert_has(out.text, ct_ops[i]->name);
        assert_has(out.text, ct_ops[i]->formula);
        ct_string_deinit(&out);
    }
    ct_string out = {0};
    ct_op_print(ct_op_find("rmsnorm"), &out);
    assert_string_equal(out.text, "rmsnorm {eps}\n  y = x·rstd·w, rstd = 1/sqrt(mean(x²) + eps)\n  rule: B T D!, D! -> B T D!, B T\n"
                                  "  dtypes: cf>cf; low precision in operand 0; differentiable\n");
    ct_string_deinit(&out);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_graph_prints_as_the_notation_says),
        cmocka_unit_test(parsing_a_print_gives_the_same_graph),
        cmocka_unit_test(ids_with_gaps_and_out_of_order_survive),
        cmocka_unit_test(white_space_and_comments_are_free),
        cmocka_unit_test(numbers_survive_exactly),
        cmocka_unit_test(parse_errors_say_where_and_what_was_wanted),
        cmocka_unit_test(a_shape_that_does_not_fit_sticks_as_the_first_error),
        cmocka_unit_test(twenty_thousand_nodes_print_parse_and_verify_quickly),
        cmocka_unit_test(every_op_can_print_itself),
    };
    return cmocka_run_group_tests_name("graph", tests, NULL, NULL);
}
