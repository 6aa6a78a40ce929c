// data/tokens: published tokenizers as encoders: where text may be cut the ids are those of the whole; `ctitan data` builds and describes.
#include "cli/commands.h"
#include "data/document.h"
#include "data/tokens.h"
#include "harness.h"

#include <dirent.h>
#include <unistd.h>

static const char *data_folder(void) {
    const char *named = getenv("CT_TESTDATA");
    return named ? named : CT_SOURCE_DIR "/../shared/data";
}

// Some of everything: this project's sources, and lines in several scripts.
static void gather_text(ct_arena *arena, ct_string *text) {
    static const char *const folders[] = {CT_SOURCE_DIR "/src/data", CT_SOURCE_DIR "/tests/data"};
    for (int f = 0; f < 2; f++) {
        DIR *dir = opendir(folders[f]);
        assert_non_null(dir);
        for (struct dirent *e; (e = readdir(dir));) {
            char *path = ct_format("%s/%s", folders[f], e->d_name), *bytes;
            size_t size;
            if (strstr(e->d_name, ".c") && !ct_file_read(path, 0, &bytes, &size)) {
                ct_string_add_bytes(text, bytes, size);
                free(bytes);
            }
            free(path);
        }
        closedir(dir);
    }
    char *golden = ct_format("%s/tokenizers/golden/llama-bpe.inp", data_folder()), *bytes;
    size_t size;
    if (!ct_file_read(golden, 0, &bytes, &size)) {
        ct_string_add_bytes(text, bytes, size);
        free(bytes);
    }
    free(golden);
    static const char *const lines[] = {
        "Prose ends with a stop.\nThen it goes on, they'll\nsay, and it's\nnot over;\n\nnew paragraph  \nWith spaces",
        "数は\n世界の言葉。\n漢字を読む，\n国", "Русский текст\nна двух строках.\nКонец", "한국어\n말은\n글", "12345\nabc 1\nA1\n2",
        "tabs\t\nx\n\ty\r\nz\n", "\xf0\x9f\x99\x82\nemoji \xf0\x9f\x99\x82\nE", "cafe\xcc\x81\nEnd \xff\xfe\nx\xe2\x80\xa8\nY",
    };
    for (int i = 0; i < 8; i++) ct_string_add(text, "%s\n", lines[i]);
    size_t length = text->length; // once more with lines of a few words
    ct_string_add_bytes(text, ct_arena_strndup(arena, text->text, length), length);
    int spaces = 0;
    for (size_t i = length; i < text->length; i++)
        if (text->text[i] == ' ' && ++spaces % 3 == 0) text->text[i] = '\n';
}

static void encode(ct_data_encoder encoder, const char *text, size_t length, ct_data_ids *ids) {
    assert_ok(encoder.encode(encoder.context, 0, text, length, ids));
}

// Every place where text may be cut, in a window around it.
static int check_cuts(const char *name, ct_data_encoder encoder, const ct_string *text) {
    int cuts = 0;
    ct_data_ids whole = {0}, parts = {0};
    for (size_t n = 2; n < text->length; n++) {
        size_t before = n < 8 ? n : 8;
        if (text->text[n - 1] != '\n' || documents_cut(text->text + n - before, before) != before) continue;
        size_t begin = n > 400 ? n - 400 : 0, end = n + 200 < text->length ? n + 200 : text->length;
        whole.count = parts.count = 0;
        encode(encoder, text->text + begin, end - begin, &whole);
        encode(encoder, text->text + begin, n - begin, &parts);
        encode(encoder, text->text + n, end - n, &parts);
        if (whole.count != parts.count || memcmp(whole.ids, parts.ids, sizeof(int32_t) * (size_t)whole.count))
            fail_msg("%s: cutting at byte %zu (\"%.20s\") changes ids", name, n, text->text + n - 10);
        cuts++;
    }
    free(whole.ids);
    free(parts.ids);
    return cuts;
}

static void published_tokenizers_give_the_same_ids_where_text_is_cut(void **state) {
    (void)state;
    if (!ct_path_is_folder(data_folder())) {
        printf("skipped: no folder %s (CT_TESTDATA)\n", data_folder());
        skip();
    }
    static const struct {
        const char *name;
        int may_cut;
    } cases[] = {
        {"llama3/tokenizer.json", 1}, {"qwen3", 1}, {"gpt2", 1}, {"titan_test", 1}, {"tiktoken/cl100k_base.tiktoken", 1},
        {"deepseek_v3", 1}, {"llama2", 0},
    };
    enum { COUNT = sizeof cases / sizeof *cases };
    ct_string text = {0};
    ct_arena arena = {0};
    gather_text(&arena, &text);
    uint64_t seen[COUNT];
    for (int i = 0; i < COUNT; i++) {
        char *path = ct_format("%s/tokenizers/%s", data_folder(), cases[i].name);
        ct_tokenizer *tokenizer;
        ct_data_tokens *tokens;
        assert_ok(ct_tokenizer_open(path, (ct_tokenizer_options){0}, &tokenizer));
        assert_ok(ct_data_tokens_create(tokenizer, 1, &tokens));
        ct_data_encoder encoder = ct_data_tokens_encoder(tokens, 0);
        if (encoder.may_cut != cases[i].may_cut) fail_msg("%s: may_cut is %d", cases[i].name, encoder.may_cut);
        if (encoder.may_cut) assert_true(check_cuts(cases[i].name, encoder, &text) > 2000);
        seen[i] = encoder.fingerprint;
        for (int j = 0; j < i; j++) assert_true(seen[j] != seen[i]);
        ct_data_tokens_destroy(tokens);
        ct_tokenizer_close(tokenizer);
        free(path);
    }
    ct_string_deinit(&text);
    ct_arena_deinit(&arena);
}

// ---- the command ----
// A byte-level tokenizer without merges: GPT-2's letter for each byte, then <s> and </s>.
static void write_byte_tokenizer(void) {
    ct_string out = {0};
    ct_string_add(&out, "{\"version\":\"1.0\",\"added_tokens\":[{\"id\":256,\"content\":\"<s>\",\"single_word\":false,\"lstrip\":false,"
                        "\"rstrip\":false,\"normalized\":false,\"special\":true},{\"id\":257,\"content\":\"</s>\",\"single_word\":false,"
                        "\"lstrip\":false,\"rstrip\":false,\"normalized\":false,\"special\":true}],\"normalizer\":null,"
                        "\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"trim_offsets\":true,\"use_regex\":true},"
                        "\"post_processor\":null,\"decoder\":{\"type\":\"ByteLevel\",\"add_prefix_space\":true,\"trim_offsets\":true,"
                        "\"use_regex\":true},\"model\":{\"type\":\"BPE\",\"vocab\":{");
    for (unsigned byte = 0, more = 256; byte < 256; byte++) {
        int plain = (byte > 32 && byte < 127) || (byte > 160 && byte != 173);
        ct_string_add(&out, "%s\"\\u%04x\":%u", byte ? "," : "", plain ? byte : more++, byte);
    }
    ct_string_add(&out, "},\"merges\":[]}}");
    assert_ok(ct_folder_make(scratch("tok")));
    write_text(scratch("tok/tokenizer.json"), out.text);
    write_text(scratch("tok/tokenizer_config.json"), "{\"bos_token\":\"<s>\",\"eos_token\":\"</s>\"}");
    ct_string_deinit(&out);
}

static int call(const char *a, const char *b, const char *c, const char *d, const char *e, const char *f) {
    char *argv[] = {(char *)"data", (char *)a, (char *)b, (char *)c, (char *)d, (char *)e, (char *)f, NULL};
    int argc = 1;
    while (argv[argc]) argc++;
    return ct_cmd_data(argc, argv);
}

static void the_command_builds_what_the_loader_reads(void **state) {
    (void)state;
    scratch_make();
    write_byte_tokenizer();
    char *json = numbered_documents(300, 100);
    write_text(scratch("s.jsonl"), json);
    assert_int_equal(call("build", scratch("tok"), scratch("s.ctc"), scratch("s.jsonl"), "--threads", "2"), 0);
    assert_int_equal(call("info", scratch("s.ctc"), "--verify", "--json", NULL, NULL), 0);
    ct_tokenizer *tokenizer;
    ct_data_tokens *tokens;
    assert_ok(ct_tokenizer_open(scratch("tok"), (ct_tokenizer_options){0}, &tokenizer));
    assert_ok(ct_data_tokens_create(tokenizer, 2, &tokens));
    enum { SEQ = 50, COUNT = 500 };
    int32_t *ids[3];
    const char *const names[3] = {"s.jsonl", "s.ctc", "s.jsonl"};
    for (int i = 0; i < 3; i++) { // through the tokenizer, from the corpus, and with the tests' own bytes
        ct_data_source source = {.path = scratch(names[i])};
        ct_data_options options = {.encoder = i < 2 ? ct_data_tokens_encoder(tokens, 0) : byte_encoder(), .sources = &source,
                                   .source_count = 1, .seq_len = SEQ, .encoder_thread = i == 0};
        ct_data *data;
        assert_ok(ct_data_create(&options, &data));
        ids[i] = malloc(sizeof(int32_t) * COUNT * (SEQ + 1));
        assert_int_equal(read_ids(data, SEQ, COUNT, ids[i]), COUNT);
        ct_data_destroy(data);
        assert_memory_equal(ids[i], ids[0], sizeof(int32_t) * COUNT * (SEQ + 1));
    }
    for (int i = 0; i < 3; i++) free(ids[i]);
    ct_data_tokens_destroy(tokens);
    ct_tokenizer_close(tokenizer);
    free(json);
    scratch_remove();
}

static void the_command_refuses_what_it_cannot_use(void **state) {
    (void)state;
    scratch_make();
    write_byte_tokenizer();
    write_text(scratch("s.jsonl"), "{\"text\":\"x\"}\n");
    assert_int_equal(call(NULL, NULL, NULL, NULL, NULL, NULL), 2);
    assert_int_equal(call("--help", NULL, NULL, NULL, NULL, NULL), 0);
    assert_int_equal(call("bild", NULL, NULL, NULL, NULL, NULL), 2);
    assert_int_equal(call("build", scratch("tok"), scratch("s.ctc"), scratch("s.jsonl"), "--thraeds", NULL), 2);
    assert_int_equal(call("build", scratch("tok"), scratch("s.ctc"), scratch("s.jsonl"), "--threads", "0"), 2);
    assert_int_equal(call("build", scratch("tok"), scratch("s.ctc"), NULL, NULL, NULL), 2);
    assert_int_equal(call("build", scratch("none"), scratch("s.ctc"), scratch("s.jsonl"), NULL, NULL), 1);
    assert_int_equal(call("build", scratch("tok"), scratch("s.ctc"), scratch("s.jsonl"), "--format", "text"), 0);
    assert_int_equal(call("info", scratch("s.jsonl"), NULL, NULL, NULL, NULL), 1);
    assert_int_equal(call("info", scratch("none.ctc"), NULL, NULL, NULL, NULL), 1);
    scratch_remove();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(published_tokenizers_give_the_same_ids_where_text_is_cut),
        cmocka_unit_test(the_command_builds_what_the_loader_reads),
        cmocka_unit_test(the_command_refuses_what_it_cannot_use),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
