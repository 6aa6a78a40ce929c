// Reads with pread, never through a mapping: a file that shrinks or a disk that fails is then a status and no signal. One buffer's worth
// at a time is read, hashed and scattered; bytes that are wanted as they are go straight to their place.
#include "convert.h"
#include "hash.h"
#include "region.h"
#include "safetensors_header.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MAX_HEADER_BYTES = 100000000 }; // the format's own limit

static ct_status read_at(const ct_safetensors *file, size_t offset, void *out, size_t size) {
    for (size_t done = 0; done < size;) {
        ssize_t n = pread(file->fd, (char *)out + done, size - done, (off_t)(offset + done));
        if (n < 0 && errno == EINTR) continue;
        CT_CHECK(n >= 0, CT_IO, "cannot read %s: %s", file->path, strerror(errno));
        CT_CHECK(n > 0, CT_CORRUPT, "%s is cut off at byte %zu", file->path, offset + done);
        done += (size_t)n;
    }
    return CT_OK;
}

static ct_status read_header(ct_safetensors *file) {
    unsigned char prefix[8];
    uint64_t header_bytes = 0;
    CT_CHECK(file->file_bytes >= 8, CT_CORRUPT, "%s has %zu bytes and can't be a safetensors file", file->path, file->file_bytes);
    CT_TRY(read_at(file, 0, prefix, 8));
    for (int i = 7; i >= 0; i--) header_bytes = header_bytes << 8 | prefix[i];
    CT_CHECK(header_bytes <= file->file_bytes - 8 && header_bytes <= MAX_HEADER_BYTES, CT_CORRUPT,
             "%s: a header of %llu bytes is announced; the file has %zu and headers at most %d (cut off, or not safetensors)", file->path,
             (unsigned long long)header_bytes, file->file_bytes, MAX_HEADER_BYTES);
    file->data_begin = 8 + (size_t)header_bytes;
    char *json = malloc((size_t)header_bytes + 1);
    CT_CHECK(json, CT_NO_MEMORY, "no memory for the header of %s", file->path);
    ct_status status = read_at(file, 8, json, (size_t)header_bytes);
    if (!status)
        status = ct_safetensors_header_parse(&file->arena, file->path, json, (size_t)header_bytes, file->file_bytes - file->data_begin,
                                             &file->entries, &file->count);
    free(json);
    return status;
}

ct_status ct_safetensors_open(const char *path, ct_safetensors *out_file) {
    ct_safetensors file = {.fd = open(path, O_RDONLY | O_CLOEXEC)};
    CT_CHECK(file.fd >= 0, errno == ENOENT ? CT_NOT_FOUND : CT_IO, "cannot open %s: %s", path, strerror(errno));
    struct stat st;
    ct_status status = CT_OK;
    if (fstat(file.fd, &st) || !S_ISREG(st.st_mode))
        status = ct_error_make(CT_INVALID, __FILE__, __LINE__, "%s is not a regular file", path);
    if (!status) {
        file.path = ct_arena_strdup(&file.arena, path);
        file.file_bytes = (size_t)st.st_size;
        status = read_header(&file);
    }
    if (status) ct_safetensors_close(&file);
    else *out_file = file;
    return status;
}

void ct_safetensors_close(ct_safetensors *file) {
    if (file->fd >= 0) close(file->fd);
    ct_arena_deinit(&file->arena);
    *file = (ct_safetensors){.fd = -1};
}

static int name_order(const void *name, const void *entry) { return strcmp(name, ((const ct_safetensors_entry *)entry)->name); }

const ct_safetensors_entry *ct_safetensors_find(const ct_safetensors *file, const char *name) {
    if (!file->count) return NULL;
    return bsearch(name, file->entries, (size_t)file->count, sizeof *file->entries, name_order);
}

// ---- data ----
typedef struct {
    const ct_safetensors *file;
    const ct_safetensors_entry *entry;
    const ct_named_tensor *target;
    const ct_read_options *options;
    size_t elem_bytes; // as stored
    int64_t elems;
    XXH3_state_t *hash; // NULL: not wanted
} reading;

static ct_status read_elems(const reading *r, int64_t first, int64_t count, void *out) {
    size_t bytes = (size_t)count * r->elem_bytes;
    CT_TRY(read_at(r->file, r->file->data_begin + r->entry->begin + (size_t)first * r->elem_bytes, out, bytes));
    if (r->hash) XXH3_128bits_update(r->hash, out, bytes);
    if (r->options->advance) r->options->advance(r->options->context, bytes);
    return CT_OK;
}

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

// One run, of the type that is wanted: no copy between.
static ct_status read_straight(const reading *r, const ct_runs *runs) {
    int64_t step = CT_READ_BUFFER_BYTES / (int64_t)r->elem_bytes;
    char *out = (char *)r->target->data + (size_t)runs->to * r->elem_bytes;
    for (int64_t done = 0; done < runs->length; done += step)
        CT_TRY(read_elems(r, runs->from + done, least(step, runs->length - done), out + (size_t)done * r->elem_bytes));
    return CT_OK;
}

// Hands out the part of the runs that lies in the buffer's elements [first, first + count).
static void scatter(const reading *r, ct_runs *runs, int64_t *taken, int64_t first, int64_t count) {
    while (runs->remaining && runs->from + *taken < first + count) {
        int64_t from = runs->from + *taken, n = least(runs->length - *taken, first + count - from);
        size_t place = (size_t)(runs->to + *taken) * ct_dtype_bytes(r->target->dtype);
        ct_convert_in(r->target->dtype, (char *)r->target->data + place, r->entry->type,
                      (const char *)r->options->buffer + (size_t)(from - first) * r->elem_bytes, n);
        *taken += n;
        if (*taken == runs->length) ct_runs_next(runs), *taken = 0;
    }
}

static ct_status read_through_buffer(const reading *r, ct_runs *runs) {
    int64_t step = CT_READ_BUFFER_BYTES / (int64_t)r->elem_bytes, end = r->hash ? r->elems : runs->end, taken = 0;
    for (int64_t at = r->hash ? 0 : runs->from; at < end;) {
        int64_t count = least(step, end - at);
        CT_TRY(read_elems(r, at, count, r->options->buffer));
        scatter(r, runs, &taken, at, count);
        at += count;
        if (!r->hash && runs->remaining && runs->from > at) at = runs->from;
    }
    return CT_OK;
}

static ct_status read_hashed(reading *r, ct_runs *runs, ct_checksum *out_checksum) {
    if (out_checksum) {
        r->hash = XXH3_createState();
        CT_CHECK(r->hash, CT_NO_MEMORY, "no memory to read %s", r->file->path);
        XXH3_128bits_reset(r->hash);
    }
    int is_straight = runs->remaining == 1 && r->entry->type == ct_stored_type_of(r->target->dtype) &&
                      (!r->hash || runs->length == r->elems);
    ct_status status = is_straight ? read_straight(r, runs) : read_through_buffer(r, runs);
    if (out_checksum && !status) *out_checksum = ct_checksum_text(XXH3_128bits_digest(r->hash));
    XXH3_freeState(r->hash);
    return status;
}

ct_status ct_safetensors_read(const ct_safetensors *file, const ct_safetensors_entry *entry, const ct_box *piece,
                              const ct_named_tensor *target, const ct_read_options *options, ct_checksum *out_checksum) {
    CT_CHECK(ct_convert_is_possible(entry->type, target->dtype), CT_UNSUPPORTED, "%s: %.200s is %s and can't be read as %s", file->path,
             entry->name, ct_stored_type_name(entry->type), ct_dtype_name(target->dtype));
    ct_box stored = {0}, wanted = ct_named_tensor_box(target);
    for (int d = 0; d < entry->dims; d++) stored.extent[d] = entry->shape[d];
    if (piece) stored = *piece;
    ct_runs runs = ct_runs_begin(target->dims, &stored, &wanted);
    reading r = {file, entry, target, options, (size_t)ct_stored_type_bits(entry->type) / 8, ct_extents_product(entry->shape, entry->dims), 0};
    return read_hashed(&r, &runs, out_checksum);
}

ct_status ct_safetensors_checksum(const ct_safetensors *file, const ct_safetensors_entry *entry, const ct_read_options *options,
                                  ct_checksum *out_checksum) {
    reading r = {.file = file, .entry = entry, .options = options, .elem_bytes = 1, .elems = (int64_t)(entry->end - entry->begin)};
    ct_runs none = {0};
    r.hash = XXH3_createState();
    CT_CHECK(r.hash, CT_NO_MEMORY, "no memory to read %s", file->path);
    XXH3_128bits_reset(r.hash);
    ct_status status = read_through_buffer(&r, &none);
    if (!status) *out_checksum = ct_checksum_text(XXH3_128bits_digest(r.hash));
    XXH3_freeState(r.hash);
    return status;
}
