// Wrong calls and wrong input, command by command: help on standard output, mistakes as one line on standard error, exit statuses 0, 1, 2.
#include "command.h"

#define TITAN "tests/train/fixtures/titan/"
#define CONFIG TITAN "base/config.toml"

static const char *const commands[] = {"train", "plan", "generate", "metrics", "graph", "config", "data", "checkpoint", "tokenizer"};
enum { COMMANDS = sizeof commands / sizeof *commands };

static void every_command_explains_itself(void **state) {
    scene *s = *state;
    assert_int_equal(run(s, "--help"), 0);
    assert_string_equal(s->err, "");
    char *all = ct_strdup(s->out);
    for (int i = 0; i < COMMANDS; i++) {
        assert_non_null(strstr(all, commands[i]));
        for (int k = 0; k < 2; k++) {
            assert_int_equal(run(s, "%s %s", commands[i], k ? "x y -h" : "--help"), 0);
            assert_string_equal(s->err, "");
            assert_non_null(strstr(s->out, "usage: ctitan "));
            assert_non_null(strstr(s->out, commands[i]));
        }
    }
    free(all);
    expect(s, 0, "ctitan ", "--version");
}

static void without_arguments_a_command_says_how_it_is_used(void **state) {
    scene *s = *state;
    for (int i = -1; i < COMMANDS; i++) {
        if (i >= 0 && !strcmp(commands[i], "config")) continue; // lists all keys
        assert_int_equal(run(s, "%s", i < 0 ? "" : commands[i]), 2);
        assert_string_equal(s->out, "");
        assert_non_null(strstr(s->err, "usage: "));
    }
}

static void what_is_no_option_is_said_in_one_line(void **state) {
    scene *s = *state;
    assert_int_equal(run(s, "frobnicate"), 2);
    assert_string_equal(s->err, "ctitan: there is no command 'frobnicate'; see `ctitan --help`\n");
    for (int i = 0; i < COMMANDS; i++) expect(s, 2, "--frob", "%s --frob", commands[i]);
    static const char *const calls[][2] = {
        {"train " CONFIG " --frob", "no option --frob"},
        {"train " CONFIG " b.toml", "'b.toml' is one argument too many"},
        {"train " CONFIG " --training.steps 3 b.toml", "'b.toml' is one argument too many"},
        {"plan " CONFIG " --json=1", "no option --json=1"},
        {"graph " CONFIG " --frob", "no option --frob"},
        {"config " CONFIG " b.toml", "what is 'b.toml'?"},
        {"generate " CONFIG " --tokens 1.5", "--tokens 1.5: a whole number is wanted"},
        {"generate " CONFIG " --tokens -1", "--tokens -1: a whole number is wanted"},
        {"generate " CONFIG " --tokens", "--tokens has no value"},
        {"generate " CONFIG " --tokens 99999999999999999999", "a whole number is wanted"},
        {"generate " CONFIG " --temperature -0.1", "a number from 0 to 1e6 is wanted"},
        {"generate " CONFIG " --temperature nan", "a number from 0 to 1e6 is wanted"},
        {"generate " CONFIG " --top-p 0", "a number above 0, at most 1 is wanted"},
        {"generate " CONFIG " --top-p 1.01", "a number above 0, at most 1 is wanted"},
        {"generate " CONFIG " --top-k x", "--top-k x: a whole number is wanted"},
        {"generate " CONFIG " --seed -1", "--seed -1: a whole number is wanted"},
        {"data frob", "no `ctitan data frob`"},
        {"data build a", "build needs a tokenizer"},
        {"data build a b c --threads 0", "--threads 0: wanted is a number from 1 to 1024"},
        {"data info", "info needs one corpus"},
        {"data info a b", "info needs one corpus"},
        {"checkpoint frob", "no `ctitan checkpoint frob`"},
        {"checkpoint list", "needs one folder"},
        {"checkpoint export a", "needs what to read and where to write"},
        {"checkpoint list a b c", "one path too many"},
        {"tokenizer frob", "no command 'frob'"},
        {"tokenizer encode", "encode needs a tokenizer"},
        {"tokenizer train a", "needs -o FOLDER"},
        {"tokenizer train -o ~/t", "needs text files"},
        {"tokenizer train -o ~/t --vocab-size x a", "'x' is not a whole number"},
    };
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) expect(s, 2, calls[i][1], "%s", calls[i][0]);
}

static void what_is_not_there_is_named(void **state) {
    scene *s = *state;
    static const char *const calls[] = {
        "train %s", "plan %s", "generate %s", "metrics %s", "graph %s", "graph --check %s", "config %s", "data info %s",
        "data build %s ~/c.ctc " CONFIG, "data build " TITAN "tokenizer ~/c.ctc %s", "checkpoint list %s", "checkpoint verify %s",
        "checkpoint import %s ~/out", "checkpoint export %s ~/out", "tokenizer encode %s", "tokenizer decode %s", "tokenizer info %s",
        "tokenizer encode " TITAN "tokenizer %s", "tokenizer train -o ~/t %s"};
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        char *line = ct_format("%s", calls[i]), *at = strstr(line, "%s");
        ct_string call = {0};
        ct_string_add(&call, "%.*s/no/such.toml%s", (int)(at - line), line, at + 2);
        expect(s, 1, "/no/such.toml", "%s", call.text);
        if (has_scene_file(s, "c.ctc") || has_scene_file(s, "out") || has_scene_file(s, "t")) fail_msg("%s left something behind", call.text);
        free(line);
        ct_string_deinit(&call);
    }
}

// Each of these stops `train` before its first step, with one message and nothing left behind.
static void a_wrong_config_is_one_message(void **state) {
    scene *s = *state;
    static const char *const calls[][2] = {
        {"--training.stepz 3", "there is no key training.stepz; is it training.steps?"},
        {"--trainink.steps 3", "trainink"},
        {"--training.steps", "--training.steps has no value: an integer ≥ 1 is wanted"},
        {"--training.steps x", "training.steps = \"x\": an integer ≥ 1 is wanted"},
        {"--training.steps 0", "training.steps = 0: an integer ≥ 1 is wanted"},
        {"--training.steps 99999999999999999999", "training.steps"},
        {"--optimizer.lr nan", "optimizer.lr = nan: a number ≥ 0 is wanted"},
        {"--optimizer.lr inf", "optimizer.lr = inf: a number ≥ 0 is wanted"},
        {"--training.threads 2000", "an integer from 0 to 1024 is wanted"},
        {"--parallelism.tensor_parallel_degree 2", "1 rank for pp 1 × dp_replicate 1 × cp 1 × tp 2 = 2"},
        {"--model.converters float8", "model.converters = [\"float8\"] is not built yet"},
        {"--optimizer.name DistMuon", "optimizer.name = \"DistMuon\" is not built yet (built: AdamW Adam)"},
        {"--optimizer.early_step_in_backward", "optimizer.early_step_in_backward = true is not built yet"},
        {"--model.flavor 9B", "model.flavor = \"9B\": llama3's flavours are debugmodel"},
        {"--model.name llama9", "model.name = \"llama9\""},
        {"--model.args.dim 50", "model.args.dim = 50 is not a multiple of n_heads = 6"},
        {"--model.args.n_kv_heads 4", "n_heads = 6 is not a multiple of n_kv_heads = 4"},
        {"--model.args.dim 99999999999", "model.args.dim"},
        {"--model.args.vocab_size 100", "has 510 ids, the model's vocabulary is 100"},
        {"--model.args.max_seq_len 32", "training.seq_len = 64 is more than the model's max_seq_len = 32"},
        {"--training.global_batch_size 7", "training.global_batch_size = 7"},
        {"--training.global_batch_size 4000000000000000000", "at most 1073741816 sequences make a step"},
        {"--training.local_batch_size 9223372036854775807", "at most 2147483647 tokens make a micro-batch"},
        {"--training.local_batch_size 20000000", "the plan needs"},
        {"--training.local_batch_size 9223372036854775808", "training.local_batch_size"},
        {"--training.global_batch_size 1073741816", "the plan needs"},
        {"--model.hf_assets_path /no/such", "there is no tokenizer at /no/such"},
        {"--training.dataset_path /no/such", "/no/such, which is not there"},
        {"--training.dataset text --training.dataset_path none", "training.dataset wants a training.dataset_path"},
        {"--training.dataset corpus", "has no file of the format corpus"},
        {"--checkpoint.enable --checkpoint.exclude_from_loading optimiser", "has \"optimiser\": the parts are optimizer"},
        {"--checkpoint.enable --checkpoint.export_dtype float16", "export_dtype = \"float16\" wants last_save_in_hf"},
        {"--checkpoint.enable --checkpoint.initial_load_in_hf", "initial_load_in_hf wants a checkpoint.initial_load_path"},
        {"--checkpoint.enable --checkpoint.initial_load_path /no/such", "there is no /no/such"},
        {"--checkpoint.enable --checkpoint.load_step 5", "there is no checkpoint of step 5"},
        {"--checkpoint.enable --checkpoint.keep_latest_k 1", "keep_latest_k = 1"},
    };
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        expect(s, 1, calls[i][1], BASE "run --training.steps 1 %s", calls[i][0]);
        assert_false(has_scene_file(s, "run/metrics.jsonl") || has_scene_file(s, "run/config.toml"));
    }
}

static void a_mistake_in_the_file_has_line_and_column(void **state) {
    scene *s = *state;
    static const char *const files[][2] = {
        {"[training]\nsteps = \"three\"\n", "a.toml:2:9: training.steps = \"three\": an integer ≥ 1 is wanted"},
        {"[training]\nseq_len = 1.5\n", "a.toml:2:11: training.seq_len = 1.5: an integer"},
        {"[training]\nsteps = 3\nstepz = 4\n", "a.toml:3:1: there is no key training.stepz; is it training.steps?"},
        {"[training\nsteps = 3\n", "a.toml:1:10"},
        {"[training]\nsteps = 3\nsteps = 4\n", "a.toml:3:1"},
        {"[trainin]\nsteps = 3\n", "trainin"},
        {"[model]\nname = \"llama3\nflavor = 1\n", "a.toml:2:"},
        {"\xff\xfe", "a.toml:1:1"},
        {"[metrics]\nenable_tensorboard = 1\n", "a.toml:2:22: metrics.enable_tensorboard = 1: true or false is wanted"},
    };
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        write_scene_file(s, "a.toml", files[i][0], strlen(files[i][0]));
        static const char *const readers[] = {"train", "plan", "graph", "config", "generate"};
        for (int k = 0; k < 5; k++) expect(s, 1, files[i][1], "%s ~/a.toml", readers[k]);
    }
}

static void keys_without_use_are_named_and_the_run_goes_on(void **state) {
    scene *s = *state;
    assert_int_equal(run(s, BASE "run --training.steps 1 --compile.enable --training.gc_freq 7"), 0);
    assert_non_null(strstr(s->err, "compile.enable = true has no effect here: "));
    assert_non_null(strstr(s->err, "training.gc_freq = 7 has no effect here: "));
}

static void damaged_tokenizers_and_empty_text_are_one_message(void **state) {
    scene *s = *state;
    char *text;
    size_t size;
    assert_null(ct_file_read(CT_SOURCE_DIR "/" TITAN "tokenizer/tokenizer.json", 0, &text, &size));
    for (int i = 0; i < 8; i++) {
        write_scene_file(s, "tokenizer.json", text, size * (size_t)i / 8);
        expect(s, 1, "tokenizer.json", BASE "run --training.steps 1 --model.hf_assets_path ~/tokenizer.json");
        expect(s, 1, "tokenizer.json", "tokenizer info ~/tokenizer.json");
    }
    free(text);
    for (unsigned i = 0; i < 2; i++) {
        unsigned char garbage[4096];
        for (size_t k = 0; k < sizeof garbage; k++) garbage[k] = (unsigned char)(i ? k * 2654435761u >> 13 : 0);
        static const char *const names[] = {"tokenizer.json", "t.tiktoken", "t.model", "t.bin"};
        for (int k = 0; k < 4; k++) {
            write_scene_file(s, names[k], garbage, sizeof garbage);
            expect(s, 1, names[k], "tokenizer info ~/%s", names[k]);
        }
    }
    write_scene_file(s, "empty.txt", "", 0);
    static const char *const texts[][4] = {{"text", "empty.txt", "", "empty.txt: no document in it"},
                                           {"jsonl", "blank.jsonl", "\n\n\n", "blank.jsonl: no document in it"},
                                           {"jsonl", "bad.jsonl", "{\"text\": \"a\"}\n{\"text\": 3}\n", "bad.jsonl"}};
    for (int i = 0; i < 3; i++) {
        write_scene_file(s, texts[i][1], texts[i][2], strlen(texts[i][2]));
        assert_int_equal(run(s, BASE "run --training.steps 1 --training.dataset %s --training.dataset_path ~/%s", texts[i][0], texts[i][1]), 1);
        assert_non_null(strstr(s->err, texts[i][3]));
        printf("%s", s->err);
    }
}

static void a_corpus_of_another_tokenizer_is_refused(void **state) {
    scene *s = *state;
    assert_int_equal(run(s, "tokenizer train -o ~/t --vocab-size 300 CMakeLists.txt"), 0);
    assert_int_equal(run(s, "data build ~/t ~/c.ctc CMakeLists.txt"), 0);
    expect(s, 1, "c.ctc", BASE "run --training.steps 1 --training.dataset corpus --training.dataset_path ~/c.ctc");
    assert_int_equal(run(s, BASE "run --training.steps 1 --training.dataset corpus --training.dataset_path ~/c.ctc --model.hf_assets_path ~/t"), 0);
    assert_int_equal(run(s, "data info ~/c.ctc --verify"), 0);
}

static void output_that_cannot_be_written_is_an_error(void **state) {
    scene *s = *state;
    s->stdout_path = "/dev/full";
    static const char *const calls[] = {"plan " CONFIG, "plan " CONFIG " --json", "graph " CONFIG, "graph --ops", "config", "config " CONFIG,
                                        "tokenizer info " TITAN "tokenizer"};
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) expect(s, 1, "No space left on device", "%s", calls[i]);
}

static void a_dump_folder_that_cannot_be_is_one_message(void **state) {
    scene *s = *state;
    write_scene_file(s, "file", "x", 1);
    expect(s, 1, "file is there and is not a folder", BASE "file --training.steps 1");
    expect(s, 1, "file", BASE "file --training.steps 1 --checkpoint.enable");
    expect(s, 1, "/proc/self/nothing", "train " CONFIG " --job.dump_folder /proc/self/nothing --training.steps 1");
}

// Costs for all stages, by stage and from a file are the same where they say the same; lists of other lengths and memory for nobody are refused.
static void schedules_take_costs_by_stage(void **state) {
    scene *s = *state;
    static const char file[] = "stage,forward_s,input_grad_s,weight_grad_s\n0,2,2,1\n1,3,2,1\n";
    write_scene_file(s, "costs.csv", file, sizeof file - 1);
    expect(s, 0, "1F1B: 2 stages on 2 ranks, 3 micro-batches: 23 s", "schedule 1F1B --ranks 2 --micros 3 --costs 2:3,2,1"); // 2 + 3 × 6 + 3
    char *by_list = ct_strdup(s->out);
    assert_int_equal(run(s, "schedule 1F1B --ranks 2 --micros 3 --costs ~/costs.csv"), 0);
    assert_string_equal(s->out, by_list);
    free(by_list);
    expect(s, 0, "bubble 0.00", "schedule Auto --ranks 1 --micros 4 --stages-per-rank 2 --slots 2 --costs 2:3,2,1");
    expect(s, 1, "3 numbers for 4 stages", "schedule auto --ranks 2 --micros 3 --costs 1,1:1:1,1");
    expect(s, 1, "one for each of the 2 stages", "schedule auto --ranks 1 --micros 3 --costs 1,1:1:1,1");
    expect(s, 1, "--costs 1,1: three numbers, or lists, are wanted", "schedule auto --ranks 1 --micros 3 --costs 1,1");
    expect(s, 1, "a number above 0", "schedule auto --ranks 1 --micros 3 --costs 1,-1,1");
    expect(s, 1, "costs of 2 stages, 4 are wanted", "schedule auto --ranks 2 --micros 3 --costs ~/costs.csv");
    expect(s, 1, "may save 1 at once, but one micro-batch of its stages takes 2", "schedule auto --ranks 2 --micros 3 --slots 1");
    expect(s, 1, "only Auto can be told", "schedule GPipe --ranks 2 --micros 3 --slots 1");
    expect(s, 2, "--slots", "schedule auto --ranks 2 --micros 3 --slots x");
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, scene_open, scene_close)
int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(every_command_explains_itself),
        TEST(without_arguments_a_command_says_how_it_is_used),
        TEST(what_is_no_option_is_said_in_one_line),
        TEST(what_is_not_there_is_named),
        TEST(a_wrong_config_is_one_message),
        TEST(a_mistake_in_the_file_has_line_and_column),
        TEST(keys_without_use_are_named_and_the_run_goes_on),
        TEST(damaged_tokenizers_and_empty_text_are_one_message),
        TEST(a_corpus_of_another_tokenizer_is_refused),
        TEST(output_that_cannot_be_written_is_an_error),
        TEST(schedules_take_costs_by_stage),
        TEST(a_dump_folder_that_cannot_be_is_one_message),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
