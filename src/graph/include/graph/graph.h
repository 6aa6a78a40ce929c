// The graph: a training step as data. SSA values with integer ids, nodes with op, operands, attributes and provenance.
//
// Notation (printer, parser, docs, tests): `bf16[B=8, T=1024, D=512]`: dtype, then named dims with extents, row-major.
// A program's inputs are feeds (written by the caller before a run) and state (kept between runs, at one address in all
// programs, named). A state that a program changes has a paired output, the last use of the input's memory.
#pragma once
#include "base/dtype.h"
#include "base/memory.h"
#include "base/status.h"
#include "graph/layout.h"

typedef struct ct_op ct_op; // graph/op.h

// What a dim means to placement; the model builder declares one for each dim name. An axis may cut only certain roles.
typedef enum {
    CT_ROLE_NONE, // never cut by an axis: head size, pairs
    CT_ROLE_BATCH,
    CT_ROLE_SEQUENCE,
    CT_ROLE_HEADS,
    CT_ROLE_HIDDEN,
    CT_ROLE_VOCABULARY,
    CT_ROLE_EXPERT,
    CT_ROLE_MODEL,
    CT_ROLES
} ct_role;
const char *ct_role_name(ct_role role);

typedef struct {
    char name[8]; // "B", "T", "D", …
    int64_t extent;
} ct_dim;

typedef struct {
    ct_dtype dtype;
    int dims_count;
    ct_dim dims[CT_MAX_DIMS];
} ct_type;

int64_t ct_type_elems(const ct_type *type);
size_t ct_type_bytes(const ct_type *type);
int ct_type_equal(const ct_type *a, const ct_type *b); // names, extents and dtype

// Makes a type from "B=2 T=64 D=48": ct_type_make(CT_F32, 3, (ct_dim[]){…}) in words. dims are copied.
ct_type ct_type_make(ct_dtype dtype, int dims_count, const ct_dim *dims);
static inline ct_dim ct_dim_make(const char *name, int64_t extent) {
    ct_dim dim = {.extent = extent};
    for (size_t i = 0; i + 1 < sizeof dim.name && name[i]; i++) dim.name[i] = name[i];
    return dim;
}

typedef struct {
    int id; // -1: none
} ct_value;
#define CT_NO_VALUE ((ct_value){-1})

typedef enum { CT_FORWARD, CT_RECOMPUTE, CT_INPUT_GRAD, CT_WEIGHT_GRAD, CT_OPTIMIZER, CT_PHASES } ct_phase;
const char *ct_phase_name(ct_phase phase);

typedef struct {
    const char *module; // "layers.3.attention.wq"; in the graph's arena
    ct_phase phase;
    int layer; // -1: none
    int stage; // pipeline stage
} ct_provenance;

typedef struct {
    const ct_op *op;
    int inputs_count, outputs_count;
    int *inputs; // value ids; a list in the graph's arena (concat may have many)
    int outputs[CT_MAX_OUTPUTS];
    double attrs[CT_MAX_ATTRS]; // in the op's order
    ct_provenance from;
} ct_node;

// What placement should know of a value; the model builder says so, and gradients inherit it.
typedef enum {
    CT_HINT_NONE,
    CT_HINT_STAGES,   // each pipeline stage has its own part of a sum
    CT_HINT_GUEST,    // a state that another pipeline stage's ranks hold as well, and speak for
    CT_HINT_RESIDUAL, // the stream between layers: cut by every axis that may cut one of its dims, never partial
} ct_hint;

typedef struct {
    ct_type type; // global; in a local program (ct_graph_localise) what one rank holds
    int node;   // producer, -1 for a program input, -2 for an id that nothing defines
    int output; // index among the node's outputs, or index into the graph's inputs
    ct_hint hint;
    ct_layout layout; // over the graph's mesh; empty: replicated
    int placed;       // placement has chosen it
    // Of a local program only:
    int64_t origin[CT_MAX_DIMS]; // global index of the first element
    int64_t room[CT_MAX_DIMS];   // extents of the largest shard: memory is laid out for it, the same on every rank
} ct_value_info;

typedef enum {
    CT_FEED,      // written by the caller before a run
    CT_PARAMETER, // fp32 master weights
    CT_MOMENT,    // optimizer state
    CT_GRADIENT,  // gradient accumulator
    CT_WEIGHT_LOWP, // the step's low-precision cast of a weight
    CT_STATE,     // any other state: loss sum, norm, key-value cache
    CT_SAVED,     // what another program of a pipeline stage leaves for this one, a micro-batch apart. Its name begins with "%", and so does the
                  // name of the output that it is there; it ends with how long it lives, a ct_saved_life
    CT_INPUT_KINDS
} ct_input_kind;

// From when to when a saved value lives in its stage.
typedef enum {
    CT_LIFE_TO_INPUT_GRAD,  // from the forward, or its receive, to the input gradient
    CT_LIFE_TO_WEIGHT_GRAD, // to the weight gradients
    CT_LIFE_BACKWARD,       // from the input gradient to the weight gradients
    CT_LIFE_FROM_NEXT,      // a gradient of the next stage's, from its receive to the weight gradients
    CT_LIVES
} ct_saved_life;
ct_saved_life ct_life_of(const char *saved_name);

const char *ct_input_kind_name(ct_input_kind kind);

typedef struct {
    const char *name;
    ct_input_kind kind;
    int value;
    int update; // the paired output's value id, -1: unchanged
} ct_input;

typedef struct {
    const char *name;
    int value;
} ct_output;

typedef struct {
    char name[8];
    ct_role role;
} ct_dim_role;

typedef struct ct_graph {
    ct_arena arena;
    const char *name; // program: "prologue", "micro", "update", "eval", "generate"
    ct_mesh mesh;     // no axes: not placed
    int rank;         // of a local program, whose types are one rank's; -1: types are global
    const struct ct_graph *global; // of a local program: what it was made from
    ct_value_info *values;
    int values_count, values_capacity;
    ct_node *nodes; // in execution order
    int nodes_count, nodes_capacity;
    ct_input *inputs;
    int inputs_count, inputs_capacity;
    ct_output *outputs;
    int outputs_count, outputs_capacity;
    ct_dim_role roles[32];
    int roles_count;
    ct_provenance at; // provenance of the nodes being built
    char error_text[512]; // first error of the builder; later builds do nothing and return -1
} ct_graph;

// An empty program. Zero-initialised storage of the caller; deinit frees all.
void ct_graph_init(ct_graph *graph, const char *name);
void ct_graph_deinit(ct_graph *graph);

// Declares what a dim name means. Declaring it twice alike is fine.
void ct_graph_role(ct_graph *graph, const char *dim, ct_role role);
ct_role ct_graph_role_of(const ct_graph *graph, const char *dim);

// Sets the provenance of nodes built from here on.
void ct_graph_at(ct_graph *graph, ct_phase phase, int layer, const char *module_format, ...)
    __attribute__((format(printf, 4, 5)));

// ---- build: sticky errors (read graph->error_text through ct_graph_status) ----
ct_value ct_build_input(ct_graph *graph, ct_input_kind kind, const char *name, ct_type type);
void ct_build_update(ct_graph *graph, ct_value input, ct_value update); // pairs a state with its new value
void ct_build_output(ct_graph *graph, const char *name, ct_value value);

// Adds a node. `attrs` has the op's attributes in order (NULL: all zero). `declared` gives the outputs' types where the op can't
// infer them (views), else NULL. Returns the node's index, -1 on error.
int ct_build_node(ct_graph *graph, const ct_op *op, int inputs_count, const ct_value *inputs, const double *attrs,
                  const ct_type *declared);

static inline ct_value ct_node_output(const ct_graph *graph, int node, int output) {
    return node < 0 ? CT_NO_VALUE : (ct_value){graph->nodes[node].outputs[output]};
}
static inline const ct_type *ct_value_type(const ct_graph *graph, ct_value value) {
    return &graph->values[value.id].type;
}

// Says what a value is to placement.
static inline void ct_graph_hint(ct_graph *graph, ct_value value, ct_hint hint) {
    if (value.id >= 0) graph->values[value.id].hint = hint;
}

// Makes `status` the first error, unless there is one: for builders that find a program wrong before they add a node.
void ct_graph_fail(ct_graph *graph, ct_status status);

// The first build error, or success.
ct_status ct_graph_status(const ct_graph *graph);

// Index of the input with this name, -1 where there is none.
int ct_graph_find_input(const ct_graph *graph, const char *name);
int ct_graph_find_output(const ct_graph *graph, const char *name); // index into outputs

// Recomputes every node's output types from its inputs' types (after a pass changed dtypes).
ct_status ct_graph_reinfer(ct_graph *graph);

// Checks that each use follows its definition, types are what ops infer, attributes and operand counts fit, names are unique, roles are
// declared, and a state's paired output is the last use of its memory. The message names node and value.
ct_status ct_graph_verify(const ct_graph *graph);

// The graph as text, and back. Parsing what was printed gives the same graph, ids included, and printing that the same text.
// The parser inits `graph` (the caller deinits it on success; on an error nothing is left) and sees to syntax and names only: verify
// what came from outside. Errors, CT_INVALID, say file:line:column, what was found and what was wanted. `file` is for messages.
void ct_graph_print(const ct_graph *graph, ct_string *out);
void ct_type_print(const ct_type *type, ct_string *out);
void ct_layout_print(const ct_mesh *mesh, const ct_layout *layout, const ct_type *type, ct_string *out); // " {tp: S(V)}", or nothing
typedef const ct_op *ct_op_lookup(const char *name);
ct_status ct_graph_parse(ct_graph *graph, const char *text, const char *file, ct_op_lookup *lookup);
