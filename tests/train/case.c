// Fixtures as running trainers.
#include "case.h"
#include "base/file.h"
#include "checkpoint/safetensors.h"

#include <cjson/cJSON.h>
#include <unistd.h>

static double number(const cJSON *object, const char *key) {
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, key);
    return cJSON_IsNumber(item) ? item->valuedouble : 0;
}

static char *read_text(const char *folder, const char *file) {
    char *path = ct_format("%s/%s", folder, file), *text;
    assert_ok(ct_file_read(path, 0, &text, NULL));
    free(path);
    return text;
}

static char *read_sizes(titan_case *c) {
    char *text = read_text(c->folder, "case.json");
    cJSON *json = cJSON_Parse(text);
    c->steps = (int64_t)number(json, "steps");
    c->micro = (int64_t)number(json, "micro");
    c->batch = (int64_t)number(json, "batch");
    c->seq_len = (int64_t)number(json, "seq_len");
    char *init = ct_format("tests/train/fixtures/titan/%s", cJSON_GetObjectItemCaseSensitive(json, "init")->valuestring);
    cJSON_Delete(json);
    free(text);
    return init;
}

static void read_curve(titan_case *c) {
    char *text = read_text(c->folder, "steps.jsonl"), *save = NULL;
    c->loss = ct_calloc((size_t)c->steps, sizeof(double));
    c->grad_norm = ct_calloc((size_t)c->steps, sizeof(double));
    c->lr = ct_calloc((size_t)c->steps, sizeof(double));
    int64_t n = 0;
    for (char *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save), n++) {
        cJSON *json = cJSON_Parse(line);
        assert_true(n < c->steps);
        c->loss[n] = number(json, "loss");
        c->grad_norm[n] = number(json, "grad_norm");
        c->lr[n] = number(json, "lr");
        cJSON_Delete(json);
    }
    assert_int_equal(n, c->steps);
    free(text);
}

void case_open(titan_case *c, const char *name, const char *const *overrides, const char *dump) {
    assert_int_equal(chdir(CT_SOURCE_DIR), 0);
    *c = (titan_case){.folder = ct_format("tests/train/fixtures/titan/%s", name)};
    if (dump) c->dump = ct_strdup(dump);
    else {
        char template[] = "/tmp/ct_case_XXXXXX";
        assert_non_null(mkdtemp(template));
        c->dump = ct_strdup(template);
    }
    char *init = read_sizes(c), *argv[64];
    read_curve(c);
    const char *fixed[] = {"--job.dump_folder", c->dump, "--checkpoint.enable", "--checkpoint.initial_load_path", init,
                           "--checkpoint.initial_load_in_hf", "--checkpoint.interval", "1000000"};
    int argc = 0;
    for (size_t i = 0; i < sizeof fixed / sizeof *fixed; i++) argv[argc++] = (char *)fixed[i];
    for (int i = 0; overrides && overrides[i]; i++) argv[argc++] = (char *)overrides[i];
    char *path = ct_format("%s/config.toml", c->folder);
    assert_ok(ct_config_load(&c->arena, path, argc, argv, &c->config));
    assert_ok(ct_config_check_train(c->config, NULL, NULL));
    assert_ok(ct_trainer_create(c->config, NULL, &c->trainer));
    free(path);
    free(init);
}

void case_close(titan_case *c, int keep_dump) {
    ct_trainer_destroy(c->trainer);
    if (!keep_dump) assert_ok(ct_folder_remove(c->dump));
    ct_arena_deinit(&c->arena);
    free(c->folder);
    free(c->dump);
    free(c->loss);
    free(c->grad_norm);
    free(c->lr);
    *c = (titan_case){0};
}

const char *test_data(void) {
    const char *folder = getenv("CT_TESTDATA");
    if (!folder) folder = CT_SOURCE_DIR "/../shared/data";
    if (ct_path_is_folder(folder)) return folder;
    printf("SKIPPED: the data folder %s (CT_TESTDATA) is absent\n", folder);
    return NULL;
}

void load_array(const char *path, const char *name, ct_dtype dtype, void *data, int64_t elems) {
    ct_safetensors f;
    assert_ok(ct_safetensors_open(path, &f));
    const ct_safetensors_entry *e = ct_safetensors_find(&f, name);
    if (!e) fail_msg("%s has no %s", path, name);
    ct_named_tensor t = {.name = name, .dtype = dtype, .dims = e->dims, .data = data};
    int64_t n = 1;
    for (int d = 0; d < e->dims; d++) n *= t.shape[d] = e->shape[d];
    assert_int_equal(n, elems);
    void *buffer = ct_malloc(CT_READ_BUFFER_BYTES);
    assert_ok(ct_safetensors_read(&f, e, NULL, &t, &(ct_read_options){.buffer = buffer}, NULL));
    free(buffer);
    ct_safetensors_close(&f);
}
