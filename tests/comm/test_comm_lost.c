// How a job under mpirun ends when a rank dies, stops, fails or does not come, or when there is too little memory: one message, a status that is
// not 0, within seconds, and nothing left behind. Where there is no mpirun, it says so.
#include "job.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

static int count_of(const char *text, const char *words) {
    int n = 0;
    for (const char *at = text; (at = strstr(at, words)); at++) n++;
    return n;
}

static void must_be_gone(const char *text) {
    for (const char *at = text; (at = strstr(at, "pid ")); at++) {
        pid_t pid = (pid_t)strtol(at + 4, NULL, 10);
        for (int i = 0; i < 50 && !kill(pid, 0); i++) usleep(100000);
        if (!kill(pid, 0)) fail_msg("process %d is left over: %s", pid, text);
    }
}

static int shared_files(void) {
    FILE *f = popen("ls /dev/shm 2>/dev/null | grep -c -i ctitan", "r");
    int n = -1;
    assert_true(f && fscanf(f, "%d", &n) == 1);
    pclose(f);
    return n;
}

typedef struct {
    const char *work, *words;
    double most_s;
} ending;

// Jobs at the same time, as they mostly wait; each must end with one message that has these words.
static void must_end(const ending *endings, int count) {
    job jobs[8];
    for (int i = 0; i < count; i++) jobs[i] = job_start(4, endings[i].work, "");
    for (int i = 0; i < count; i++) {
        job *j = &jobs[i];
        job_finish(j);
        if (!j->status) fail_msg("%s ended well: %s", endings[i].work, j->text);
        if (!strstr(j->text, endings[i].words)) fail_msg("%s: '%s' is not in: %s", endings[i].work, endings[i].words, j->text);
        if (count_of(j->text, "MESSAGE: ") != 1) fail_msg("%s: not one message: %s", endings[i].work, j->text);
        if (j->seconds > endings[i].most_s) fail_msg("%s took %.1f s: %s", endings[i].work, j->seconds, j->text);
        must_be_gone(j->text);
        free(j->text);
    }
    assert_int_equal(shared_files(), 0);
}

static void a_lost_rank_is_named_and_ends_the_job(void **state) {
    (void)state;
    if (!has_mpirun()) skip();
    must_end((ending[]){{"killed", "rank 2 is dead", 8},
                        {"killed_far apart", "rank 2 is dead", 8},
                        {"stopped", "rank 2 is dead or stopped", 9},
                        {"stopped_far apart", "rank 2 is dead or stopped", 9},
                        {"stopped_far nodes-of-two", "rank 2 is dead or stopped", 9}}, 5);
}

static void a_rank_that_stops_at_the_very_end_is_missed(void **state) {
    (void)state;
    if (!has_mpirun()) skip();
    job j = run(3, "stopped_at_the_end", "");
    assert_int_not_equal(j.status, 0);
    if (count_of(j.text, "rank 1 is dead or stopped") != 1) fail_msg("%s", j.text);
    must_be_gone(j.text);
    free(j.text);
}

static void a_job_that_was_stopped_as_a_whole_goes_on(void **state) {
    (void)state;
    if (!has_mpirun()) skip();
    job j = run(3, "stopped_as_a_whole", "");
    if (j.status || j.seconds < 4) fail_msg("%.1f s: %s", j.seconds, j.text);
    free(j.text);
}

static void a_rank_that_fails_or_is_late_ends_the_job(void **state) {
    (void)state;
    if (!has_mpirun()) skip();
    must_end((ending[]){{"fails", "rank 1's own trouble", 8},
                        {"fails nodes-of-two", "rank 1's own trouble", 8},
                        {"is_late", "the others did not come within 3 s", 9}}, 3);
}

static void too_little_memory_is_a_message(void **state) {
    (void)state;
    if (!has_mpirun()) skip();
    must_end((ending[]){{"wants_too_much", "70368.74 GB of shared memory are wanted for 4 ranks, and", 8}, // 2^46 bytes
                        {"wants_too_much nodes-of-two", "70368.74 GB of shared memory are wanted for 2 ranks, and", 8},
                        {"wants_different_sizes", "bytes of shared memory, rank", 8},
                        {"results record=/nowhere/at/all", "cannot make /nowhere/at/all/rank_0.ring", 8}}, 4);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_lost_rank_is_named_and_ends_the_job),
        cmocka_unit_test(a_rank_that_stops_at_the_very_end_is_missed),
        cmocka_unit_test(a_job_that_was_stopped_as_a_whole_goes_on),
        cmocka_unit_test(a_rank_that_fails_or_is_late_ends_the_job),
        cmocka_unit_test(too_little_memory_is_a_message),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
