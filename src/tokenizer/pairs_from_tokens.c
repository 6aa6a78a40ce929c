// Formats that list no merges (tiktoken, SentencePiece, llama2.c) let any two neighbours merge whose joined text is a
// token. As a pair table: for every token and every place where it can be cut, the two parts, if both can occur as
// symbols.
#include "core.h"

#include <stdlib.h>
#include <string.h>

// The id of a part: a token, or a single character that only occurs inside tokens and is now given an id behind all
// others.
static int part_id(ct_tokenizer *tokenizer, const unsigned char *part, size_t size, const unsigned char *barred,
                   int hide) {
    int id = ct_vocab_find(&tokenizer->vocab, part, size);
    if (id >= 0) return barred && id < tokenizer->bpe.hidden_from && barred[id] ? -1 : id;
    if (!hide || (size_t)ct_utf8_length(part[0]) != size) return -1;
    id = tokenizer->vocab.size;
    return ct_vocab_add(&tokenizer->vocab, &tokenizer->arena, (const char *)part, size, id) ? -1 : id;
}

void ct_bpe_pairs_from_tokens(ct_tokenizer *tokenizer, const uint32_t *ranks, const unsigned char *barred, int hide) {
    ct_bpe *bpe = &tokenizer->bpe;
    int size = tokenizer->vocab.size;
    if (hide) bpe->hidden_from = size;
    for (int id = 0; id < size; id++) {
        ct_token token = tokenizer->vocab.tokens[id];
        if (!token.text || (barred && barred[id])) continue;
        const unsigned char *text = (const unsigned char *)token.text;
        for (size_t cut = (size_t)ct_utf8_length(text[0]); cut < token.length;
             cut += (size_t)ct_utf8_length(text[cut])) {
            int left = part_id(tokenizer, text, cut, barred, hide);
            int right = left >= 0 ? part_id(tokenizer, text + cut, token.length - cut, barred, hide) : -1;
            if (right >= 0) ct_pairs_put(&bpe->pairs, (uint32_t)left, (uint32_t)right, ranks[id], id);
        }
    }
    tokenizer->info.merges = bpe->pairs.count;
}

typedef struct {
    double score;
    int id;
} scored;

static int by_score(const void *a, const void *b) {
    const scored *x = a, *y = b;
    return x->score > y->score ? -1 : x->score < y->score ? 1 : (x->id > y->id) - (x->id < y->id);
}

uint32_t *ct_ranks_of_scores(const double *scores, int count) {
    scored *order = ct_malloc((size_t)(count + 1) * sizeof *order);
    uint32_t *ranks = ct_malloc((size_t)(count + 1) * sizeof *ranks), rank = 0;
    for (int i = 0; i < count; i++) order[i] = (scored){scores[i], i};
    qsort(order, (size_t)count, sizeof *order, by_score);
    for (int i = 0; i < count; i++) {
        if (i && order[i].score != order[i - 1].score) rank++;
        ranks[order[i].id] = rank;
    }
    free(order);
    return ranks;
}
