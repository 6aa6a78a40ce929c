// Ends of a run, asked for and not: after SIGTERM, SIGUSR1, several of them, or SIGKILL at any moment, the run goes on from a whole checkpoint
// and its curve and last weights are the bits of a run that was never disturbed.
#include "command.h"

#include <signal.h>
#include <sys/wait.h>
#include <time.h>

#define LONG "--training.steps 40 --checkpoint.enable --checkpoint.interval 3 --checkpoint.no_last_save_model_only " \
    "--checkpoint.keep_latest_k 3 --metrics.log_freq 1 "
#define VALIDATED "--validation.enable --validation.freq 2 --validation.steps 20 --validation.local_batch_size 4 --validation.seq_len 64 " \
    "--validation.dataset jsonl --validation.dataset_path tests/train/fixtures/titan/text/data.json "
#define LAST "checkpoint/step-40/shard-0.safetensors"

static uint32_t random_state = 1;
static double uniform(void) { return (random_state = random_state * 1664525u + 1013904223u) / 4294967296.0; }

static void sleep_s(double s) {
    struct timespec t = {(time_t)s, (long)((s - (double)(time_t)s) * 1e9)};
    nanosleep(&t, NULL);
}

typedef struct {
    char *curve, *weights;
    size_t weights_size;
    double seconds;
} outcome;

static outcome outcome_of(scene *s, const char *dump) {
    outcome o = {.curve = curve_of(s, dump), .seconds = s->seconds};
    char *path = ct_format("%s/%s/%s", s->folder, dump, LAST);
    assert_null(ct_file_read(path, 0, &o.weights, &o.weights_size));
    free(path);
    return o;
}

static void outcome_deinit(outcome *o) { free(o->curve), free(o->weights); }

static void assert_same_outcome(scene *s, const outcome *wanted, const char *dump) {
    outcome got = outcome_of(s, dump);
    assert_string_equal(got.curve, wanted->curve);
    assert_int_equal(got.weights_size, wanted->weights_size);
    assert_memory_equal(got.weights, wanted->weights, got.weights_size);
    outcome_deinit(&got);
}

static outcome undisturbed(scene *s, const char *options) {
    static int number;
    char dump[32];
    snprintf(dump, sizeof dump, "whole-%d", number++);
    if (run(s, BASE "%s " LONG "%s", dump, options)) fail_msg("%s", s->err);
    return outcome_of(s, dump);
}

// A run into a folder of its own that is sent `signals` at a moment drawn anew each time it goes on, until it comes through (after a dozen ends
// it is left alone). Gives how often it was ended.
static int disturb_once(scene *s, const outcome *whole, const char *options, const int *signals) {
    static int number;
    char *dump = ct_format("disturbed-%d", number++);
    int ended = 0, status;
    do {
        pid_t process = start(s, BASE "%s " LONG "%s", dump, options);
        if (ended < 12) sleep_s(whole->seconds * (0.05 + 0.8 * uniform()));
        for (const int *signal = signals; ended < 12 && *signal; signal++) kill(process, *signal);
        status = finish(s, process);
        int is_wanted = signals[0] == SIGKILL ? status == 128 + SIGKILL : status == 75 || (status > 128 && !s->out[0]); // not yet watching
        if (status && !is_wanted) fail_msg("status %d: %s", status, s->err);
        if (strstr(s->err, "damaged")) fail_msg("%s", s->err);
        ended += status != 0;
    } while (status);
    assert_same_outcome(s, whole, dump);
    char *path = ct_format("%s/%s", s->folder, dump);
    assert_null(ct_folder_remove(path));
    free(path), free(dump);
    return ended;
}

static void disturb(scene *s, const outcome *whole, const char *options, const int *signals, int least) {
    int ended = 0, runs = 0;
    while (ended < least && runs < 20 * least) ended += disturb_once(s, whole, options, signals), runs++;
    printf("%d runs were ended %d times\n", runs, ended);
    assert_true(ended >= least);
}

static void stopping_loses_nothing(void **state) {
    scene *s = *state;
    static const int ways[][4] = {{SIGTERM}, {SIGUSR1}, {SIGTERM, SIGTERM}, {SIGUSR1, SIGTERM, SIGUSR1}};
    outcome whole = undisturbed(s, "");
    for (int i = 0; i < 4; i++) disturb(s, &whole, i % 2 ? "--checkpoint.async_mode async" : "", ways[i], 2);
    outcome_deinit(&whole);
}

static void stopping_while_it_validates_loses_nothing(void **state) {
    scene *s = *state;
    static const int term[] = {SIGTERM, 0};
    outcome whole = undisturbed(s, VALIDATED);
    assert_non_null(strstr(whole.curve, "validation_loss"));
    disturb(s, &whole, VALIDATED, term, 4);
    outcome_deinit(&whole);
}

static void being_killed_at_any_moment_loses_nothing(void **state) {
    scene *s = *state;
    static const int kill_it[] = {SIGKILL, 0};
    outcome whole = undisturbed(s, "");
    disturb(s, &whole, "", kill_it, 18);
    disturb(s, &whole, "--checkpoint.async_mode async", kill_it, 18);
    outcome_deinit(&whole);
    whole = undisturbed(s, "--ranks 2");
    disturb(s, &whole, "--ranks 2 --checkpoint.async_mode async", kill_it, 9);
    outcome_deinit(&whole);
}

static void without_checkpoints_a_signal_still_ends_it_with_75(void **state) {
    scene *s = *state;
    pid_t process = start(s, BASE "run --training.steps 1000000 --metrics.log_freq 1");
    for (int i = 0; i < 600 && !has_scene_file(s, "run/config.toml"); i++) sleep_s(0.05);
    kill(process, SIGTERM);
    assert_int_equal(finish(s, process), 75);
    assert_false(has_scene_file(s, "run/checkpoint"));
}

static void two_runs_do_not_share_a_folder(void **state) {
    scene *s = *state;
    pid_t process = start(s, BASE "run --training.steps 1000000 --checkpoint.enable");
    for (int i = 0; i < 600 && !has_scene_file(s, "run/config.toml"); i++) sleep_s(0.05);
    int status;
    scene other = {.folder = s->folder};
    assert_int_equal(run(&other, BASE "run --training.steps 3 --checkpoint.enable"), 1);
    if (!strstr(other.err, "another run is writing to ")) fail_msg("%s", other.err);
    free(other.out), free(other.err);
    kill(process, SIGKILL);
    assert_int_equal(waitpid(process, &status, 0), process);
    if (run(s, BASE "run --training.steps 3 --checkpoint.enable")) fail_msg("%s", s->err); // the lock is gone with its process
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, scene_open, scene_close)
int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(stopping_loses_nothing),
        TEST(stopping_while_it_validates_loses_nothing),
        TEST(being_killed_at_any_moment_loses_nothing),
        TEST(two_runs_do_not_share_a_folder),
        TEST(without_checkpoints_a_signal_still_ends_it_with_75),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
