// Generation: a program of one row and one token with a key-value cache, run once a token.
#pragma once
#include "exec/exec.h"
#include "train/setup.h"

typedef struct {
    int64_t max_new_tokens;
    double temperature; // 0: the likeliest token
    int top_k;          // 0: all
    double top_p;       // 1: all
    uint64_t seed;
} ct_sampling;

typedef struct ct_generator ct_generator;

// A generator for up to `capacity` tokens (prompt included) with weights from `weights_path`: a checkpoint of ours (a step-N folder or the
// folder of them), a Hugging Face folder or a llama2.c file; NULL: the newest checkpoint of the config's dump folder.
// `average`: the checkpoint's average of the weights instead of them. Caller destroys.
ct_status ct_generator_create(const ct_config *config, const char *weights_path, int average, int64_t capacity, ct_generator **out_generator);
void ct_generator_destroy(ct_generator *generator);
const ct_model *ct_generator_model(const ct_generator *generator);

// Forgets all tokens.
void ct_generator_reset(ct_generator *generator);

// Takes one token in and gives the logits f32[V] of the next, borrowed until the next call. CT_INVALID: the capacity is used up, or
// the token is beyond the vocabulary.
ct_status ct_generator_push(ct_generator *generator, int32_t token, const float **out_logits);

// Draws a token from logits. `position` keys the random number: the same seed and position give the same draw.
int32_t ct_sample(const float *logits, int64_t count, ct_sampling sampling, uint64_t position, float *scratch);
