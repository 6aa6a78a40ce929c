// The plan: for each program which kernel runs when and on which bytes. Exact before it starts; it touches no memory.
//
// Two spaces: one private to the rank, and one that the ranks of its node can read. In each, first what is kept between runs (feeds,
// parameters, moments, accumulators, low-precision weights, outputs), shared where a move reads it; then one region that programs use in
// turn for their temporaries, all of them shared where a program moves anything: two regions would peak at different times. Offsets are
// multiples of 64 bytes; those in the shared space are the same on every rank, uneven shards or not.
#pragma once
#include "graph/graph.h"
#include "graph/local.h"
#include "graph/op.h"
#include "kernels/kernel.h"

typedef enum {
    CT_PROGRAM_PROLOGUE, // at the start of a step: low-precision casts
    CT_PROGRAM_MICRO,    // for every micro-batch: forward, input-grad, weight-grad
    CT_PROGRAM_UPDATE,   // norm, clip, optimizer
    CT_PROGRAM_EVAL,
    CT_PROGRAM_GENERATE,
    CT_PROGRAM_STAGES, // of a pipeline, in the place of micro and eval: those of a rank's first stage, then of its next (ct_stage_program_of)
    CT_MOST_STAGES = 16, // of a rank
    CT_STAGE_PROGRAMS = 6, // forward, input-grad, weight-grad of a micro-batch; unshard, reduce once a step; eval
    CT_MICRO_PARTS = 3,
    CT_PROGRAMS = CT_PROGRAM_STAGES + CT_MOST_STAGES * CT_STAGE_PROGRAMS
} ct_program;

// Does a program run for every micro-batch?
static inline int ct_program_is_micro(ct_program program) {
    return program == CT_PROGRAM_MICRO || (program >= CT_PROGRAM_STAGES && (program - CT_PROGRAM_STAGES) % CT_STAGE_PROGRAMS < CT_MICRO_PARTS);
}

// How often a step of so many micro-batches runs a program: validation and generation are no part of it.
static inline int64_t ct_program_runs(ct_program program, int64_t micro_batches) {
    if (ct_program_is_micro(program)) return micro_batches;
    int is_eval = program == CT_PROGRAM_EVAL || (program >= CT_PROGRAM_STAGES && (program - CT_PROGRAM_STAGES) % CT_STAGE_PROGRAMS == CT_STAGE_PROGRAMS - 1);
    return is_eval || program == CT_PROGRAM_GENERATE ? 0 : 1;
}

// What a buffer's bytes count as.
typedef enum {
    CT_BYTES_PARAMETERS,
    CT_BYTES_OPTIMIZER,
    CT_BYTES_GRADIENTS,
    CT_BYTES_ACTIVATIONS,
    CT_BYTES_WEIGHTS_LOWP,
    CT_BYTES_COMMUNICATION,
    CT_BYTES_OTHER,
    CT_BYTES_KINDS
} ct_bytes_kind;
const char *ct_bytes_kind_name(ct_bytes_kind kind);

// A run of bytes that lives from node `first` to node `last` of its program; views, in-place outputs and parts of a concatenation
// share one.
typedef struct {
    size_t offset, bytes; // in the space; bytes rounded up to 64
    int first, last;
    ct_bytes_kind kind;
    int kept;   // lives between runs
    int slots;  // of kept ones: so many of these bytes behind one another, one for each micro-batch under way
    int shared; // in the shared space: peers read it
    int common; // other pipeline stages' ranks do, too: it lies at the same place in their plans
    const char *name; // of kept ones
} ct_buffer;

// A move whose ranks lie on several nodes is begun as early as its operand allows, up to a layer ahead, and ended where its node stands.
// Where asked for, readers of what is gathered run on one rank's part after the other, and who makes a sum sends each rank's part when it stands.
typedef enum {
    CT_DO_RUN,
    CT_DO_BEGIN, // a move's messages start
    CT_DO_END,   // they have come, and the result is made
    CT_DO_PART,  // a kernel on a part of its operands
    CT_DO_NEAR,  // of a gather that has begun: the parts that lie on this node are put in place
    CT_DO_PIECE, // the part of rank `peer` has come and is in place
    CT_DO_CLOSE, // all has come and gone
    CT_DO_OPEN,  // of a move that spreads sums: what comes may come; ends with CT_DO_END
    CT_DO_SEND,  // the part of rank `peer` goes
} ct_doing;

typedef struct {
    int node;
    ct_doing doing;
    int peer;    // of a piece that comes or goes
    int is_last; // of its node's instructions
    const ct_kernel *kernel;       // NULL: a move between ranks, see graph/local.h
    ct_call call;                  // dims, dtypes and attributes; exec fills in the pointers
    size_t in_offset[CT_MAX_INPUTS], out_offset[CT_MAX_OUTPUTS];
    unsigned in_shared, out_shared; // bit i: that operand lies in the shared space
    size_t scratch_offset, scratch_bytes;
} ct_instruction;

typedef struct {
    const ct_graph *graph; // borrowed; NULL: the plan has no such program
    ct_instruction *instructions;
    int instructions_count, instructions_capacity;
    ct_buffer *buffers; // temporaries of this program, scratch included
    int buffers_count;
    size_t *value_offset;  // by value id: its first byte in the space
    int *value_buffer;     // by value id: index into buffers, or -1 - index into the plan's kept buffers
    size_t live_bytes;     // largest sum of live temporaries (rounded to 64 bytes each)
    size_t extent_bytes, shared_extent_bytes; // what their placement takes in the private, or else in the shared space
    unsigned move_axes;    // axes over which any of its moves reaches
    int peak_node;         // where that largest sum is
    size_t peak_kinds[CT_BYTES_KINDS]; // all bytes at that node, kept ones included
} ct_plan_program;

typedef struct {
    ct_arena arena;
    ct_buffer *kept;
    int kept_count, common_count;
    size_t kept_bytes, shared_kept_bytes;
    ct_plan_program programs[CT_PROGRAMS];
    size_t peak_bytes; // extent of both spaces: kept + the largest program's temporaries
    size_t private_bytes, shared_bytes; // of each
    int peak_program;
    int threads;
    const char *isa;
    uint64_t hash; // of graphs and offsets
} ct_plan;

typedef struct {
    int threads;           // of a rank's team: scratch depends on it; results do not
    const char *isa_limit; // NULL: what the machine has
    ct_near near;          // ranks whose memory this one can read
    int no_overlap;        // 1: moves begin where they end
    int slots[CT_MOST_STAGES][CT_LIVES]; // of what a stage's programs save for one another, by its life; 0: 1
    int in_parts;          // 1: readers of gathered activations, and makers of sums, run on the part of one rank at a time (async tensor parallel)
} ct_plan_options;

// Plans the given programs (NULL entries: absent; placed ones as a rank runs them: graph/local.h), which must outlive the plan. Caller deinits.
ct_status ct_plan_make(const ct_graph *const programs[CT_PROGRAMS], ct_plan_options options, ct_plan *out_plan);
void ct_plan_deinit(ct_plan *plan);
const char *ct_program_name(ct_program program);
int ct_program_find(const char *name); // of those outside a pipeline's stages; CT_PROGRAMS: there is none

// Index of a kept buffer: state by its name; feeds and outputs by "program:name". -1: none.
int ct_plan_find_kept(const ct_plan *plan, const char *name);

// Does the value lie in the shared space?
int ct_plan_is_shared(const ct_plan *plan, ct_program program, int value);

// Largest sum of live bytes of the whole plan: kept + the largest program's live temporaries. peak_bytes ≤ 1.02 × this from 16 MB on.
size_t ct_plan_live_bytes(const ct_plan *plan);

// What would be executed in one run of a program, by the ops' costs.
double ct_plan_program_flops(const ct_plan *plan, ct_program program);

// What one instruction costs: of a part, its share; of a move's, all of it at the last.
ct_cost ct_instruction_cost(const ct_plan_program *program, int instruction);

// ---- placing intervals (plan/place.c), exposed for its brute-force test ----
// Gives every buffer an offset such that no two whose lives overlap share a byte; returns the extent. `live_bytes` is the largest sum
// of live sizes: several orders are tried until the extent is close to it.
size_t ct_place_buffers(ct_buffer *buffers, int count, size_t live_bytes);
