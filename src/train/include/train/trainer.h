// Training: the loop around the step's programs, as one rank of a mesh runs it.
#pragma once
#include "exec/exec.h"
#include "train/pipeline.h"
#include "train/setup.h"

#include <signal.h>

typedef struct ct_trainer ct_trainer;

// What a step did.
typedef struct {
    int64_t step;     // from 1
    double loss;      // mean over the step's valid tokens
    double grad_norm; // before clipping
    double lr;        // that this step used
    int64_t tokens;   // of the step, ignored ones included
    double seconds, data_wait_s;
} ct_step_report;

enum { CT_EXIT_STOPPED = 75 }; // asked to stop by SIGTERM or SIGUSR1, state saved where checkpoints are on

// Builds everything up to the first step: model, plan, memory, data, weights (initial, or from the newest checkpoint of the dump folder, or
// from checkpoint.initial_load_path). `config` and `comm` must outlive the trainer; comm NULL: one rank. All ranks create, step, validate and
// save together. Caller destroys.
ct_status ct_trainer_create(const ct_config *config, ct_comm *comm, ct_trainer **out_trainer);
void ct_trainer_destroy(ct_trainer *trainer);

// One optimizer step. CT_NONFINITE names the step and the first module that produced a NaN or an infinity; weights are then
// those before the step.
ct_status ct_trainer_step(ct_trainer *trainer, ct_step_report *out_report);

// Mean loss over the validation set (validation.steps batches, or all of it), and the valid tokens it is over.
ct_status ct_trainer_validate(ct_trainer *trainer, double *out_loss, int64_t *out_tokens);

// The same with the average of the weights (optimizer.ema_decay; 0: CT_INVALID), in the weights' own memory; weights and average are then as before.
ct_status ct_trainer_validate_average(ct_trainer *trainer, double *out_loss, int64_t *out_tokens);

// Saves a checkpoint of the present step. `last`: checkpoint.last_save_model_only, last_save_in_hf and export_dtype apply.
ct_status ct_trainer_save(ct_trainer *trainer, int last);

// Steps from where the trainer is to training.steps: logs, validates, saves, and stops on SIGTERM and SIGUSR1 at a step's end.
// *out_stopped is 1 where a signal ended it.
ct_status ct_trainer_run(ct_trainer *trainer, int *out_stopped);

// From here on SIGTERM and SIGUSR1 only ask to stop; a run begun later ends before its first step where one came. The process watches once, around
// all its ranks; a run that nobody watches for can't be stopped. Unwatching forgets what came.
typedef struct {
    struct sigaction term, usr1;
} ct_stop_handlers;
void ct_stop_watch(ct_stop_handlers *out_saved);
void ct_stop_unwatch(const ct_stop_handlers *saved);

// Parts, for tests and tools.
const ct_step *ct_trainer_step_made(const ct_trainer *trainer);
const ct_plan *ct_trainer_plan(const ct_trainer *trainer);
ct_exec *ct_trainer_exec(ct_trainer *trainer);
ct_pipeline *ct_trainer_pipeline(ct_trainer *trainer);             // NULL: none
const ct_schedule *ct_trainer_schedule(const ct_trainer *trainer); // of the pipeline; empty: none
const ct_model *ct_trainer_model(const ct_trainer *trainer);
int64_t ct_trainer_position(const ct_trainer *trainer); // steps done
