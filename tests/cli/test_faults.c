// Checkpoints and disks that misbehave under `train`: damaged, missing and foreign ones, full disks, resuming a finished run and one whose
// last save holds weights only, exports that come back.
#include "command.h"

#include <sys/stat.h>
#include <unistd.h>

#define SAVING "--checkpoint.enable --checkpoint.interval 2 "

static void damage(scene *s, const char *name) {
    char *path = ct_format("%s/%s", s->folder, name);
    FILE *file = fopen(path, "r+b");
    assert_non_null(file);
    assert_int_equal(fseek(file, -5, SEEK_END), 0);
    fputc(0x55, file), fputc(0xaa, file);
    fclose(file);
    free(path);
}

static void assert_train(scene *s, const char *words, const char *options) {
    if (run(s, BASE "run " SAVING "%s", options) || !strstr(s->err, words)) fail_msg("%s: %d %s", options, s->status, s->err);
}

static void a_finished_run_has_nothing_to_do(void **state) {
    scene *s = *state;
    assert_train(s, "", "--training.steps 4");
    char *before = curve_of(s, "run");
    for (int i = 0; i < 2; i++) {
        assert_train(s, "loaded", "--training.steps 4");
        assert_non_null(strstr(s->out, "nothing to do: step 4 of 4 is done"));
    }
    char *after = curve_of(s, "run");
    assert_string_equal(before, after);
    free(before), free(after);
}

static void weights_alone_go_on_with_fresh_moments_and_say_so(void **state) {
    scene *s = *state;
    assert_train(s, "", "--training.steps 4");
    assert_train(s, "step-4 holds weights only (checkpoint.last_save_model_only): AdamW's moments start again from zero", "--training.steps 6");
    char *curve = curve_of(s, "run");
    assert_non_null(strstr(curve, "\n5 loss"));
    assert_non_null(strstr(curve, "tokens_seen 1536\n"));
    free(curve);
    // In bfloat16, too, and an earlier checkpoint with moments is there to go back to.
    assert_train(s, "weights only", "--training.steps 8 --checkpoint.export_dtype bfloat16");
    assert_train(s, "weights only", "--training.steps 9");
    if (run(s, BASE "run " SAVING "--training.steps 10 --checkpoint.load_step 2")) fail_msg("%s", s->err);
    assert_null(strstr(s->err, "weights only"));
}

static void parts_excluded_from_loading_start_anew(void **state) {
    scene *s = *state;
    assert_train(s, "", "--training.steps 4 --checkpoint.no_last_save_model_only --lr_scheduler.total_steps 50");
    assert_train(s, "loaded", "--training.steps 5 --checkpoint.exclude_from_loading lr_scheduler --lr_scheduler.total_steps 50 --checkpoint.load_only");
    char *text = read_scene_file(s, "run/metrics.jsonl"), *last = strstr(text, "{\"step\": 5");
    assert_non_null(last);
    assert_true(number_after(last, "\"lr\": ") == number_after(text, "\"lr\": ")); // of step 1
    free(text);
    if (run(s, BASE "run " SAVING "--training.steps 5 --checkpoint.exclude_from_loading train_state,dataloader --checkpoint.load_only"))
        fail_msg("%s", s->err);
    assert_non_null(strstr(s->out, "step 1/5"));
}

static void a_damaged_checkpoint_is_passed_over_for_the_next_older(void **state) {
    scene *s = *state;
    assert_train(s, "", "--training.steps 6 --checkpoint.no_last_save_model_only");
    char *whole = curve_of(s, "run");
    damage(s, "run/checkpoint/step-6/shard-0.safetensors");
    assert_train(s, "step-6/shard-0.safetensors: tensor ", "--training.steps 6 --checkpoint.no_last_save_model_only");
    assert_non_null(strstr(s->err, "loaded "));
    assert_non_null(strstr(s->err, "step-4\n"));
    char *again = curve_of(s, "run"); // steps 5 and 6 again, the same bits
    assert_string_equal(whole, again);
    free(whole), free(again);
    damage(s, "run/checkpoint/step-6/manifest.json");
    damage(s, "run/checkpoint/step-4/shard-0.safetensors");
    assert_train(s, "step-2\n", "--training.steps 6");
    damage(s, "run/checkpoint/step-4/shard-0.safetensors"); // the run made it anew
    expect(s, 1, "step-4/shard-0.safetensors: tensor ", BASE "run " SAVING "--training.steps 6 --checkpoint.load_step 4");
}

static void all_damaged_is_an_error_and_nothing_is_trained_over_them(void **state) {
    scene *s = *state;
    assert_train(s, "", "--training.steps 2");
    damage(s, "run/checkpoint/step-2/shard-0.safetensors");
    assert_int_equal(run(s, BASE "run " SAVING "--training.steps 4"), 1);
    assert_non_null(strstr(s->err, "is damaged"));
    assert_string_equal(s->out, "");
}

static void a_checkpoint_of_another_shape_is_one_message(void **state) {
    scene *s = *state;
    assert_train(s, "", "--training.steps 2");
    expect(s, 1, "tok_embeddings.weight: [512, 48] stored, [512, 96] wanted", BASE "run " SAVING "--training.steps 4 --model.args.dim 96");
    expect(s, 1, "not asked for", BASE "run " SAVING "--training.steps 4 --model.args.n_layers 1");
    expect(s, 1, "missing", BASE "run " SAVING "--training.steps 4 --model.args.n_layers 3");
    expect(s, 1, "initial weights", BASE "other " SAVING "--training.steps 4 --model.args.dim 96 --checkpoint.initial_load_path ~/run/checkpoint");
    expect(s, 1, "tests/train/fixtures/hf_tiny/untied", BASE "other " SAVING
           "--training.steps 4 --checkpoint.initial_load_in_hf --checkpoint.initial_load_path tests/train/fixtures/hf_tiny/untied");
    assert_false(has_scene_file(s, "other/metrics.jsonl"));
}

static void a_step_folder_is_an_initial_checkpoint_as_well_as_their_folder(void **state) {
    scene *s = *state;
    assert_train(s, "", "--training.steps 4 --checkpoint.no_last_save_model_only");
    static const char *const paths[] = {"~/run/checkpoint", "~/run/checkpoint/step-4"};
    for (int i = 0; i < 4; i++) {
        const char *all = i < 2 ? "--checkpoint.no_initial_load_model_only" : "";
        if (run(s, BASE "go-%d " SAVING "--training.steps 5 --checkpoint.initial_load_path %s %s", i, paths[i % 2], all)) fail_msg("%s", s->err);
        char *first = ct_format("step %d/5", i < 2 ? 5 : 1);
        assert_non_null(strstr(s->out, first));
        free(first);
    }
}

static void a_disk_that_fills_while_saving_loses_nothing(void **state) {
    scene *s = *state;
    static const char *const ways[] = {"", "--checkpoint.async_mode async"};
    for (int i = 0; i < 2; i++) {
        char *dump = ct_format("run-%d", i);
        if (run(s, BASE "%s " SAVING "--training.steps 2 --checkpoint.no_last_save_model_only", dump)) fail_msg("%s", s->err);
        s->file_bytes = 200000;
        run(s, BASE "%s " SAVING "--training.steps 8 %s", dump, ways[i]);
        s->file_bytes = 0;
        assert_int_equal(s->status, 1);
        assert_non_null(strstr(s->err, "step-4"));
        assert_non_null(strstr(s->err, "File too large"));
        expect(s, 0, "step-2: sound", "checkpoint verify ~/%s/checkpoint", dump);
        if (run(s, BASE "%s " SAVING "--training.steps 8", dump)) fail_msg("%s", s->err);
        expect(s, 0, "step-8: sound", "checkpoint verify ~/%s/checkpoint", dump);
        free(curve_of(s, dump));
        free(dump);
    }
    s->file_bytes = 200000; // the seed checkpoint and a last save in Hugging Face's form
    assert_int_equal(run(s, BASE "seed " SAVING "--checkpoint.create_seed_checkpoint --checkpoint.async_mode async"), 1);
    assert_int_equal(run(s, BASE "hf " SAVING "--training.steps 1 --checkpoint.last_save_in_hf"), 1);
    assert_false(has_scene_file(s, "hf/checkpoint/step-1-hf"));
}

static void metrics_that_cannot_be_written_are_said_once(void **state) {
    scene *s = *state;
    char *folder = ct_format("%s/run", s->folder), *path = ct_format("%s/metrics.jsonl", folder);
    assert_int_equal(mkdir(folder, 0700), 0);
    assert_int_equal(symlink("/dev/full", path), 0);
    assert_int_equal(run(s, BASE "run --training.steps 3"), 0);
    const char *first = strstr(s->err, "metrics.jsonl: No space left on device; training goes on");
    assert_non_null(first);
    if (strstr(first + strlen("metrics.jsonl: No space left on device; training goes on"), "training goes on")) fail_msg("%s", s->err);
    free(folder), free(path);
}

// Without eps a weight whose gradient is zero is divided by zero.
static void weights_that_are_not_finite_are_not_saved(void **state) {
    scene *s = *state;
    assert_int_equal(run(s, BASE "run --checkpoint.enable --checkpoint.interval 1 --training.steps 3 --optimizer.eps 0"), 1);
    assert_non_null(strstr(s->err, "ctitan train: step 1: the update made values of tok_embeddings.weight that are not finite"));
    assert_false(has_scene_file(s, "run/checkpoint/step-1"));
}

static void with_a_standard_stream_closed_no_file_gets_its_lines(void **state) {
    scene *s = *state;
    for (s->closed_fd = STDOUT_FILENO; s->closed_fd <= STDERR_FILENO; s->closed_fd++) {
        char *dump = ct_format("run-%d", s->closed_fd), *names[] = {ct_format("%s/metrics.jsonl", dump), ct_format("%s/config.toml", dump)};
        assert_int_equal(run(s, BASE "%s " SAVING "--training.steps 4 --compile.enable", dump), 0);
        free(curve_of(s, dump));
        for (int i = 0; i < 2; i++) {
            char *text = read_scene_file(s, names[i]);
            assert_null(strstr(text, "tokens/s"));
            assert_null(strstr(text, "no effect"));
            free(text), free(names[i]);
        }
        free(dump);
    }
}

static void the_half_of_a_line_that_a_dead_run_left_is_taken_off(void **state) {
    scene *s = *state;
    char *folder = ct_format("%s/run", s->folder);
    assert_int_equal(mkdir(folder, 0700), 0);
    static const char *const left[] = {"{\"step\": 1, \"los", "{\"step\": 7, \"loss\": 2}\n{\"st", "\n", ""};
    for (int i = 0; i < 4; i++) {
        write_scene_file(s, "run/metrics.jsonl", left[i], strlen(left[i]));
        assert_int_equal(run(s, BASE "run --training.steps 1"), 0);
        char *text = read_scene_file(s, "run/metrics.jsonl");
        assert_true(!strncmp(text, i == 1 ? "{\"step\": 7, \"loss\": 2}\n{\"step\": 1, " : i == 2 ? "\n{\"step\": 1, " : "{\"step\": 1, ", 12));
        assert_null(strstr(text, "{\"st{"));
        free(text);
    }
    free(folder);
}

static void a_last_save_in_hugging_faces_form_can_be_made_again(void **state) {
    scene *s = *state;
    for (int i = 0; i < 2; i++) assert_train(s, "", "--training.steps 3 --checkpoint.last_save_in_hf");
    assert_true(has_scene_file(s, "run/checkpoint/step-3-hf/config.json"));
    assert_false(has_scene_file(s, "run/checkpoint/step-3-hf.new"));
}

// Out to Hugging Face's form, in again, on from there: the same weights, so the same first loss.
static void export_and_import_keep_the_loss(void **state) {
    scene *s = *state;
    assert_train(s, "", "--training.steps 4");
    expect(s, 0, "2 layers", "checkpoint export ~/run/checkpoint ~/hf");
    expect(s, 0, "2 layers", "checkpoint import ~/hf ~/back");
    static const char *const from[] = {"~/run/checkpoint", "~/hf --checkpoint.initial_load_in_hf", "~/back", "~/hf"};
    double first = 0;
    for (int i = 0; i < 4; i++) {
        if (run(s, BASE "go-%d " SAVING "--training.steps 1 --checkpoint.initial_load_path %s", i, from[i])) fail_msg("%s", s->err);
        char *name = ct_format("go-%d/metrics.jsonl", i), *text = read_scene_file(s, name);
        double loss = number_after(text, "\"loss\": ");
        if (i == 0) first = loss;
        assert_true(loss == first);
        free(name), free(text);
    }
    char *ids = NULL;
    static const char *const weights[] = {"~/run/checkpoint", "~/run/checkpoint/step-4", "~/hf", "~/back/step-0"};
    for (int i = 0; i < 4; i++) {
        if (run(s, "generate tests/train/fixtures/titan/base/config.toml --tokens 40 --seed 9 --ids --prompt In%%20the%%20beginning --checkpoint %s", weights[i]))
            fail_msg("%s", s->err);
        if (!ids) ids = ct_strdup(s->out);
        assert_true(strlen(ids) > 80);
        assert_string_equal(ids, s->out);
    }
    free(ids);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, scene_open, scene_close)
int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(a_finished_run_has_nothing_to_do),
        TEST(weights_alone_go_on_with_fresh_moments_and_say_so),
        TEST(parts_excluded_from_loading_start_anew),
        TEST(a_damaged_checkpoint_is_passed_over_for_the_next_older),
        TEST(all_damaged_is_an_error_and_nothing_is_trained_over_them),
        TEST(a_checkpoint_of_another_shape_is_one_message),
        TEST(a_step_folder_is_an_initial_checkpoint_as_well_as_their_folder),
        TEST(a_disk_that_fills_while_saving_loses_nothing),
        TEST(metrics_that_cannot_be_written_are_said_once),
        TEST(weights_that_are_not_finite_are_not_saved),
        TEST(with_a_standard_stream_closed_no_file_gets_its_lines),
        TEST(the_half_of_a_line_that_a_dead_run_left_is_taken_off),
        TEST(a_last_save_in_hugging_faces_form_can_be_made_again),
        TEST(export_and_import_keep_the_loss),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
