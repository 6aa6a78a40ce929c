// What placement must find by itself, counted in `ctitan plan --json`: for a Llama on every axis at once, the collectives of a layer and
// micro-batch, their axes and bytes; and what each axis saves of memory. The numbers are worked out by hand from the layouts (../docs/PARALLELISM.md).
#include "command.h"

#include <cjson/cJSON.h>

// 4 layers, D 256, 16 heads of 16, 8 key heads (N = 256, K = 128), F 704, V 2048; micro-batches of 2 × 128 tokens a data rank.
#define MODEL "tests/train/fixtures/titan/base/config.toml --model.args.dim 256 --model.args.n_layers 4 --model.args.n_heads 16 " \
              "--model.args.n_kv_heads 8 --model.args.hidden_dim 704 --model.args.vocab_size 2048 --training.local_batch_size 2 " \
              "--training.seq_len 128 --training.global_batch_size -1 --training.mixed_precision_param bfloat16 --activation_checkpoint.mode none "
enum { LAYERS = 4, B = 2, T = 128, D = 256, N = 256, K = 128, F = 704, V = 2048 };
#define ALL "--ranks 8 --parallelism.tensor_parallel_degree 2 --parallelism.context_parallel_degree 2 "

static cJSON *plan(scene *s, const char *words) {
    if (run(s, "plan " MODEL "%s --json", words)) fail_msg("%s", s->err);
    cJSON *json = cJSON_Parse(s->out);
    assert_non_null(json);
    return json;
}

static const char *text_of(const cJSON *c, const char *name) { return cJSON_GetObjectItem(c, name)->valuestring; }
static double number_of(const cJSON *c, const char *name) { return cJSON_GetObjectItem(c, name)->valuedouble; }

static int has_axes(const cJSON *c, const char *axes) {
    char have[64] = "";
    const cJSON *axis;
    cJSON_ArrayForEach(axis, cJSON_GetObjectItem(c, "axis")) {
        strcat(have, have[0] ? " " : "");
        strcat(have, axis->valuestring);
    }
    return !strcmp(have, axes);
}

// How many collectives of micro there are over these axes, of this kind and size; kind NULL: any; bytes < 0: any; module: its end, NULL: any.
static int count(const cJSON *json, const char *axes, const char *kind, const char *phase, double bytes, const char *module) {
    int n = 0;
    const cJSON *c;
    cJSON_ArrayForEach(c, cJSON_GetObjectItem(json, "collectives")) {
        size_t length = strlen(text_of(c, "module")), end = module ? strlen(module) : 0;
        n += !strcmp(text_of(c, "program"), "micro") && has_axes(c, axes) && (!kind || !strcmp(text_of(c, "kind"), kind)) &&
             (!phase || !strcmp(text_of(c, "phase"), phase)) && (bytes < 0 || number_of(c, "bytes") == bytes) &&
             (!module || (length >= end && !strcmp(text_of(c, "module") + length - end, module)));
    }
    return n;
}

static void one_layer_on_every_axis_communicates_as_worked_out(void **state) {
    cJSON *p = plan(*state, ALL);
    double stream = (double)B * (T / 2) * D; // elements of a tp group: T is cut by cp
    // tp with sequence parallelism: forward 2 gathers of h (bf16) and 2 reductions (f32) a layer; the embedding's and the loss' beside them.
    assert_int_equal(count(p, "tp", "all_gather", "forward", 2 * stream, NULL), 2 * LAYERS + 1);
    assert_int_equal(count(p, "tp", "reduce_scatter", "forward", 4 * stream, NULL), 2 * LAYERS + 1);
    // Backward the same: dY of wo and w2 gathered, dX of (q k v) and of (w1 w3) added before one reduction each; dh's, and the embedding's.
    assert_int_equal(count(p, "tp", "all_gather", "input-grad", 2 * stream, NULL), 2 * LAYERS);
    assert_int_equal(count(p, "tp", "all_gather", "weight-grad", 2 * stream, "tok_embeddings"), 1);
    assert_int_equal(count(p, "tp", "reduce_scatter", "input-grad", 4 * stream, NULL), 2 * LAYERS + 1);
    // The loss: maximum, sum of exponentials and the label's logit, of [B T] in f32. Nothing else, and no weight, moves over tp.
    assert_int_equal(count(p, "tp", "all_reduce", "forward", 4.0 * B * (T / 2), "output"), 3);
    assert_int_equal(count(p, "tp", NULL, NULL, -1, NULL), (4 * LAYERS + 2) + (4 * LAYERS + 2) + 3);
    // cp: K and V are gathered once a layer, with the positions and documents of the keys (once for all); dK and dV are reduced in f32.
    double keys = (double)B * T * (K / 2); // of a cp group: heads are cut by tp
    assert_int_equal(count(p, "cp", "all_gather", "forward", 2 * keys, NULL), 2 * LAYERS);
    assert_int_equal(count(p, "cp", "all_gather", "forward", 4.0 * B * T, NULL), 2);
    assert_int_equal(count(p, "cp", "reduce_scatter", "input-grad", 4 * keys, NULL), 2 * LAYERS);
    assert_int_equal(count(p, "cp", NULL, NULL, -1, NULL), 4 * LAYERS + 2);
    // dp_shard × cp: each weight's bf16 is gathered for the forward and again for the backward, its f32 gradient is scattered.
    static const struct {
        const char *module;
        double elements; // of a tp group's part
    } weights[] = {{"attention.wq", N / 2.0 * D}, {"attention.wk", K / 2.0 * D}, {"attention.wv", K / 2.0 * D}, {"attention.wo", N / 2.0 * D},
                   {"feed_forward.w1", F / 2.0 * D}, {"feed_forward.w2", F / 2.0 * D}, {"feed_forward.w3", F / 2.0 * D}};
    for (size_t i = 0; i < sizeof weights / sizeof *weights; i++) {
        assert_int_equal(count(p, "dp_shard cp", "all_gather", "forward", 2 * weights[i].elements, weights[i].module), LAYERS);
        assert_int_equal(count(p, "dp_shard cp", "all_gather", "recompute", 2 * weights[i].elements, weights[i].module), LAYERS);
        assert_int_equal(count(p, "dp_shard cp", "reduce_scatter", "weight-grad", 4 * weights[i].elements, weights[i].module), LAYERS);
    }
    // A norm's gradient sums over all tokens: over tp as well, which cuts them.
    assert_int_equal(count(p, "dp_shard cp tp", "reduce_scatter", "weight-grad", 4.0 * D, NULL), 2 * LAYERS + 1);
    cJSON_Delete(p);
}

static void without_sequence_parallelism_there_are_two_all_reduces_each_way(void **state) {
    cJSON *p = plan(*state, ALL "--parallelism.no_enable_sequence_parallel ");
    double stream = (double)B * (T / 2) * D;
    assert_int_equal(count(p, "tp", "all_reduce", "forward", 4 * stream, NULL), 2 * LAYERS + 1);    // and the embedding's
    assert_int_equal(count(p, "tp", "all_reduce", "input-grad", 4 * stream, NULL), 2 * LAYERS + 1); // and the loss'
    assert_int_equal(count(p, "tp", "all_gather", NULL, -1, NULL), 0);
    assert_int_equal(count(p, "tp", "reduce_scatter", NULL, -1, NULL), 0);
    cJSON_Delete(p);
}

static void a_ring_moves_a_block_at_a_time(void **state) {
    cJSON *p = plan(*state, "--ranks 4 --parallelism.context_parallel_degree 4 --parallelism.context_parallel_rotate_method alltoall ");
    double block = 2.0 * B * T * K; // the whole of a group, which a call moves a quarter of
    assert_int_equal(count(p, "cp", "all_gather", NULL, block, "attention"), 0);
    assert_int_equal(count(p, "cp", "all_gather", NULL, 4.0 * B * T, "attention"), 0);
    assert_int_equal(count(p, "cp", "send_recv", "forward", block, NULL), 2 * 3 * LAYERS);         // K and V, three hops
    assert_int_equal(count(p, "cp", "send_recv", "input-grad", block, NULL), 2 * 3 * LAYERS);      // and once more
    assert_int_equal(count(p, "cp", "send_recv", "input-grad", 2 * block, NULL), 2 * 4 * LAYERS);  // dK and dV in f32, and home
    cJSON_Delete(p);
}

static void data_parallelism_communicates_gradients_only(void **state) {
    cJSON *p = plan(*state, "--ranks 4 --parallelism.data_parallel_replicate_degree 4 ");
    assert_int_equal(count(p, "dp_replicate", "all_gather", NULL, -1, NULL), 0);
    assert_int_equal(count(p, "dp_replicate", "reduce_scatter", "weight-grad", -1, NULL), 9 * LAYERS + 3);
    int updates = 0; // the replicas exchange the slices once a step
    const cJSON *c;
    cJSON_ArrayForEach(c, cJSON_GetObjectItem(p, "collectives")) updates += !strcmp(text_of(c, "program"), "update") && !strcmp(text_of(c, "kind"), "all_gather");
    assert_int_equal(updates, 9 * LAYERS + 3);
    cJSON_Delete(p);
}

// ---- memory ----
static double bytes_of(const cJSON *p, const char *kind) { return number_of(cJSON_GetObjectItem(p, "bytes"), kind); }

static void sharded_state_falls_with_the_number_of_ranks(void **state) {
    cJSON *one = plan(*state, "");
    static const int ranks[] = {2, 3, 4, 8};
    for (int i = 0; i < 4; i++) {
        char words[64];
        snprintf(words, sizeof words, "--ranks %d ", ranks[i]);
        cJSON *p = plan(*state, words);
        static const char *const kinds[] = {"parameters", "optimizer", "weights_lowp"};
        for (int k = 0; k < 3; k++) { // a shard is the next whole row: a per cent or two, and 64 bytes a tensor
            double share = bytes_of(p, kinds[k]) * ranks[i] / bytes_of(one, kinds[k]);
            if (!(share >= 1 && share <= 1.02)) fail_msg("%s on %d ranks: %.4f of one rank's together", kinds[k], ranks[i], share);
        }
        cJSON_Delete(p);
    }
    cJSON_Delete(one);
}

// Bytes that a micro-batch's forward leaves for its backward, of all ranks together, over those of one rank alone. Many layers, many tokens,
// few words: the loss' own values, which are as large on every rank, do not count for much.
static double kept(scene *s, int ranks, const char *words, const char *recompute) {
    static const char model[] = "plan tests/train/fixtures/titan/base/config.toml --model.args.dim 256 --model.args.n_layers 48 "
                                "--model.args.n_heads 16 --model.args.n_kv_heads 8 --model.args.vocab_size 64 --training.local_batch_size 4 "
                                "--training.seq_len 2048 --training.global_batch_size -1 --json --activation_checkpoint.mode";
    double bytes[2];
    for (int i = 0; i < 2; i++) {
        if (i ? run(s, "%s %s --ranks %d %s", model, recompute, ranks, words) : run(s, "%s %s", model, recompute)) fail_msg("%s", s->err);
        cJSON *p = cJSON_Parse(s->out);
        bytes[i] = number_of(cJSON_GetArrayItem(cJSON_GetObjectItem(p, "stages"), 0), "saved_bytes");
        cJSON_Delete(p);
    }
    return bytes[1] * ranks / bytes[0];
}

static void activations_fall_with_tensor_and_context_parallelism(void **state) {
    scene *s = *state;
    // With layers recomputed, what is kept is the residual stream, which tp and cp cut.
    static const int ranks[] = {2, 4, 8};
    for (int i = 0; i < 3; i++) {
        char tp[80], ring[160];
        snprintf(tp, sizeof tp, "--parallelism.tensor_parallel_degree %d", ranks[i]);
        snprintf(ring, sizeof ring, "--parallelism.context_parallel_degree %d --parallelism.context_parallel_rotate_method alltoall", ranks[i]);
        double of_tp = kept(s, ranks[i], tp, "full"), of_ring = kept(s, ranks[i], ring, "full"), plain = kept(s, ranks[i], ring, "none");
        printf("%d ranks: tp %.3f, ring %.3f; nothing recomputed: ring %.3f\n", ranks[i], of_tp, of_ring, plain);
        // dh of the loss is a partial sum in f32, whole on each tp rank: as much as two of the 97 values of the stream in bf16.
        double loss = 2.0 / 97 * (ranks[i] - 1);
        if (!(of_tp <= 1.01 + loss && of_ring <= 1.01 && plain <= 1.01)) fail_msg("more is kept than a rank's part");
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(one_layer_on_every_axis_communicates_as_worked_out, scene_open, scene_close),
        cmocka_unit_test_setup_teardown(without_sequence_parallelism_there_are_two_all_reduces_each_way, scene_open, scene_close),
        cmocka_unit_test_setup_teardown(a_ring_moves_a_block_at_a_time, scene_open, scene_close),
        cmocka_unit_test_setup_teardown(data_parallelism_communicates_gradients_only, scene_open, scene_close),
        cmocka_unit_test_setup_teardown(sharded_state_falls_with_the_number_of_ranks, scene_open, scene_close),
        cmocka_unit_test_setup_teardown(activations_fall_with_tensor_and_context_parallelism, scene_open, scene_close),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
