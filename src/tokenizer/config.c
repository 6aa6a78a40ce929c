// tokenizer_config.json as torchtitan 0.2.2 reads it: the named special tokens and "added_tokens_decoder" are added
// to the tokenizer as special tokens, and bos_token and eos_token give BOS and EOS.
#include "core.h"
#include "json.h"
#include "base/file.h"

#include <stdlib.h>
#include <string.h>

// bos_token: a text, or an object with "content". NULL: absent.
static ct_status named_token(const cJSON *config, const char *name, const cJSON **out_field, const char **out_text) {
    const cJSON *field = ct_json_field(config, name);
    *out_field = field, *out_text = NULL;
    if (!field) return CT_OK;
    if (cJSON_IsString(field)) return *out_text = field->valuestring, CT_OK;
    CT_CHECK(cJSON_IsObject(field), CT_INVALID, "\"%s\" is neither a text nor an object", name);
    CT_TRY(ct_json_text(field, "content", out_text));
    CT_CHECK(*out_text, CT_INVALID, "\"%s\" has no \"content\"", name);
    return CT_OK;
}

static ct_status add_token(ct_tokenizer *tokenizer, const cJSON *field, const char *text) {
    int single_word = 0, lstrip = 0, rstrip = 0, normalized = 0;
    if (cJSON_IsObject(field)) {
        CT_TRY(ct_json_flag(field, "single_word", 0, &single_word));
        CT_TRY(ct_json_flag(field, "lstrip", 0, &lstrip));
        CT_TRY(ct_json_flag(field, "rstrip", 0, &rstrip));
        CT_TRY(ct_json_flag(field, "normalized", 1, &normalized));
    }
    // torchtitan hands all of them to add_special_tokens, which marks every one as special.
    ct_added_token token = {.text = text,
                            .length = (uint32_t)strlen(text),
                            .special = 1,
                            .single_word = (uint8_t)single_word,
                            .lstrip = (uint8_t)lstrip,
                            .rstrip = (uint8_t)rstrip,
                            .normalized = (uint8_t)normalized};
    return ct_added_add(&tokenizer->added, &tokenizer->vocab, &tokenizer->arena, token);
}

static ct_status add_all(ct_tokenizer *tokenizer, const cJSON *config) {
    static const char *const names[] = {"bos_token", "eos_token", "pad_token", "unk_token",
                                        "sep_token", "cls_token", "mask_token"};
    const cJSON *field;
    const char *text;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        CT_TRY(named_token(config, names[i], &field, &text));
        if (text) CT_TRY(add_token(tokenizer, field, text));
    }
    const cJSON *decoder = ct_json_field(config, "added_tokens_decoder");
    for (const cJSON *item = cJSON_IsObject(decoder) ? decoder->child : NULL; item; item = item->next) {
        if (!cJSON_IsObject(item)) continue;
        CT_TRY(ct_json_text(item, "content", &text));
        if (text) CT_TRY(add_token(tokenizer, item, text));
    }
    return CT_OK;
}

static ct_status set_ends(ct_tokenizer *tokenizer, const cJSON *config) {
    ct_tokenizer_info *info = &tokenizer->info;
    const cJSON *field;
    const char *bos, *eos;
    CT_TRY(ct_json_flag(config, "add_bos_token", 0, &info->default_bos));
    CT_TRY(ct_json_flag(config, "add_eos_token", 0, &info->default_eos));
    if (tokenizer->control) return CT_OK;
    CT_TRY(named_token(config, "bos_token", &field, &bos));
    CT_TRY(named_token(config, "eos_token", &field, &eos));
    // Where both are the same text, torchtitan takes it for BOS only.
    if (bos && eos && !strcmp(bos, eos)) eos = NULL;
    info->bos_token = info->eos_token = NULL;
    info->bos_id = info->eos_id = -1;
    if (bos)
        info->bos_token = ct_arena_strdup(&tokenizer->arena, bos),
        info->bos_id = ct_vocab_find(&tokenizer->added.texts, bos, strlen(bos));
    if (eos)
        info->eos_token = ct_arena_strdup(&tokenizer->arena, eos),
        info->eos_id = ct_vocab_find(&tokenizer->added.texts, eos, strlen(eos));
    return CT_OK;
}

ct_status ct_load_config(ct_tokenizer *tokenizer, const char *folder) {
    char *path = ct_format("%s/tokenizer_config.json", folder);
    cJSON *config = NULL;
    ct_status status = ct_path_exists(path) ? ct_json_read(path, &config, NULL) : CT_OK;
    if (config) {
        // SentencePiece's control tokens are never matched in text, whatever stands beside the model.
        status = !cJSON_IsObject(config) || tokenizer->control ? CT_OK : add_all(tokenizer, config);
        if (!cJSON_IsObject(config))
            status = ct_error_make(CT_INVALID, __FILE__, __LINE__, "the file holds no JSON object");
        if (!status) status = set_ends(tokenizer, config);
        if (status) status = ct_error_note(status, "reading %s", path);
    }
    cJSON_Delete(config);
    free(path);
    return status;
}
