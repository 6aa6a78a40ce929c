// data: bad input is one message that says what, where and what was wanted; what was good before it can still be read.
#include "harness.h"

#include <unistd.h>
#include <xxhash.h>

enum { SEQ = 15 };

static ct_data_options options_for(const ct_data_source *source) {
    return (ct_data_options){.encoder = byte_encoder(), .sources = source, .source_count = 1, .seq_len = SEQ, .once = 1};
}

// The first error on the way from opening to the end of a pass; NULL: there was none.
static ct_status first_error_with(const ct_data_options *options) {
    static char text[2048];
    static ct_code code;
    ct_data *data;
    int32_t got = 1;
    ct_status status = ct_data_create(options, &data);
    if (status) return status;
    while (!status && got) status = ct_data_next(data, 1, (ct_data_batch){0}, &got);
    if (status) {
        code = ct_error_code(status);
        snprintf(text, sizeof text, "%s", ct_error_text(status));
        assert_error(ct_data_next(data, 1, (ct_data_batch){0}, &got), code, text); // and it stays
    }
    ct_data_destroy(data);
    return status ? ct_error_make(code, "", 0, "%s", text) : CT_OK;
}

static ct_status first_error(ct_data_source source) {
    ct_data_options options = options_for(&source);
    return first_error_with(&options);
}

static void bad_json_lines_are_named_by_file_line_and_column(void **state) {
    (void)state;
    static const struct {
        const char *line, *part;
    } cases[] = {
        {"{\"text\": \"abc", "d.jsonl:2:14: the text ends here, wanted the string's closing '\"'"},
        {"{\"text\": 12}", "d.jsonl:2:10: found a number, wanted a string (the member \"text\")"},
        {"{\"text\": null}", "d.jsonl:2:10: found 'null', wanted a string"},
        {"{\"txt\": \"a\"}", "d.jsonl:2:12: this object has no member \"text\""},
        {"[\"text\"]", "d.jsonl:2:1: found an array, wanted an object"},
        {"{\"text\": \"a\"} x", "d.jsonl:2:15: found 'x', wanted nothing behind the value"},
        {"{\"text\": \"a\" \"b\"}", "d.jsonl:2:14: found '\"', wanted ',' or '}'"},
        {"{\"text\": \"a\\q\"}", "d.jsonl:2:13: found 'q', wanted an escape"},
        {"{\"text\": \"a\tb\"}", "d.jsonl:2:12: found the byte 0x09, wanted the string's closing '\"'"},
        {"plain text", "d.jsonl:2:1: found 'p', wanted an object or another value"},
    };
    scratch_make();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int shuffle = 0; shuffle < 2; shuffle++) {
            char *text = ct_format("{\"text\": \"good one, long enough\"}\n%s\n{\"text\": \"z\"}\n", cases[i].line);
            write_text(scratch("d.jsonl"), text);
            ct_data_source source = {.path = scratch("d.jsonl")};
            ct_data_options options = options_for(&source);
            options.shuffle = shuffle;
            assert_error(first_error_with(&options), CT_INVALID, cases[i].part);
            free(text);
        }
    scratch_remove();
}

static void sequences_before_an_error_can_still_be_read(void **state) {
    (void)state;
    scratch_make();
    write_text(scratch("d.jsonl"), "{\"text\": \"a text of thirty characters....\"}\n{\"text\": 1}\n");
    ct_data_source source = {.path = scratch("d.jsonl")};
    ct_data_options options = options_for(&source);
    ct_data *data;
    int32_t got;
    assert_ok(ct_data_create(&options, &data));
    assert_ok(ct_data_next(data, 2, (ct_data_batch){0}, &got));
    assert_int_equal(got, 2);
    assert_error(ct_data_next(data, 1, (ct_data_batch){0}, &got), CT_INVALID, "d.jsonl:2:10");
    assert_int_equal(ct_data_position(data), 2);
    ct_data_destroy(data);
    scratch_remove();
}

static void missing_and_empty_sources_are_named(void **state) {
    (void)state;
    scratch_make();
    write_text(scratch("empty.txt"), "");
    write_text(scratch("blank.jsonl"), "\n  \n\n");
    write_text(scratch("void.jsonl"), "{\"text\": \"\"}\n");
    write_text(scratch("short.jsonl"), "{\"text\": \"twelve bytes\"}\n");
    assert_ok(ct_folder_make(scratch("folder")));
    write_text(scratch("folder/readme.md"), "x");
    assert_error(first_error((ct_data_source){.path = scratch("none.txt")}), CT_NOT_FOUND, "none.txt");
    assert_error(first_error((ct_data_source){.path = scratch("*.xyz")}), CT_NOT_FOUND, "*.xyz");
    assert_error(first_error((ct_data_source){.path = scratch("folder"), .format = "jsonl"}), CT_NOT_FOUND, "no file of the format jsonl");
    assert_error(first_error((ct_data_source){.path = scratch("empty.txt")}), CT_INVALID, "no document");
    assert_error(first_error((ct_data_source){.path = scratch("blank.jsonl")}), CT_INVALID, "no document");
    assert_error(first_error((ct_data_source){.path = scratch("short.jsonl")}), CT_INVALID, "the data ends after 14 tokens; one sequence needs 16");
    assert_error(first_error((ct_data_source){.path = scratch("short.jsonl"), .format = "parquet"}), CT_INVALID, "unknown format 'parquet'");
    assert_error(first_error((ct_data_source){.path = scratch("short.jsonl"), .weight = -1}), CT_INVALID, "weight");
    assert_error(first_error((ct_data_source){0}), CT_INVALID, "needs a path");
    ct_data_source source = {.path = scratch("void.jsonl")};
    ct_data_options options = options_for(&source); // an endless pass over nothing must not hang
    options.once = 0;
    options.encoder.bos = options.encoder.eos = -1;
    assert_error(first_error_with(&options), CT_INVALID, "all of its documents are empty");
    for (int shuffle = 0; shuffle < 2; shuffle++) {
        source.path = scratch("empty.txt");
        options.shuffle = shuffle;
        assert_error(first_error_with(&options), CT_INVALID, "no document");
    }
    scratch_remove();
}

static void c4_says_where_it_looked(void **state) {
    (void)state;
    scratch_make();
    assert_ok(ct_folder_make(scratch("empty")));
    char *here = getcwd(NULL, 0);
    assert_int_equal(chdir(scratch("empty")), 0);
    assert_error(first_error((ct_data_source){.format = "c4_test"}), CT_NOT_FOUND, "/empty/tests/assets/c4_test, which is not there");
    assert_error(first_error((ct_data_source){.path = scratch("empty"), .format = "c4_test"}), CT_NOT_FOUND, "where no JSON file is");
    assert_error(first_error((ct_data_source){.format = "c4_validation"}), CT_INVALID, "needs a dataset_path");
    assert_ok(ct_folder_make("en"));
    write_text("en/c4-train.00000.json", "{\"text\": \"wrong\"}\n");
    write_gzip("en/c4-validation.00000-of-00002.json.gz", "{\"text\": \"a piece of validation\"}\n", 34, 1);
    write_gzip("en/c4-validation.00001-of-00002.json.gz", "{\"text\": \"another piece of it\"}\n", 32, 1);
    ct_data_source source = {.path = scratch("empty"), .format = "c4_validation"};
    ct_data_options options = options_for(&source);
    ct_data *data;
    int32_t ids[2 * (SEQ + 1)];
    assert_ok(ct_data_create(&options, &data));
    assert_int_equal(read_ids(data, SEQ, 2, ids), 2);
    assert_int_equal(ids[1], 'a');
    assert_int_equal(ids[24], 'a');
    assert_int_equal(ids[25], 'n');
    ct_data_destroy(data);
    assert_int_equal(chdir(here), 0);
    free(here);
    scratch_remove();
}

static void a_compressed_file_cut_anywhere_or_changed_is_an_error(void **state) {
    (void)state;
    scratch_make();
    char *json = numbered_documents(40, 60);
    write_gzip(scratch("w.jsonl.gz"), json, strlen(json), 2);
    write_zstd(scratch("w.jsonl.zst"), json, strlen(json), 2);
    for (int kind = 0; kind < 2; kind++) {
        const char *whole = scratch(kind ? "w.jsonl.zst" : "w.jsonl.gz"), *cut = scratch(kind ? "c.jsonl.zst" : "c.jsonl.gz");
        char *bytes;
        size_t size, errors = 0;
        assert_ok(ct_file_read(whole, 0, &bytes, &size));
        for (size_t n = 0; n < size; n++) { // only the seam between the two parts makes a good file
            write_bytes(cut, bytes, n);
            ct_status status = first_error((ct_data_source){.path = cut});
            if (!status) continue;
            errors++;
            assert_true(ct_error_code(status) == CT_CORRUPT || ct_error_code(status) == CT_INVALID);
            assert_non_null(strstr(ct_error_text(status), "c.jsonl"));
        }
        assert_true(errors == size - 1 || errors == size);
        bytes[0] ^= 0x55;
        write_bytes(cut, bytes, size);
        assert_error(first_error((ct_data_source){.path = cut}), CT_CORRUPT, kind ? "zstd" : "gzip");
        bytes[0] ^= 0x55;
        bytes[size / 4] ^= 0x10;
        write_bytes(cut, bytes, size);
        ct_status status = first_error((ct_data_source){.path = cut});
        assert_true(!kind ? status != NULL : 1); // our zstd frames carry no checksum
        bytes[size - 1] ^= 0xff;
        free(bytes);
    }
    free(json);
    scratch_remove();
}

static void ids_outside_the_vocabulary_are_an_error(void **state) {
    (void)state;
    scratch_make();
    write_text(scratch("d.jsonl"), "{\"text\": \"fine so far, and then\"}\n{\"text\": \"\xc3\xa9\"}\n");
    ct_data_source source = {.path = scratch("d.jsonl")};
    ct_data_options options = options_for(&source);
    options.encoder.bos = options.encoder.eos = -1;
    options.encoder.vocab_size = 128;
    assert_error(first_error_with(&options), CT_INVALID, "d.jsonl:2: the id 195 came; the vocabulary has 128 entries");
    options.encoder.bos = 128;
    assert_error(first_error_with(&options), CT_INVALID, "BOS 128");
    scratch_remove();
}

static void a_corpus_cut_anywhere_or_changed_anywhere_is_an_error(void **state) {
    (void)state;
    scratch_make();
    char *json = numbered_documents(30, 20), *bytes;
    size_t size;
    write_text(scratch("s.jsonl"), json);
    ct_data_source source = {.path = scratch("s.jsonl")};
    ct_corpus_build_options build = {.encoder = byte_encoder(), .sources = &source, .source_count = 1, .threads = 1};
    assert_ok(ct_corpus_build(&build, scratch("s.ctc"), NULL));
    assert_ok(ct_file_read(scratch("s.ctc"), 0, &bytes, &size));
    source.path = scratch("x.ctc");
    uint64_t ids_end = 0, index_offset;
    memcpy(&index_offset, bytes + 64, 8);
    for (size_t n = 0; n < size; n += 7) {
        write_bytes(scratch("x.ctc"), bytes, n);
        ct_status status = first_error(source);
        assert_error(status, n < 8 ? CT_INVALID : CT_CORRUPT, "x.ctc");
    }
    for (size_t n = 0; n < size; n++) { // each byte but the padding
        bytes[n] ^= 4;
        FILE *file = fopen(scratch("x.ctc"), "wb");
        fwrite(bytes, 1, size, file);
        fclose(file);
        ct_corpus *corpus;
        ct_status status = ct_corpus_open(scratch("x.ctc"), &corpus);
        if (!status) {
            status = ct_corpus_verify(corpus);
            if (!status) ids_end++;
            ct_corpus_close(corpus);
        }
        bytes[n] ^= 4;
    }
    assert_true(ids_end < 2 * 64); // padding of two sections
    ct_data_options options = options_for(&source);
    write_bytes(scratch("x.ctc"), bytes, size);
    options.encoder.fingerprint++;
    assert_error(first_error_with(&options), CT_INVALID, "built with another tokenizer");
    free(bytes);
    free(json);
    scratch_remove();
}

// A header whose checksum is right and whose numbers are not: every field in turn, with small, large and odd values.
static void a_corpus_with_a_lying_header_is_an_error(void **state) {
    (void)state;
    scratch_make();
    char *json = numbered_documents(30, 20), *bytes;
    size_t size;
    write_text(scratch("s.jsonl"), json);
    ct_data_source source = {.path = scratch("s.jsonl")};
    ct_corpus_build_options build = {.encoder = byte_encoder(), .sources = &source, .source_count = 1, .threads = 1};
    assert_ok(ct_corpus_build(&build, scratch("s.ctc"), NULL));
    assert_ok(ct_file_read(scratch("s.ctc"), 0, &bytes, &size));
    static const uint64_t values[] = {0, 1, 3, 64, 1000, 1u << 20, UINT32_MAX, 1ull << 32, 1ull << 61, 1ull << 62, 1ull << 63, UINT64_MAX};
    int refused = 0;
    for (size_t field = 8; field < 120; field += 4)
        for (size_t v = 0; v < sizeof values / sizeof *values; v++) {
            char *copy = malloc(size);
            memcpy(copy, bytes, size);
            memcpy(copy + field, &values[v], field % 8 ? 4 : 8);
            uint64_t sum = XXH3_64bits(copy, 120);
            memcpy(copy + 120, &sum, 8);
            write_bytes(scratch("x.ctc"), copy, size);
            ct_corpus *corpus;
            ct_status status = ct_corpus_open(scratch("x.ctc"), &corpus);
            if (!status) {
                status = ct_corpus_verify(corpus);
                ct_corpus_close(corpus);
            }
            refused += status != NULL;
            free(copy);
        }
    assert_true(refused > 150);
    free(bytes);
    free(json);
    scratch_remove();
}

static ct_status encode_bad(void *context, int thread, const char *text, size_t length, ct_data_ids *ids) {
    (void)context, (void)thread;
    CT_CHECK(!memmem(text, length, "17:", 3), CT_UNSUPPORTED, "this text has a seventeen");
    *ct_data_ids_reserve(ids, 1) = 'x';
    ids->count++;
    return CT_OK;
}

static void a_failing_build_leaves_what_was_there(void **state) {
    (void)state;
    scratch_make();
    char *json = numbered_documents(30, 20);
    write_text(scratch("s.jsonl"), json);
    write_text(scratch("out.ctc"), "before");
    ct_data_source source = {.path = scratch("s.jsonl")};
    ct_corpus_build_options build = {.encoder = byte_encoder(), .sources = &source, .source_count = 1, .threads = 2};
    build.encoder.encode = encode_bad;
    assert_error(ct_corpus_build(&build, scratch("out.ctc"), NULL), CT_UNSUPPORTED, "seventeen (encoding ");
    char *text;
    assert_ok(ct_file_read(scratch("out.ctc"), 0, &text, NULL));
    assert_string_equal(text, "before");
    assert_false(ct_path_exists(scratch("out.ctc.tmp")));
    free(text);
    build.encoder = byte_encoder();
    if (!access("/dev/full", W_OK) && !symlink("/dev/full", scratch("full.ctc.tmp")))
        assert_error(ct_corpus_build(&build, scratch("full.ctc"), NULL), CT_IO, "No space left");
    assert_error(ct_corpus_build(&build, scratch("nowhere/out.ctc"), NULL), CT_IO, "nowhere");
    source.path = scratch("none");
    assert_error(ct_corpus_build(&build, scratch("out.ctc"), NULL), CT_NOT_FOUND, "none");
    free(json);
    scratch_remove();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bad_json_lines_are_named_by_file_line_and_column),
        cmocka_unit_test(sequences_before_an_error_can_still_be_read),
        cmocka_unit_test(missing_and_empty_sources_are_named),
        cmocka_unit_test(c4_says_where_it_looked),
        cmocka_unit_test(a_compressed_file_cut_anywhere_or_changed_is_an_error),
        cmocka_unit_test(ids_outside_the_vocabulary_are_an_error),
        cmocka_unit_test(a_corpus_cut_anywhere_or_changed_anywhere_is_an_error),
        cmocka_unit_test(a_corpus_with_a_lying_header_is_an_error),
        cmocka_unit_test(a_failing_build_leaves_what_was_there),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
