// A Hugging Face folder, written beside its place and renamed when it is complete. One tensor at a time is brought into its rows' order and
// element type; numbered files and an index where one file would be too large, as save_pretrained does it.
#include "base/file.h"
#include "convert.h"
#include "folder.h"
#include "llama.h"
#include "match.h"

#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    const ct_hf_export_options *options;
    const ct_llama_tensor *model;
    const ct_named_tensor *tensors;
    const int *given;             // model's tensor → index into tensors
    ct_safetensors_item *items;   // one a tensor of the model
    int count, first;             // first: of the file being written
    void *scratch;                // the largest tensor, converted
    size_t done, total;
    const char *folder; // where it is written
} exporting;

static ct_stored_type stored_type(ct_export_dtype dtype) {
    return dtype == CT_EXPORT_BF16 ? CT_ST_BF16 : dtype == CT_EXPORT_F16 ? CT_ST_F16 : CT_ST_F32;
}

// ---- one tensor ----
static float element(const ct_named_tensor *tensor, const void *data, int64_t i) {
    return tensor->dtype == CT_BF16 ? ct_f32_from_bf16(((const uint16_t *)data)[i]) : ((const float *)data)[i];
}

// Converts a row; for f16, 0 where a finite value does not fit.
static int convert_row(const ct_named_tensor *tensor, const void *data, int64_t begin, int64_t columns, ct_stored_type type, void *out) {
    int fits = 1;
    for (int64_t c = 0; c < columns; c++) {
        float x = element(tensor, data, begin + c);
        if (type == CT_ST_F32) ((float *)out)[c] = x;
        else if (type == CT_ST_BF16) ((uint16_t *)out)[c] = ct_bf16_from_f32(x);
        else {
            uint16_t half = ((uint16_t *)out)[c] = ct_f16_from_f32(x);
            fits &= (half & 0x7fff) != 0x7c00 || isinf(x);
        }
    }
    return fits;
}

static ct_status produce(void *context, int index, const void **out_bytes) {
    exporting *e = context;
    const ct_llama_tensor *model = &e->model[e->first + index];
    const ct_named_tensor *tensor = &e->tensors[e->given[e->first + index]];
    const ct_safetensors_item *item = &e->items[e->first + index];
    const void *data = tensor->data;
    if (!data) CT_TRY(e->options->fetch(e->options->context, tensor, &data));
    int64_t rows = item->dims == 2 ? item->shape[0] : 1, columns = item->shape[item->dims - 1];
    size_t row_bytes = (size_t)columns * (size_t)ct_stored_type_bits(item->type) / 8;
    for (int64_t row = 0; row < rows; row++) {
        int64_t to = model->head_rows ? ct_llama_hf_row(row, model->head_rows) : row;
        CT_CHECK(convert_row(tensor, data, row * columns, columns, item->type, (char *)e->scratch + (size_t)to * row_bytes), CT_INVALID,
                 "%s has values beyond what f16 holds (65504)", tensor->name);
    }
    *out_bytes = e->scratch;
    return CT_OK;
}

static void advance(void *context, size_t bytes) {
    exporting *e = context;
    e->done += bytes;
    if (e->options->progress) e->options->progress(e->options->context, e->done, e->total);
}

// ---- the files ----
static size_t item_bytes(const exporting *e, int i) {
    return (size_t)ct_named_tensor_elems(&e->model[i].tensor) * (size_t)ct_stored_type_bits(e->items[i].type) / 8;
}

// The item behind the last that fits into the file beginning with `first`.
static int file_end(const exporting *e, int first) {
    size_t most = e->options->max_file_bytes ? e->options->max_file_bytes : 5000000000u, bytes = item_bytes(e, first);
    int end = first + 1;
    while (end < e->count && bytes + item_bytes(e, end) <= most) bytes += item_bytes(e, end++);
    return end;
}

static ct_status write_file(exporting *e, int first, int end, const char *name) {
    char *path = ct_format("%s/%s", e->folder, name);
    size_t bytes;
    ct_checksum sum;
    e->first = first;
    ct_safetensors_write_options write = {path, "{\"format\":\"pt\"}", produce, advance, e};
    ct_status status = ct_safetensors_write(&write, e->items + first, end - first, &bytes, &sum);
    free(path);
    return status;
}

static ct_status write_text(const exporting *e, const char *name, const ct_string *text) {
    char *path = ct_format("%s/%s", e->folder, name);
    ct_status status = ct_file_write_atomic(path, text->text, text->length);
    free(path);
    return status;
}

static ct_status write_numbered(exporting *e, int files, ct_string *index) {
    ct_string_add(index, "{\n  \"metadata\": {\"total_size\": %zu},\n  \"weight_map\": {", e->total);
    for (int first = 0, number = 1, end; first < e->count; first = end, number++) {
        char name[64];
        snprintf(name, sizeof name, "model-%05d-of-%05d.safetensors", number, files);
        end = file_end(e, first);
        CT_TRY(write_file(e, first, end, name));
        for (int i = first; i < end; i++) ct_string_add(index, "%s\n    \"%s\": \"%s\"", i ? "," : "", e->model[i].hf_name, name);
    }
    ct_string_add(index, "\n  }\n}\n");
    return write_text(e, "model.safetensors.index.json", index);
}

static ct_status write_weights(exporting *e) {
    int files = 0;
    for (int first = 0; first < e->count; first = file_end(e, first)) files++;
    if (files == 1) return write_file(e, 0, e->count, "model.safetensors");
    ct_string index = {0};
    ct_status status = write_numbered(e, files, &index);
    ct_string_deinit(&index);
    return status;
}

static ct_status write_configs(const exporting *e, const ct_llama_shape *shape) {
    ct_string text = {0};
    ct_hf_config_print(shape, e->options, &text);
    ct_status status = write_text(e, "config.json", &text);
    ct_string_deinit(&text);
    if (status || !e->options->has_tokens) return status;
    ct_string_add(&text, "{\n  \"bos_token_id\": %lld,\n  \"eos_token_id\": %lld\n}\n", (long long)e->options->bos_token_id,
                  (long long)e->options->eos_token_id);
    status = write_text(e, "generation_config.json", &text);
    ct_string_deinit(&text);
    return status;
}

// ---- the whole ----
static ct_status check_free(const char *folder) {
    if (!ct_path_exists(folder)) return CT_OK;
    DIR *dir = opendir(folder);
    CT_CHECK(dir, CT_INVALID, "%s is there and is not a folder to export into: %s", folder, strerror(errno));
    int others = 0;
    for (struct dirent *entry; (entry = readdir(dir));) others += strcmp(entry->d_name, ".") && strcmp(entry->d_name, "..");
    closedir(dir);
    CT_CHECK(!others, CT_INVALID, "%s is not empty; export wants a new folder", folder);
    return CT_OK;
}

static ct_status match(const ct_llama_tensor *model, int model_count, const ct_named_tensor *tensors, int count, int *out_given) {
    ct_named_tensor *wanted = ct_calloc((size_t)model_count, sizeof *wanted);
    for (int i = 0; i < model_count; i++) wanted[i] = model[i].tensor;
    ct_status status = ct_tensors_match("the model to be exported", tensors, count, wanted, model_count, &(ct_load_options){0}, out_given);
    free(wanted);
    for (int i = 0; i < count && !status; i++)
        if (tensors[i].is_piece || (tensors[i].dtype != CT_F32 && tensors[i].dtype != CT_BF16))
            status = ct_error_make(CT_INVALID, __FILE__, __LINE__, "%s can't be exported: whole f32 or bf16 tensors are", tensors[i].name);
    return status;
}

static void make_items(exporting *e, ct_arena *arena) {
    e->items = CT_ARENA_ARRAY(arena, ct_safetensors_item, e->count);
    for (int i = 0; i < e->count; i++) {
        const ct_named_tensor *t = &e->model[i].tensor;
        e->items[i] = (ct_safetensors_item){.name = e->model[i].hf_name, .type = stored_type(e->options->dtype), .dims = t->dims};
        memcpy(e->items[i].shape, t->shape, sizeof t->shape);
        e->total += item_bytes(e, i);
    }
}

static ct_status reserve_scratch(exporting *e) {
    size_t most = 0;
    for (int i = 0; i < e->count; i++) most = item_bytes(e, i) > most ? item_bytes(e, i) : most;
    e->scratch = malloc(most);
    CT_CHECK(e->scratch, CT_NO_MEMORY, "no memory to export a tensor of %zu bytes", most);
    return CT_OK;
}

static ct_status write_folder(exporting *e, const ct_llama_shape *shape) {
    CT_TRY(ct_folder_remove(e->folder)); // of an export that was killed: nobody else has this name
    CT_TRY(ct_folder_make(e->folder));
    CT_TRY(reserve_scratch(e));
    ct_status status = write_weights(e);
    free(e->scratch);
    CT_TRY(status);
    CT_TRY(write_configs(e, shape));
    CT_TRY(ct_folder_sync(e->folder));
    CT_CHECK(!rename(e->folder, e->options->folder), CT_IO, "cannot rename %s to %s: %s", e->folder, e->options->folder, strerror(errno));
    return CT_OK;
}

ct_status ct_hf_export(const ct_hf_export_options *options, const ct_llama_shape *shape, const ct_named_tensor *tensors, int count) {
    CT_TRY(ct_llama_shape_check("the model to be exported", shape));
    CT_TRY(check_free(options->folder));
    ct_arena arena = {0};
    ct_llama_tensor *model;
    exporting e = {.options = options, .tensors = tensors};
    e.count = ct_llama_hf_tensors(&arena, shape, &model);
    e.model = model;
    size_t length = strlen(options->folder);
    while (length > 1 && options->folder[length - 1] == '/') length--;
    e.folder = ct_arena_format(&arena, "%.*s.ctitan-export", (int)length, options->folder);
    int *given = CT_ARENA_ARRAY(&arena, int, e.count);
    e.given = given;
    ct_status status = match(model, e.count, tensors, count, given);
    if (!status) {
        make_items(&e, &arena);
        status = write_folder(&e, shape);
        if (status) ct_folder_remove(e.folder);
    }
    ct_arena_deinit(&arena);
    return status;
}
