// Training, from text to files: cut texts into words as the tokenizer will, count them, find merges, write
// tokenizer.json.
#include "core.h"
#include "train_merge.h"
#include "unicode.h"
#include "tokenizer/train.h"
#include "base/file.h"

#include <stdlib.h>
#include <string.h>

static const char *const default_specials[] = {"<|begin_of_text|>", "<|end_of_text|>"};

struct ct_tokenizer_trainer {
    ct_train_options options;
    char *pattern;
    char **specials;
    int special_count;
    char *bos, *eos;
    const uint8_t *classes;
    ct_splitter splitter;
    ct_split_work work;
    ct_vocab vocab; // words: their index is their id
    ct_arena arena;
    int64_t *counts;
    int64_t count_capacity;
    ct_train_progress state;
};

void ct_tokenizer_trainer_destroy(ct_tokenizer_trainer *trainer) {
    if (!trainer) return;
    for (int i = 0; i < trainer->special_count; i++) free(trainer->specials[i]);
    free(trainer->specials);
    free(trainer->bos);
    free(trainer->eos);
    free(trainer->pattern);
    free((void *)trainer->classes);
    free(trainer->counts);
    ct_splitter_deinit(&trainer->splitter);
    ct_split_work_deinit(&trainer->work);
    ct_vocab_deinit(&trainer->vocab);
    ct_arena_deinit(&trainer->arena);
    free(trainer);
}

static void take_specials(ct_tokenizer_trainer *trainer, const ct_train_options *options) {
    const char *const *specials = options->specials ? options->specials : default_specials;
    trainer->special_count = options->specials ? options->special_count : 2;
    trainer->specials = ct_calloc((size_t)trainer->special_count + 1, sizeof *trainer->specials);
    for (int i = 0; i < trainer->special_count; i++) trainer->specials[i] = ct_strdup(specials[i]);
    const char *bos = options->bos ? options->bos : trainer->special_count > 0 ? specials[0] : NULL;
    const char *eos = options->eos ? options->eos : trainer->special_count > 1 ? specials[1] : NULL;
    trainer->bos = bos ? ct_strdup(bos) : NULL;
    trainer->eos = eos ? ct_strdup(eos) : NULL;
}

static ct_status check_specials(const ct_tokenizer_trainer *trainer) {
    int bos = !trainer->bos, eos = !trainer->eos;
    for (int i = 0; i < trainer->special_count; i++) {
        CT_CHECK(*trainer->specials[i], CT_INVALID, "special token %d is empty", i);
        for (int k = 0; k < i; k++)
            CT_CHECK(strcmp(trainer->specials[i], trainer->specials[k]), CT_INVALID,
                     "the special token '%s' is given twice", trainer->specials[i]);
        bos |= trainer->bos && !strcmp(trainer->specials[i], trainer->bos);
        eos |= trainer->eos && !strcmp(trainer->specials[i], trainer->eos);
    }
    CT_CHECK(bos, CT_INVALID, "BOS, '%s', is not among the special tokens", trainer->bos);
    CT_CHECK(eos, CT_INVALID, "EOS, '%s', is not among the special tokens", trainer->eos);
    return CT_OK;
}

static ct_status set_up(ct_tokenizer_trainer *trainer, ct_train_options options) {
    take_specials(trainer, &options);
    if (!options.vocab_size) options.vocab_size = 4096;
    if (!options.min_count) options.min_count = 2;
    trainer->options = options;
    CT_TRY(check_specials(trainer));
    CT_CHECK(options.vocab_size >= 256 + trainer->special_count && options.vocab_size <= 1 << 24, CT_INVALID,
             "a vocabulary of %d: it must hold the 256 bytes and %d special tokens, and at most %d",
             options.vocab_size, trainer->special_count, 1 << 24);
    const char *pattern = options.pattern ? options.pattern : "llama3";
    if (ct_pattern_named(pattern)) pattern = ct_pattern_named(pattern);
    trainer->pattern = ct_strdup(pattern);
    trainer->classes = ct_unicode_expand();
    trainer->state.merges_wanted = options.vocab_size - 256 - trainer->special_count;
    return ct_splitter_add_pattern(&trainer->splitter, pattern, strlen(pattern), CT_FLAVOUR_ONIG, trainer->classes);
}

ct_status ct_tokenizer_trainer_create(ct_train_options options, ct_tokenizer_trainer **out_trainer) {
    ct_tokenizer_trainer *trainer = ct_calloc(1, sizeof *trainer);
    ct_status status = set_up(trainer, options);
    if (status) return ct_tokenizer_trainer_destroy(trainer), status;
    *out_trainer = trainer;
    return CT_OK;
}

// ---- counting ------------------------------------------------------------------------------------

static ct_status count_word(ct_tokenizer_trainer *trainer, const unsigned char *word, size_t size) {
    int id = ct_vocab_find(&trainer->vocab, word, size);
    if (id < 0) {
        id = trainer->vocab.size;
        CT_TRY(ct_vocab_add(&trainer->vocab, &trainer->arena, (const char *)word, size, id));
        CT_GROW(trainer->counts, id, trainer->count_capacity);
        trainer->counts[id] = 0;
        trainer->state.words++;
    }
    trainer->counts[id]++;
    return CT_OK;
}

ct_status ct_tokenizer_trainer_feed(ct_tokenizer_trainer *trainer, const void *text, size_t size) {
    CT_CHECK(size < (size_t)INT32_MAX / 3, CT_INVALID, "a text of %zu bytes: feed it in parts", size);
    ct_split_work *work = &trainer->work;
    ct_utf8_sanitise(text, size, &work->text);
    CT_TRY(ct_splitter_run(&trainer->splitter, trainer->classes, work, 1));
    for (size_t i = 0; i < work->words.count; i++) {
        ct_span word = work->words.items[i];
        CT_TRY(count_word(trainer, work->text.bytes + word.begin, word.end - word.begin));
    }
    trainer->state.bytes_read += size;
    if (trainer->options.progress) trainer->options.progress(trainer->options.progress_context, &trainer->state);
    return CT_OK;
}

// ---- writing -------------------------------------------------------------------------------------

typedef struct {
    ct_string *texts; // by token, in the byte-level alphabet
    int count;
} token_texts;

static void spell_tokens(const ct_train_merge *merges, int merge_count, int tokens, token_texts *out) {
    out->texts = ct_calloc((size_t)tokens, sizeof *out->texts);
    out->count = tokens;
    for (int symbol = 0; symbol < 256; symbol++) {
        unsigned char text[4];
        int length = ct_utf8_put((uint32_t)ct_byte_to_point(ct_train_symbol_byte(symbol)), text);
        ct_string_add_bytes(&out->texts[symbol], text, (size_t)length);
    }
    for (int m = 0; m < merge_count; m++)
        if (!out->texts[merges[m].id].text)
            ct_string_add(&out->texts[merges[m].id], "%s%s", out->texts[merges[m].left].text,
                          out->texts[merges[m].right].text);
}

static void add_added_token(ct_string *out, const char *text, int id) {
    ct_string_add(out, "{\"id\": %d, \"content\": ", id);
    ct_string_add_json(out, text);
    ct_string_add(
        out,
        ", \"single_word\": false, \"lstrip\": false, \"rstrip\": false, \"normalized\": false, \"special\": true}");
}

static void add_pipeline(ct_string *out, const char *pattern) {
    static const char level[] =
        "{\"type\": \"ByteLevel\", \"add_prefix_space\": false, \"trim_offsets\": true, \"use_regex\": ";
    if (!strcmp(pattern, ct_pattern_named("gpt2"))) {
        ct_string_add(out, " \"normalizer\": null,\n \"pre_tokenizer\": %strue},\n", level);
    } else {
        ct_string_add(out,
                      " \"normalizer\": null,\n \"pre_tokenizer\": {\"type\": \"Sequence\", \"pretokenizers\": [\n"
                      "  {\"type\": \"Split\", \"pattern\": {\"Regex\": ");
        ct_string_add_json(out, pattern);
        ct_string_add(out, "}, \"behavior\": \"Isolated\", \"invert\": false},\n  %sfalse}]},\n", level);
    }
    ct_string_add(out, " \"post_processor\": %sfalse},\n \"decoder\": %sfalse},\n", level, level);
}

static void add_model(ct_string *out, const token_texts *tokens, const ct_train_merge *merges, int merge_count) {
    ct_string_add(out, " \"model\": {\"type\": \"BPE\", \"dropout\": null, \"unk_token\": null, "
                       "\"continuing_subword_prefix\": null,\n"
                       "  \"end_of_word_suffix\": null, \"fuse_unk\": false, \"byte_fallback\": false, "
                       "\"ignore_merges\": false,\n  \"vocab\": {");
    for (int id = 0; id < tokens->count; id++) {
        ct_string_add(out, id ? ",\n   " : "\n   ");
        ct_string_add_json(out, tokens->texts[id].text);
        ct_string_add(out, ": %d", id);
    }
    ct_string_add(out, "},\n  \"merges\": [");
    for (int m = 0; m < merge_count; m++) {
        char *pair = ct_format("%s %s", tokens->texts[merges[m].left].text, tokens->texts[merges[m].right].text);
        ct_string_add(out, m ? ",\n   " : "\n   ");
        ct_string_add_json(out, pair);
        free(pair);
    }
    ct_string_add(out, "]}}\n");
}

static void add_tokenizer(ct_string *out, const ct_tokenizer_trainer *trainer, const token_texts *tokens,
                          const ct_train_merge *merges, int merge_count) {
    ct_string_add(out, "{\"version\": \"1.0\",\n \"truncation\": null,\n \"padding\": null,\n \"added_tokens\": [");
    for (int i = 0; i < trainer->special_count; i++) {
        ct_string_add(out, i ? ",\n  " : "\n  ");
        add_added_token(out, trainer->specials[i], tokens->count + i);
    }
    ct_string_add(out, "],\n");
    add_pipeline(out, trainer->pattern);
    add_model(out, tokens, merges, merge_count);
}

static void add_config(ct_string *out, const ct_tokenizer_trainer *trainer) {
    ct_string_add(out, "{\"bos_token\": ");
    if (trainer->bos) ct_string_add_json(out, trainer->bos);
    ct_string_add(out, trainer->bos ? ",\n \"eos_token\": " : "null,\n \"eos_token\": ");
    if (trainer->eos) ct_string_add_json(out, trainer->eos);
    ct_string_add(out, trainer->eos ? "," : "null,");
    ct_string_add(
        out, "\n \"clean_up_tokenization_spaces\": false,\n \"tokenizer_class\": \"PreTrainedTokenizerFast\"}\n");
}

static ct_status write_text(const char *folder, const char *name, const ct_string *text) {
    char *path = ct_format("%s/%s", folder, name);
    ct_status status = ct_file_write_atomic(path, text->text, text->length);
    free(path);
    return status;
}

static ct_status write_files(const ct_tokenizer_trainer *trainer, const char *folder, const ct_train_merge *merges,
                             int merge_count, int tokens) {
    token_texts texts;
    spell_tokens(merges, merge_count, tokens, &texts);
    ct_string tokenizer = {0}, config = {0};
    add_tokenizer(&tokenizer, trainer, &texts, merges, merge_count);
    add_config(&config, trainer);
    ct_status status = ct_folder_make(folder);
    if (!status) status = write_text(folder, "tokenizer.json", &tokenizer);
    if (!status) status = write_text(folder, "tokenizer_config.json", &config);
    ct_string_deinit(&tokenizer);
    ct_string_deinit(&config);
    for (int id = 0; id < tokens; id++) ct_string_deinit(&texts.texts[id]);
    free(texts.texts);
    return status;
}

static void report_merges(void *context, int merges) {
    ct_tokenizer_trainer *trainer = context;
    trainer->state.merges = merges;
    if (trainer->options.progress) trainer->options.progress(trainer->options.progress_context, &trainer->state);
}

ct_status ct_tokenizer_trainer_write(ct_tokenizer_trainer *trainer, const char *folder, int *out_vocab_size) {
    CT_CHECK(trainer->state.words, CT_INVALID, "there is no text to train a tokenizer on");
    ct_train_word *words = ct_malloc((size_t)trainer->vocab.size * sizeof *words);
    for (int id = 0; id < trainer->vocab.size; id++)
        words[id] = (ct_train_word){(const unsigned char *)trainer->vocab.tokens[id].text,
                                    trainer->vocab.tokens[id].length, trainer->counts[id]};
    ct_train_merge *merges;
    int merge_count, tokens;
    ct_train_find_merges(words, trainer->vocab.size, trainer->options.vocab_size - trainer->special_count,
                         trainer->options.min_count, report_merges, trainer, &merges, &merge_count, &tokens);
    report_merges(trainer, merge_count);
    ct_status status = write_files(trainer, folder, merges, merge_count, tokens);
    if (!status && out_vocab_size) *out_vocab_size = tokens + trainer->special_count;
    free(merges);
    free(words);
    return status;
}

// ---- files ---------------------------------------------------------------------------------------

#define DOCUMENT ((size_t)1 << 20)

static ct_status feed_file(ct_tokenizer_trainer *trainer, const char *path) {
    ct_file_map map;
    CT_TRY(ct_file_map_open(path, &map));
    ct_status status = CT_OK;
    for (size_t at = 0; at < map.size && !status;) {
        size_t size = map.size - at < DOCUMENT ? map.size - at : DOCUMENT;
        const unsigned char *stop = size == DOCUMENT ? memrchr(map.bytes + at, '\n', size) : NULL;
        if (stop) size = (size_t)(stop + 1 - (map.bytes + at));
        status = ct_tokenizer_trainer_feed(trainer, map.bytes + at, size);
        at += size;
    }
    ct_file_map_close(&map);
    return status ? ct_error_note(status, "reading %s", path) : CT_OK;
}

ct_status ct_tokenizer_train(const char *const *paths, int path_count, ct_train_options options, const char *folder,
                             int *out_vocab_size) {
    ct_tokenizer_trainer *trainer;
    CT_TRY(ct_tokenizer_trainer_create(options, &trainer));
    ct_status status = CT_OK;
    for (int i = 0; i < path_count && !status; i++) status = feed_file(trainer, paths[i]);
    if (!status) status = ct_tokenizer_trainer_write(trainer, folder, out_vocab_size);
    ct_tokenizer_trainer_destroy(trainer);
    return status;
}
