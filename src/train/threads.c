// Which cores a rank computes on. Ranks that may use the same cores (threads of a process, processes that nobody bound) divide them; where
// mpirun or srun gave each its own, all of those are the rank's.
#include "trainer_parts.h"
#include "base/team.h"

#include <sched.h>
#include <string.h>

// A number that is the same for the same set of cores.
static int64_t mask_number(void) {
    cpu_set_t cores;
    CPU_ZERO(&cores);
    sched_getaffinity(0, sizeof cores, &cores);
    int64_t number = 0;
    for (int i = 0; i < CPU_SETSIZE; i++)
        if (CPU_ISSET(i, &cores)) number = number * 31 + i + 1;
    return number & INT64_MAX;
}

// Do the ranks share their cores?
static ct_status are_shared(ct_comm *comm, int *out_shared) {
    int64_t range[2] = {mask_number(), -mask_number()};
    CT_TRY(ct_comm_max_i64(comm, range, 2));
    *out_shared = range[0] == -range[1];
    return CT_OK;
}

ct_status ct_threads_of_rank(const ct_config *config, ct_comm *comm, int *out_threads, int *out_first_core) {
    int cores = ct_cores(), near = 1, index = 0, shared = 0;
    if (comm && ct_comm_size(comm) > 1) {
        CT_TRY(are_shared(comm, &shared));
        if (shared) near = ct_comm_machine_count(comm), index = ct_comm_machine_index(comm);
    }
    int threads = config->training.threads > 0 ? (int)config->training.threads : cores / near > 0 ? cores / near : 1;
    *out_threads = threads;
    *out_first_core = threads * near <= cores ? threads * index : -1;
    return CT_OK;
}
