// Odd sizes: every shape that is allowed trains, in fp32 and in bf16, on memory that is poisoned wherever nothing should be read, and gives
// finite losses that neither threads, recomputation nor poison change.
#include "command.h"

#include <math.h>

static const char *const shapes[] = {
    "--training.local_batch_size 1 --training.seq_len 1",
    "--training.local_batch_size 1 --training.seq_len 2 --model.args.n_layers 1",
    "--training.local_batch_size 3 --training.seq_len 3 --training.global_batch_size 9",
    "--training.local_batch_size 2 --training.seq_len 17 --model.args.n_kv_heads 1",
    "--training.local_batch_size 1 --training.seq_len 129 --model.args.n_kv_heads 2 --model.args.n_layers 3",
    "--model.args.dim 12 --training.seq_len 33 --training.local_batch_size 1",                              // heads of 2
    "--model.args.dim 2 --model.args.n_heads 1 --model.args.hidden_dim 1 --training.local_batch_size 1 --training.seq_len 5",
    "--model.args.dim 42 --model.args.n_heads 3 --model.args.hidden_dim 67 --training.seq_len 31 --training.local_batch_size 3",
    "--model.args.vocab_size 521 --model.args.hidden_dim 17 --training.local_batch_size 33 --training.seq_len 65", // prime, in chunks
    "--model.args.enable_weight_tying --model.args.n_layers 1 --training.seq_len 7",
    "--model.args.attn_mask_type block_causal --training.seq_len 300 --training.local_batch_size 1",        // several documents a sequence
    "--model.args.attn_mask_type block_causal --training.seq_len 2 --training.local_batch_size 5",          // documents longer than it
    "--model.args.attn_mask_type block_causal --training.seq_len 1 --training.local_batch_size 1",          // every label is ignored somewhere
};
enum { SHAPES = sizeof shapes / sizeof *shapes };

static void assert_finite(const char *curve) {
    int losses = 0;
    for (const char *at = curve; (at = strstr(at, "loss ")); at += 5, losses++) assert_true(isfinite(strtod(at + 5, NULL)));
    assert_true(losses >= 2);
}

// The curve of two steps.
static char *train(scene *s, const char *shape, const char *options) {
    if (run(s, BASE "run --training.steps 2 --model.args.max_seq_len 512 %s %s", shape, options)) fail_msg("%s %s: %s", shape, options, s->err);
    char *curve = curve_of(s, "run");
    assert_finite(curve);
    char *folder = ct_format("%s/run", s->folder);
    assert_null(ct_folder_remove(folder));
    free(folder);
    return curve;
}

static void odd_shapes_train_the_same_whatever_is_poisoned_or_how_many_threads(void **state) {
    scene *s = *state;
    static const char *const dtypes[] = {"float32", "bfloat16"};
    for (int i = 0; i < SHAPES; i++)
        for (int d = 0; d < 2; d++) {
            char *dtype = ct_format("--training.mixed_precision_param %s", dtypes[d]);
            char *poisoned = ct_format("%s --debug.poison --training.threads 3", dtype);
            char *a = train(s, shapes[i], dtype), *b = train(s, shapes[i], poisoned);
            assert_string_equal(a, b);
            free(a), free(b), free(dtype), free(poisoned);
        }
}

static void every_recomputation_of_one_and_of_three_layers_gives_the_same(void **state) {
    scene *s = *state;
    static const char *const modes[] = {"--activation_checkpoint.mode none",
                                        "--activation_checkpoint.mode full",
                                        "--activation_checkpoint.mode selective --activation_checkpoint.selective_ac_option op",
                                        "--activation_checkpoint.mode selective --activation_checkpoint.selective_ac_option 1",
                                        "--activation_checkpoint.mode selective --activation_checkpoint.selective_ac_option 2",
                                        "--activation_checkpoint.mode selective --activation_checkpoint.selective_ac_option 5"};
    static const char *const layers[] = {"--model.args.n_layers 1 --debug.poison", "--model.args.n_layers 3 --training.mixed_precision_param bfloat16"};
    for (int l = 0; l < 2; l++) {
        char *first = NULL;
        for (int m = 0; m < 6; m++) {
            char *curve = train(s, layers[l], modes[m]);
            if (first) assert_string_equal(curve, first);
            if (first) free(curve);
            else first = curve;
        }
        free(first);
    }
}

// Validation takes other sizes than training, a last batch that isn't full, and text that ends.
static void validation_of_odd_sizes_is_finite(void **state) {
    scene *s = *state;
    static const char *const sizes[] = {"--validation.local_batch_size 7 --validation.seq_len 301 --validation.steps -1",
                                        "--validation.local_batch_size 1 --validation.seq_len 1 --validation.steps 3",
                                        "--validation.local_batch_size 3 --validation.seq_len 64 --validation.steps 1"};
    for (int i = 0; i < 3; i++)
        free(train(s, sizes[i], "--debug.poison --validation.enable --validation.freq 1 --validation.dataset jsonl "
                                "--validation.dataset_path tests/train/fixtures/titan/text_valid/data.json"));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, scene_open, scene_close)
int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(odd_shapes_train_the_same_whatever_is_poisoned_or_how_many_threads),
        TEST(every_recomputation_of_one_and_of_three_layers_gives_the_same),
        TEST(validation_of_odd_sizes_is_finite),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
