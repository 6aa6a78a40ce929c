// Llama 3: sizes from torchtitan's table, FLOPs by hand, what wrong arguments say, and the graph itself against text written from the paper.
#include "base/file.h"
#include "models/model.h"
#include "ops/ops.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#define assert_ok(status_expression)                                                                                   \
    do {                                                                                                               \
        ct_status assert_ok_ = (status_expression);                                                                    \
        if (assert_ok_) fail_msg("%s", ct_error_text(assert_ok_));                                                     \
    } while (0)

// ---- sizes ----
// Parameters: torchtitan's own models, counted tensor by tensor (its llama3/__init__.py at v0.2.2; 1B and 3B: its main branch).
static const struct {
    const char *flavor;
    int64_t dim, layers, heads, kv_heads, ffn, vocab;
    int tied, block_causal;
    int64_t parameters;
} sizes[] = {
    {"debugmodel", 256, 6, 16, 16, 768, 2048, 0, 0, 6163712},
    {"debugmodel_flex_attn", 256, 6, 16, 16, 768, 2048, 0, 1, 6163712},
    {"debugmodel_varlen_attn", 256, 6, 16, 16, 768, 2048, 0, 1, 6163712},
    {"1B", 2048, 16, 32, 8, 8192, 128256, 1, 0, 1235814400},
    {"3B", 3072, 28, 24, 8, 8192, 128256, 1, 0, 3212749824},
    {"8B", 4096, 32, 32, 8, 14336, 128256, 0, 0, 8030261248},
    {"8B_flex", 4096, 32, 32, 8, 14336, 128256, 0, 1, 8030261248},
    {"8B_varlen", 4096, 32, 32, 8, 14336, 128256, 0, 1, 8030261248},
    {"70B", 8192, 80, 64, 8, 28672, 128256, 0, 0, 70553706496},
    {"405B", 16384, 126, 128, 8, 53248, 128256, 0, 0, 405853388800},
};
enum { SIZES = sizeof sizes / sizeof *sizes };

static void every_flavour_has_torchtitans_sizes(void **state) {
    (void)state;
    for (int i = 0; i < SIZES; i++) {
        ct_arena arena = {0};
        ct_model m;
        assert_ok(ct_model_open(&arena, "llama3", sizes[i].flavor, NULL, 0, &m));
        assert_string_equal(m.kind->flavors[i], sizes[i].flavor);
        assert_true(ct_model_parameters(&m) == sizes[i].parameters);
        const ct_model_shape *s = &m.shape;
        assert_true(s->dim == sizes[i].dim && s->n_layers == sizes[i].layers && s->n_heads == sizes[i].heads &&
                    s->n_kv_heads == sizes[i].kv_heads && s->ffn_dim == sizes[i].ffn && s->vocab_size == sizes[i].vocab);
        assert_int_equal(s->head_dim, sizes[i].dim / sizes[i].heads);
        assert_int_equal(s->tied, sizes[i].tied);
        assert_int_equal(s->block_causal, sizes[i].block_causal);
        assert_true(s->rope_theta == 500000 && s->rope_factor == 8 && s->rope_low == 1 && s->rope_high == 4 &&
                    s->rope_original == 8192 && s->max_seq_len == 131072 && s->norm_eps == 1e-5);
        assert_int_equal(m.parameters_count, 9 * sizes[i].layers + (sizes[i].tied ? 2 : 3));
        ct_arena_deinit(&arena);
    }
    ct_arena arena = {0};
    ct_model m;
    assert_ok(ct_model_open(&arena, "llama3", "8B", NULL, 0, &m));
    assert_null(m.kind->flavors[SIZES]);
    ct_arena_deinit(&arena);
}

static ct_model opened(ct_arena *arena, const char *flavor, int count, const ct_model_override *overrides) {
    ct_model m;
    assert_ok(ct_model_open(arena, "llama3", flavor, overrides, count, &m));
    return m;
}

// int(8 d / 3), times the multiplier, up to a multiple.
static void the_feed_forwards_size_follows_its_formula(void **state) {
    (void)state;
    ct_arena arena = {0};
    const ct_model_override plain[] = {{"dim", 100, NULL}, {"n_heads", 2, NULL}, {"multiple_of", 1, NULL}};
    assert_int_equal(opened(&arena, "debugmodel", 3, plain).shape.ffn_dim, 266); // 800 / 3
    const ct_model_override more[] = {
        {"dim", 100, NULL}, {"n_heads", 2, NULL}, {"multiple_of", 7, NULL}, {"ffn_dim_multiplier", 1.5, NULL}};
    assert_int_equal(opened(&arena, "debugmodel", 4, more).shape.ffn_dim, 399); // 266 × 1.5 = 57 × 7
    const ct_model_override fixed[] = {{"hidden_dim", 13, NULL}, {"multiple_of", 7, NULL}};
    assert_int_equal(opened(&arena, "debugmodel", 2, fixed).shape.ffn_dim, 13);
    ct_arena_deinit(&arena);
}

// ---- initial values ----
static const ct_parameter *named(const ct_model *m, const char *name) {
    for (int i = 0; i < m->parameters_count; i++)
        if (!strcmp(m->parameters[i].name, name)) return &m->parameters[i];
    fail_msg("no parameter %s", name);
    return NULL;
}

static void assert_init(const ct_model *m, const char *name, ct_init_kind kind, double std, double cut) {
    ct_init init = named(m, name)->init;
    assert_int_equal(init.kind, kind);
    if (kind == CT_INIT_ONES) return;
    assert_true(fabs(init.std - std) <= 1e-12 * std);
    if (kind == CT_INIT_TRUNCATED_NORMAL) assert_true(fabs(init.high - cut) <= 1e-12 * cut && init.low == -init.high);
}

static void initial_values_are_torchtitans(void **state) {
    (void)state;
    ct_arena arena = {0};
    ct_model m = opened(&arena, "8B", 0, NULL);
    assert_init(&m, "tok_embeddings.weight", CT_INIT_NORMAL, 1, 0);
    assert_init(&m, "layers.0.attention.wq.weight", CT_INIT_TRUNCATED_NORMAL, 0.02, 2);
    assert_init(&m, "layers.31.attention.wk.weight", CT_INIT_TRUNCATED_NORMAL, 0.02, 2);
    assert_init(&m, "layers.31.attention.wv.weight", CT_INIT_TRUNCATED_NORMAL, 0.02, 2);
    assert_init(&m, "layers.31.feed_forward.w1.weight", CT_INIT_TRUNCATED_NORMAL, 0.02, 2);
    assert_init(&m, "layers.0.attention.wo.weight", CT_INIT_TRUNCATED_NORMAL, 0.01414213562373095, 2); // 0.02/sqrt(2·1)
    assert_init(&m, "layers.1.feed_forward.w2.weight", CT_INIT_TRUNCATED_NORMAL, 0.01, 2);            // 0.02/sqrt(2·2)
    assert_init(&m, "layers.31.feed_forward.w3.weight", CT_INIT_TRUNCATED_NORMAL, 0.0025, 2);         // 0.02/sqrt(2·32)
    assert_init(&m, "layers.7.attention_norm.weight", CT_INIT_ONES, 0, 0);
    assert_init(&m, "layers.7.ffn_norm.weight", CT_INIT_ONES, 0, 0);
    assert_init(&m, "norm.weight", CT_INIT_ONES, 0, 0);
    assert_init(&m, "output.weight", CT_INIT_TRUNCATED_NORMAL, 0.015625, 0.046875); // 1/sqrt(4096), cut at three
    const ct_model_override alike = {"depth_init", 0, NULL};
    m = opened(&arena, "8B", 1, &alike);
    assert_init(&m, "layers.0.attention.wo.weight", CT_INIT_TRUNCATED_NORMAL, 0.0025, 2); // all as if last
    ct_arena_deinit(&arena);
}

// ---- FLOPs ----
static void the_flops_of_a_step_are_those_counted_by_hand(void **state) {
    (void)state;
    ct_arena arena = {0};
    // One layer, dim 8, 2 heads of 4, 1 key-value head, hidden 12, vocabulary 16: wq 64, wk 32, wv 32, wo 64, w1..w3 288, norms 24, head 128.
    const ct_model_override tiny[] = {{"dim", 8, NULL},         {"n_layers", 1, NULL},  {"n_heads", 2, NULL}, {"n_kv_heads", 1, NULL},
                                      {"hidden_dim", 12, NULL}, {"vocab_size", 16, NULL}, {"tied", 0, NULL}};
    ct_model m = opened(&arena, "debugmodel", 7, tiny);
    assert_int_equal(ct_model_parameters(&m), 632 + 128); // and the embedding
    double token = 6.0 * 632 + 6 * 2 * 4 * 10.0;          // attention: 3 × (2·2·8 elements × 10/2 keys)
    assert_float_equal(ct_model_step_flops(&m, 30, 10), 30 * token, 0);
    ct_model_override tied[7];
    memcpy(tied, tiny, sizeof tiny);
    tied[6].number = 1;
    m = opened(&arena, "debugmodel", 7, tied);
    assert_int_equal(ct_model_parameters(&m), 632);
    assert_float_equal(ct_model_step_flops(&m, 30, 10), 30 * token, 0); // the head's product is there either way
    // 8B at 8192: 6 · (8,030,261,248 - 128,256 · 4096) + 6 · 32 · 32 · 128 · 8192 a token.
    m = opened(&arena, "8B", 0, NULL);
    assert_float_equal(ct_model_step_flops(&m, 1, 8192), 45029548032.0 + 6442450944.0, 0);
    ct_arena_deinit(&arena);
}

// ---- wrong arguments ----
static void assert_refused(const char *name, const char *flavor, ct_model_override o, ct_code code, const char *message) {
    ct_arena arena = {0};
    ct_model m;
    ct_status status = ct_model_open(&arena, name, flavor, &o, o.key ? 1 : 0, &m);
    if (!status) fail_msg("not refused: %s", message);
    assert_int_equal(ct_error_code(status), code);
    assert_string_equal(ct_error_text(status), message);
    ct_arena_deinit(&arena);
}

static void wrong_arguments_are_one_message(void **state) {
    (void)state;
    const ct_model_override none = {0};
    assert_refused("gpt", "8B", none, CT_UNSUPPORTED, "model.name = \"gpt\": the models there are: llama3");
    assert_refused("llama3", "8b", none, CT_INVALID,
                   "model.flavor = \"8b\": llama3's flavours are debugmodel, debugmodel_flex_attn, debugmodel_varlen_attn, 1B, 3B, 8B, "
                   "8B_flex, 8B_varlen, 70B, 405B");
    assert_refused("llama3", "debugmodel", (ct_model_override){"n_layer", 2, NULL}, CT_INVALID, "model.args.n_layer: llama3 has no such field");
    assert_refused("llama3", "debugmodel", (ct_model_override){"dim", 0, NULL}, CT_INVALID,
                   "model.args.dim = 0: a whole number from 2 to 1048576 is wanted");
    assert_refused("llama3", "debugmodel", (ct_model_override){"n_layers", 1.5, NULL}, CT_INVALID,
                   "model.args.n_layers = 1.5: a whole number from 1 to 4096 is wanted");
    assert_refused("llama3", "debugmodel", (ct_model_override){"norm_eps", -1, NULL}, CT_INVALID,
                   "model.args.norm_eps = -1: a number from 0 to 1 is wanted");
    assert_refused("llama3", "debugmodel", (ct_model_override){"rope_theta", NAN, NULL}, CT_INVALID,
                   "model.args.rope_theta = nan: a number from 1 to 1e+12 is wanted");
    assert_refused("llama3", "debugmodel", (ct_model_override){"enable_weight_tying", 2, NULL}, CT_INVALID,
                   "model.args.enable_weight_tying = 2: a whole number from 0 to 1 is wanted");
    assert_refused("llama3", "debugmodel", (ct_model_override){"attn_mask_type", 0, "full"}, CT_INVALID,
                   "model.args.attn_mask_type = \"full\": \"causal\" or \"block_causal\" is wanted");
    assert_refused("llama3", "debugmodel", (ct_model_override){"attn_mask_type", 1, NULL}, CT_INVALID,
                   "model.args.attn_mask_type = \"\": \"causal\" or \"block_causal\" is wanted");
    assert_refused("llama3", "debugmodel", (ct_model_override){"dim", 250, NULL}, CT_INVALID,
                   "model.args.dim = 250 is not a multiple of n_heads = 16");
    assert_refused("llama3", "debugmodel", (ct_model_override){"dim", 144, NULL}, CT_INVALID,
                   "model.args: a head has dim / n_heads = 9 elements; rotary embedding needs an even number");
    assert_refused("llama3", "8B", (ct_model_override){"n_kv_heads", 3, NULL}, CT_INVALID,
                   "model.args.n_heads = 32 is not a multiple of n_kv_heads = 3");
    assert_refused("llama3", "debugmodel", (ct_model_override){"dim", 0, "big"}, CT_INVALID,
                   "model.args.dim = \"big\": a whole number from 2 to 1048576 is wanted");
}

// ---- the graph ----
static char *printed(const ct_graph *g) {
    ct_string s = {0};
    ct_graph_print(g, &s);
    return s.text;
}

static void assert_same_lines(const char *got, const char *wanted) {
    size_t line = 0, i = 0;
    for (; got[i] && got[i] == wanted[i]; i++)
        if (got[i] == '\n') line = i + 1;
    if (got[i] != wanted[i])
        fail_msg("got    %.*s\nwanted %.*s", (int)strcspn(got + line, "\n"), got + line, (int)strcspn(wanted + line, "\n"), wanted + line);
}

// The golden text, printed again (its comments go), is the text of the graph built; and parses to the same.
static void check_golden(const char *file, int tied, const char *program, ct_build_options options) {
    ct_arena arena = {0};
    const ct_model_override tiny[] = {{"dim", 8, NULL},         {"n_layers", 1, NULL},    {"n_heads", 2, NULL},           {"n_kv_heads", 1, NULL},
                                      {"hidden_dim", 12, NULL}, {"vocab_size", 16, NULL}, {"tied", (double)tied, NULL}};
    ct_model m = opened(&arena, "debugmodel", 7, tiny);
    ct_graph built, golden;
    char *text, *path = ct_format("%s/tests/models/golden/%s", CT_SOURCE_DIR, file);
    ct_graph_init(&built, program);
    assert_ok(ct_model_build(&m, &built, options));
    assert_ok(ct_graph_verify(&built));
    assert_ok(ct_file_read(path, 0, &text, NULL));
    assert_ok(ct_graph_parse(&golden, text, path, ct_op_find));
    assert_ok(ct_graph_verify(&golden));
    char *got = printed(&built), *wanted = printed(&golden);
    assert_same_lines(got, wanted);
    free(got), free(wanted), free(text), free(path);
    ct_graph_deinit(&golden);
    ct_graph_deinit(&built);
    ct_arena_deinit(&arena);
}

static void the_graph_of_a_loss_is_the_papers(void **state) {
    (void)state;
    check_golden("loss.graph", 0, "micro", (ct_build_options){.batch = 2, .seq_len = 4, .kind = CT_BUILD_LOSS});
}

static void the_graph_of_generation_writes_keys_and_values_into_caches(void **state) {
    (void)state;
    check_golden("generate.graph", 1, "generate", (ct_build_options){.batch = 1, .seq_len = 1, .cache_len = 5, .kind = CT_BUILD_GENERATE});
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_flavour_has_torchtitans_sizes),
        cmocka_unit_test(the_feed_forwards_size_follows_its_formula),
        cmocka_unit_test(initial_values_are_torchtitans),
        cmocka_unit_test(the_flops_of_a_step_are_those_counted_by_hand),
        cmocka_unit_test(wrong_arguments_are_one_message),
        cmocka_unit_test(the_graph_of_a_loss_is_the_papers),
        cmocka_unit_test(the_graph_of_generation_writes_keys_and_values_into_caches),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
