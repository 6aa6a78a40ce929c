// Ranks as processes under mpirun: what they tell one another, their memory, and errors of their own. Where there is no mpirun, it says so.
#include "base/file.h"
#include "base/memory.h"
#include "job.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static void must_do_well(int ranks, const char *words, const char *line) {
    job j = run(ranks, words, "");
    if (j.status) fail_msg("%d ranks, %s: %s", ranks, words, j.text);
    if (!strstr(j.text, line)) fail_msg("%d ranks, %s: '%s' is not in: %s", ranks, words, line, j.text);
    free(j.text);
}

static void ranks_tell_one_another_and_share_memory(void **state) {
    (void)state;
    if (!has_mpirun()) skip();
    must_do_well(2, "results", "rank 1 of 2: near 2, at 1 of its node, 2 on the machine");
    must_do_well(3, "results", "rank 2 of 3: near 3, at 2 of its node, 3 on the machine");
    must_do_well(4, "results", "rank 0 of 4: near 4, at 0 of its node, 4 on the machine");
}

static void without_shared_memory_nobody_is_near(void **state) {
    (void)state;
    if (!has_mpirun()) skip();
    must_do_well(4, "results apart", "rank 2 of 4: near 1, at 0 of its node, 4 on the machine");
}

static void exchanges_bring_what_was_sent(void **state) {
    (void)state;
    if (!has_mpirun()) skip();
    for (int n = 2; n <= 4; n++) must_do_well(n, "exchanges", "");
    must_do_well(3, "exchanges apart", "");
}

static void nodes_have_a_segment_each(void **state) {
    (void)state;
    if (!has_mpirun()) skip();
    must_do_well(4, "results nodes-of-two", "rank 3 of 4: near 2, at 1 of its node, 4 on the machine");
    must_do_well(4, "nodes nodes-of-two", "");
    must_do_well(3, "nodes nodes-of-two", "");
    must_do_well(3, "nodes apart", "");
}

static void a_rank_that_fails_alone_ends_the_job(void **state) {
    (void)state;
    if (!has_mpirun()) skip();
    must_end((ending[]){{"fails", "rank 1's own trouble", 8},
                        {"fails nodes-of-two", "rank 1's own trouble", 8}}, 2);
}

static void too_little_memory_is_a_message(void **state) {
    (void)state;
    if (!has_mpirun()) skip();
    must_end((ending[]){{"wants_too_much", "70368.74 GB of shared memory are wanted for 4 ranks, and", 8}, // 2^46 bytes
                        {"wants_too_much nodes-of-two", "70368.74 GB of shared memory are wanted for 2 ranks, and", 8},
                        {"wants_different_sizes", "bytes of shared memory, rank", 8},
                        {"results record=/nowhere/at/all", "cannot make /nowhere/at/all/rank_0.ring", 8}}, 4);
}

// ---- the observer ----
static void the_observer_counts_messages(void **state) {
    (void)state;
    if (!has_mpirun()) skip();
#ifdef PMPI_COUNT
    char folder[] = "/tmp/ct_pmpi_XXXXXX";
    assert_non_null(mkdtemp(folder));
    char *environment = ct_format("-x LD_PRELOAD=%s -x CT_PMPI_COUNT=%s/seen", PMPI_COUNT, folder);
    job j = run(3, "ring apart", environment);
    if (j.status) fail_msg("%s", j.text);
    for (int rank = 0; rank < 3; rank++) {
        char *path = ct_format("%s/seen.%d", folder, rank), *text;
        ct_status status = ct_file_read(path, 0, &text, NULL);
        if (status) fail_msg("%s", ct_error_text(status));
        char *wanted = ct_format("\"rank\": %d, \"size\": 3, \"sends\": [{\"peer\": %d, \"tag\": 5, \"calls\": 2, \"bytes\": 80000}], "
                                 "\"receives\": [{\"peer\": %d, \"tag\": 5, \"calls\": 2, \"bytes\": 80000}]",
                                 rank, (rank + 1) % 3, (rank + 2) % 3);
        if (!strstr(text, wanted)) fail_msg("%s is not in %s", wanted, text);
        free(wanted), free(text), free(path);
    }
    free(j.text), free(environment);
    assert_null(ct_folder_remove(folder));
#endif
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_tell_one_another_and_share_memory),
        cmocka_unit_test(without_shared_memory_nobody_is_near),
        cmocka_unit_test(exchanges_bring_what_was_sent),
        cmocka_unit_test(nodes_have_a_segment_each),
        cmocka_unit_test(a_rank_that_fails_alone_ends_the_job),
        cmocka_unit_test(too_little_memory_is_a_message),
        cmocka_unit_test(the_observer_counts_messages),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
