// Ranks as threads: fences order memory, what ranks tell one another arrives, a rank that fails or does not come ends the others with its
// words, and the recorder keeps what was done.
#include "base/file.h"
#include "base/memory.h"
#include "comm/comm.h"
#include "comm/flight.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

static const ct_comm_what what = {"test", "layers.0", "micro", 8};

static void assert_ok(ct_status status) {
    if (status) fail_msg("%s", ct_error_text(status));
}

static ct_group everyone(ct_comm *comm, int *ranks) {
    for (int r = 0; r < ct_comm_size(comm); r++) ranks[r] = r;
    return (ct_group){ranks, ct_comm_size(comm), 1, "all"};
}

// Each writes its number, meets the others, reads theirs, meets again: a thousand times.
static ct_status write_and_read(void *context, ct_comm *comm) {
    (void)context;
    int ranks[64], n = ct_comm_size(comm), me = ct_comm_rank(comm);
    ct_group group = everyone(comm, ranks);
    void *base;
    CT_TRY(ct_comm_share(comm, 64 * 64, &base));
    int64_t *cell = base;
    for (int64_t i = 1; i <= 1000; i++) {
        cell[8 * me] = i * 100 + me;
        CT_TRY(ct_comm_fence(comm, &group, &what));
        for (int r = 0; r < n; r++)
            CT_CHECK(cell[8 * r] == i * 100 + r, CT_CORRUPT, "round %lld: rank %d reads %lld of rank %d", (long long)i, me, (long long)cell[8 * r], r);
        CT_TRY(ct_comm_fence(comm, &group, &what));
    }
    return CT_OK;
}

static void fences_order_memory(void **state) {
    (void)state;
    static const int sizes[] = {1, 2, 3, 4, 8};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) assert_ok(ct_comm_run_threads(sizes[i], NULL, write_and_read, NULL));
}

static ct_status tell(void *context, ct_comm *comm) {
    (void)context;
    int n = ct_comm_size(comm), me = ct_comm_rank(comm);
    int64_t x[2] = {me, -me}, big[2] = {me, -me};
    CT_TRY(ct_comm_sum_i64(comm, x, 2));
    CT_CHECK(x[0] == n * (n - 1) / 2 && x[1] == -x[0], CT_CORRUPT, "sum %lld", (long long)x[0]);
    CT_TRY(ct_comm_max_i64(comm, big, 2));
    CT_CHECK(big[0] == n - 1 && big[1] == 0, CT_CORRUPT, "maximum %lld %lld", (long long)big[0], (long long)big[1]);
    char text[16] = "";
    if (me == n - 1) strcpy(text, "hello");
    CT_TRY(ct_comm_broadcast(comm, n - 1, text, sizeof text));
    CT_CHECK(!strcmp(text, "hello"), CT_CORRUPT, "broadcast '%s'", text);
    void **data;
    size_t *bytes;
    CT_TRY(ct_comm_gather(comm, 0, "abcdefgh", (size_t)me, &data, &bytes));
    CT_CHECK(!data == (me != 0), CT_CORRUPT, "gathered on rank %d", me);
    for (int r = 0; data && r < n; r++) {
        CT_CHECK(bytes[r] == (size_t)r && !memcmp(data[r], "abcdefgh", bytes[r]), CT_CORRUPT, "rank %d's bytes", r);
        free(data[r]);
    }
    free(data);
    free(bytes);
    CT_TRY(ct_comm_agree(comm, CT_OK));
    ct_status mine = me == n - 1 ? ct_error_make(CT_IO, __FILE__, __LINE__, "the disk is full") : CT_OK;
    ct_status all = ct_comm_agree(comm, mine);
    char wanted[64];
    snprintf(wanted, sizeof wanted, n == 1 ? "the disk is full" : "rank %d: the disk is full", n - 1);
    CT_CHECK(all && ct_error_code(all) == CT_IO && !strcmp(ct_error_text(all), wanted), CT_CORRUPT, "agreed on %s", all ? ct_error_text(all) : "nothing");
    return CT_OK;
}

static void what_ranks_tell_arrives(void **state) {
    (void)state;
    for (int n = 1; n <= 5; n++) assert_ok(ct_comm_run_threads(n, NULL, tell, NULL));
    ct_comm_options apart = {.no_shared_memory = 1};
    assert_ok(ct_comm_run_threads(4, &apart, tell, NULL));
}

// Everyone sends everyone 1000·from + to, as many numbers as from + to.
static ct_status send_all(void *context, ct_comm *comm) {
    (void)context;
    int ranks[64], n = ct_comm_size(comm), me = ct_comm_rank(comm), k = 0;
    ct_group group = everyone(comm, ranks);
    int32_t out[8][16], in[8][16];
    ct_message sends[8], receives[8];
    for (int r = 0; r < n; r++) {
        if (r == me) continue;
        for (int i = 0; i < 16; i++) out[r][i] = 1000 * me + r, in[r][i] = -1;
        sends[k] = (ct_message){r, out[r], sizeof(int32_t) * (size_t)(me + r)};
        receives[k++] = (ct_message){r, in[r], sizeof(int32_t) * (size_t)(me + r)};
    }
    CT_TRY(ct_comm_exchange(comm, &group, sends, k, receives, k, &what));
    for (int r = 0; r < n; r++)
        for (int i = 0; i < 16 && r != me; i++)
            CT_CHECK(in[r][i] == (i < me + r ? 1000 * r + me : -1), CT_CORRUPT, "rank %d got %d from %d", me, in[r][i], r);
    return CT_OK;
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
        ct_flight_record *r = ct_flight_begin(flight, "all_gather", "micro", "tp", "a.module.with.a.name.that.is.longer.than.sixty-four.bytes.of.text.in.all", 4, i, 100 * i);
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

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fences_order_memory),
        cmocka_unit_test(what_ranks_tell_arrives),
        cmocka_unit_test(messages_arrive_whole),
        cmocka_unit_test(nodes_are_runs_of_ranks),
        cmocka_unit_test(a_rank_that_fails_alone_ends_all_with_its_words),
        cmocka_unit_test(a_rank_that_does_not_come_is_named),
        cmocka_unit_test(the_recorder_keeps_the_last_and_refuses_what_is_no_record),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
