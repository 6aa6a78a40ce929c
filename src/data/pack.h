// The packer: documents of all sources, mixed, into sequences of seq_len + 1 ids.
#pragma once
#include "source.h"

// Where a sequence ended: enough to go on behind it. Its cursors are one a source, kept beside it.
typedef struct {
    int64_t sequence;     // the next one's number
    int64_t taken;        // ids of the piece (below) that are in sequences
    uint64_t piece_hash;  // XXH3 of the piece's ids: whether the same is read again
    int32_t current;      // source of the piece in the buffer; -1: nothing was read yet. The cursors stand before that piece
} pack_place;

typedef struct {
    const ct_data_options *options;
    data_source *sources;
    int count;
    ct_data_ids buffer; // [begin, count) is torchtitan's rolling buffer
    int64_t begin, piece_begin;
    int inside;          // the piece did not end its document
    pack_place place;    // behind the last sequence
    data_cursor *before; // [count] before the piece
    int64_t *pass_tokens; // [count] tokens of the source when its pass began, -1: unknown
} packer;

// Borrows options and sources. Caller calls packer_deinit.
void packer_init(packer *pack, const ct_data_options *options, data_source *sources);
void packer_deinit(packer *pack);

// Makes the next sequence, ids[seq_len + 1]; *out_end = 1 and nothing made at the end of the data (options->once).
ct_status packer_next(packer *pack, int32_t *ids, int *out_end);

// Goes to a place, reading the piece it stands in again. After an error the packer must be sent to another place first.
ct_status packer_seek(packer *pack, const pack_place *place, const data_cursor *cursors);
