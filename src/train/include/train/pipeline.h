// A pipeline of stages over the ranks of the axis pp: set up from the configuration, and run by its schedule.
#pragma once
#include "schedule/schedule.h"
#include "train/setup.h"
#include "exec/exec.h"

// Micro-batches of a pipeline's run (local_batch_size / pipeline_parallel_microbatch_size); 1 without one.
int64_t ct_pipeline_micros(const ct_config *config);

// Fills in options->pipeline and plan.slots for options->rank, and makes the lowered, verified schedule; nothing, and an empty one, where the mesh
// has no axis pp. Errors name the keys. What it points to lives in the arena; the caller deinits the schedule.
ct_status ct_setup_pipeline(ct_arena *arena, const ct_config *config, const ct_model *model, ct_step_options *options, ct_schedule *out_schedule);

// The exchanges and slots of a rank in its pipeline. Borrows all it is given.
typedef struct ct_pipeline ct_pipeline;
ct_status ct_pipeline_create(const ct_step *step, const ct_step_options *options, const ct_schedule *schedule, ct_exec *exec, ct_comm *comm,
                             ct_pipeline **out_pipeline);
void ct_pipeline_destroy(ct_pipeline *pipeline); // NULL is fine

// Called before a program of a stage runs, to write its feeds: micro-batch number `micro` of this run.
typedef void ct_pipeline_feed(void *context, ct_program program, int micro);

// Runs every action of this rank once: forward, input gradients and weight gradients of all micro-batches. In the first run of a step the stages'
// weights are gathered, in the last one their gradients are added up (`runs`: which it is).
enum { CT_RUN_FIRST = 1, CT_RUN_LAST = 2 };
ct_status ct_pipeline_run(ct_pipeline *pipeline, int runs, ct_pipeline_feed *feed, void *context);

// Gathers the weights of all of this rank's stages, for validation.
ct_status ct_pipeline_unshard(ct_pipeline *pipeline);

// The same, looking at all that is made: what first made a NaN or an infinity ("layers.3.attention.wq (matmul, forward)"), the same on all ranks; empty
// where nothing did.
ct_status ct_pipeline_find_nonfinite(ct_pipeline *pipeline, ct_pipeline_feed *feed, void *context, char *out_text, size_t size);

// When an action's programs began and ended, in seconds from the begin of the run, without waiting for messages; middle: where a whole backward goes
// over from the stage's input to its weights.
typedef struct {
    double begin_s, middle_s, end_s;
} ct_pipeline_moment;

// Runs write into `by_action`, which has room for each of this rank's actions, until it is NULL. All ranks record the same runs: they meet before.
void ct_pipeline_record(ct_pipeline *pipeline, ct_pipeline_moment *by_action);

// Once a step, before the update: gradients that several stages share pass to the ranks that have not made them.
ct_status ct_pipeline_share_gradients(ct_pipeline *pipeline);

// One batch of validation through all stages.
ct_status ct_pipeline_eval(ct_pipeline *pipeline, ct_pipeline_feed *feed, void *context);
