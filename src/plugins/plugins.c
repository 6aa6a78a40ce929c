// Opening shared objects, checking what they say, and entries of our tables that call them. A refused file stays loaded: the run ends anyway. Types that cross the border have the same bytes on
// both sides, which the assertions below hold; nothing is copied in a step.
#include "plugins/plugins.h"
#include "host.h"
#include "kernels/kernel.h"
#include "ops/ops.h"

#include <dlfcn.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SAME(ours, theirs, field) _Static_assert(offsetof(ours, field) == offsetof(theirs, field), #field)
_Static_assert(sizeof(ct_dim) == sizeof(ctitan_dim) && sizeof(ct_type) == sizeof(ctitan_type), "types");
SAME(ct_type, ctitan_type, dims);
_Static_assert(sizeof(ct_tensor) == sizeof(ctitan_tensor) && sizeof(ct_call) == sizeof(ctitan_call), "calls");
SAME(ct_tensor, ctitan_tensor, origin);
SAME(ct_call, ctitan_call, out);
SAME(ct_call, ctitan_call, scratch);
_Static_assert(sizeof(ct_reference) == sizeof(ctitan_reference), "references");
SAME(ct_reference, ctitan_reference, out_origin);
_Static_assert((int)CT_I64 == (int)CTITAN_I64 && (int)CT_ROLE_MODEL == (int)CTITAN_ROLE_MODEL && (int)CT_OP_LOWP0 == (int)CTITAN_OP_LOWP0 &&
                   (int)CT_OP_LINEAR0 == (int)CTITAN_OP_LINEAR0 && (int)CT_WEIGHT_GRAD == (int)CTITAN_WEIGHT_GRAD &&
                   (int)CT_INIT_TRUNCATED_NORMAL == (int)CTITAN_INIT_TRUNCATED_NORMAL,
               "numbers");

typedef struct {
    ct_op op; // first: a node's op is the entry
    const ctitan_op *theirs;
} op_entry;

typedef struct {
    ct_model_kind kind; // first
    const ctitan_model *theirs;
} model_entry;

// ---- ops ----
static const ctitan_op *theirs_of(const ct_op *op) { return ((const op_entry *)(const void *)op)->theirs; }

static double call_flops(const ct_graph *g, const ct_node *node) {
    const ctitan_type *in[CT_MAX_INPUTS], *out[CT_MAX_OUTPUTS];
    for (int i = 0; i < node->inputs_count; i++) in[i] = (const ctitan_type *)(const void *)&g->values[node->inputs[i]].type;
    for (int i = 0; i < node->outputs_count; i++) out[i] = (const ctitan_type *)(const void *)&g->values[node->outputs[i]].type;
    return theirs_of(node->op)->flops(in, out, node->attrs);
}

static void call_grad(ct_grad *grad) {
    ct_graph *g = grad->graph;
    ct_node node = g->nodes[grad->node]; // the list may move while nodes are added
    ctitan_grad theirs = {.graph = (ctitan_graph *)(void *)g, .inputs = node.inputs_count, .outputs = node.outputs_count, .attrs = node.attrs};
    for (int i = 0; i < node.inputs_count; i++) theirs.in[i] = node.inputs[i], theirs.d_in[i] = -1;
    for (int i = 0; i < node.outputs_count; i++) theirs.out[i] = node.outputs[i], theirs.d_out[i] = grad->outputs[i].id;
    theirs_of(node.op)->grad(&plugin_host, &theirs);
    for (int i = 0; i < node.inputs_count; i++)
        if (theirs.d_in[i] != -1 && plugin_holds(g, plugin_is_value(g, theirs.d_in[i]), "gradient is no value, op", node.op->name)) grad->inputs[i].id = theirs.d_in[i];
}

// The table's function types and the plugin's differ in names of the same bytes.
static ct_kernel_fn *kernel_of(void (*run)(const ctitan_call *, ctitan_team *)) {
    ct_kernel_fn *ours;
    memcpy(&ours, &run, sizeof ours);
    return ours;
}
static ct_scratch_fn *scratch_of(size_t (*scratch)(const ctitan_call *, int)) {
    ct_scratch_fn *ours;
    memcpy(&ours, &scratch, sizeof ours);
    return ours;
}

static ct_status check_op(const ctitan_op *op) {
    CT_CHECK(op->formula && op->rule && op->dtypes && op->reference && op->kernels && op->kernels[0].dtypes, CT_INVALID,
             "op %s lacks its formula, rule, dtypes, reference or kernels", op->name);
    CT_CHECK(!ct_op_find(op->name), CT_INVALID, "there is an op %s already", op->name);
    CT_CHECK(op->inputs >= 1 && op->inputs <= CT_MAX_INPUTS && op->outputs >= 1 && op->outputs <= CT_MAX_OUTPUTS, CT_INVALID,
             "op %s has %d inputs and %d outputs; 1 to %d and 1 to %d are possible", op->name, op->inputs, op->outputs, CT_MAX_INPUTS, CT_MAX_OUTPUTS);
    ct_rule rule;
    CT_TRY_AS(ct_rule_parse(op->rule, &rule), "op %s", op->name);
    const char *arrow = strchr(op->dtypes, '>');
    CT_CHECK(rule.inputs == op->inputs && rule.outputs == op->outputs && arrow && arrow - op->dtypes == op->inputs &&
                 strlen(arrow + 1) == (size_t)op->outputs && strspn(op->dtypes, "cfbdil>") == strlen(op->dtypes),
             CT_INVALID, "op %s: the rule '%s' and the dtypes '%s' do not fit its %d inputs and %d outputs", op->name, op->rule, op->dtypes,
             op->inputs, op->outputs);
    for (const ctitan_kernel *k = op->kernels; k->dtypes; k++) {
        const char *to = strchr(k->dtypes, '>');
        CT_CHECK(k->run && to && to - k->dtypes == op->inputs && strlen(to + 1) == (size_t)op->outputs &&
                     strspn(k->dtypes, ".fbdil>") == strlen(k->dtypes),
                 CT_INVALID, "op %s: the kernel for '%s' has no function, or does not fit %d inputs and %d outputs", op->name, k->dtypes, op->inputs,
                 op->outputs);
    }
    for (int o = 0; o < op->outputs; o++)
        CT_CHECK(!(op->may_alias[o] >> op->inputs), CT_INVALID, "op %s: output %d may take the memory of an input that is not there", op->name, o);
    for (int i = 0; i < op->inputs; i++)
        CT_CHECK(!(op->flags >> i & CT_OP_LOWP0) || op->dtypes[i] == 'c', CT_INVALID, "op %s: operand %d is LOWP and not 'c'", op->name, i);
    unsigned known = CT_OP_SUM | CT_OP_MAX | 0xffu * CT_OP_LINEAR0 | 0xfffu * CT_OP_LOWP0;
    CT_CHECK(!(op->flags & ~known), CT_INVALID, "op %s has flags %#x that mean nothing here", op->name, op->flags & ~known);
    return CT_OK;
}

static void add_kernels(const ctitan_op *op) {
    int count = 0;
    while (op->kernels[count].dtypes) count++;
    ct_kernel *table = ct_calloc((size_t)count + 1, sizeof *table); // lives as long as the process
    for (int i = 0; i < count; i++)
        table[i] = (ct_kernel){op->name, op->kernels[i].dtypes, "generic", kernel_of(op->kernels[i].run),
                               op->kernels[i].scratch ? scratch_of(op->kernels[i].scratch) : NULL, "a plugin's"};
    ct_kernels_add(table);
}

static ct_status add_op(const ctitan_op *op) {
    op_entry *entry = ct_calloc(1, sizeof *entry);
    entry->theirs = op;
    entry->op = (ct_op){.name = op->name, .formula = op->formula, .rule = op->rule, .dtypes = op->dtypes, .inputs = op->inputs,
                        .outputs = op->outputs, .flags = op->flags, .grad = op->grad ? call_grad : NULL, .flops = op->flops ? call_flops : NULL};
    memcpy(entry->op.attrs, op->attrs, sizeof entry->op.attrs);
    memcpy(entry->op.may_alias, op->may_alias, sizeof entry->op.may_alias);
    memcpy(&entry->op.reference, &op->reference, sizeof entry->op.reference);
    CT_TRY(ct_ops_add(&entry->op));
    add_kernels(op);
    return CT_OK;
}

// ---- models ----
struct ctitan_listing {
    ct_arena *arena;
    ct_model *model;
    int capacity;
    const char *wrong; // name of the first parameter that can't be
};

static void add_parameter(ctitan_listing *l, const char *name, const ctitan_dim *dims, int dims_count, ctitan_init init, double std, double cut) {
    ct_model *m = l->model;
    int fits = name && name[0] && dims_count >= 1 && dims_count <= CT_MAX_DIMS && (int)init >= 0 && init <= CTITAN_INIT_TRUNCATED_NORMAL;
    for (int i = 0; fits && i < dims_count; i++) fits = plugin_is_dim(&dims[i]) && dims[i].extent > 0;
    for (int i = 0; fits && i < m->parameters_count; i++) fits = strcmp(m->parameters[i].name, name) != 0;
    if (!fits) {
        if (!l->wrong) l->wrong = name && name[0] ? ct_arena_strdup(l->arena, name) : "(no name)";
        return;
    }
    if (m->parameters_count == l->capacity) { // in the arena: an old list is left there
        int capacity = 2 * l->capacity + 16;
        ct_parameter *grown = CT_ARENA_ARRAY(l->arena, ct_parameter, capacity);
        if (m->parameters_count) memcpy(grown, m->parameters, sizeof *grown * (size_t)m->parameters_count);
        m->parameters = grown;
        l->capacity = capacity;
    }
    ct_dim ours[CT_MAX_DIMS];
    memcpy(ours, dims, sizeof *ours * (size_t)dims_count);
    m->parameters[m->parameters_count++] =
        (ct_parameter){ct_arena_strdup(l->arena, name), ct_type_make(CT_F32, dims_count, ours), {(ct_init_kind)init, std, -cut, cut}};
}

static ct_status open_model(const ct_model_kind *kind, ct_arena *arena, const char *flavor, const ct_model_override *overrides, int count,
                            ct_model *out) {
    const ctitan_model *theirs = ((const model_entry *)(const void *)kind)->theirs;
    int known = 0;
    for (int i = 0; theirs->flavors && theirs->flavors[i]; i++) known |= !strcmp(theirs->flavors[i], flavor);
    CT_CHECK(known, CT_INVALID, "model.flavor = \"%s\": %s has no such flavour", flavor, theirs->name);
    ctitan_override *list = CT_ARENA_ARRAY(arena, ctitan_override, count + 1);
    for (int i = 0; i < count; i++) {
        CT_CHECK(!overrides[i].text, CT_INVALID, "model.args.%s: %s takes numbers only", overrides[i].key, theirs->name);
        list[i] = (ctitan_override){overrides[i].key, overrides[i].number};
    }
    ctitan_shape *shape = CT_ARENA_NEW(arena, ctitan_shape);
    *out = (ct_model){.kind = kind, .flavor = ct_arena_strdup(arena, flavor), .args = shape};
    ctitan_listing listing = {.arena = arena, .model = out};
    const char *wrong = theirs->describe(flavor, list, count, shape, &listing, add_parameter);
    CT_CHECK(!wrong, CT_INVALID, "model %s: %s", theirs->name, wrong ? wrong : "");
    CT_CHECK(!listing.wrong, CT_INVALID, "model %s: its parameter %s is there twice, or has no dims, no extent or no such init", theirs->name,
             listing.wrong);
    CT_CHECK(out->parameters_count > 0, CT_INVALID, "model %s lists no parameters", theirs->name);
    out->shape = (ct_model_shape){.dim = shape->dim, .n_layers = shape->n_layers, .n_heads = shape->n_heads, .n_kv_heads = shape->n_kv_heads,
                                  .head_dim = shape->head_dim, .ffn_dim = shape->ffn_dim, .vocab_size = shape->vocab_size,
                                  .max_seq_len = shape->max_seq_len};
    return CT_OK;
}

static void build_model(const ct_model *model, ct_graph *g, ct_build_options options) {
    const ctitan_model *theirs = ((const model_entry *)(const void *)model->kind)->theirs;
    if (options.kind != CT_BUILD_LOSS) {
        (void)plugin_holds(g, 0, "model is built for training only:", theirs->name);
        return;
    }
    for (int i = 0; i < model->parameters_count; i++) {
        const ct_parameter *p = &model->parameters[i];
        ct_build_input(g, CT_PARAMETER, p->name, p->type);
    }
    theirs->build(&plugin_host, (ctitan_graph *)(void *)g, model->args, options.batch, options.seq_len);
    (void)plugin_holds(g, ct_graph_find_output(g, "token_loss") >= 0, "model does not say its token_loss:", theirs->name);
}

static ct_status check_model(const ctitan_model *model) {
    CT_CHECK(model->describe && model->build && model->flavors && model->flavors[0], CT_INVALID, "model %s lacks describe, build or flavours",
             model->name);
    return CT_OK;
}

static ct_status add_model(const ctitan_model *model) {
    static const char *const keys[] = {NULL};
    model_entry *entry = ct_calloc(1, sizeof *entry);
    entry->theirs = model;
    entry->kind = (ct_model_kind){model->name, open_model, build_model, model->flavors, keys};
    ct_status status = ct_model_kinds_add(&entry->kind);
    if (status) free(entry);
    return status;
}

// ---- data sources ----
enum { MOST_SOURCES = 64 };
static const ctitan_source *sources[MOST_SOURCES];
static int sources_count;

const ctitan_source *ct_plugins_source(const char *name) {
    for (int i = 0; i < sources_count; i++)
        if (!strcmp(sources[i]->name, name)) return sources[i];
    return NULL;
}

static ct_status check_source(const ctitan_source *source) {
    CT_CHECK(source->open && source->read, CT_INVALID, "data source %s lacks open or read", source->name);
    CT_CHECK(!ct_plugins_source(source->name), CT_INVALID, "there is a data source %s already", source->name);
    CT_CHECK(sources_count < MOST_SOURCES, CT_INVALID, "more than %d data sources of plugins", MOST_SOURCES);
    return CT_OK;
}

// ---- files ----
static ct_status check_all(const ctitan_plugin_description *d) {
    CT_CHECK(d, CT_INVALID, "it says that it can't serve this ctitan");
    CT_CHECK(d->abi == CTITAN_ABI, CT_INVALID, "it is built for plugin ABI %d, this ctitan has %d", d->abi, CTITAN_ABI);
    for (const ctitan_op *op = d->ops; op && op->name; op++) CT_TRY(check_op(op));
    for (const ctitan_model *m = d->models; m && m->name; m++) CT_TRY(check_model(m));
    for (const ctitan_source *s = d->sources; s && s->name; s++) CT_TRY(check_source(s));
    return CT_OK;
}

static ct_status add_all(const ctitan_plugin_description *d) {
    for (const ctitan_op *op = d->ops; op && op->name; op++) CT_TRY(add_op(op));
    for (const ctitan_model *m = d->models; m && m->name; m++) CT_TRY(add_model(m));
    for (const ctitan_source *s = d->sources; s && s->name; s++) {
        CT_TRY(check_source(s)); // the same name twice in one plugin
        sources[sources_count++] = s;
    }
    return CT_OK;
}

// Handles of what was loaded; a file by another of its names has the same.
enum { MOST_MODULES = 64 };
static void *modules[MOST_MODULES];
static int modules_count;

static ct_status add_module(void *module) {
    ctitan_plugin_fn *entry;
    void *symbol = dlsym(module, "ctitan_plugin");
    memcpy(&entry, &symbol, sizeof entry);
    CT_CHECK(symbol, CT_INVALID, "it exports no function ctitan_plugin");
    CT_CHECK(modules_count < MOST_MODULES, CT_INVALID, "more than %d plugins", MOST_MODULES);
    const ctitan_plugin_description *description = entry(&plugin_host);
    CT_TRY(check_all(description));
    CT_TRY(add_all(description)); // what it added before an error stays, and so the file stays loaded
    modules[modules_count++] = module;
    return CT_OK;
}

static ct_status load_one(const char *path) {
    char *with_folder = strchr(path, '/') ? ct_strdup(path) : ct_format("./%s", path); // dlopen looks elsewhere for bare names
    void *module = dlopen(with_folder, RTLD_NOW | RTLD_LOCAL);
    free(with_folder);
    CT_CHECK(module, CT_NOT_FOUND, "cannot load it: %s", dlerror());
    for (int i = 0; i < modules_count; i++)
        if (modules[i] == module) {
            dlclose(module); // one of two holds on it
            return CT_OK;
        }
    return add_module(module);
}

ct_status ct_plugins_load(const char *const *paths, int count) {
    for (int i = 0; i < count; i++) CT_TRY_AS(load_one(paths[i]), "plugin %s", paths[i]);
    return CT_OK;
}
