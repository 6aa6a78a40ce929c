// `ctitan checkpoint` as a user runs it: weights in, listed, verified and out again; damage and wrong calls, and their exit statuses.
#include "support.h"

#include <sys/wait.h>

#define FIXTURES CT_SOURCE_DIR "/tests/checkpoint/fixtures/"

typedef struct {
    ct_string out;
    char *folder;
} scene;

static int open_scene(void **state) {
    scene *s = calloc(1, sizeof *s);
    void *folder;
    *state = s;
    if (make_folder(&folder)) return 1;
    s->folder = folder;
    return 0;
}

static int close_scene(void **state) {
    scene *s = *state;
    void *folder = s->folder;
    ct_string_deinit(&s->out);
    free(s);
    return remove_folder(&folder);
}

// Runs `ctitan checkpoint ARGUMENTS` in the scene's folder; s->out is what it printed, both streams together.
static int run(scene *s, const char *arguments) {
    const char *binary = getenv("CT_BINARY");
    assert_non_null(binary);
    char *line = ct_format("cd '%s' && '%s' checkpoint %s 2>&1", s->folder, binary, arguments), chunk[4096];
    FILE *pipe = popen(line, "r");
    assert_non_null(pipe);
    s->out.length = 0;
    ct_string_add_bytes(&s->out, "", 0);
    for (size_t n; (n = fread(chunk, 1, sizeof chunk, pipe));) ct_string_add_bytes(&s->out, chunk, n);
    int status = pclose(pipe);
    free(line);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void expect(scene *s, int status, const char *arguments, const char *word) {
    int got = run(s, arguments);
    if (got != status || !strstr(s->out.text, word))
        fail_msg("checkpoint %s: status %d, wanted %d with '%s':\n%s", arguments, got, status, word, s->out.text);
}

static int has_file(scene *s, const char *name) {
    char *path = ct_format("%s/%s", s->folder, name);
    int has = ct_path_exists(path);
    free(path);
    return has;
}

static void weights_come_in_and_go_out(void **state) {
    scene *s = *state;
    expect(s, 0, "import " FIXTURES "hf in", "in/step-0: 2 layers, dim 32, 4 heads (2 for keys and values), FFN 48, vocabulary 40");
    char *path = ct_format("%s/in/model.toml", s->folder), *toml = read_all(path, NULL);
    assert_non_null(strstr(toml, "[model.args]\ndim = 32\n"));
    free(path), free(toml);
    expect(s, 0, "list in", "whole");
    expect(s, 0, "list in --json", "[{\"step\":0,\"path\":\"in/step-0\",\"bytes\":");
    expect(s, 0, "verify in", "in/step-0: sound");
    expect(s, 0, "verify in/step-0 --json", "{\"path\":\"in/step-0\",\"sound\":true,\"why\":null}");
    expect(s, 0, "export in out --dtype bf16", "out: 2 layers");
    assert_true(has_file(s, "out/config.json") && has_file(s, "out/model.safetensors"));
    expect(s, 0, "import out/model.safetensors again --heads 4 --dtype f32 --json", "{\"path\":\"again/step-0\",\"model\":{\"dim\": 32,");
    expect(s, 0, "export again/step-0 out2 --dtype bf16 --progress", "export: 0.0 of 0.0 MB");
    expect(s, 1, "export in out", "out is not empty");
    char *line = ct_format("cd '%s' && cmp out/model.safetensors out2/model.safetensors", s->folder);
    assert_int_equal(system(line), 0);
    free(line);
}

static void damage_is_named_with_status_1(void **state) {
    scene *s = *state;
    expect(s, 0, "import " FIXTURES "hf_tied in", "tied head");
    char *path = ct_format("%s/in/step-0/shard-0.safetensors", s->folder);
    FILE *file = fopen(path, "r+b");
    fseek(file, -3, SEEK_END);
    fputc(0x55, file);
    fclose(file);
    expect(s, 1, "verify in/step-0", "ctitan checkpoint: in/step-0/shard-0.safetensors: tensor norm.weight is damaged");
    expect(s, 1, "verify in --json", "{\"path\":\"in\",\"sound\":false,\"why\":\"1 of 1 checkpoints in in are damaged\"}");
    expect(s, 1, "export in out", "norm.weight is damaged");
    assert_false(has_file(s, "out"));
    assert_int_equal(truncate(path, 50), 0);
    expect(s, 0, "list in", "not whole: in/step-0/shard-0.safetensors has 50 bytes, the manifest says");
    expect(s, 0, "list in --json", "\"whole\":false,\"why\":\"in/step-0/shard-0.safetensors has 50 bytes");
    expect(s, 1, "export in out", "no whole checkpoint");
    free(path);
}

static void wrong_calls_are_explained(void **state) {
    scene *s = *state;
    expect(s, 0, "--help", "usage: ctitan checkpoint list");
    expect(s, 0, "list --help", "usage: ctitan checkpoint list");
    expect(s, 2, "", "usage: ctitan checkpoint list");
    expect(s, 2, "frob", "no `ctitan checkpoint frob`");
    expect(s, 2, "list . --frob", "no option --frob");
    expect(s, 2, "export a b --step x", "--step x: wanted is a whole number");
    expect(s, 2, "list", "needs one folder");
    expect(s, 1, "list nowhere", "no folder nowhere");
    expect(s, 1, "verify .", "no checkpoint");
    expect(s, 0, "list .", "no checkpoint");
    expect(s, 0, "list . --json", "[]");
    expect(s, 1, "import nowhere out", "nowhere is not there");
    expect(s, 1, "import " FIXTURES "hf out --dtype f16", "--dtype f16: f32 or bf16");
    expect(s, 1, "import " FIXTURES "hf out --heads 8", "heads is 4; this run's config says 8");
    expect(s, 1, "export . out --step 3", "no checkpoint of step 3");
    assert_false(has_file(s, "out"));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, open_scene, close_scene)
int main(void) {
    const struct CMUnitTest tests[] = {TEST(weights_come_in_and_go_out), TEST(damage_is_named_with_status_1), TEST(wrong_calls_are_explained)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
