// From ct_tokenizer to ct_data_encoder. Text may be cut behind a line end only where the kind of tokenizer lets one think so and trying it
// out agrees: that finds unusual patterns, and what no pattern shows, such as a space put in front of a text.
#include "data/tokens.h"
#include "base/file.h"
#include "base/memory.h"

#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

struct ct_data_tokens {
    const ct_tokenizer *tokenizer;
    ct_tokenizer_context **contexts;
    int threads, may_cut;
    uint64_t fingerprint;
};

static ct_status encode(void *context, int thread, const char *text, size_t length, ct_data_ids *ids) {
    ct_data_tokens *tokens = context;
    CT_ASSERT(thread >= 0 && thread < tokens->threads, "thread %d of %d", thread, tokens->threads);
    ct_data_ids_reserve(ids, (int64_t)(length / 4) + 16);
    ct_ids list = {ids->ids, (size_t)ids->count, (size_t)ids->capacity};
    ct_encode_options options = {.no_template = 1};
    ct_status status = ct_tokenizer_encode(tokens->contexts[thread], text, length, options, &list);
    *ids = (ct_data_ids){list.ids, (int64_t)list.count, (int64_t)list.capacity};
    return status;
}

// Ids that tell patterns apart where two tokenizers share a file: tiktoken's pattern is not in it.
static ct_status hash_probe(ct_data_tokens *tokens, uint64_t seed, uint64_t *out_hash) {
    static const char probe[] = "It's 1234567 tests: don't THEY'LL  split\tthis\r\n\n  {x[0]+=a->b;}// \xc3\xa9t\xc3\xa9 \xe4\xb8\x96\xe7\x95\x8c"
                                "\xe3\x80\x82 \xd0\x96\xd1\x83\xd0\xba \xf0\x9f\x99\x82" "camelCaseURL...\n \n";
    ct_data_ids ids = {0};
    ct_status status = encode(tokens, 0, probe, sizeof probe - 1, &ids);
    *out_hash = XXH3_64bits_withSeed(ids.ids, (size_t)ids.count * sizeof(int32_t), seed);
    free(ids.ids);
    return status;
}

static ct_status take_fingerprint(ct_data_tokens *tokens) {
    const ct_tokenizer_info *info = ct_tokenizer_describe(tokens->tokenizer);
    char *file;
    size_t size;
    CT_TRY(ct_file_read(info->path, 0, &file, &size));
    uint64_t hash = XXH3_64bits(file, size);
    free(file);
    for (int id = 0; id < info->vocab_size; id++) { // added tokens may come from a second file
        size_t length = 0;
        const char *token = ct_tokenizer_token(tokens->tokenizer, id, &length);
        hash = XXH3_64bits_withSeed(token ? token : "", length, hash + (token != NULL));
    }
    return hash_probe(tokens, hash, &tokens->fingerprint);
}

// Byte-level and cut into words by patterns: those of published tokenizers all part a line end from a letter behind it.
static int may_be_cut(const ct_tokenizer *tokenizer) {
    const ct_tokenizer_info *info = ct_tokenizer_describe(tokenizer);
    if ((strcmp(info->kind, "byte-level BPE") && strcmp(info->kind, "tiktoken")) || !strcmp(info->splitter, "none")) return 0;
    for (int id = 0; id < info->vocab_size; id++) {
        size_t length = 0;
        const char *token = ct_tokenizer_is_special(tokenizer, id) ? ct_tokenizer_token(tokenizer, id, &length) : NULL;
        if (token && memchr(token, '\n', length)) return 0;
    }
    return 1;
}

// Whether both parts of text give the ids of the whole.
static ct_status agrees(ct_data_tokens *tokens, const char *text, size_t cut, int *out_agrees) {
    ct_data_ids whole = {0}, parts = {0};
    size_t length = strlen(text);
    ct_status status = encode(tokens, 0, text, length, &whole);
    if (!status) status = encode(tokens, 0, text, cut, &parts);
    if (!status) status = encode(tokens, 0, text + cut, length - cut, &parts);
    *out_agrees = whole.count == parts.count && (!whole.count || !memcmp(whole.ids, parts.ids, (size_t)whole.count * sizeof(int32_t)));
    free(whole.ids);
    free(parts.ids);
    return status;
}

static ct_status find_may_cut(ct_data_tokens *tokens) {
    static const char *const ends[] = {"word\n", "It's\n", "end.\n", "};\n", "\"quote\"\n", "12345\n", "  x\n", "\xe4\xb8\x96\n", "\xd0\xb6\n"};
    static const char *const starts[] = {"The next", "a", "s and", "In it", "He", "if (x)", "for", "return", "int main", "def f", "import", "class A", "t", "x", "Q", "\xe5\x9b\xbd\xe5\xae\xb6", "\xd0\x96\xd1\x83\xd0\xba"};
    int good = may_be_cut(tokens->tokenizer);
    for (size_t i = 0; good && i < sizeof ends / sizeof *ends; i++)
        for (size_t j = 0; good && j < sizeof starts / sizeof *starts; j++) {
            char text[64];
            size_t cut = strlen(ends[i]);
            memcpy(text, ends[i], cut);
            strcpy(text + cut, starts[j]);
            CT_TRY(agrees(tokens, text, cut, &good));
        }
    tokens->may_cut = good;
    return CT_OK;
}

ct_status ct_data_tokens_create(const ct_tokenizer *tokenizer, int threads, ct_data_tokens **out_tokens) {
    CT_CHECK(threads >= 1, CT_INVALID, "%d threads to encode with", threads);
    ct_data_tokens *tokens = ct_calloc(1, sizeof *tokens);
    tokens->tokenizer = tokenizer;
    tokens->threads = threads;
    tokens->contexts = ct_calloc((size_t)threads, sizeof *tokens->contexts);
    for (int i = 0; i < threads; i++) tokens->contexts[i] = ct_tokenizer_context_create(tokenizer);
    ct_status status = take_fingerprint(tokens);
    if (!status) status = find_may_cut(tokens);
    if (status) return ct_data_tokens_destroy(tokens), status;
    *out_tokens = tokens;
    return CT_OK;
}

void ct_data_tokens_destroy(ct_data_tokens *tokens) {
    if (!tokens) return;
    for (int i = 0; i < tokens->threads; i++) ct_tokenizer_context_destroy(tokens->contexts[i]);
    free(tokens->contexts);
    free(tokens);
}

ct_data_encoder ct_data_tokens_encoder(ct_data_tokens *tokens, int32_t vocab_size) {
    const ct_tokenizer_info *info = ct_tokenizer_describe(tokens->tokenizer);
    return (ct_data_encoder){.context = tokens, .encode = encode, .bos = info->bos_id, .eos = info->eos_id,
                             .vocab_size = vocab_size > 0 ? vocab_size : info->vocab_size,
                             .fingerprint = tokens->fingerprint, .may_cut = tokens->may_cut};
}
