// `ctitan generate`: the known story of stories260K, the same draws from the same seed, sane top-k and top-p, and limits.
#include "command.h"

#define TITAN "tests/train/fixtures/titan/base/config.toml"

static const char stories_toml[] =
    "[model]\nname = \"llama3\"\nflavor = \"debugmodel\"\n[training]\nmixed_precision_param = \"float32\"\nthreads = 2\n[model.args]\ndim = 64\n"
    "n_layers = 5\nn_heads = 8\nn_kv_heads = 4\nhidden_dim = 172\nvocab_size = 512\nmax_seq_len = 512\nrope_theta = 10000.0\n"
    "enable_weight_tying = true\n[model.args.rope_scaling_args]\nscaling_factor = 1.0\n";

static void stories260K_tells_its_story(void **state) {
    scene *s = *state;
    const char *data = test_data();
    if (!data) skip();
    write_scene_file(s, "s.toml", stories_toml, sizeof stories_toml - 1);
    char *story, *prompt;
    assert_null(ct_file_read(CT_SOURCE_DIR "/tests/train/fixtures/stories260K/story.txt", 0, &story, NULL));
    assert_null(ct_file_read(CT_SOURCE_DIR "/tests/train/fixtures/stories260K/prompt.txt", 0, &prompt, NULL));
    char *call = ct_format("generate ~/s.toml --model.hf_assets_path %s/weights/tok512.bin --checkpoint %s/weights/stories260K.bin", data, data);
    if (run(s, "%s --temperature 0 --tokens 255", call)) fail_msg("%s", s->err);
    assert_string_equal(s->err, "");
    if (strncmp(s->out, story, strlen(story) - 1)) fail_msg("told:\n%s\nknown:\n%s", s->out, story);
    // The likeliest token however it is asked for: one of one, or the least probability.
    char *told = ct_strdup(s->out);
    static const char *const same[] = {"--top-k 1 --temperature 3", "--top-p 1e-9 --temperature 3 --seed 7", "--temperature 0 --seed 5"};
    for (int i = 0; i < 3; i++) {
        if (run(s, "%s --tokens 255 %s", call, same[i])) fail_msg("%s", s->err);
        assert_string_equal(s->out, told);
    }
    // The same seed draws the same, another one something else; all of a vocabulary is no restriction.
    char *drawn[4];
    static const char *const ways[] = {"--seed 3", "--seed 3 --top-k 512", "--seed 3 --top-p 1", "--seed 4"};
    for (int i = 0; i < 4; i++) {
        if (run(s, "%s --tokens 60 %s", call, ways[i])) fail_msg("%s", s->err);
        drawn[i] = ct_strdup(s->out);
    }
    assert_string_equal(drawn[0], drawn[1]);
    assert_string_equal(drawn[0], drawn[2]);
    assert_string_not_equal(drawn[0], drawn[3]);
    for (int i = 0; i < 4; i++) free(drawn[i]);
    expect(s, 1, "601 tokens are more than the model's max_seq_len = 512", "%s --tokens 600", call);
    expect(s, 1, "nothing to start from", "%s --no-bos", call);
    expect(s, 0, "Once", "%s --prompt Once --tokens 0", call);
    expect(s, 1, "dim is 64", "%s --tokens 3 --model.args.dim 128", call);
    free(told), free(call), free(story), free(prompt);
}

static void ids_and_logits_are_numbers(void **state) {
    scene *s = *state;
    if (run(s, BASE "run --training.steps 2 --checkpoint.enable")) fail_msg("%s", s->err);
    assert_int_equal(run(s, "generate " TITAN " --job.dump_folder ~/run --ids --tokens 12 --temperature 0 --prompt And"), 0);
    int ids = 0;
    char *at = s->out, *end;
    for (long id; (id = strtol(at, &end, 10), end != at); at = end, ids++) assert_true(id >= 0 && id < 512);
    assert_string_equal(at, "\n");
    assert_true(ids > 1);
    assert_int_equal(run(s, "generate " TITAN " --job.dump_folder ~/run --logits --prompt And"), 0);
    int numbers = 0;
    for (at = s->out; (void)strtod(at, &end), end != at; at = end) numbers++;
    assert_string_equal(at, "\n");
    assert_true(numbers >= 2 * 512 && numbers % 512 == 0);
    assert_int_equal(run(s, "tokenizer train -o ~/t --vocab-size 600 CMakeLists.txt tests/cli/command.c"), 0);
    expect(s, 1, "has 600 ids, the model's vocabulary is 512", "generate " TITAN " --job.dump_folder ~/run --model.hf_assets_path ~/t");
}

static void without_weights_there_is_one_message(void **state) {
    scene *s = *state;
    expect(s, 1, "there is no ", "generate " TITAN " --job.dump_folder ~/nothing");
    expect(s, 1, "there is no /no/such", "generate " TITAN " --checkpoint /no/such");
    write_scene_file(s, "w.bin", stories_toml, 200);
    expect(s, 1, "w.bin", "generate " TITAN " --checkpoint ~/w.bin");
    write_scene_file(s, "w.safetensors", stories_toml, 200);
    expect(s, 1, "w.safetensors", "generate " TITAN " --checkpoint ~/w.safetensors");
    expect(s, 1, "tests/train/fixtures/hf_tiny/untied", "generate " TITAN " --checkpoint tests/train/fixtures/hf_tiny/untied");
    expect(s, 1, "131073 tokens are more than", "generate " TITAN " --tokens 131072");
}

// The average of a checkpoint's weights, and the same exported: one model, and another one than the weights'.
static void averaged_weights_are_generated_from_and_exported(void **state) {
    scene *s = *state;
    if (run(s, BASE "run --training.steps 4 --checkpoint.enable --optimizer.ema_decay 0.9")) fail_msg("%s", s->err);
    assert_int_equal(run(s, "checkpoint export ~/run/checkpoint ~/hf --ema"), 0);
    static const char *const from[] = {"--job.dump_folder ~/run --ema", "--checkpoint ~/hf", "--job.dump_folder ~/run"};
    char *logits[3];
    for (int i = 0; i < 3; i++) {
        if (run(s, "generate " TITAN " --logits --prompt And %s", from[i])) fail_msg("%s", s->err);
        logits[i] = ct_strdup(s->out);
    }
    assert_string_equal(logits[0], logits[1]);
    assert_string_not_equal(logits[0], logits[2]);
    for (int i = 0; i < 3; i++) free(logits[i]);
    expect(s, 1, "no checkpoint of ctitan", "generate " TITAN " --checkpoint ~/hf --ema");
    if (run(s, BASE "plain --training.steps 1 --checkpoint.enable")) fail_msg("%s", s->err);
    expect(s, 1, "ema.", "generate " TITAN " --job.dump_folder ~/plain --ema");
    expect(s, 1, "holds no average of the weights", "checkpoint export ~/plain/checkpoint ~/none --ema");
    expect(s, 1, "optimizer.ema_decay is 0", BASE "plain --validation.enable --validation.ema");
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, scene_open, scene_close)
int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(stories260K_tells_its_story),
        TEST(ids_and_logits_are_numbers),
        TEST(without_weights_there_is_one_message),
        TEST(averaged_weights_are_generated_from_and_exported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
