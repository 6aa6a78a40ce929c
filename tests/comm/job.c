// Jobs of mpi_rank under mpirun: a process whose output is read to its end.
#include "job.h"

#include "base/clock.h"
#include "base/memory.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
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
