// The header of a corpus file as it lies on disk (little-endian, like the machines this runs on; data/corpus.h describes it).
#pragma once
#include <stdint.h>

enum { CORPUS_VERSION = 1, CORPUS_BLOCK = 1 << 20, CORPUS_ALIGN = 64 };

typedef struct {
    char magic[8];
    uint32_t version, id_bytes;
    uint64_t documents, tokens, fingerprint;
    uint32_t vocab_size;
    int32_t bos, eos;
    uint32_t block_bytes;
    uint64_t ids_offset, index_offset, sums_offset, file_bytes, text_bytes;
    uint64_t index_sum, sums_sum, reserved, header_sum;
} corpus_header;

_Static_assert(sizeof(corpus_header) == 128, "the header is 128 bytes on disk");
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "corpora are read and written as they lie in memory");
