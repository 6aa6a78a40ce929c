// What a wrong config is told, word by word: types, ranges, unknown keys, the command line, and what `train` would
// refuse.
#include "config/config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static ct_status read_text(ct_arena *arena, const char *text, int argc, char **argv, ct_config **out) {
    return ct_config_parse(arena, text ? "t.toml" : NULL, text, text ? strlen(text) : 0, argc, argv, out);
}

static void assert_refused(const char *text, const char *message) {
    ct_arena arena = {0};
    ct_config *config;
    ct_status error = read_text(&arena, text, 0, NULL, &config);
    assert_non_null(error);
    assert_string_equal(ct_error_text(error), message);
    assert_int_equal(ct_error_code(error), CT_INVALID);
    ct_arena_deinit(&arena);
}

// The same for arguments, parted by blanks ('~' stands for one within an argument).
static void assert_arguments_refused(const char *arguments, const char *message) {
    ct_arena arena = {0};
    ct_config *config;
    char *argv[8], *save, *text = ct_arena_strdup(&arena, arguments);
    int argc = 0;
    for (char *arg = strtok_r(text, " ", &save); arg; arg = strtok_r(NULL, " ", &save)) {
        for (char *c = arg; *c; c++)
            if (*c == '~') *c = ' ';
        argv[argc++] = arg;
    }
    ct_status error = read_text(&arena, NULL, argc, argv, &config);
    assert_non_null(error);
    assert_string_equal(ct_error_text(error), message);
    ct_arena_deinit(&arena);
}

static void wrong_types_and_ranges_say_what_is_wanted(void **state) {
    (void)state;
    static const char *const cases[][2] = {
        {"[training]\nseq_len = \"abc\"", "t.toml:2:11: training.seq_len = \"abc\": an integer ≥ 1 is wanted"},
        {"[training]\nseq_len = 0", "t.toml:2:11: training.seq_len = 0: an integer ≥ 1 is wanted"},
        {"[training]\nseq_len = 2.0", "t.toml:2:11: training.seq_len = 2.0: an integer ≥ 1 is wanted"},
        {"[training]\nseq_len = [1]", "t.toml:2:11: training.seq_len = an array: an integer ≥ 1 is wanted"},
        {"[training]\nseq_len = {a = 1}", "t.toml:2:11: training.seq_len = a table: an integer ≥ 1 is wanted"},
        {"[training.seq_len]", "t.toml:1:11: training.seq_len = a table: an integer ≥ 1 is wanted"},
        {"[training]\nseq_len = 1979-05-27", "t.toml:2:11: training.seq_len = 1979-05-27: an integer ≥ 1 is wanted"},
        {"[training]\nseq_len = true", "t.toml:2:11: training.seq_len = true: an integer ≥ 1 is wanted"},
        {"[training]\nglobal_batch_size = 0",
         "t.toml:2:21: training.global_batch_size = 0: an integer ≥ 1 or -1 is wanted"},
        {"[checkpoint]\nkeep_latest_k = 1",
         "t.toml:2:17: checkpoint.keep_latest_k = 1: an integer ≥ 0 but not 1 is wanted"},
        {"[checkpoint]\nload_step = -2", "t.toml:2:13: checkpoint.load_step = -2: an integer ≥ -1 is wanted"},
        {"[optimizer]\nlr = nan", "t.toml:2:6: optimizer.lr = nan: a number ≥ 0 is wanted"},
        {"[optimizer]\nlr = inf", "t.toml:2:6: optimizer.lr = inf: a number ≥ 0 is wanted"},
        {"[optimizer]\nlr = -1e-3", "t.toml:2:6: optimizer.lr = -0.001: a number ≥ 0 is wanted"},
        {"[optimizer]\nbeta1 = 1.0", "t.toml:2:9: optimizer.beta1 = 1.0: a number ≥ 0 and < 1 is wanted"},
        {"[lr_scheduler]\ndecay_ratio = 1.5",
         "t.toml:2:15: lr_scheduler.decay_ratio = 1.5: a number from 0 to 1 is wanted"},
        {"[training]\nmax_norm = 0", "t.toml:2:12: training.max_norm = 0: a number > 0 is wanted"},
        {"[compile]\nenable = 1", "t.toml:2:10: compile.enable = 1: true or false is wanted"},
        {"[job]\ndump_folder = 3", "t.toml:2:15: job.dump_folder = 3: a string is wanted"},
        {"[job]\ndump_folder = \"a\\u0000b\"", "t.toml:2:15: job.dump_folder = \"a\\u0000b\": a string is wanted"},
        {"[lr_scheduler]\ndecay_type = \"cubic\"",
         "t.toml:2:14: lr_scheduler.decay_type = \"cubic\": \"linear\", \"sqrt\" or \"cosine\" is wanted"},
        {"[training]\nmixed_precision_reduce = \"bfloat16\"",
         "t.toml:2:26: training.mixed_precision_reduce = \"bfloat16\": \"float32\" is wanted"},
        {"[model]\nconverters = \"float8\"",
         "t.toml:2:14: model.converters = \"float8\": an array of strings is wanted"},
        {"[model]\nconverters = [\"a\", 3]", "t.toml:2:20: model.converters[1] = 3: a string is wanted"},
        {"[parallelism]\nmodule_fqns_per_model_part = [\"a\"]",
         "t.toml:2:31: parallelism.module_fqns_per_model_part = \"a\": an array of arrays of strings is wanted"},
        {"[activation_checkpoint]\nselective_ac_option = \"0\"",
         "t.toml:2:23: activation_checkpoint.selective_ac_option = \"0\": \"op\" or an integer ≥ 1 as a string is "
         "wanted"},
        {"training = 3", "t.toml:1:1: training is a section: its keys are wanted below [training], found an integer"},
        {"[quantize]\nlinear = 3",
         "t.toml:2:1: quantize.linear is a section: its keys are wanted below [quantize.linear], found an integer"},
        {"[job]\ndump_folder = "
         "\"0123456789012345678901234567890123456789012345678901234567890123456789\"\n[training]\nseq_len = "
         "\"01234567890123456789012345678901234567890123456789012345678é0123456789\"",
         "t.toml:4:11: training.seq_len = \"01234567890123456789012345678901234567890123456789012345678\"...: an "
         "integer ≥ 1 is "
         "wanted"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) assert_refused(cases[i][0], cases[i][1]);
}

static void wrong_groups_say_what_they_lack(void **state) {
    (void)state;
    static const char *const cases[][2] = {
        {"[[training.sources]]\nweight = 1", "t.toml:1:12: [[training.sources]] lacks path"},
        {"[[training.sources]]\npath = 'a'\nwight = 1",
         "t.toml:3:1: [[training.sources]] has no key wight; it has path, format, weight, reader"},
        {"[[training.sources]]\npath = 'a'\nweight = 0",
         "t.toml:3:10: training.sources.weight = 0: a number > 0 is wanted"},
        {"[training.sources]\npath = 'a'",
         "t.toml:1:11: training.sources = a table: tables under [[training.sources]] is wanted"},
        {"[training]\nsources = [1]",
         "t.toml:2:12: training.sources = 1: tables under [[training.sources]] is wanted"},
        {"[[optimizer.param_groups]]\nlr_scale = 2", "t.toml:1:13: [[optimizer.param_groups]] lacks pattern"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) assert_refused(cases[i][0], cases[i][1]);
}

static void an_unknown_name_is_told_the_nearest(void **state) {
    (void)state;
    static const char *const cases[][2] = {
        {"[training]\nsequence_len = 1",
         "t.toml:2:1: there is no key training.sequence_len; is it training.seq_len?"},
        {"[training]\nseq_lne = 1", "t.toml:2:1: there is no key training.seq_lne; is it training.seq_len?"},
        {"[training]\nseed = 1", "t.toml:2:1: there is no key training.seed; is it debug.seed?"},
        {"[training]\nlr = 1", "t.toml:2:1: there is no key training.lr; is it optimizer.lr?"},
        {"[training]\nbatch_size = 1", "t.toml:2:1: there is no key training.batch_size; is it "
                                       "training.local_batch_size or training.global_batch_size?"},
        {"[training]\ntensor_parallel_degree = 2",
         "t.toml:2:1: there is no key training.tensor_parallel_degree; is it parallelism.tensor_parallel_degree?"},
        {"[training]\nxyzzy = 1", "t.toml:2:1: there is no key training.xyzzy; `ctitan config` lists all"},
        {"[trainin]\nx = 1", "t.toml:1:2: there is no section [trainin]; is it [training]?"},
        {"[optimiser]", "t.toml:1:2: there is no section [optimiser]; is it [optimizer]?"},
        {"[profiler]", "t.toml:1:2: there is no section [profiler]; is it [profiling]?"},
        {"[plugin]", "t.toml:1:2: there is no section [plugin]; is it [plugins]?"},
        {"[quantize.linear.float9]",
         "t.toml:1:18: there is no section [quantize.linear.float9]; is it [quantize.linear.float8]?"},
        {"[model.arg]", "t.toml:1:8: there is no section [model.arg]; is it [model.args]?"},
        {"seq_len = 3", "t.toml:1:1: the key seq_len stands before any [section]"},
        {"[job]\n\"a\\nb\" = 3", "t.toml:2:1: there is no key job.a?b; `ctitan config` lists all"},
        {"[\"job\\u0000\"]", "t.toml:1:2: there is no section [job?]; is it [job]?"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) assert_refused(cases[i][0], cases[i][1]);
}

static void the_command_line_is_told_as_much(void **state) {
    (void)state;
    static const char *const cases[][2] = {
        {"--training.seq_len abc", "command line: training.seq_len = \"abc\": an integer ≥ 1 is wanted"},
        {"--training.seq_len=", "command line: training.seq_len = \"\": an integer ≥ 1 is wanted"},
        {"--training.seq_len=1e3", "command line: training.seq_len = \"1e3\": an integer ≥ 1 is wanted"},
        {"--training.seq_len=0", "command line: training.seq_len = 0: an integer ≥ 1 is wanted"},
        {"--training.seq_len=none", "command line: training.seq_len = \"none\": an integer ≥ 1 is wanted"},
        {"--training.seq_len=99999999999999999999",
         "command line: training.seq_len = \"99999999999999999999\": an integer ≥ 1 is wanted"},
        {"--optimizer.lr fast", "command line: optimizer.lr = \"fast\": a number ≥ 0 is wanted"},
        {"--optimizer.lr nan", "command line: optimizer.lr = nan: a number ≥ 0 is wanted"},
        {"--training.seq_len", "command line: --training.seq_len has no value: an integer ≥ 1 is wanted"},
        {"--training.seq_len --compile.enable",
         "command line: --training.seq_len has no value: an integer ≥ 1 is wanted"},
        {"--compile.enable=yes", "command line: compile.enable = \"yes\": true or false is wanted"},
        {"--compile.no_enable=true", "command line: --compile.no_enable takes no value"},
        {"--compile.enable yes", "command line: found 'yes' where --section.key is wanted"},
        {"--training.no_seq_len", "command line: there is no key training.no_seq_len; is it training.seq_len?"},
        {"--training.sequence_len 3", "command line: there is no key training.sequence_len; is it training.seq_len?"},
        {"--trainin.seq_len 3", "command line: there is no section [trainin]; is it [training]?"},
        {"--model.arg.dim 3", "command line: there is no section [model.arg]; is it [model.args]?"},
        {"--.x 3", "command line: there is no section []; `ctitan config` lists all"},
        {"--x", "command line: found '--x' where --section.key is wanted"},
        {"x", "command line: found 'x' where --section.key is wanted"},
        {"--model.converters=[\"a\"", "command line:1:1: the array that begins here has no ']'"},
        {"--training.sources=a.txt",
         "command line: training.sources = \"a.txt\": tables under [[training.sources]] is wanted"},
        {"--job.dump_folder=\xff", "command line: job.dump_folder is no UTF-8 text"},
        {"--lr_scheduler.decay_type=cubic",
         "command line: lr_scheduler.decay_type = \"cubic\": \"linear\", \"sqrt\" or \"cosine\" is wanted"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) assert_arguments_refused(cases[i][0], cases[i][1]);
}

static void a_file_that_is_not_there_is_named(void **state) {
    (void)state;
    ct_arena arena = {0};
    ct_config *config;
    ct_status error = ct_config_load(&arena, "/no/such/file.toml", 0, NULL, &config);
    assert_int_equal(ct_error_code(error), CT_NOT_FOUND);
    assert_string_equal(ct_error_text(error), "cannot open /no/such/file.toml: No such file or directory");
    assert_int_equal(ct_error_code(ct_config_load(&arena, "/tmp", 0, NULL, &config)), CT_INVALID);
    ct_arena_deinit(&arena);
}

// ---- what train says ----
static void keep_line(void *lines, const char *line) { ct_string_add(lines, "%s\n", line); }

static void assert_train_says(const char *text, const char *wanted_notes, ct_code wanted_code,
                              const char *wanted_error) {
    ct_arena arena = {0};
    ct_string notes = {0};
    ct_config *config;
    assert_null(read_text(&arena, text, 0, NULL, &config));
    ct_status error = ct_config_check_train(config, keep_line, &notes);
    assert_string_equal(notes.text ? notes.text : "", wanted_notes);
    assert_string_equal(error ? ct_error_text(error) : "", wanted_error);
    if (error) assert_int_equal(ct_error_code(error), wanted_code);
    ct_string_deinit(&notes);
    ct_arena_deinit(&arena);
}

static void train_names_what_has_no_use_here(void **state) {
    (void)state;
    assert_train_says("", "", 0, "");
    assert_train_says("[compile]\nenable = false\nbackend = \"eager\"\n[training]\ngc_freq = 50", "", 0, "");
    assert_train_says(
        "[training]\nenable_cpu_offload = true\n[compile]\nenable = true\n",
        "t.toml:2:22: training.enable_cpu_offload = true has no effect here: everything is in the CPU's memory "
        "already\n"
        "t.toml:4:10: compile.enable = true has no effect here: a step is always planned ahead as a whole\n",
        0, "");
    assert_train_says(
        "[training.dataloader]\nprefetch_factor = 2\n",
        "t.toml:2:19: training.dataloader.prefetch_factor = 2 has no effect here: text is always encoded ahead, by a "
        "thread of its own\n",
        0, "");
}

static void train_refuses_what_is_not_built(void **state) {
    (void)state;
    static const char *const cases[][2] = {
        {"[parallelism]\nexpert_parallel_degree = 2",
         "t.toml:2:26: parallelism.expert_parallel_degree = 2 is not built yet (built: 1)"},
        {"[parallelism]\nexpert_parallel_degree = 4\npipeline_parallel_degree = 2",
         "t.toml:2:26: parallelism.expert_parallel_degree = 4 is not built yet (built: 1)"},
        {"[model]\nconverters = [\"float8\"]",
         "t.toml:2:14: model.converters = [\"float8\"] is not built yet (built: [])"},
        {"[optimizer]\nname = \"DistMuon\"",
         "t.toml:2:8: optimizer.name = \"DistMuon\" is not built yet (built: AdamW Adam)"},
        {"[optimizer]\nearly_step_in_backward = true",
         "t.toml:2:26: optimizer.early_step_in_backward = true is not built yet (built: false)"},
        {"[fault_tolerance]\nenable = true",
         "t.toml:2:10: fault_tolerance.enable = true is not built yet (built: false)"},
        {"[activation_checkpoint]\nmode = \"memory_budget\"",
         "t.toml:2:8: activation_checkpoint.mode = \"memory_budget\" is not built yet (built: selective full none)"},
        {"[training]\ndtype = \"bfloat16\"",
         "t.toml:2:9: training.dtype = \"bfloat16\" is not built yet (built: float32)"},
        {"[experimental]\ncustom_import = \"a.b\"",
         "t.toml:2:17: experimental.custom_import = \"a.b\" is not built yet"},
        {"[training]\ndataset = \"c4\"",
         "t.toml:2:11: training.dataset = \"c4\" is not built yet (built: c4_test c4_validation text jsonl corpus)"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_train_says(cases[i][0], "", CT_UNSUPPORTED, cases[i][1]);
    // What is built, and what isn't read.
    assert_train_says("[training]\ndataset = \"c4\"\nsources = [{path = \"x\"}]", "", 0, "");
    assert_train_says("[validation]\ndataset = \"c4\"", "", 0, "");
    assert_train_says("[training]\nmixed_precision_param = \"float32\"\n[optimizer]\nname = \"Adam\"", "", 0, "");
    assert_train_says("[activation_checkpoint]\nselective_ac_option = \"op\"", "", 0, "");
    assert_train_says(
        "[parallelism]\npipeline_parallel_schedule = \"DualPipeV\"\nenable_sequence_parallel = true", "", 0, "");
    assert_train_says("[quantize.linear.float8]\nfilter_fqns = [\"output\"]\nemulate = true", "", 0, "");
}

static void train_refuses_what_contradicts_itself(void **state) {
    (void)state;
    static const char *const cases[][2] = {
        {"[training]\ndataset_path = 'a'\nsources = [{path = 'b'}]",
         "t.toml:2:16: training.dataset_path is not read beside [[training.sources]] (t.toml:3:11): give one of "
         "them"},
        {"[training]\ndataset = 'text'", "t.toml:2:11: training.dataset wants a training.dataset_path"},
        {"[validation]\nenable = true\ndataset = 'corpus'",
         "t.toml:3:11: validation.dataset wants a validation.dataset_path"},
        {"[training]\nlocal_batch_size = 4\nglobal_batch_size = 6",
         "t.toml:3:21: training.global_batch_size = 6 is no multiple of local_batch_size 4 times 1 data-parallel "
         "ranks"},
        {"[checkpoint]\ninitial_load_in_hf = true",
         "t.toml:2:22: checkpoint.initial_load_in_hf wants a checkpoint.initial_load_path"},
        {"[checkpoint]\ninitial_load_in_hf = true\ninitial_load_path = 'x'\ninitial_load_model_only = false",
         "t.toml:2:22: checkpoint.initial_load_in_hf wants initial_load_model_only: a Hugging Face folder holds "
         "nothing else"},
        {"[checkpoint]\nlast_save_in_hf = true\nlast_save_model_only = false",
         "t.toml:2:19: checkpoint.last_save_in_hf wants last_save_model_only: a Hugging Face folder holds nothing "
         "else"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_train_says(cases[i][0], "", CT_INVALID, cases[i][1]);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(wrong_types_and_ranges_say_what_is_wanted),
        cmocka_unit_test(wrong_groups_say_what_they_lack),
        cmocka_unit_test(an_unknown_name_is_told_the_nearest),
        cmocka_unit_test(the_command_line_is_told_as_much),
        cmocka_unit_test(a_file_that_is_not_there_is_named),
        cmocka_unit_test(train_names_what_has_no_use_here),
        cmocka_unit_test(train_refuses_what_is_not_built),
        cmocka_unit_test(train_refuses_what_contradicts_itself),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
