// GPT-2's two files: the vocabulary as one JSON object, and the merges as lines of two tokens parted by a space.
#include "core.h"
#include "json.h"
#include "load_json.h"
#include "base/file.h"

#include <stdlib.h>
#include <string.h>

static ct_status load_merges(ct_tokenizer *tokenizer, char *text) {
    int rank = 0, line = 0;
    for (char *next = text; next && *next;) {
        char *begin = next, *end = strchr(begin, '\n');
        next = end ? end + 1 : NULL;
        if (end) *end = 0;
        line++;
        if (!*begin || (line == 1 && !strncmp(begin, "#version", 8))) continue;
        size_t length = strcspn(begin, "\r"), left = strcspn(begin, " ");
        CT_CHECK(left > 0 && left + 1 < length, CT_CORRUPT, "line %d is not two tokens parted by a space", line);
        CT_TRY_AS(ct_load_merge(tokenizer, begin, left, begin + left + 1, length - left - 1, rank++), "line %d",
                  line);
    }
    tokenizer->info.merges = rank;
    return CT_OK;
}

static ct_status load_vocab(ct_tokenizer *tokenizer, const cJSON *json, int nuls) {
    CT_CHECK(cJSON_IsObject(json), CT_INVALID, "the file holds no JSON object");
    for (cJSON *item = json->child; item; item = item->next) {
        CT_CHECK(cJSON_IsNumber(item) && item->valuedouble >= 0 && item->valuedouble == (double)item->valueint,
                 CT_INVALID, "the token '%.60s' has no id", item->string);
        size_t length = ct_json_restore_nuls(item->string, nuls);
        CT_TRY(ct_vocab_add(&tokenizer->vocab, &tokenizer->arena, item->string, length, item->valueint));
    }
    return CT_OK;
}

static ct_status add_end_of_text(ct_tokenizer *tokenizer) {
    static const char name[] = "<|endoftext|>";
    tokenizer->info.kind = "byte-level BPE";
    int id = ct_vocab_find(&tokenizer->vocab, name, sizeof name - 1);
    if (id < 0) return CT_OK;
    ct_added_token token = {.text = name, .length = sizeof name - 1, .special = 1};
    tokenizer->info.bos_id = tokenizer->info.eos_id = id;
    tokenizer->info.bos_token = tokenizer->info.eos_token = name;
    return ct_added_add(&tokenizer->added, &tokenizer->vocab, &tokenizer->arena, token);
}

ct_status ct_load_pair(ct_tokenizer *tokenizer, const char *vocab_path, const char *merges_path) {
    cJSON *json;
    int nuls;
    CT_TRY(ct_json_read(vocab_path, &json, &nuls));
    ct_status status = load_vocab(tokenizer, json, nuls);
    cJSON_Delete(json);
    if (status) return ct_error_note(status, "reading %s", vocab_path);
    char *text;
    size_t size;
    CT_TRY(ct_file_read(merges_path, (size_t)1 << 30, &text, &size));
    status = load_merges(tokenizer, text);
    free(text);
    if (status) return ct_error_note(status, "reading %s", merges_path);
    CT_TRY(add_end_of_text(tokenizer));
    const char *pattern = ct_pattern_named("gpt2");
    return ct_tokenizer_use_pattern(tokenizer, pattern, strlen(pattern), CT_FLAVOUR_ONIG);
}
