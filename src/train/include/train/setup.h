// From configuration to objects: model, step options, tokenizer as the loader's encoder, data sources, learning-rate schedule.
#pragma once
#include "config/config.h"
#include "data/data.h"
#include "models/model.h"
#include "tokenizer/tokenizer.h"
#include "train/step.h"

// Loads what [plugins] names. Once, before ranks start.
ct_status ct_setup_plugins(const ct_config *config);

// The model that [model] and [model.args] say, in the arena. Errors name the key and where it was set.
ct_status ct_setup_model(ct_arena *arena, const ct_config *config, ct_model *out_model);

// Micro-batches of a step on `data_ranks` ranks: global_batch_size / (local_batch_size × data_ranks), each in as many as a pipeline has; an error
// where it doesn't divide.
ct_status ct_setup_micro_batches(const ct_config *config, int data_ranks, int64_t *out_count);

// The fewest ranks that the degrees of [parallelism] allow.
int ct_setup_least_ranks(const ct_config *config);

// The mesh of so many ranks, and how it is used, as [parallelism] says. Errors name the keys.
ct_status ct_setup_parallel(const ct_config *config, int ranks, ct_parallel *out_parallel);

// The step that the configuration asks for, as `rank` of `parallel`'s ranks runs it (NULL: one rank). What it points to lives in the arena.
ct_status ct_setup_step_options(ct_arena *arena, const ct_config *config, const ct_model *model, const ct_parallel *parallel, int rank,
                                ct_step_options *out_options);

// Sequence length and vocabulary against the model's limits; a tokenizer's size against its vocabulary (vocab_size 0: unknown).
ct_status ct_setup_check_sizes(const ct_config *config, const ct_model *model, int tokenizer_vocab);

// A tokenizer wired to the loader: one encoding context a thread.
typedef struct ct_encoder ct_encoder;
ct_status ct_encoder_create(const char *tokenizer_path, int threads, ct_encoder **out_encoder);
void ct_encoder_destroy(ct_encoder *encoder);
ct_data_encoder ct_encoder_for_data(ct_encoder *encoder); // borrows
const ct_tokenizer *ct_encoder_tokenizer(const ct_encoder *encoder);

// The training set, or the validation set, as [training] and [validation] say.
ct_status ct_setup_training_data(const ct_config *config, const ct_model *model, ct_data_encoder encoder, int64_t sequences_a_step,
                                 ct_data **out_data);
ct_status ct_setup_validation_data(const ct_config *config, const ct_model *model, ct_data_encoder encoder, int64_t sequences_a_batch,
                                   ct_data **out_data); // of all ranks

// Learning rate that step `step` (from 1) uses: warm-up, stable, decay, as torchtitan's lr_scheduler.
double ct_schedule_lr(const ct_config *config, int64_t step);

// Fills a region of a parameter (NULL: all of it) with its initial values: counter-based, keyed by seed, parameter number and element, the same
// on every mesh.
void ct_init_parameter(const ct_parameter *parameter, int number, uint64_t seed, const ct_region *region, ct_team *team, float *data);
