// A checkpoint written under one mesh goes on under any other: with a batch that is only split otherwise, bit for bit.
#include "command.h"

#define SIZES " --training.global_batch_size 8 --training.local_batch_size 2 --checkpoint.enable --checkpoint.interval 3 " \
              "--checkpoint.no_last_save_model_only "
#define TP2 "--ranks 4 --parallelism.tensor_parallel_degree 2"
#define CP2 "--ranks 2 --parallelism.context_parallel_degree 2"
#define PP2 "--ranks 2 --parallelism.pipeline_parallel_degree 2 --training.local_batch_size 4 --parallelism.pipeline_parallel_microbatch_size 2"
#define TP3 "--ranks 6 --parallelism.tensor_parallel_degree 3"

// Three steps on one mesh, three more on another. Caller frees.
static char *two_halves(scene *s, const char *dump, const char *first, const char *second) {
    if (run(s, BASE "%s --training.steps 3" SIZES "%s", dump, first)) fail_msg("%s: %s", first, s->err);
    if (run(s, BASE "%s --training.steps 6" SIZES "%s", dump, second)) fail_msg("%s after %s: %s", second, first, s->err);
    assert_non_null(strstr(s->err, "/step-3"));
    return curve_of(s, dump);
}

static void batches_split_otherwise_go_on_bit_for_bit(void **state) {
    scene *s = *state;
    if (run(s, BASE "alone --training.steps 6" SIZES)) fail_msg("%s", s->err);
    char *alone = curve_of(s, "alone");
    static const char *const meshes[][2] = {{"--ranks 2", ""},
                                            {"", "--ranks 4"},
                                            {"--ranks 4 --parallelism.data_parallel_replicate_degree 2", "--ranks 2"},
                                            {"--ranks 2 --checkpoint.async_mode async", "--ranks 4 --checkpoint.async_mode async"},
                                            {PP2 " --checkpoint.async_mode async", "--ranks 2"},
                                            {"--ranks 2", PP2}};
    for (int i = 0; i < 6; i++) {
        char dump[32];
        snprintf(dump, sizeof dump, "split-%d", i);
        char *curve = two_halves(s, dump, meshes[i][0], meshes[i][1]);
        assert_string_equal(curve, alone);
        free(curve);
    }
    free(alone);
}

// Losses of a curve's lines.
static void compare_losses(const char *a, const char *b) {
    int lines = 0;
    for (; (a = strstr(a, "loss")) && (b = strstr(b, "loss")); a++, b++, lines++) {
        double x = number_after(a, "loss"), y = number_after(b, "loss");
        if (!(x - y < 3e-5 && y - x < 3e-5)) fail_msg("losses %.9g and %.9g", x, y);
    }
    assert_int_equal(lines, 6);
}

static void any_mesh_goes_on_from_any_other(void **state) {
    scene *s = *state;
    if (run(s, BASE "alone --training.steps 6" SIZES)) fail_msg("%s", s->err);
    char *alone = curve_of(s, "alone");
    static const char *const meshes[][2] = {{TP2, CP2}, {CP2, TP3}, {TP3, ""}, {TP3, "--ranks 2"}};
    for (int i = 0; i < 4; i++) {
        char dump[32];
        snprintf(dump, sizeof dump, "mesh-%d", i);
        char *curve = two_halves(s, dump, meshes[i][0], meshes[i][1]);
        compare_losses(curve, alone);
        free(curve);
    }
    free(alone);
}

// Damage in one rank's shard: all ranks pass over the checkpoint, and say so once.
static void a_damaged_shard_is_passed_over_by_all(void **state) {
    scene *s = *state;
    if (run(s, BASE "damaged --training.steps 6" SIZES TP2)) fail_msg("%s", s->err);
    char *text = read_scene_file(s, "damaged/checkpoint/step-6/shard-3.safetensors");
    char *path = ct_format("%s/damaged/checkpoint/step-6/shard-3.safetensors", s->folder);
    FILE *f = fopen(path, "r+b");
    assert_non_null(f);
    fseek(f, -8, SEEK_END);
    fwrite("\x7f\x7f\x7f\x7f", 1, 4, f);
    fclose(f);
    if (run(s, BASE "damaged --training.steps 7" SIZES TP2)) fail_msg("%s", s->err);
    char *first = strstr(s->err, "passing over");
    assert_non_null(first);
    assert_non_null(strstr(first, "shard-3.safetensors"));
    assert_null(strstr(first + 1, "passing over"));
    assert_non_null(strstr(s->err, "/step-3"));
    free(text), free(path);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(batches_split_otherwise_go_on_bit_for_bit, scene_open, scene_close),
        cmocka_unit_test_setup_teardown(any_mesh_goes_on_from_any_other, scene_open, scene_close),
        cmocka_unit_test_setup_teardown(a_damaged_shard_is_passed_over_by_all, scene_open, scene_close),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
