// The ids go through a buffer of one block, which is hashed as it is written; the index and the blocks' checksums stay in memory until
// the end, 8 bytes a document and 8 a MiB. The header goes in last.
#include "corpus_write.h"
#include "base/memory.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

enum { SMALL_VOCABULARY = 65536 };

static ct_status write_all(corpus_writer *writer, const void *bytes, size_t size) {
    for (size_t done = 0; done < size;) {
        ssize_t n = write(writer->fd, (const char *)bytes + done, size - done);
        if (n < 0 && errno == EINTR) continue;
        CT_CHECK(n > 0, CT_IO, "cannot write %s: %s", writer->temporary, strerror(errno));
        done += (size_t)n;
    }
    writer->header.file_bytes += size;
    return CT_OK;
}

static ct_status pad(corpus_writer *writer) {
    static const char zeros[CORPUS_ALIGN];
    size_t over = writer->header.file_bytes % CORPUS_ALIGN;
    return over ? write_all(writer, zeros, CORPUS_ALIGN - over) : CT_OK;
}

ct_status corpus_writer_begin(corpus_writer *writer, const char *path, const ct_data_encoder *encoder) {
    *writer = (corpus_writer){.path = ct_strdup(path), .temporary = ct_format("%s.tmp", path), .fd = -1};
    writer->block = ct_malloc(CORPUS_BLOCK);
    writer->header = (corpus_header){
        .version = CORPUS_VERSION,
        .id_bytes = encoder->vocab_size <= SMALL_VOCABULARY ? 2 : 4,
        .fingerprint = encoder->fingerprint,
        .vocab_size = (uint32_t)encoder->vocab_size,
        .bos = encoder->bos,
        .eos = encoder->eos,
        .block_bytes = CORPUS_BLOCK,
        .ids_offset = sizeof(corpus_header),
    };
    memcpy(writer->header.magic, "CTCORPUS", 8);
    writer->fd = open(writer->temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    CT_CHECK(writer->fd >= 0, CT_IO, "cannot create %s: %s", writer->temporary, strerror(errno));
    corpus_header blank = {0};
    return write_all(writer, &blank, sizeof blank);
}

static ct_status flush_block(corpus_writer *writer) {
    if (!writer->block_size) return CT_OK;
    CT_GROW(writer->sums, writer->sums_count, writer->sums_capacity);
    writer->sums[writer->sums_count++] = XXH3_64bits(writer->block, writer->block_size);
    CT_TRY(write_all(writer, writer->block, writer->block_size));
    writer->block_size = 0;
    return CT_OK;
}

void corpus_writer_document(corpus_writer *writer) {
    CT_GROW(writer->index, writer->index_count, writer->index_capacity);
    writer->index[writer->index_count++] = writer->header.tokens;
    writer->header.documents++;
}

ct_status corpus_writer_add(corpus_writer *writer, const int32_t *ids, int64_t count) {
    const size_t size = writer->header.id_bytes;
    for (int64_t i = 0; i < count; i++) {
        CT_CHECK((uint32_t)ids[i] < writer->header.vocab_size, CT_INVALID,
                 "the tokenizer gave the id %d; its vocabulary has %u entries", ids[i], writer->header.vocab_size);
        if (writer->block_size == CORPUS_BLOCK) CT_TRY(flush_block(writer));
        uint32_t id = (uint32_t)ids[i]; // little-endian: its low bytes come first
        memcpy(writer->block + writer->block_size, &id, size);
        writer->block_size += size;
    }
    writer->header.tokens += (uint64_t)count;
    return CT_OK;
}

static ct_status write_tables(corpus_writer *writer) {
    corpus_header *h = &writer->header;
    CT_TRY(flush_block(writer));
    CT_GROW(writer->index, writer->index_count, writer->index_capacity);
    writer->index[writer->index_count++] = h->tokens;
    size_t index_bytes = (size_t)writer->index_count * 8, sums_bytes = (size_t)writer->sums_count * 8;
    CT_TRY(pad(writer));
    h->index_offset = h->file_bytes;
    h->index_sum = XXH3_64bits(writer->index, index_bytes);
    CT_TRY(write_all(writer, writer->index, index_bytes));
    CT_TRY(pad(writer));
    h->sums_offset = h->file_bytes;
    h->sums_sum = XXH3_64bits(writer->sums, sums_bytes);
    return write_all(writer, writer->sums, sums_bytes);
}

static void sync_folder_of(const char *path) {
    char *folder = ct_strdup(path), *slash = strrchr(folder, '/');
    if (slash) slash[slash == folder] = 0;
    int fd = open(slash ? folder : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    free(folder);
    if (fd < 0) return; // a folder that can't be opened can't be synced; the rename stands
    fsync(fd);
    close(fd);
}

ct_status corpus_writer_commit(corpus_writer *writer) {
    CT_TRY(write_tables(writer));
    corpus_header *h = &writer->header;
    h->header_sum = XXH3_64bits(h, offsetof(corpus_header, header_sum));
    CT_CHECK(pwrite(writer->fd, h, sizeof *h, 0) == (ssize_t)sizeof *h && !fsync(writer->fd), CT_IO,
             "cannot write %s to its disk: %s", writer->temporary, strerror(errno));
    int failed = close(writer->fd);
    writer->fd = -1;
    if (failed || rename(writer->temporary, writer->path)) {
        int error = errno;
        unlink(writer->temporary);
        CT_FAIL(CT_IO, "cannot write %s: %s", writer->path, strerror(error));
    }
    sync_folder_of(writer->path);
    return CT_OK;
}

void corpus_writer_end(corpus_writer *writer) {
    if (writer->fd >= 0) {
        close(writer->fd);
        unlink(writer->temporary);
    }
    free(writer->path);
    free(writer->temporary);
    free(writer->block);
    free(writer->index);
    free(writer->sums);
    *writer = (corpus_writer){.fd = -1};
}
