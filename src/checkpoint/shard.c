// A shard is believed where it agrees with the manifest; and verifying reads all of it.
#include "shard.h"
#include "checkpoint/checkpoint.h"
#include "folder.h"
#include "hash.h"
#include "safetensors_header.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

ct_status ct_shard_open(const char *folder, const ct_manifest_file *file, ct_safetensors *out_file) {
    char *path = ct_format("%s/%s", folder, file->name);
    ct_status status = ct_safetensors_open(path, out_file);
    if (!status && out_file->file_bytes != file->bytes) {
        status = ct_error_make(CT_CORRUPT, __FILE__, __LINE__, "%s has %zu bytes, the manifest says %zu", path, out_file->file_bytes,
                               file->bytes);
        ct_safetensors_close(out_file);
    }
    free(path);
    return status;
}

ct_status ct_shard_entry(const ct_safetensors *file, const ct_manifest_tensor *tensor, const ct_manifest_piece *piece,
                         const ct_safetensors_entry **out_entry) {
    const ct_safetensors_entry *entry = ct_safetensors_find(file, piece->key);
    CT_CHECK(entry, CT_CORRUPT, "%s: tensor %.200s is not in it, against the manifest", file->path, piece->key);
    char stored[CT_SHAPE_TEXT], wanted[CT_SHAPE_TEXT];
    CT_CHECK(entry->type == ct_stored_type_of(tensor->dtype) && entry->dims == tensor->dims &&
                 !memcmp(entry->shape, piece->box.extent, sizeof(int64_t) * (size_t)tensor->dims),
             CT_CORRUPT, "%s: tensor %.200s is %s%s, the manifest says %s%s", file->path, piece->key, ct_stored_type_name(entry->type),
             ct_shape_text(entry->shape, entry->dims, stored), ct_stored_type_name(ct_stored_type_of(tensor->dtype)),
             ct_shape_text(piece->box.extent, tensor->dims, wanted));
    *out_entry = entry;
    return CT_OK;
}

// ---- verifying ----
typedef struct {
    ct_progress_fn *progress;
    void *context;
    size_t done, total;
    unsigned char *buffer;
} verifying;

static ct_status hash_fd(verifying *v, const char *path, int fd, XXH3_state_t *hash) {
    for (;;) {
        ssize_t n = read(fd, v->buffer, CT_READ_BUFFER_BYTES);
        if (n < 0 && errno == EINTR) continue;
        CT_CHECK(n >= 0, CT_IO, "cannot read %s: %s", path, strerror(errno));
        if (!n) return CT_OK;
        XXH3_128bits_update(hash, v->buffer, (size_t)n);
        v->done += (size_t)n;
        if (v->progress) v->progress(v->context, v->done, v->total);
    }
}

static ct_status hash_file(verifying *v, const char *path, ct_checksum *out_sum) {
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    CT_CHECK(fd >= 0, CT_IO, "cannot open %s: %s", path, strerror(errno));
    XXH3_state_t *hash = XXH3_createState();
    ct_status status = CT_OK;
    if (hash) XXH3_128bits_reset(hash), status = hash_fd(v, path, fd, hash);
    else status = ct_error_make(CT_NO_MEMORY, __FILE__, __LINE__, "no memory to read %s", path);
    if (!status) *out_sum = ct_checksum_text(XXH3_128bits_digest(hash));
    XXH3_freeState(hash);
    close(fd);
    return status;
}

// The first tensor in the file whose bytes are not those of the manifest.
static ct_status check_pieces(verifying *v, const ct_manifest *m, int number, const ct_safetensors *file, int hash) {
    const ct_read_options read = {.buffer = v->buffer};
    for (int t = 0; t < m->tensor_count; t++)
        for (int p = 0; p < m->tensors[t].piece_count; p++) {
            const ct_manifest_piece *piece = &m->tensors[t].pieces[p];
            const ct_safetensors_entry *entry;
            ct_checksum sum;
            if (piece->file != number) continue;
            CT_TRY(ct_shard_entry(file, &m->tensors[t], piece, &entry));
            if (!hash) continue;
            CT_TRY(ct_safetensors_checksum(file, entry, &read, &sum));
            CT_CHECK(!strcmp(sum.hex, piece->checksum.hex), CT_CORRUPT,
                     "%s: tensor %.200s is damaged: its XXH3 is %s, the manifest says %s", file->path, m->tensors[t].name, sum.hex,
                     piece->checksum.hex);
        }
    return CT_OK;
}

static ct_status verify_file(verifying *v, const char *folder, const ct_manifest *m, int number) {
    ct_safetensors file;
    CT_TRY(ct_shard_open(folder, &m->files[number], &file));
    ct_checksum sum;
    ct_status status = hash_file(v, file.path, &sum);
    int is_good = !status && !strcmp(sum.hex, m->files[number].checksum.hex);
    if (!status) status = check_pieces(v, m, number, &file, !is_good);
    if (!status && !is_good)
        status = ct_error_make(CT_CORRUPT, __FILE__, __LINE__, "%s is damaged outside its tensors: its XXH3 is %s, the manifest says %s",
                               file.path, sum.hex, m->files[number].checksum.hex);
    ct_safetensors_close(&file);
    return status;
}

ct_status ct_checkpoint_verify(const char *path, ct_progress_fn *progress, void *context) {
    char *manifest_path = ct_format("%s/" CT_MANIFEST_NAME, path);
    ct_manifest m;
    ct_status status = ct_manifest_read(manifest_path, &m);
    free(manifest_path);
    CT_TRY(status);
    verifying v = {.progress = progress, .context = context, .buffer = ct_malloc(CT_READ_BUFFER_BYTES)};
    for (int i = 0; i < m.file_count; i++) v.total += m.files[i].bytes;
    for (int i = 0; i < m.file_count && !status; i++) status = verify_file(&v, path, &m, i);
    free(v.buffer);
    ct_manifest_deinit(&m);
    return status;
}
