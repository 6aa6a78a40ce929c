// What layouts make of an op, by hand: a table of placed one-node programs with the layout that must follow, or the refusal; what moves may and
// may not do; and layouts as text.
#include "graph/op.h"
#include "ops/ops.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#define HEAD                                                                                                                     \
    "program p {\n axis a 2\n axis b 3\n dim B batch\n dim T sequence\n dim D model\n dim K model\n dim N heads\n dim H heads\n"   \
    " dim G heads\n dim Q none\n dim d none\n dim V vocabulary\n dim W none\n"

static void parse(ct_graph *g, const char *text) {
    ct_status status = ct_graph_parse(g, text, "text", ct_op_find);
    if (status) fail_msg("%s\n%s", ct_error_text(status), text);
}

typedef struct {
    const char *inputs;  // layouts of operands in order, '|' between them; empty: whole
    const char *outputs; // of outputs; or "! …": a part of the refusal
} expectation;

// An op on operands of fixed types, and what each choice of layouts must give.
typedef struct {
    const char *op, *attrs;
    const char *in[8], *out[3];
    expectation cases[24];
} op_cases;

static const op_cases table[] = {
    {"matmul", "", {"f32[B=4, T=6, K=5]", "f32[N=12, K=5]"}, {"f32[B=4, T=6, N=12]"},
     {{"|", ""},
      {"{a: S(B)}|", " {a: S(B)}"},
      {"|{a: S(N)}", " {a: S(N)}"},
      {"{a: S(B), b: S(T)}|", " {a: S(B), b: S(T)}"},
      {"{b: S(B), a: S(B)}|", " {b: S(B), a: S(B)}"}, // the order of nesting passes
      {"{a: S(B)}|{b: S(N)}", " {a: S(B), b: S(N)}"},
      {"{a: S(K)}|{a: S(K)}", " {a: P(f32)}"},
      {"{a: S(K), b: S(K)}|{a: S(K), b: S(K)}", " {a: P(f32), b: P(f32)}"},
      {"{b: S(B), a: S(K)}|{a: S(K)}", " {b: S(B), a: P(f32)}"},
      {"{a: P(f32)}|", " {a: P(f32)}"}, // linear in x
      {"|{b: P(f32)}", " {b: P(f32)}"}, // and in w
      {"{a: P(f32)}|{b: S(N)}", " {b: S(N), a: P(f32)}"},
      {"{a: P(f32)}|{b: P(f32)}", " {a: P(f32), b: P(f32)}"}, // over different axes the sums are independent
      {"{a: P(f32)}|{a: P(f32)}", "! operand 0 is a partial sum over a, operand 1 is one too"},
      {"{a: P(f32)}|{a: S(N)}", "! operand 0 is a partial sum over a, which cuts N of another"},
      {"{a: P(f32)}|{a: S(K)}", "! operand 1 is not cut along K as the others are"},
      {"{a: S(K)}|", "! operand 1 is not cut along K as the others are"},
      {"|{a: S(K)}", "! operand 1 is not cut along K as the others are"},
      {"{a: S(K), b: S(K)}|{b: S(K), a: S(K)}", "! operand 1 is not cut along K as the others are"},
      {"{a: S(B)}|{a: S(N)}", "! axis a cuts both B and N"},
      {"{a: Pmax}|", "! operand 0 is a partial maximum"}}},
    {"matmul", "", {"bf16[B=4, T=6, K=5]", "bf16[N=12, K=5]"}, {"bf16[B=4, T=6, N=12]"}, {{"{a: S(K)}|{a: S(K)}", " {a: P(f32)}"}}}, // sums in f32
    {"matmul_dw", "", {"f32[B=4, T=6, N=12]", "f32[B=4, T=6, K=5]"}, {"f32[N=12, K=5]"},
     {{"{a: S(B)}|{a: S(B)}", " {a: P(f32)}"},
      {"{a: S(B), b: S(T)}|{a: S(B), b: S(T)}", " {a: P(f32), b: P(f32)}"},
      {"{a: S(T), b: S(N)}|{a: S(T)}", " {b: S(N), a: P(f32)}"},
      {"{a: S(B)}|{a: S(T)}", "! operand 1 is not cut along B as the others are"}}},
    {"add", "", {"f32[B=4, D=6]", "f32[B=4, D=6]"}, {"f32[B=4, D=6]"},
     {{"{a: S(D)}|{a: S(D)}", " {a: S(D)}"},
      {"{a: P(f32)}|{a: P(f32)}", " {a: P(f32)}"},
      {"{b: S(B), a: P(f32)}|{b: S(B), a: P(f32)}", " {b: S(B), a: P(f32)}"},
      {"{a: P(f32)}|", "! operand 0 is a partial sum over a, operand 1 is not"}, // P + R must count R once
      {"|{a: P(f32)}", "! operand 1 is a partial sum over a, operand 0 is not"},
      {"{a: P(f32)}|{b: P(f32)}", "! operand 0 is a partial sum over a, operand 1 is not"},
      {"{a: S(D)}|", "! operand 1 is not cut along *1 as the others are"},
      {"{a: S(D)}|{a: S(B)}", "! operand 1 is not cut along *0 as the others are"}}},
    {"silu_mul", "", {"f32[B=4, D=6]", "f32[B=4, D=6]"}, {"f32[B=4, D=6]"},
     {{"{a: S(D)}|{a: S(D)}", " {a: S(D)}"},
      {"|{a: P(f32)}", " {a: P(f32)}"}, // silu(x) · y is linear in y
      {"{a: P(f32)}|", "! operand 0 is a partial sum over a, and silu_mul is not linear in it"}}},
    {"rmsnorm", " {eps=0.001}", {"f32[B=4, T=6, D=6]", "f32[D=6]"}, {"f32[B=4, T=6, D=6]", "f32[B=4, T=6]"},
     {{"{a: S(T), b: S(B)}|", " {b: S(B), a: S(T)}| {b: S(B), a: S(T)}"},
      {"{a: S(D)}|{a: S(D)}", "! D may not be cut, axis a does"},
      {"{a: P(f32)}|", "! operand 0 is a partial sum over a, and rmsnorm is not linear in it"}}},
    {"rmsnorm_grad", "", {"f32[B=4, T=6, D=6]", "f32[B=4, T=6, D=6]", "f32[D=6]", "f32[B=4, T=6]"}, {"f32[B=4, T=6, D=6]", "f32[D=6]"},
     {{"{a: S(B), b: S(T)}|{a: S(B), b: S(T)}||{a: S(B), b: S(T)}", " {a: S(B), b: S(T)}| {a: P(f32), b: P(f32)}"}}}, // dw sums over both
    {"embed", "", {"f32[V=7, D=6]", "i32[B=4, T=6]"}, {"f32[B=4, T=6, D=6]"},
     {{"{a: S(V)}|", " {a: P(f32)}"}, // rows that are not here give zero
      {"{a: S(V)}|{b: S(T)}", " {b: S(T), a: P(f32)}"},
      {"{a: S(D)}|{b: S(B)}", " {b: S(B), a: S(D)}"},
      {"{a: S(V)}|{a: S(B)}", "! axis a cuts both V and B"}}},
    {"vocab_max", "", {"f32[B=4, T=6, V=7]"}, {"f32[B=4, T=6]"}, {{"{a: S(V), b: S(T)}", " {b: S(T), a: Pmax}"}}},
    {"vocab_sumexp", "", {"f32[B=4, T=6, V=7]", "f32[B=4, T=6]"}, {"f32[B=4, T=6]"},
     {{"{a: S(V), b: S(B)}|{b: S(B)}", " {b: S(B), a: P(f32)}"}, {"{a: S(V)}|{a: Pmax}", "! operand 1 is a partial maximum"}}},
    {"attention", " {scale=0.5}",
     {"f32[B=2, T=6, G=4, Q=2, d=8]", "f32[B=2, S=6, G=4, d=8]", "f32[B=2, S=6, G=4, d=8]", "i32[B=2, T=6]", "i32[B=2, S=6]", "i32[B=2, T=6]",
      "i32[B=2, S=6]"},
     {"f32[B=2, T=6, G=4, Q=2, d=8]", "f32[B=2, T=6, G=4, Q=2]"},
     {{"{a: S(G)}|{a: S(G)}|{a: S(G)}||||", " {a: S(G)}| {a: S(G)}"},
      {"{b: S(T)}|||{b: S(T)}||{b: S(T)}|", " {b: S(T)}| {b: S(T)}"}, // a query sees all keys
      {"|{a: S(S)}|{a: S(S)}||{a: S(S)}||{a: S(S)}", "! S may not be cut, axis a does"},
      {"{a: S(d)}|{a: S(d)}|||||", "! d may not be cut, axis a does"}}},
    {"accumulate", "", {"f32[N=4, K=5]", "f32[N=4, K=5]", "i32[]"}, {"f32[N=4, K=5]"},
     {{"{a: S(N)}|{a: S(N)}|", " {a: S(N)}"},
      {"{a: P(f32)}|{a: P(f32)}|", " {a: P(f32)}"},
      {"|{a: P(f32)}|", "! operand 0 is changed in place, and output 0 lies otherwise"},
      {"{a: P(f32)}||", "! operand 0 is changed in place, and output 0 lies otherwise"},
      {"{a: S(N)}|{a: S(K)}|", "! operand 1 is not cut along *0 as the others are"}}},
    {"matmul_dw_acc", "", {"f32[N=12, K=5]", "f32[B=4, T=6, N=12]", "f32[B=4, T=6, K=5]", "i32[]"}, {"f32[N=12, K=5]"},
     {{"{a: P(f32)}|{a: S(B)}|{a: S(B)}|", " {a: P(f32)}"},
      {"{b: S(N), a: P(f32)}|{a: S(T), b: S(N)}|{a: S(T)}|", " {b: S(N), a: P(f32)}"},
      {"|{a: S(B)}|{a: S(B)}|", "! operand 0 is changed in place, and output 0 lies otherwise"}}},
    {"split", " {dim=1, parts=2}", {"f32[T=6, N=12]"}, {"f32[T=6, H=4, d=3]"},
     {{"{a: S(N)}", " {a: S(H)}"}, // the outermost factor
      {"{b: S(T), a: P(f32)}", " {b: S(T), a: P(f32)}"},
      {"{a: Pmax}", " {a: Pmax}"},
      {"{b: S(N)}", "! N=12 and H=4 can't both be cut in 3 by axis b"},
      {"{a: S(N), b: S(N)}", "! N=12 and H=4 can't both be cut in 6 by axis a"}}},
    {"merge", " {dim=1, count=2}", {"f32[T=6, H=6, d=3]"}, {"f32[T=6, N=18]"},
     {{"{a: S(H)}", " {a: S(N)}"}, {"{a: S(H), b: S(H)}", " {a: S(N), b: S(N)}"}, {"{a: S(d)}", "! a cut of d by axis a can't pass"}}},
    {"concat", " {dim=0}", {"f32[T=6]", "f32[T=6]"}, {"f32[T=12]"},
     {{"{a: P(f32)}|{a: P(f32)}", " {a: P(f32)}"}, {"{a: P(f32)}|", "! operands 0 and 1 are not cut alike"}}},
    {"wide_of", " {square=0}", {"f32[B=4, T=6]"}, {"i64[W=21]"},
     {{"{a: S(B), b: S(T)}", " {a: P(i64), b: P(i64)}"}, // whole numbers: any order gives the same
      {"{a: P(f32)}", "! operand 0 is a partial sum over a, and wide_of is not linear in it"}}},
};

static const char *next_part(const char *text, char *out, size_t size) {
    size_t n = strcspn(text, "|");
    snprintf(out, size, "%.*s", (int)n, text);
    return text[n] ? text + n + 1 : text + n;
}

// The program of one case; outputs as they are wanted, or whole where a refusal is.
static void write_program(const op_cases *t, const expectation *e, ct_string *out) {
    char part[80];
    const char *in = e->inputs, *to = e->outputs[0] == '!' ? "" : e->outputs;
    int inputs = 0, outputs = 0;
    ct_string_add(out, HEAD " dim S sequence\n");
    for (; t->in[inputs]; inputs++) {
        in = next_part(in, part, sizeof part);
        ct_string_add(out, " %%%d = %s \"x%d\" : %s %s\n", inputs, strcmp(t->in[inputs], "i32[]") ? "gradient" : "feed", inputs, t->in[inputs], part);
    }
    while (t->out[outputs]) outputs++;
    ct_string_add(out, " ");
    for (int o = 0; o < outputs; o++) ct_string_add(out, "%s%%%d", o ? ", " : "", inputs + o);
    ct_string_add(out, " = %s(", t->op);
    for (int i = 0; i < inputs; i++) ct_string_add(out, "%s%%%d", i ? ", " : "", i);
    ct_string_add(out, ")%s : ", t->attrs);
    for (int o = 0; o < outputs; o++) {
        to = next_part(to, part, sizeof part);
        ct_string_add(out, "%s%s%s", o ? ", " : "", t->out[o], part);
    }
    ct_string_add(out, " @ forward here\n");
    if (ct_op_find(t->op)->must_alias[0] == 1 && !(ct_op_find(t->op)->flags & CT_OP_VIEW)) ct_string_add(out, " update \"x0\" = %%%d\n", inputs);
    ct_string_add(out, "}\n");
}

static void check_case(const op_cases *t, const expectation *e) {
    ct_graph g;
    ct_string text = {0}, got = {0};
    write_program(t, e, &text);
    parse(&g, text.text);
    ct_layout out[CT_MAX_OUTPUTS];
    ct_status status = ct_op_infer_layouts(&g, &g.nodes[0], out);
    if (e->outputs[0] == '!') {
        if (!status) fail_msg("allowed; wanted: %s\n%s", e->outputs, text.text);
        assert_int_equal(ct_error_code(status), CT_INVALID);
        if (strcmp(ct_error_text(status), e->outputs + 2)) fail_msg("%s\nwanted: %s\n%s", ct_error_text(status), e->outputs, text.text);
        assert_non_null(ct_graph_verify(&g)); // refused there as well
    } else {
        if (status) fail_msg("%s\n%s", ct_error_text(status), text.text);
        for (int o = 0; o < g.nodes[0].outputs_count; o++) {
            ct_string_add(&got, "%s", o ? "|" : "");
            ct_layout_print(&g.mesh, &out[o], &g.values[g.nodes[0].outputs[o]].type, &got);
        }
        if (strcmp(got.text ? got.text : "", e->outputs)) fail_msg("gives%s\nwanted%s\n%s", got.text, e->outputs, text.text);
        status = ct_graph_verify(&g);
        if (status) fail_msg("%s\n%s", ct_error_text(status), text.text);
    }
    ct_string_deinit(&got);
    ct_string_deinit(&text);
    ct_graph_deinit(&g);
}

static void layouts_follow_from_rules_by_hand(void **state) {
    (void)state;
    int cases = 0;
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        for (const expectation *e = table[i].cases; e < table[i].cases + 24 && e->inputs; e++, cases++) check_case(&table[i], e);
    printf("%d cases\n", cases);
}

// ---- the verifier ----
static void assert_verdict(const char *lines, const char *wanted) {
    ct_graph g;
    ct_string text = {0};
    ct_string_add(&text, HEAD "%s}\n", lines);
    parse(&g, text.text);
    ct_status status = ct_graph_verify(&g);
    if (!wanted && status) fail_msg("%s", ct_error_text(status));
    if (wanted && !status) fail_msg("accepted; wanted: %s", wanted);
    if (wanted) assert_string_equal(ct_error_text(status), wanted);
    ct_string_deinit(&text);
    ct_graph_deinit(&g);
}

static void verifier_rejects_an_output_that_lies_otherwise(void **state) {
    (void)state;
#define X " %0 = feed \"x\" : f32[B=4, D=6] {a: S(B)}\n"
    assert_verdict(X " %1 = add(%0, %0) : f32[B=4, D=6] {a: S(B)} @ forward m\n", NULL);
    assert_verdict(X " %1 = add(%0, %0) : f32[B=4, D=6] @ forward m\n",
                   "%1 lies {}, but {a: S(B)} is what follows (node 0, add in 'm'; program p)");
    assert_verdict(X " %1 = add(%0, %0) : f32[B=4, D=6] {a: S(D)} @ forward m\n",
                   "%1 lies {a: S(D)}, but {a: S(B)} is what follows (node 0, add in 'm'; program p)");
    assert_verdict(X " %1 = add(%0, %0) : f32[B=4, D=6] {a: S(B), b: P(f32)} @ forward m\n",
                   "%1 lies {a: S(B), b: P(f32)}, but {a: S(B)} is what follows (node 0, add in 'm'; program p)");
}

static void verifier_rejects_operands_that_do_not_lie_as_the_op_wants(void **state) {
    (void)state;
    assert_verdict(X " %1 = feed \"y\" : f32[B=4, D=6]\n %2 = add(%0, %1) : f32[B=4, D=6] {a: S(B)} @ forward m\n",
                   "operand 1 is not cut along *0 as the others are (node 0, add in 'm'; program p)");
}

static void verifier_knows_what_moves_may_do(void **state) {
    (void)state;
    assert_verdict(X " %1 = all_gather(%0) : f32[B=4, D=6] @ forward m\n", NULL);
    assert_verdict(X " %1 = local_slice(%0) : f32[B=4, D=6] {a: S(B), b: S(B)} @ forward m\n", NULL);
    assert_verdict(X " %1 = all_to_all(%0) : f32[B=4, D=6] {a: S(D)} @ forward m\n", NULL);
    assert_verdict(X " %1 = reshard(%0) : f32[B=4, D=6] {a: P(f32)} @ forward m\n", "a move to a partial value on axis a (node 0, reshard in 'm'; program p)");
    assert_verdict(X " %1 = reshard(%0) : f32[B=4, D=6] {a: S(B), b: Pmax} @ forward m\n",
                   "a move to a partial value on axis b (node 0, reshard in 'm'; program p)");
#undef X
#define X " %0 = feed \"x\" : f32[B=4, D=6] {a: P(f32), b: P(f32)}\n"
    assert_verdict(X " %1 = all_reduce(%0) : f32[B=4, D=6] @ forward m\n", NULL);
    assert_verdict(X " %1 = reduce_scatter(%0) : f32[B=4, D=6] {a: S(D), b: P(f32)} @ forward m\n", NULL);
    assert_verdict(X " %1 = reshard(%0) : f32[B=4, D=6] {a: Pmax} @ forward m\n", "a move to a partial value on axis a (node 0, reshard in 'm'; program p)");
    assert_verdict(" %0 = feed \"x\" : f32[B=4, D=6] {a: P(f32), b: Pmax}\n %1 = all_reduce(%0) : f32[B=4, D=6] @ forward m\n",
                   "a sum and a maximum at once (node 0, all_reduce in 'm'; program p)");
#undef X
}

static void verifier_wants_an_accumulator_to_stay_where_it_is(void **state) {
    (void)state;
#define X                                                                                                                                 \
    " %0 = gradient \"g\" : f32[N=4, K=5] {a: S(N)}\n %1 = feed \"x\" : f32[N=4, K=5] {a: P(f32)}\n %2 = feed \"first\" : i32[]\n"
    assert_verdict(X " %3 = reduce_accumulate(%0, %1, %2) : f32[N=4, K=5] {a: S(N)} @ weight-grad m\n update \"g\" = %3\n", NULL);
    assert_verdict(X " %3 = reduce_accumulate(%0, %1, %2) : f32[N=4, K=5] {a: S(K)} @ weight-grad m\n update \"g\" = %3\n",
                   "%3 lies {a: S(K)}, but {a: S(N)} is what follows (node 0, reduce_accumulate in 'm'; program p)");
#undef X
    assert_verdict(" %0 = state \"s\" : f32[N=4] {a: S(N)}\n %1 = all_gather(%0) : f32[N=4] @ forward m\n update \"s\" = %1\n",
                   "%1 lies {}, but {a: S(N)} is what follows (input 's', %0; program p)");
}

// ---- as text ----
static void layouts_print_in_one_form(void **state) {
    (void)state;
    static const char *const forms[][2] = {
        {"", ""},
        {"{a: S(B)}", " {a: S(B)}"},
        {"{ b :S(D),a: S( B ) }", " {a: S(B), b: S(D)}"}, // by dim
        {"{b: S(D), a: S(D)}", " {b: S(D), a: S(D)}"},    // nested, as written
        {"{a: P(bf16), b: S(B)}", " {b: S(B), a: P(bf16)}"},
        {"{b: Pmax, a: Pmax}", " {a: Pmax, b: Pmax}"},
    };
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        ct_graph g, again;
        ct_string text = {0}, layout = {0}, once = {0}, twice = {0};
        ct_string_add(&text, HEAD " %%0 = feed \"x\" : f32[B=4, D=6]%s\n}\n", forms[i][0]);
        parse(&g, text.text);
        ct_layout_print(&g.mesh, &g.values[0].layout, &g.values[0].type, &layout);
        assert_string_equal(layout.text ? layout.text : "", forms[i][1]);
        ct_graph_print(&g, &once);
        parse(&again, once.text);
        ct_graph_print(&again, &twice);
        assert_string_equal(once.text, twice.text);
        assert_true(ct_layout_equal(&g.values[0].layout, &again.values[0].layout));
        assert_memory_equal(&g.mesh, &again.mesh, sizeof g.mesh);
        ct_graph_deinit(&g);
        ct_graph_deinit(&again);
        ct_string_deinit(&text), ct_string_deinit(&layout), ct_string_deinit(&once), ct_string_deinit(&twice);
    }
}

static void assert_parse_error(const char *layout, const char *wanted) {
    ct_graph g;
    ct_string text = {0};
    ct_string_add(&text, "program p {\n axis a 2\n axis b 3\n dim D model\n%s", layout);
    ct_status status = ct_graph_parse(&g, text.text, "f", ct_op_find);
    if (!status) fail_msg("parsed: %s", layout);
    assert_int_equal(ct_error_code(status), CT_INVALID);
    assert_string_equal(ct_error_text(status), wanted);
    ct_string_deinit(&text);
}

static void layouts_that_are_none_are_parse_errors(void **state) {
    (void)state;
#define X "%0 = feed \"x\" : f32[D=6] "
    assert_parse_error(X "{c: S(D)}", "f:5:27: found 'c', wanted an axis that is declared, once");
    assert_parse_error(X "{a: S(D), a: P(f32)}", "f:5:36: found 'a', wanted an axis that is declared, once");
    assert_parse_error(X "{a: S(B)}", "f:5:32: found 'B', wanted a dim of the type");
    assert_parse_error(X "{a: P(f16)}", "f:5:32: found 'f16', wanted a dtype");
    assert_parse_error(X "{a: R}", "f:5:30: found 'R', wanted S(dim), P(dtype) or Pmax");
    assert_parse_error(X "{a S(D)}", "f:5:29: found 'S', wanted ':'");
    assert_parse_error(X "{a: S D}", "f:5:32: found 'D', wanted '('");
    assert_parse_error(X "{a: S(D}", "f:5:33: found '}', wanted ')'");
    assert_parse_error(X "{a: S(D)", "f:5:34: found end, wanted '}'");
    assert_parse_error(X "{}", "f:5:27: found '}', wanted an axis");
#undef X
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(layouts_follow_from_rules_by_hand),
        cmocka_unit_test(verifier_rejects_an_output_that_lies_otherwise),
        cmocka_unit_test(verifier_rejects_operands_that_do_not_lie_as_the_op_wants),
        cmocka_unit_test(verifier_knows_what_moves_may_do),
        cmocka_unit_test(verifier_wants_an_accumulator_to_stay_where_it_is),
        cmocka_unit_test(layouts_print_in_one_form),
        cmocka_unit_test(layouts_that_are_none_are_parse_errors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
