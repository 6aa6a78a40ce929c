// data: a state saved anywhere goes on bit for bit, in every way of reading; a state that does not fit is one clear error.
#include "harness.h"

enum { SEQ = 24, COUNT = 260 };

typedef struct {
    const char *name;
    ct_data_source sources[3];
    int count, shuffle, once;
    int64_t buffer;
} way;

static char *copies[16];
static const char *keep(int i, const char *path) { return copies[i] = ct_strdup(path); }

// Documents by number: "<n>" and n mod 50 letters.
static const char *open_letters(const char *path, void **out_source, int64_t *out_documents, uint64_t *out_fingerprint) {
    if (strcmp(path, "letters")) return "only letters are here";
    *out_source = ct_malloc(80);
    *out_documents = 70;
    *out_fingerprint = 7;
    return NULL;
}
static const char *read_letters(void *source, int64_t document, const char **out_text, size_t *out_bytes) {
    char *text = source;
    size_t n = (size_t)snprintf(text, 80, "<%lld>", (long long)document), letters = (size_t)document % 50;
    memset(text + n, 'a' + (int)(document % 26), letters);
    *out_text = text;
    *out_bytes = n + letters;
    return NULL;
}
static const ct_data_reader letters = {"letters", open_letters, read_letters, free};

// Every way of reading: streams and indexes, plain and compressed, text in pieces and split, corpora, mixtures.
static int make_ways(way *ways) {
    char *json = numbered_documents(60, 70), *more = numbered_documents(23, 30);
    write_text(scratch("a.jsonl"), json);
    write_text(scratch("b.jsonl"), more);
    write_gzip(scratch("a.jsonl.gz"), json, strlen(json), 3);
    write_zstd(scratch("b.jsonl.zst"), more, strlen(more), 2);
    ct_string text = {0};
    for (int i = 0; i < 90; i++) ct_string_add(&text, "line %d of it\n%s", i * i, i % 7 == 2 ? "\n\n" : i % 5 == 1 ? "\n" : "");
    write_text(scratch("t.txt"), text.text);
    ct_data_source built[1] = {{.path = scratch("a.jsonl")}};
    ct_corpus_build_options build = {.encoder = byte_encoder(), .sources = built, .source_count = 1, .threads = 2};
    assert_ok(ct_corpus_build(&build, scratch("a.ctc"), NULL));
    const char *a = keep(0, scratch("a.jsonl")), *b = keep(1, scratch("b.jsonl")), *az = keep(2, scratch("a.jsonl.gz")),
               *bz = keep(3, scratch("b.jsonl.zst")), *t = keep(4, scratch("t.txt")), *c = keep(5, scratch("a.ctc")),
               *z = keep(6, scratch("*.jsonl.*"));
    const way made[] = {
        {"a stream", {{.path = a}}, 1, 0, 0, 0},
        {"a gzip stream", {{.path = az}}, 1, 0, 0, 0},
        {"several compressed files", {{.path = z}}, 1, 0, 0, 0},
        {"indexed", {{.path = a}}, 1, 1, 0, 0},
        {"blocks", {{.path = z}}, 1, 1, 0, 7},
        {"text", {{.path = t}}, 1, 0, 0, 0},
        {"split text", {{.path = t, .split_blank_lines = 2}}, 1, 1, 0, 0},
        {"a corpus", {{.path = c}}, 1, 0, 0, 0},
        {"a shuffled corpus", {{.path = c}}, 1, 1, 0, 0},
        {"a reader", {{.path = "letters", .reader = letters}}, 1, 0, 0, 0},
        {"a shuffled reader beside a corpus", {{.path = "letters", .reader = letters}, {.path = c}}, 2, 1, 0, 0},
        {"a mixture", {{.path = a, .weight = 2}, {.path = bz, .weight = 1}, {.path = t, .weight = 0.5}}, 3, 0, 0, 0},
        {"a shuffled mixture", {{.path = c, .weight = 1}, {.path = bz, .weight = 3}, {.path = b}}, 3, 1, 0, 5},
        {"one pass of a mixture", {{.path = a}, {.path = b}}, 2, 0, 1, 0},
    };
    free(json);
    free(more);
    ct_string_deinit(&text);
    memcpy(ways, made, sizeof made);
    return sizeof made / sizeof *made;
}

static ct_data *open_way(const way *w, int ahead) {
    ct_data_options options = {.encoder = byte_encoder(), .sources = w->sources, .source_count = w->count, .seq_len = SEQ,
                               .shuffle = w->shuffle, .seed = 77, .shuffle_buffer = w->buffer, .once = w->once, .ahead = ahead};
    ct_data *data;
    assert_ok(ct_data_create(&options, &data));
    return data;
}

static void a_state_saved_at_any_position_goes_on_bit_for_bit(void **state) {
    (void)state;
    scratch_make();
    way ways[16];
    int count = make_ways(ways);
    int32_t *all = malloc(sizeof(int32_t) * COUNT * (SEQ + 1)), *rest = malloc(sizeof(int32_t) * COUNT * (SEQ + 1));
    char *states[COUNT + 1];
    for (int w = 0; w < count; w++) {
        ct_data *data = open_way(&ways[w], 9);
        int64_t n = 0;
        for (;; n++) {
            ct_data_state_save(data, &states[n]);
            if (n == COUNT || !read_ids(data, SEQ, 1, all + n * (SEQ + 1))) break;
        }
        assert_true(ways[w].once ? n > 30 && n < COUNT : n == COUNT && ct_data_epoch(data) > 0);
        ct_data_destroy(data);
        data = open_way(&ways[w], 4);
        for (int64_t i = n; i >= 0; i--) { // backwards, so that each restore goes to where the loader never was
            assert_ok(ct_data_state_restore(data, states[i], strlen(states[i])));
            assert_int_equal(ct_data_position(data), i);
            char *again;
            ct_data_state_save(data, &again);
            assert_string_equal(again, states[i]);
            free(again);
            int64_t want = n - i < 12 ? n - i : 12, got = read_ids(data, SEQ, want, rest);
            if (got != want || memcmp(rest, all + i * (SEQ + 1), sizeof(int32_t) * (size_t)(want * (SEQ + 1))))
                fail_msg("%s: after restoring %lld the sequences differ", ways[w].name, (long long)i);
        }
        for (int64_t i = 0; i <= n; i++) free(states[i]);
        ct_data_destroy(data);
    }
    free(all);
    free(rest);
    for (int i = 0; i < 16; i++) free(copies[i]), copies[i] = NULL;
    scratch_remove();
}

static void a_state_that_does_not_fit_is_refused_and_changes_nothing(void **state) {
    (void)state;
    scratch_make();
    char *json = numbered_documents(40, 60), *saved;
    write_text(scratch("a.jsonl"), json);
    ct_data_source source = {.path = scratch("a.jsonl")};
    ct_data_options options = {.encoder = byte_encoder(), .sources = &source, .source_count = 1, .seq_len = SEQ, .shuffle = 1, .seed = 5};
    ct_data *data;
    int32_t ids[4 * (SEQ + 1)], want[SEQ + 1];
    assert_ok(ct_data_create(&options, &data));
    assert_int_equal(read_ids(data, SEQ, 4, ids), 4);
    ct_data_state_save(data, &saved);
    assert_int_equal(read_ids(data, SEQ, 1, want), 1);
    ct_data_destroy(data);

#define REFUSED(change, undo, part)                                                                                    \
    do {                                                                                                               \
        change;                                                                                                        \
        assert_ok(ct_data_create(&options, &data));                                                                    \
        assert_error(ct_data_state_restore(data, saved, strlen(saved)), CT_INVALID, part);                             \
        assert_int_equal(ct_data_position(data), 0);                                                                   \
        assert_int_equal(read_ids(data, options.seq_len, 1, ids), 1);                                                  \
        ct_data_destroy(data);                                                                                         \
        undo;                                                                                                          \
    } while (0)
    REFUSED(options.seq_len = 8, options.seq_len = SEQ, "seq_len = 24");
    REFUSED(options.seed = 6, options.seed = 5, "seed");
    REFUSED(options.shuffle = 0, options.shuffle = 1, "shuffle");
    REFUSED(options.encoder.fingerprint++, options.encoder.fingerprint--, "another tokenizer");
    REFUSED(options.encoder.eos = -1, options.encoder.eos = 257, "EOS");
    REFUSED(source.weight = 2, source.weight = 0, "weight");
    json[20] ^= 1;
    REFUSED(write_text(scratch("a.jsonl"), json), json[20] ^= 1, "files were changed");
    write_text(scratch("a.jsonl"), json);
#undef REFUSED

    assert_ok(ct_data_create(&options, &data));
    static const char *const broken[] = {"", "{", "[]", "{}", "{\"version\":1}", "{\"version\":1,\"seq_len\":1.5}", "null", "{\"sources\":[1]}"};
    for (size_t i = 0; i < sizeof broken / sizeof *broken; i++)
        assert_error(ct_data_state_restore(data, broken[i], strlen(broken[i])), CT_CORRUPT, "saved data position");
    for (size_t n = 0; n < strlen(saved); n++) // cut off anywhere
        assert_error(ct_data_state_restore(data, saved, n), CT_CORRUPT, "saved data position");
    assert_ok(ct_data_state_restore(data, saved, strlen(saved)));
    assert_int_equal(read_ids(data, SEQ, 1, ids), 1);
    assert_memory_equal(ids, want, sizeof want);
    ct_data_destroy(data);
    free(saved);
    free(json);
    scratch_remove();
}

// A file that is changed after the loader has opened it is found by the ids themselves.
static void a_document_that_changed_meanwhile_is_found_when_restoring(void **state) {
    (void)state;
    scratch_make();
    char *json = numbered_documents(40, 60), *saved;
    write_text(scratch("a.jsonl"), json);
    ct_data_source source = {.path = scratch("a.jsonl")};
    ct_data_options options = {.encoder = byte_encoder(), .sources = &source, .source_count = 1, .seq_len = SEQ};
    ct_data *data, *other;
    int32_t ids[4 * (SEQ + 1)];
    assert_ok(ct_data_create(&options, &data));
    assert_int_equal(read_ids(data, SEQ, 4, ids), 4);
    ct_data_state_save(data, &saved);
    ct_data_destroy(data);
    assert_ok(ct_data_create(&options, &other));
    for (char *p = json; (p = strstr(p, "abc")); p++) p[1] = '!';
    for (char *p = json; (p = strstr(p, "cba")); p++) p[1] = '!';
    FILE *file = fopen(scratch("a.jsonl"), "r+"); // in place: an atomic write would leave the open file as it was
    fwrite(json, 1, strlen(json), file);
    fclose(file);
    assert_error(ct_data_state_restore(other, saved, strlen(saved)), CT_INVALID, "is not the one that was there");
    ct_data_destroy(other);
    free(saved);
    free(json);
    scratch_remove();
}

static void sequences_may_be_read_in_any_order_before_they_are_released(void **state) {
    (void)state;
    scratch_make();
    char *json = numbered_documents(40, 60);
    write_text(scratch("a.jsonl"), json);
    ct_data_source source = {.path = scratch("a.jsonl")};
    ct_data_options options = {.encoder = byte_encoder(), .sources = &source, .source_count = 1, .seq_len = SEQ, .ahead = 8};
    ct_data *data;
    int32_t in_order[16][SEQ], tokens[2][SEQ], got;
    assert_ok(ct_data_create(&options, &data));
    for (int i = 0; i < 16; i++) assert_ok(ct_data_next(data, 1, (ct_data_batch){.tokens = in_order[i]}, &got));
    ct_data_destroy(data);
    assert_ok(ct_data_create(&options, &data));
    assert_ok(ct_data_start(data));
    for (int step = 0; step < 2; step++) {
        for (int micro = 3; micro >= 0; micro--) {
            assert_ok(ct_data_read(data, step * 8 + micro * 2, 2, (ct_data_batch){.tokens = tokens[0]}, &got));
            assert_int_equal(got, 2);
            assert_memory_equal(tokens, in_order[step * 8 + micro * 2], sizeof tokens);
        }
        assert_error(ct_data_read(data, step * 8 + 7, 2, (ct_data_batch){0}, &got), CT_INVALID, "at hand");
        ct_data_release(data, step * 8 + 8);
        assert_error(ct_data_read(data, step * 8 + 7, 1, (ct_data_batch){0}, &got), CT_INVALID, "at hand");
    }
    assert_true(ct_data_waited_s(data) >= 0);
    ct_data_destroy(data);
    free(json);
    scratch_remove();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_state_saved_at_any_position_goes_on_bit_for_bit),
        cmocka_unit_test(a_state_that_does_not_fit_is_refused_and_changes_nothing),
        cmocka_unit_test(a_document_that_changed_meanwhile_is_found_when_restoring),
        cmocka_unit_test(sequences_may_be_read_in_any_order_before_they_are_released),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
