// Jobs of mpi_rank under mpirun, started and waited for.
#pragma once
#include <sys/types.h>

typedef struct {
    pid_t process;
    int output;
    double start_s;
    // once it has ended:
    int status;
    char *text; // all that it printed; to be freed
    double seconds;
} job;

int has_mpirun(void); // says so where there is none

// `environment`: options of mpirun, "-x NAME=VALUE".
job job_start(int ranks, const char *words, const char *environment);
void job_finish(job *j);
job run(int ranks, const char *words, const char *environment);

int count_of(const char *text, const char *words);
void must_be_gone(const char *text); // the processes whose numbers are in the text: "pid 123"

typedef struct {
    const char *work, *words;
    double most_s;
} ending;

// Jobs of four ranks at the same time, as they mostly wait; each must end badly, with one message that has these words, and leave nothing behind.
void must_end(const ending *endings, int count);
