// Writing a corpus file: documents in, one after the other; nothing is seen at the path before all is on its disk.
#pragma once
#include "base/status.h"
#include "corpus_format.h"
#include "data/corpus.h"

typedef struct {
    char *path, *temporary;
    int fd;
    corpus_header header;
    unsigned char *block; // ids not yet written
    size_t block_size;
    uint64_t *index, *sums;
    int64_t index_count, index_capacity, sums_count, sums_capacity;
} corpus_writer;

// Opens path.tmp. Caller calls corpus_writer_end, also after an error.
ct_status corpus_writer_begin(corpus_writer *writer, const char *path, const ct_data_encoder *encoder);

// Begins a document; adds ids to it.
void corpus_writer_document(corpus_writer *writer);
ct_status corpus_writer_add(corpus_writer *writer, const int32_t *ids, int64_t count);

// Writes what is left, flushes it to the disk and renames the file to path.
ct_status corpus_writer_commit(corpus_writer *writer);

// Frees all; what was not committed is deleted.
void corpus_writer_end(corpus_writer *writer);
