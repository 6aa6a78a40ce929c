// What the files of train/ share of a trainer.
#pragma once
#include "checkpoint/checkpoint.h"
#include "checkpoint/weights.h"
#include "train/pipeline.h"
#include "train/trainer.h"

#include <stdio.h>

typedef struct ct_metrics ct_metrics;

// Which part of a batch a rank has.
typedef struct {
    int data_rank, data_ranks, cp_rank, cp;
    int head_tail;
} ct_share_of_batch;

struct ct_trainer {
    const ct_config *config;
    ct_arena arena;
    ct_comm *comm; // borrowed
    int rank;
    ct_model model;
    ct_step_options options;
    ct_share_of_batch share;
    ct_step step;
    ct_team *team;
    int first_core;
    ct_exec *exec;
    ct_schedule schedule;   // of a pipeline; empty: there is none
    ct_pipeline *pipeline;
    ct_pipeline_moment *moments; // by action, of the profile; NULL: none yet
    ct_encoder *encoder;
    ct_data *data, *validation;
    char *validation_start; // state of the validation loader before its first batch
    ct_saver *saver;
    ct_save_options pending; // of many ranks' save in the background, not committed yet; root NULL: there is none. Owns its strings.
    int64_t micro_batches; // that this rank runs a step
    int64_t data_position; // first sequence of the next step
    int64_t position;  // steps done
    int64_t optimizer_step, schedule_step; // steps that the moments and the learning rate have seen: position, unless not all was loaded
    int64_t averaged;  // changes of the weights' average since it began
    int64_t tokens_seen;
    float inv_count;          // 1 over the valid tokens of the step
    ct_data_batch batch;      // this rank's of one step: [micro_batches · b][T]
    ct_data_batch eval_batch; // of one validation batch
    ct_metrics *metrics;
    ct_recording recording; // of the profile
    size_t rss_before; // bytes, before the space was reserved
};

// ---- batch.c ----
ct_data_batch ct_batch_make(int64_t sequences, int64_t seq_len); // zeroed; freed by
void ct_batch_free(ct_data_batch *batch);
ct_share_of_batch ct_share_of(const ct_step_options *options, const ct_config *config);
// Reads this rank's sequences of `micro_batches` rounds that begin at sequence `start`; fewer only at the data's end.
ct_status ct_batch_read(ct_data *data, const ct_share_of_batch *share, int64_t start, int64_t micro_batches, int64_t b, int64_t seq_len,
                        ct_data_batch batch, int64_t *out_sequences);
// Copies this rank's tokens of `sequences` sequences of the batch, from `first` on, into a program's feeds.
void ct_batch_feed(ct_exec *exec, const char *program, const ct_share_of_batch *share, const ct_data_batch *batch, int64_t first,
                   int64_t sequences, int64_t seq_len);

// ---- threads.c: the cores of a rank ----
// The number of threads by training.threads, else this rank's part of its node's cores; *out_first_core for ct_team_options. Collective.
ct_status ct_threads_of_rank(const ct_config *config, ct_comm *comm, int *out_threads, int *out_first_core);

// ---- ranks.c: what a rank holds of a state, and what ranks tell one another ----
// Has this rank the state at all? (Others are another pipeline stage's.)
int ct_state_is_here(const ct_step *step, const char *name);
// The region of a state by its name; *out_owner is 1 on one of the ranks that hold the same.
ct_region ct_region_of_state(const ct_step *step, int rank, const char *name, int *out_owner);
// All ranks succeed, or all fail with one's error.
ct_status ct_trainer_agree(ct_trainer *trainer, ct_status mine);
// The sum of the partial digits of "loss_sum" over all ranks, as a number.
ct_status ct_loss_of_all(ct_trainer *trainer, double *out_sum);
// Valid labels of this rank's sequences → those of all.
ct_status ct_count_of_all(ct_trainer *trainer, int64_t *count);

// ---- pipeline_times.c ----
// Writes pipeline.svg, pipeline_trace.json and pipeline_costs.csv of the moments that all ranks have recorded. Collective; the first rank writes.
ct_status ct_pipeline_times_write(ct_trainer *trainer, const char *folder);

// ---- state.c ----
char *ct_trainer_checkpoint_root(const ct_trainer *trainer); // caller frees
ct_status ct_trainer_make_saver(ct_trainer *trainer);        // for saves in the background, with staging for all tensors
// Many ranks: commits the save in the background where all ranks have written their parts, or `wait` for them. Collective.
ct_status ct_trainer_settle_save(ct_trainer *trainer, int wait);

// What a rank has of a run's state, in the plan's memory: the parameters, and what `with` adds. `owned`: only what the rank speaks for, so that
// all ranks' together are each element once. In the arena.
enum { CT_WITH_MOMENTS = 1, CT_WITH_AVERAGE = 2 };
typedef struct {
    const ct_model *model;
    const ct_step *step;
    ct_exec *exec;
    int rank;
} ct_state_view;
ct_named_tensor *ct_state_tensors(ct_arena *arena, ct_state_view view, int with, int owned, int *out_count);
static inline ct_state_view ct_trainer_view(const ct_trainer *t) { return (ct_state_view){&t->model, &t->step, t->exec, t->rank}; }
ct_llama_shape ct_shape_of_model(const ct_model *model);

// ---- restore.c ----
ct_status ct_trainer_load(ct_trainer *trainer); // newest checkpoint, initial path, or initial values

// Weights of any kind the program reads (a checkpoint of ours, a Hugging Face folder, a llama2.c file) into the plan's parameters; `average`: a
// checkpoint's average of them instead.
ct_status ct_load_weights(const char *path, ct_state_view view, int average);

// ---- average.c: the exponential moving average of the weights ----
// The new weights' share in the average at the next step: 0 leaves it, 1 makes it the weights.
double ct_average_share(const ct_trainer *trainer);
void ct_average_stepped(ct_trainer *trainer); // counts the change, before the position moves
void ct_average_begin(ct_trainer *trainer);   // makes it the weights
void ct_average_swap(ct_trainer *trainer);    // exchanges it with the weights; no rank may be reading another's

// ---- profile.c ----
void ct_profile_before(ct_trainer *trainer);      // a step: records it where [profiling] wants it
ct_status ct_profile_after(ct_trainer *trainer);  // writes and prints what was recorded

// ---- metrics.c: the console line, metrics.jsonl, TensorBoard ----
// teams: how many such teams' worth of cores the whole job computes on.
ct_status ct_metrics_open(const ct_config *config, const ct_model *model, ct_team *team, ct_dtype compute, double teams, ct_metrics **out);
ct_status ct_metrics_check_free(const ct_config *config); // an error where another run writes to the dump folder
void ct_metrics_close(ct_metrics *metrics);
void ct_metrics_step(ct_metrics *metrics, const ct_step_report *report, int64_t tokens_seen, int force);
void ct_metrics_validation(ct_metrics *metrics, int64_t step, int average, double loss, int64_t tokens, double seconds);
size_t ct_rss_bytes(void); // resident set of this process

// ---- events.c: TensorBoard event files (TFRecord framing of protobuf Event messages, CRC-32C masked) ----
typedef struct ct_events ct_events;
ct_status ct_events_open(const char *folder, ct_events **out_events);
void ct_events_scalar(ct_events *events, const char *tag, int64_t step, double value);
void ct_events_flush(ct_events *events);
void ct_events_close(ct_events *events);
