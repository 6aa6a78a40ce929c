// data: sequences equal those of torchtitan's own dataset class, token by token, over several passes; what a batch says of documents.
#include "harness.h"

static void packing_equals_torchtitans(void **state) {
    (void)state;
    FILE *file = fopen(fixture("packing.txt"), "r");
    assert_non_null(file);
    int seq_len, count, infinite, cases = 0;
    for (; fscanf(file, "%d %d %d", &seq_len, &count, &infinite) == 3; cases++) {
        ct_data_source source = {.path = fixture("c4_test"), .format = "c4_test"};
        ct_data_options options = {.encoder = byte_encoder(), .sources = &source, .source_count = 1, .seq_len = seq_len,
                                   .once = !infinite, .ahead = 5};
        ct_data *data;
        assert_ok(ct_data_create(&options, &data));
        int32_t *got = malloc(sizeof(int32_t) * (size_t)(seq_len + 1));
        for (int i = 0; i < count; i++) {
            assert_int_equal(read_ids(data, seq_len, 1, got), 1);
            for (int t = 0; t <= seq_len; t++) {
                int want;
                assert_int_equal(fscanf(file, "%d", &want), 1);
                if (got[t] != want) fail_msg("seq_len %d, sequence %d, token %d: %d, torchtitan has %d", seq_len, i, t, got[t], want);
            }
        }
        if (!infinite) assert_int_equal(read_ids(data, seq_len, 1, got), 0);
        free(got);
        ct_data_destroy(data);
    }
    assert_int_equal(cases, 5);
    fclose(file);
}

// "ab", "c", "defg" with BOS B and EOS E: B a b E | B c E B | d e f g E … of seq_len + 1 = 8: B a b E B c E B, d e f g E B a b
static void places_restart_at_documents_and_labels_across_them_can_be_masked(void **state) {
    (void)state;
    scratch_make();
    write_text(scratch("d.jsonl"), "{\"text\":\"ab\"}\n{\"text\":\"c\"}\n\n{\"text\":\"defg\"}");
    ct_data_source source = {.path = scratch("d.jsonl")};
    ct_data_options options = {.encoder = byte_encoder(), .sources = &source, .source_count = 1, .seq_len = 7,
                               .documents_apart = 1, .mask_boundaries = 1};
    ct_data *data;
    assert_ok(ct_data_create(&options, &data));
    int32_t tokens[14], labels[14], positions[14], documents[14], got;
    assert_ok(ct_data_next(data, 2, (ct_data_batch){tokens, labels, positions, documents}, &got));
    static const int32_t want_tokens[14] = {256, 'a', 'b', 257, 256, 'c', 257, 'd', 'e', 'f', 'g', 257, 256, 'a'};
    static const int32_t want_labels[14] = {'a', 'b', 257, -100, 'c', 257, -100, 'e', 'f', 'g', 257, -100, 'a', 'b'};
    static const int32_t want_positions[14] = {0, 1, 2, 3, 0, 1, 2, 0, 1, 2, 3, 4, 0, 1};
    static const int32_t want_documents[14] = {0, 0, 0, 0, 1, 1, 1, 0, 0, 0, 0, 0, 1, 1};
    assert_int_equal(got, 2);
    assert_memory_equal(tokens, want_tokens, sizeof tokens);
    assert_memory_equal(labels, want_labels, sizeof labels);
    assert_memory_equal(positions, want_positions, sizeof positions);
    assert_memory_equal(documents, want_documents, sizeof documents);
    ct_data_destroy(data);
    scratch_remove();
}

static void without_eos_a_document_begins_at_its_bos(void **state) {
    (void)state;
    scratch_make();
    write_text(scratch("d.jsonl"), "{\"text\":\"ab\"}\n{\"text\":\"c\"}\n{\"text\":\"defg\"}\n");
    ct_data_source source = {.path = scratch("d.jsonl")};
    ct_data_options options = {.encoder = byte_encoder(), .sources = &source, .source_count = 1, .seq_len = 7,
                               .documents_apart = 1, .mask_boundaries = 1};
    options.encoder.eos = -1;
    ct_data *data;
    assert_ok(ct_data_create(&options, &data));
    int32_t labels[7], positions[7], documents[7], got; // B a b B c B d e
    assert_ok(ct_data_next(data, 1, (ct_data_batch){NULL, labels, positions, documents}, &got));
    static const int32_t want_labels[7] = {'a', 'b', -100, 'c', -100, 'd', 'e'};
    static const int32_t want_positions[7] = {0, 1, 2, 0, 1, 0, 1}, want_documents[7] = {0, 0, 0, 1, 1, 2, 2};
    assert_memory_equal(labels, want_labels, sizeof labels);
    assert_memory_equal(positions, want_positions, sizeof positions);
    assert_memory_equal(documents, want_documents, sizeof documents);
    ct_data_destroy(data);
    scratch_remove();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(packing_equals_torchtitans),
        cmocka_unit_test(places_restart_at_documents_and_labels_across_them_can_be_masked),
        cmocka_unit_test(without_eos_a_document_begins_at_its_bos),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
