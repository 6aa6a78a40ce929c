// The example plugin's model trains on every mesh with no other code, 3 ranks included: the losses of one rank, and its bits where only the batch
// is split.
#include "../cli/command.h"

#include <math.h>

static char *curve(scene *s, const char *dump, const char *words) {
    const char *binary = getenv("CT_BINARY"), *slash = strrchr(binary, '/');
    if (run(s, "train examples/plugins/grouped.toml --plugins.paths %.*s/grouped_matmul.so --training.threads 1 --training.steps 6 "
               "--job.dump_folder ~/%s %s", (int)(slash - binary), binary, dump, words))
        fail_msg("%s: %s", words, s->err);
    return curve_of(s, dump);
}

static void the_example_trains_on_every_mesh(void **state) {
    scene *s = *state;
    char *alone = curve(s, "alone", "");
    static const char *const split[] = {"--ranks 2", "--ranks 3", "--ranks 6 --parallelism.data_parallel_replicate_degree 2"};
    for (int i = 0; i < 3; i++) {
        char dump[32];
        snprintf(dump, sizeof dump, "split-%d", i);
        char *got = curve(s, dump, split[i]);
        assert_string_equal(got, alone);
        free(got);
    }
    static const char *const cut[] = {"--ranks 2 --parallelism.tensor_parallel_degree 2", "--ranks 3 --parallelism.tensor_parallel_degree 3",
                                      "--ranks 3 --parallelism.context_parallel_degree 3", "--ranks 6 --parallelism.tensor_parallel_degree 6",
                                      "--ranks 8 --parallelism.tensor_parallel_degree 2 --parallelism.context_parallel_degree 2",
                                      "--ranks 2 --parallelism.tensor_parallel_degree 2 --activation_checkpoint.mode full"};
    for (int i = 0; i < 6; i++) {
        char dump[32];
        snprintf(dump, sizeof dump, "cut-%d", i);
        char *got = curve(s, dump, cut[i]);
        const char *a = alone, *b = got;
        int lines = 0;
        for (; (a = strstr(a, "loss")) && (b = strstr(b, "loss")); a++, b++, lines++) {
            double x = number_after(a, "loss"), y = number_after(b, "loss");
            if (!(fabs(x - y) <= 5e-6 * x)) fail_msg("%s: loss %.9g, on one rank %.9g", cut[i], y, x);
        }
        assert_int_equal(lines, 6);
        free(got);
    }
    free(alone);
}

// Documents of a plugin's data source beside a file's, shuffled: the same on any mesh, and a resumed run goes on with the next.
static void the_example_data_source_is_read_alike_on_every_mesh_and_resumed(void **state) {
    scene *s = *state;
    const char *binary = getenv("CT_BINARY"), *slash = strrchr(binary, '/');
    static const char *const runs[] = {
        "--training.steps 8",
        "--training.steps 8 --ranks 3",
        "--training.steps 4 --lr_scheduler.total_steps 8 --checkpoint.enable --checkpoint.no_last_save_model_only",
        "--training.steps 8 --checkpoint.enable --ranks 2",
    };
    static const char *const dumps[] = {"one", "three", "resumed", "resumed"};
    char *curves[4];
    for (int i = 0; i < 4; i++) {
        if (run(s, "train examples/plugins/sums.toml --plugins.paths [\"%.*s/grouped_matmul.so\",\"%.*s/sums.so\"] --training.threads 1 "
                   "--job.dump_folder ~/%s %s", (int)(slash - binary), binary, (int)(slash - binary), binary, dumps[i], runs[i]))
            fail_msg("%s: %s", runs[i], s->err);
        curves[i] = curve_of(s, dumps[i]);
    }
    assert_string_equal(curves[1], curves[0]);
    assert_string_equal(curves[3], curves[0]);
    for (int i = 0; i < 4; i++) free(curves[i]);
    expect(s, 1, "reader = \"sums\": no plugin of plugins.paths has such a data source",
           "train examples/plugins/sums.toml --plugins.paths %.*s/grouped_matmul.so --job.dump_folder ~/x", (int)(slash - binary), binary);
}

static void a_plugin_that_is_not_there_is_one_message(void **state) {
    expect(*state, 1, "plugin ./none.so; plugins.paths from --plugins.paths", "train examples/plugins/grouped.toml --plugins.paths ./none.so");
    expect(*state, 1, "the models there are: llama3", "train examples/plugins/grouped.toml --plugins.paths [] --job.dump_folder ~/x");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(the_example_trains_on_every_mesh, scene_open, scene_close),
        cmocka_unit_test_setup_teardown(the_example_data_source_is_read_alike_on_every_mesh_and_resumed, scene_open, scene_close),
        cmocka_unit_test_setup_teardown(a_plugin_that_is_not_there_is_one_message, scene_open, scene_close),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
