// Every fixture tokenizer against what the reference implementation made of the same text; with CT_TESTDATA also the
// published ones, on llama.cpp's golden files and on the hash of a longer text's ids. make_fixtures.py made them all.
#include "base/file.h"
#include "base/memory.h"
#include "tokenizer/tokenizer.h"

#include <cjson/cJSON.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#define FIXTURES CT_SOURCE_DIR "/tests/tokenizer/fixtures/"

static char *read_file(const char *path, size_t *out_size) {
    char *text;
    ct_status status = ct_file_read(path, 0, &text, out_size);
    if (status) fail_msg("%s", ct_error_text(status));
    return text;
}

static ct_tokenizer *open_tokenizer(const char *path, const char *pattern) {
    ct_tokenizer *tokenizer = NULL;
    ct_status status =
        ct_tokenizer_open(path, (ct_tokenizer_options){.pattern = pattern, .ignore_config = 1}, &tokenizer);
    if (status) fail_msg("%s", ct_error_text(status));
    return tokenizer;
}

static void encode(ct_tokenizer_context *context, const char *text, size_t size, int no_template, ct_ids *ids) {
    ids->count = 0;
    ct_status status = ct_tokenizer_encode(context, text, size, (ct_encode_options){.no_template = no_template}, ids);
    if (status) fail_msg("%s", ct_error_text(status));
}

static void check_ids(const char *where, const ct_ids *ids, const cJSON *want) {
    size_t i = 0;
    for (const cJSON *id = want->child; id; id = id->next, i++)
        if (i >= ids->count || ids->ids[i] != id->valueint)
            fail_msg("%s: id %zu is %d, not %d", where, i, i < ids->count ? ids->ids[i] : -1, id->valueint);
    if (i != ids->count) fail_msg("%s: %zu ids, not %zu", where, ids->count, i);
}

static uint64_t fnv_of(const ct_ids *ids) {
    uint64_t value = 0xcbf29ce484222325u;
    for (size_t i = 0; i < ids->count; i++)
        for (int b = 0; b < 4; b++) value = (value ^ ((uint32_t)ids->ids[i] >> 8 * b & 0xff)) * 0x100000001b3u;
    return value;
}

static void check_mixed(const char *name, ct_tokenizer_context *context, const cJSON *want) {
    size_t size;
    char *text = read_file(FIXTURES "mixed.bin", &size), hash[20];
    ct_ids ids = {0};
    encode(context, text, size, 1, &ids);
    snprintf(hash, sizeof hash, "%016llx", (unsigned long long)fnv_of(&ids));
    if ((int)ids.count != cJSON_GetObjectItem(want, "count")->valueint ||
        strcmp(hash, cJSON_GetObjectItem(want, "fnv")->valuestring))
        fail_msg("%s: the mixed text gives %zu ids with hash %s", name, ids.count, hash);
    ct_ids_deinit(&ids);
    free(text);
}

static void check_decoded(const char *where, const ct_tokenizer *tokenizer, const ct_ids *ids, const cJSON *want) {
    char *text;
    size_t size;
    const char *want_text = want->valuestring;
    ct_tokenizer_decode(tokenizer, ids->ids, ids->count, 0, &text, &size);
    // The reference puts U+FFFD where byte tokens form no character; such cases are not compared.
    if (!strstr(want_text, "\xef\xbf\xbd") && strcmp(text, want_text))
        fail_msg("%s: decoded as '%s', not '%s'", where, text, want_text);
    free(text);
}

static void check_fixture(const char *name, const char *file, const char *pattern) {
    char *path = ct_format(FIXTURES "%s", file), *cases_path = ct_format(FIXTURES "%s.cases", name);
    size_t size;
    char *json = read_file(cases_path, &size);
    cJSON *cases = cJSON_Parse(json);
    assert_non_null(cases);
    ct_tokenizer *tokenizer = open_tokenizer(path, pattern);
    ct_tokenizer_context *context = ct_tokenizer_context_create(tokenizer);
    ct_ids ids = {0};
    int number = 0;
    for (cJSON *item = cJSON_GetObjectItem(cases, "cases")->child; item; item = item->next, number++) {
        char *where = ct_format("%s, case %d", name, number);
        const char *text = cJSON_GetObjectItem(item, "text")->valuestring;
        encode(context, text, strlen(text), 1, &ids);
        check_ids(where, &ids, cJSON_GetObjectItem(item, "ids"));
        check_decoded(where, tokenizer, &ids, cJSON_GetObjectItem(item, "text_back"));
        free(where);
    }
    assert_true(number > 30);
    const cJSON *with_template = cJSON_GetObjectItem(cases, "template");
    if (with_template) {
        const char *text = cJSON_GetObjectItem(with_template, "text")->valuestring;
        encode(context, text, strlen(text), 0, &ids);
        check_ids("with the template", &ids, cJSON_GetObjectItem(with_template, "ids"));
    }
    check_mixed(name, context, cJSON_GetObjectItem(cases, "mixed"));
    ct_ids_deinit(&ids);
    ct_tokenizer_context_destroy(context);
    ct_tokenizer_close(tokenizer);
    cJSON_Delete(cases);
    free(json);
    free(path);
    free(cases_path);
}

static void tokenizer_json_of_every_kind_gives_what_the_reference_gives(void **state) {
    (void)state;
    static const char *const names[] = {"gpt2_like",
                                        "prefix_space",
                                        "llama3_like",
                                        "nfc_falcon",
                                        "starcoder",
                                        "llama2_like",
                                        "metaspace_first",
                                        "metaspace_always",
                                        "metaspace_never",
                                        "word_end",
                                        "continuing",
                                        "split_removed",
                                        "split_merged_with_previous",
                                        "split_merged_with_next",
                                        "split_contiguous",
                                        "unigram"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char *file = ct_format("%s.json", names[i]);
        check_fixture(names[i], file, NULL);
        free(file);
    }
}

static void tiktoken_ranks_give_what_tiktoken_gives(void **state) {
    (void)state;
    check_fixture("small_cl100k_base", "small.tiktoken", "cl100k_base");
    check_fixture("small_o200k_base", "small.tiktoken", "o200k_base");
    check_fixture("small_r50k_base", "small.tiktoken", "r50k_base");
}

static void sentencepiece_models_give_what_sentencepiece_gives(void **state) {
    (void)state;
    check_fixture("sp_bpe", "sp_bpe.model", NULL);
    check_fixture("sp_unigram", "sp_unigram.model", NULL);
}

// ---- with CT_TESTDATA ----------------------------------------------------------------------------

static char *data_folder(void) {
    const char *named = getenv("CT_TESTDATA");
    char *folder = named ? ct_strdup(named) : ct_strdup(CT_SOURCE_DIR "/../shared/data");
    if (ct_path_is_folder(folder)) return folder;
    print_message("[ SKIPPED ] %s is not there: set CT_TESTDATA\n", folder);
    free(folder);
    return NULL;
}

static void published_tokenizers_hash_alike_on_mixed_text(void **state) {
    (void)state;
    char *data = data_folder();
    if (!data) skip();
    size_t size;
    char *json = read_file(FIXTURES "data.cases", &size);
    cJSON *cases = cJSON_Parse(json);
    for (cJSON *item = cases->child; item; item = item->next) {
        char *path = ct_format("%s/tokenizers/%s", data, item->string);
        ct_tokenizer *tokenizer = NULL;
        ct_status status = ct_tokenizer_open(path, (ct_tokenizer_options){0}, &tokenizer);
        if (status) fail_msg("%s", ct_error_text(status));
        ct_tokenizer_context *context = ct_tokenizer_context_create(tokenizer);
        check_mixed(item->string, context, item);
        ct_tokenizer_context_destroy(context);
        ct_tokenizer_close(tokenizer);
        free(path);
    }
    cJSON_Delete(cases);
    free(json);
    free(data);
}

static void check_block(const char *name, ct_tokenizer_context *context, const char *block, size_t size,
                        char **line) {
    ct_ids ids = {0};
    encode(context, block, size, 1, &ids);
    char *stop = strchr(*line, '\n');
    assert_non_null(stop);
    *stop = 0;
    size_t count = 0;
    for (char *p = *line, *end;; p = end, count++) {
        long id = strtol(p, &end, 10);
        if (end == p) break;
        if (count >= ids.count || ids.ids[count] != id)
            fail_msg("%s: '%.*s': id %zu should be %ld", name, (int)size, block, count, id);
    }
    if (count != ids.count) fail_msg("%s: '%.*s': %zu ids, not %zu", name, (int)size, block, ids.count, count);
    *line = stop + 1;
    ct_ids_deinit(&ids);
}

static void check_golden(const char *data, const char *name, const char *tokenizer_name) {
    static const char parting[] = "\n__ggml_vocab_test__\n";
    char *path = ct_format("%s/tokenizers/%s", data, tokenizer_name);
    char *input_path = ct_format("%s/tokenizers/golden/%s.inp", data, name),
         *output_path = ct_format("%s/tokenizers/golden/%s.out", data, name);
    size_t size;
    char *input = read_file(input_path, &size), *output = read_file(output_path, &size), *line = output;
    ct_tokenizer *tokenizer = open_tokenizer(path, NULL);
    ct_tokenizer_context *context = ct_tokenizer_context_create(tokenizer);
    int blocks = 0;
    for (char *block = input; block; blocks++) {
        char *stop = strstr(block, parting);
        check_block(name, context, block, stop ? (size_t)(stop - block) : strlen(block), &line);
        block = stop ? stop + sizeof parting - 1 : NULL;
        if (block && !*block) break;
    }
    assert_true(blocks > 40);
    ct_tokenizer_context_destroy(context);
    ct_tokenizer_close(tokenizer);
    free(input);
    free(output);
    free(input_path);
    free(output_path);
    free(path);
}

static void golden_files_are_met(void **state) {
    (void)state;
    char *data = data_folder();
    if (!data) skip();
    check_golden(data, "gpt-2", "gpt2");
    check_golden(data, "llama-bpe", "llama3");
    check_golden(data, "llama-bpe", "llama3/tokenizer.model");
    check_golden(data, "qwen2", "qwen3");
    free(data);
}

static void llama2c_tokenizer_gives_the_tokens_of_its_source(void **state) {
    (void)state;
    char *data = data_folder();
    if (!data) skip();
    char *path = ct_format("%s/weights/tok512.bin", data);
    ct_tokenizer *tokenizer = open_tokenizer(path, NULL);
    const ct_tokenizer_info *info = ct_tokenizer_describe(tokenizer);
    assert_int_equal(info->vocab_size, 512);
    assert_int_equal(info->bos_id, 1);
    // By hand from the file: byte tokens begin at 3, so a newline is 13.
    assert_int_equal(ct_tokenizer_id(tokenizer, "<0x0A>", 6), 13);
    ct_tokenizer_context *context = ct_tokenizer_context_create(tokenizer);
    ct_ids ids = {0};
    static const char story[] = "Once upon a time, there was a little girl named Lily.\nShe \xf0\x9f\x99\x82";
    encode(context, story, sizeof story - 1, 1, &ids);
    char *text;
    size_t size;
    ct_tokenizer_decode(tokenizer, ids.ids, ids.count, 0, &text, &size);
    assert_string_equal(text, story);
    free(text);
    ct_ids_deinit(&ids);
    ct_tokenizer_context_destroy(context);
    ct_tokenizer_close(tokenizer);
    free(path);
    free(data);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tokenizer_json_of_every_kind_gives_what_the_reference_gives),
        cmocka_unit_test(tiktoken_ranks_give_what_tiktoken_gives),
        cmocka_unit_test(sentencepiece_models_give_what_sentencepiece_gives),
        cmocka_unit_test(published_tokenizers_hash_alike_on_mixed_text),
        cmocka_unit_test(golden_files_are_met),
        cmocka_unit_test(llama2c_tokenizer_gives_the_tokens_of_its_source),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
