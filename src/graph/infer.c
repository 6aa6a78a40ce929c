// Shape inference: an op's rule is an index expression; its letters are bound to the inputs' dims, the outputs read them back.
#include "graph/op.h"

#include <stdio.h>
#include <string.h>

static const char *skip(const char *p) {
    while (*p == ' ') p++;
    return p;
}

static ct_status parse_operand(const char **text, ct_rule_operand *operand, const char *whole) {
    const char *p = skip(*text);
    operand->count = 0;
    while (*p && *p != ',' && strncmp(p, "->", 2)) {
        CT_CHECK(operand->count < CT_MAX_DIMS, CT_INVALID, "rule '%s' has an operand of more than %d indices", whole,
                 CT_MAX_DIMS);
        ct_rule_index *index = &operand->index[operand->count++];
        *index = (ct_rule_index){0};
        size_t n = 0;
        for (; *p && *p != ' ' && *p != ',' && *p != '!'; p++)
            if (n + 1 < sizeof index->letter) index->letter[n++] = *p;
        if (*p == '!') index->fixed = 1, p++;
        p = skip(p);
    }
    *text = p;
    return CT_OK;
}

ct_status ct_rule_parse(const char *text, ct_rule *out_rule) {
    ct_rule rule = {0};
    const char *p = text;
    for (;;) {
        CT_CHECK(rule.inputs < CT_MAX_INPUTS, CT_INVALID, "rule '%s' has too many inputs", text);
        CT_TRY(parse_operand(&p, &rule.in[rule.inputs++], text));
        if (*p != ',') break;
        p++;
    }
    CT_CHECK(!strncmp(p, "->", 2), CT_INVALID, "rule '%s' has no '->'", text);
    p += 2;
    for (;;) {
        CT_CHECK(rule.outputs < CT_MAX_OUTPUTS, CT_INVALID, "rule '%s' has too many outputs", text);
        CT_TRY(parse_operand(&p, &rule.out[rule.outputs++], text));
        if (*p != ',') break;
        p++;
    }
    CT_CHECK(!*p, CT_INVALID, "rule '%s' ends badly at '%s'", text, p);
    *out_rule = rule;
    return CT_OK;
}

typedef struct {
    int count;
    struct {
        const char *letter;
        ct_dim dim;
    } bound[32];
    ct_type any; // what "*" stands for
    int any_set;
} binding;

static void type_text(const ct_type *type, char *out, size_t size) {
    ct_string s = {0};
    ct_type_print(type, &s);
    snprintf(out, size, "%s", s.text ? s.text : "");
    ct_string_deinit(&s);
}

static int dims_equal(const ct_type *a, const ct_type *b) {
    ct_type c = *b;
    c.dtype = a->dtype;
    return ct_type_equal(a, &c);
}

static ct_status bind_input(binding *b, const ct_rule_operand *operand, const ct_type *type, int which, const char *rule) {
    char text[160];
    if (operand->count == 1 && !strcmp(operand->index[0].letter, "*")) {
        if (!b->any_set) b->any = *type, b->any_set = 1;
        type_text(type, text, sizeof text);
        CT_CHECK(dims_equal(&b->any, type), CT_INVALID, "operand %d is %s: not the dims of the others", which, text);
        return CT_OK;
    }
    type_text(type, text, sizeof text);
    CT_CHECK(type->dims_count == operand->count, CT_INVALID, "operand %d is %s, wanted %d dims by the rule '%s'", which,
             text, operand->count, rule);
    for (int i = 0; i < operand->count; i++) {
        int j = 0;
        while (j < b->count && strcmp(b->bound[j].letter, operand->index[i].letter)) j++;
        if (j == b->count) {
            CT_ASSERT(b->count < 32, "rule of %s has too many letters", rule);
            b->bound[b->count].letter = operand->index[i].letter;
            b->bound[b->count++].dim = type->dims[i];
        } else {
            CT_CHECK(b->bound[j].dim.extent == type->dims[i].extent, CT_INVALID,
                     "operand %d is %s, but %s is %lld in another operand (rule '%s')", which, text,
                     operand->index[i].letter, (long long)b->bound[j].dim.extent, rule);
        }
    }
    return CT_OK;
}

static ct_status infer_output(const ct_graph *graph, const ct_node *node, const binding *b, const ct_rule_operand *operand,
                              ct_type *out) {
    if (operand->count == 1 && !strcmp(operand->index[0].letter, "*")) {
        ct_dtype dtype = out->dtype;
        *out = b->any;
        out->dtype = dtype;
        return CT_OK;
    }
    out->dims_count = operand->count;
    for (int i = 0; i < operand->count; i++) {
        const char *letter = operand->index[i].letter;
        int j = 0;
        while (j < b->count && strcmp(b->bound[j].letter, letter)) j++;
        if (j < b->count) {
            out->dims[i] = b->bound[j].dim;
        } else {
            CT_CHECK(node->op->bind && node->op->bind(graph, node, letter, &out->dims[i]), CT_INVALID,
                     "nothing says how large %s is", letter);
        }
    }
    return CT_OK;
}

// Letters of op->dtypes against the operands; sets the outputs' dtypes.
static ct_status infer_dtypes(const ct_graph *graph, const ct_node *node, ct_type *out_types) {
    static const char letters[CT_DTYPES] = {'f', 'b', 'd', 'i', 'l'};
    const char *p = node->op->dtypes;
    int compute = -1;
    for (int i = 0; i < node->inputs_count; i++) {
        char want = *p == '>' ? p[-1] : *p++; // a list of operands repeats the last letter
        ct_dtype have = graph->values[node->inputs[i]].type.dtype;
        if (want == 'c') {
            CT_CHECK(have == CT_F32 || have == CT_BF16, CT_INVALID, "operand %d is %s, wanted f32 or bf16", i,
                     ct_dtype_name(have));
            if (compute < 0) compute = (int)have;
            CT_CHECK(compute == (int)have, CT_INVALID, "operand %d is %s, another is %s", i, ct_dtype_name(have),
                     ct_dtype_name((ct_dtype)compute));
        } else if (want != '?') {
            CT_CHECK(letters[have] == want, CT_INVALID, "operand %d is %s, wanted '%c'", i, ct_dtype_name(have), want);
        }
        if (want == '?' && i == 0) compute = (int)have;
    }
    while (*p && *p != '>') p++;
    if (*p == '>') p++;
    for (int i = 0; i < node->outputs_count; i++, p++) {
        if (*p == 'c' || *p == '?') out_types[i].dtype = (ct_dtype)compute;
        else if (*p == 'o') out_types[i].dtype = node->attrs[0] != 0 ? CT_F32 : (ct_dtype)compute;
        else if (*p == 'a') { // the attribute is the dtype
            CT_CHECK(node->attrs[0] >= 0 && node->attrs[0] < CT_DTYPES && node->attrs[0] == (int)node->attrs[0],
                     CT_INVALID, "%s = %g is no dtype", node->op->attrs[0], node->attrs[0]);
            out_types[i].dtype = (ct_dtype)node->attrs[0];
        }
        else
            for (int d = 0; d < CT_DTYPES; d++)
                if (letters[d] == *p) out_types[i].dtype = (ct_dtype)d;
    }
    return CT_OK;
}

ct_status ct_op_infer(const ct_graph *graph, const ct_node *node, const ct_type *declared, ct_type *out_types) {
    const ct_op *op = node->op;
    CT_CHECK(op->inputs >= 0 || node->inputs_count >= 1, CT_INVALID, "no operands, wanted 1 or more");
    CT_CHECK(op->inputs < 0 || node->inputs_count == op->inputs, CT_INVALID, "%d operands, wanted %d",
             node->inputs_count, op->inputs);
    CT_TRY(infer_dtypes(graph, node, out_types));
    if (op->check) {
        CT_CHECK(declared, CT_INVALID, "the output's type must be declared");
        CT_TRY(op->check(graph, node, declared));
        for (int i = 0; i < op->outputs; i++) {
            ct_dtype dtype = out_types[i].dtype;
            out_types[i] = declared[i];
            out_types[i].dtype = dtype;
        }
        return CT_OK;
    }
    ct_rule rule;
    CT_TRY(ct_rule_parse(op->rule, &rule));
    CT_CHECK(rule.inputs == node->inputs_count && rule.outputs == op->outputs, CT_INVALID, "rule '%s' does not fit",
             op->rule);
    binding b = {0};
    for (int i = 0; i < node->inputs_count; i++)
        CT_TRY(bind_input(&b, &rule.in[i], &graph->values[node->inputs[i]].type, i, op->rule));
    for (int i = 0; i < op->outputs; i++) CT_TRY(infer_output(graph, node, &b, &rule.out[i], &out_types[i]));
    return CT_OK;
}

ct_cost ct_op_cost(const ct_graph *graph, const ct_node *node) {
    ct_cost cost = {.flops = node->op->flops ? node->op->flops(graph, node) : 0};
    if (node->op->flags & CT_OP_VIEW) return cost;
    for (int i = 0; i < node->inputs_count; i++)
        cost.bytes_read += (double)ct_type_bytes(&graph->values[node->inputs[i]].type);
    for (int i = 0; i < node->outputs_count; i++)
        cost.bytes_written += (double)ct_type_bytes(&graph->values[node->outputs[i]].type);
    return cost;
}
