// llama2.c's tokenizer.bin: the longest token's length, then a score, a length and the bytes of each token. Spaces
// stand for SentencePiece's mark; ids 0 to 2 are unk, BOS and EOS, 3 to 258 the bytes.
#include "core.h"
#include "base/file.h"

#include <stdlib.h>
#include <string.h>

static uint32_t word_at(const unsigned char *p) {
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static ct_status read_tokens(ct_tokenizer *tokenizer, const ct_file_map *map, double **scores) {
    const unsigned char *bytes = map->bytes;
    CT_CHECK(map->size >= 4, CT_CORRUPT, "the file is cut off");
    uint32_t longest = word_at(bytes);
    int capacity = 0, id = 0;
    size_t at = 4;
    for (; at < map->size; id++) {
        CT_CHECK(map->size - at >= 8, CT_CORRUPT, "cut off at byte %zu, in token %d", at, id);
        uint32_t bits = word_at(bytes + at), length = word_at(bytes + at + 4);
        float score;
        memcpy(&score, &bits, 4);
        at += 8;
        CT_CHECK(length <= longest && length <= map->size - at, CT_CORRUPT,
                 "token %d at byte %zu claims %u bytes of at most %u", id, at, length, longest);
        CT_CHECK(score == score, CT_CORRUPT, "token %d has a score that is not a number", id);
        CT_GROW(*scores, id, capacity);
        (*scores)[id] = score;
        CT_TRY(ct_vocab_add(&tokenizer->vocab, &tokenizer->arena, (const char *)bytes + at, length, id));
        at += length;
    }
    CT_CHECK(id > 259, CT_CORRUPT, "%d tokens are too few: unk, BOS, EOS and 256 bytes come first", id);
    return CT_OK;
}

static ct_status use(ct_tokenizer *tokenizer, const double *scores) {
    int count = tokenizer->vocab.size;
    unsigned char *barred = ct_calloc((size_t)count, 1);
    memset(barred, 1, 259);
    uint32_t *ranks = ct_ranks_of_scores(scores, count);
    tokenizer->bpe.byte_fallback = 1, tokenizer->bpe.unk_id = 0;
    ct_bpe_pairs_from_tokens(tokenizer, ranks, barred, 1);
    free(ranks);
    free(barred);
    tokenizer->control = ct_calloc((size_t)count, 1);
    tokenizer->control[1] = tokenizer->control[2] = 1;
    ct_norm_step *prefix = ct_calloc(1, sizeof *prefix);
    *prefix = (ct_norm_step){.kind = CT_NORM_PREPEND, .content = " ", .content_length = 1};
    tokenizer->normalizer = (ct_normalizer){prefix, 1, 1};
    ct_decode_step *bytes = ct_calloc(1, sizeof *bytes);
    bytes->kind = CT_DECODE_BYTE_FALLBACK;
    tokenizer->decoder = (ct_decoder){.steps = bytes,
                                      .count = 1,
                                      .capacity = 1,
                                      .fused = 1,
                                      .strip_start = 1,
                                      .strip_text = " ",
                                      .drop_specials = 1};
    ct_tokenizer_info *info = &tokenizer->info;
    info->kind = "llama2.c", info->vocab_size = count;
    info->bos_id = 1, info->eos_id = 2;
    info->bos_token = "<s>", info->eos_token = "</s>";
    return CT_OK;
}

ct_status ct_load_llama2c(ct_tokenizer *tokenizer, const char *path) {
    ct_file_map map;
    CT_TRY(ct_file_map_open(path, &map));
    double *scores = NULL;
    ct_status status = read_tokens(tokenizer, &map, &scores);
    ct_file_map_close(&map);
    if (!status) status = use(tokenizer, scores);
    free(scores);
    return status ? ct_error_note(status, "reading %s as a llama2.c tokenizer", path) : CT_OK;
}
