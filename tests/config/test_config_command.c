// `ctitan config` as a user runs it: what goes where, and the exit status.
#include "base/file.h"
#include "base/memory.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <cmocka.h>

// Runs `ctitan config ARGUMENTS` and returns the exit status; *out is what it printed, both streams together.
static int run(ct_string *out, const char *arguments) {
    const char *binary = getenv("CT_BINARY");
    assert_non_null(binary);
    char *line = ct_format("'%s' config %s 2>&1", binary, arguments), chunk[4096];
    FILE *pipe = popen(line, "r");
    assert_non_null(pipe);
    out->length = 0;
    ct_string_add_bytes(out, "", 0);
    for (size_t n; (n = fread(chunk, 1, sizeof chunk, pipe));) ct_string_add_bytes(out, chunk, n);
    int status = pclose(pipe);
    free(line);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static int set_up(void **state) { return *state = ct_calloc(1, sizeof(ct_string)), 0; }
static int tear_down(void **state) { return ct_string_deinit(*state), free(*state), 0; }

static char *write_file(char folder[], const char *text) {
    assert_non_null(mkdtemp(folder));
    char *path = ct_format("%s/t.toml", folder);
    assert_null(ct_file_write_atomic(path, text, strlen(text)));
    return path;
}

static void without_a_file_it_prints_the_reference(void **state) {
    ct_string *out = *state;
    assert_int_equal(run(out, ""), 0);
    assert_non_null(strstr(out->text, "\n  seq_len = 2048   integer ≥ 1, tokens\n      Length of a sequence.\n"));
    assert_non_null(strstr(out->text, "[extension]"));
    assert_int_equal(run(out, "--json"), 0);
    assert_non_null(strstr(
        out->text, "{\"section\": \"training\", \"key\": \"seq_len\", \"type\": \"integer\", \"default\": \"2048\", "
                   "\"range\": \"≥ 1\", \"unit\": \"tokens\", \"help\": \"Length of a sequence.\", "
                   "\"changes_numbers\": true, \"extension\": false}"));
}

static void with_a_file_it_says_where_each_value_came_from(void **state) {
    ct_string *out = *state;
    char folder[] = "/tmp/ct_config_XXXXXX",
         *path = write_file(folder, "[training]\nseq_len = 64\n[parallelism]\nexpert_parallel_degree = 2\n");
    char *arguments = ct_format("--training.steps 5 %s --compile.enable", path);
    assert_int_equal(run(out, arguments), 0);
    char *row = ct_format("  %-44s %-28s %s:2:11\n", "seq_len", "64", path);
    assert_non_null(strstr(out->text, row));
    free(row);
    assert_non_null(strstr(out->text, "5                            --training.steps\n"));
    assert_non_null(strstr(out->text, "--compile.enable: compile.enable = true has no effect here"));
    assert_non_null(strstr(out->text, ":4:26: parallelism.expert_parallel_degree = 2 is not built yet (built: 1)\n"));
    free(arguments);
    arguments = ct_format("%s --json", path);
    assert_int_equal(run(out, arguments), 0);
    row = ct_format("\"training.seq_len\": {\"value\": 64, \"from\": \"file\", \"where\": \"%s:2:11\"}", path);
    assert_non_null(strstr(out->text, row));
    assert_non_null(
        strstr(out->text, "\"training.steps\": {\"value\": 10000, \"from\": \"default\", \"where\": \"default\"}"));
    assert_non_null(strstr(out->text, "\"debug.seed\": {\"value\": null, "));
    free(row), free(arguments), free(path);
    assert_null(ct_folder_remove(folder));
}

static void the_resolved_config_prints_as_toml(void **state) {
    ct_string *out = *state;
    assert_int_equal(run(out, "--toml --training.seq_len=32 --debug.seed 7"), 0);
    assert_non_null(strstr(out->text, "[training]\ndataset = \"c4_test\"\n# dataset_path = (unset)\n"));
    assert_non_null(strstr(out->text, "\nseq_len = 32\n"));
    assert_non_null(strstr(out->text, "\nseed = 7\n"));
}

static void mistakes_are_one_line_and_a_status(void **state) {
    ct_string *out = *state;
    assert_int_equal(run(out, "/no/such.toml"), 1);
    assert_string_equal(out->text, "ctitan config: cannot open /no/such.toml: No such file or directory\n");
    assert_int_equal(run(out, "--training.seq_len x"), 1);
    assert_string_equal(out->text,
                        "ctitan config: command line: training.seq_len = \"x\": an integer ≥ 1 is wanted\n");
    assert_int_equal(run(out, "--what"), 2);
    assert_string_equal(out->text, "ctitan config: what is '--what'? See `ctitan config --help`\n");
    assert_int_equal(run(out, "--help"), 0);
    assert_int_equal(strncmp(out->text, "usage: ctitan config", 20), 0);
    assert_int_equal(run(out, "> /dev/full"), 1);
}

#define TEST(function) cmocka_unit_test_setup_teardown(function, set_up, tear_down)
int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(without_a_file_it_prints_the_reference),
        TEST(with_a_file_it_says_where_each_value_came_from),
        TEST(the_resolved_config_prints_as_toml),
        TEST(mistakes_are_one_line_and_a_status),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
