// karpathy/llama2.c's legacy checkpoint: seven int32 (dim, hidden, layers, heads, KV heads, vocabulary, context; the vocabulary negative
// where the head is not tied), then f32 arrays, each kind for all layers at once. Its rotary pairs are interleaved as torchtitan's are. It says
// neither norm_eps nor rope_theta: its program has 1e-5 and 10000. Left out: version 1 ("ak42") and quantised files.
#include "llama.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { HEADER_BYTES = 28 };

// The kinds in file order; a layer's name has "%d" where it stands for all layers.
static const char *const order[] = {"tok_embeddings", "layers.%d.attention_norm", "layers.%d.attention.wq", "layers.%d.attention.wk",
                                    "layers.%d.attention.wv", "layers.%d.attention.wo", "layers.%d.ffn_norm",
                                    "layers.%d.feed_forward.w1", "layers.%d.feed_forward.w2", "layers.%d.feed_forward.w3", "norm"};

static const ct_named_tensor *find(const ct_named_tensor *tensors, int count, const char *name) {
    for (int i = 0; i < count; i++)
        if (!strcmp(tensors[i].name, name)) return &tensors[i];
    return NULL;
}

static void add_entry(ct_safetensors *file, const ct_named_tensor *tensor, size_t *at) {
    ct_safetensors_entry *e = &file->entries[file->count++];
    *e = (ct_safetensors_entry){.name = tensor->name, .type = CT_ST_F32, .dims = tensor->dims, .begin = *at};
    memcpy(e->shape, tensor->shape, sizeof e->shape);
    *at = e->end = *at + ct_named_tensor_bytes(tensor);
}

// Lays the arrays out behind one another; returns where they end.
static size_t lay_out(ct_safetensors *file, const ct_llama_shape *shape) {
    ct_named_tensor *tensors;
    int count = ct_llama_tensors(&file->arena, shape, &tensors);
    file->entries = CT_ARENA_ARRAY(&file->arena, ct_safetensors_entry, count);
    size_t at = 0;
    for (size_t kind = 0; kind < sizeof order / sizeof *order; kind++) {
        const char *hole = strstr(order[kind], "%d");
        for (int64_t layer = 0; layer < (hole ? shape->n_layers : 1); layer++) {
            char *name = hole ? ct_arena_format(&file->arena, "%.*s%lld%s.weight", (int)(hole - order[kind]), order[kind],
                                                (long long)layer, hole + 2)
                              : ct_arena_format(&file->arena, "%s.weight", order[kind]);
            add_entry(file, find(tensors, count, name), &at);
        }
    }
    at += (size_t)(shape->max_seq_len * (shape->dim / shape->n_heads)) * 4; // two rotary tables of half a head each
    if (!shape->tied) add_entry(file, find(tensors, count, "output.weight"), &at);
    return at;
}

static ct_status read_header(const char *path, int fd, ct_llama_shape *shape) {
    int32_t h[7];
    ssize_t n = pread(fd, h, sizeof h, 0);
    CT_CHECK(n >= 0, CT_IO, "cannot read %s: %s", path, strerror(errno));
    CT_CHECK(n == HEADER_BYTES, CT_CORRUPT, "%s has %zd bytes and can't be a llama2.c checkpoint", path, n);
    CT_CHECK(h[0] != 0x616b3432, CT_UNSUPPORTED, "%s is a llama2.c file of version 1 or later; the legacy format is read here", path);
    CT_CHECK(h[5] != INT32_MIN && h[6] > 0, CT_CORRUPT, "%s is no llama2.c checkpoint: vocabulary %d, context %d", path, h[5], h[6]);
    *shape = (ct_llama_shape){.dim = h[0], .ffn_dim = h[1], .n_layers = h[2], .n_heads = h[3], .n_kv_heads = h[4],
                              .vocab_size = h[5] < 0 ? -(int64_t)h[5] : h[5], .tied = h[5] > 0, .max_seq_len = h[6],
                              .norm_eps = 1e-5, .rope_theta = 10000};
    ct_status status = ct_llama_shape_check(path, shape);
    return status ? ct_error_note(status, "is it a llama2.c checkpoint?") : CT_OK;
}

// Elements by the header, in double: too large ones must not overflow.
static double rough_bytes(const ct_llama_shape *s) {
    double d = (double)s->dim;
    return 4 * ((double)s->n_layers * d * (2 * d + 3 * (double)s->ffn_dim) + d * (double)s->vocab_size);
}

static ct_status open_file(const char *path, ct_safetensors *file, ct_llama_shape *shape) {
    struct stat st;
    CT_CHECK(!fstat(file->fd, &st) && S_ISREG(st.st_mode), CT_INVALID, "%s is not a regular file", path);
    CT_TRY(read_header(path, file->fd, shape));
    file->path = ct_arena_strdup(&file->arena, path);
    file->file_bytes = (size_t)st.st_size;
    file->data_begin = HEADER_BYTES;
    CT_CHECK(rough_bytes(shape) <= (double)st.st_size, CT_CORRUPT,
             "%s has %zu bytes, too few for a llama2.c checkpoint with its header (%lld layers of dim %lld)", path, file->file_bytes,
             (long long)shape->n_layers, (long long)shape->dim);
    size_t expected = HEADER_BYTES + lay_out(file, shape);
    CT_CHECK(expected == file->file_bytes, CT_CORRUPT, "%s has %zu bytes; a llama2.c checkpoint with its header has %zu", path,
             file->file_bytes, expected);
    return CT_OK;
}

ct_status ct_llama2c_open(const char *path, ct_safetensors *out_file, ct_llama_shape *out_shape) {
    ct_safetensors file = {.fd = open(path, O_RDONLY | O_CLOEXEC)};
    CT_CHECK(file.fd >= 0, errno == ENOENT ? CT_NOT_FOUND : CT_IO, "cannot open %s: %s", path, strerror(errno));
    ct_llama_shape shape;
    ct_status status = open_file(path, &file, &shape);
    if (status) {
        ct_safetensors_close(&file);
        return status;
    }
    *out_file = file;
    *out_shape = shape;
    return CT_OK;
}
