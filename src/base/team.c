// A team of pinned threads woken by a futex. One generation counter starts a task, one count of the unfinished ends it;
// sanitizers understand both because they are C11 atomics. Left out on purpose: task queues, nesting, work stealing.
#include "base/team.h"
#include "base/memory.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { SPINS = 4000, LINE = 64 };

typedef struct {
    ct_team *team;
    pthread_t id;
    int thread;
} member;

struct ct_team {
    int threads, spins, stop;
    ct_task *task;
    void *context;
    member *members;
    _Alignas(LINE) _Atomic unsigned generation; // odd or even alike: any change starts a task
    _Alignas(LINE) _Atomic unsigned unfinished;
    _Alignas(LINE) _Atomic unsigned arrived;
    _Alignas(LINE) _Atomic unsigned barrier_generation;
};

// The cores that the process was given, read once before main: a pinned thread's own mask, which its children inherit, says less.
static cpu_set_t process_cores;

__attribute__((constructor)) static void read_process_cores(void) {
    if (sched_getaffinity(0, sizeof process_cores, &process_cores)) CPU_ZERO(&process_cores);
}

static void futex_wait(_Atomic unsigned *word, unsigned value) {
    syscall(SYS_futex, (unsigned *)word, FUTEX_WAIT_PRIVATE, value, NULL, NULL, 0);
}
static void futex_wake_all(_Atomic unsigned *word) {
    syscall(SYS_futex, (unsigned *)word, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

// Waits until *word differs from `value`.
static void wait_change(const ct_team *team, _Atomic unsigned *word, unsigned value) {
    for (int i = 0; i < team->spins; i++) {
        if (atomic_load_explicit(word, memory_order_acquire) != value) return;
        __builtin_ia32_pause();
    }
    while (atomic_load_explicit(word, memory_order_acquire) == value) futex_wait(word, value);
}

static void pin(int core_index) {
    int seen = 0, count = CPU_COUNT(&process_cores);
    if (core_index < 0 || count == 0) return;
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        if (!CPU_ISSET(cpu, &process_cores) || seen++ != core_index % count) continue;
        cpu_set_t one;
        CPU_ZERO(&one);
        CPU_SET(cpu, &one);
        pthread_setaffinity_np(pthread_self(), sizeof one, &one);
        return;
    }
}

void ct_thread_unpin(void) {
    if (CPU_COUNT(&process_cores) > 0) pthread_setaffinity_np(pthread_self(), sizeof process_cores, &process_cores);
}

typedef struct {
    member *self;
    int core;
} start_arguments;

static void *member_main(void *argument) {
    start_arguments start = *(start_arguments *)argument;
    free(argument);
    ct_team *team = start.self->team;
    pin(start.core);
    unsigned seen = 0;
    for (;;) {
        wait_change(team, &team->generation, seen);
        seen++;
        if (team->stop) return NULL;
        team->task(team->context, start.self->thread, team->threads);
        if (atomic_fetch_sub_explicit(&team->unfinished, 1, memory_order_acq_rel) == 1)
            futex_wake_all(&team->unfinished);
    }
}

int ct_cores(void) {
    int count = CPU_COUNT(&process_cores);
    return count > 0 ? count : 1;
}

ct_status ct_team_create(ct_team_options options, ct_team **out_team) {
    CT_CHECK(options.threads >= 1 && options.threads <= 1024, CT_INVALID, "a team needs 1 to 1024 threads, not %d",
             options.threads);
    ct_team *team = NULL;
    if (posix_memalign((void **)&team, LINE, sizeof *team))
        CT_FAIL(CT_NO_MEMORY, "no memory for a team of %d threads", options.threads);
    *team = (ct_team){.threads = options.threads, .spins = options.never_spin ? 0 : SPINS};
    team->members = ct_calloc((size_t)options.threads, sizeof *team->members);
    for (int i = 1; i < options.threads; i++) {
        team->members[i] = (member){.team = team, .thread = i};
        start_arguments *start = ct_malloc(sizeof *start);
        *start = (start_arguments){&team->members[i], options.first_core < 0 ? -1 : options.first_core + i};
        if (pthread_create(&team->members[i].id, NULL, member_main, start)) {
            free(start);
            team->threads = i;
            ct_team_destroy(team);
            CT_FAIL(CT_NO_MEMORY, "thread %d of %d could not be started", i + 1, options.threads);
        }
    }
    pin(options.first_core);
    *out_team = team;
    return CT_OK;
}

void ct_team_destroy(ct_team *team) {
    if (!team) return;
    team->stop = 1;
    atomic_fetch_add_explicit(&team->generation, 1, memory_order_release);
    futex_wake_all(&team->generation);
    for (int i = 1; i < team->threads; i++) pthread_join(team->members[i].id, NULL);
    free(team->members);
    free(team);
    ct_thread_unpin();
}

int ct_team_size(const ct_team *team) { return team->threads; }

void ct_team_run(ct_team *team, ct_task *task, void *context) {
    if (team->threads == 1) {
        task(context, 0, 1);
        return;
    }
    team->task = task;
    team->context = context;
    atomic_store_explicit(&team->unfinished, (unsigned)team->threads - 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&team->generation, 1, memory_order_release);
    futex_wake_all(&team->generation);
    task(context, 0, team->threads);
    for (unsigned left; (left = atomic_load_explicit(&team->unfinished, memory_order_acquire)) != 0;)
        wait_change(team, &team->unfinished, left);
}

void ct_team_barrier(ct_team *team) {
    if (team->threads == 1) return;
    unsigned generation = atomic_load_explicit(&team->barrier_generation, memory_order_acquire);
    if (atomic_fetch_add_explicit(&team->arrived, 1, memory_order_acq_rel) + 1 == (unsigned)team->threads) {
        atomic_store_explicit(&team->arrived, 0, memory_order_relaxed);
        atomic_fetch_add_explicit(&team->barrier_generation, 1, memory_order_release);
        futex_wake_all(&team->barrier_generation);
    } else {
        wait_change(team, &team->barrier_generation, generation);
    }
}
