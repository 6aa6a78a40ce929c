// Ranks as threads: fences order memory, what ranks tell one another arrives, a rank that fails or does not come ends the others with its
// words, and the recorder keeps what was done.
#include "base/clock.h"
#include "base/file.h"
#include "base/memory.h"
#include "comm/comm.h"
#include "comm/flight.h"
#include "rank_work.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

static void assert_ok(ct_status status) {
    if (status) fail_msg("%s", ct_error_text(status));
}

static void fences_order_memory(void **state) {
    (void)state;
    static const int sizes[] = {1, 2, 3, 4, 8};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) assert_ok(ct_comm_run_threads(sizes[i], NULL, write_and_read, NULL));
}

static void what_ranks_tell_arrives(void **state) {
    (void)state;
    for (int n = 1; n <= 5; n++) assert_ok(ct_comm_run_threads(n, NULL, tell, NULL));
    ct_comm_options apart = {.no_shared_memory = 1};
    assert_ok(ct_comm_run_threads(4, &apart, tell, NULL));
}

static void messages_arrive_whole(void **state) {
    (void)state;
    for (int n = 2; n <= 8; n++) assert_ok(ct_comm_run_threads(n, NULL, send_all, NULL));
}

static ct_status nodes_of_two(void *context, ct_comm *comm) {
    (void)context;
    int me = ct_comm_rank(comm);
    CT_CHECK(ct_comm_near_count(comm) == (me == 4 ? 1 : 2) && ct_comm_near_index(comm) == me % 2, CT_CORRUPT, "rank %d has %d near", me, ct_comm_near_count(comm));
    CT_CHECK(ct_comm_is_near(comm, me) && !ct_comm_is_near(comm, (me + 2) % 5), CT_CORRUPT, "rank %d: who is near?", me);
    return send_all(NULL, comm);
}

static void nodes_are_runs_of_ranks(void **state) {
    (void)state;
    ct_comm_options options = {.ranks_per_node = 2};
    assert_ok(ct_comm_run_threads(5, &options, nodes_of_two, NULL));
}

static ct_status one_fails(void *context, ct_comm *comm) {
    int ranks[64];
    ct_group group = everyone(comm, ranks);
    ct_comm_set_step(comm, 7);
    if (ct_comm_rank(comm) == *(int *)context) CT_FAIL(CT_IO, "its own trouble");
    return ct_comm_fence(comm, &group, &what);
}

static void a_rank_that_fails_alone_ends_all_with_its_words(void **state) {
    (void)state;
    for (int bad = 0; bad < 3; bad++) {
        ct_status status = ct_comm_run_threads(3, NULL, one_fails, &bad);
        char wanted[64];
        snprintf(wanted, sizeof wanted, "rank %d: its own trouble", bad);
        assert_non_null(status);
        assert_int_equal(ct_error_code(status), CT_IO);
        assert_string_equal(ct_error_text(status), wanted);
    }
}

static ct_status one_is_late(void *context, ct_comm *comm) {
    (void)context;
    int ranks[64];
    ct_group group = everyone(comm, ranks);
    ct_comm_set_step(comm, 12);
    if (ct_comm_rank(comm) == 1) usleep(1500000);
    return ct_comm_fence(comm, &group, &what);
}

static void a_rank_that_does_not_come_is_named(void **state) {
    (void)state;
    char folder[] = "/tmp/ct_comm_XXXXXX";
    assert_non_null(mkdtemp(folder));
    ct_comm_options options = {.train_timeout_s = 0.5, .record_folder = folder, .record_entries = 4};
    ct_status status = ct_comm_run_threads(2, &options, one_is_late, NULL);
    assert_non_null(status);
    assert_int_equal(ct_error_code(status), CT_INTERRUPTED);
    assert_non_null(strstr(ct_error_text(status), "to test (layers.0) of micro over all, step 12, where rank 0 waits"));
    ct_string text = {0};
    assert_ok(ct_flight_print(folder, 4, &text));
    assert_non_null(strstr(text.text, "rank 0 of 2"));
    assert_non_null(strstr(text.text, "step 12"));
    assert_non_null(strstr(text.text, "WAITING"));
    ct_string_deinit(&text);
    assert_ok(ct_folder_remove(folder));
}

// ---- exchanges ----
static void exchanges_bring_what_was_sent(void **state) {
    (void)state;
    for (int n = 2; n <= 8; n++) assert_ok(ct_comm_run_threads(n, NULL, exchanges, NULL));
    ct_comm_options apart = {.no_shared_memory = 1};
    assert_ok(ct_comm_run_threads(3, &apart, exchanges, NULL));
}

static void an_exchange_whose_peer_never_sends_is_an_error_in_time(void **state) {
    (void)state;
    ct_comm_options options = {.train_timeout_s = 0.5};
    double away_s = 1.5, begin_s = ct_now_s();
    ct_status status = ct_comm_run_threads(3, &options, one_never_sends, &away_s);
    assert_non_null(status);
    assert_int_equal(ct_error_code(status), CT_INTERRUPTED);
    assert_non_null(strstr(ct_error_text(status), "to test (layers.0) of micro over all, step 4, where rank 2 waits")); // whom rank 1 owes a message
    assert_true(ct_now_s() - begin_s < 4);
}

// ---- the recorder ----
static void the_recorder_keeps_the_last_and_refuses_what_is_no_record(void **state) {
    (void)state;
    char folder[] = "/tmp/ct_flight_XXXXXX";
    assert_non_null(mkdtemp(folder));
    ct_string text = {0};
    assert_int_equal(ct_error_code(ct_flight_print(folder, 3, &text)), CT_NOT_FOUND);
    ct_flight *flight;
    assert_ok(ct_flight_open(folder, "rank_", 3, 8, 5, &flight));
    for (int i = 1; i <= 12; i++) {
        ct_flight_record *r = ct_flight_begin(flight, &(ct_flight_operation){"all_gather", "micro", "tp", "a.module.with.a.name.that.is.longer.than.seventy-two.bytes.of.text.in.all", 4, 2, 2, i, 100 * i});
        if (i < 12) ct_flight_end(r);
    }
    ct_flight_close(flight);
    assert_ok(ct_flight_print(folder, 8, &text));
    assert_non_null(strstr(text.text, "rank 3 of 8"));
    assert_non_null(strstr(text.text, "12 operations"));
    assert_null(strstr(text.text, "#7 ")); // five are kept: 8 … 12
    assert_non_null(strstr(text.text, "#8 "));
    assert_non_null(strstr(text.text, "1200 bytes, over tp: WAITING"));
    char *path = ct_format("%s/rank_3.ring", folder), *other = ct_format("%s/x.ring", folder);
    assert_int_equal(truncate(path, 300), 0); // cut off: what is left is read
    assert_ok(ct_flight_print(folder, 8, &text));
    assert_ok(ct_file_write_atomic(other, "no ring", 7));
    assert_int_equal(ct_error_code(ct_flight_print(folder, 8, &text)), CT_CORRUPT);
    free(path);
    free(other);
    ct_string_deinit(&text);
    assert_ok(ct_folder_remove(folder));
}

// Ranks 0 … 3, tp pairs; rank 3 has begun one operation less than rank 2 over tp, and rank 1 as many as rank 0.
static void the_recorder_says_who_is_behind_in_which_group(void **state) {
    (void)state;
    char folder[] = "/tmp/ct_flight_XXXXXX";
    assert_non_null(mkdtemp(folder));
    for (int rank = 0; rank < 4; rank++) {
        ct_flight *flight;
        assert_ok(ct_flight_open(folder, "rank_", rank, 4, 8, &flight));
        for (int i = 1; i <= 3; i++) ct_flight_end(ct_flight_begin(flight, &(ct_flight_operation){"sum", "update", "all ranks", "norm", 64, 0, 4, 7, 8}));
        int pairs = rank == 3 ? 19 : rank == 2 ? 20 : 30;
        for (int i = 1; i <= pairs; i++)
            ct_flight_end(ct_flight_begin(flight, &(ct_flight_operation){"all_gather", "micro", "tp", "layers.1.wq", 4, rank & ~1, 2, 8, 16}));
        ct_flight_close(flight);
    }
    ct_string text = {0};
    assert_ok(ct_flight_print(folder, 1, &text));
    char *first = strstr(text.text, "is behind");
    assert_non_null(first);
    assert_null(strstr(first + 1, "is behind"));
    assert_non_null(strstr(text.text, "rank 3 is behind over tp (2 ranks from rank 2 on): 19 operations begun, and 20 by rank 2, whose last is all_gather "
                                      "(layers.1.wq) of step 8\n"));
    ct_string_deinit(&text);
    assert_ok(ct_folder_remove(folder));
}

static void must_be_read_or_refused(const char *folder) {
    ct_string text = {0};
    ct_status status = ct_flight_print(folder, 100, &text);
    if (status) assert_int_equal(ct_error_code(status), CT_CORRUPT);
    for (size_t i = 0; i < text.length; i++) assert_true(text.text[i] == '\n' || (unsigned char)text.text[i] >= ' ');
    ct_string_deinit(&text);
}

// Every length of a small file, and every byte of it set to some values: read, or refused by name.
static void damaged_records_are_read_or_refused(void **state) {
    (void)state;
    char folder[] = "/tmp/ct_flight_XXXXXX";
    assert_non_null(mkdtemp(folder));
    ct_flight *flight;
    assert_ok(ct_flight_open(folder, "rank_", 0, 1, 3, &flight));
    for (int i = 0; i < 4; i++) ct_flight_end(ct_flight_begin(flight, &(ct_flight_operation){"all_gather", "micro", "tp", "m", 4, 0, 2, i, 1}));
    ct_flight_close(flight);
    char *path = ct_format("%s/rank_0.ring", folder), *bytes;
    size_t size;
    assert_ok(ct_file_read(path, 0, &bytes, &size));
    for (size_t n = 0; n <= size; n += 3) {
        assert_ok(ct_file_write_atomic(path, bytes, n));
        must_be_read_or_refused(folder);
    }
    static const char values[] = {0, 1, 27, 127, (char)0x80, (char)0xff};
    for (size_t at = 0; at < size; at++) {
        if (at >= 56 && at < 192) continue; // spare
        char kept = bytes[at];
        bytes[at] = values[at % sizeof values];
        assert_ok(ct_file_write_atomic(path, bytes, size));
        must_be_read_or_refused(folder);
        bytes[at] = kept;
    }
    assert_int_equal(unlink(path), 0);
    assert_int_equal(mkfifo(path, 0600), 0); // is not waited for
    must_be_read_or_refused(folder);
    free(path);
    free(bytes);
    assert_ok(ct_folder_remove(folder));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fences_order_memory),
        cmocka_unit_test(what_ranks_tell_arrives),
        cmocka_unit_test(messages_arrive_whole),
        cmocka_unit_test(nodes_are_runs_of_ranks),
        cmocka_unit_test(a_rank_that_fails_alone_ends_all_with_its_words),
        cmocka_unit_test(a_rank_that_does_not_come_is_named),
        cmocka_unit_test(exchanges_bring_what_was_sent),
        cmocka_unit_test(an_exchange_whose_peer_never_sends_is_an_error_in_time),
        cmocka_unit_test(the_recorder_keeps_the_last_and_refuses_what_is_no_record),
        cmocka_unit_test(the_recorder_says_who_is_behind_in_which_group),
        cmocka_unit_test(damaged_records_are_read_or_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
