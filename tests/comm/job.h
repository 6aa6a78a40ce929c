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
