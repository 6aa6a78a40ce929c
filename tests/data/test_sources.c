// data: what sources mean: compressed equals plain, a corpus equals its source, folders and globs are sorted, mixtures keep their
// shares, shuffles are permutations that differ by pass and seed.
#include "harness.h"

enum { SEQ = 40 };

static ct_data *open_source(ct_data_source source, int shuffle, uint64_t seed, int once, int64_t buffer) {
    ct_data_options options = {.encoder = byte_encoder(), .sources = &source, .source_count = 1, .seq_len = SEQ,
                               .shuffle = shuffle, .seed = seed, .once = once, .shuffle_buffer = buffer};
    ct_data *data;
    assert_ok(ct_data_create(&options, &data));
    return data;
}

// All ids of a source up to `count` sequences.
static int32_t *ids_of(ct_data_source source, int shuffle, int64_t count, int64_t *out_ids) {
    ct_data *data = open_source(source, shuffle, 9, 0, 0);
    int32_t *ids = malloc(sizeof(int32_t) * (size_t)(count * (SEQ + 1)));
    *out_ids = read_ids(data, SEQ, count, ids) * (SEQ + 1);
    ct_data_destroy(data);
    return ids;
}

static void assert_same(ct_data_source a, ct_data_source b, int shuffle, int64_t count) {
    int64_t na, nb;
    int32_t *ia = ids_of(a, shuffle, count, &na), *ib = ids_of(b, shuffle, count, &nb);
    assert_int_equal(na, nb);
    assert_memory_equal(ia, ib, (size_t)na * sizeof *ia);
    free(ia);
    free(ib);
}

static void compressed_files_give_what_plain_ones_give(void **state) {
    (void)state;
    scratch_make();
    char *json = numbered_documents(3000, 200);
    size_t size = strlen(json);
    write_text(scratch("p.jsonl"), json);
    write_gzip(scratch("p1.jsonl.gz"), json, size, 1);
    write_gzip(scratch("p5.jsonl.gz"), json, size, 5);
    write_zstd(scratch("p1.jsonl.zst"), json, size, 1);
    write_zstd(scratch("p4.jsonl.zst"), json, size, 4);
    ct_data_source plain = {.path = ct_strdup(scratch("p.jsonl"))};
    static const char *const names[] = {"p1.jsonl.gz", "p5.jsonl.gz", "p1.jsonl.zst", "p4.jsonl.zst"};
    for (int i = 0; i < 4; i++) assert_same(plain, (ct_data_source){.path = scratch(names[i])}, 0, 12000);
    free((char *)plain.path);
    free(json);
    scratch_remove();
}

static void a_corpus_gives_what_its_source_gives_with_any_number_of_threads(void **state) {
    (void)state;
    scratch_make();
    char *json = numbered_documents(500, 4000);
    write_text(scratch("s.jsonl"), json);
    ct_data_source source = {.path = ct_strdup(scratch("s.jsonl"))};
    ct_corpus_info info[3];
    for (int threads = 1; threads <= 3; threads++) {
        ct_corpus_build_options build = {.encoder = byte_encoder(), .sources = &source, .source_count = 1, .threads = threads};
        assert_ok(ct_corpus_build(&build, scratch("s.ctc"), &info[threads - 1]));
        assert_int_equal(info[threads - 1].checksum, info[0].checksum);
    }
    assert_int_equal(info[0].documents, 500);
    assert_int_equal(info[0].text_bytes, info[0].tokens); // a token a byte
    ct_corpus *corpus;
    assert_ok(ct_corpus_open(scratch("s.ctc"), &corpus));
    assert_ok(ct_corpus_verify(corpus));
    assert_int_equal(ct_corpus_describe(corpus)->checksum, info[0].checksum);
    assert_int_equal(ct_corpus_describe(corpus)->tokens, info[0].tokens);
    assert_int_equal(ct_corpus_describe(corpus)->file_bytes, info[0].file_bytes);
    ct_corpus_close(corpus);
    assert_same(source, (ct_data_source){.path = scratch("s.ctc")}, 0, 50000);
    assert_same(source, (ct_data_source){.path = scratch("s.ctc")}, 1, 50000); // the same permutation of the same documents
    free((char *)source.path);
    free(json);
    scratch_remove();
}

static void folders_and_globs_are_read_in_the_order_of_their_names(void **state) {
    (void)state;
    scratch_make();
    assert_ok(ct_folder_make(scratch("in/below")));
    static const char *const names[] = {"in/b.jsonl", "in/a.json", "in/c.jsonl", "in/.hidden.jsonl", "in/readme.txt", "in/below/d.jsonl"};
    for (int i = 0; i < 6; i++) {
        char line[64];
        snprintf(line, sizeof line, "{\"text\": \"%s\"}\n", names[i] + 3);
        write_text(scratch(names[i]), line);
    }
    struct {
        ct_data_source source;
        const char *want;
    } cases[] = {
        {{.path = "in", .format = "jsonl"}, "a.json b.jsonl c.jsonl "},
        {{.path = "in", .format = "jsonl", .recursive = 1}, "a.json b.jsonl below/d.jsonl c.jsonl "},
        {{.path = "in/[bc]*.jsonl"}, "b.jsonl c.jsonl "},
        {{.path = "in/{c,b}.jsonl"}, "b.jsonl c.jsonl "},
        {{.path = "in/c.jsonl"}, "c.jsonl "},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        cases[i].source.path = scratch(cases[i].source.path);
        ct_data_options options = {.encoder = byte_encoder(), .sources = &cases[i].source, .source_count = 1, .seq_len = 1};
        options.encoder.bos = -1;
        options.encoder.eos = ' ';
        options.seq_len = (int32_t)strlen(cases[i].want) - 1;
        ct_data *data;
        assert_ok(ct_data_create(&options, &data));
        int32_t ids[64];
        assert_int_equal(read_ids(data, options.seq_len, 1, ids), 1);
        for (int t = 0; t <= options.seq_len; t++) assert_int_equal(ids[t], cases[i].want[t]);
        ct_data_destroy(data);
    }
    scratch_remove();
}

// ids → the documents' numbers in order; a document is "<number>:…"
static int numbers_of(const int32_t *ids, int64_t count, int *numbers, int room) {
    int n = 0;
    for (int64_t i = 0; i + 1 < count && n < room; i++) {
        if (ids[i] != 256) continue;
        int value = 0;
        int64_t j = i + 1;
        for (; j < count && ids[j] != ':'; j++) value = value * 10 + (ids[j] - '0');
        if (j == count) break;
        numbers[n++] = value;
    }
    return n;
}

static void assert_permutation(const int *numbers, int count) {
    char *seen = calloc((size_t)count, 1);
    for (int i = 0; i < count; i++) {
        assert_in_range(numbers[i], 0, count - 1);
        assert_false(seen[numbers[i]]++);
    }
    free(seen);
}

static void check_shuffle(ct_data_source source, int count, int64_t buffer) {
    int *first = malloc(sizeof(int) * 2 * (size_t)count), *second = malloc(sizeof(int) * 2 * (size_t)count);
    int32_t *ids = malloc(sizeof(int32_t) * 4000 * (SEQ + 1));
    ct_data *data = open_source(source, 1, 1, 0, buffer);
    int64_t n = read_ids(data, SEQ, 4000, ids) * (SEQ + 1);
    assert_int_equal(numbers_of(ids, n, first, 2 * count), 2 * count);
    ct_data_destroy(data);
    data = open_source(source, 1, 2, 0, buffer);
    n = read_ids(data, SEQ, 4000, ids) * (SEQ + 1);
    assert_int_equal(numbers_of(ids, n, second, 2 * count), 2 * count);
    ct_data_destroy(data);
    for (int pass = 0; pass < 2; pass++) {
        assert_permutation(first + pass * count, count);
        assert_permutation(second + pass * count, count);
    }
    int fixed = 0, same_pass = 0, same_seed = 0, up = 0;
    for (int i = 0; i < count; i++) {
        fixed += first[i] == i;
        same_pass += first[i] == first[count + i];
        same_seed += first[i] == second[i];
        up += i && first[i] > first[i - 1];
    }
    assert_true(fixed < 10 && same_pass < 10 && same_seed < 10 && up > count / 3 && up < 2 * count / 3);
    free(first);
    free(second);
    free(ids);
}

static void shuffles_are_permutations_that_differ_by_pass_and_seed(void **state) {
    (void)state;
    scratch_make();
    char *json = numbered_documents(333, 50);
    write_text(scratch("p.jsonl"), json);
    write_gzip(scratch("z.jsonl.gz"), json, strlen(json), 1);
    ct_data_source source = {.path = scratch("p.jsonl")};
    ct_corpus_build_options build = {.encoder = byte_encoder(), .sources = &source, .source_count = 1};
    assert_ok(ct_corpus_build(&build, scratch("c.ctc"), NULL));
    check_shuffle((ct_data_source){.path = scratch("p.jsonl")}, 333, 0);
    check_shuffle((ct_data_source){.path = scratch("c.ctc")}, 333, 0);
    check_shuffle((ct_data_source){.path = scratch("z.jsonl.gz")}, 333, 0);
    check_shuffle((ct_data_source){.path = scratch("z.jsonl.gz")}, 333, 50);
    free(json);
    scratch_remove();
}

static void a_mixture_keeps_its_shares_of_tokens_at_every_moment(void **state) {
    (void)state;
    scratch_make();
    static const double weights[3] = {0.6, 0.3, 0.1};
    ct_data_source sources[3];
    for (int s = 0; s < 3; s++) { // documents of 16, 61 and 106 tokens, all of one letter
        char name[32], line[160] = "{\"text\": \"";
        size_t n = strlen(line);
        memset(line + n, 'a' + s, (size_t)(14 + 45 * s));
        strcpy(line + n + 14 + 45 * s, "\"}\n");
        snprintf(name, sizeof name, "%d.jsonl", s);
        write_text(scratch(name), line);
        sources[s] = (ct_data_source){.path = ct_strdup(scratch(name)), .weight = weights[s]};
    }
    ct_data_options options = {.encoder = byte_encoder(), .sources = sources, .source_count = 3, .seq_len = SEQ};
    ct_data *data;
    assert_ok(ct_data_create(&options, &data));
    int64_t seen[3] = {0}, total = 0;
    for (int i = 0; i < 3000; i++) {
        int32_t ids[SEQ + 1];
        assert_int_equal(read_ids(data, SEQ, 1, ids), 1);
        for (int t = 0; t <= SEQ; t++)
            if (ids[t] < 256) seen[ids[t] - 'a']++, total++;
        for (int s = 0; s < 3; s++) { // BOS and EOS count in the shares: undo that
            double all = 0, mine = 0;
            for (int k = 0; k < 3; k++) {
                double tokens = (double)seen[k] * (16 + 45 * k) / (14 + 45 * k);
                all += tokens;
                if (k == s) mine = tokens;
            }
            assert_true(mine - all * weights[s] < 107 && all * weights[s] - mine < 107);
        }
    }
    assert_true(total > 100000);
    ct_data_destroy(data);
    for (int s = 0; s < 3; s++) free((char *)sources[s].path);
    scratch_remove();
}

static void text_is_split_where_asked(void **state) {
    (void)state;
    scratch_make();
    write_text(scratch("t.txt"), "\n\none\ntwo\n\nthree\n \n\t\nfour\r\n\r\n----\nfive\n----\n\n----\nsix");
    struct {
        ct_data_source source;
        const char *want; // documents, each ended by '|'
    } cases[] = {
        {{0}, "\n\none\ntwo\n\nthree\n \n\t\nfour\r\n\r\n----\nfive\n----\n\n----\nsix|"},
        {{.split_blank_lines = 1}, "one\ntwo|three|four\r|----\nfive\n----|----\nsix|"},
        {{.split_blank_lines = 2}, "one\ntwo\n\nthree|four\r\n\r\n----\nfive\n----\n\n----\nsix|"},
        {{.split_line = "----"}, "one\ntwo\n\nthree\n \n\t\nfour\r|five|six|"},
        {{.split_line = "----", .split_blank_lines = 2}, "one\ntwo\n\nthree|four\r|five|six|"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int shuffle = 0; shuffle < 2; shuffle++) {
            cases[i].source.path = scratch("t.txt");
            int32_t length = (int32_t)strlen(cases[i].want), ids[128], bars = 0;
            ct_data_options options = {.encoder = byte_encoder(), .sources = &cases[i].source, .source_count = 1,
                                       .seq_len = length - 1, .shuffle = shuffle, .once = 1};
            options.encoder.bos = -1;
            options.encoder.eos = '|';
            ct_data *data;
            assert_ok(ct_data_create(&options, &data));
            assert_int_equal(read_ids(data, length - 1, 1, ids), 1);
            for (int t = 0; t < length; t++) {
                if (!shuffle) assert_int_equal(ids[t], cases[i].want[t]);
                bars += ids[t] == '|';
            }
            assert_int_equal(ids[length - 1], '|');
            for (const char *p = cases[i].want; *p; p++) bars -= *p == '|';
            assert_int_equal(bars, 0);
            assert_int_equal(read_ids(data, length - 1, 1, ids), 0);
            ct_data_destroy(data);
        }
    scratch_remove();
}

// A long text is encoded in pieces: the ids are those of the whole, and BOS and EOS stand only at its ends.
static void a_long_text_comes_in_pieces_that_join_to_the_whole(void **state) {
    (void)state;
    scratch_make();
    ct_string text = {0};
    for (int i = 0; text.length < 3 << 20; i++) ct_string_add(&text, "%d words%s\n%s", i * 7919, i % 3 ? "." : "", i % 11 ? "Line " : "  more ");
    write_text(scratch("long.txt"), text.text);
    ct_data_source source = {.path = scratch("long.txt")};
    int32_t seq_len = 1 << 20, *ids = malloc(sizeof(int32_t) * (1 + (size_t)seq_len));
    for (int cut = 0; cut < 2; cut++) {
        ct_data_options options = {.encoder = byte_encoder(), .sources = &source, .source_count = 1, .seq_len = seq_len, .once = 1, .ahead = 2};
        options.encoder.may_cut = cut;
        ct_data *data;
        assert_ok(ct_data_create(&options, &data));
        for (int i = 0; i < 3; i++) {
            int64_t n = read_ids(data, seq_len, 1, ids);
            if (!n) break;
            for (int64_t t = 0; t <= seq_len; t++) {
                int64_t at = i * ((int64_t)seq_len + 1) + t - 1;
                assert_int_equal(ids[t], at < 0 ? 256 : (unsigned char)text.text[at]);
            }
        }
        ct_data_destroy(data);
    }
    free(ids);
    ct_string_deinit(&text);
    scratch_remove();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(compressed_files_give_what_plain_ones_give),
        cmocka_unit_test(a_corpus_gives_what_its_source_gives_with_any_number_of_threads),
        cmocka_unit_test(folders_and_globs_are_read_in_the_order_of_their_names),
        cmocka_unit_test(shuffles_are_permutations_that_differ_by_pass_and_seed),
        cmocka_unit_test(a_mixture_keeps_its_shares_of_tokens_at_every_moment),
        cmocka_unit_test(text_is_split_where_asked),
        cmocka_unit_test(a_long_text_comes_in_pieces_that_join_to_the_whole),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
