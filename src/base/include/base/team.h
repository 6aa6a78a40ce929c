// A rank's team of threads: pinned threads that sleep on a futex and spin briefly only where threads fit the cores.
#pragma once
#include "base/status.h"

typedef struct ct_team ct_team;

typedef struct {
    int threads;     // members, the caller included; ≥ 1
    int first_core;  // member i is pinned to core first_core + i of those this process may use; -1: not pinned
    int never_spin;  // 1 where more threads run than cores
} ct_team_options;

// Starts threads - 1 threads. Caller destroys.
ct_status ct_team_create(ct_team_options options, ct_team **out_team);
void ct_team_destroy(ct_team *team); // unpins the caller; NULL is fine
int ct_team_size(const ct_team *team);

// Runs task(context, thread, threads) on every member, the caller as thread 0, and returns when all have returned.
// Allocates nothing. Not reentrant.
typedef void ct_task(void *context, int thread, int threads);
void ct_team_run(ct_team *team, ct_task *task, void *context);

// Inside a task: waits until every member has come here.
void ct_team_barrier(ct_team *team);

// Cores that this process was given at its start (sched_getaffinity), at least 1.
int ct_cores(void);

// Lets the calling thread run on all of them: for threads that a pinned one started and that don't belong to its team.
void ct_thread_unpin(void);

// The part of [0, count) that member `thread` of `threads` gets when cut into equal runs of whole `grain`s.
static inline void ct_share(long long count, long long grain, int thread, int threads, long long *out_begin,
                            long long *out_end) {
    long long grains = (count + grain - 1) / grain;
    long long begin = grains * thread / threads * grain, end = grains * (thread + 1) / threads * grain;
    *out_begin = begin < count ? begin : count;
    *out_end = end < count ? end : count;
}
