// Ranks as processes under mpirun: what they tell one another, their memory, and how a job ends when one of them is lost. Where there is no
// mpirun, it says so.
#include "base/clock.h"
#include "base/file.h"
#include "base/memory.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

// A job that has ended.
typedef struct {
    int status;
    char *text; // all that it printed
    double seconds;
} job;

static int has_mpirun(void) {
#ifdef PMPI_COUNT
    if (!system("command -v mpirun > /dev/null 2>&1")) return 1;
#endif
    printf("SKIPPED: there is no MPI\n");
    return 0;
}

static char *read_all(int fd) {
    ct_string text = {0};
    char bytes[4096];
    for (ssize_t n; (n = read(fd, bytes, sizeof bytes)) > 0;) ct_string_add_bytes(&text, bytes, (size_t)n);
    close(fd);
    return text.text ? text.text : ct_strdup("");
}

static job run(int ranks, const char *words, const char *environment) {
    char *line = ct_format("exec mpirun --allow-run-as-root --oversubscribe -n %d %s %s %s 2>&1", ranks, environment, MPI_RANK, words);
    int ends[2], status;
    assert_int_equal(pipe(ends), 0);
    double start = ct_now_s();
    pid_t process = fork();
    assert_true(process >= 0);
    if (process == 0) {
        dup2(ends[1], 1);
        close(ends[0]), close(ends[1]);
        execl("/bin/sh", "sh", "-c", line, (char *)NULL);
        _exit(127);
    }
    close(ends[1]);
    job j = {.text = read_all(ends[0])};
    assert_int_equal(waitpid(process, &status, 0), process);
    j.seconds = ct_now_s() - start;
    j.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    free(line);
    return j;
}

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

static void nodes_have_a_segment_each(void **state) {
    (void)state;
    if (!has_mpirun()) skip();
    must_do_well(4, "results nodes-of-two", "rank 3 of 4: near 2, at 1 of its node, 4 on the machine");
    must_do_well(4, "nodes nodes-of-two", "");
    must_do_well(3, "nodes nodes-of-two", "");
    must_do_well(3, "nodes apart", "");
}

// ---- ends ----
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

static void must_end_with(const char *work, const char *words, double most_s) {
    job j = run(4, work, "");
    if (!j.status) fail_msg("%s ended well: %s", work, j.text);
    if (!strstr(j.text, words)) fail_msg("%s: '%s' is not in: %s", work, words, j.text);
    if (count_of(j.text, "MESSAGE: ") != 1) fail_msg("%s: not one message: %s", work, j.text);
    if (j.seconds > most_s) fail_msg("%s took %.1f s: %s", work, j.seconds, j.text);
    must_be_gone(j.text);
    assert_int_equal(shared_files(), 0);
    free(j.text);
}

static void a_killed_rank_is_named_and_ends_the_job(void **state) {
    (void)state;
    if (!has_mpirun()) skip();
    must_end_with("killed", "rank 2 is dead", 8);
    must_end_with("killed_far apart", "rank 2 is dead", 8);
}

static void a_stopped_rank_is_named_and_ends_the_job(void **state) {
    (void)state;
    if (!has_mpirun()) skip();
    must_end_with("stopped", "rank 2 is dead or stopped", 9);
    must_end_with("stopped_far apart", "rank 2 is dead or stopped", 9);
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

static void a_rank_that_fails_or_is_late_ends_the_job(void **state) {
    (void)state;
    if (!has_mpirun()) skip();
    must_end_with("fails", "rank 1's own trouble", 8);
    must_end_with("fails nodes-of-two", "rank 1's own trouble", 8);
    must_end_with("is_late", "the others did not come within 3 s", 9);
}

static void too_little_memory_is_a_message(void **state) {
    (void)state;
    if (!has_mpirun()) skip();
    must_end_with("wants_too_much", "70368.74 GB of shared memory are wanted for 4 ranks, and", 6); // 2^46 bytes
    must_end_with("wants_too_much nodes-of-two", "70368.74 GB of shared memory are wanted for 2 ranks, and", 6);
    must_end_with("wants_different_sizes", "bytes of shared memory, rank", 6);
    must_end_with("results record=/nowhere/at/all", "cannot make /nowhere/at/all/rank_0.ring", 6);
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
        cmocka_unit_test(nodes_have_a_segment_each),
        cmocka_unit_test(a_killed_rank_is_named_and_ends_the_job),
        cmocka_unit_test(a_stopped_rank_is_named_and_ends_the_job),
        cmocka_unit_test(a_rank_that_stops_at_the_very_end_is_missed),
        cmocka_unit_test(a_rank_that_fails_or_is_late_ends_the_job),
        cmocka_unit_test(too_little_memory_is_a_message),
        cmocka_unit_test(the_observer_counts_messages),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
