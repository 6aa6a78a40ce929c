// Opening: finds out which format a path holds, lets its loader fill the tokenizer, and derives the tables that
// encoding needs.
#include "core.h"
#include "unicode.h"
#include "base/file.h"

#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int ends_with(const char *text, const char *end) {
    size_t length = strlen(text), end_length = strlen(end);
    return length >= end_length && !strcmp(text + length - end_length, end);
}

static int is_there(const char *folder, const char *name) {
    char *path = ct_format("%s/%s", folder, name);
    int there = ct_path_exists(path) && !ct_path_is_folder(path);
    free(path);
    return there;
}

// Which file of a folder to read: heap-allocated, NULL where there is none.
static char *find_in_folder(const char *folder) {
    static const char *const names[][2] = {{"tokenizer.json", NULL},      {"vocab.json", "merges.txt"},
                                           {"encoder.json", "vocab.bpe"}, {"tokenizer.model", NULL},
                                           {"spiece.model", NULL},        {"sentencepiece.bpe.model", NULL},
                                           {"tokenizer.bin", NULL}};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (is_there(folder, names[i][0]) && (!names[i][1] || is_there(folder, names[i][1])))
            return ct_format("%s/%s", folder, names[i][0]);
    char *pattern = ct_format("%s/*.tiktoken", folder), *found = NULL;
    glob_t matches;
    if (!glob(pattern, 0, NULL, &matches)) {
        found = ct_strdup(matches.gl_pathv[0]);
        globfree(&matches);
    }
    free(pattern);
    return found;
}

static char *folder_of(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash ? ct_format("%.*s", slash == path ? 1 : (int)(slash - path), path) : ct_strdup(".");
}

// GPT-2's pair of files, named by either of them.
static ct_status load_pair_of(ct_tokenizer *tokenizer, const char *path) {
    char *folder = folder_of(path);
    int is_openai = ends_with(path, "encoder.json") || ends_with(path, "vocab.bpe");
    char *vocab = ct_format("%s/%s", folder, is_openai ? "encoder.json" : "vocab.json");
    char *merges = ct_format("%s/%s", folder, is_openai ? "vocab.bpe" : "merges.txt");
    ct_status status = ct_load_pair(tokenizer, vocab, merges);
    free(merges);
    free(vocab);
    free(folder);
    return status;
}

static ct_status first_bytes(const char *path, unsigned char *out, size_t *out_size) {
    ct_file_map map;
    CT_TRY(ct_file_map_open(path, &map));
    *out_size = map.size < 16 ? map.size : 16;
    if (map.size) memcpy(out, map.bytes, *out_size);
    ct_file_map_close(&map);
    return CT_OK;
}

// By its name where that says it, else by its first bytes.
static ct_status load_file(ct_tokenizer *tokenizer, const char *path, const ct_tokenizer_options *options) {
    unsigned char head[16];
    size_t size;
    CT_TRY(first_bytes(path, head, &size));
    CT_CHECK(size, CT_CORRUPT, "%s is empty", path);
    if (ends_with(path, "vocab.json") || ends_with(path, "merges.txt") || ends_with(path, "encoder.json") ||
        ends_with(path, "vocab.bpe"))
        return load_pair_of(tokenizer, path);
    if (ends_with(path, ".json")) return ct_load_json(tokenizer, path);
    if (ends_with(path, ".tiktoken") || options->pattern) return ct_load_ranks(tokenizer, path, options->pattern);
    if (ends_with(path, ".bin")) return ct_load_llama2c(tokenizer, path);
    if (head[0] == '{') return ct_load_json(tokenizer, path);
    if (head[0] == 0x0a) return ct_load_sentencepiece(tokenizer, path);
    int is_text = 1;
    for (size_t i = 0; i < size; i++) is_text &= head[i] >= ' ' || head[i] == '\n' || head[i] == '\r';
    if (is_text) return ct_load_ranks(tokenizer, path, options->pattern);
    CT_FAIL(CT_CORRUPT, "%s is no tokenizer: neither JSON nor a SentencePiece model nor tiktoken ranks", path);
}

// ---- what follows from the vocabulary ------------------------------------------------------------

void ct_tokenizer_index_bytes(ct_tokenizer *tokenizer) {
    ct_bpe *bpe = &tokenizer->bpe;
    for (int byte = 0; byte < 256; byte++) {
        unsigned char mapped[4];
        int length = ct_utf8_put((uint32_t)ct_byte_to_point(byte), mapped);
        bpe->byte_ids[byte] = ct_vocab_find(&tokenizer->vocab, mapped, (size_t)length);
        char text[8];
        snprintf(text, sizeof text, "<0x%02X>", (unsigned)byte);
        int32_t fallback =
            bpe->byte_fallback || tokenizer->unigram.byte_fallback ? ct_vocab_find(&tokenizer->vocab, text, 6) : -1;
        bpe->fallback_ids[byte] = tokenizer->unigram.fallback_ids[byte] = fallback;
    }
}

// Whether a token holds the mark behind another character.
static int holds_mark_inside(const ct_token *token, const char *mark, size_t size) {
    int other_before = 0;
    for (size_t i = 0; i < token->length;) {
        int is_mark = token->length - i >= size && !memcmp(token->text + i, mark, size);
        if (is_mark && other_before) return 1;
        other_before |= !is_mark;
        i += is_mark ? size : 1;
    }
    return 0;
}

static int has_whole_fallback(const ct_bpe *bpe) {
    for (int byte = 0; byte < 256; byte++)
        if (bpe->fallback_ids[byte] < 0) return 0;
    return bpe->byte_fallback;
}

static void learn_pairs(const ct_token *token, unsigned char *together) {
    const unsigned char *text = (const unsigned char *)token->text;
    for (uint32_t i = 0; i + 1 < token->length; i++) {
        unsigned pair = (unsigned)text[i] << 8 | text[i + 1];
        together[pair / 8] |= (unsigned char)(1u << pair % 8);
    }
}

void ct_tokenizer_find_cuts(ct_tokenizer *tokenizer) {
    static const char mark[] = "\xe2\x96\x81";
    const ct_vocab *vocab = &tokenizer->vocab;
    const ct_bpe *bpe = &tokenizer->bpe;
    if (tokenizer->model != CT_MODEL_BPE || bpe->byte_level || bpe->whole_words || bpe->prefix || bpe->suffix) return;
    int inside = 0;
    // Unknown characters fuse with their neighbours, so where there are any only the mark is a safe place.
    if (has_whole_fallback(bpe)) tokenizer->together = ct_calloc(8192, 1);
    for (int id = 0; id < vocab->size; id++) {
        if (!vocab->tokens[id].text) continue;
        inside |= holds_mark_inside(&vocab->tokens[id], mark, 3);
        if (tokenizer->together) learn_pairs(&vocab->tokens[id], tokenizer->together);
    }
    if (!inside && ct_vocab_find(vocab, mark, 3) >= 0) tokenizer->mark = mark;
}

static ct_status normalize_added(ct_tokenizer *tokenizer) {
    ct_pattern_scratch *scratch = ct_pattern_scratch_create();
    ct_buffer text = {0}, other = {0};
    ct_status status = CT_OK;
    for (int i = 0; i < tokenizer->added.count && !status && tokenizer->normalizer.count; i++) {
        ct_added_token *token = &tokenizer->added.tokens[i];
        if (!token->normalized) continue;
        text.size = 0;
        ct_buffer_add(&text, token->text, token->length);
        status = ct_normalizer_run(&tokenizer->normalizer, tokenizer->classes, scratch, &text, &other);
        token->text = ct_arena_strndup(&tokenizer->arena, (const char *)text.bytes, text.size);
        token->length = (uint32_t)text.size;
    }
    ct_buffer_deinit(&text);
    ct_buffer_deinit(&other);
    ct_pattern_scratch_destroy(scratch);
    return status;
}

static int holds(const int32_t *ids, int count, int32_t id) {
    for (int i = 0; i < count; i++)
        if (ids[i] == id) return id >= 0;
    return 0;
}

static void describe(ct_tokenizer *tokenizer) {
    ct_tokenizer_info *info = &tokenizer->info;
    const ct_vocab *vocab = &tokenizer->vocab, *added = &tokenizer->added.texts;
    if (!info->vocab_size) info->vocab_size = vocab->size;
    info->tokens = 0;
    if (added->size > info->vocab_size) info->vocab_size = added->size;
    for (int id = 0; id < info->vocab_size; id++)
        info->tokens += (id < vocab->size && vocab->tokens[id].text) || (id < added->size && added->tokens[id].text);
    info->added = tokenizer->added.count;
    for (int i = 0; i < tokenizer->added.count; i++) info->specials += tokenizer->added.tokens[i].special;
    for (int id = 0; tokenizer->control && id < info->vocab_size; id++) info->specials += tokenizer->control[id];
    info->template_bos = holds(tokenizer->before, tokenizer->before_count, info->bos_id) ||
                         holds(tokenizer->after, tokenizer->after_count, info->bos_id);
    info->template_eos = holds(tokenizer->before, tokenizer->before_count, info->eos_id) ||
                         holds(tokenizer->after, tokenizer->after_count, info->eos_id);
    const ct_splitter *splitter = &tokenizer->splitter;
    info->splitter = !splitter->count ? "none" : splitter->count > 1 ? "general" : "regex";
    for (int i = 0; i < splitter->count; i++)
        if (splitter->steps[i].kind == CT_SPLIT_SCAN) info->splitter = splitter->steps[i].scanner->name;
}

ct_status ct_splitter_add_pattern(ct_splitter *splitter, const char *pattern, size_t length,
                                  ct_pattern_flavour flavour, const uint8_t *classes) {
    ct_split_step step = {.kind = CT_SPLIT_SCAN, .scanner = ct_scanner_find(pattern, length, flavour)};
    if (!step.scanner) {
        step.kind = CT_SPLIT_PATTERN;
        CT_TRY(ct_pattern_compile(pattern, length, flavour, classes, &step.pattern));
    }
    CT_GROW(splitter->steps, splitter->count, splitter->capacity);
    splitter->steps[splitter->count++] = step;
    return CT_OK;
}

ct_status ct_tokenizer_use_pattern(ct_tokenizer *tokenizer, const char *pattern, size_t length,
                                   ct_pattern_flavour flavour) {
    tokenizer->bpe.byte_level = 1;
    ct_decoder *decoder = &tokenizer->decoder;
    CT_GROW(decoder->steps, decoder->count, decoder->capacity);
    decoder->steps[decoder->count++] = (ct_decode_step){.kind = CT_DECODE_BYTE_LEVEL};
    return ct_splitter_add_pattern(&tokenizer->splitter, pattern, length, flavour, tokenizer->classes);
}

// ---- open and close ------------------------------------------------------------------------------

static ct_status fill(ct_tokenizer *tokenizer, const char *path, const ct_tokenizer_options *options) {
    tokenizer->info.bos_id = tokenizer->info.eos_id = -1;
    tokenizer->bpe.unk_id = tokenizer->unigram.unk_id = -1;
    tokenizer->bpe.hidden_from = INT32_MAX;
    tokenizer->classes = ct_unicode_expand();
    tokenizer->info.path = ct_arena_strdup(&tokenizer->arena, path);
    CT_TRY(load_file(tokenizer, path, options));
    if (!options->ignore_config) {
        char *folder = folder_of(path);
        ct_status status = ct_load_config(tokenizer, folder);
        free(folder);
        if (status) return status;
    }
    CT_TRY(normalize_added(tokenizer));
    ct_added_index(&tokenizer->added);
    ct_tokenizer_index_bytes(tokenizer);
    ct_tokenizer_find_cuts(tokenizer);
    describe(tokenizer);
    CT_CHECK(tokenizer->info.tokens > 0, CT_INVALID, "%s holds no token", path);
    return CT_OK;
}

ct_status ct_tokenizer_open(const char *path, ct_tokenizer_options options, ct_tokenizer **out_tokenizer) {
    CT_CHECK(ct_path_exists(path), CT_NOT_FOUND, "there is no tokenizer at %s", path);
    char *file = ct_path_is_folder(path) ? find_in_folder(path) : ct_strdup(path);
    CT_CHECK(file, CT_NOT_FOUND,
             "the folder %s holds no tokenizer (looked for tokenizer.json, vocab.json + merges.txt, encoder.json + "
             "vocab.bpe, "
             "tokenizer.model, spiece.model, tokenizer.bin, *.tiktoken)",
             path);
    ct_tokenizer *tokenizer = ct_calloc(1, sizeof *tokenizer);
    ct_status status = fill(tokenizer, file, &options);
    free(file);
    if (status) return ct_tokenizer_close(tokenizer), status;
    *out_tokenizer = tokenizer;
    return CT_OK;
}

void ct_tokenizer_close(ct_tokenizer *tokenizer) {
    if (!tokenizer) return;
    ct_vocab_deinit(&tokenizer->vocab);
    ct_added_deinit(&tokenizer->added);
    ct_normalizer_deinit(&tokenizer->normalizer);
    ct_splitter_deinit(&tokenizer->splitter);
    ct_pairs_deinit(&tokenizer->bpe.pairs);
    ct_unigram_deinit(&tokenizer->unigram);
    free(tokenizer->decoder.steps);
    free(tokenizer->before);
    free(tokenizer->after);
    free(tokenizer->control);
    free(tokenizer->together);
    free((void *)tokenizer->classes);
    ct_arena_deinit(&tokenizer->arena);
    free(tokenizer);
}
