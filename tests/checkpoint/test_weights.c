// Weights of other programs: what transformers wrote is read into the tensors that torchtitan's own adapter makes of it, goes out again
// unchanged, and llama2.c's file is read. (fixtures/make_fixtures.py made the Hugging Face folders and the expected tensors.)
#include "support.h"

#include "checkpoint/safetensors.h"
#include "checkpoint/weights.h"

#include <math.h>

#define FIXTURES CT_SOURCE_DIR "/tests/checkpoint/fixtures/"

// Loads all of a weights' tensors as f32; arena owns them.
static ct_named_tensor *load_all(ct_arena *arena, const ct_weights *weights) {
    int count = ct_weights_count(weights);
    ct_named_tensor *tensors = CT_ARENA_ARRAY(arena, ct_named_tensor, count);
    for (int i = 0; i < count; i++) {
        tensors[i] = ct_weights_tensor(weights, i);
        tensors[i].dtype = CT_F32;
        tensors[i].data = ct_arena_alloc(arena, ct_named_tensor_bytes(&tensors[i]));
    }
    OK(ct_weights_load(weights, NULL, tensors, count));
    return tensors;
}

// Compares with a safetensors file of the same names.
static void expect_tensors(const ct_named_tensor *tensors, int count, const char *path) {
    ct_safetensors file;
    OK(ct_safetensors_open(path, &file));
    assert_int_equal(file.count, count);
    void *buffer = malloc(CT_READ_BUFFER_BYTES);
    for (int i = 0; i < count; i++) {
        const ct_safetensors_entry *entry = ct_safetensors_find(&file, tensors[i].name);
        if (!entry) fail_msg("%s is not in %s", tensors[i].name, path);
        ct_named_tensor expected = tensors[i];
        expected.data = malloc(ct_named_tensor_bytes(&expected));
        OK(ct_safetensors_read(&file, entry, NULL, &expected, &(ct_read_options){.buffer = buffer}, NULL));
        if (memcmp(expected.data, tensors[i].data, ct_named_tensor_bytes(&expected))) fail_msg("%s differs", tensors[i].name);
        free(expected.data);
    }
    free(buffer);
    ct_safetensors_close(&file);
}

static void a_hugging_face_folder_becomes_torchtitans_tensors(void **state) {
    (void)state;
    ct_weights *weights;
    ct_arena arena = {0};
    OK(ct_weights_open(FIXTURES "hf", NULL, NULL, NULL, &weights));
    const ct_llama_shape *s = ct_weights_shape(weights);
    assert_true(s->dim == 32 && s->n_layers == 2 && s->n_heads == 4 && s->n_kv_heads == 2 && s->ffn_dim == 48 && s->vocab_size == 40);
    assert_true(s->norm_eps == 1e-5 && s->rope_theta == 500000 && s->rope_scaling_factor == 8 && s->rope_low_freq_factor == 1 &&
                s->rope_high_freq_factor == 4 && s->rope_original_max_seq_len == 8192 && s->max_seq_len == 131072 && !s->tied);
    expect_tensors(load_all(&arena, weights), ct_weights_count(weights), FIXTURES "titan.safetensors");
    ct_weights_close(weights);
    ct_arena_deinit(&arena);
}

static void a_tied_model_in_several_f16_files_is_read(void **state) {
    (void)state;
    ct_weights *weights;
    ct_arena arena = {0};
    OK(ct_weights_open(FIXTURES "hf_tied", NULL, NULL, NULL, &weights));
    const ct_llama_shape *s = ct_weights_shape(weights);
    assert_true(s->tied && s->n_kv_heads == 1 && s->norm_eps == 1e-6 && s->rope_scaling_factor == 0 && s->rope_theta == 10000);
    expect_tensors(load_all(&arena, weights), ct_weights_count(weights), FIXTURES "titan_tied.safetensors");
    ct_weights_close(weights);
    ct_arena_deinit(&arena);
}

static void a_rank_reads_only_its_box_of_a_rotary_tensor(void **state) {
    (void)state;
    ct_weights *weights;
    ct_arena arena = {0};
    OK(ct_weights_open(FIXTURES "hf", NULL, NULL, NULL, &weights));
    const float *whole = load_all(&arena, weights)[1].data; // layers.0.attention.wq.weight
    for (int64_t row = 0; row < 32; row += 5)
        for (int64_t column = 0; column < 32; column += 7) {
            float piece[5 * 7];
            ct_named_tensor t = {.name = "layers.0.attention.wq.weight", .dims = 2, .shape = {32, 32}, .is_piece = 1, .data = piece};
            t.box = (ct_box){{row, column}, {row + 5 > 32 ? 32 - row : 5, column + 7 > 32 ? 32 - column : 7}};
            OK(ct_weights_load(weights, &(ct_load_options){.allow_unexpected = 1}, &t, 1));
            for (int64_t i = 0; i < t.box.extent[0]; i++)
                for (int64_t j = 0; j < t.box.extent[1]; j++)
                    assert_true(piece[i * t.box.extent[1] + j] == whole[(row + i) * 32 + column + j]);
        }
    ct_weights_close(weights);
    ct_arena_deinit(&arena);
}

static void without_config_json_the_heads_must_be_known(void **state) {
    char *path = ct_format("%s/other name.safetensors", (char *)*state);
    size_t size;
    char *bytes = read_all(FIXTURES "hf/model.safetensors", &size);
    write_all(path, bytes, size);
    free(bytes);
    ct_weights *weights;
    expect_error(ct_weights_open(*state, NULL, NULL, NULL, &weights), CT_INVALID, "number of heads", NULL);
    ct_llama_shape known = {.n_heads = 4};
    const char *places[] = {*state, path};
    for (int i = 0; i < 2; i++) {
        ct_arena arena = {0};
        OK(ct_weights_open(places[i], &known, NULL, NULL, &weights));
        assert_true(ct_weights_shape(weights)->n_kv_heads == 2 && ct_weights_shape(weights)->ffn_dim == 48);
        expect_tensors(load_all(&arena, weights), ct_weights_count(weights), FIXTURES "titan.safetensors");
        ct_weights_close(weights);
        ct_arena_deinit(&arena);
    }
    known.dim = 64;
    expect_error(ct_weights_open(path, &known, NULL, NULL, &weights), CT_INVALID, "dim is 32", "64", NULL);
    free(path);
}

static void note(void *context, const char *text) {
    char *all = context;
    snprintf(all + strlen(all), 1000 - strlen(all), "%s\n", text);
}

static void what_config_and_folder_disagree_on_is_said(void **state) {
    (void)state;
    ct_weights *weights;
    char warnings[1000] = "";
    ct_llama_shape known = {.dim = 32, .n_layers = 2, .n_heads = 8, .n_kv_heads = 2, .ffn_dim = 48, .vocab_size = 40};
    expect_error(ct_weights_open(FIXTURES "hf", &known, note, warnings, &weights), CT_INVALID, "heads is 4", "8", NULL);
    known.n_heads = 4, known.norm_eps = 1e-6, known.rope_theta = 10000;
    OK(ct_weights_open(FIXTURES "hf", &known, note, warnings, &weights));
    assert_true(ct_weights_shape(weights)->rope_theta == 10000 && ct_weights_shape(weights)->norm_eps == 1e-6);
    ct_weights_close(weights);
    assert_non_null(strstr(warnings, "norm_eps is 1e-05 there"));
    assert_non_null(strstr(warnings, "rope_theta is 500000 there"));
    assert_non_null(strstr(warnings, "scaling factor is 8 there"));
    float head[40 * 32];
    ct_named_tensor wanted = {.name = "output.weight", .dims = 2, .shape = {24, 16}, .data = head};
    OK(ct_weights_open(FIXTURES "hf_tied", NULL, NULL, NULL, &weights));
    expect_error(ct_weights_load(weights, &(ct_load_options){.allow_unexpected = 1}, &wanted, 1), CT_INVALID, "missing (output.weight)", NULL);
    ct_weights_close(weights);
}

// ---- out again ----
static void compare_folders(const char *folder, const ct_named_tensor *tensors, int count) {
    ct_weights *weights;
    ct_arena arena = {0};
    OK(ct_weights_open(folder, NULL, NULL, NULL, &weights));
    assert_int_equal(ct_weights_count(weights), count);
    assert_true(same_data(load_all(&arena, weights), tensors, count));
    ct_weights_close(weights);
    ct_arena_deinit(&arena);
}

static void what_came_in_goes_out_the_same(void **state) {
    static const char *const names[] = {"hf", "hf_tied"};
    for (int n = 0; n < 2; n++)
        for (int dtype = 0; dtype < 3; dtype++) {
            if (n == 1 && dtype == CT_EXPORT_BF16) continue; // f16 weights do not fit into bf16
            char *from = ct_format(FIXTURES "%s", names[n]), *to = ct_format("%s/%s-%d%s", (char *)*state, names[n], dtype, dtype ? "" : "/");
            ct_weights *weights;
            ct_arena arena = {0};
            OK(ct_weights_open(from, NULL, NULL, NULL, &weights));
            ct_named_tensor *tensors = load_all(&arena, weights);
            int count = ct_weights_count(weights);
            ct_hf_export_options options = {.folder = to, .dtype = (ct_export_dtype)dtype, .max_file_bytes = dtype ? 3000 : 0,
                                            .has_tokens = 1, .bos_token_id = 1, .eos_token_id = 2};
            if (n == 0 && dtype == CT_EXPORT_F16) options.max_file_bytes = 0;
            OK(ct_hf_export(&options, ct_weights_shape(weights), tensors, count));
            if (n || dtype != CT_EXPORT_F16) compare_folders(to, tensors, count); // bf16's small values round in f16
            expect_error(ct_hf_export(&options, ct_weights_shape(weights), tensors, count), CT_INVALID, to, "not empty", NULL);
            ct_weights_close(weights);
            ct_arena_deinit(&arena);
            free(from), free(to);
        }
}

static void an_exported_file_has_the_bytes_of_transformers(void **state) {
    char *to = ct_format("%s/out", (char *)*state), *path = ct_format("%s/model.safetensors", to);
    ct_weights *weights;
    ct_arena arena = {0};
    OK(ct_weights_open(FIXTURES "hf", NULL, NULL, NULL, &weights));
    OK(ct_hf_export(&(ct_hf_export_options){.folder = to, .dtype = CT_EXPORT_BF16}, ct_weights_shape(weights), load_all(&arena, weights),
                    ct_weights_count(weights)));
    ct_weights_close(weights);
    ct_arena_deinit(&arena);
    ct_safetensors theirs, ours;
    OK(ct_safetensors_open(FIXTURES "hf/model.safetensors", &theirs));
    OK(ct_safetensors_open(path, &ours));
    void *buffer = malloc(CT_READ_BUFFER_BYTES);
    assert_int_equal(ours.count, theirs.count);
    for (int i = 0; i < theirs.count; i++) {
        ct_checksum a, b;
        assert_string_equal(ours.entries[i].name, theirs.entries[i].name);
        OK(ct_safetensors_checksum(&ours, &ours.entries[i], &(ct_read_options){.buffer = buffer}, &a));
        OK(ct_safetensors_checksum(&theirs, &theirs.entries[i], &(ct_read_options){.buffer = buffer}, &b));
        assert_string_equal(a.hex, b.hex);
    }
    free(buffer), free(to), free(path);
    ct_safetensors_close(&ours), ct_safetensors_close(&theirs);
}

static void values_beyond_f16_are_named(void **state) {
    char *to = ct_format("%s/out", (char *)*state);
    ct_weights *weights;
    ct_arena arena = {0};
    OK(ct_weights_open(FIXTURES "hf_tied", NULL, NULL, NULL, &weights));
    ct_named_tensor *tensors = load_all(&arena, weights);
    ((float *)tensors[3].data)[5] = 70000;
    expect_error(ct_hf_export(&(ct_hf_export_options){.folder = to, .dtype = CT_EXPORT_F16}, ct_weights_shape(weights), tensors,
                              ct_weights_count(weights)),
                 CT_INVALID, tensors[3].name, "f16", NULL);
    assert_false(ct_path_exists(to));
    expect_error(ct_hf_export(&(ct_hf_export_options){.folder = to}, ct_weights_shape(weights), tensors, ct_weights_count(weights) - 1),
                 CT_INVALID, "missing (norm.weight)", NULL);
    ct_weights_close(weights);
    ct_arena_deinit(&arena);
    free(to);
}

// ---- bad input ----
static void copy_fixture(const char *folder, const char *name, const char *old, const char *new) {
    char *from = ct_format(FIXTURES "hf/%s", name), *to = ct_format("%s/%s", folder, name);
    size_t size;
    char *bytes = read_all(from, &size), *place = old ? strstr(bytes, old) : NULL;
    assert_true(!old || place);
    ct_string text = {0};
    ct_string_add_bytes(&text, bytes, old ? (size_t)(place - bytes) : size);
    if (old) ct_string_add(&text, "%s%s", new, place + strlen(old));
    write_all(to, text.text, text.length);
    ct_string_deinit(&text);
    free(bytes), free(from), free(to);
}

static void foreign_configs_are_refused_by_name(void **state) {
    static const struct {
        const char *old, *new;
        ct_code code;
        const char *word;
    } cases[] = {
        {"\"model_type\": \"llama\"", "\"model_type\": \"mamba\"", CT_UNSUPPORTED, "mamba"},
        {"\"attention_bias\": false", "\"attention_bias\": true", CT_UNSUPPORTED, "attention_bias"},
        {"\"silu\"", "\"gelu\"", CT_UNSUPPORTED, "gelu"},
        {"\"llama3\"", "\"yarn\"", CT_UNSUPPORTED, "yarn"},
        {"\"factor\": 8.0", "\"factor\": 0", CT_INVALID, "factor"},
        {"\"head_dim\": 8", "\"head_dim\": 16", CT_UNSUPPORTED, "head_dim 16"},
        {"\"vocab_size\": 40", "\"quantization_config\": {}", CT_UNSUPPORTED, "quantization_config"},
        {"\"num_hidden_layers\": 2", "\"num_hidden_layers\": 3", CT_INVALID, "layers is 2"},
        {"\"num_hidden_layers\": 2", "\"num_hidden_layers\": -1", CT_INVALID, "layers is 2"},
        {"\"num_attention_heads\": 4,", "\"num_attention_heads\": 3,", CT_UNSUPPORTED, "head_dim 8 × 3 heads"},
        {"\"hidden_size\": 32", "\"hidden_size\": \"32\"", CT_CORRUPT, "wanted a number"},
        {"\"vocab_size\": 40\n}", "\"vocab_size\": 40", CT_CORRUPT, "the text ends"},
    };
    copy_fixture(*state, "model.safetensors", NULL, NULL);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *json = ct_format("%s", cases[i].old);
        copy_fixture(*state, "config.json", json, cases[i].new);
        free(json);
        ct_weights *weights;
        ct_status status = ct_weights_open(*state, NULL, NULL, NULL, &weights);
        if (!status) fail_msg("case %zu was taken", i);
        expect_error(status, cases[i].code, cases[i].word, NULL);
    }
}

static void files_that_do_not_fit_are_refused(void **state) {
    ct_weights *weights;
    expect_error(ct_weights_open("/nowhere", NULL, NULL, NULL, &weights), CT_NOT_FOUND, "/nowhere", NULL);
    expect_error(ct_weights_open(*state, NULL, NULL, NULL, &weights), CT_NOT_FOUND, "no .safetensors", NULL);
    char *path = ct_format("%s/model.safetensors.index.json", (char *)*state);
    write_all(path, "{\"weight_map\": {\"a\": \"../../etc/x.safetensors\"}}", 49);
    expect_error(ct_weights_open(*state, NULL, NULL, NULL, &weights), CT_CORRUPT, "index.json", "'../../etc", NULL);
    write_all(path, "{\"weight_map\": {\"a\": \"b.safetensors\"}}", 39);
    expect_error(ct_weights_open(*state, NULL, NULL, NULL, &weights), CT_CORRUPT, "index.json", NULL);
    write_all(path, "{\"weight_map\": {\"a\": \"b.safetensors\"}}", 38);
    expect_error(ct_weights_open(*state, NULL, NULL, NULL, &weights), CT_NOT_FOUND, "b.safetensors", NULL);
    unlink(path);
    free(path);
    copy_fixture(*state, "config.json", NULL, NULL);
    copy_fixture(*state, "model.safetensors", NULL, NULL);
    char *model = ct_format("%s/model.safetensors", (char *)*state);
    size_t size;
    char *bytes = read_all(model, &size);
    memcpy(memmem(bytes, size, "layers.1.mlp.up_proj", 20), "layers.1.mlp.up_prok", 20);
    write_all(model, bytes, size);
    expect_error(ct_weights_open(*state, NULL, NULL, NULL, &weights), CT_INVALID, "missing (model.layers.1.mlp.up_proj.weight)",
                 "not asked for (model.layers.1.mlp.up_prok.weight)", NULL);
    free(bytes), free(model);
}

// ---- llama2.c ----
static const char *test_data(void) {
    const char *folder = getenv("CT_TESTDATA");
    if (!folder) folder = CT_SOURCE_DIR "/../shared/data";
    if (ct_path_is_folder(folder)) return folder;
    print_message("skipped: there is no %s\n", folder);
    return NULL;
}

static void llama2c_weights_are_read(void **state) {
    (void)state;
    if (!test_data()) skip();
    char *path = ct_format("%s/weights/stories260K.bin", test_data());
    ct_weights *weights;
    ct_arena arena = {0};
    OK(ct_weights_open(path, NULL, NULL, NULL, &weights));
    const ct_llama_shape *s = ct_weights_shape(weights);
    assert_true(s->dim == 64 && s->n_layers == 5 && s->n_heads == 8 && s->n_kv_heads == 4 && s->ffn_dim == 172 && s->vocab_size == 512 &&
                s->max_seq_len == 512 && s->tied && s->norm_eps == 1e-5 && s->rope_theta == 10000);
    ct_named_tensor *tensors = load_all(&arena, weights);
    int count = ct_weights_count(weights);
    assert_int_equal(count, 2 + 5 * 9);
    // The layout by hand: floats behind the 28 bytes, each kind for all layers at once.
    size_t size;
    char *bytes = read_all(path, &size);
    const float *f = (const float *)(const void *)(bytes + 28);
    const size_t embedding = 512 * 64, norms = 5 * 64, wq = 5 * 64 * 64, wk = 5 * 32 * 64, w1 = 5 * 172 * 64;
    const struct {
        const char *name;
        size_t place;
    } places[] = {{"tok_embeddings.weight", 0},
                  {"layers.3.attention_norm.weight", embedding + 3 * 64},
                  {"layers.4.attention.wq.weight", embedding + norms + 4 * 64 * 64},
                  {"layers.1.attention.wk.weight", embedding + norms + wq + 32 * 64},
                  {"layers.1.attention.wv.weight", embedding + norms + wq + wk + 32 * 64},
                  {"layers.2.attention.wo.weight", embedding + norms + wq + 2 * wk + 2 * 64 * 64},
                  {"layers.2.ffn_norm.weight", embedding + norms + 2 * wq + 2 * wk + 2 * 64},
                  {"layers.1.feed_forward.w1.weight", embedding + 2 * norms + 2 * wq + 2 * wk + 172 * 64},
                  {"layers.1.feed_forward.w2.weight", embedding + 2 * norms + 2 * wq + 2 * wk + w1 + 172 * 64},
                  {"layers.1.feed_forward.w3.weight", embedding + 2 * norms + 2 * wq + 2 * wk + 2 * w1 + 172 * 64},
                  {"norm.weight", embedding + 2 * norms + 2 * wq + 2 * wk + 3 * w1}};
    for (size_t p = 0; p < sizeof places / sizeof *places; p++)
        for (int i = 0; i < count; i++)
            if (!strcmp(tensors[i].name, places[p].name))
                assert_memory_equal(tensors[i].data, f + places[p].place, ct_named_tensor_bytes(&tensors[i]));
    assert_int_equal(size, 28 + 4 * (embedding + 2 * norms + 2 * wq + 2 * wk + 3 * w1 + 64 + 512 * 8));
    ct_weights_close(weights);
    ct_arena_deinit(&arena);
    free(bytes), free(path);
}

static void cut_off_llama2c_files_are_refused(void **state) {
    char *path = ct_format("%s/x.bin", (char *)*state);
    // dim 4, FFN 6, 1 layer, 2 heads, 1 KV head, vocabulary 3 not tied, context 2: 12 + 4 + 16 + 8 + 8 + 16 + 4 + 72 + 4 + 4 + 12 floats
    int32_t h[7 + 160] = {4, 6, 1, 2, 1, -3, 2};
    size_t size = 28 + 4 * 160;
    ct_weights *weights;
    write_all(path, h, size);
    OK(ct_weights_open(path, NULL, NULL, NULL, &weights));
    assert_int_equal(ct_weights_count(weights), 12);
    ct_weights_close(weights);
    for (size_t n = 0; n < size; n++) {
        write_all(path, h, n);
        ct_status status = ct_weights_open(path, NULL, NULL, NULL, &weights);
        expect_error(status, CT_CORRUPT, "x.bin", NULL);
    }
    for (int field = 0; field < 7; field++)
        for (int v = 0; v < 4; v++) {
            int32_t old = h[field];
            h[field] = (int32_t[]){0, INT32_MIN, INT32_MAX, 7}[v];
            write_all(path, h, size);
            h[field] = old;
            ct_status status = ct_weights_open(path, NULL, NULL, NULL, &weights);
            if (!status) fail_msg("field %d, value %d was taken", field, v);
        }
    h[0] = 0x616b3432;
    write_all(path, h, size);
    expect_error(ct_weights_open(path, NULL, NULL, NULL, &weights), CT_UNSUPPORTED, "legacy", NULL);
    free(path);
}

// ---- shapes ----
static void a_shape_survives_its_texts(void **state) {
    (void)state;
    ct_llama_shape shape = {.dim = 64, .n_layers = 3, .n_heads = 8, .n_kv_heads = 2, .ffn_dim = 172, .vocab_size = 512, .max_seq_len = 77,
                            .norm_eps = 1.1e-5, .rope_theta = 500000, .rope_scaling_factor = 8, .rope_low_freq_factor = 1,
                            .rope_high_freq_factor = 4.25, .rope_original_max_seq_len = 8192, .tied = 1}, back = {0};
    ct_string json = {0}, toml = {0};
    ct_llama_shape_print(&shape, &json);
    OK(ct_llama_shape_parse("here", json.text, &back));
    assert_memory_equal(&shape, &back, offsetof(ct_llama_shape, tied));
    assert_true(back.tied);
    ct_llama_shape_print_toml(&shape, &toml);
    assert_non_null(strstr(toml.text, "\n[model.args]\ndim = 64\nn_layers = 3\nn_heads = 8\nn_kv_heads = 2\nhidden_dim = 172\n"));
    assert_non_null(strstr(toml.text, "norm_eps = 1.1e-05\nrope_theta = 500000.0\n"));
    assert_non_null(strstr(toml.text, "enable_weight_tying = true\n"));
    ct_string_deinit(&json), ct_string_deinit(&toml);
    expect_error(ct_llama_shape_parse("here", "{\"dim\": 64}", &back), CT_INVALID, "here", NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_hugging_face_folder_becomes_torchtitans_tensors),
        cmocka_unit_test(a_tied_model_in_several_f16_files_is_read),
        cmocka_unit_test(a_rank_reads_only_its_box_of_a_rotary_tensor),
        cmocka_unit_test_setup_teardown(without_config_json_the_heads_must_be_known, make_folder, remove_folder),
        cmocka_unit_test(what_config_and_folder_disagree_on_is_said),
        cmocka_unit_test_setup_teardown(what_came_in_goes_out_the_same, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(an_exported_file_has_the_bytes_of_transformers, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(values_beyond_f16_are_named, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(foreign_configs_are_refused_by_name, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(files_that_do_not_fit_are_refused, make_folder, remove_folder),
        cmocka_unit_test(llama2c_weights_are_read),
        cmocka_unit_test_setup_teardown(cut_off_llama2c_files_are_refused, make_folder, remove_folder),
        cmocka_unit_test(a_shape_survives_its_texts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
