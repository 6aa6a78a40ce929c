// Fingerprints of files, and the index of documents that shuffling needs. The index holds 16 bytes a document.
#include "source_index.h"
#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

enum { WHOLE_BYTES = 256 << 20, PIECES = 16, PIECE = 1 << 16 };

static void add_text(XXH3_state_t *hash, const char *text) {
    XXH3_64bits_update(hash, text ? text : "", text ? strlen(text) + 1 : 1);
}

static ct_status total_bytes(const data_source *source, int64_t *out_total) {
    *out_total = 0;
    for (int i = 0; i < source->files.count; i++) {
        struct stat st;
        const char *path = source->files.paths[i];
        CT_CHECK(!stat(path, &st), errno == ENOENT ? CT_NOT_FOUND : CT_IO, "cannot look at %s: %s", path, strerror(errno));
        CT_CHECK(S_ISREG(st.st_mode), CT_INVALID, "%s is not a regular file", path);
        *out_total += st.st_size;
    }
    return CT_OK;
}

static ct_status hash_range(XXH3_state_t *hash, int fd, const char *path, int64_t begin, int64_t end, char *buffer) {
    while (begin < end) {
        ssize_t n = pread(fd, buffer, end - begin < PIECE ? (size_t)(end - begin) : PIECE, begin);
        if (n < 0 && errno == EINTR) continue;
        CT_CHECK(n >= 0, CT_IO, "cannot read %s: %s", path, strerror(errno));
        if (!n) break;
        XXH3_64bits_update(hash, buffer, (size_t)n);
        begin += n;
    }
    return CT_OK;
}

static ct_status hash_file(XXH3_state_t *hash, const char *path, int whole, char *buffer) {
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    CT_CHECK(fd >= 0, CT_IO, "cannot open %s: %s", path, strerror(errno));
    struct stat st = {0};
    ct_status status = fstat(fd, &st) ? ct_error_make(CT_IO, __FILE__, __LINE__, "cannot look at %s: %s", path, strerror(errno)) : CT_OK;
    int64_t size = st.st_size;
    XXH3_64bits_update(hash, &size, sizeof size);
    if (!status && (whole || size <= (int64_t)PIECES * PIECE)) status = hash_range(hash, fd, path, 0, size, buffer);
    else
        for (int64_t i = 0; i < PIECES && !status; i++) {
            int64_t begin = (size - PIECE) * i / (PIECES - 1);
            status = hash_range(hash, fd, path, begin, begin + PIECE, buffer);
        }
    close(fd);
    return status;
}

static ct_status hash_files(const data_source *source, XXH3_state_t *hash, char *buffer) {
    int64_t total;
    if (source->mode == READ_READER) {
        add_text(hash, source->spec.reader.name);
        XXH3_64bits_update(hash, &source->documents, sizeof source->documents);
        XXH3_64bits_update(hash, &source->fingerprint, sizeof source->fingerprint);
        return CT_OK;
    }
    CT_TRY(total_bytes(source, &total));
    for (int i = 0; i < source->files.count; i++) {
        const char *path = source->files.paths[i], *slash = strrchr(path, '/');
        add_text(hash, slash ? slash + 1 : path);
        if (source->mode == READ_CORPUS) {
            uint64_t sum = ct_corpus_describe(source->corpora[i])->checksum;
            XXH3_64bits_update(hash, &sum, sizeof sum);
        } else {
            CT_TRY(hash_file(hash, path, total <= WHOLE_BYTES, buffer));
        }
    }
    return CT_OK;
}

ct_status source_fingerprint(data_source *source, uint64_t *out_fingerprint) {
    XXH3_state_t *hash = XXH3_createState();
    CT_CHECK(hash, CT_NO_MEMORY, "no memory to hash %s", source->files.paths[0]);
    char *buffer = ct_malloc(PIECE);
    int64_t how[4] = {source->files.format, source->spec.split_blank_lines,
                      source->mode == READ_BLOCKS ? source->block_max : 0, source->reader.may_cut};
    XXH3_64bits_reset(hash);
    XXH3_64bits_update(hash, how, sizeof how);
    add_text(hash, source->spec.field);
    add_text(hash, source->spec.split_line);
    ct_status status = hash_files(source, hash, buffer);
    *out_fingerprint = XXH3_64bits_digest(hash);
    free(buffer);
    XXH3_freeState(hash);
    return status;
}

ct_status source_index(data_source *source) {
    int64_t capacity = 0;
    for (int i = 0; i < source->files.count; i++) {
        CT_TRY(documents_open(&source->reader, source->files.paths[i], 0, 1, 0));
        for (;;) {
            int64_t offset, line;
            int end;
            CT_TRY(documents_scan(&source->reader, &offset, &line, &end));
            if (end) break;
            CT_GROW(source->places, source->documents, capacity);
            source->places[source->documents++] =
                (document_place){offset, (uint32_t)i, line < UINT_MAX ? (uint32_t)line : UINT_MAX};
        }
    }
    return CT_OK;
}
