// A trainer: everything a step needs, made in the order in which failing is cheapest (sizes before memory, memory before weights).
#include "trainer_parts.h"
#include "base/clock.h"
#include "base/wide.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

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
    static const char *const programs[] = {"micro", "update", "eval", "forward", "input-grad", "weight-grad"};
    for (size_t i = 0; i < sizeof programs / sizeof *programs; i++) {
        char name[32];
        snprintf(name, sizeof name, "%s:true", programs[i]);
        set_i32(t, name, 1);
        snprintf(name, sizeof name, "%s:false", programs[i]);
        set_i32(t, name, 0);
    }
}

static ct_status make_plan(ct_trainer *t) {
    const ct_config *c = t->config;
    CT_TRY(ct_step_make(&t->model, &t->options, &t->step));
    size_t token_bytes = 4 * sizeof(int32_t) * (size_t)c->training.seq_len; // of a sequence in t->batch
    return ct_exec_check_memory(&t->step.plan, token_bytes * (size_t)(t->micro_batches * t->options.batch));
}

static ct_status make_memory(ct_trainer *t) {
    const ct_config *c = t->config;
    ct_team_options team = {.threads = t->step.plan.threads, .first_core = t->first_core, .never_spin = t->first_core < 0};
    CT_TRY(ct_team_create(team, &t->team));
    t->rss_before = ct_rss_bytes();
    CT_TRY(ct_exec_create(&t->step.plan, t->team, (ct_exec_options){.poison = c->debug.poison, .lazy = c->debug.poison, .comm = t->comm}, &t->exec));
    set_constants(t);
    return t->options.pipeline.stages ? ct_pipeline_create(&t->step, &t->options, &t->schedule, t->exec, t->comm, &t->pipeline) : CT_OK;
}

static ct_status make_data(ct_trainer *t) {
    const ct_config *c = t->config;
    int64_t sequences = t->micro_batches * t->options.batch;
    CT_TRY(ct_setup_training_data(c, &t->model, ct_encoder_for_data(t->encoder), sequences * t->share.data_ranks, &t->data));
    t->batch = ct_batch_make(sequences, c->training.seq_len);
    if (!c->validation.enable) return CT_OK;
    CT_TRY(ct_setup_validation_data(c, &t->model, ct_encoder_for_data(t->encoder),
                                    c->validation.local_batch_size * t->share.data_ranks, &t->validation));
    ct_data_state_save(t->validation, &t->validation_start);
    t->eval_batch = ct_batch_make(c->validation.local_batch_size, c->validation.seq_len);
    return CT_OK;
}

// Ranks that were told different things would wait for each other in different places.
static ct_status check_same_config(ct_trainer *t) {
    if (!t->comm) return CT_OK;
    int64_t hash = (int64_t)(ct_config_hash(t->config) >> 2), range[2] = {hash, -hash};
    CT_TRY(ct_comm_max_i64(t->comm, range, 2));
    CT_CHECK(range[0] == -range[1], CT_INVALID, "the ranks have different configurations: all must get the same file and the same overrides");
    return CT_OK;
}

static int64_t schedule_hash(const ct_schedule *s) { // FNV-1a
    uint64_t hash = 0xcbf29ce484222325u;
    for (int r = 0; r < s->ranks; r++)
        for (int i = 0; i < s->of[r].count; i++) {
            ct_action a = s->of[r].list[i];
            const int words[] = {r, (int)a.act, a.stage, a.micro};
            for (int w = 0; w < 4; w++) hash = (hash ^ (uint64_t)words[w]) * 0x100000001b3u;
        }
    return (int64_t)(hash >> 2);
}

// A schedule may come from a file, or be searched by costs from one, and each rank reads its own.
static ct_status make_schedule(ct_trainer *t) {
    CT_TRY(ct_trainer_agree(t, ct_setup_pipeline(&t->arena, t->config, &t->model, &t->options, &t->schedule)));
    if (!t->comm) return CT_OK;
    int64_t hash = schedule_hash(&t->schedule), range[2] = {hash, -hash};
    CT_TRY(ct_comm_max_i64(t->comm, range, 2));
    CT_CHECK(range[0] == -range[1], CT_INVALID, "the ranks have different pipeline schedules: files of actions or costs must be the same for all");
    return CT_OK;
}

// Ranks that are more than their machine's cores compute on those cores only.
static double teams_of_job(const ct_trainer *t) {
    if (!t->comm) return 1;
    double here = (double)ct_comm_machine_count(t->comm) * ct_team_size(t->team), ranks = ct_comm_size(t->comm);
    return t->first_core < 0 && here > ct_cores() ? ranks * ct_cores() / here : ranks;
}

static ct_status create(ct_trainer *t) {
    const ct_config *c = t->config;
    CT_TRY(check_same_config(t));
    CT_TRY(ct_setup_model(&t->arena, c, &t->model));
    CT_TRY(ct_setup_check_sizes(c, &t->model, 0));
    ct_parallel parallel;
    CT_TRY(ct_setup_parallel(c, t->comm ? ct_comm_size(t->comm) : 1, &parallel));
    CT_TRY(ct_setup_step_options(&t->arena, c, &t->model, &parallel, t->rank, &t->options));
    CT_TRY(ct_threads_of_rank(c, t->comm, &t->options.plan.threads, &t->first_core));
    if (t->comm) t->options.plan.near = (ct_near){t->rank - ct_comm_near_index(t->comm), ct_comm_near_count(t->comm), ct_comm_per_node(t->comm)};
    CT_TRY(make_schedule(t));
    t->share = ct_share_of(&t->options, c);
    CT_TRY(ct_setup_micro_batches(c, t->share.data_ranks, &t->micro_batches));
    CT_TRY(ct_trainer_agree(t, t->rank == 0 ? ct_metrics_check_free(c) : CT_OK));
    CT_TRY_AS(ct_encoder_create(c->model.hf_assets_path, 2, &t->encoder), "the tokenizer, model.hf_assets_path from %s",
              ct_config_origin_text(c, "model.hf_assets_path"));
    CT_TRY(ct_setup_check_sizes(c, &t->model, ct_tokenizer_describe(ct_encoder_tokenizer(t->encoder))->vocab_size));
    CT_TRY(make_plan(t));
    CT_TRY(make_data(t));
    CT_TRY(make_memory(t));
    if (c->checkpoint.enable && c->checkpoint.async_mode != CT_CFG_SYNC) CT_TRY(ct_trainer_make_saver(t));
    CT_TRY(ct_trainer_load(t));
    ct_dtype compute = c->training.mixed_precision_param == CT_CFG_BFLOAT16 ? CT_BF16 : CT_F32;
    return ct_trainer_agree(t, t->rank == 0 ? ct_metrics_open(c, &t->model, t->team, compute, teams_of_job(t), &t->metrics) : CT_OK);
}

ct_status ct_trainer_create(const ct_config *config, ct_comm *comm, ct_trainer **out_trainer) {
    ct_trainer *t = ct_calloc(1, sizeof *t);
    t->config = config;
    t->comm = comm;
    t->rank = comm ? ct_comm_rank(comm) : 0;
    ct_status status = create(t);
    if (status) ct_trainer_destroy(t);
    else *out_trainer = t;
    return status;
}

void ct_trainer_destroy(ct_trainer *t) {
    if (!t) return;
    ct_saver_destroy(t->saver);
    free((char *)t->pending.root);
    free((char *)t->pending.state_json);
    ct_metrics_close(t->metrics);
    ct_data_destroy(t->data);
    ct_data_destroy(t->validation);
    free(t->validation_start);
    free(t->recording.spans);
    free(t->moments);
    ct_encoder_destroy(t->encoder);
    ct_batch_free(&t->batch);
    ct_batch_free(&t->eval_batch);
    ct_pipeline_destroy(t->pipeline);
    ct_schedule_deinit(&t->schedule);
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

static void feed_micro(ct_trainer *t, int64_t micro) {
    int64_t b = t->options.batch;
    ct_batch_feed(t->exec, "micro", &t->share, &t->batch, micro * b, b, t->config->training.seq_len);
    set_i32(t, "micro:first", micro == 0);
}

// One run of a pipeline's schedule.
typedef struct {
    ct_trainer *trainer;
    int64_t first; // its first micro-batch among those of the step
    float inv_count;
    unsigned char has_run[CT_PROGRAMS]; // in this step: what is piled up is there already
} pipeline_run;

static void feed_stage(void *context, ct_program program, int micro) {
    pipeline_run *r = context;
    ct_trainer *t = r->trainer;
    const char *name = t->step.programs[program].name;
    char text[32];
    ct_batch_feed(t->exec, name, &t->share, &t->batch, (r->first + micro) * t->options.batch, t->options.batch, t->config->training.seq_len);
    snprintf(text, sizeof text, "%s:first", name);
    set_i32(t, text, !r->has_run[program]);
    snprintf(text, sizeof text, "%s:inv_count", name);
    set_f32(t, text, r->inv_count);
    r->has_run[program] = 1;
}

static ct_status find_nonfinite(ct_trainer *t, char *where, size_t size) {
    if (t->pipeline) {
        pipeline_run r = {.trainer = t, .inv_count = t->inv_count};
        for (; r.first < t->micro_batches && !where[0]; r.first += t->schedule.micros)
            CT_TRY(ct_pipeline_find_nonfinite(t->pipeline, feed_stage, &r, where, size));
        return CT_OK;
    }
    for (int64_t m = 0; m < t->micro_batches && !where[0]; m++) {
        feed_micro(t, m);
        CT_TRY(ct_exec_find_nonfinite(t->exec, CT_PROGRAM_MICRO, NULL, where, size));
    }
    return CT_OK;
}

static ct_status nonfinite(ct_trainer *t, int64_t step, const char *what, double value) {
    char where[256] = "";
    CT_TRY(find_nonfinite(t, where, sizeof where));
    CT_FAIL(CT_NONFINITE, "step %lld: the %s is %g; the first to produce a value that is not finite is %s", (long long)step, what, value,
            where[0] ? where : "the sum over the step");
}

static ct_status run_pipeline(ct_trainer *t) {
    pipeline_run r = {.trainer = t, .inv_count = t->inv_count};
    for (; r.first < t->micro_batches; r.first += t->schedule.micros) {
        int last = r.first + t->schedule.micros >= t->micro_batches;
        CT_TRY(ct_pipeline_run(t->pipeline, (r.first == 0 ? CT_RUN_FIRST : 0) | (last ? CT_RUN_LAST : 0), feed_stage, &r));
    }
    return ct_pipeline_share_gradients(t->pipeline);
}

static ct_status run_micros(ct_trainer *t, int64_t valid) {
    t->inv_count = valid > 0 ? (float)(1.0 / (double)valid) : 0;
    if (t->pipeline) return run_pipeline(t);
    CT_TRY(ct_exec_run(t->exec, CT_PROGRAM_PROLOGUE));
    set_f32(t, "micro:inv_count", t->inv_count);
    for (int64_t m = 0; m < t->micro_batches; m++) {
        feed_micro(t, m);
        CT_TRY(ct_exec_run(t->exec, CT_PROGRAM_MICRO));
    }
    return CT_OK;
}

// Reads this rank's part of the next step's sequences, and counts what counts in all of them.
static ct_status read_step(ct_trainer *t, int64_t *out_valid) {
    const ct_config_training *c = &t->config->training;
    int64_t sequences = t->micro_batches * t->options.batch, got = 0, start = ct_data_position(t->data);
    CT_TRY(ct_batch_read(t->data, &t->share, start, t->micro_batches, t->options.batch, c->seq_len, t->batch, &got));
    CT_CHECK(got == sequences, CT_INVALID, "the training data ended before step %lld", (long long)(t->position + 1));
    ct_data_release(t->data, start + sequences * t->share.data_ranks);
    *out_valid = count_valid(t->batch.labels, sequences * c->seq_len);
    return CT_OK;
}

ct_status ct_trainer_step(ct_trainer *t, ct_step_report *out) {
    const ct_config_training *c = &t->config->training;
    double start = ct_now_s(), waited = ct_data_waited_s(t->data);
    int64_t step = t->position + 1, valid, tokens = t->micro_batches * t->share.data_ranks * t->options.batch * c->seq_len;
    CT_TRY_AS(ct_trainer_agree(t, read_step(t, &valid)), "reading the batch of step %lld", (long long)step);
    CT_TRY(ct_count_of_all(t, &valid));
    *out = (ct_step_report){.step = step, .tokens = tokens, .lr = ct_schedule_lr(t->config, t->schedule_step + 1)};
    if (t->comm) ct_comm_set_step(t->comm, step);
    CT_TRY_AS(run_micros(t, valid), "step %lld", (long long)step);
    CT_TRY(ct_loss_of_all(t, &out->loss));
    out->loss = valid > 0 ? out->loss / (double)valid : 0;
    if (!isfinite(out->loss)) return nonfinite(t, step, "loss", out->loss);
    double *scalars = ct_exec_data(t->exec, "update:scalars");
    scalars[0] = out->lr;
    scalars[1] = (double)(t->optimizer_step + 1);
    if (t->options.average) scalars[2] = ct_average_share(t);
    CT_TRY_AS(ct_exec_run(t->exec, CT_PROGRAM_UPDATE), "step %lld", (long long)step);
    out->grad_norm = *(const float *)ct_exec_data(t->exec, "update:grad_norm");
    if (!isfinite(out->grad_norm)) return nonfinite(t, step, "gradient norm", out->grad_norm);
    if (t->options.average) ct_average_stepped(t);
    t->position = step;
    t->optimizer_step++;
    t->schedule_step++;
    t->tokens_seen += tokens;
    out->seconds = ct_now_s() - start;
    out->data_wait_s = ct_data_waited_s(t->data) - waited;
    return CT_OK;
}

// ---- validation ----
// Reads one round of validation sequences; rows that are not there any more have no labels.
static ct_status read_eval(ct_trainer *t, int64_t *out_got) {
    const ct_config_validation *c = &t->config->validation;
    int64_t start = ct_data_position(t->validation), b = c->local_batch_size;
    CT_TRY(ct_batch_read(t->validation, &t->share, start, 1, b, c->seq_len, t->eval_batch, out_got));
    for (int64_t k = *out_got * c->seq_len; k < b * c->seq_len; k++)
        t->eval_batch.labels[k] = -100, t->eval_batch.tokens[k] = 0, t->eval_batch.positions[k] = 0, t->eval_batch.documents[k] = 0;
    return CT_OK;
}

static void feed_eval(void *context, ct_program program, int micro) {
    ct_trainer *t = context;
    const ct_config_validation *c = &t->config->validation;
    (void)program, (void)micro;
    ct_batch_feed(t->exec, "eval", &t->share, &t->eval_batch, 0, c->local_batch_size, c->seq_len);
    set_i32(t, "eval:first", 1);
}

static ct_status eval_batches(ct_trainer *t, double *sum, int64_t *valid) {
    const ct_config_validation *c = &t->config->validation;
    int64_t b = c->local_batch_size;
    for (int64_t i = 0; c->steps < 0 || i < c->steps; i++) {
        int64_t got = 0, here, all;
        CT_TRY(ct_trainer_agree(t, read_eval(t, &got)));
        here = count_valid(t->eval_batch.labels, b * c->seq_len), all = got;
        CT_TRY(ct_count_of_all(t, &here));
        CT_TRY(ct_count_of_all(t, &all));
        if (all == 0) break;
        ct_data_release(t->validation, ct_data_position(t->validation) + all);
        if (t->pipeline) CT_TRY(ct_pipeline_eval(t->pipeline, feed_eval, t));
        else {
            feed_eval(t, CT_PROGRAM_EVAL, 0);
            CT_TRY(ct_exec_run(t->exec, CT_PROGRAM_EVAL));
        }
        double loss;
        CT_TRY(ct_loss_of_all(t, &loss));
        *sum += loss;
        *valid += here;
        if (all < b * t->share.data_ranks) break;
    }
    return CT_OK;
}

ct_status ct_trainer_validate(ct_trainer *t, double *out_loss, int64_t *out_tokens) {
    CT_TRY(ct_data_state_restore(t->validation, t->validation_start, strlen(t->validation_start)));
    CT_TRY(t->pipeline ? ct_pipeline_unshard(t->pipeline) : ct_exec_run(t->exec, CT_PROGRAM_PROLOGUE));
    double sum = 0;
    int64_t valid = 0;
    CT_TRY_AS(eval_batches(t, &sum, &valid), "validating after step %lld", (long long)t->position);
    CT_CHECK(valid > 0, CT_INVALID, "the validation set gives not one sequence of %lld tokens",
             (long long)t->config->validation.seq_len);
    *out_loss = sum / (double)valid;
    *out_tokens = valid;
    return CT_OK;
}

ct_status ct_trainer_validate_average(ct_trainer *t, double *out_loss, int64_t *out_tokens) {
    CT_CHECK(t->options.average, CT_INVALID, "there is no average of the weights to validate: optimizer.ema_decay is 0");
    ct_average_swap(t); // all ranks have read the weights: they have agreed on a loss since
    ct_status status = ct_trainer_validate(t, out_loss, out_tokens);
    ct_average_swap(t);
    return status;
}

const ct_step *ct_trainer_step_made(const ct_trainer *t) { return &t->step; }
const ct_plan *ct_trainer_plan(const ct_trainer *t) { return &t->step.plan; }
ct_exec *ct_trainer_exec(ct_trainer *t) { return t->exec; }
ct_pipeline *ct_trainer_pipeline(ct_trainer *t) { return t->pipeline; }
const ct_schedule *ct_trainer_schedule(const ct_trainer *t) { return &t->schedule; }
const ct_model *ct_trainer_model(const ct_trainer *t) { return &t->model; }
int64_t ct_trainer_position(const ct_trainer *t) { return t->position; }
