// An op: everything the passes need to know of it. One op is one const struct in one file of ops/, listed in ops/table.c.
#pragma once
#include "graph/graph.h"

// A gradient being built: what an op's grad function sees.
typedef struct ct_grad {
    ct_graph *graph;
    int node;                             // the forward node
    ct_value outputs[CT_MAX_OUTPUTS];     // gradients of its outputs; -1 where nothing depends on one
    ct_value inputs[CT_MAX_INPUTS];       // to be set: gradients of its inputs; -1: none
    ct_phase phases[CT_MAX_INPUTS];       // scratch of autodiff
} ct_grad;

// A reference call: operands in double. Integer operands are exact in double.
typedef struct {
    int inputs, outputs;
    const ct_type *in_types[CT_MAX_INPUTS], *out_types[CT_MAX_OUTPUTS];
    const double *in[CT_MAX_INPUTS];
    double *out[CT_MAX_OUTPUTS];
    const double *attrs;
    // Global index of an operand's first element along each dim; NULL: zeros. For ops that look at an index's value.
    const int64_t *in_origin[CT_MAX_INPUTS], *out_origin[CT_MAX_OUTPUTS];
} ct_reference;

typedef struct {
    double flops;
    double bytes_read, bytes_written;
} ct_cost;

enum {
    CT_OP_VIEW = 1,     // no kernel: the output is (part of) the input's memory
    CT_OP_SUM = 2,      // a sum over the indices that its output lacks: sharding one makes the output partial
    CT_OP_MAX = 4,      // a maximum over them (Pmax)
    CT_OP_ADDITIVE = 8, // a sum (or a joining) of its inputs: all partial on an axis, so is the output. With an operand in place: the sum of
                        // that operand and of what the op makes of the others
    CT_OP_MOVE = 16,    // no kernel: data moves between ranks, by the layouts of input and output (graph/reshard.h)
    CT_OP_ROTATE = 32,  // of a move: each rank gets what the rank attrs[1] places before it on axis attrs[0] has, the last's going to the first
    CT_OP_BLOCKS = 64,  // fixed indices may be cut: the op then works on each rank's blocks by themselves, for passes that know what that means
    CT_OP_PARTS = 1 << 29, // of a move: what ranks have becomes parts of a sum
    CT_OP_MACRO = 128,  // no kernel: a pass must expand it before the plan
    CT_OP_LINEAR0 = 256, // linear in input 0 (a partial sum may pass through), LINEAR0 << i for input i < 8
    CT_LINEAR_INPUTS = 8,
    CT_OP_LOWP0 = 1 << 16, // input 0 is read in the compute dtype (precision pass casts a weight there), LOWP0 << i
    CT_OP_WHOLE0 = 1 << 28, // of a macro: output 0 is whole whatever is cut (its expansion reduces it), WHOLE0 << o
};

struct ct_op {
    const char *name;
    const char *formula;                // in words or symbols, for docs and `ctitan graph --ops`
    const char *rule;                   // "B T K, N K -> B T N"; "*": any dims, the same wherever "*" stands; "!": may not be sharded; "": scalar
    const char *dtypes;                 // "cc>c": c compute (f32 or bf16, all alike), f b i l d fixed, o: f32 where attr 0 is set, else c
    int inputs, outputs;                // inputs -1: any number ≥ 1
    const char *attrs[CT_MAX_ATTRS];    // attribute names
    unsigned flags;
    unsigned may_alias[CT_MAX_OUTPUTS]; // bit i: output may take input i's memory where that is its last use
    int must_alias[CT_MAX_OUTPUTS];     // 1 + i: output is input i's memory (state updates, views)

    // Extent and name of a rule letter that only the outputs have ("V" from attrs). NULL where there is none.
    int (*bind)(const ct_graph *graph, const ct_node *node, const char *letter, ct_dim *out_dim);
    // For ops whose outputs' types no rule gives: checks the declared types. NULL: the rule is enough.
    ct_status (*check)(const ct_graph *graph, const ct_node *node, const ct_type *declared);
    // Builds the gradients of the inputs. NULL: not differentiable (its inputs get none).
    void (*grad)(ct_grad *grad);
    // FLOPs; NULL: 0. Bytes are those of the operands.
    double (*flops)(const ct_graph *graph, const ct_node *node);
    // Of the gradient of an op whose operands are this one's from 1 on: that op's name, and the op that gives its output 0 once more, the same bits,
    // behind the gradients.
    const char *forward, *again;
    // The op whose kernels serve this one; NULL: its own.
    const char *kernel;
    // Views: the output's dim that a cut of input 0's dim `in_dim` becomes (all operands of a concat alike); 0 where none may pass.
    int (*map_dim)(const ct_graph *graph, const ct_node *node, int in_dim, int *out_dim);
    // Attributes of the node as one rank runs it, its operands' types being local by now. NULL: they are those of the global node.
    void (*localise)(const ct_graph *global, const ct_graph *local, ct_node *node);
    // The op in double; the caller rounds once. NULL only for views and moves.
    void (*reference)(const ct_reference *call);
};

// Infers the outputs' types of a node from its inputs' by the op's rule and dtypes.
ct_status ct_op_infer(const ct_graph *graph, const ct_node *node, const ct_type *declared, ct_type *out_types);

// Infers the outputs' layouts of a node from its inputs' by the op's rule and flags. CT_INVALID says what is not allowed: a cut of a fixed
// index, one axis on two indices, an operand that is not cut alike, a partial sum where the op is not linear. Not for moves, whose
// outputs' layouts are declared.
ct_status ct_op_infer_layouts(const ct_graph *graph, const ct_node *node, ct_layout *out_layouts);

// What the table says of an op, for people: attributes, formula, rule, dtypes, flags.
void ct_op_print(const ct_op *op, ct_string *out);

// Bytes and FLOPs of a node.
ct_cost ct_op_cost(const ct_graph *graph, const ct_node *node);

// ---- a rule, taken apart (for placement, tests and docs) ----
typedef struct {
    char letter[8]; // "B"; "*" any dims
    int fixed;      // "!": may not be sharded
} ct_rule_index;
typedef struct {
    int count;
    ct_rule_index index[CT_MAX_DIMS];
} ct_rule_operand;
typedef struct {
    int inputs, outputs;
    ct_rule_operand in[CT_MAX_INPUTS], out[CT_MAX_OUTPUTS];
} ct_rule;
ct_status ct_rule_parse(const char *text, ct_rule *out_rule);
