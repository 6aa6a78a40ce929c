// What the tests of row-wise kernels share: an op described by letters, run on any part of endless random tensors,
// with any number of threads and any misalignment, on each instruction set of the machine.
#pragma once
#include "kernels/kernel.h"

enum { CASE_OPERANDS = 12 };

// How numbers are drawn: around 1; from all binades between 2^-40 and 2^40 (a few zeros); denormals and zeros among
// small numbers; half of them up to ±200.
typedef enum { NORMAL, WIDE, DENORMAL, LARGE, KINDS } value_kind;

// An op on R rows of C columns. A letter an operand: X [R C] of the compute dtype, Y [R C] of out_dtype, F [R C] f32,
// S [R] f32, P [R] f32 above 0, W [C] f32, L [R] i32 labels in [0, C) (one of seven is -100), f scalar f32 in (0, 1),
// o scalar i32, G [R C] f32 above 0 where Y … stands for a second moment, d two f64 given by the case.
typedef struct {
    const char *op, *in, *out;
    double attrs[CT_MAX_ATTRS], scalars[2];
    int32_t first;
    ct_dtype dtype, out_dtype;
    value_kind kind;
    int inplace; // outputs are the memory of the first inputs of equal letter
} op_case;

typedef struct {
    const char *isa;
    int threads, skew; // skew: elements by which every tensor is off 64 bytes
    int64_t row, rows, cols;
} op_run;

typedef struct {
    double *values[CASE_OPERANDS]; // inputs, then outputs, as doubles
    void *bytes[CT_MAX_OUTPUTS];
    size_t sizes[CT_MAX_OUTPUTS], row_bytes[CT_MAX_OUTPUTS]; // row_bytes 0: the output has no rows
    int64_t elems[CASE_OPERANDS];
} op_result;

// Runs the case; fails the test where no kernel fits. The caller frees.
op_result op_case_run(const op_case *c, op_run run);
void op_result_free(op_result *result);

// Outputs of all threads, skews and cuts of rows are the same bits as those of one thread and all rows.
void assert_contract(const op_case *c, int64_t rows, int64_t cols);

// reference fills outputs and the sizes errors are measured by: |got - out| ≤ ulps · (2^-24 · size + 2^-149), plus
// half a bf16 ulp where the output is bf16.
typedef void op_reference(const op_case *c, int64_t R, int64_t C, double **in, double **out, double **size);
void assert_close_to(const op_case *c, op_reference *reference, int64_t rows, int64_t cols, double ulps);

// The instruction sets of this machine, "generic" first; NULL at the end.
const char *const *machine_isas(void);

// A number in (-1, 1) that is always the same for these arguments.
double endless(int tensor, int64_t row, int64_t col);

// Runs a kernel with scratch of exactly the size it asks for, which the test checks it keeps to.
void run_call(const char *op, ct_call *call, const char *isa, int threads);
