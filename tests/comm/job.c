// Jobs of mpi_rank under mpirun: a process whose output is read to its end, and what must be true once it is over.
#include "job.h"

#include "base/clock.h"
#include "base/memory.h"

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

int has_mpirun(void) {
#ifdef PMPI_COUNT
    if (!system("command -v mpirun > /dev/null 2>&1")) return 1;
#endif
    printf("SKIPPED: there is no MPI\n");
    return 0;
}

job job_start(int ranks, const char *words, const char *environment) {
    char *line = ct_format("exec mpirun --allow-run-as-root --oversubscribe -n %d %s %s %s 2>&1", ranks, environment, MPI_RANK, words);
    int ends[2];
    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    job j = {.start_s = ct_now_s(), .process = fork(), .output = ends[0]};
    assert_true(j.process >= 0);
    if (j.process == 0) {
        dup2(ends[1], 1);
        setenv("ASAN_OPTIONS", "detect_leaks=0:verify_asan_link_order=0", 1); // Open MPI leaks at its end, and the observer comes first
        setenv("TSAN_OPTIONS", "detect_deadlocks=0", 1);                      // its TCP module takes two locks in either order
        execl("/bin/sh", "sh", "-c", line, (char *)NULL);
        _exit(127);
    }
    close(ends[1]);
    free(line);
    return j;
}

void job_finish(job *j) {
    ct_string text = {0};
    char bytes[4096];
    for (ssize_t n; (n = read(j->output, bytes, sizeof bytes)) > 0;) ct_string_add_bytes(&text, bytes, (size_t)n);
    close(j->output);
    int status;
    assert_int_equal(waitpid(j->process, &status, 0), j->process);
    j->seconds = ct_now_s() - j->start_s;
    j->status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    j->text = text.text ? text.text : ct_strdup("");
}

job run(int ranks, const char *words, const char *environment) {
    job j = job_start(ranks, words, environment);
    job_finish(&j);
    return j;
}

// ---- ends ----
int count_of(const char *text, const char *words) {
    int n = 0;
    for (const char *at = text; (at = strstr(at, words)); at++) n++;
    return n;
}

void must_be_gone(const char *text) {
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

void must_end(const ending *endings, int count) {
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
