// A training step, made: the one place that knows in which order builder, autodiff, passes and plan run.
#pragma once
#include "models/model.h"
#include "ops/ops.h"
#include "parallel/place.h"
#include "parallel/stages.h"
#include "passes/passes.h"
#include "plan/plan.h"

// Of a pipeline. stages 0: none.
typedef struct {
    int stages;
    const char *const *const *modules; // by stage (parallel/stages.h)
    int joint;                             // backwards are whole: weight gradients are made with input gradients
    int local_count, local[CT_MOST_STAGES]; // this rank's stages, ascending; plan.slots says how many micro-batches each has under way
} ct_step_pipeline;

typedef struct {
    int64_t batch, seq_len;           // sequences of a micro-batch on one data rank, and tokens of a sequence
    int64_t eval_batch, eval_seq_len; // the same of validation; 0: no eval program
    ct_parallel parallel;             // all zero: one rank
    ct_step_pipeline pipeline;
    int rank;                         // whose plan is made
    int64_t cache_len;                // > 0: a generate program of one row and one token, and nothing else
    ct_dtype compute;                 // CT_F32 or CT_BF16
    ct_recompute_options recompute;
    int64_t loss_chunk_tokens;        // 0: by the vocabulary's size
    int average;                      // the update keeps an exponential moving average of the weights
    double max_norm;                  // of gradients; ≤ 0: no clipping
    // Optimizer constants of a parameter. NULL: AdamW's defaults of torchtitan.
    ct_adamw_options (*optimizer)(void *context, const char *parameter);
    void *context;
    ct_plan_options plan;
} ct_step_options;

// Saved values that pass a stage's boundaries: their names in this stage, in the order in which they are sent.
typedef enum { CT_FROM_BEFORE, CT_TO_NEXT, CT_FROM_NEXT, CT_TO_BEFORE, CT_EVAL_FROM_BEFORE, CT_EVAL_TO_NEXT, CT_BOUNDARIES } ct_boundary;
typedef struct {
    const char **names[CT_BOUNDARIES];
    int counts[CT_BOUNDARIES];
} ct_step_messages;

// What a micro-batch is to a pipeline stage, on one rank of it.
typedef struct {
    int layers;
    double flops[CT_PARTS]; // forward, input-grad (recomputation included), weight-grad
    size_t saved_bytes[CT_LIVES];
    double sent_bytes[2];   // to the next stage with a forward, to the one before with an input gradient
} ct_stage_figures;

// A gradient of a parameter that several pipeline stages use: made by the ranks of one, and wanted by those of all, once a step.
typedef struct {
    const char *name;
    int stage, *users, users_count; // stages
} ct_shared_gradient;

typedef struct {
    ct_graph programs[CT_PROGRAMS]; // placed: global types
    ct_graph local[CT_PROGRAMS];    // what this rank runs, and the plan is of
    int has[CT_PROGRAMS];
    ct_arena arena;
    ct_graph whole_micro, whole_eval; // of a pipeline: what its stages were cut from
    ct_graph whole_reduce;            // of a pipeline that adds gradients up once a step: of all stages
    ct_step_messages messages[CT_MOST_STAGES]; // by the rank's stage
    ct_stage_figures *figures;                 // by stage, of all; NULL: no pipeline
    int stages;
    ct_shared_gradient *shared;
    int shared_count;
    ct_plan plan;
} ct_step;

static inline ct_program ct_stage_program_of(int local_stage, int part) {
    return (ct_program)(CT_PROGRAM_STAGES + local_stage * CT_STAGE_PROGRAMS + part);
}
enum { CT_PART_UNSHARD = CT_PARTS, CT_PART_REDUCE, CT_PART_EVAL }; // further programs of a stage

// Builds every program and plans them. Caller deinits.
ct_status ct_step_make(const ct_model *model, const ct_step_options *options, ct_step *out_step);
void ct_step_deinit(ct_step *step);

// Figures of options->pipeline.modules' stages before they have a schedule, backwards taken apart, for the mesh's first rank: the same whatever
// options->rank is. In the arena. Costs a part of ct_step_make.
ct_status ct_step_figures(ct_arena *arena, const ct_model *model, const ct_step_options *options, ct_stage_figures **out_figures);

// The mesh of all its programs.
const ct_mesh *ct_step_mesh(const ct_step *step);

// FLOPs that this rank executes in a step of so many micro-batches, by the ops' costs.
double ct_step_flops(const ct_step *step, int64_t micro_batches);

// Names of a parameter's moments, as in checkpoints; in the arena.
const char *ct_moment_name(ct_arena *arena, const char *parameter, int second);
// Name of a parameter's average.
const char *ct_average_name(ct_arena *arena, const char *parameter);

// Builds the update program: norm of all gradients, clip factor, AdamW of the parameters of `model` whose gradients these programs pile up. They are
// `whole`, or a rank's parts of it: the accumulators of a parameter's uses in other ranks' parts are inputs as well, and the rank that has the first
// use counts the parameter in the norm. Feeds "scalars" f64[2] = {lr, step}, with an average f64[3] = {…, share of the new weights in it}, "false"; output "grad_norm". (optimizer.c)
ct_status ct_step_build_update(const ct_model *model, const ct_graph *whole, const ct_graph *const *micros, int count, const ct_step_options *options,
                               ct_graph *update);
