// Reading a corpus: a mapping whose header and index are checked at once, and whose blocks of ids are checked as they are first read,
// so that a file of many gigabytes opens at once and a flipped bit is still found before it is trained on.
#include "data/corpus.h"
#include "base/file.h"
#include "base/memory.h"
#include "corpus_format.h"

#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

struct ct_corpus {
    char *path;
    ct_file_map map;
    const corpus_header *header;
    ct_corpus_info info;
    const unsigned char *ids;
    const uint64_t *index, *sums;
    uint64_t ids_bytes, blocks;
    unsigned char *checked; // a byte a block
};

static ct_status check_header(const char *path, const ct_file_map *map) {
    const corpus_header *h = (const corpus_header *)map->bytes;
    CT_CHECK(map->size >= 8 && !memcmp(h->magic, "CTCORPUS", 8), CT_INVALID,
             "%s is no corpus: it does not begin with CTCORPUS (`ctitan data build` makes one)", path);
    CT_CHECK(map->size >= sizeof *h, CT_CORRUPT, "%s is cut off: %zu bytes, inside the header", path, map->size);
    CT_CHECK(h->version == CORPUS_VERSION, CT_UNSUPPORTED, "%s is a corpus of version %u; this program reads version %d",
             path, h->version, CORPUS_VERSION);
    CT_CHECK(XXH3_64bits(h, offsetof(corpus_header, header_sum)) == h->header_sum, CT_CORRUPT,
             "%s: the header's checksum is wrong", path);
    CT_CHECK(h->file_bytes == map->size, CT_CORRUPT, "%s is cut off or longer than it was: %zu bytes, the header says %llu",
             path, map->size, (unsigned long long)h->file_bytes);
    return CT_OK;
}

// A header with a good checksum can still be hostile: every section must lie inside the file.
static ct_status check_layout(const char *path, const corpus_header *h) {
    uint64_t size = h->file_bytes, most = size / 2;
    int good = (h->id_bytes == 2 || h->id_bytes == 4) && h->tokens <= most && h->documents <= most &&
               h->block_bytes == CORPUS_BLOCK && h->vocab_size <= INT32_MAX && h->ids_offset % CORPUS_ALIGN == 0 &&
               h->index_offset % CORPUS_ALIGN == 0 && h->sums_offset % CORPUS_ALIGN == 0 && h->ids_offset <= size &&
               h->index_offset <= size && h->sums_offset <= size;
    if (good) {
        uint64_t ids_bytes = h->tokens * h->id_bytes, blocks = (ids_bytes + CORPUS_BLOCK - 1) / CORPUS_BLOCK;
        good = ids_bytes <= size - h->ids_offset && (h->documents + 1) * 8 <= size - h->index_offset &&
               blocks * 8 <= size - h->sums_offset;
    }
    CT_CHECK(good, CT_CORRUPT, "%s: the header makes no sense", path);
    return CT_OK;
}

static ct_status check_tables(ct_corpus *corpus) {
    const corpus_header *h = corpus->header;
    CT_CHECK(XXH3_64bits(corpus->index, (h->documents + 1) * 8) == h->index_sum, CT_CORRUPT,
             "%s: the document index' checksum is wrong", corpus->path);
    CT_CHECK(XXH3_64bits(corpus->sums, corpus->blocks * 8) == h->sums_sum, CT_CORRUPT,
             "%s: the checksum of the block checksums is wrong", corpus->path);
    CT_CHECK(!corpus->index[0] && corpus->index[h->documents] == h->tokens, CT_CORRUPT,
             "%s: the document index does not cover the ids", corpus->path);
    return CT_OK;
}

static void describe(ct_corpus *corpus) {
    const corpus_header *h = corpus->header;
    corpus->ids = corpus->map.bytes + h->ids_offset;
    corpus->index = (const uint64_t *)(const void *)(corpus->map.bytes + h->index_offset);
    corpus->sums = (const uint64_t *)(const void *)(corpus->map.bytes + h->sums_offset);
    corpus->ids_bytes = h->tokens * h->id_bytes;
    corpus->blocks = (corpus->ids_bytes + CORPUS_BLOCK - 1) / CORPUS_BLOCK;
    corpus->checked = ct_calloc(corpus->blocks, 1);
    corpus->info = (ct_corpus_info){
        .id_bytes = h->id_bytes,
        .documents = (int64_t)h->documents,
        .tokens = (int64_t)h->tokens,
        .text_bytes = (int64_t)h->text_bytes,
        .file_bytes = (int64_t)h->file_bytes,
        .fingerprint = h->fingerprint,
        .vocab_size = (int32_t)h->vocab_size,
        .bos = h->bos,
        .eos = h->eos,
        .checksum = h->header_sum,
    };
}

ct_status ct_corpus_open(const char *path, ct_corpus **out_corpus) {
    ct_corpus *corpus = ct_calloc(1, sizeof *corpus);
    corpus->path = ct_strdup(path);
    ct_status status = ct_file_map_open(path, &corpus->map);
    if (!status) status = check_header(path, &corpus->map);
    if (!status) {
        corpus->header = (const corpus_header *)corpus->map.bytes;
        status = check_layout(path, corpus->header);
    }
    if (!status) {
        describe(corpus);
        status = check_tables(corpus);
    }
    if (status) return ct_corpus_close(corpus), status;
    *out_corpus = corpus;
    return CT_OK;
}

void ct_corpus_close(ct_corpus *corpus) {
    if (!corpus) return;
    ct_file_map_close(&corpus->map);
    free(corpus->checked);
    free(corpus->path);
    free(corpus);
}

const ct_corpus_info *ct_corpus_describe(const ct_corpus *corpus) { return &corpus->info; }

static ct_status check_block(ct_corpus *corpus, uint64_t block) {
    if (corpus->checked[block]) return CT_OK;
    uint64_t begin = block * CORPUS_BLOCK, left = corpus->ids_bytes - begin;
    uint64_t sum = XXH3_64bits(corpus->ids + begin, left < CORPUS_BLOCK ? left : CORPUS_BLOCK);
    CT_CHECK(sum == corpus->sums[block], CT_CORRUPT, "%s: the checksum of block %llu of %llu is wrong: build it anew",
             corpus->path, (unsigned long long)block + 1, (unsigned long long)corpus->blocks);
    corpus->checked[block] = 1;
    return CT_OK;
}

ct_status ct_corpus_document(ct_corpus *corpus, int64_t document, const void **out_ids, int64_t *out_count) {
    CT_CHECK(document >= 0 && document < corpus->info.documents, CT_INVALID, "%s has %lld documents, no number %lld",
             corpus->path, (long long)corpus->info.documents, (long long)document);
    uint64_t begin = corpus->index[document], end = corpus->index[document + 1];
    CT_CHECK(begin <= end && end <= corpus->header->tokens, CT_CORRUPT, "%s: the index is wrong at document %lld",
             corpus->path, (long long)document);
    uint64_t from = begin * corpus->info.id_bytes, to = end * corpus->info.id_bytes;
    for (uint64_t block = from / CORPUS_BLOCK; block * CORPUS_BLOCK < to; block++) CT_TRY(check_block(corpus, block));
    *out_ids = corpus->ids + from;
    *out_count = (int64_t)(end - begin);
    return CT_OK;
}

static uint32_t id_at(const ct_corpus *corpus, const void *ids, int64_t i) {
    return corpus->info.id_bytes == 2 ? ((const uint16_t *)ids)[i] : ((const uint32_t *)ids)[i];
}

ct_status ct_corpus_verify(ct_corpus *corpus) {
    for (int64_t d = 0; d < corpus->info.documents; d++) {
        const void *ids;
        int64_t count;
        CT_TRY(ct_corpus_document(corpus, d, &ids, &count));
        for (int64_t i = 0; i < count; i++)
            CT_CHECK(id_at(corpus, ids, i) < (uint32_t)corpus->info.vocab_size, CT_CORRUPT,
                     "%s: document %lld holds the id %u; the vocabulary has %d entries", corpus->path, (long long)d,
                     id_at(corpus, ids, i), corpus->info.vocab_size);
    }
    return CT_OK;
}
