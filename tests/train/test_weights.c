// Weights of other programs: stories260K's logits and its known story; Hugging Face folders' logits in, and the same out again.
#include "case.h"
#include "base/file.h"
#include "train/generate.h"

#include <math.h>
#include <unistd.h>

static void open_generator(const char *toml, const char *dtype, const char *weights, int64_t capacity, ct_arena *arena, ct_generator **out) {
    ct_config *config;
    char *o[] = {"--training.mixed_precision_param", (char *)dtype};
    assert_ok(ct_config_parse(arena, "test.toml", toml, strlen(toml), 2, o, &config));
    assert_ok(ct_generator_create(config, weights, 0, capacity, out));
}

// Largest difference of the logits after each of the ids.
static double logits_distance(ct_generator *g, const int32_t *ids, int64_t count, const float *expected, int64_t vocabulary) {
    double worst = 0;
    for (int64_t i = 0; i < count; i++) {
        const float *logits;
        assert_ok(ct_generator_push(g, ids[i], &logits));
        for (int64_t v = 0; v < vocabulary; v++) worst = fmax(worst, fabs((double)logits[v] - expected[i * vocabulary + v]));
    }
    return worst;
}

static const char stories_toml[] =
    "[model]\nname = \"llama3\"\nflavor = \"debugmodel\"\n[training]\nmixed_precision_param = \"float32\"\n[model.args]\ndim = 64\n"
    "n_layers = 5\nn_heads = 8\nn_kv_heads = 4\nhidden_dim = 172\nvocab_size = 512\nmax_seq_len = 512\nrope_theta = 10000.0\n"
    "enable_weight_tying = true\n[model.args.rope_scaling_args]\nscaling_factor = 1.0\n";

static void stories260K_gives_its_logits_and_tells_its_story(void **state) {
    (void)state;
    const char *data = test_data();
    if (!data) skip();
    enum { PROMPT = 64, STORY = 256, V = 512 };
    static int32_t prompt[PROMPT], story[STORY];
    static float expected[PROMPT * V];
    const char *fixture = "tests/train/fixtures/stories260K/expected.safetensors";
    load_array(fixture, "prompt", CT_I32, prompt, PROMPT);
    load_array(fixture, "logits", CT_F32, expected, PROMPT * V);
    load_array(fixture, "story", CT_I32, story, STORY);
    ct_arena arena = {0};
    ct_generator *g;
    char *weights = ct_format("%s/weights/stories260K.bin", data);
    open_generator(stories_toml, "float32", weights, STORY, &arena, &g);
    double worst = logits_distance(g, prompt, PROMPT, expected, V);
    printf("stories260K: logits within %.2e of PyTorch's (of up to 22)\n", worst);
    assert_true(worst <= 2e-5);
    ct_generator_reset(g);
    for (int i = 0; i + 1 < STORY; i++) {
        const float *logits;
        assert_ok(ct_generator_push(g, story[i], &logits));
        assert_int_equal(ct_sample(logits, V, (ct_sampling){.temperature = 0}, 0, NULL), story[i + 1]);
    }
    ct_generator_destroy(g);
    ct_arena_deinit(&arena);
    free(weights);
}

#define HF_SIZES                                                                                                       \
    "[model]\nname = \"llama3\"\nflavor = \"debugmodel\"\n[training]\nmixed_precision_param = \"float32\"\n[model.args]\n"   \
    "dim = 32\nn_layers = 2\nn_heads = 4\nn_kv_heads = 2\nhidden_dim = 56\nvocab_size = 128\nmax_seq_len = 256\n"

static const char untied_toml[] = HF_SIZES "norm_eps = 1e-5\nrope_theta = 5000.0\n[model.args.rope_scaling_args]\nscaling_factor = 4.0\nlow_freq_factor = 1.0\n"
                                           "high_freq_factor = 4.0\noriginal_max_position_embeddings = 64\n";
static const char tied_toml[] = HF_SIZES "norm_eps = 1e-6\nrope_theta = 10000.0\nenable_weight_tying = true\n"
                                         "[model.args.rope_scaling_args]\nscaling_factor = 1.0\n";

static void check_hf(const char *which, const char *toml, const char *dtype, double within) {
    enum { IDS = 40, V = 128 };
    int32_t ids[IDS];
    static float expected[IDS * V];
    char *file = ct_format("tests/train/fixtures/hf_tiny/%s.safetensors", which);
    char *folder = ct_format("tests/train/fixtures/hf_tiny/%s", which);
    load_array(file, "ids", CT_I32, ids, IDS);
    load_array(file, "logits_exact", CT_F32, expected, IDS * V);
    ct_arena arena = {0};
    ct_generator *g;
    open_generator(toml, dtype, folder, IDS, &arena, &g);
    double worst = logits_distance(g, ids, IDS, expected, V);
    printf("%s, %s: logits within %.2e of transformers' model in float64 (of up to 7.3)\n", which, dtype, worst);
    assert_true(worst <= within);
    ct_generator_destroy(g);
    ct_arena_deinit(&arena);
    free(file);
    free(folder);
}

static void hugging_face_folders_give_their_logits(void **state) {
    (void)state;
    check_hf("untied", untied_toml, "float32", 2e-5);
    check_hf("tied", tied_toml, "float32", 2e-5);
}

static void they_give_nearly_their_logits_in_bf16(void **state) {
    (void)state;
    check_hf("untied", untied_toml, "bfloat16", 0.5); // transformers itself: 0.53 in bfloat16, 0.36 under autocast
    check_hf("tied", tied_toml, "bfloat16", 0.5);     // 0.48, 0.51
}

int main(void) {
    if (chdir(CT_SOURCE_DIR)) return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stories260K_gives_its_logits_and_tells_its_story),
        cmocka_unit_test(hugging_face_folders_give_their_logits),
        cmocka_unit_test(they_give_nearly_their_logits_in_bf16),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
