// What fixtures do not show: ill-formed UTF-8, streams, threads, long words, added tokens from tokenizer_config.json,
// scanners against their regular expressions, bad files, and the command line.
#include "core.h"
#include "split.h"
#include "unicode.h"
#include "base/file.h"
#include "base/memory.h"
#include "tokenizer/tokenizer.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>

#define FIXTURES CT_SOURCE_DIR "/tests/tokenizer/fixtures/"

static ct_tokenizer *open_fixture(const char *file) {
    char *path = ct_format(FIXTURES "%s", file);
    ct_tokenizer *tokenizer = NULL;
    ct_status status = ct_tokenizer_open(path, (ct_tokenizer_options){0}, &tokenizer);
    if (status) fail_msg("%s", ct_error_text(status));
    free(path);
    return tokenizer;
}

static void encode(const ct_tokenizer *tokenizer, const void *text, size_t size, ct_encode_options options,
                   ct_ids *ids) {
    ct_tokenizer_context *context = ct_tokenizer_context_create(tokenizer);
    ids->count = 0;
    ct_status status = ct_tokenizer_encode(context, text, size, options, ids);
    if (status) fail_msg("%s", ct_error_text(status));
    ct_tokenizer_context_destroy(context);
}

static char *temporary_folder(void) {
    char *folder = ct_strdup("/tmp/ct_tokenizer_XXXXXX");
    assert_non_null(mkdtemp(folder));
    return folder;
}

static char *write_file(const char *folder, const char *name, const void *bytes, size_t size) {
    char *path = ct_format("%s/%s", folder, name);
    ct_status status = ct_file_write_atomic(path, bytes, size);
    if (status) fail_msg("%s", ct_error_text(status));
    return path;
}

// ---- UTF-8 ---------------------------------------------------------------------------------------

// Expected: Python's bytes.decode("utf-8", "replace").
static void ill_formed_sequences_become_one_replacement_a_maximal_part(void **state) {
    (void)state;
    static const struct {
        const char *bytes, *want;
    } cases[] = {{"a\xff"
                  "b",
                  "a\xef\xbf\xbd"
                  "b"},
                 {"\xc0\x80", "\xef\xbf\xbd\xef\xbf\xbd"},
                 {"\xe2\x82", "\xef\xbf\xbd"},
                 {"\xe2\x82"
                  "A",
                  "\xef\xbf\xbd"
                  "A"},
                 {"\xf0\x9f\x98", "\xef\xbf\xbd"},
                 {"\xed\xa0\x80", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"},
                 {"\xf4\x90\x80\x80", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"},
                 {"\xe0\x80\x80", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"},
                 {"\xf1\x80\x80\xe1\x80\xc2"
                  "b",
                  "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"
                  "b"},
                 {"\xe4\xbd\xa0\xf0\x9f\x99\x82", "\xe4\xbd\xa0\xf0\x9f\x99\x82"}};
    ct_buffer out = {0};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ct_utf8_sanitise((const unsigned char *)cases[i].bytes, strlen(cases[i].bytes), &out);
        assert_int_equal(out.size, strlen(cases[i].want));
        assert_memory_equal(out.bytes, cases[i].want, out.size);
    }
    ct_buffer_deinit(&out);
}

// ---- scanners ------------------------------------------------------------------------------------

static void compare_with_pattern(const char *pattern, ct_pattern_flavour flavour, const uint8_t *classes,
                                 const char *text, size_t size) {
    ct_splitter fast = {0}, slow = {0};
    char *wrapped = ct_format("(?:%s)", pattern);
    assert_non_null(ct_scanner_find(pattern, strlen(pattern), flavour));
    assert_null(ct_splitter_add_pattern(&fast, pattern, strlen(pattern), flavour, classes));
    assert_null(ct_splitter_add_pattern(&slow, wrapped, strlen(wrapped), flavour, classes));
    assert_int_equal(slow.steps[0].kind, CT_SPLIT_PATTERN);
    ct_split_work a = {0}, b = {0};
    ct_utf8_sanitise((const unsigned char *)text, size, &a.text);
    ct_utf8_sanitise((const unsigned char *)text, size, &b.text);
    assert_null(ct_splitter_run(&fast, classes, &a, 1));
    assert_null(ct_splitter_run(&slow, classes, &b, 1));
    for (size_t i = 0; i < a.words.count && i < b.words.count; i++)
        if (a.words.items[i].end != b.words.items[i].end)
            fail_msg("%.60s: word %zu of the text ends at %u, not %u", pattern, i, a.words.items[i].end,
                     b.words.items[i].end);
    assert_int_equal(a.words.count, b.words.count);
    ct_split_work_deinit(&a);
    ct_split_work_deinit(&b);
    ct_splitter_deinit(&fast);
    ct_splitter_deinit(&slow);
    free(wrapped);
}

static void scanners_cut_where_their_patterns_do(void **state) {
    (void)state;
    static const char *const deepseek[] = {
        "\\p{N}{1,3}", "[\xe4\xb8\x80-\xe9\xbe\xa5\xe3\x81\x80-\xe3\x82\x9f\xe3\x82\xa0-\xe3\x83\xbf]+",
        "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| "
        "?[\\p{P}\\p{S}]+[\r\n]*|"
        "\\s*[\r\n]+|\\s+(?!\\S)|\\s+"};
    uint8_t *classes = ct_unicode_expand();
    char *text;
    size_t size;
    assert_null(ct_file_read(FIXTURES "mixed.bin", 0, &text, &size));
    for (int part = 0; part < 3; part++) { // the end matters to some alternatives
        size_t length = size - (size_t)part * 1009;
        compare_with_pattern(ct_pattern_named("gpt2"), CT_FLAVOUR_ONIG, classes, text, length);
        compare_with_pattern(ct_pattern_named("r50k_base"), CT_FLAVOUR_RUST, classes, text, length);
        compare_with_pattern(ct_pattern_named("cl100k_base"), CT_FLAVOUR_RUST, classes, text, length);
        compare_with_pattern(ct_pattern_named("llama3"), CT_FLAVOUR_ONIG, classes, text, length);
        compare_with_pattern(ct_pattern_named("qwen"), CT_FLAVOUR_ONIG, classes, text, length);
        for (int i = 0; i < 3; i++) compare_with_pattern(deepseek[i], CT_FLAVOUR_ONIG, classes, text, length);
    }
    for (int spaces = 0; spaces < 4; spaces++) {
        static const char *const tails[] = {"x \n ", "x\n\n", "x   ", " "};
        compare_with_pattern(ct_pattern_named("cl100k_base"), CT_FLAVOUR_RUST, classes, tails[spaces],
                             strlen(tails[spaces]));
        compare_with_pattern(ct_pattern_named("llama3"), CT_FLAVOUR_ONIG, classes, tails[spaces],
                             strlen(tails[spaces]));
    }
    free(text);
    free(classes);
}

// ---- encoding ------------------------------------------------------------------------------------

static double seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void a_megabyte_of_one_letter_is_no_trap(void **state) {
    (void)state;
    static const char *const files[] = {"gpt2_like.json",   "llama2_like.json", "unigram.json",
                                        "sp_unigram.model", "sp_bpe.model",     "word_end.json"};
    size_t size = 1 << 20;
    char *text = ct_malloc(size);
    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        for (int kind = 0; kind < 3; kind++) {
            for (size_t b = 0; b < size; b++) text[b] = kind == 0 ? 'a' : kind == 1 ? ' ' : "\n "[b % 2];
            ct_tokenizer *tokenizer = open_fixture(files[i]);
            ct_ids ids = {0};
            double start = seconds();
            encode(tokenizer, text, size, (ct_encode_options){0}, &ids);
            assert_true(seconds() - start < 20); // quadratic would be hours
            ct_ids_deinit(&ids);
            ct_tokenizer_close(tokenizer);
        }
    free(text);
}

typedef struct {
    const ct_tokenizer *tokenizer;
    const char *text;
    size_t size;
    ct_ids ids;
} job;

static void *encode_twice(void *argument) {
    job *j = argument;
    ct_tokenizer_context *context = ct_tokenizer_context_create(j->tokenizer);
    for (int i = 0; i < 2; i++) {
        j->ids.count = 0;
        if (ct_tokenizer_encode(context, j->text, j->size, (ct_encode_options){0}, &j->ids)) j->ids.count = 0;
    }
    ct_tokenizer_context_destroy(context);
    return NULL;
}

static void threads_share_a_tokenizer(void **state) {
    (void)state;
    ct_tokenizer *tokenizer = open_fixture("starcoder.json");
    char *text;
    size_t size;
    assert_null(ct_file_read(FIXTURES "mixed.bin", 0, &text, &size));
    job jobs[4];
    pthread_t threads[4];
    for (int i = 0; i < 4; i++) {
        jobs[i] = (job){tokenizer, text, size, {0}};
        assert_int_equal(pthread_create(&threads[i], NULL, encode_twice, &jobs[i]), 0);
    }
    for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
    for (int i = 0; i < 4; i++) {
        assert_true(jobs[i].ids.count > 0 && jobs[i].ids.count == jobs[0].ids.count);
        assert_memory_equal(jobs[i].ids.ids, jobs[0].ids.ids, jobs[0].ids.count * sizeof(int32_t));
    }
    for (int i = 0; i < 4; i++) ct_ids_deinit(&jobs[i].ids);
    free(text);
    ct_tokenizer_close(tokenizer);
}

static void special_tokens_in_text_can_be_plain_text(void **state) {
    (void)state;
    ct_tokenizer *tokenizer = open_fixture("gpt2_like.json");
    int end = ct_tokenizer_id(tokenizer, "<|end|>", 7);
    assert_true(end > 0 && ct_tokenizer_is_special(tokenizer, end));
    ct_ids ids = {0};
    encode(tokenizer, "a<|end|>", 8, (ct_encode_options){0}, &ids);
    assert_int_equal(ids.ids[ids.count - 1], end);
    encode(tokenizer, "a<|end|>", 8, (ct_encode_options){.plain_specials = 1}, &ids);
    for (size_t i = 0; i < ids.count; i++) assert_int_not_equal(ids.ids[i], end);
    ct_ids_deinit(&ids);
    ct_tokenizer_close(tokenizer);
}

// torchtitan 0.2.2: bos_token and eos_token of tokenizer_config.json, as text or object, become special tokens; BOS
// and EOS are added unless the template does it.
static void bos_and_eos_come_from_the_config_beside(void **state) {
    (void)state;
    static const char *const configs[] = {
        "{\"bos_token\": \"<B>\", \"eos_token\": {\"content\": \"<E>\", \"lstrip\": false}, \"add_eos_token\": true}",
        "{\"bos_token\": \"<s>\", \"eos_token\": \"</s>\", \"pad_token\": null}"};
    char *text;
    size_t size;
    for (int i = 0; i < 2; i++) {
        char *folder = temporary_folder();
        assert_null(ct_file_read(i ? FIXTURES "llama2_like.json" : FIXTURES "gpt2_like.json", 0, &text, &size));
        free(write_file(folder, "tokenizer.json", text, size));
        free(write_file(folder, "tokenizer_config.json", configs[i], strlen(configs[i])));
        ct_tokenizer *tokenizer = NULL;
        assert_null(ct_tokenizer_open(folder, (ct_tokenizer_options){0}, &tokenizer));
        const ct_tokenizer_info *info = ct_tokenizer_describe(tokenizer);
        ct_ids ids = {0};
        encode(tokenizer, "x", 1, (ct_encode_options){.add_bos = 1, .add_eos = 1}, &ids);
        assert_int_equal(ids.ids[0], info->bos_id);
        assert_int_not_equal(ids.ids[1], info->bos_id);
        assert_int_equal(ids.ids[ids.count - 1], info->eos_id);
        assert_int_not_equal(ids.ids[ids.count - 2], info->eos_id);
        encode(tokenizer, "", 0, (ct_encode_options){0}, &ids);
        assert_int_equal(ids.count, i ? 2 : 0); // the template of the second adds both, asked or not
        assert_string_equal(info->bos_token, i ? "<s>" : "<B>");
        assert_int_equal(info->default_eos, !i);
        if (!i) assert_int_equal(info->vocab_size, info->eos_id + 1);
        ct_ids_deinit(&ids);
        ct_tokenizer_close(tokenizer);
        free(text);
        assert_null(ct_folder_remove(folder));
        free(folder);
    }
}

// ---- decoding ------------------------------------------------------------------------------------

static void take_whole_characters(void *context, const void *bytes, size_t size) {
    const unsigned char *p = bytes, *end = p + size;
    int bad;
    for (int length; p < end; p += length) assert_true((length = ct_utf8_check(p, end, &bad)) > 0);
    ct_string_add_bytes(context, bytes, size);
}

static void a_stream_holds_back_half_characters(void **state) {
    (void)state;
    static const char text[] =
        "na\xc3\xafve \xf0\x9f\xa6\x99\xf0\x9f\x91\x8d\xf0\x9f\x8f\xbd \xe4\xbd\xa0\xf3\xb0\x80\x80!";
    static const char *const files[] = {"gpt2_like.json", "llama2_like.json", "sp_bpe.model"};
    for (int i = 0; i < 3; i++) {
        ct_tokenizer *tokenizer = open_fixture(files[i]);
        ct_ids ids = {0};
        encode(tokenizer, text, sizeof text - 1, (ct_encode_options){.no_template = 1}, &ids);
        ct_decode_stream stream = {.tokenizer = tokenizer};
        ct_string out = {0};
        for (size_t k = 0; k < ids.count; k++)
            ct_decode_stream_push(&stream, ids.ids[k], take_whole_characters, &out);
        ct_decode_stream_finish(&stream, take_whole_characters, &out);
        assert_string_equal(out.text, text);
        ct_string_deinit(&out);
        ct_ids_deinit(&ids);
        ct_tokenizer_close(tokenizer);
    }
}

static void bytes_that_form_no_character_come_out_as_they_are(void **state) {
    (void)state;
    ct_tokenizer *tokenizer = open_fixture("llama2_like.json");
    int32_t ids[] = {ct_tokenizer_id(tokenizer, "<0xF0>", 6), ct_tokenizer_id(tokenizer, "<0x9F>", 6),
                     ct_tokenizer_id(tokenizer, "<0xFF>", 6), 1};
    char *text;
    size_t size;
    ct_tokenizer_decode(tokenizer, ids, 4, 1, &text, &size); // <s>, id 1, is special
    assert_int_equal(size, 3);
    assert_memory_equal(text, "\xf0\x9f\xff", 3);
    free(text);
    ct_tokenizer_close(tokenizer);
}

// ---- bad files -----------------------------------------------------------------------------------

static void expect_error(const char *path, const char *part) {
    ct_tokenizer *tokenizer = NULL;
    ct_status status = ct_tokenizer_open(path, (ct_tokenizer_options){0}, &tokenizer);
    if (!status) fail_msg("%s opened", path);
    if (!strstr(ct_error_text(status), part)) fail_msg("'%s' does not say '%s'", ct_error_text(status), part);
}

static void what_is_not_supported_is_named(void **state) {
    (void)state;
    static const char head[] = "{\"added_tokens\": [], \"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0, \"b\": "
                               "1, \"ab\": 2}, \"merges\": [\"a b\"]%s}%s}";
    static const struct {
        const char *in_model, *behind, *says;
    } cases[] = {
        {"", ", \"normalizer\": {\"type\": \"Cyrillic\"}", "'Cyrillic'"},
        {"", ", \"pre_tokenizer\": {\"type\": \"Sequence\", \"pretokenizers\": [{\"type\": \"Nope\"}]}", "'Nope'"},
        {"", ", \"decoder\": {\"type\": \"WordPiece\"}", "'WordPiece'"},
        {"", ", \"post_processor\": {\"type\": \"Hm\"}", "'Hm'"},
        {", \"dropout\": 0.1", "", "dropout"},
        {", \"unk_token\": \"zz\"", "", "'zz'"},
        {"", ", \"truncation\": {\"max_length\": 5}", "truncation"},
        {"",
         ", \"pre_tokenizer\": {\"type\": \"Split\", \"pattern\": {\"Regex\": \"(a\"}, \"behavior\": \"Isolated\"}",
         "regular expression"},
        {"",
         ", \"pre_tokenizer\": {\"type\": \"Split\", \"pattern\": {\"Regex\": \"[b-a]\"}, \"behavior\": "
         "\"Isolated\"}",
         "out of order"},
        {"",
         ", \"pre_tokenizer\": {\"type\": \"Split\", \"pattern\": {\"Regex\": \"[ab\"}, \"behavior\": \"Isolated\"}",
         "closing bracket"}};
    char *folder = temporary_folder();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *json = ct_format(head, cases[i].in_model, cases[i].behind),
             *path = write_file(folder, "tokenizer.json", json, strlen(json));
        expect_error(path, cases[i].says);
        free(path);
        free(json);
    }
    static const char *const wrong[][2] = {
        {"{\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0}, \"merges\": [\"a b\"]}}", "names 'b'"},
        {"{\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0, \"b\": 0}, \"merges\": []}}", "two tokens"},
        {"{\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": -1}, \"merges\": []}}", "no id"},
        {"{\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 4e9}, \"merges\": []}}", "no id"},
        {"{\"model\": {\"type\": \"WordPiece\", \"vocab\": {}}}", "'WordPiece'"},
        {"{\"model\": {\"type\": \"BPE\", \"vocab\": {}, \"merges\": []}}", "no token"},
        {"[]", "no JSON object"},
        {"{\"model\":\n\n {]", "tokenizer.json:3"}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        char *path = write_file(folder, "tokenizer.json", wrong[i][0], strlen(wrong[i][0]));
        expect_error(path, wrong[i][1]);
        free(path);
    }
    assert_null(ct_folder_remove(folder));
    expect_error(folder, "there is no tokenizer at");
    free(folder);
}

static void files_cut_off_anywhere_are_refused(void **state) {
    (void)state;
    static const struct {
        const char *fixture, *name;
        size_t step;
    } cases[] = {{"gpt2_like.json", "tokenizer.json", 211},
                 {"sp_bpe.model", "tokenizer.model", 83},
                 {"sp_unigram.model", "spiece.model", 4801}};
    char *folder = temporary_folder();
    assert_int_equal(rmdir(folder), 0);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *path = ct_format(FIXTURES "%s", cases[i].fixture), *text;
        size_t size;
        assert_null(ct_file_read(path, 0, &text, &size));
        assert_null(ct_folder_make(folder));
        for (size_t length = 0; length < size - 1; length += cases[i].step) {
            char *cut = write_file(folder, cases[i].name, text, length);
            ct_tokenizer *tokenizer = NULL;
            ct_status status = ct_tokenizer_open(cut, (ct_tokenizer_options){0}, &tokenizer);
            // A protocol buffer that ends between two fields is whole: there only a crash would be wrong.
            if (!status && i == 0) fail_msg("%s opened with %zu of %zu bytes", cases[i].name, length, size);
            ct_tokenizer_close(tokenizer);
            free(cut);
        }
        free(text);
        free(path);
        assert_null(ct_folder_remove(folder));
    }
    assert_null(ct_folder_make(folder));
    expect_error(folder, "holds no tokenizer");
    char *path = write_file(folder, "cl100k_base.tiktoken", "IQ== 0\nIg== x\n", 14);
    expect_error(path, "line 2");
    free(path);
    path = write_file(folder, "unknown.tiktoken", "IQ== 0\nIg== 1\n", 14);
    expect_error(path, "give one");
    free(path);
    path = write_file(folder, "tokenizer.bin", "\x05\0\0\0\0\0\0\0\x09\0\0\0abc", 15);
    expect_error(path, "token 0");
    free(path);
    assert_null(ct_folder_remove(folder));
    free(folder);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ill_formed_sequences_become_one_replacement_a_maximal_part),
        cmocka_unit_test(scanners_cut_where_their_patterns_do),
        cmocka_unit_test(a_megabyte_of_one_letter_is_no_trap),
        cmocka_unit_test(threads_share_a_tokenizer),
        cmocka_unit_test(special_tokens_in_text_can_be_plain_text),
        cmocka_unit_test(bos_and_eos_come_from_the_config_beside),
        cmocka_unit_test(a_stream_holds_back_half_characters),
        cmocka_unit_test(bytes_that_form_no_character_come_out_as_they_are),
        cmocka_unit_test(what_is_not_supported_is_named),
        cmocka_unit_test(files_cut_off_anywhere_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
