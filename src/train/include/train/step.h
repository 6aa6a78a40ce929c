// A training step, made: the one place that knows in which order builder, autodiff, passes and plan run.
#pragma once
#include "models/model.h"
#include "ops/ops.h"
#include "parallel/place.h"
#include "passes/passes.h"
#include "plan/plan.h"

typedef struct {
    int64_t batch, seq_len;           // sequences of a micro-batch on one data rank, and tokens of a sequence
    int64_t eval_batch, eval_seq_len; // the same of validation; 0: no eval program
    ct_parallel parallel;             // all zero: one rank
    int rank;                         // whose plan is made
    int64_t cache_len;                // > 0: a generate program of one row and one token, and nothing else
    ct_dtype compute;                 // CT_F32 or CT_BF16
    ct_recompute_options recompute;
    int64_t loss_chunk_tokens;        // 0: by the vocabulary's size
    double max_norm;                  // of gradients; ≤ 0: no clipping
    // Optimizer constants of a parameter. NULL: AdamW's defaults of torchtitan.
    ct_adamw_options (*optimizer)(void *context, const char *parameter);
    void *context;
    ct_plan_options plan;
} ct_step_options;

typedef struct {
    ct_graph programs[CT_PROGRAMS]; // placed: global types
    ct_graph local[CT_PROGRAMS];    // what this rank runs, and the plan is of
    int has[CT_PROGRAMS];
    ct_plan plan;
} ct_step;

// Builds every program and plans them. Caller deinits.
ct_status ct_step_make(const ct_model *model, const ct_step_options *options, ct_step *out_step);
void ct_step_deinit(ct_step *step);

// Names of a parameter's moments, as in checkpoints; in the arena.
const char *ct_moment_name(ct_arena *arena, const char *parameter, int second);

// Builds the update program: norm of all gradients, clip factor, AdamW of every parameter of `model`, whose micro program is `micro`.
// Feeds "scalars" f64[2] = {lr, step}, "false"; output "grad_norm". (optimizer.c)
ct_status ct_step_build_update(const ct_model *model, const ct_graph *micro, const ct_step_options *options, ct_graph *update);
