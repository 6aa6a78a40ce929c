// Views: split, merge, slice, concat. They move nothing: an output is its input's memory, or lies in it (slice), or its inputs lie
// in it (concat). So slice and concat take a dim before which, on each rank, all extents are 1: the part is then one contiguous run.
#include "part.h"
#include "ops/ops.h"

#include <string.h>

extern const ct_op ct_op_slice, ct_op_concat;

static ct_status check_dim(const ct_type *x, double dim, const char *what) {
    CT_CHECK(dim >= 0 && dim < x->dims_count && dim == (int)dim, CT_INVALID, "%s %g of %d dims", what, dim, x->dims_count);
    return CT_OK;
}

static int dim_equal(const ct_dim *a, const ct_dim *b) { return a->extent == b->extent && !strcmp(a->name, b->name); }

static int dims_equal(const ct_dim *a, const ct_dim *b, int count) {
    for (int i = 0; i < count; i++)
        if (!dim_equal(&a[i], &b[i])) return 0;
    return 1;
}

// `few` with its dim `dim` replaced by the adjacent dims dim .. dim+parts-1 is `many`.
static ct_status check_factors(const ct_type *few, const ct_type *many, double dim, double parts) {
    CT_TRY(check_dim(few, dim, "dim"));
    int at = (int)dim, after = few->dims_count - at - 1;
    CT_CHECK(parts >= 1 && parts <= CT_MAX_DIMS && parts == (int)parts && many->dims_count == few->dims_count - 1 + (int)parts, CT_INVALID,
             "%d dims for %d with one made of %g", many->dims_count, few->dims_count, parts);
    CT_CHECK(dims_equal(few->dims, many->dims, at) &&
                 dims_equal(few->dims + at + 1, many->dims + at + (int)parts, after),
             CT_INVALID, "a dim beside dim %d differs", at);
    int64_t product = 1;
    for (int i = 0; i < (int)parts; i++) {
        const ct_dim *factor = &many->dims[at + i];
        CT_CHECK(factor->extent >= 0 && (!factor->extent || product <= INT64_MAX / factor->extent), CT_INVALID,
                 "the factor %s has a bad extent", factor->name);
        product *= factor->extent;
    }
    CT_CHECK(product == few->dims[at].extent, CT_INVALID, "factors of %s=%lld multiply to %lld", few->dims[at].name,
             (long long)few->dims[at].extent, (long long)product);
    return CT_OK;
}

// A view's operands can be any dims: what holds for all is said in the formula, and checked against the declared type.
static const ct_type *in_type(const ct_graph *graph, const ct_node *node, int i) {
    return &graph->values[node->inputs[i]].type;
}

// ---- split, merge ----

static ct_status split_check(const ct_graph *graph, const ct_node *node, const ct_type *declared) {
    return check_factors(in_type(graph, node, 0), declared, node->attrs[0], node->attrs[1]);
}

static ct_status merge_check(const ct_graph *graph, const ct_node *node, const ct_type *declared) {
    return check_factors(declared, in_type(graph, node, 0), node->attrs[0], node->attrs[1]);
}

// ---- how cuts pass: the outermost factor of a dim is cut where the dim is ----

static int split_map(const ct_graph *g, const ct_node *node, int in_dim, int *out_dim) {
    (void)g;
    int dim = (int)node->attrs[0], parts = (int)node->attrs[1];
    *out_dim = in_dim <= dim ? in_dim : in_dim + parts - 1;
    return 1;
}

static int merge_map(const ct_graph *g, const ct_node *node, int in_dim, int *out_dim) {
    (void)g;
    int dim = (int)node->attrs[0], count = (int)node->attrs[1];
    *out_dim = in_dim <= dim ? in_dim : in_dim - count + 1;
    return in_dim <= dim || in_dim >= dim + count;
}

static int same_map(const ct_graph *g, const ct_node *node, int in_dim, int *out_dim) {
    (void)g, (void)node;
    *out_dim = in_dim;
    return 1;
}

static void split_grad(ct_grad *grad) {
    ct_graph *g = grad->graph;
    const double *attrs = g->nodes[grad->node].attrs;
    char name[sizeof(ct_dim){0}.name];
    memcpy(name, ct_value_type(g, operand(grad, 0))->dims[(int)attrs[0]].name, sizeof name);
    g->at.phase = CT_INPUT_GRAD;
    grad->inputs[0] = ct_merge(g, grad->outputs[0], (int)attrs[0], (int)attrs[1], name);
}

static void merge_grad(ct_grad *grad) {
    ct_graph *g = grad->graph;
    const double *attrs = g->nodes[grad->node].attrs;
    ct_type type = *ct_value_type(g, operand(grad, 0));
    g->at.phase = CT_INPUT_GRAD;
    grad->inputs[0] = ct_split(g, grad->outputs[0], (int)attrs[0], (int)attrs[1], type.dims + (int)attrs[0]);
}

const ct_op ct_op_split = {
    .name = "split",
    .formula = "y: dim `dim` of x as `parts` adjacent dims, outermost first",
    .rule = "", .dtypes = "?>?",
    .inputs = 1, .outputs = 1,
    .attrs = {"dim", "parts"},
    .flags = CT_OP_VIEW | CT_OP_LINEAR0,
    .must_alias = {1},
    .check = split_check, .map_dim = split_map, .grad = split_grad,
};

const ct_op ct_op_merge = {
    .name = "merge",
    .formula = "y: the `count` adjacent dims of x from `dim` on as one",
    .rule = "", .dtypes = "?>?",
    .inputs = 1, .outputs = 1,
    .attrs = {"dim", "count"},
    .flags = CT_OP_VIEW | CT_OP_LINEAR0,
    .must_alias = {1},
    .check = merge_check, .map_dim = merge_map, .grad = merge_grad,
};

ct_value ct_split(ct_graph *g, ct_value x, int dim, int parts, const ct_dim *into) {
    if (x.id < 0) return CT_NO_VALUE;
    const ct_type *from = ct_value_type(g, x);
    CT_ASSERT(dim >= 0 && dim < from->dims_count && parts >= 1 && from->dims_count - 1 + parts <= CT_MAX_DIMS,
              "split of dim %d of %d into %d", dim, from->dims_count, parts);
    ct_type type = {.dtype = from->dtype, .dims_count = from->dims_count - 1 + parts};
    for (int i = 0; i < type.dims_count; i++)
        type.dims[i] = i < dim ? from->dims[i] : i < dim + parts ? into[i - dim] : from->dims[i - parts + 1];
    return ct_node_output(g, ct_build_node(g, &ct_op_split, 1, &x, (double[]){dim, parts}, &type), 0);
}

ct_value ct_merge(ct_graph *g, ct_value x, int dim, int count, const char *name) {
    if (x.id < 0) return CT_NO_VALUE;
    const ct_type *from = ct_value_type(g, x);
    CT_ASSERT(dim >= 0 && count >= 1 && dim + count <= from->dims_count, "merge of %d dims from %d of %d", count,
              dim, from->dims_count);
    ct_type type = {.dtype = from->dtype, .dims_count = from->dims_count + 1 - count};
    for (int i = 0; i < type.dims_count; i++) type.dims[i] = from->dims[i <= dim ? i : i + count - 1];
    type.dims[dim] = ct_dim_make(name, 1);
    for (int i = 0; i < count; i++) type.dims[dim].extent *= from->dims[dim + i].extent;
    return ct_node_output(g, ct_build_node(g, &ct_op_merge, 1, &x, (double[]){dim, count}, &type), 0);
}

// ---- slice, concat ----

// `part` is `whole` but for dim `dim`'s name and extent.
static ct_status check_part(const ct_type *whole, const ct_type *part, int dim) {
    CT_CHECK(part->dims_count == whole->dims_count, CT_INVALID, "a part of %d dims in a whole of %d", part->dims_count,
             whole->dims_count);
    CT_CHECK(dims_equal(whole->dims, part->dims, dim) &&
                 dims_equal(whole->dims + dim + 1, part->dims + dim + 1, whole->dims_count - dim - 1),
             CT_INVALID, "part and whole differ beside dim %d", dim);
    return CT_OK;
}

// In memory a part is one run.
ct_status ct_view_check_memory(const ct_graph *graph, const ct_node *node) {
    int is_slice = node->op == &ct_op_slice, dim = (int)node->attrs[0];
    if (!is_slice && node->op != &ct_op_concat) return CT_OK;
    const ct_type *whole = &graph->values[is_slice ? node->inputs[0] : node->outputs[0]].type;
    for (int i = 0; i < dim; i++)
        CT_CHECK(whole->dims[i].extent <= 1, CT_UNSUPPORTED, "%s in %s: a part of dim %d is not contiguous: %s=%lld is before it",
                 node->op->name, node->from.module, dim, whole->dims[i].name, (long long)whole->dims[i].extent);
    return CT_OK;
}

// In how many parts the mesh cuts input 0's dim.
static int64_t parts_of(const ct_graph *g, const ct_node *node, int dim) {
    unsigned axes = ct_layout_axes_of_dim(&g->values[node->inputs[0]].layout, dim);
    int64_t parts = 1;
    for (int a = 0; a < g->mesh.axes_count; a++)
        if (axes >> a & 1) parts *= g->mesh.axes[a].size;
    return parts;
}

// Along a dim that is cut, each rank has its own part of what the global slice says: its start must be whole there.
static int slice_map(const ct_graph *g, const ct_node *node, int in_dim, int *out_dim) {
    *out_dim = in_dim;
    return in_dim != (int)node->attrs[0] || (int64_t)node->attrs[1] % parts_of(g, node, in_dim) == 0;
}
static void slice_localise(const ct_graph *global, const ct_graph *local, ct_node *node) {
    int dim = (int)node->attrs[0], x = node->inputs[0];
    int64_t whole = global->values[x].type.dims[dim].extent, part = local->values[x].type.dims[dim].extent;
    if (whole) node->attrs[1] = (double)((int64_t)node->attrs[1] * part / whole);
}

static ct_status slice_check(const ct_graph *graph, const ct_node *node, const ct_type *declared) {
    const ct_type *x = in_type(graph, node, 0);
    CT_TRY(check_dim(x, node->attrs[0], "dim"));
    int dim = (int)node->attrs[0];
    CT_TRY(check_part(x, declared, dim));
    double start = node->attrs[1], whole = (double)x->dims[dim].extent, extent_part = (double)declared->dims[dim].extent;
    CT_CHECK(start >= 0 && extent_part >= 0 && start + extent_part <= whole && start == (double)(int64_t)start,
             CT_INVALID, "[%g, %g) of %s=%g", start, start + extent_part, x->dims[dim].name, whole);
    return CT_OK;
}

static ct_status concat_check(const ct_graph *graph, const ct_node *node, const ct_type *declared) {
    CT_TRY(check_dim(declared, node->attrs[0], "dim"));
    int dim = (int)node->attrs[0];
    int64_t sum = 0;
    for (int i = 0; i < node->inputs_count; i++) {
        const ct_type *x = in_type(graph, node, i);
        CT_CHECK(x->dtype == in_type(graph, node, 0)->dtype, CT_INVALID, "operand %d is %s, operand 0 is %s", i,
                 ct_dtype_name(x->dtype), ct_dtype_name(in_type(graph, node, 0)->dtype));
        CT_TRY(check_part(declared, x, dim));
        sum += x->dims[dim].extent;
    }
    CT_CHECK(sum == declared->dims[dim].extent, CT_INVALID, "parts of %lld for %s=%lld", (long long)sum,
             declared->dims[dim].name, (long long)declared->dims[dim].extent);
    return CT_OK;
}

const ct_op ct_op_slice = {
    .name = "slice",
    .formula = "y: elements `start` … of dim `dim` of x; all dims before it are 1 on each rank",
    .rule = "", .dtypes = "?>?",
    .inputs = 1, .outputs = 1,
    .attrs = {"dim", "start"},
    .flags = CT_OP_VIEW | CT_OP_LINEAR0,
    .must_alias = {1},
    .check = slice_check, .map_dim = slice_map, .localise = slice_localise,
};

const ct_op ct_op_concat = {
    .name = "concat",
    .formula = "y: the operands one after another along dim `dim`; all dims before it are 1 on each rank",
    .rule = "", .dtypes = "?>?",
    .inputs = -1, .outputs = 1,
    .attrs = {"dim"},
    .flags = CT_OP_VIEW | CT_OP_ADDITIVE,
    .check = concat_check, .map_dim = same_map,
};

ct_value ct_slice(ct_graph *g, ct_value x, int dim, int64_t start, int64_t extent_part, const char *name) {
    if (x.id < 0) return CT_NO_VALUE;
    ct_type type = *ct_value_type(g, x);
    CT_ASSERT(dim >= 0 && dim < type.dims_count, "dim %d of %d", dim, type.dims_count);
    type.dims[dim] = ct_dim_make(name, extent_part);
    return ct_node_output(g, ct_build_node(g, &ct_op_slice, 1, &x, (double[]){dim, (double)start}, &type), 0);
}

ct_value ct_concat(ct_graph *g, int count, const ct_value *x, int dim, const char *name) {
    CT_ASSERT(count >= 1, "concat of nothing");
    for (int i = 0; i < count; i++)
        if (x[i].id < 0) return CT_NO_VALUE;
    ct_type type = *ct_value_type(g, x[0]);
    CT_ASSERT(dim >= 0 && dim < type.dims_count, "dim %d of %d", dim, type.dims_count);
    type.dims[dim] = ct_dim_make(name, 0);
    for (int i = 0; i < count; i++) type.dims[dim].extent += ct_value_type(g, x[i])->dims[dim].extent;
    return ct_node_output(g, ct_build_node(g, &ct_op_concat, count, x, (double[]){dim}, &type), 0);
}
