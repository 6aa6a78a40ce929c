// A call of an op to test it with: types, attributes and numbers, made from the op's table entry alone. Where an op's inputs need care
// (tokens below V, a maximum that is one) a hook in hooks.c looks after them.
#pragma once
#include "ops/interpret.h"
#include "ops/ops.h"

typedef struct {
    const ct_op *op;
    ct_rule rule; // of ops that have one
    unsigned seed;
    uint64_t random;
    int inputs, outputs, views_declare;
    ct_type in[CT_MAX_INPUTS], out[CT_MAX_OUTPUTS];
    double attrs[CT_MAX_ATTRS];
    double *data[CT_MAX_INPUTS];
    double *result[CT_MAX_OUTPUTS]; // of example_run
    int64_t in_origin[CT_MAX_INPUTS][CT_MAX_DIMS], out_origin[CT_MAX_OUTPUTS][CT_MAX_DIMS]; // where a part begins in the whole
} example;

typedef enum { TINY, SMALL, LARGE } example_size; // extents 1 to 4 · at least 3 · odd and even up to some hundreds

// An op's hook; any member may be NULL.
typedef struct {
    const char *op;
    int64_t (*extent)(const example *e, const char *letter, int64_t proposed);
    void (*types)(example *e);  // views: in, out, attrs
    void (*attrs)(example *e);  // after defaults
    void (*fill)(example *e);   // after uniform numbers
    // Makes outputs comparable (a sum of digits to its normal form).
    void (*canonical)(const example *e, double **out);
    double seed_gradient; // where not 0: every element of output 0's gradient (default: random)
} example_hook;
const example_hook *example_hook_of(const char *op);

// compute: F32 or BF16, what 'c' stands for. The caller deinits.
void example_init(example *e, const ct_op *op, ct_dtype compute, example_size size, unsigned seed);
void example_deinit(example *e);

// A graph of this one node; its inputs are feeds. Returns the node, and fails the test where the op does not take them.
int example_build(const example *e, ct_graph *graph);

// Runs the reference in double into e->result and sets e->out.
void example_run(example *e);

// The part [begin, end) of a letter (of dim `star` where the letter is "*"). The caller deinits.
void example_cut(const example *e, const char *letter, int star, int64_t begin, int64_t end, example *out_part);

// Which dim of an operand the letter is, -1 where it has none.
int example_dim(const ct_rule_operand *operand, const char *letter, int star);

double example_uniform(example *e);               // in [-1, 1)
int example_below(example *e, int64_t n);         // in [0, n)
int example_is_star(const ct_rule_operand *operand);

// What was found, for the report.
typedef struct {
    const ct_op *op;
    char gradient[64], cuts[160], linear[32], kernels[160], missing[160];
    double gradient_error, cut_error, linear_error, kernel_error[CT_DTYPES];
} finding;

void check_entry(const ct_op *op);                       // the table entry is well-formed
void check_gradient(const ct_op *op, finding *found);    // against finite differences
void check_linear(const ct_op *op, finding *found);      // where flagged
void check_cuts(const ct_op *op, finding *found);        // every shardable index on 2 and 3 ranks
void check_kernels(const ct_op *op, finding *found);     // every kernel against the reference, any threads, any pieces
