// Saying what a plan will do: for people, and for machines (`ctitan plan --json`; bytes, FLOPs and seconds in plain units).
#pragma once
#include "models/model.h"
#include "schedule/schedule.h"
#include "train/step.h"

typedef struct {
    const ct_schedule *schedule; // of a pipeline; NULL or empty: none
    int64_t micro_batches;   // of a step
    int64_t tokens_per_step; // of all ranks
    int all_choices;         // of placement, not only the dearest
    double peak_flops;       // of the rank's team in the compute dtype, FLOP/s; 0: not known
} ct_explain_options;

// The seconds that a pipeline's stages take by their FLOPs, on a rank that does so many a second; caller frees.
ct_stage_cost *ct_explain_stage_costs(const ct_step *step, double flops_per_s);

void ct_explain_print(const ct_model *model, const ct_step_options *step_options, const ct_step *step, ct_explain_options options,
                      ct_string *out);
void ct_explain_json(const ct_model *model, const ct_step_options *step_options, const ct_step *step, ct_explain_options options,
                     ct_string *out);
