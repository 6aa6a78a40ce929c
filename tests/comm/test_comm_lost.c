// How a job under mpirun ends when a rank dies, stops or does not come: one message, a status that is not 0, within seconds, and nothing left
// behind. Where there is no mpirun, it says so.
#include "job.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>

static void a_lost_rank_is_named_and_ends_the_job(void **state) {
    (void)state;
    if (!has_mpirun()) skip();
    must_end((ending[]){{"killed", "rank 2 is dead", 8},
                        {"killed_far apart", "rank 2 is dead", 8},
                        {"stopped", "rank 2 is dead or stopped", 9},
                        {"stopped_far apart", "rank 2 is dead or stopped", 9},
                        {"stopped_far nodes-of-two", "rank 2 is dead or stopped", 9}}, 5);
}

static void a_rank_that_stops_at_the_very_end_is_missed_and_a_job_stopped_as_a_whole_goes_on(void **state) {
    (void)state;
    if (!has_mpirun()) skip();
    job lost = job_start(3, "stopped_at_the_end", ""), whole = job_start(3, "stopped_as_a_whole", "");
    job_finish(&lost);
    assert_int_not_equal(lost.status, 0);
    if (count_of(lost.text, "rank 1 is dead or stopped") != 1) fail_msg("%s", lost.text);
    must_be_gone(lost.text);
    job_finish(&whole);
    if (whole.status || whole.seconds < 4) fail_msg("%.1f s: %s", whole.seconds, whole.text);
    free(lost.text), free(whole.text);
}

static void a_rank_that_is_late_is_waited_for_so_long(void **state) {
    (void)state;
    if (!has_mpirun()) skip();
    must_end((ending[]){{"is_late", "the others did not come within 3 s", 9}, {"one_never_sends apart", "the others did not come within 3 s", 9}}, 2);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_lost_rank_is_named_and_ends_the_job),
        cmocka_unit_test(a_rank_that_stops_at_the_very_end_is_missed_and_a_job_stopped_as_a_whole_goes_on),
        cmocka_unit_test(a_rank_that_is_late_is_waited_for_so_long),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
