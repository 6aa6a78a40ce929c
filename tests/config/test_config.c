// A config: torchtitan's keys and defaults, precedence, forms of the command line, places, round trips, hashes.
#include "config/config.h"
#include "keys.h"

#include "base/file.h"

#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static int set_up(void **state) { return *state = ct_calloc(1, sizeof(ct_arena)), 0; }
static int tear_down(void **state) { return ct_arena_deinit(*state), free(*state), 0; }

// A config from a file's text (NULL: no file) and arguments.
#define READ(...) read_config(*state, (const char *[]){__VA_ARGS__, NULL})
static ct_config *read_config(ct_arena *arena, const char *const *text_and_arguments) {
    const char *text = text_and_arguments[0];
    char **argv = (char **)&text_and_arguments[1];
    int argc = 0;
    while (argv[argc]) argc++;
    ct_config *config = NULL;
    ct_status status =
        ct_config_parse(arena, text ? "t.toml" : NULL, text, text ? strlen(text) : 0, argc, argv, &config);
    if (status) print_error("%s\n", ct_error_text(status));
    assert_null(status);
    return config;
}

static const char *path_of_data(ct_arena *arena, const char *name) {
    const char *folder = getenv("CT_TESTDATA");
    return ct_arena_format(arena, "%s/torchtitan/%s", folder ? folder : CT_SOURCE_DIR "/../shared/data", name);
}

// ---- the table against torchtitan's own definitions ----
static bool type_agrees(const config_key *key, const char *type) {
    bool optional = strstr(type, "| None") != NULL;
    if (!strncmp(type, "bool", 4)) return key->type == KEY_BOOL;
    if (!strncmp(type, "int", 3)) return key->type == KEY_INT && key->optional == optional;
    if (!strncmp(type, "float", 5)) return key->type == KEY_FLOAT && key->optional == optional;
    if (!strncmp(type, "list[str] | str", 15)) return key->type == KEY_STRINGS && key->or_string;
    if (!strncmp(type, "list[str]", 9)) return key->type == KEY_STRINGS;
    if (!strncmp(type, "list[list[str]]", 15)) return key->type == KEY_STRING_LISTS;
    return key->type == KEY_STRING || key->type == KEY_ENUM;
}

// Literal['a', 'b']: our values are those, no more and no fewer.
static bool choices_agree(const config_key *key, const char *type) {
    if (strncmp(type, "Literal[", 8) != 0) return true;
    if (key->type == KEY_STRING) return !strcmp(type, "Literal['mxfp8']"); // room for other MX formats
    int listed = 1, ours = 0;
    for (const char *c = type; *c; c++) listed += *c == ',';
    for (const config_choice *c = key->choices; c->name; c++, ours++) {
        char quoted[64];
        snprintf(quoted, sizeof quoted, "'%s'", c->name);
        if (!strstr(type, quoted)) return false;
    }
    return listed == ours;
}

static bool default_agrees(const config_key *key, const char *wanted) {
    ct_string found = {0};
    bool set = config_add_default(key, &found), same;
    if (!strcmp(wanted, "unset"))
        same = !set || key->type == KEY_STRING_LISTS;
    else if (!strncmp(wanted, "float ", 6))
        same = set && strtod(found.text, NULL) == strtod(wanted + 6, NULL);
    else
        same = set && !strcmp(found.text, wanted);
    ct_string_deinit(&found);
    return same;
}

static void every_key_of_torchtitan_is_there_with_its_type_and_default(void **state) {
    (void)state;
    char *text, *save;
    size_t bytes;
    int keys = 0, wrong = 0;
    assert_null(ct_file_read(CT_SOURCE_DIR "/tests/config/fixtures/titan_defaults.txt", 0, &text, &bytes));
    for (char *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save), keys++) {
        char *type = strchr(line, '\t'), *value = strchr(type + 1, '\t'), *dot;
        *type++ = 0, *value++ = 0, dot = strrchr(line, '.');
        int index = config_key_find(line, (size_t)(dot - line), dot + 1, strlen(dot + 1));
        const config_key *key = index < 0 ? NULL : config_key_at(index);
        if (key && type_agrees(key, type) && choices_agree(key, type) && default_agrees(key, value)) continue;
        printf("%s %s %s: ours differs\n", line, type, value);
        wrong++;
    }
    free(text);
    assert_int_equal(keys, 149);
    assert_int_equal(wrong, 0);
}

static void every_key_beyond_torchtitans_is_marked(void **state) {
    (void)state;
    int extensions = 0, of_main = 0;
    for (int i = 0; i < config_key_count(); i++) {
        extensions += config_key_at(i)->source == FROM_US;
        of_main += config_key_at(i)->source == FROM_TITAN_MAIN;
    }
    assert_int_equal(of_main, 1);
    assert_int_equal(config_key_count() - extensions - of_main, 149);
}

static void the_table_is_in_order(void **state) {
    (void)state;
    for (int i = 0; i < config_key_count(); i++) {
        const config_key *key = config_key_at(i);
        assert_int_equal(config_key_find(key->section, strlen(key->section), key->name, strlen(key->name)), i);
        assert_true(config_is_section(key->section, strlen(key->section)));
        assert_true(key->help && key->help[strlen(key->help) - 1] == '.');
        assert_true(key->use == USE_RUN || key->why);
        if (key->use == USE_GATED) assert_string_not_equal(ct_config_origin_text(READ(NULL), key->why), "");
    }
}

// ---- precedence and forms ----
static void the_command_line_goes_before_the_file_and_that_before_the_default(void **state) {
    ct_config *c = READ("[training]\nseq_len = 64\nsteps = 7\n", "--training.steps", "9");
    assert_int_equal(c->training.seq_len, 64);
    assert_int_equal(c->training.steps, 9);
    assert_int_equal(c->training.local_batch_size, 8);
    assert_string_equal(ct_config_origin_text(c, "training.seq_len"), "t.toml:2:11");
    assert_string_equal(ct_config_origin_text(c, "training.steps"), "--training.steps");
    assert_string_equal(ct_config_origin_text(c, "training.local_batch_size"), "default");
    assert_string_equal(ct_config_origin_text(c, "training.no_such"), "");
    assert_string_equal(ct_config_origin_text(c, "nothing"), "");
    assert_int_equal(READ(NULL, "--training.steps=1", "--training.steps=2")->training.steps, 2);
}

static void booleans_have_four_forms(void **state) {
    assert_true(READ(NULL, "--compile.enable")->compile.enable);
    assert_true(READ(NULL, "--compile.enable", "true")->compile.enable);
    assert_true(READ(NULL, "--compile.enable=true")->compile.enable);
    assert_false(READ("[compile]\nenable = true", "--compile.enable", "false")->compile.enable);
    assert_false(READ("[compile]\nenable = true", "--compile.no_enable")->compile.enable);
    assert_false(READ("[compile]\nenable = true", "--compile.no-enable")->compile.enable);
    ct_config *c = READ(NULL, "--compile.enable", "--model.args.no_depth_init", "--training.steps", "3");
    assert_true(c->compile.enable && c->model.args.depth_init.has && !c->model.args.depth_init.value);
    assert_int_equal(c->training.steps, 3);
    assert_string_equal(ct_config_origin_text(c, "model.args.depth_init"), "--model.args.no_depth_init");
}

static void hyphens_count_as_underscores_in_keys_only(void **state) {
    ct_config *c = READ(NULL, "--training.seq-len", "16", "--job.dump-folder=a-b");
    assert_int_equal(c->training.seq_len, 16);
    assert_string_equal(c->job.dump_folder, "a-b");
}

static void numbers_are_read_as_toml_or_c_writes_them(void **state) {
    ct_config *c = READ(NULL, "--training.seq_len", "0x1_0", "--optimizer.lr", ".5", "--training.max_norm", "inf",
                        "--training.global_batch_size", "-1", "--optimizer.weight_decay=0");
    assert_int_equal(c->training.seq_len, 16);
    assert_true(c->optimizer.lr == 0.5 && isinf(c->training.max_norm) && c->optimizer.weight_decay == 0);
    assert_int_equal(c->training.global_batch_size, -1);
    assert_true(READ("[optimizer]\nlr = 1")->optimizer.lr == 1.0);
}

static void lists_are_arrays_in_toml_and_comma_separated_on_the_command_line(void **state) {
    ct_config *c = READ("[model]\nconverters = ['a', 'b']\n[quantize.grouped_mm.mx]\nfqns = 'experts'", //
                        "--checkpoint.exclude_from_loading", "optimizer,dataloader");
    assert_int_equal(c->model.converters.count, 2);
    assert_string_equal(c->model.converters.items[1], "b");
    assert_int_equal(c->quantize.grouped_mm.mx.fqns.count, 1);
    assert_int_equal(c->checkpoint.exclude_from_loading.count, 2);
    assert_string_equal(c->checkpoint.exclude_from_loading.items[1], "dataloader");
    c = READ("[model]\nconverters = ['a']", "--model.converters=", "--quantize.linear.float8.filter_fqns", "['x,y']");
    assert_int_equal(c->model.converters.count, 0);
    assert_string_equal(c->quantize.linear.float8.filter_fqns.items[0], "x,y");
    c = READ("[parallelism]\nmodule_fqns_per_model_part = [['a', 'b'], [], ['c']]");
    assert_int_equal(c->parallelism.module_fqns_per_model_part.count, 3);
    assert_string_equal(c->parallelism.module_fqns_per_model_part.items[2].items[0], "c");
}

static void what_may_be_unset_is_unset_by_none(void **state) {
    ct_config *c =
        READ("[debug]\nseed = 4\n[training]\ndataset_path = 'x'\n[quantize.linear.float8]\nrecipe_name = 'rowwise'",
             "--debug.seed", "none", "--training.dataset_path=None", "--quantize.linear.float8.recipe_name=none");
    assert_false(c->debug.seed.has);
    assert_null(c->training.dataset_path);
    assert_int_equal(c->quantize.linear.float8.recipe_name, CT_CFG_RECIPE_UNSET);
}

static void model_args_are_unset_unless_given(void **state) {
    ct_config *c = READ("[model.args]\ndim = 64\nffn_dim_multiplier = 1.5\nattn_mask_type = 'block_causal'\n");
    assert_true(c->model.args.dim.has && c->model.args.dim.value == 64);
    assert_true(c->model.args.ffn_dim_multiplier.has && c->model.args.ffn_dim_multiplier.value == 1.5);
    assert_int_equal(c->model.args.attn_mask_type, CT_CFG_MASK_BLOCK_CAUSAL);
    assert_false(c->model.args.n_layers.has || c->model.args.depth_init.has || c->model.args.norm_eps.has);
    assert_int_equal(READ(NULL)->model.args.attn_mask_type, CT_CFG_MASK_UNSET);
}

static void groups_are_arrays_of_tables(void **state) {
    ct_config *c =
        READ("[[training.sources]]\npath = 'a'\n[[training.sources]]\npath = 'b'\nformat = 'jsonl'\nweight = 3\n"
             "[[optimizer.param_groups]]\npattern = 'norm'\nweight_decay = 0.0\n");
    assert_int_equal(c->training.source_count, 2);
    assert_string_equal(c->training.sources[0].path, "a");
    assert_int_equal(c->training.sources[0].format, CT_CFG_SOURCE_AUTO);
    assert_true(c->training.sources[0].weight == 1 && c->training.sources[1].weight == 3);
    assert_int_equal(c->training.sources[1].format, CT_CFG_SOURCE_JSONL);
    assert_int_equal(c->optimizer.param_group_count, 1);
    assert_true(c->optimizer.param_groups[0].lr_scale == 1 && c->optimizer.param_groups[0].weight_decay.has);
    assert_false(c->optimizer.param_groups[0].beta1.has);
    c = READ(NULL, "--training.sources", "[{path = 'x', weight = 0.5}]");
    assert_true(c->training.source_count == 1 && c->training.sources[0].weight == 0.5);
    assert_string_equal(ct_config_origin_text(c, "training.sources"), "--training.sources");
}

static void keys_follow_from_others(void **state) {
    assert_int_equal(READ(NULL)->activation_checkpoint.selective_every, 2);
    assert_int_equal(
        READ(NULL, "--activation_checkpoint.selective_ac_option", "op")->activation_checkpoint.selective_every, 0);
    ct_config *c = READ("[model]\ntokenizer_path = 'old'\n");
    assert_string_equal(c->model.hf_assets_path, "old");
    assert_string_equal(ct_config_origin_text(c, "model.hf_assets_path"), "t.toml:2:18");
    assert_string_equal(c->job.config_file, "t.toml");
    assert_int_equal(READ(NULL, "--parallelism.pipeline_parallel_schedule", "zbvzerobubble")
                         ->parallelism.pipeline_parallel_schedule,
                     CT_CFG_ZBV_ZERO_BUBBLE);
}

static void arguments_part_into_the_commands_own_and_overrides(void **state) {
    (void)state;
    char *argv[] = {"--json",  "--training.steps", "3",     "FILE", "--compile.enable", "--ranks", "4",
                    "--a.b=c", "--debug.poison",   "false", "-x",   "--model.x",        "--y"};
    char *wanted[] = {
        "--json",           "FILE",    "--ranks",        "4",     "-x",       "--y", "--training.steps", "3",
        "--compile.enable", "--a.b=c", "--debug.poison", "false", "--model.x"};
    int argc = sizeof argv / sizeof *argv;
    assert_int_equal(ct_config_args_split(argc, argv), 6);
    for (int i = 0; i < argc; i++) assert_string_equal(argv[i], wanted[i]);
    assert_int_equal(ct_config_args_split(0, argv), 0);
}

// ---- files ----
static void torchtitans_own_files_are_accepted(void **state) {
    static const char *const names[] = {"debug_model.toml", "llama3_8b.toml", "llama3_405b.toml"};
    ct_config *c[3];
    if (!ct_path_exists(path_of_data(*state, ""))) {
        print_message("skipped: no folder %s\n", path_of_data(*state, ""));
        skip();
    }
    for (int i = 0; i < 3; i++) {
        ct_status status = ct_config_load(*state, path_of_data(*state, names[i]), 0, NULL, &c[i]);
        if (status) print_error("%s\n", ct_error_text(status));
        assert_null(status);
    }
    assert_string_equal(c[0]->model.flavor, "debugmodel");
    assert_true(c[0]->lr_scheduler.decay_ratio.has && c[0]->lr_scheduler.decay_ratio.value == 0.8);
    assert_int_equal(c[0]->parallelism.pipeline_parallel_schedule, CT_CFG_INTERLEAVED_1F1B);
    assert_null(ct_config_check_train(c[0], NULL, NULL));
    assert_int_equal(c[1]->activation_checkpoint.selective_every, 0);
    assert_true(c[1]->optimizer.lr == 3e-4 && c[1]->training.dataset == CT_CFG_C4);
    assert_int_equal(c[2]->parallelism.tensor_parallel_degree, 8);
    assert_string_equal(c[2]->model.converters.items[0], "float8");
    assert_int_equal(ct_error_code(ct_config_check_train(c[2], NULL, NULL)), CT_UNSUPPORTED);
}

static void a_file_may_be_named_as_torchtitan_does(void **state) {
    char folder[] = "/tmp/ct_config_XXXXXX";
    assert_non_null(mkdtemp(folder));
    char *path = ct_arena_format(*state, "%s/a.toml", folder);
    assert_null(ct_file_write_atomic(path, "[training]\nsteps = 5\n", 21));
    char *argv[] = {"--training.seq_len", "32", ct_arena_format(*state, "--job.config_file=%s", path)};
    ct_config *c;
    assert_null(ct_config_load(*state, NULL, 3, argv, &c));
    assert_int_equal(c->training.steps, 5);
    assert_int_equal(c->training.seq_len, 32);
    assert_string_equal(c->path, path);
    assert_string_equal(
        ct_error_text(ct_config_load(*state, "b.toml", 3, argv, &c)),
        ct_arena_format(*state, "command line: two config files: b.toml and --job.config_file %s", path));
    assert_null(ct_folder_remove(folder));
}

// ---- round trips ----
// Text that gives key a value other than its default.
static void add_other_value(const config_key *key, ct_string *out) {
    switch (key->type) {
    case KEY_BOOL:
        ct_string_add(out, key->default_text && key->default_text[0] == 't' ? "false" : "true");
        return;
    case KEY_INT:
        ct_string_add(out, key->range && key->range->max < 1234567 ? "7" : "1234567");
        return;
    case KEY_FLOAT:
        ct_string_add(out, "0.3");
        return;
    case KEY_STRING:
        ct_string_add(out,
                      !strcmp(key->name, "selective_ac_option") ? "\"3\"" : "\"a \\\"q\\\" \\\\ \\n\\t\\u0001 é\"");
        return;
    case KEY_STRINGS:
        ct_string_add(out, "[\"x\", \"y,\\\"z\"]");
        return;
    case KEY_STRING_LISTS:
        ct_string_add(out, "[[\"x\"], [], [\"y\", \"z\"]]");
        return;
    case KEY_ENUM:
        break;
    case KEY_GROUPS:
        ct_string_add(out, strcmp(key->name, "sources")
                               ? "[{pattern = \"a|b\", eps = 1e-5}, {pattern = \"\"}]"
                               : "[{path = \"p\", weight = 0.1}, {path = \"q\", format = \"text\"}]");
        return;
    }
    const config_choice *last = key->choices;
    while (last[1].name) last++;
    bool by_default = key->default_text && strstr(key->default_text, last->name);
    ct_string_add(out, "\"%s\"", by_default ? key->choices->name : last->name);
}

// A file that sets every key to something else than its default.
static char *everything_changed(ct_arena *arena) {
    ct_string text = {0};
    for (int i = 0; i < config_key_count(); i++) {
        const config_key *key = config_key_at(i);
        if (i == 0 || strcmp(config_key_at(i - 1)->section, key->section) != 0)
            ct_string_add(&text, "[%s]\n", key->section);
        ct_string_add(&text, "%s = ", key->name);
        add_other_value(key, &text);
        ct_string_add(&text, "\n");
    }
    char *copy = ct_arena_strdup(arena, text.text);
    ct_string_deinit(&text);
    return copy;
}

static const char *resolved(ct_arena *arena, const ct_config *config) {
    ct_string text = {0};
    ct_config_print_resolved(config, &text);
    const char *copy = ct_arena_strdup(arena, text.text);
    ct_string_deinit(&text);
    return copy;
}

// Every value as JSON: equal texts are equal structs.
static const char *values_of(ct_arena *arena, const ct_config *config) {
    ct_string text = {0};
    for (int i = 0; i < config_key_count(); i++) {
        config_add_value(config_key_at(i), config, TEXT_JSON, &text);
        ct_string_add(&text, "\n");
    }
    const char *copy = ct_arena_strdup(arena, text.text);
    ct_string_deinit(&text);
    return copy;
}

static void a_resolved_config_reads_back_to_the_same(void **state) {
    const char *texts[] = {"", everything_changed(*state),
                           "[optimizer]\nlr = 0.1234567890123456789\n[training]\nmax_norm = inf"};
    for (int i = 0; i < 3; i++) {
        ct_config *first = READ(texts[i]), *second = READ(resolved(*state, first));
        assert_string_equal(values_of(*state, first), values_of(*state, second));
        assert_string_equal(resolved(*state, first), resolved(*state, second));
        assert_true(ct_config_hash(first) == ct_config_hash(second));
    }
}

static void every_key_can_be_set_from_the_file(void **state) {
    ct_config *fresh = READ(NULL), *changed = READ(everything_changed(*state));
    for (int i = 0; i < config_key_count(); i++) {
        const config_key *key = config_key_at(i);
        if (key->choices && !key->choices[1].name) continue; // one value only
        ct_string a = {0}, b = {0};
        config_add_value(key, fresh, TEXT_JSON, &a);
        config_add_value(key, changed, TEXT_JSON, &b);
        if (!strcmp(a.text, b.text)) print_error("%s.%s is %s in both\n", key->section, key->name, a.text);
        assert_string_not_equal(a.text, b.text);
        ct_string_deinit(&a);
        ct_string_deinit(&b);
    }
}

static void every_float_prints_so_that_it_reads_back(void **state) {
    (void)state;
    static const double numbers[] = {0.1, 1.0 / 3, 1e-8, 8e-4, 1, 1e300, 5e-324, DBL_MAX, 123456789, 1e22, 0.95, 100};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        ct_config *c = READ(NULL);
        c->optimizer.lr = numbers[i];
        assert_true(READ(resolved(*state, c))->optimizer.lr == numbers[i]);
    }
}

// ---- hash ----
static void the_hash_counts_what_can_change_numbers_only(void **state) {
    uint64_t plain = ct_config_hash(READ(NULL));
    assert_true(plain == ct_config_hash(READ("[training]\nseq_len = 2048\n")));
    assert_true(plain ==
                ct_config_hash(READ(NULL, "--job.dump_folder=x", "--metrics.log_freq=3", "--training.threads=2",
                                    "--activation_checkpoint.mode=none", "--validation.enable")));
    const char *const others[] = {"--training.seq_len=64",
                                  "--optimizer.lr=1e-3",
                                  "--debug.seed=0",
                                  "--model.args.dim=64",
                                  "--training.shuffle",
                                  "--training.sources=[{path='a'}]",
                                  "--training.dataset_path=x",
                                  "--training.mixed_precision_param=float32"};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        assert_true(plain != ct_config_hash(READ(NULL, others[i])));
}

// ---- reference ----
static int columns(const char *line, size_t bytes) {
    int n = 0;
    for (size_t i = 0; i < bytes; i++) n += ((unsigned char)line[i] & 0xc0) != 0x80;
    return n;
}

static void the_reference_fits_100_columns_and_names_every_key(void **state) {
    (void)state;
    ct_string text = {0};
    ct_config_print_keys(CT_CONFIG_TEXT, &text);
    for (const char *line = text.text; *line;) {
        size_t bytes = strcspn(line, "\n");
        if (columns(line, bytes) > 100) print_error("%.*s\n", (int)bytes, line);
        assert_true(columns(line, bytes) <= 100);
        line += bytes + 1;
    }
    for (int i = 0; i < config_key_count(); i++) {
        const config_key *key = config_key_at(i);
        char name[128];
        snprintf(name, sizeof name, "\n  %s ", key->name);
        assert_non_null(strstr(text.text, name));
    }
    ct_string_deinit(&text);
}

static void the_written_reference_is_up_to_date(void **state) {
    (void)state;
    char *written;
    size_t bytes;
    ct_string text = {0};
    ct_config_print_keys(CT_CONFIG_MARKDOWN, &text);
    assert_null(ct_file_read(CT_SOURCE_DIR "/docs/CONFIG.md", 0, &written, &bytes));
    if (strcmp(written, text.text))
        print_error("docs/CONFIG.md is not what the table says: run scripts/config-reference\n");
    assert_string_equal(written, text.text);
    free(written);
    ct_string_deinit(&text);
}

#define TEST(function) cmocka_unit_test_setup_teardown(function, set_up, tear_down)
int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(every_key_of_torchtitan_is_there_with_its_type_and_default),
        TEST(every_key_beyond_torchtitans_is_marked),
        TEST(the_table_is_in_order),
        TEST(the_command_line_goes_before_the_file_and_that_before_the_default),
        TEST(booleans_have_four_forms),
        TEST(hyphens_count_as_underscores_in_keys_only),
        TEST(numbers_are_read_as_toml_or_c_writes_them),
        TEST(lists_are_arrays_in_toml_and_comma_separated_on_the_command_line),
        TEST(what_may_be_unset_is_unset_by_none),
        TEST(model_args_are_unset_unless_given),
        TEST(groups_are_arrays_of_tables),
        TEST(keys_follow_from_others),
        TEST(arguments_part_into_the_commands_own_and_overrides),
        TEST(torchtitans_own_files_are_accepted),
        TEST(a_file_may_be_named_as_torchtitan_does),
        TEST(a_resolved_config_reads_back_to_the_same),
        TEST(every_key_can_be_set_from_the_file),
        TEST(every_float_prints_so_that_it_reads_back),
        TEST(the_hash_counts_what_can_change_numbers_only),
        TEST(the_reference_fits_100_columns_and_names_every_key),
        TEST(the_written_reference_is_up_to_date),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
