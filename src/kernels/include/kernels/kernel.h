// What a kernel is: a void function on resolved operands and a team. The plan proved the preconditions.
//
// Contract, for every kernel: the bits of an output do not depend on the number of threads, the number of rows, alignment, tails,
// or whether an operand comes in pieces; accumulating is g + (complete product). Kernels see base and plain types only.
#pragma once
#include "base/dtype.h"
#include "base/status.h"
#include "base/team.h"

// An operand: dense, row-major, 64-byte aligned at its start (a view into a larger buffer may be aligned to its element only).
typedef struct {
    void *data;
    ct_dtype dtype;
    int dims_count;
    int64_t dims[CT_MAX_DIMS];   // any may be 0: a shard can be empty
    int64_t origin[CT_MAX_DIMS]; // global index of the first element: a vocabulary's shard starts at row origin[0]
} ct_tensor;

static inline int64_t ct_tensor_elems(const ct_tensor *t) {
    int64_t n = 1;
    for (int i = 0; i < t->dims_count; i++) n *= t->dims[i];
    return n;
}

// A resolved call. `attrs` stand in the order in which the op declares them. An output may be the same memory as an input
// only where the kernel's entry says so. `scratch` holds at least what the entry's scratch function asked for.
typedef struct ct_call {
    int inputs, outputs;
    ct_tensor in[CT_MAX_INPUTS];
    ct_tensor out[CT_MAX_OUTPUTS];
    double attrs[CT_MAX_ATTRS];
    void *scratch; // 64-byte aligned
} ct_call;

typedef void ct_kernel_fn(const ct_call *call, ct_team *team);

// Scratch bytes for a call whose tensors have dtypes and dims but no data yet.
typedef size_t ct_scratch_fn(const ct_call *call, int threads);

// One kernel. `op` is the op's name in the op table. `dtypes` lists operands' dtypes that it serves, inputs then outputs, by the
// letters f (f32) b (bf16) i (i32) l (i64) d (f64), "." standing for any of f and b: "bb>f". The first entry of ct_kernel_table whose
// pattern fits and whose isa the machine has is used.
typedef struct {
    const char *op;
    const char *dtypes;
    const char *isa; // "avx512bf16", "avx512", "avx2", "generic"
    ct_kernel_fn *run;
    ct_scratch_fn *scratch; // NULL: none
    const char *note;       // accuracy and algorithm in a few words, for `ctitan plan`
} ct_kernel;

// All kernels, best first for each op; ends with an entry whose op is NULL. (kernels/table.c)
extern const ct_kernel *const ct_kernel_tables[]; // NULL-terminated list of such tables

// Adds a plugin's kernels, a table that ends as the others do and lives as long as the process. Before other threads look for kernels.
void ct_kernels_add(const ct_kernel *table);

// The kernel for an op with these dtypes on this machine, or NULL. isa_limit (NULL: none) caps the choice: CT_ISA sets it.
const ct_kernel *ct_kernel_find(const char *op, const ct_call *call, const char *isa_limit);

// "avx512bf16", "avx512", "avx2" or "generic": the best that this machine runs (CPUID), capped by isa_limit.
const char *ct_isa_best(const char *isa_limit);
