// A corpus: documents as token ids in one memory-mapped file, made by `ctitan data build`.
//
// The file, little-endian, sections at multiples of 64 bytes:
//   header, 128 bytes:
//       0  magic "CTCORPUS"            8  u32 version = 1           12  u32 bytes of an id, 2 or 4
//      16  u64 documents              24  u64 tokens                32  u64 tokenizer fingerprint
//      40  u32 vocab_size             44  i32 bos, 48 i32 eos of the tokenizer (-1: none)    52  u32 bytes of a block, 1 MiB
//      56  u64 offset of the ids      64  u64 offset of the index   72  u64 offset of the block checksums
//      80  u64 bytes of the file      88  u64 bytes of source text  96  u64 XXH3 of the index   104  u64 XXH3 of the block
//     112  reserved, zero            120  u64 XXH3 of bytes 0-119             checksums
//   ids, without BOS and EOS: u16 where vocab_size ≤ 65536, else u32
//   index: u64[documents + 1], the number of the first id of each document, and the count of ids
//   block checksums: u64 XXH3 of each block of the ids (the last may be short)
//
// Opening checks header, size, index and table; a block of ids is checked when it is first read.
#pragma once
#include "base/status.h"
#include "data/data.h"
#include <stdint.h>

typedef struct {
    uint32_t id_bytes;
    int64_t documents, tokens, text_bytes, file_bytes;
    uint64_t fingerprint;
    int32_t vocab_size, bos, eos;
    uint64_t checksum; // of the header, and so of all it sums up: two corpora with the same are equal
} ct_corpus_info;

typedef struct ct_corpus ct_corpus;

// CT_CORRUPT where the file is cut off or changed, CT_INVALID where it is no corpus. Caller closes.
ct_status ct_corpus_open(const char *path, ct_corpus **out_corpus);
void ct_corpus_close(ct_corpus *corpus); // NULL is fine
const ct_corpus_info *ct_corpus_describe(const ct_corpus *corpus);

// Checks the blocks that hold them and points to the ids of a document (u16 or u32, info.id_bytes), borrowed from the
// corpus. One thread a corpus: it remembers which blocks are checked.
ct_status ct_corpus_document(ct_corpus *corpus, int64_t document, const void **out_ids, int64_t *out_count);

// Checks every block and that every id is below vocab_size.
ct_status ct_corpus_verify(ct_corpus *corpus);

typedef struct {
    ct_data_encoder encoder; // bos and eos are only noted in the header
    const ct_data_source *sources;
    int source_count;
    int threads; // that encode; 0: one a core
    // Called now and then, from the calling thread; NULL: never. bytes_total counts bytes on disk, compressed or not.
    void (*progress)(void *context, int64_t bytes_done, int64_t bytes_total, int64_t documents, int64_t tokens);
    void *progress_context;
} ct_corpus_build_options;

// Encodes all documents of the sources, one source after the other, into a corpus at path: written beside it and renamed when whole,
// so path holds what it held or all of the new corpus. Sources must be text or JSON lines.
ct_status ct_corpus_build(const ct_corpus_build_options *options, const char *path, ct_corpus_info *out_info);
