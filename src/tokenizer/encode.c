// Encoding: make the text UTF-8, take out added tokens, normalise, take out normalised added tokens, cut into words,
// and encode each word, by the cache where it was met before. All scratch lies in the context.
#include "cache.h"
#include "core.h"

#include <stdlib.h>
#include <string.h>

struct ct_tokenizer_context {
    const ct_tokenizer *tokenizer;
    ct_buffer text;         // the whole text as UTF-8
    ct_buffer piece, other; // a piece of it, normalised
    ct_split_work split;
    ct_bpe_scratch bpe;
    ct_unigram_scratch unigram;
    ct_cache cache;
    ct_pattern_scratch *pattern;
};

ct_tokenizer_context *ct_tokenizer_context_create(const ct_tokenizer *tokenizer) {
    ct_tokenizer_context *context = ct_calloc(1, sizeof *context);
    context->tokenizer = tokenizer;
    context->cache.entries = ct_calloc(2 * (size_t)CT_CACHE_SETS, sizeof(ct_cache_entry));
    for (int i = 0; i < tokenizer->normalizer.count; i++)
        if (tokenizer->normalizer.steps[i].pattern && !context->pattern)
            context->pattern = ct_pattern_scratch_create();
    return context;
}

void ct_tokenizer_context_destroy(ct_tokenizer_context *context) {
    if (!context) return;
    ct_buffer_deinit(&context->text);
    ct_buffer_deinit(&context->piece);
    ct_buffer_deinit(&context->other);
    ct_split_work_deinit(&context->split);
    ct_bpe_scratch_deinit(&context->bpe);
    ct_unigram_scratch_deinit(&context->unigram);
    ct_pattern_scratch_destroy(context->pattern);
    free(context->cache.entries);
    free(context);
}

static void grow_ids(ct_ids *list, size_t wanted) {
    while (list->capacity < wanted) list->capacity = list->capacity ? 2 * list->capacity : 256;
    list->ids = ct_realloc(list->ids, list->capacity * sizeof *list->ids);
}

void ct_ids_add(ct_ids *list, int32_t id) {
    if (list->count == list->capacity) grow_ids(list, list->count + 1);
    list->ids[list->count++] = id;
}

void ct_ids_deinit(ct_ids *list) {
    free(list->ids);
    *list = (ct_ids){0};
}

// ---- words ---------------------------------------------------------------------------------------

static void encode_new_word(ct_tokenizer_context *context, const unsigned char *word, size_t size, ct_ids *out) {
    const ct_tokenizer *tokenizer = context->tokenizer;
    if (tokenizer->model == CT_MODEL_UNIGRAM)
        ct_unigram_encode(&tokenizer->unigram, &tokenizer->vocab, &context->unigram, word, size, out);
    else
        ct_bpe_encode_word(&tokenizer->bpe, &tokenizer->vocab, &context->bpe, word, size, out);
}

static void remember(ct_cache_entry *set, const uint64_t key[3], size_t size, const int32_t *ids, size_t count) {
    if (count > CT_CACHE_IDS) return;
    set[1] = set[0];
    set[0] = (ct_cache_entry){.key = {key[0], key[1], key[2]}, .size = (uint8_t)size, .count = (uint8_t)count};
    memcpy(set[0].ids, ids, count * sizeof *ids);
}

static inline void encode_word(ct_tokenizer_context *context, const unsigned char *word, size_t size, ct_ids *out) {
    if (size > CT_CACHE_KEY) {
        encode_new_word(context, word, size, out);
        return;
    }
    uint64_t key[3];
    ct_cache_key(word, size, key);
    ct_cache_entry *set = &context->cache.entries[2 * (size_t)ct_cache_set(key, size)], *entry = set;
    if (!ct_cache_hit(entry, key, size) && !ct_cache_hit(++entry, key, size)) {
        size_t first = out->count;
        encode_new_word(context, word, size, out);
        remember(set, key, size, out->ids + first, out->count - first);
        return;
    }
    if (out->capacity - out->count < CT_CACHE_IDS) grow_ids(out, out->count + CT_CACHE_IDS);
    memcpy(out->ids + out->count, entry->ids, sizeof entry->ids);
    out->count += entry->count;
}

// Whether a word may be cut at byte i, the beginning of a character.
static inline int may_cut(const ct_tokenizer *tokenizer, const unsigned char *word, size_t i, size_t size) {
    unsigned pair = (unsigned)word[i - 1] << 8 | word[i];
    if (tokenizer->together && !(tokenizer->together[pair / 8] >> pair % 8 & 1)) return 1;
    const char *mark = tokenizer->mark;
    if (!mark || word[i] != (unsigned char)mark[0] || size - i < 3 || memcmp(word + i, mark, 3)) return 0;
    return i < 3 || memcmp(word + i - 3, mark, 3); // a run of marks stays whole
}

// Cuts a word where no token reaches across.
static void encode_in_parts(ct_tokenizer_context *context, const unsigned char *word, size_t size, ct_ids *out) {
    const ct_tokenizer *tokenizer = context->tokenizer;
    size_t begin = 0;
    for (size_t i = 1; i < size; i++) {
        if ((word[i] & 0xc0) == 0x80 || !may_cut(tokenizer, word, i, size)) continue;
        encode_word(context, word + begin, i - begin, out);
        begin = i;
    }
    encode_word(context, word + begin, size - begin, out);
}

// ---- pieces --------------------------------------------------------------------------------------

// Encodes split.text, a piece without added tokens.
static ct_status encode_piece(ct_tokenizer_context *context, int at_start, ct_ids *out) {
    const ct_tokenizer *tokenizer = context->tokenizer;
    ct_split_work *work = &context->split;
    memset(work->text.bytes + work->text.size, 0, CT_BUFFER_SLACK);
    CT_TRY(ct_splitter_run(&tokenizer->splitter, tokenizer->classes, work, at_start));
    const unsigned char *text = work->text.bytes;
    for (size_t i = 0; i < work->words.count; i++) {
        ct_span word = work->words.items[i];
        if (tokenizer->mark || tokenizer->together)
            encode_in_parts(context, text + word.begin, word.end - word.begin, out);
        else
            encode_word(context, text + word.begin, word.end - word.begin, out);
    }
    return CT_OK;
}

static ct_status encode_part(ct_tokenizer_context *context, const unsigned char *text, size_t size, int at_start,
                             ct_ids *out) {
    if (!size) return CT_OK;
    context->split.text.size = 0;
    ct_buffer_add(&context->split.text, text, size);
    return encode_piece(context, at_start, out);
}

// Encodes a piece that is free of raw added tokens: normalises it and takes out those that are looked for behind
// that.
static ct_status encode_normalized(ct_tokenizer_context *context, const unsigned char *text, size_t size,
                                   int at_start, int skip_special, ct_ids *out) {
    const ct_tokenizer *tokenizer = context->tokenizer;
    const ct_added_set *set = &tokenizer->added.normalized;
    if (!size) return CT_OK;
    if (!tokenizer->normalizer.count && !set->count) return encode_part(context, text, size, at_start, out);
    context->piece.size = 0;
    ct_buffer_add(&context->piece, text, size);
    memset(context->piece.bytes + size, 0, CT_BUFFER_SLACK);
    CT_TRY(ct_normalizer_run(&tokenizer->normalizer, tokenizer->classes, context->pattern, &context->piece,
                             &context->other));
    const ct_buffer *piece = &context->piece;
    size_t done = 0, begin, end;
    const ct_added_token *token;
    while (set->count && (token = ct_added_next(set, tokenizer->classes, piece->bytes, piece->size, done, done,
                                                skip_special, &begin, &end))) {
        CT_TRY(encode_part(context, piece->bytes + done, begin - done, at_start && !done, out));
        ct_ids_add(out, token->id);
        done = end;
    }
    return encode_part(context, piece->bytes + done, piece->size - done, at_start && !done, out);
}

static ct_status encode_text(ct_tokenizer_context *context, int skip_special, ct_ids *out) {
    const ct_tokenizer *tokenizer = context->tokenizer;
    const ct_added_set *set = &tokenizer->added.raw;
    const ct_buffer *text = &context->text;
    size_t done = 0, begin, end;
    const ct_added_token *token;
    while (set->count && (token = ct_added_next(set, tokenizer->classes, text->bytes, text->size, done, done,
                                                skip_special, &begin, &end))) {
        CT_TRY(encode_normalized(context, text->bytes + done, begin - done, !done, skip_special, out));
        ct_ids_add(out, token->id);
        done = end;
    }
    return encode_normalized(context, text->bytes + done, text->size - done, !done, skip_special, out);
}

ct_status ct_tokenizer_encode(ct_tokenizer_context *context, const void *text, size_t size, ct_encode_options options,
                              ct_ids *out_ids) {
    const ct_tokenizer *tokenizer = context->tokenizer;
    const ct_tokenizer_info *info = &tokenizer->info;
    CT_CHECK(size < (size_t)INT32_MAX / 3, CT_INVALID, "a text of %zu bytes: at most %d can be encoded at once", size,
             INT32_MAX / 3);
    int use_template = !options.no_template;
    if (!out_ids->ids) grow_ids(out_ids, 256);
    if (options.add_bos && info->bos_id >= 0 && !(use_template && info->template_bos))
        ct_ids_add(out_ids, info->bos_id);
    for (int i = 0; use_template && i < tokenizer->before_count; i++) ct_ids_add(out_ids, tokenizer->before[i]);
    ct_utf8_sanitise(text, size, &context->text);
    CT_TRY(encode_text(context, options.plain_specials, out_ids));
    for (int i = 0; use_template && i < tokenizer->after_count; i++) ct_ids_add(out_ids, tokenizer->after[i]);
    if (options.add_eos && info->eos_id >= 0 && !(use_template && info->template_eos))
        ct_ids_add(out_ids, info->eos_id);
    return CT_OK;
}
