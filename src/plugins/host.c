// What a plugin may call: the builder of graphs behind checks, since a plugin's mistake is a message and not an assertion of ours.
#include "host.h"
#include "base/team.h"
#include "ops/ops.h"

#include <string.h>

static ct_graph *graph_of(ctitan_graph *g) { return (ct_graph *)(void *)g; }
static const ct_graph *const_graph_of(const ctitan_graph *g) { return (const ct_graph *)(const void *)g; }

static void complain(ct_graph *g, const char *what, const char *name) {
    const char *module = g->at.module && g->at.module[0] ? g->at.module : "the model";
    ct_graph_fail(g, ct_error_make(CT_INVALID, __FILE__, __LINE__, "a plugin's %s \"%s\" (in %s)", what, name, module));
}

int plugin_is_value(const ct_graph *g, ctitan_value value) { return value >= 0 && value < g->values_count; }

int plugin_holds(ct_graph *g, int ok, const char *what, const char *name) {
    if (!ok) complain(g, what, name);
    return ok && !g->error_text[0];
}

static ctitan_value host_node(ctitan_graph *graph, const char *name, int count, const ctitan_value *inputs, const double *attrs) {
    ct_graph *g = graph_of(graph);
    const ct_op *op = ct_op_find(name);
    ct_value in[CT_MAX_INPUTS];
    if (!plugin_holds(g, op && !op->check, "node of an op that is not there, or a view,", name)) return -1;
    if (!plugin_holds(g, count >= 1 && count <= CT_MAX_INPUTS, "node has too few or too many operands, op", name)) return -1;
    for (int i = 0; i < count; i++) {
        if (!plugin_holds(g, plugin_is_value(g, inputs[i]), "node has an operand that is no value, op", name)) return -1;
        in[i].id = inputs[i];
    }
    return ct_node_output(g, ct_build_node(g, op, count, in, attrs, NULL), 0).id;
}

static ctitan_value host_output(ctitan_graph *graph, ctitan_value first, int number) {
    ct_graph *g = graph_of(graph);
    if (!plugin_holds(g, plugin_is_value(g, first) && g->values[first].node >= 0, "output of a value that no node made", "")) return -1;
    const ct_node *node = &g->nodes[g->values[first].node];
    return plugin_holds(g, number >= 0 && number < node->outputs_count, "output that is not there, of op", node->op->name) ? node->outputs[number] : -1;
}

int plugin_is_dim(const ctitan_dim *dim) { return dim->name[0] && memchr(dim->name, 0, sizeof dim->name) && dim->extent >= 0; }

static ctitan_value host_split(ctitan_graph *graph, ctitan_value x, int dim, int parts, const ctitan_dim *into) {
    ct_graph *g = graph_of(graph);
    int fits = plugin_is_value(g, x) && dim >= 0 && dim < g->values[x].type.dims_count && parts >= 1 && g->values[x].type.dims_count - 1 + parts <= CT_MAX_DIMS;
    for (int i = 0; fits && i < parts; i++) fits = plugin_is_dim(&into[i]);
    if (!plugin_holds(g, fits, "split that does not fit its operand", "split")) return -1;
    ct_dim dims[CT_MAX_DIMS];
    memcpy(dims, into, sizeof *dims * (size_t)parts);
    return ct_split(g, (ct_value){x}, dim, parts, dims).id;
}

static ctitan_value host_merge(ctitan_graph *graph, ctitan_value x, int dim, int count, const char *name) {
    ct_graph *g = graph_of(graph);
    int fits = plugin_is_value(g, x) && dim >= 0 && count >= 1 && count <= CT_MAX_DIMS && dim + count <= g->values[x].type.dims_count && name[0];
    return plugin_holds(g, fits, "merge that does not fit its operand", "merge") ? ct_merge(g, (ct_value){x}, dim, count, name).id : -1;
}

static const ctitan_type *host_type(const ctitan_graph *graph, ctitan_value value) {
    static const ct_type none = {.dtype = CT_F32};
    const ct_graph *g = const_graph_of(graph);
    return (const ctitan_type *)(const void *)(plugin_is_value(g, value) ? &g->values[value].type : &none);
}

static void host_phase(ctitan_graph *graph, ctitan_phase phase) { graph_of(graph)->at.phase = (ct_phase)phase; }

static void host_role(ctitan_graph *graph, const char *dim, ctitan_role role) {
    ct_graph *g = graph_of(graph);
    int room = g->roles_count < (int)(sizeof g->roles / sizeof *g->roles), known = (int)role >= 0 && (int)role < CT_ROLES;
    for (int i = 0; i < g->roles_count; i++)
        if (!strcmp(g->roles[i].name, dim)) known &= g->roles[i].role == (ct_role)role;
    if (plugin_holds(g, room && known && dim[0] && strlen(dim) < sizeof g->roles->name, "role for a dim that has another, or none can have,", dim))
        ct_graph_role(g, dim, (ct_role)role);
}

static void host_at(ctitan_graph *graph, int layer, const char *module) { ct_graph_at(graph_of(graph), CT_FORWARD, layer, "%s", module); }

static ctitan_value host_feed(ctitan_graph *graph, const char *name, ctitan_type type) {
    ct_graph *g = graph_of(graph);
    int fits = type.dims_count >= 0 && type.dims_count <= CT_MAX_DIMS && type.dtype >= 0 && type.dtype <= CTITAN_I64;
    for (int i = 0; fits && i < type.dims_count; i++) fits = plugin_is_dim(&type.dims[i]);
    if (!plugin_holds(g, fits && ct_graph_find_input(g, name) < 0, "feed has no type, or is there already,", name)) return -1;
    ct_type ours;
    memcpy(&ours, &type, sizeof ours);
    return ct_build_input(g, CT_FEED, name, ours).id;
}

static ctitan_value host_parameter(ctitan_graph *graph, const char *name) {
    ct_graph *g = graph_of(graph);
    int input = ct_graph_find_input(g, name);
    return plugin_holds(g, input >= 0, "model reads a parameter that it did not list,", name) ? g->inputs[input].value : -1;
}

static void host_residual(ctitan_graph *graph, ctitan_value value) {
    ct_graph *g = graph_of(graph);
    if (plugin_holds(g, plugin_is_value(g, value), "residual is no value", "residual")) ct_graph_hint(g, (ct_value){value}, CT_HINT_RESIDUAL);
}

static void host_token_loss(ctitan_graph *graph, ctitan_value value) {
    ct_graph *g = graph_of(graph);
    int fits = plugin_is_value(g, value) && g->values[value].type.dtype == CT_F32 && g->values[value].type.dims_count == 2;
    if (plugin_holds(g, fits, "token_loss is not f32[B T]", "token_loss")) ct_build_output(g, "token_loss", (ct_value){value});
}

static void host_run(ctitan_team *team, void (*task)(void *, int, int), void *context) { ct_team_run((ct_team *)(void *)team, task, context); }

const ctitan_host plugin_host = {CTITAN_ABI, host_node, host_output, host_split, host_merge, host_type, host_phase, host_role, host_at,
                                 host_feed, host_parameter, host_residual, host_token_loss, host_run};
