// What ctitan says for machines: plans, configs, graphs and metrics have the fields, types and sums that are documented, and read back.
#include "command.h"

#include <cjson/cJSON.h>
#include <math.h>

#define TITAN "tests/train/fixtures/titan/"

static cJSON *json_of(scene *s) {
    cJSON *json = cJSON_Parse(s->out);
    if (!json) fail_msg("not JSON: %s\n%s", s->out, s->err);
    return json;
}

static const cJSON *member(const cJSON *object, const char *name) {
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, name);
    if (!item) fail_msg("no member %s", name);
    return item;
}

static double number(const cJSON *object, const char *name) {
    const cJSON *item = member(object, name);
    if (!cJSON_IsNumber(item) || !(item->valuedouble >= 0)) fail_msg("%s is no number ≥ 0", name);
    return item->valuedouble;
}

// ---- plan ----
static void assert_plan_is_consistent(const cJSON *plan) {
    static const char *const kinds[] = {"parameters", "optimizer", "gradients", "activations", "weights_lowp", "communication", "other"};
    const cJSON *bytes = member(plan, "bytes");
    double sum = 0;
    for (int i = 0; i < 7; i++) sum += number(bytes, kinds[i]);
    assert_int_equal(cJSON_GetArraySize(bytes), 7);
    assert_true(sum == number(plan, "live_bytes"));
    assert_true(number(plan, "peak_bytes") >= sum);
    assert_true(number(plan, "flops_per_step") > 0 && number(plan, "flops_executed_per_step") > 0);
    const cJSON *stages = member(plan, "stages"), *stage = cJSON_GetArrayItem(stages, 0);
    assert_int_equal(cJSON_GetArraySize(stages), 1);
    double micro = number(stage, "forward_flops") + number(stage, "input_grad_flops") + number(stage, "weight_grad_flops");
    double ranks = number(plan, "ranks"), executed = number(plan, "flops_executed_per_step") / ranks;
    assert_true(number(plan, "micro_batches") * micro <= executed * (1 + 1e-9)); // the update's are few, but there
    assert_true(number(plan, "micro_batches") * micro >= 0.9 * executed);
    assert_true(number(stage, "stage") == 0 && number(stage, "layers") >= 1 && number(stage, "saved_bytes") >= 0);
    assert_true(cJSON_IsArray(member(plan, "collectives")) && (cJSON_GetArraySize(member(plan, "collectives")) == 0) == (ranks == 1));
    assert_true(cJSON_IsString(member(member(plan, "peak_at"), "op")));
}

static const char *const cases[] = {"base", "gqa", "accumulate", "rope", "long", "recompute_full", "recompute_layer", "validate", "bf16"};
enum { CASES = sizeof cases / sizeof *cases };

static void plans_are_consistent(void **state) {
    scene *s = *state;
    for (int i = 0; i < CASES; i++) {
        if (run(s, "plan " TITAN "%s/config.toml --json", cases[i])) fail_msg("%s", s->err);
        cJSON *plan = json_of(s);
        assert_plan_is_consistent(plan);
        cJSON_Delete(plan);
    }
}

// Parameters as torchtitan counts them (its models/llama3, and Meta's model cards).
static void every_flavour_has_its_parameters(void **state) {
    scene *s = *state;
    static const struct {
        const char *flavor;
        double parameters;
    } flavours[] = {{"debugmodel", 6163712},      {"1B", 1235814400},   {"3B", 3212749824},
                    {"8B", 8030261248},           {"70B", 70553706496}, {"405B", 405853388800},
                    {"debugmodel_flex_attn", 6163712}, {"8B_flex", 8030261248}, {"8B_varlen", 8030261248}};
    for (size_t i = 0; i < sizeof flavours / sizeof *flavours; i++) {
        char *toml = ct_format("[model]\nname = \"llama3\"\nflavor = \"%s\"\n", flavours[i].flavor);
        write_scene_file(s, "f.toml", toml, strlen(toml));
        free(toml);
        if (run(s, "plan ~/f.toml --json")) fail_msg("%s", s->err);
        cJSON *plan = json_of(s);
        assert_true(number(plan, "parameters") == flavours[i].parameters);
        assert_true(number(member(plan, "bytes"), "parameters") == 4 * flavours[i].parameters);
        assert_true(number(member(plan, "bytes"), "optimizer") == 8 * flavours[i].parameters);
        assert_plan_is_consistent(plan);
        cJSON_Delete(plan);
        printf("%-22s %.2f s, %.0f MB\n", flavours[i].flavor, s->seconds, (double)s->max_rss_kb / 1e3);
        assert_true(s->max_rss_kb < 500000);
        assert_true(s->seconds < 10); // about one; machines differ
    }
}

// 6 × multiplied parameters × tokens, and attention's causal half: 6 × layers × tokens × sequence × dim (forward 2 products, backward 4).
static void flops_follow_the_formula(void **state) {
    scene *s = *state;
    expect(s, 0, "flops_per_step", "plan --json " TITAN "base/config.toml");
    cJSON *plan = json_of(s);
    double dim = 48, layers = 2, vocabulary = 512, tokens = 4 * 64, seq_len = 64;
    double ffn = 128; // 2/3 × 4 × 48, up to a multiple of 16
    double matrices = layers * (4 * dim * dim + 3 * dim * ffn) + dim * vocabulary;
    double low = 6 * matrices * tokens, high = low + 12 * layers * dim * seq_len * tokens, got = number(plan, "flops_per_step");
    assert_true(got > low && got < high);
    assert_true(fabs((got - low) / (6 * layers * dim * seq_len * tokens) - 1) < 0.06); // T or T + 1 keys, halved
    cJSON_Delete(plan);
}

// ---- config ----
static void configs_read_back(void **state) {
    scene *s = *state;
    for (int i = 0; i < CASES; i++) {
        if (run(s, "config " TITAN "%s/config.toml --toml", cases[i])) fail_msg("%s", s->err);
        char *resolved = ct_strdup(s->out);
        write_scene_file(s, "again.toml", resolved, strlen(resolved));
        if (run(s, "config ~/again.toml --toml")) fail_msg("%s", s->err);
        const char *key = "dump_folder ="; // above it stands the file's name
        assert_string_equal(strstr(s->out, key), strstr(resolved, key));
        free(resolved);
        if (run(s, "config " TITAN "%s/config.toml --json", cases[i])) fail_msg("%s", s->err);
        cJSON *json = json_of(s);
        assert_true(cJSON_GetArraySize(json) > 0);
        cJSON_Delete(json);
    }
    expect(s, 0, "", "config --json");
    cJSON_Delete(json_of(s));
}

static void torchtitans_files_are_accepted_as_they_are(void **state) {
    scene *s = *state;
    const char *data = test_data();
    if (!data) skip();
    static const char *const names[] = {"debug_model", "llama3_8b", "llama3_405b"};
    for (int i = 0; i < 3; i++) {
        expect(s, 0, "", "config %s/torchtitan/%s.toml", data, names[i]);
        if (run(s, "plan %s/torchtitan/%s.toml --json", data, names[i])) fail_msg("%s", s->err);
        cJSON *plan = json_of(s);
        assert_plan_is_consistent(plan);
        cJSON_Delete(plan);
        assert_true(s->max_rss_kb < 500000);
    }
}

// ---- graph ----
static void graphs_read_back(void **state) {
    scene *s = *state;
    static const char *const programs[] = {"prologue", "micro", "update", "eval"};
    for (int i = 0; i < CASES; i++)
        for (int p = 0; p < 4; p++) {
            if (p == 3 && strcmp(cases[i], "validate")) continue;
            if (run(s, "graph " TITAN "%s/config.toml --program %s", cases[i], programs[p])) fail_msg("%s", s->err);
            char *text = ct_strdup(s->out);
            write_scene_file(s, "p.graph", text, strlen(text));
            if (run(s, "graph --check ~/p.graph")) fail_msg("%s", s->err);
            assert_string_equal(s->out, text);
            size_t half = strlen(text) / 2;
            write_scene_file(s, "p.graph", text, half); // cut off: an error, or a shorter graph that is whole
            if (run(s, "graph --check ~/p.graph")) assert_non_null(strstr(s->err, "p.graph:"));
            free(text);
        }
    expect(s, 0, "matmul", "graph --ops");
    expect(s, 0, "matmul", "graph --ops --json");
    cJSON_Delete(json_of(s));
}

// ---- metrics ----
static void metrics_have_their_fields_and_units(void **state) {
    scene *s = *state;
    if (run(s, BASE "run --training.steps 5 --metrics.log_freq 2")) fail_msg("%s", s->err);
    double seconds = s->seconds;
    char *text = read_scene_file(s, "run/metrics.jsonl"), *save = NULL;
    static const int steps[] = {1, 2, 4, 5};
    int lines = 0;
    double previous = 0, sum = 0;
    for (char *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save), lines++) {
        cJSON *json = cJSON_Parse(line);
        assert_non_null(json);
        double step = number(json, "step"), count = step - previous;
        assert_true(lines < 4 && step == steps[lines]);
        sum += count * number(json, "seconds"); // the mean of the steps since the last line
        assert_true(fabs(number(json, "tokens_per_second") * number(json, "seconds") / 256 - 1) < 1e-4);
        assert_true(number(json, "mfu") < 1 && number(json, "tflops") < 100 && number(json, "grad_norm") > 0);
        double rss = number(json, "memory_bytes");
        assert_true(rss > 1e6 && rss < 1e9);
        assert_true(number(json, "tokens_seen") == 256 * step);
        assert_true(fabs(number(json, "lr") - (step == 1 ? 0.002 : step == 2 ? 0.004 : number(json, "lr"))) < 1e-12);
        assert_true(fabs(number(json, "loss") - 6.5) < 1);
        number(json, "data_wait_seconds");
        previous = step;
        cJSON_Delete(json);
    }
    assert_int_equal(lines, 4);
    assert_true(sum <= seconds);
    free(text);
    assert_true(has_scene_file(s, "run/config.toml"));
    expect(s, 0, "\"", "metrics ~/run --json");
    cJSON_Delete(json_of(s));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, scene_open, scene_close)
int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(plans_are_consistent),
        TEST(every_flavour_has_its_parameters),
        TEST(flops_follow_the_formula),
        TEST(configs_read_back),
        TEST(torchtitans_files_are_accepted_as_they_are),
        TEST(graphs_read_back),
        TEST(metrics_have_their_fields_and_units),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
