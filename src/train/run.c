// The loop: step, log, validate, save; SIGTERM and SIGUSR1 act at a step's end. A save that fails ends the run: going on would lose more.
#include "trainer_parts.h"
#include "base/clock.h"
#include "base/file.h"
#include "train/curve.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>

static atomic_int stop_signal; // a handler may write it, and every rank's thread reads it

static void on_signal(int number) { stop_signal = number; }

void ct_stop_watch(ct_stop_handlers *saved) {
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    sigemptyset(&action.sa_mask);
    sigaction(SIGTERM, &action, &saved->term);
    sigaction(SIGUSR1, &action, &saved->usr1);
}

void ct_stop_unwatch(const ct_stop_handlers *saved) {
    sigaction(SIGTERM, &saved->term, NULL);
    sigaction(SIGUSR1, &saved->usr1, NULL);
    stop_signal = 0;
}

static ct_status validate(ct_trainer *t) {
    for (int average = 0; average <= t->config->validation.ema; average++) {
        double loss, start = ct_now_s();
        int64_t tokens;
        CT_TRY(average ? ct_trainer_validate_average(t, &loss, &tokens) : ct_trainer_validate(t, &loss, &tokens));
        if (t->metrics) ct_metrics_validation(t->metrics, t->position, average, loss, tokens, ct_now_s() - start);
    }
    return CT_OK;
}

// Is a save due after this step? As torchtitan: each interval, the first step by key, the last step always.
static int is_due(const ct_trainer *t) {
    const ct_config_checkpoint *c = &t->config->checkpoint;
    if (!c->enable || c->load_only) return 0;
    return t->position % c->interval == 0 || (c->enable_first_step_checkpoint && t->position == 1);
}

static ct_status save(ct_trainer *t, int last) {
    CT_TRY(ct_trainer_save(t, last));
    if (t->rank == 0) printf("%s step %lld\n", t->saver ? "saving" : "saved", (long long)t->position);
    fflush(stdout);
    return CT_OK;
}

static ct_status one_step(ct_trainer *t, int *out_stop) {
    const ct_config *c = t->config;
    ct_step_report report;
    ct_profile_before(t);
    CT_TRY(ct_trainer_step(t, &report));
    int last = t->position == c->training.steps;
    int64_t stop = stop_signal != 0;
    if (t->comm) CT_TRY(ct_comm_max_i64(t->comm, &stop, 1)); // a signal reaches one rank first
    if (t->metrics) ct_metrics_step(t->metrics, &report, t->tokens_seen, last || stop);
    CT_TRY(ct_profile_after(t));
    CT_TRY(ct_trainer_settle_save(t, 0));
    if (c->validation.enable && (t->position == 1 || t->position % c->validation.freq == 0)) CT_TRY(validate(t));
    int saving = c->checkpoint.enable && !c->checkpoint.load_only && (stop || last || is_due(t));
    if (saving) CT_TRY(save(t, last && !stop));
    *out_stop = stop && !last;
    return CT_OK;
}

// The run's resolved configuration beside its metrics, with version and plan.
static ct_status write_resolved(const ct_trainer *t) {
    ct_string s = {0};
    ct_string_add(&s, "# ctitan %s, plan %016llx, %d threads, %s\n", CT_VERSION, (unsigned long long)t->step.plan.hash,
                  t->step.plan.threads, t->step.plan.isa);
    ct_config_print_resolved(t->config, &s);
    char *path = ct_format("%s/config.toml", t->config->job.dump_folder);
    ct_status status = ct_file_write_atomic(path, s.text, s.length);
    free(path);
    const ct_config_job *job = &t->config->job;
    if (!status && job->save_config_file) {
        path = ct_format("%s/%s", job->dump_folder, job->save_config_file);
        status = ct_file_write_atomic(path, s.text, s.length);
        free(path);
    }
    if (!status && job->print_config) fputs(s.text, stdout);
    ct_string_deinit(&s);
    return status;
}

static void print_start(const ct_trainer *t) {
    const ct_config_training *c = &t->config->training;
    printf("model %s %s: %.2f M parameters; %lld × %lld tokens a micro-batch, %lld micro-batch%s a step; %s; plan %.2f GB, %d threads, %s\n",
           t->model.kind->name, t->model.flavor, (double)ct_model_parameters(&t->model) / 1e6, (long long)t->options.batch,
           (long long)c->seq_len, (long long)t->micro_batches, t->micro_batches == 1 ? "" : "es",
           c->mixed_precision_param == CT_CFG_BFLOAT16 ? "bf16 compute, f32 masters" : "f32",
           (double)t->step.plan.peak_bytes / 1e9, t->step.plan.threads, t->step.plan.isa);
    fflush(stdout);
}

// The run's losses as loss.svg in its folder and, where there are enough of them to see something, as a chart on the console. Training is
// done and saved by now: what goes wrong here is said, and fails nothing.
static void show_curve(const ct_trainer *t) {
    enum { ENOUGH = 10 };
    const ct_config *c = t->config;
    ct_curve curve;
    ct_string text = {0};
    char *path = ct_format("%s/loss.svg", c->job.dump_folder);
    ct_status status = ct_curve_read(c->job.dump_folder, &curve);
    if (!status) {
        ct_curve_draw_svg(&curve, c->job.description, &text);
        status = ct_file_write_atomic(path, text.text, text.length);
    }
    if (!status && curve.training.count >= ENOUGH) {
        ct_curve_options options = ct_curve_options_for_stdout();
        if (c->metrics.disable_color_printing) options.color = 0;
        text.length = 0;
        ct_curve_draw(&curve, options, &text);
        printf("\n%s(%s)\n", text.text, path);
    }
    if (status) fprintf(stderr, "ctitan: the loss curve is not drawn: %s\n", ct_error_text(status));
    free(path);
    ct_string_deinit(&text);
    ct_curve_deinit(&curve);
}

// A signal that came while weights were loaded ends the run before its first step.
static ct_status run_steps(ct_trainer *t, int *out_stopped) {
    const ct_config *c = t->config;
    if (c->checkpoint.enable && c->checkpoint.create_seed_checkpoint) return save(t, 0);
    if (t->position >= c->training.steps && t->rank == 0)
        printf("nothing to do: step %lld of %lld is done\n", (long long)t->position, (long long)c->training.steps);
    int64_t stop = stop_signal != 0;
    if (t->comm) CT_TRY(ct_comm_max_i64(t->comm, &stop, 1));
    if (t->position < c->training.steps) *out_stopped = stop != 0;
    ct_status status = CT_OK;
    while (!status && t->position < c->training.steps && !*out_stopped) status = one_step(t, out_stopped);
    return status;
}

ct_status ct_trainer_run(ct_trainer *t, int *out_stopped) {
    *out_stopped = 0;
    CT_TRY(ct_trainer_agree(t, t->rank == 0 ? write_resolved(t) : CT_OK));
    if (t->rank == 0) print_start(t);
    ct_status status = run_steps(t, out_stopped);
    if (!status) status = ct_trainer_settle_save(t, 1);
    if (t->saver) {
        ct_status saved = ct_checkpoint_save_wait(t->saver);
        if (!status && saved) status = ct_error_note(saved, "saving in the background");
    }
    if (t->rank == 0 && !status && !*out_stopped && !t->config->checkpoint.create_seed_checkpoint) show_curve(t);
    return status;
}
