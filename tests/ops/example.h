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
    int is_part;                                                                            // out says what a rank has
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
    int wide_outputs;     // outputs of the compute dtype may be f32 whatever it is, beside those that may be partial sums
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

// The letters of an op's rule; a "*" has one entry a dim.
typedef struct {
    const char *letter;
    int star, fixed, in_inputs;
    int64_t extent;
} example_letter;
enum { LETTERS_MAX = 16 };
int example_letters(const example *e, example_letter *out_letters); // of an example that was run

// The part [begin, end) of a letter (of dim `star` where the letter is "*") of an example that was run. The caller deinits.
void example_cut(const example *e, const char *letter, int star, int64_t begin, int64_t end, example *out_part);

// The example on `ranks` ranks, each with a random share of the inputs of the mask: they add up to the whole's. The caller deinits each.
void example_share(const example *e, unsigned inputs, int ranks, example *out_shares);

// The input that an op adds to in place; -1: none.
int example_addend(const ct_op *op);

// Which dim of an operand the letter is, -1 where it has none.
int example_dim(const ct_rule_operand *operand, const char *letter, int star);

double example_uniform(example *e);               // in [-1, 1)
int example_below(example *e, int64_t n);         // in [0, n)
int example_is_star(const ct_rule_operand *operand);

// What was found, for the report.
typedef struct {
    const ct_op *op;
    char gradient[64], cuts[160], linear[32], shared[32], kernels[256], missing[160];
    double gradient_error, cut_error, linear_error, share_error, kernel_error[CT_DTYPES];
} finding;

void check_entry(const ct_op *op);                       // the table entry is well-formed
void check_gradient(const ct_op *op, finding *found);    // against finite differences
void check_linear(const ct_op *op, finding *found);      // where flagged
void check_shares(const ct_op *op, finding *found);      // partial sums pass where flagged
void check_cuts(const ct_op *op, finding *found);        // every shardable index on 2 and 3 ranks, some with nothing
void check_kernels(const ct_op *op, finding *found);     // every kernel against the reference, any threads, any pieces, none
