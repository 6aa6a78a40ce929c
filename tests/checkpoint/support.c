#include "support.h"

#include <sys/stat.h>

void expect_error(ct_status status, ct_code code, ...) {
    if (!status) fail_msg("an error was expected");
    const char *text = ct_error_text(status), *word;
    if (ct_error_code(status) != code) fail_msg("code %d, not %d: %s", ct_error_code(status), code, text);
    if (strchr(text, '\n')) fail_msg("more than one line: %s", text);
    va_list words;
    va_start(words, code);
    while ((word = va_arg(words, const char *)))
        if (!strstr(text, word)) fail_msg("'%s' is not in: %s", word, text);
    va_end(words);
}

int make_folder(void **state) {
    char *path = strdup("/tmp/ct_checkpoint_XXXXXX");
    *state = mkdtemp(path);
    return *state == NULL;
}

int remove_folder(void **state) {
    ct_status status = ct_folder_remove(*state);
    free(*state);
    return status != NULL;
}

static const ct_named_tensor model[TENSORS] = {
    {.name = "tok_embeddings.weight", .dtype = CT_F32, .dims = 2, .shape = {37, 12}},
    {.name = "layers.0.attention.wq.weight", .dtype = CT_BF16, .dims = 2, .shape = {12, 5}},
    {.name = "layers.0.attention_norm.weight", .dtype = CT_F32, .dims = 1, .shape = {12}},
    {.name = "optimizer.tok_embeddings.weight.exp_avg", .dtype = CT_F64, .dims = 3, .shape = {2, 3, 4}},
    {.name = "counts", .dtype = CT_I64, .dims = 1, .shape = {3}},
    {.name = "step", .dtype = CT_I32, .dims = 0},
    {.name = "nothing", .dtype = CT_F32, .dims = 2, .shape = {0, 4}},
};

ct_named_tensor *empty_tensors(ct_arena *arena) {
    ct_named_tensor *tensors = CT_ARENA_ARRAY(arena, ct_named_tensor, TENSORS);
    for (int i = 0; i < TENSORS; i++) {
        tensors[i] = model[i];
        tensors[i].data = ct_arena_alloc(arena, ct_named_tensor_bytes(&model[i]) + 8);
        memset(tensors[i].data, 0xa5, ct_named_tensor_bytes(&model[i]));
    }
    return tensors;
}

static uint64_t next(uint64_t *seed) { // splitmix64
    uint64_t z = (*seed += 0x9e3779b97f4a7c15u);
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

ct_named_tensor *make_tensors(ct_arena *arena, uint64_t seed) {
    ct_named_tensor *tensors = empty_tensors(arena);
    for (int i = 0; i < TENSORS; i++) {
        int64_t elems = ct_named_tensor_elems(&tensors[i]);
        for (int64_t e = 0; e < elems; e++) {
            double x = (double)(int64_t)(next(&seed) >> 40) / 65536 - 64; // exact in f32, not in bf16
            if (tensors[i].dtype == CT_F32) ((float *)tensors[i].data)[e] = (float)x;
            else if (tensors[i].dtype == CT_BF16) ((uint16_t *)tensors[i].data)[e] = ct_bf16_from_f32((float)x);
            else if (tensors[i].dtype == CT_F64) ((double *)tensors[i].data)[e] = x / 3;
            else if (tensors[i].dtype == CT_I32) ((int32_t *)tensors[i].data)[e] = (int32_t)next(&seed);
            else ((int64_t *)tensors[i].data)[e] = (int64_t)next(&seed);
        }
    }
    return tensors;
}

int same_data(const ct_named_tensor *a, const ct_named_tensor *b, int count) {
    for (int i = 0; i < count; i++)
        if (memcmp(a[i].data, b[i].data, ct_named_tensor_bytes(&a[i]))) return 0;
    return 1;
}

char *read_all(const char *path, size_t *out_size) {
    char *text = NULL;
    OK(ct_file_read(path, 0, &text, out_size));
    return text;
}

void write_all(const char *path, const void *bytes, size_t size) {
    FILE *file = fopen(path, "wb");
    if (!file || fwrite(bytes, 1, size, file) != size || fclose(file)) fail_msg("cannot write %s", path);
}

const char *join(ct_arena *arena, const char *folder, const char *name) { return ct_arena_format(arena, "%s/%s", folder, name); }
