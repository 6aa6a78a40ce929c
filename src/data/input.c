// A buffer over a plain, gzip or zstd file. Several gzip members or zstd frames in a row are one file, as gzip and zstd have it.
// Left out: mapping files, so that one that shrinks while it is read is an error and not a signal.
#include "input.h"
#include "base/memory.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { CHUNK = 1 << 16, LINE_MAX_BYTES = 1 << 30 };

static int ends_with(const char *text, const char *ending) {
    size_t n = strlen(text), m = strlen(ending);
    return n >= m && !strcmp(text + n - m, ending);
}

void input_close(input *in) {
    if (!in->path) return;
    if (in->kind == INPUT_GZIP) inflateEnd(&in->gzip);
    close(in->fd);
    in->path = NULL;
}

void input_deinit(input *in) {
    input_close(in);
    ZSTD_freeDStream(in->zstd);
    free(in->packed);
    free(in->buffer);
    *in = (input){0};
}

static ct_status start_decompressor(input *in) {
    if (in->kind == INPUT_PLAIN) return CT_OK;
    if (!in->packed) in->packed = ct_malloc(CHUNK);
    in->packed_size = in->packed_at = 0;
    in->packed_end = in->in_member = 0;
    in->members = 0;
    if (in->kind == INPUT_ZSTD) {
        if (!in->zstd) in->zstd = ZSTD_createDStream();
        CT_CHECK(in->zstd, CT_NO_MEMORY, "no memory to decompress %s", in->path);
        ZSTD_initDStream(in->zstd);
        return CT_OK;
    }
    in->gzip = (z_stream){0};
    CT_CHECK(inflateInit2(&in->gzip, 15 + 16) == Z_OK, CT_NO_MEMORY, "no memory to decompress %s", in->path);
    return CT_OK;
}

ct_status input_open(input *in, const char *path) {
    input_close(in);
    struct stat st;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        CT_FAIL(errno == ENOENT || errno == ENOTDIR ? CT_NOT_FOUND : CT_IO, "cannot open %s: %s", path, strerror(errno));
    if (fstat(fd, &st) || S_ISDIR(st.st_mode)) {
        close(fd);
        CT_FAIL(CT_INVALID, "%s is not a file that can be read", path);
    }
    in->kind = ends_with(path, ".gz") ? INPUT_GZIP : ends_with(path, ".zst") ? INPUT_ZSTD : INPUT_PLAIN;
    in->path = path;
    in->fd = fd;
    in->at = in->size = 0;
    in->base = in->disk_bytes = 0;
    in->end = 0;
    ct_status status = start_decompressor(in);
    if (status) close(fd), in->path = NULL;
    return status;
}

// ---- reading ----
static ct_status read_some(input *in, void *to, size_t most, size_t *out_count) {
    ssize_t n;
    do n = read(in->fd, to, most);
    while (n < 0 && errno == EINTR);
    CT_CHECK(n >= 0, CT_IO, "cannot read %s: %s", in->path, strerror(errno));
    in->disk_bytes += n;
    *out_count = (size_t)n;
    return CT_OK;
}

static ct_status refill_packed(input *in) {
    if (in->packed_at < in->packed_size || in->packed_end) return CT_OK;
    CT_TRY(read_some(in, in->packed, CHUNK, &in->packed_size));
    in->packed_at = 0;
    in->packed_end = !in->packed_size;
    return CT_OK;
}

static ct_status cut_off(const input *in, const char *what) {
    CT_FAIL(CT_CORRUPT, "%s is cut off: it ends inside a %s, %lld bytes in", in->path, what, (long long)in->disk_bytes);
}

static ct_status inflate_some(input *in, char *to, size_t most, size_t *out_count) {
    in->gzip.next_out = (unsigned char *)to;
    in->gzip.avail_out = (unsigned)most;
    while (in->gzip.avail_out == most) {
        CT_TRY(refill_packed(in));
        if (!in->in_member) { // gzip passes over zeros between and behind members
            while (in->members && in->packed_at < in->packed_size && !in->packed[in->packed_at]) in->packed_at++;
            if (in->packed_at == in->packed_size && !in->packed_end) continue;
        }
        if (in->packed_end) {
            if (in->in_member || !in->disk_bytes) return cut_off(in, "gzip member");
            in->end = 1;
            break;
        }
        in->gzip.next_in = in->packed + in->packed_at;
        in->gzip.avail_in = (unsigned)(in->packed_size - in->packed_at);
        in->in_member = 1;
        int code = inflate(&in->gzip, Z_NO_FLUSH);
        in->packed_at = in->packed_size - in->gzip.avail_in;
        CT_CHECK(code == Z_OK || code == Z_STREAM_END || code == Z_BUF_ERROR, CT_CORRUPT, "%s: gzip: %s near byte %lld",
                 in->path, in->gzip.msg ? in->gzip.msg : "bad data",
                 (long long)in->disk_bytes - (long long)in->gzip.avail_in);
        if (code == Z_STREAM_END) {
            in->in_member = 0;
            in->members++;
            inflateReset(&in->gzip);
        }
    }
    *out_count = most - in->gzip.avail_out;
    return CT_OK;
}

static ct_status unzstd_some(input *in, char *to, size_t most, size_t *out_count) {
    ZSTD_outBuffer out = {to, most, 0};
    while (!out.pos) {
        CT_TRY(refill_packed(in));
        if (in->packed_end) { // bytes may still be inside the decompressor
            size_t before = out.pos;
            ZSTD_inBuffer none = {in->packed, 0, 0};
            if (in->in_member) in->in_member = ZSTD_decompressStream(in->zstd, &out, &none) != 0;
            if (out.pos > before) break;
            if (in->in_member || !in->disk_bytes) return cut_off(in, "zstd frame");
            in->end = 1;
            break;
        }
        ZSTD_inBuffer from = {in->packed, in->packed_size, in->packed_at};
        size_t code = ZSTD_decompressStream(in->zstd, &out, &from);
        CT_CHECK(!ZSTD_isError(code), CT_CORRUPT, "%s: zstd: %s near byte %lld", in->path, ZSTD_getErrorName(code),
                 (long long)in->disk_bytes - (long long)(from.size - from.pos));
        in->packed_at = from.pos;
        in->in_member = code != 0;
    }
    *out_count = out.pos;
    return CT_OK;
}

static ct_status read_more(input *in) {
    size_t n = 0, room = in->capacity - in->size;
    if (room > CHUNK) room = CHUNK;
    if (in->kind == INPUT_GZIP) CT_TRY(inflate_some(in, in->buffer + in->size, room, &n));
    else if (in->kind == INPUT_ZSTD) CT_TRY(unzstd_some(in, in->buffer + in->size, room, &n));
    else CT_TRY(read_some(in, in->buffer + in->size, room, &n));
    if (in->kind == INPUT_PLAIN && !n) in->end = 1;
    in->size += n;
    return CT_OK;
}

static void make_room(input *in, size_t want) {
    if (in->at && in->size - in->at < in->size / 2) { // moving costs less than what was read since
        memmove(in->buffer, in->buffer + in->at, in->size - in->at);
        in->base += (int64_t)in->at;
        in->size -= in->at;
        in->at = 0;
    }
    size_t need = in->at + want + CHUNK;
    if (in->capacity >= need) return;
    in->capacity = need > 2 * in->capacity ? need : 2 * in->capacity;
    in->buffer = ct_realloc(in->buffer, in->capacity);
}

ct_status input_fill(input *in, size_t want) {
    if (in->size - in->at >= want || in->end) return CT_OK;
    make_room(in, want);
    while (in->size - in->at < want && !in->end) CT_TRY(read_more(in));
    return CT_OK;
}

static ct_status skip_to(input *in, int64_t offset) {
    while (input_offset(in) < offset) {
        in->at = in->size;
        CT_TRY(input_fill(in, 1));
        CT_CHECK(in->at < in->size, CT_CORRUPT, "%s ends at byte %lld; a place %lld bytes in was looked for", in->path,
                 (long long)input_offset(in), (long long)offset);
        int64_t left = offset - input_offset(in);
        in->at += (int64_t)(in->size - in->at) < left ? in->size - in->at : (size_t)left;
    }
    return CT_OK;
}

ct_status input_seek(input *in, int64_t offset) {
    if (offset >= in->base && offset <= in->base + (int64_t)in->size) {
        in->at = (size_t)(offset - in->base);
        return CT_OK;
    }
    if (in->kind != INPUT_PLAIN) {
        if (offset < in->base) CT_TRY(input_open(in, in->path));
        return skip_to(in, offset);
    }
    struct stat st;
    CT_CHECK(!fstat(in->fd, &st) && lseek(in->fd, offset, SEEK_SET) == offset, CT_IO, "cannot seek in %s: %s", in->path,
             strerror(errno));
    CT_CHECK(offset <= st.st_size, CT_CORRUPT, "%s ends at byte %lld; a place %lld bytes in was looked for", in->path,
             (long long)st.st_size, (long long)offset);
    in->at = in->size = 0;
    in->base = offset;
    in->end = 0;
    return CT_OK;
}

ct_status input_line(input *in, const char **out_line, size_t *out_length) {
    size_t seen = 0;
    for (;;) {
        char *start = in->buffer + in->at, *newline = NULL;
        size_t have = in->size - in->at;
        if (have > seen) newline = memchr(start + seen, '\n', have - seen);
        if (newline || in->end) {
            *out_length = newline ? (size_t)(newline - start) : have;
            *out_line = newline || have ? start : NULL;
            in->at += *out_length + (newline != NULL);
            return CT_OK;
        }
        CT_CHECK(have < LINE_MAX_BYTES, CT_INVALID, "%s: a line of more than 1 GiB begins at byte %lld", in->path,
                 (long long)input_offset(in));
        seen = have;
        CT_TRY(input_fill(in, have + 1));
    }
}
