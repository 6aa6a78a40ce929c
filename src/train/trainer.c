// A trainer: everything a step needs, made in the order in which failing is cheapest (sizes before memory, memory before weights).
#include "trainer_parts.h"
#include "base/clock.h"
#include "base/wide.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static ct_data_batch batch_alloc(int64_t sequences, int64_t seq_len) {
    size_t n = (size_t)(sequences * seq_len);
    return (ct_data_batch){ct_calloc(n, 4), ct_calloc(n, 4), ct_calloc(n, 4), ct_calloc(n, 4)};
}

static void batch_free(ct_data_batch *b) {
    free(b->tokens);
    free(b->labels);
    free(b->positions);
    free(b->documents);
}

static void set_i32(ct_trainer *t, const char *name, int32_t value) {
    int32_t *p = ct_exec_data(t->exec, name);
    if (p) *p = value;
}
static void set_f32(ct_trainer *t, const char *name, float value) {
    float *p = ct_exec_data(t->exec, name);
    if (p) *p = value;
}

// Feeds that never change.
static void set_constants(ct_trainer *t) {
    static const char *const programs[] = {"micro", "update", "eval"};
    for (int i = 0; i < 3; i++) {
        char name[32];
        snprintf(name, sizeof name, "%s:true", programs[i]);
        set_i32(t, name, 1);
        snprintf(name, sizeof name, "%s:false", programs[i]);
        set_i32(t, name, 0);
    }
}

static ct_status make_plan(ct_trainer *t) {
    const ct_config *c = t->config;
    ct_step_options options;
    CT_TRY(ct_setup_step_options(&t->arena, c, &t->model, &options));
    CT_TRY(ct_step_make(&t->model, &options, &t->step));
    size_t token_bytes = 4 * sizeof(int32_t) * (size_t)c->training.seq_len; // of a sequence in t->batch
    return ct_exec_check_memory(&t->step.plan, token_bytes * (size_t)(t->micro_batches * c->training.local_batch_size));
}

static ct_status make_memory(ct_trainer *t) {
    const ct_config *c = t->config;
    int threads = t->step.plan.threads, cores = ct_cores();
    CT_TRY(ct_team_create((ct_team_options){.threads = threads, .first_core = threads <= cores ? 0 : -1, .never_spin = threads > cores},
                          &t->team));
    t->rss_before = ct_rss_bytes();
    CT_TRY(ct_exec_create(&t->step.plan, t->team, (ct_exec_options){.poison = c->debug.poison, .lazy = c->debug.poison}, &t->exec));
    set_constants(t);
    return CT_OK;
}

static ct_status make_data(ct_trainer *t) {
    const ct_config *c = t->config;
    int64_t sequences = t->micro_batches * c->training.local_batch_size;
    CT_TRY(ct_setup_training_data(c, &t->model, ct_encoder_for_data(t->encoder), sequences, &t->data));
    t->batch = batch_alloc(sequences, c->training.seq_len);
    if (!c->validation.enable) return CT_OK;
    CT_TRY(ct_setup_validation_data(c, &t->model, ct_encoder_for_data(t->encoder), &t->validation));
    ct_data_state_save(t->validation, &t->validation_start);
    t->eval_batch = batch_alloc(c->validation.local_batch_size, c->validation.seq_len);
    return CT_OK;
}

static ct_status create(ct_trainer *t) {
    const ct_config *c = t->config;
    CT_TRY(ct_setup_model(&t->arena, c, &t->model));
    CT_TRY(ct_setup_check_sizes(c, &t->model, 0));
    CT_TRY(ct_setup_micro_batches(c, 1, &t->micro_batches));
    CT_TRY(ct_metrics_check_free(c));
    CT_TRY_AS(ct_encoder_create(c->model.hf_assets_path, 2, &t->encoder), "the tokenizer, model.hf_assets_path from %s",
              ct_config_origin_text(c, "model.hf_assets_path"));
    CT_TRY(ct_setup_check_sizes(c, &t->model, ct_tokenizer_describe(ct_encoder_tokenizer(t->encoder))->vocab_size));
    CT_TRY(make_plan(t));
    CT_TRY(make_data(t));
    CT_TRY(make_memory(t));
    if (c->checkpoint.enable && c->checkpoint.async_mode != CT_CFG_SYNC) CT_TRY(ct_trainer_make_saver(t));
    CT_TRY(ct_trainer_load(t));
    ct_dtype compute = c->training.mixed_precision_param == CT_CFG_BFLOAT16 ? CT_BF16 : CT_F32;
    return ct_metrics_open(c, &t->model, t->team, compute, &t->metrics);
}

ct_status ct_trainer_create(const ct_config *config, ct_trainer **out_trainer) {
    ct_trainer *t = ct_calloc(1, sizeof *t);
    t->config = config;
    ct_status status = create(t);
    if (status) ct_trainer_destroy(t);
    else *out_trainer = t;
    return status;
}

void ct_trainer_destroy(ct_trainer *t) {
    if (!t) return;
    ct_saver_destroy(t->saver);
    ct_metrics_close(t->metrics);
    ct_data_destroy(t->data);
    ct_data_destroy(t->validation);
    free(t->validation_start);
    free(t->recording.spans);
    ct_encoder_destroy(t->encoder);
    batch_free(&t->batch);
    batch_free(&t->eval_batch);
    ct_exec_destroy(t->exec);
    ct_team_destroy(t->team);
    ct_step_deinit(&t->step);
    ct_arena_deinit(&t->arena);
    free(t);
}

// ---- a step ----
static int64_t count_valid(const int32_t *labels, int64_t n) {
    int64_t valid = 0;
    for (int64_t i = 0; i < n; i++) valid += labels[i] >= 0;
    return valid;
}

// Copies `sequences` sequences from the batch's sequence `first` on into a program's feeds.
static void feed(ct_trainer *t, const char *program, const ct_data_batch *b, int64_t first, int64_t sequences, int64_t seq_len) {
    const struct {
        const char *name;
        const int32_t *from;
    } feeds[] = {{"tokens", b->tokens}, {"labels", b->labels}, {"positions", b->positions}, {"documents", b->documents}};
    for (int i = 0; i < 4; i++) {
        char name[32];
        snprintf(name, sizeof name, "%s:%s", program, feeds[i].name);
        int32_t *to = ct_exec_data(t->exec, name);
        if (to) memcpy(to, feeds[i].from + first * seq_len, sizeof(int32_t) * (size_t)(sequences * seq_len));
    }
}

static void feed_micro(ct_trainer *t, int64_t micro) {
    int64_t b = t->config->training.local_batch_size;
    feed(t, "micro", &t->batch, micro * b, b, t->config->training.seq_len);
    set_i32(t, "micro:first", micro == 0);
}

static ct_status nonfinite(ct_trainer *t, int64_t step, const char *what, double value) {
    char where[256] = "";
    for (int64_t m = 0; m < t->micro_batches && !where[0]; m++) {
        feed_micro(t, m);
        ct_exec_find_nonfinite(t->exec, CT_PROGRAM_MICRO, where, sizeof where);
    }
    CT_FAIL(CT_NONFINITE, "step %lld: the %s is %g; the first to produce a value that is not finite is %s", (long long)step, what,
            value, where[0] ? where : "the sum over the step");
}

static void run_micros(ct_trainer *t, int64_t valid) {
    set_f32(t, "micro:inv_count", valid > 0 ? (float)(1.0 / (double)valid) : 0);
    ct_exec_run(t->exec, CT_PROGRAM_PROLOGUE);
    for (int64_t m = 0; m < t->micro_batches; m++) {
        feed_micro(t, m);
        ct_exec_run(t->exec, CT_PROGRAM_MICRO);
    }
}

ct_status ct_trainer_step(ct_trainer *t, ct_step_report *out) {
    const ct_config_training *c = &t->config->training;
    double start = ct_now_s(), waited = ct_data_waited_s(t->data);
    int64_t step = t->position + 1, sequences = t->micro_batches * c->local_batch_size;
    int32_t got = 0;
    CT_TRY_AS(ct_data_next(t->data, (int32_t)sequences, t->batch, &got), "reading the batch of step %lld", (long long)step);
    CT_CHECK(got == sequences, CT_INVALID, "the training data ended before step %lld", (long long)step);
    int64_t tokens = sequences * c->seq_len, valid = count_valid(t->batch.labels, tokens);
    *out = (ct_step_report){.step = step, .tokens = tokens, .lr = ct_schedule_lr(t->config, t->schedule_step + 1)};
    run_micros(t, valid);
    out->loss = valid > 0 ? ct_wide_to_double(ct_exec_data(t->exec, "loss_sum")) / (double)valid : 0;
    if (!isfinite(out->loss)) return nonfinite(t, step, "loss", out->loss);
    double *scalars = ct_exec_data(t->exec, "update:scalars");
    scalars[0] = out->lr;
    scalars[1] = (double)(t->optimizer_step + 1);
    ct_exec_run(t->exec, CT_PROGRAM_UPDATE);
    out->grad_norm = *(const float *)ct_exec_data(t->exec, "update:grad_norm");
    if (!isfinite(out->grad_norm)) return nonfinite(t, step, "gradient norm", out->grad_norm);
    t->position = step;
    t->optimizer_step++;
    t->schedule_step++;
    t->tokens_seen += tokens;
    out->seconds = ct_now_s() - start;
    out->data_wait_s = ct_data_waited_s(t->data) - waited;
    return CT_OK;
}

// ---- validation ----
static ct_status eval_batches(ct_trainer *t, double *sum, int64_t *valid) {
    const ct_config_validation *c = &t->config->validation;
    for (int64_t i = 0; c->steps < 0 || i < c->steps; i++) {
        int32_t got = 0;
        CT_TRY(ct_data_next(t->validation, (int32_t)c->local_batch_size, t->eval_batch, &got));
        if (got == 0) break;
        for (int64_t k = got * c->seq_len; k < c->local_batch_size * c->seq_len; k++)
            t->eval_batch.labels[k] = -100, t->eval_batch.tokens[k] = 0, t->eval_batch.positions[k] = 0, t->eval_batch.documents[k] = 0;
        feed(t, "eval", &t->eval_batch, 0, c->local_batch_size, c->seq_len);
        set_i32(t, "eval:first", 1);
        ct_exec_run(t->exec, CT_PROGRAM_EVAL);
        *sum += ct_wide_to_double(ct_exec_data(t->exec, "loss_sum"));
        *valid += count_valid(t->eval_batch.labels, c->local_batch_size * c->seq_len);
        if (got < c->local_batch_size) break;
    }
    return CT_OK;
}

ct_status ct_trainer_validate(ct_trainer *t, double *out_loss, int64_t *out_tokens) {
    CT_TRY(ct_data_state_restore(t->validation, t->validation_start, strlen(t->validation_start)));
    ct_exec_run(t->exec, CT_PROGRAM_PROLOGUE);
    double sum = 0;
    int64_t valid = 0;
    CT_TRY_AS(eval_batches(t, &sum, &valid), "validating after step %lld", (long long)t->position);
    CT_CHECK(valid > 0, CT_INVALID, "the validation set gives not one sequence of %lld tokens",
             (long long)t->config->validation.seq_len);
    *out_loss = sum / (double)valid;
    *out_tokens = valid;
    return CT_OK;
}

const ct_plan *ct_trainer_plan(const ct_trainer *t) { return &t->step.plan; }
ct_exec *ct_trainer_exec(ct_trainer *t) { return t->exec; }
const ct_model *ct_trainer_model(const ct_trainer *t) { return &t->model; }
int64_t ct_trainer_position(const ct_trainer *t) { return t->position; }
