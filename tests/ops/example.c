// Examples from rules: letters get small extents, floats uniform numbers, integers 0 or 1, attributes what their name suggests.
#include "example.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static uint64_t next_random(uint64_t *state) { // splitmix64
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

double example_uniform(example *e) { return (double)(next_random(&e->random) >> 11) * 0x1p-52 - 1; }
int example_below(example *e, int64_t n) { return (int)(next_random(&e->random) % (uint64_t)n); }
int example_is_star(const ct_rule_operand *operand) { return operand->count == 1 && !strcmp(operand->index[0].letter, "*"); }

int example_dim(const ct_rule_operand *operand, const char *letter, int star) {
    if (example_is_star(operand)) return strcmp(letter, "*") ? -1 : star;
    for (int i = 0; i < operand->count; i++)
        if (!strcmp(operand->index[i].letter, letter)) return i;
    return -1;
}

// ---- types ----

static int64_t proposed_extent(const example *e, const char *letter, example_size size) {
    static const int64_t large[] = {1, 2, 3, 5, 7, 8, 16, 17, 31, 32, 33, 48, 65, 100, 129, 257};
    uint64_t state = e->seed * 1000003u;
    for (const char *c = letter; *c; c++) state = state * 131 + (unsigned char)*c;
    uint64_t r = next_random(&state);
    if (size == TINY) return 1 + (int64_t)(r % 4);
    if (size == SMALL) return 3 + (int64_t)(r % 4);
    return large[r % (sizeof large / sizeof *large)];
}

static int64_t extent_of(const example *e, const char *letter, example_size size) {
    const example_hook *hook = example_hook_of(e->op->name);
    int64_t proposed = proposed_extent(e, letter, size);
    return hook && hook->extent ? hook->extent(e, letter, proposed) : proposed;
}

static ct_type star_type(const example *e, example_size size) {
    static const char *const names[] = {"x", "y", "z"};
    ct_type type = {.dims_count = 1 + (int)(e->seed % 3)};
    for (int i = 0; i < type.dims_count; i++) {
        int64_t n = proposed_extent(e, names[i], size);
        type.dims[i] = ct_dim_make(names[i], type.dims_count == 1 && size == LARGE ? n * 37 : n > 40 ? 40 : n);
    }
    return type;
}

static void make_dims(example *e, example_size size) {
    for (int i = 0; i < e->inputs; i++) {
        const ct_rule_operand *operand = &e->rule.in[i];
        if (example_is_star(operand)) {
            e->in[i] = star_type(e, size);
            continue;
        }
        e->in[i].dims_count = operand->count;
        for (int d = 0; d < operand->count; d++) {
            const char *letter = operand->index[d].letter;
            e->in[i].dims[d] = ct_dim_make(letter, extent_of(e, letter, size));
        }
    }
}

static double work(const example *e) {
    ct_dim seen[16];
    int count = 0;
    double product = 1;
    for (int i = 0; i < e->inputs; i++)
        for (int d = 0; d < e->in[i].dims_count; d++) {
            int j = 0;
            while (j < count && strcmp(seen[j].name, e->in[i].dims[d].name)) j++;
            if (j < count) continue;
            seen[count++] = e->in[i].dims[d];
            product *= (double)e->in[i].dims[d].extent;
        }
    return product;
}

// Large examples are cut down to what the references can do quickly: the largest letter is halved; odd stays odd.
static void shrink(example *e, double limit) {
    const example_hook *hook = example_hook_of(e->op->name);
    for (int tries = 0; tries < 100 && work(e) > limit; tries++) {
        const ct_dim *largest = &e->in[0].dims[0];
        for (int i = 0; i < e->inputs; i++)
            for (int d = 0; d < e->in[i].dims_count; d++)
                if (e->in[i].dims[d].extent > largest->extent) largest = &e->in[i].dims[d];
        ct_dim was = *largest;
        int64_t half = was.extent / 2 | (was.extent & 1);
        if (hook && hook->extent) half = hook->extent(e, was.name, half);
        for (int i = 0; i < e->inputs; i++)
            for (int d = 0; d < e->in[i].dims_count; d++)
                if (!strcmp(e->in[i].dims[d].name, was.name)) e->in[i].dims[d].extent = half;
    }
}

static ct_dtype dtype_of(char letter, ct_dtype compute) {
    switch (letter) {
    case 'b': return CT_BF16;
    case 'd': return CT_F64;
    case 'i': return CT_I32;
    case 'l': return CT_I64;
    case 'f': return CT_F32;
    default: return compute; // c, ?
    }
}

// ---- numbers ----

static double default_attr(const char *name) {
    static const struct {
        const char *name;
        double value;
    } known[] = {{"eps", 1e-3},        {"scale", 0.4},  {"beta1", 0.9}, {"beta2", 0.95}, {"weight_decay", 0.1},
                 {"lr_scale", 0.7},    {"max_norm", 1}, {"to", CT_F32}, {"theta", 10000}, {"factor", 8},
                 {"low", 1},           {"high", 4},     {"original", 8192}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (!strcmp(known[i].name, name)) return known[i].value;
    return 0;
}

static void fill_uniform(example *e, int i) {
    for (int64_t j = 0; j < ct_type_elems(&e->in[i]); j++) {
        int integer = e->in[i].dtype == CT_I32 || e->in[i].dtype == CT_I64;
        e->data[i][j] = integer ? example_below(e, 2) : example_uniform(e);
    }
}

static void round_inputs(example *e) {
    for (int i = 0; i < e->inputs; i++)
        for (int64_t j = 0; j < ct_type_elems(&e->in[i]); j++)
            e->data[i][j] = ct_reference_round(e->data[i][j], e->in[i].dtype);
}

void example_init(example *e, const ct_op *op, ct_dtype compute, example_size size, unsigned seed) {
    *e = (example){.op = op, .seed = seed, .random = seed * 7919u + 1, .inputs = op->inputs, .outputs = op->outputs};
    const example_hook *hook = example_hook_of(op->name);
    for (int i = 0; i < CT_MAX_ATTRS && op->attrs[i]; i++) e->attrs[i] = default_attr(op->attrs[i]);
    if (hook && hook->types) {
        e->views_declare = 1;
        hook->types(e);
        for (int i = 0; i < e->inputs; i++) e->in[i].dtype = compute;
    } else {
        ct_status status = ct_rule_parse(op->rule, &e->rule);
        if (status) fail_msg("%s", ct_error_text(status));
        make_dims(e, size);
        for (int i = 0; i < e->inputs; i++) e->in[i].dtype = dtype_of(op->dtypes[i], compute);
        if (size == LARGE) shrink(e, 3e5);
    }
    if (hook && hook->attrs) hook->attrs(e);
    for (int i = 0; i < e->inputs; i++) {
        e->data[i] = ct_calloc((size_t)ct_type_elems(&e->in[i]) + 1, sizeof(double));
        fill_uniform(e, i);
    }
    round_inputs(e);
    if (hook && hook->fill) hook->fill(e);
    round_inputs(e);
}

void example_deinit(example *e) {
    for (int i = 0; i < CT_MAX_INPUTS; i++) free(e->data[i]);
    for (int i = 0; i < CT_MAX_OUTPUTS; i++) free(e->result[i]);
    *e = (example){0};
}

int example_build(const example *e, ct_graph *graph) {
    static const char *const names[CT_MAX_INPUTS] = {"0", "1", "2", "3", "4", "5", "6", "7", "8", "9", "10", "11"};
    ct_value in[CT_MAX_INPUTS];
    ct_graph_init(graph, e->op->name);
    for (int i = 0; i < e->inputs; i++) in[i] = ct_build_input(graph, CT_FEED, names[i], e->in[i]);
    int node = ct_build_node(graph, e->op, e->inputs, in, e->attrs, e->views_declare ? e->out : NULL);
    ct_status status = ct_graph_status(graph);
    if (status) fail_msg("%s", ct_error_text(status));
    return node;
}

static void keep_result(example *e, int i, const ct_type *type, const double *from) {
    size_t bytes = (size_t)ct_type_elems(type) * sizeof(double);
    free(e->result[i]);
    e->out[i] = *type;
    e->result[i] = ct_malloc(bytes + 1);
    memcpy(e->result[i], from, bytes);
}

void example_run(example *e) {
    ct_graph graph;
    ct_reference_values values;
    int node = example_build(e, &graph);
    for (int o = 0; o < e->outputs && e->is_part; o++) graph.values[graph.nodes[node].outputs[o]].type = e->out[o];
    ct_reference_init(&values, &graph);
    for (int o = 0; o < e->outputs; o++)
        memcpy(graph.values[graph.nodes[node].outputs[o]].origin, e->out_origin[o], sizeof e->out_origin[o]);
    for (int i = 0; i < e->inputs; i++) memcpy(graph.values[graph.inputs[i].value].origin, e->in_origin[i], sizeof e->in_origin[i]);
    for (int i = 0; i < e->inputs; i++)
        memcpy(values.values[graph.inputs[i].value], e->data[i], (size_t)ct_type_elems(&e->in[i]) * sizeof(double));
    ct_reference_node(&graph, node, &values, 0);
    for (int i = 0; i < e->outputs; i++) {
        int v = graph.nodes[node].outputs[i];
        keep_result(e, i, &graph.values[v].type, values.values[v]);
    }
    ct_reference_deinit(&values);
    ct_graph_deinit(&graph);
}

// ---- cuts ----

static void copy_part(const ct_type *whole, const double *from, int dim, int64_t begin, int64_t end, double *to) {
    int64_t outer = 1, inner = 1;
    for (int i = 0; i < dim; i++) outer *= whole->dims[i].extent;
    for (int i = dim + 1; i < whole->dims_count; i++) inner *= whole->dims[i].extent;
    size_t run = (size_t)((end - begin) * inner);
    for (int64_t o = 0; o < outer; o++)
        memcpy(to + (size_t)o * run, from + (o * whole->dims[dim].extent + begin) * inner, run * sizeof(double));
}

void example_cut(const example *e, const char *letter, int star, int64_t begin, int64_t end, example *out_part) {
    example part = *e;
    memset(part.result, 0, sizeof part.result);
    for (int i = 0; i < e->inputs; i++) {
        int dim = example_dim(&e->rule.in[i], letter, star);
        if (dim >= 0) part.in[i].dims[dim].extent = end - begin, part.in_origin[i][dim] += begin;
        size_t elems = (size_t)ct_type_elems(&part.in[i]);
        part.data[i] = ct_malloc(elems * sizeof(double) + 1);
        if (dim >= 0) copy_part(&e->in[i], e->data[i], dim, begin, end, part.data[i]);
        else memcpy(part.data[i], e->data[i], elems * sizeof(double));
    }
    for (int o = 0; o < e->outputs; o++) {
        int dim = example_dim(&e->rule.out[o], letter, star);
        if (dim >= 0) part.out[o].dims[dim].extent = end - begin, part.out_origin[o][dim] += begin;
    }
    part.is_part = 1;
    *out_part = part;
}

static void add_letter(example_letter *letters, int *count, const example_letter *l) {
    for (int i = 0; i < *count; i++)
        if (!strcmp(letters[i].letter, l->letter) && letters[i].star == l->star) {
            letters[i].fixed |= l->fixed;
            return;
        }
    if (*count < LETTERS_MAX) letters[(*count)++] = *l;
}

int example_letters(const example *e, example_letter *out_letters) {
    int count = 0;
    for (int i = 0; i < e->inputs + e->outputs; i++) {
        const ct_rule_operand *operand = i < e->inputs ? &e->rule.in[i] : &e->rule.out[i - e->inputs];
        const ct_type *type = i < e->inputs ? &e->in[i] : &e->out[i - e->inputs];
        int star = example_is_star(operand);
        for (int d = 0; d < type->dims_count; d++) {
            const ct_rule_index *index = &operand->index[star ? 0 : d];
            add_letter(out_letters, &count, &(example_letter){index->letter, star ? d : 0, index->fixed, i < e->inputs, type->dims[d].extent});
        }
    }
    return count;
}

// ---- shares ----

int example_addend(const ct_op *op) { return op->flags & CT_OP_ADDITIVE && op->must_alias[0] ? op->must_alias[0] - 1 : -1; }

static void share_input(example *parts, int input, int ranks) {
    int whole_numbers = parts[0].in[input].dtype == CT_I64;
    for (int64_t i = 0; i < ct_type_elems(&parts[0].in[input]); i++) {
        double rest = parts[0].data[input][i];
        for (int r = 0; r < ranks; r++) {
            double share = rest * example_uniform(&parts[0]);
            if (whole_numbers) share = rest > 0 ? floor(fabs(share)) : 0;
            parts[r].data[input][i] = r == ranks - 1 ? rest : share;
            rest -= share;
        }
    }
}

void example_share(const example *e, unsigned inputs, int ranks, example *out_shares) {
    for (int r = 0; r < ranks; r++) {
        out_shares[r] = *e;
        memset(out_shares[r].result, 0, sizeof e->result);
        for (int i = 0; i < e->inputs; i++) {
            size_t bytes = (size_t)ct_type_elems(&e->in[i]) * sizeof(double);
            out_shares[r].data[i] = ct_malloc(bytes + 1);
            memcpy(out_shares[r].data[i], e->data[i], bytes);
        }
    }
    for (int i = 0; i < e->inputs; i++)
        if (inputs >> i & 1) share_input(out_shares, i, ranks);
}
