// Hugging Face's tokenizer.json: the vocabulary, the merges and the added tokens here; the pipeline around them in
// load_json_parts.c. Models: BPE and Unigram. Leaves out WordPiece and WordLevel, BPE dropout, truncation and
// padding.
#include "core.h"
#include "json.h"
#include "load_json.h"

#include <stdlib.h>
#include <string.h>

// ---- BPE -----------------------------------------------------------------------------------------

static ct_status load_vocab(ct_tokenizer *tokenizer, const cJSON *vocab, int nuls) {
    CT_CHECK(cJSON_IsObject(vocab), CT_INVALID, "\"vocab\" is not an object");
    for (cJSON *item = vocab->child; item; item = item->next) {
        CT_CHECK(cJSON_IsNumber(item) && item->valuedouble >= 0 && item->valuedouble < 1 << 28 &&
                     item->valuedouble == (double)item->valueint,
                 CT_INVALID, "the token '%.60s' has no id", item->string);
        size_t length = ct_json_restore_nuls(item->string, nuls);
        CT_TRY(ct_vocab_add(&tokenizer->vocab, &tokenizer->arena, item->string, length, item->valueint));
    }
    return CT_OK;
}

static ct_status find_part(const ct_vocab *vocab, const char *text, size_t length, int line, int *out_id) {
    *out_id = ct_vocab_find(vocab, text, length);
    CT_CHECK(*out_id >= 0, CT_INVALID, "merge %d names '%.*s', which is not in the vocabulary", line,
             length > 60 ? 60 : (int)length, text);
    return CT_OK;
}

ct_status ct_load_merge(ct_tokenizer *tokenizer, const char *left, size_t left_length, const char *right,
                        size_t right_length, int rank) {
    int left_id, right_id, id;
    ct_vocab *vocab = &tokenizer->vocab;
    CT_TRY(find_part(vocab, left, left_length, rank, &left_id));
    CT_TRY(find_part(vocab, right, right_length, rank, &right_id));
    size_t prefix = tokenizer->bpe.prefix ? strlen(tokenizer->bpe.prefix) : 0;
    CT_CHECK(prefix <= right_length, CT_INVALID, "merge %d joins to a token shorter than the continuing prefix",
             rank);
    char *joined = ct_malloc(left_length + right_length);
    memcpy(joined, left, left_length);
    memcpy(joined + left_length, right + prefix, right_length - prefix);
    ct_status status = find_part(vocab, joined, left_length + right_length - prefix, rank, &id);
    free(joined);
    if (status) return status;
    ct_pairs_put(&tokenizer->bpe.pairs, (uint32_t)left_id, (uint32_t)right_id, (uint32_t)rank, id);
    return CT_OK;
}

static ct_status load_merge_item(ct_tokenizer *tokenizer, const cJSON *item, int rank, int nuls) {
    if (cJSON_IsString(item)) {
        size_t length = ct_json_restore_nuls(item->valuestring, nuls);
        char *space = memchr(item->valuestring, ' ', length);
        CT_CHECK(space && !memchr(space + 1, ' ', length - (size_t)(space + 1 - item->valuestring)), CT_INVALID,
                 "merge %d, '%.60s', is not two tokens parted by a space", rank, item->valuestring);
        size_t left = (size_t)(space - item->valuestring);
        return ct_load_merge(tokenizer, item->valuestring, left, space + 1, length - left - 1, rank);
    }
    const cJSON *left = cJSON_IsArray(item) ? item->child : NULL, *right = left ? left->next : NULL;
    CT_CHECK(right && !right->next && cJSON_IsString(left) && cJSON_IsString(right), CT_INVALID,
             "merge %d is neither a text nor a pair of texts", rank);
    size_t left_length = ct_json_restore_nuls(left->valuestring, nuls);
    size_t right_length = ct_json_restore_nuls(right->valuestring, nuls);
    return ct_load_merge(tokenizer, left->valuestring, left_length, right->valuestring, right_length, rank);
}

static ct_status affix(ct_tokenizer *tokenizer, const cJSON *model, const char *name, const char **out_text) {
    CT_TRY(ct_json_text(model, name, out_text));
    if (*out_text) *out_text = **out_text ? ct_arena_strdup(&tokenizer->arena, *out_text) : NULL;
    return CT_OK;
}

static ct_status load_bpe(ct_tokenizer *tokenizer, const cJSON *model, int nuls) {
    ct_bpe *bpe = &tokenizer->bpe;
    const cJSON *dropout = ct_json_field(model, "dropout");
    CT_CHECK(!dropout || (cJSON_IsNumber(dropout) && dropout->valuedouble == 0), CT_UNSUPPORTED,
             "BPE dropout is not supported");
    CT_TRY(affix(tokenizer, model, "continuing_subword_prefix", &bpe->prefix));
    CT_TRY(affix(tokenizer, model, "end_of_word_suffix", &bpe->suffix));
    CT_TRY(ct_json_flag(model, "fuse_unk", 0, &bpe->fuse_unk));
    CT_TRY(ct_json_flag(model, "byte_fallback", 0, &bpe->byte_fallback));
    CT_TRY(ct_json_flag(model, "ignore_merges", 0, &bpe->whole_words));
    CT_TRY(load_vocab(tokenizer, ct_json_field(model, "vocab"), nuls));
    const char *unk;
    CT_TRY(ct_json_text(model, "unk_token", &unk));
    if (unk) bpe->unk_id = ct_vocab_find(&tokenizer->vocab, unk, strlen(unk));
    CT_CHECK(!unk || bpe->unk_id >= 0, CT_INVALID, "unk_token '%.60s' is not in the vocabulary", unk);
    const cJSON *merges = ct_json_field(model, "merges");
    CT_CHECK(cJSON_IsArray(merges), CT_INVALID, "\"merges\" is not a list");
    int rank = 0;
    for (cJSON *item = merges->child; item; item = item->next) CT_TRY(load_merge_item(tokenizer, item, rank++, nuls));
    tokenizer->info.merges = rank;
    return CT_OK;
}

// ---- Unigram -------------------------------------------------------------------------------------

static ct_status load_unigram(ct_tokenizer *tokenizer, const cJSON *model, int nuls) {
    ct_unigram *unigram = &tokenizer->unigram;
    const cJSON *vocab = ct_json_field(model, "vocab");
    CT_CHECK(cJSON_IsArray(vocab), CT_INVALID, "\"vocab\" is not a list");
    int count = cJSON_GetArraySize(vocab), id = 0;
    unigram->scores = ct_calloc((size_t)count + 1, sizeof *unigram->scores);
    unigram->usable = ct_calloc((size_t)count + 1, 1);
    double lowest = 0;
    for (cJSON *item = vocab->child; item; item = item->next, id++) {
        const cJSON *text = cJSON_IsArray(item) ? item->child : NULL, *score = text ? text->next : NULL;
        CT_CHECK(score && cJSON_IsString(text) && cJSON_IsNumber(score), CT_INVALID,
                 "piece %d is no text with a score", id);
        size_t length = ct_json_restore_nuls(text->valuestring, nuls);
        CT_TRY(ct_vocab_add(&tokenizer->vocab, &tokenizer->arena, text->valuestring, length, id));
        unigram->scores[id] = score->valuedouble;
        unigram->usable[id] = length > 0;
        if (!id || score->valuedouble < lowest) lowest = score->valuedouble;
    }
    unigram->unk_score = lowest - 10;
    CT_TRY(ct_json_flag(model, "byte_fallback", 0, &unigram->byte_fallback));
    int unk;
    CT_TRY(ct_json_count(model, "unk_id", 1 << 29, &unk));
    CT_CHECK(unk < count || unk == 1 << 29, CT_INVALID, "\"unk_id\" %d is beyond the vocabulary's %d pieces", unk,
             count);
    unigram->unk_id = unk < count ? unk : -1;
    tokenizer->model = CT_MODEL_UNIGRAM;
    ct_unigram_index(unigram, &tokenizer->vocab);
    return CT_OK;
}

// ---- the file ------------------------------------------------------------------------------------

static ct_status load_model(ct_tokenizer *tokenizer, const cJSON *model, int nuls) {
    CT_CHECK(cJSON_IsObject(model), CT_INVALID, "there is no \"model\"");
    const char *type;
    CT_TRY(ct_json_text(model, "type", &type));
    if (!type)
        type = ct_json_field(model, "merges")                 ? "BPE"
               : cJSON_IsArray(ct_json_field(model, "vocab")) ? "Unigram"
                                                              : "?";
    if (!strcmp(type, "BPE")) return load_bpe(tokenizer, model, nuls);
    if (!strcmp(type, "Unigram")) return load_unigram(tokenizer, model, nuls);
    CT_FAIL(CT_UNSUPPORTED, "the model '%.40s' is not supported (BPE and Unigram are)", type);
}

static ct_status load_added(ct_tokenizer *tokenizer, const cJSON *list, int nuls) {
    if (!list) return CT_OK;
    CT_CHECK(cJSON_IsArray(list), CT_INVALID, "\"added_tokens\" is not a list");
    for (cJSON *item = list->child; item; item = item->next) {
        const char *content;
        int special, single_word, lstrip, rstrip, normalized;
        CT_TRY(ct_json_text(item, "content", &content));
        CT_CHECK(content, CT_INVALID, "an added token has no \"content\"");
        CT_TRY(ct_json_flag(item, "special", 0, &special));
        CT_TRY(ct_json_flag(item, "single_word", 0, &single_word));
        CT_TRY(ct_json_flag(item, "lstrip", 0, &lstrip));
        CT_TRY(ct_json_flag(item, "rstrip", 0, &rstrip));
        CT_TRY(ct_json_flag(item, "normalized", !special, &normalized));
        size_t length = ct_json_restore_nuls((char *)content, nuls);
        ct_added_token token = {.text = content,
                                .length = (uint32_t)length,
                                .special = (uint8_t)special,
                                .single_word = (uint8_t)single_word,
                                .lstrip = (uint8_t)lstrip,
                                .rstrip = (uint8_t)rstrip,
                                .normalized = (uint8_t)normalized};
        CT_TRY(ct_added_add(&tokenizer->added, &tokenizer->vocab, &tokenizer->arena, token));
    }
    return CT_OK;
}

static ct_status load_all(ct_tokenizer *tokenizer, const cJSON *json, int nuls) {
    CT_CHECK(cJSON_IsObject(json), CT_INVALID, "the file holds no JSON object");
    CT_CHECK(!ct_json_field(json, "truncation"), CT_UNSUPPORTED, "\"truncation\" is not supported: set it to null");
    CT_CHECK(!ct_json_field(json, "padding"), CT_UNSUPPORTED, "\"padding\" is not supported: set it to null");
    CT_TRY_AS(load_model(tokenizer, ct_json_field(json, "model"), nuls), "in \"model\"");
    CT_TRY(load_added(tokenizer, ct_json_field(json, "added_tokens"), nuls));
    CT_TRY_AS(ct_load_normalizer(tokenizer, ct_json_field(json, "normalizer")), "in \"normalizer\"");
    CT_TRY_AS(ct_load_splitter(tokenizer, ct_json_field(json, "pre_tokenizer")), "in \"pre_tokenizer\"");
    CT_TRY_AS(ct_load_decoder(tokenizer, ct_json_field(json, "decoder")), "in \"decoder\"");
    CT_TRY_AS(ct_load_template(tokenizer, ct_json_field(json, "post_processor")), "in \"post_processor\"");
    if (tokenizer->model == CT_MODEL_UNIGRAM)
        tokenizer->info.kind = "unigram";
    else
        tokenizer->info.kind = tokenizer->bpe.byte_level ? "byte-level BPE" : "BPE";
    return CT_OK;
}

ct_status ct_load_json(ct_tokenizer *tokenizer, const char *path) {
    cJSON *json;
    int nuls;
    CT_TRY(ct_json_read(path, &json, &nuls));
    ct_status status = load_all(tokenizer, json, nuls);
    cJSON_Delete(json);
    return status ? ct_error_note(status, "reading %s", path) : CT_OK;
}
