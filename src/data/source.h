// One source: its files as an endless row of documents, pass after pass, that can be left and gone on with anywhere.
#pragma once
#include "data/corpus.h"
#include "document.h"
#include "shuffle.h"

// A place between two pieces. Which members count depends on how the source is read (see source.c).
typedef struct {
    int64_t epoch;        // passes behind us
    int64_t document;     // documents of this pass behind us
    int64_t file;         // files of this pass behind us
    int64_t offset, line; // where in the file the next document, or the block of shuffled ones, begins
    int64_t part;         // bytes (ids in a corpus) of the document that are gone
    int64_t in_block;     // documents of the block that are gone
    int64_t tokens;       // given so far, BOS and EOS included; kept by the packer
} data_cursor;

typedef enum {
    READ_STREAM,  // file after file
    READ_BLOCKS,  // shuffled, with compressed files: files in an order of the pass, documents shuffled block by block
    READ_INDEXED, // shuffled plain files: any document can be gone to
    READ_CORPUS,
    READ_READER, // documents by number from a ct_data_reader
} read_mode;

typedef struct {
    int64_t offset;
    uint32_t file, line;
} document_place;

typedef struct {
    size_t offset, length; // in the block's text
    const char *path;
    int64_t line;
} block_document;

typedef struct {
    ct_data_source spec; // its strings are the source's own
    int number, shuffle;
    uint64_t seed, fingerprint;
    int64_t block_max;
    read_mode mode;
    data_files files;
    data_cursor at; // of the next piece
    document_reader reader;
    int reader_ready; // the reader stands at `at`
    // orders of this pass
    int64_t order_epoch; // pass for which `order` is, -1: none
    permutation order;   // of documents, or of files in READ_BLOCKS
    // READ_INDEXED, READ_CORPUS, READ_READER
    int64_t documents;
    document_place *places;
    ct_corpus **corpora;
    int64_t *corpus_first; // [files + 1] number of each corpus' first document
    void *reader_source;   // of spec.reader, where it is open
    int reader_open;
    // READ_BLOCKS
    int block_ready;
    ct_string block_text;
    block_document *block;
    int64_t block_count, block_capacity;
    permutation block_order;
    data_cursor block_next; // where the block behind this one begins
} data_source;

// Finds and opens the source's files. Caller calls source_close, also after an error.
ct_status source_open(data_source *source, const ct_data_source *spec, int number, const ct_data_options *options);
void source_close(data_source *source);

// Reads the piece at `at` and moves behind it. *out_end = 1: the pass is over, nothing was read, `at` is the next one's start.
ct_status source_read(data_source *source, data_piece *out_piece, int *out_end);

// Goes to a place; what can't be right is an error now or when it is read.
ct_status source_seek(data_source *source, const data_cursor *to);
