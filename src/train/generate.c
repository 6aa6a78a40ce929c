// Token by token: the same kernels as in training, so a prompt's logits are the bits that a training forward would give.
// Left out: batches of prompts, speculative decoding.
#include "train/generate.h"
#include "trainer_parts.h"
#include "base/philox.h"

#include <math.h>
#include <stdlib.h>

struct ct_generator {
    ct_arena arena;
    ct_model model;
    ct_step step;
    ct_team *team;
    ct_exec *exec;
    int64_t capacity, position;
};

static int32_t *feed_of(ct_generator *g, const char *name) {
    char full[48];
    snprintf(full, sizeof full, "generate:%s", name);
    int32_t *p = ct_exec_data(g->exec, full);
    CT_ASSERT(p, "no feed %s", full);
    return p;
}

void ct_generator_reset(ct_generator *g) {
    int32_t *positions = feed_of(g, "key_positions"), *documents = feed_of(g, "key_documents");
    for (int64_t i = 0; i < g->capacity; i++) positions[i] = INT32_MAX, documents[i] = 0; // beyond every query: masked
    *feed_of(g, "documents") = 0;
    g->position = 0;
}

static ct_status create(ct_generator *g, const ct_config *config, const char *path, int average) {
    CT_TRY(ct_setup_model(&g->arena, config, &g->model));
    CT_CHECK(g->capacity <= g->model.shape.max_seq_len, CT_INVALID, "%lld tokens are more than the model's max_seq_len = %lld",
             (long long)g->capacity, (long long)g->model.shape.max_seq_len);
    ct_step_options options;
    CT_TRY(ct_setup_step_options(&g->arena, config, &g->model, NULL, 0, &options));
    options.cache_len = g->capacity;
    options.eval_batch = 0;
    CT_TRY(ct_step_make(&g->model, &options, &g->step));
    int threads = options.plan.threads, cores = ct_cores();
    CT_TRY(ct_team_create((ct_team_options){.threads = threads, .first_core = threads <= cores ? 0 : -1, .never_spin = threads > cores},
                          &g->team));
    CT_TRY(ct_exec_create(&g->step.plan, g->team, (ct_exec_options){.poison = config->debug.poison}, &g->exec));
    char *newest = path ? NULL : ct_format("%s/%s", config->job.dump_folder, config->checkpoint.folder);
    ct_status status = ct_load_weights(path ? path : newest, (ct_state_view){&g->model, &g->step, g->exec, 0}, average);
    free(newest);
    CT_TRY(status);
    CT_TRY(ct_exec_run(g->exec, CT_PROGRAM_PROLOGUE));
    ct_generator_reset(g);
    return CT_OK;
}

ct_status ct_generator_create(const ct_config *config, const char *weights_path, int average, int64_t capacity, ct_generator **out) {
    ct_generator *g = ct_calloc(1, sizeof *g);
    g->capacity = capacity;
    ct_status status = create(g, config, weights_path, average);
    if (status) ct_generator_destroy(g);
    else *out = g;
    return status;
}

void ct_generator_destroy(ct_generator *g) {
    if (!g) return;
    ct_exec_destroy(g->exec);
    ct_team_destroy(g->team);
    ct_step_deinit(&g->step);
    ct_arena_deinit(&g->arena);
    free(g);
}

const ct_model *ct_generator_model(const ct_generator *g) { return &g->model; }

ct_status ct_generator_push(ct_generator *g, int32_t token, const float **out_logits) {
    CT_CHECK(g->position < g->capacity, CT_INVALID, "the cache of %lld tokens is full", (long long)g->capacity);
    CT_CHECK(token >= 0 && token < g->model.shape.vocab_size, CT_INVALID, "token %d is beyond the vocabulary of %lld", token,
             (long long)g->model.shape.vocab_size);
    *feed_of(g, "tokens") = token;
    *feed_of(g, "positions") = (int32_t)g->position;
    *feed_of(g, "slots") = (int32_t)g->position;
    feed_of(g, "key_positions")[g->position] = (int32_t)g->position;
    ct_exec_run(g->exec, CT_PROGRAM_GENERATE);
    g->position++;
    *out_logits = ct_exec_data(g->exec, "generate:logits");
    return CT_OK;
}

// ---- sampling ----
static int descending(const void *a, const void *b) {
    float x = *(const float *)a, y = *(const float *)b;
    return x < y ? 1 : x > y ? -1 : 0;
}

// The smallest logit that top_k and top_p leave in.
static float threshold(const float *logits, int64_t n, ct_sampling s, float *sorted) {
    for (int64_t i = 0; i < n; i++) sorted[i] = logits[i];
    qsort(sorted, (size_t)n, sizeof *sorted, descending);
    int64_t keep = s.top_k > 0 && s.top_k < n ? s.top_k : n;
    if (s.top_p >= 1) return sorted[keep - 1];
    double sum = 0, part = 0;
    for (int64_t i = 0; i < keep; i++) sum += exp((sorted[i] - sorted[0]) / s.temperature);
    for (int64_t i = 0; i < keep; i++) {
        part += exp((sorted[i] - sorted[0]) / s.temperature);
        if (part >= s.top_p * sum) return sorted[i];
    }
    return sorted[keep - 1];
}

int32_t ct_sample(const float *logits, int64_t n, ct_sampling s, uint64_t position, float *scratch) {
    int64_t best = 0;
    for (int64_t i = 1; i < n; i++)
        if (logits[i] > logits[best]) best = i;
    if (s.temperature <= 0) return (int32_t)best;
    float least = (s.top_k > 0 || s.top_p < 1) ? threshold(logits, n, s, scratch) : -INFINITY;
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        if (logits[i] >= least) sum += exp((logits[i] - logits[best]) / s.temperature);
    uint32_t counter[4] = {(uint32_t)position, (uint32_t)(position >> 32), 0, 2}; // 2: the stream of generation
    uint32_t key[2] = {(uint32_t)s.seed, (uint32_t)(s.seed >> 32)}, random[4];
    ct_philox(counter, key, random);
    double left = sum * (((double)random[0] + 0.5) * 0x1p-32);
    for (int64_t i = 0; i < n; i++) {
        if (logits[i] < least) continue;
        left -= exp((logits[i] - logits[best]) / s.temperature);
        if (left <= 0) return (int32_t)i;
    }
    return (int32_t)best;
}
