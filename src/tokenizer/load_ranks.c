// tiktoken's rank files: a token in base64 and its rank, which is its id, a line. The file says nothing of the
// pattern and the special tokens: they are known by the encoding's name.
#include "core.h"
#include "load_base64.h"
#include "base/file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    const char *text;
    int id;
} special;

static const struct encoding {
    const char *name, *pattern; // pattern: see scan.c
    special specials[6];
} encodings[] = {
    {"cl100k_base",
     "cl100k_base",
     {{"<|endoftext|>", 100257},
      {"<|fim_prefix|>", 100258},
      {"<|fim_middle|>", 100259},
      {"<|fim_suffix|>", 100260},
      {"<|endofprompt|>", 100276}}},
    {"o200k_base", "o200k_base", {{"<|endoftext|>", 199999}, {"<|endofprompt|>", 200018}}},
    {"p50k_base", "p50k_base", {{"<|endoftext|>", 50256}}},
    {"r50k_base", "r50k_base", {{"<|endoftext|>", 50256}}},
    {"gpt2", "r50k_base", {{"<|endoftext|>", 50256}}},
    {"llama3", "llama3", {{NULL, 0}}}, // see add_llama3_specials
};

#define LLAMA3_TOKENS 128000

static const struct encoding *encoding_named(const char *name, size_t length) {
    for (size_t i = 0; i < sizeof encodings / sizeof *encodings; i++)
        if (strlen(encodings[i].name) == length && !memcmp(encodings[i].name, name, length)) return &encodings[i];
    return NULL;
}

// By a given name, the file's name, or the count of tokens that only Llama 3 has.
static const struct encoding *find_encoding(const ct_tokenizer *tokenizer, const char *path, const char *given) {
    if (given) return encoding_named(given, strlen(given));
    const char *name = strrchr(path, '/');
    name = name ? name + 1 : path;
    const struct encoding *found = encoding_named(name, strcspn(name, "."));
    return found ? found : tokenizer->vocab.count == LLAMA3_TOKENS ? encoding_named("llama3", 6) : NULL;
}

// ---- lines ---------------------------------------------------------------------------------------

static ct_status load_line(ct_tokenizer *tokenizer, const char *line, size_t length, unsigned char *bytes,
                           char *mapped) {
    const char *space = memchr(line, ' ', length);
    size_t size, mapped_length = 0;
    CT_CHECK(space && space > line && ct_base64_decode(line, (size_t)(space - line), bytes, &size) && size,
             CT_CORRUPT, "not a token in base64");
    long rank = 0;
    const char *digit = space + 1;
    for (; digit < line + length && *digit >= '0' && *digit <= '9' && rank < 1 << 28; digit++)
        rank = rank * 10 + (*digit - '0');
    CT_CHECK(digit > space + 1 && digit == line + length, CT_CORRUPT, "no rank behind the token");
    for (size_t i = 0; i < size; i++)
        mapped_length +=
            (size_t)ct_utf8_put((uint32_t)ct_byte_to_point(bytes[i]), (unsigned char *)mapped + mapped_length);
    return ct_vocab_add(&tokenizer->vocab, &tokenizer->arena, mapped, mapped_length, (int)rank);
}

static ct_status load_lines(ct_tokenizer *tokenizer, const char *text, size_t size) {
    unsigned char *bytes = ct_malloc(size + 4);
    char *mapped = ct_malloc(2 * size + 8);
    ct_status status = CT_OK;
    int line = 1;
    for (const char *p = text, *end = text + size; p < end && !status; line++) {
        const char *stop = memchr(p, '\n', (size_t)(end - p));
        size_t length = (size_t)((stop ? stop : end) - p);
        if (length && p[length - 1] == '\r') length--;
        if (length) status = load_line(tokenizer, p, length, bytes, mapped);
        p = stop ? stop + 1 : end;
    }
    free(mapped);
    free(bytes);
    return status ? ct_error_note(status, "line %d", line - 1) : CT_OK;
}

// ---- special tokens ------------------------------------------------------------------------------

// Special tokens have ids of their own, not the next free ones: the vocabulary holds them too.
static ct_status add_special(ct_tokenizer *tokenizer, const char *text, int id) {
    CT_TRY(ct_vocab_add(&tokenizer->vocab, &tokenizer->arena, text, strlen(text), id));
    ct_added_token token = {.text = text, .length = (uint32_t)strlen(text), .special = 1};
    return ct_added_add(&tokenizer->added, &tokenizer->vocab, &tokenizer->arena, token);
}

static ct_status add_llama3_specials(ct_tokenizer *tokenizer) {
    static const special names[] = {{"<|begin_of_text|>", 0},
                                    {"<|end_of_text|>", 1},
                                    {"<|start_header_id|>", 6},
                                    {"<|end_header_id|>", 7},
                                    {"<|eot_id|>", 9}};
    int reserved = 0;
    for (int i = 0; i < 256; i++) {
        char text[48];
        size_t n = 0;
        while (n < 5 && names[n].id != i) n++;
        if (n < 5)
            snprintf(text, sizeof text, "%s", names[n].text);
        else
            snprintf(text, sizeof text, "<|reserved_special_token_%d|>", reserved++);
        CT_TRY(add_special(tokenizer, text, LLAMA3_TOKENS + i));
    }
    tokenizer->info.bos_token = names[0].text, tokenizer->info.bos_id = LLAMA3_TOKENS;
    tokenizer->info.eos_token = names[1].text, tokenizer->info.eos_id = LLAMA3_TOKENS + 1;
    return CT_OK;
}

static ct_status add_specials(ct_tokenizer *tokenizer, const struct encoding *encoding) {
    if (!strcmp(encoding->name, "llama3")) return add_llama3_specials(tokenizer);
    for (const special *s = encoding->specials; s->text; s++) CT_TRY(add_special(tokenizer, s->text, s->id));
    tokenizer->info.eos_token = encoding->specials[0].text, tokenizer->info.eos_id = encoding->specials[0].id;
    return CT_OK;
}

// ---- the file ------------------------------------------------------------------------------------

static ct_status fill(ct_tokenizer *tokenizer, const char *path, const char *given) {
    const struct encoding *encoding = find_encoding(tokenizer, path, given);
    CT_CHECK(encoding || given, CT_INVALID,
             "%s: the pattern that goes with these %d ranks is not known by the file's name; give one (cl100k_base, "
             "o200k_base, "
             "p50k_base, r50k_base, gpt2, llama3 or a regular expression)",
             path, tokenizer->vocab.count);
    tokenizer->info.kind = "tiktoken";
    tokenizer->bpe.whole_words = 1;
    uint32_t *ranks = ct_malloc((size_t)(tokenizer->vocab.size + 1) * sizeof *ranks);
    for (int id = 0; id < tokenizer->vocab.size; id++) ranks[id] = (uint32_t)id;
    ct_bpe_pairs_from_tokens(tokenizer, ranks, NULL, 0);
    free(ranks);
    if (encoding) CT_TRY(add_specials(tokenizer, encoding));
    const char *pattern = encoding ? ct_pattern_named(encoding->pattern) : given;
    return ct_tokenizer_use_pattern(tokenizer, pattern, strlen(pattern), CT_FLAVOUR_RUST);
}

ct_status ct_load_ranks(ct_tokenizer *tokenizer, const char *path, const char *pattern) {
    ct_file_map map;
    CT_TRY(ct_file_map_open(path, &map));
    ct_status status = load_lines(tokenizer, (const char *)map.bytes, map.size);
    ct_file_map_close(&map);
    if (status) return ct_error_note(status, "reading %s as tiktoken ranks", path);
    CT_CHECK(tokenizer->vocab.count, CT_CORRUPT, "%s holds no ranks", path);
    return fill(tokenizer, path, pattern);
}
