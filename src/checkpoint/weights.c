// Weights of other programs, opened: which shape, and for each of a Llama's tensors in which file it lies (hf_files.c found the files). A tensor in Hugging Face's row
// order is read row by row, each to its place; no copy of it is made.
#include "base/file.h"
#include "llama.h"
#include "match.h"
#include "region.h"
#include "safetensors_header.h"

#include <stdlib.h>
#include <string.h>

typedef struct {
    ct_named_tensor tensor; // torchtitan's name
    const ct_safetensors *file;
    const ct_safetensors_entry *entry;
    int64_t head_rows; // see ct_llama_hf_row; 0: rows are in our order
} source;

struct ct_weights {
    ct_arena arena;
    const char *path;
    ct_llama_shape shape;
    ct_safetensors_list files;
    source *sources;
    ct_named_tensor *tensors; // the sources' tensors, for matching
    int count;
};

void ct_weights_close(ct_weights *weights) {
    if (!weights) return;
    ct_safetensors_list_close(&weights->files);
    ct_arena_deinit(&weights->arena);
    free(weights);
}

const ct_llama_shape *ct_weights_shape(const ct_weights *weights) { return &weights->shape; }
int ct_weights_count(const ct_weights *weights) { return weights->count; }
ct_named_tensor ct_weights_tensor(const ct_weights *weights, int index) { return weights->tensors[index]; }

// ---- which shape ----
static ct_status read_config(ct_weights *w, ct_llama_shape *out_shape) {
    const char *path = ct_arena_format(&w->arena, "%s/config.json", w->path);
    if (!ct_path_is_folder(w->path) || !ct_path_exists(path)) return CT_OK;
    char *json;
    size_t size;
    CT_TRY(ct_file_read(path, 1u << 24, &json, &size));
    ct_status status = ct_hf_config_parse(path, json, size, out_shape);
    free(json);
    return status;
}

static const ct_safetensors_entry *find_entry(const ct_weights *w, const char *name, const ct_safetensors **out_file) {
    for (int i = 0; i < w->files.count; i++) {
        const ct_safetensors_entry *entry = ct_safetensors_find(&w->files.items[i], name);
        if (entry) return *out_file = &w->files.items[i], entry;
    }
    return NULL;
}

static int64_t extent_in_files(const ct_weights *w, const char *name, int d) {
    const ct_safetensors *file;
    const ct_safetensors_entry *entry = find_entry(w, name, &file);
    return entry && entry->dims > d ? entry->shape[d] : 0;
}

static int64_t layers_in_files(const ct_weights *w) {
    long long layers = 0;
    for (int f = 0; f < w->files.count; f++)
        for (int i = 0; i < w->files.items[f].count; i++) {
            const char *name = w->files.items[f].entries[i].name;
            if (strncmp(name, "model.layers.", 13)) continue;
            long long layer = strtoll(name + 13, NULL, 10);
            if (layer >= layers && layer < 100000) layers = layer + 1;
        }
    return layers;
}

static ct_llama_shape shape_of_files(const ct_weights *w, int64_t n_heads) {
    ct_llama_shape s = {.n_layers = layers_in_files(w), .n_heads = n_heads};
    s.vocab_size = extent_in_files(w, "model.embed_tokens.weight", 0);
    s.dim = extent_in_files(w, "model.embed_tokens.weight", 1);
    s.ffn_dim = extent_in_files(w, "model.layers.0.mlp.gate_proj.weight", 0);
    int64_t head_dim = n_heads > 0 ? s.dim / n_heads : 0;
    s.n_kv_heads = head_dim ? extent_in_files(w, "model.layers.0.self_attn.k_proj.weight", 0) / head_dim : 0;
    return s;
}

static ct_status agree(const char *path, const char *what, int64_t *value, int64_t other, const char *other_place) {
    CT_CHECK(!*value || !other || *value == other, CT_INVALID, "%s: %s is %lld; %s says %lld", path, what, (long long)other, other_place,
             (long long)*value);
    if (!*value) *value = other;
    return CT_OK;
}

// Sizes that `s` leaves 0 come from `other`; those that both have must be equal.
static ct_status agree_on_sizes(const char *path, ct_llama_shape *s, const ct_llama_shape *other, const char *place) {
    CT_TRY(agree(path, "dim", &s->dim, other->dim, place));
    CT_TRY(agree(path, "the number of layers", &s->n_layers, other->n_layers, place));
    CT_TRY(agree(path, "the number of heads", &s->n_heads, other->n_heads, place));
    CT_TRY(agree(path, "the number of KV heads", &s->n_kv_heads, other->n_kv_heads, place));
    CT_TRY(agree(path, "the FFN's size", &s->ffn_dim, other->ffn_dim, place));
    return agree(path, "the vocabulary", &s->vocab_size, other->vocab_size, place);
}

static void warn_of(const char *path, const char *what, double theirs, double ours, ct_warn_fn *warn, void *context) {
    if (theirs == ours || !warn) return;
    char *text = ct_format("%s: %s is %g there, %g in this run's config, which is used", path, what, theirs, ours);
    warn(context, text);
    free(text);
}

// What no tensor shows: the config of this run decides.
static void merge_rest(const ct_weights *w, ct_llama_shape *s, const ct_llama_shape *config, ct_warn_fn *warn, void *context) {
    if (!config->dim) return;
    if (!s->norm_eps) s->norm_eps = config->norm_eps;
    warn_of(w->path, "norm_eps", config->norm_eps, s->norm_eps, warn, context);
    if (!s->max_seq_len) s->max_seq_len = config->max_seq_len;
    if (!s->rope_theta) {
        s->rope_theta = config->rope_theta;
        s->rope_scaling_factor = config->rope_scaling_factor;
        s->rope_low_freq_factor = config->rope_low_freq_factor, s->rope_high_freq_factor = config->rope_high_freq_factor;
        s->rope_original_max_seq_len = config->rope_original_max_seq_len;
    }
    warn_of(w->path, "rope_theta", config->rope_theta, s->rope_theta, warn, context);
    warn_of(w->path, "the rotary scaling factor", config->rope_scaling_factor, s->rope_scaling_factor, warn, context);
    if (!s->rope_scaling_factor || !config->rope_scaling_factor) return;
    warn_of(w->path, "rope_low_freq_factor", config->rope_low_freq_factor, s->rope_low_freq_factor, warn, context);
    warn_of(w->path, "rope_high_freq_factor", config->rope_high_freq_factor, s->rope_high_freq_factor, warn, context);
    warn_of(w->path, "the rotary scaling's original context", (double)config->rope_original_max_seq_len,
            (double)s->rope_original_max_seq_len, warn, context);
}

static ct_status find_shape(ct_weights *w, const ct_llama_shape *known, ct_warn_fn *warn, void *context) {
    ct_llama_shape config = {0}, s = {0};
    CT_TRY(read_config(w, &config));
    if (known) s = *known;
    CT_TRY(agree_on_sizes(w->path, &s, &config, "this run's config"));
    merge_rest(w, &s, &config, warn, context);
    CT_CHECK(s.n_heads > 0, CT_INVALID, "%s has no config.json: the number of heads must be given", w->path);
    ct_llama_shape files = shape_of_files(w, s.n_heads);
    CT_TRY(agree_on_sizes(w->path, &s, &files, known ? "this run's config or config.json" : "config.json"));
    if (!s.norm_eps) s.norm_eps = 1e-5; // torchtitan's defaults
    if (!s.rope_theta) s.rope_theta = 10000;
    s.tied = s.tied || config.tied || !extent_in_files(w, "lm_head.weight", 0);
    CT_TRY(ct_llama_shape_check(w->path, &s));
    w->shape = s;
    return CT_OK;
}

// ---- which tensors ----
static int is_dropped(const ct_weights *w, const char *name) {
    return strstr(name, "rotary_emb.inv_freq") || (w->shape.tied && !strcmp(name, "lm_head.weight"));
}

// All entries, as tensors for matching.
static int list_entries(ct_weights *w, ct_named_tensor **out_tensors) {
    int total = 0, count = 0;
    for (int f = 0; f < w->files.count; f++) total += w->files.items[f].count;
    ct_named_tensor *all = CT_ARENA_ARRAY(&w->arena, ct_named_tensor, total);
    for (int f = 0; f < w->files.count; f++)
        for (int i = 0; i < w->files.items[f].count; i++) {
            const ct_safetensors_entry *e = &w->files.items[f].entries[i];
            if (is_dropped(w, e->name)) continue;
            all[count] = (ct_named_tensor){.name = e->name, .dims = e->dims};
            memcpy(all[count++].shape, e->shape, sizeof e->shape);
        }
    *out_tensors = all;
    return count;
}

static ct_status match_entries(ct_weights *w, const ct_llama_tensor *model, int count) {
    ct_named_tensor *stored, *wanted = CT_ARENA_ARRAY(&w->arena, ct_named_tensor, count);
    int stored_count = list_entries(w, &stored);
    for (int i = 0; i < count; i++) wanted[i] = model[i].tensor, wanted[i].name = model[i].hf_name;
    return ct_tensors_match(w->path, stored, stored_count, wanted, count, &(ct_load_options){0}, CT_ARENA_ARRAY(&w->arena, int, count));
}

static ct_status dtype_of(const ct_safetensors *file, const ct_safetensors_entry *entry, ct_dtype *out_dtype) {
    switch (entry->type) {
    case CT_ST_F32:
    case CT_ST_F16: *out_dtype = CT_F32; return CT_OK;
    case CT_ST_BF16: *out_dtype = CT_BF16; return CT_OK;
    case CT_ST_F64: *out_dtype = CT_F64; return CT_OK;
    default: CT_FAIL(CT_UNSUPPORTED, "%s: %.200s is %s; F32, BF16, F16 and F64 are read here", file->path, entry->name,
                     ct_stored_type_name(entry->type));
    }
}

// Places each of the model's tensors in a file, under its Hugging Face or its own name.
static ct_status place(ct_weights *w, const ct_llama_tensor *model, int count, int is_hf) {
    w->sources = CT_ARENA_ARRAY(&w->arena, source, count);
    w->tensors = CT_ARENA_ARRAY(&w->arena, ct_named_tensor, count);
    for (int i = 0; i < count; i++) {
        source *s = &w->sources[i];
        s->tensor = model[i].tensor;
        s->head_rows = is_hf ? model[i].head_rows : 0;
        for (int f = 0; f < w->files.count && !s->entry; f++) s->file = &w->files.items[f],
            s->entry = is_hf ? ct_safetensors_find(s->file, model[i].hf_name) : NULL;
        for (int e = 0; e < w->files.items[0].count && !is_hf; e++)
            if (!strcmp(w->files.items[0].entries[e].name, s->tensor.name)) s->entry = &w->files.items[0].entries[e];
        CT_ASSERT(s->entry, "%s", s->tensor.name);
        CT_TRY(dtype_of(s->file, s->entry, &s->tensor.dtype));
        w->tensors[i] = s->tensor;
    }
    w->count = count;
    return CT_OK;
}

static ct_status open_hf(ct_weights *w, const ct_llama_shape *known, ct_warn_fn *warn, void *context) {
    CT_TRY(ct_hf_files_open(&w->arena, w->path, &w->files));
    CT_TRY(find_shape(w, known, warn, context));
    ct_llama_tensor *model;
    int count = ct_llama_hf_tensors(&w->arena, &w->shape, &model);
    CT_TRY(match_entries(w, model, count));
    return place(w, model, count, 1);
}

static ct_status open_llama2c(ct_weights *w, const ct_llama_shape *known, ct_warn_fn *warn, void *context) {
    CT_GROW(w->files.items, w->files.count, w->files.capacity);
    ct_llama_shape theirs;
    CT_TRY(ct_llama2c_open(w->path, &w->files.items[0], &theirs));
    w->files.count = 1;
    if (known) w->shape = *known;
    CT_TRY(agree_on_sizes(w->path, &w->shape, &theirs, "this run's config"));
    merge_rest(w, &w->shape, &theirs, warn, context);
    w->shape.tied = theirs.tied;
    ct_llama_tensor *model;
    int count = ct_llama_hf_tensors(&w->arena, &w->shape, &model);
    return place(w, model, count, 0);
}

ct_status ct_weights_open(const char *path, const ct_llama_shape *known, ct_warn_fn *warn, void *context, ct_weights **out_weights) {
    CT_CHECK(ct_path_exists(path), CT_NOT_FOUND, "%s is not there", path);
    ct_weights *w = ct_calloc(1, sizeof *w);
    w->path = ct_arena_strdup(&w->arena, path);
    size_t n = strlen(path);
    int is_bin = n > 4 && !strcmp(path + n - 4, ".bin") && !ct_path_is_folder(path);
    ct_status status = is_bin ? open_llama2c(w, known, warn, context) : open_hf(w, known, warn, context);
    if (status) ct_weights_close(w);
    else *out_weights = w;
    return status;
}

// ---- loading ----
typedef struct {
    const ct_load_options *options;
    size_t done, total;
} loading;

static void advance(void *context, size_t bytes) {
    loading *l = context;
    l->done = l->done + bytes < l->total ? l->done + bytes : l->total;
    if (l->options->progress) l->options->progress(l->options->context, l->done, l->total);
}

static ct_status read_rows(const source *s, const ct_named_tensor *target, const ct_read_options *read) {
    ct_box box = ct_named_tensor_box(target);
    size_t row_bytes = (size_t)box.extent[1] * ct_dtype_bytes(target->dtype);
    ct_named_tensor row = *target;
    row.is_piece = 1, row.box = box, row.box.extent[0] = 1;
    for (int64_t i = 0; i < box.extent[0]; i++) {
        row.box.offset[0] = ct_llama_hf_row(box.offset[0] + i, s->head_rows);
        row.data = (char *)target->data + (size_t)i * row_bytes;
        CT_TRY(ct_safetensors_read(s->file, s->entry, NULL, &row, read, NULL));
    }
    return CT_OK;
}

static ct_status load_all(const ct_weights *w, const ct_load_options *options, const ct_named_tensor *tensors, int count, const int *stored) {
    loading l = {.options = options};
    for (int i = 0; i < count; i++)
        if (stored[i] >= 0)
            l.total += (size_t)ct_named_tensor_elems(&tensors[i]) * (size_t)ct_stored_type_bits(w->sources[stored[i]].entry->type) / 8;
    ct_read_options read = {ct_malloc(CT_READ_BUFFER_BYTES), advance, &l};
    ct_status status = CT_OK;
    for (int i = 0; i < count && !status; i++) {
        if (stored[i] < 0) continue;
        const source *s = &w->sources[stored[i]];
        status = s->head_rows ? read_rows(s, &tensors[i], &read) : ct_safetensors_read(s->file, s->entry, NULL, &tensors[i], &read, NULL);
    }
    free(read.buffer);
    if (!status && options->progress) options->progress(options->context, l.total, l.total);
    return status;
}

ct_status ct_weights_load(const ct_weights *weights, const ct_load_options *options, const ct_named_tensor *tensors, int count) {
    static const ct_load_options strict = {0};
    if (!options) options = &strict;
    int *stored = ct_calloc((size_t)count, sizeof *stored);
    ct_status status = ct_tensors_match(weights->path, weights->tensors, weights->count, tensors, count, options, stored);
    if (!status) status = load_all(weights, options, tensors, count, stored);
    free(stored);
    return status;
}
