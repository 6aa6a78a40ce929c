// Meeting: a counter a rank and group. A rank raises its own and waits for the others' to be as high; who waits spins for a moment where there
// are cores for all, then sleeps on the counter of the one it waits for.
#include "world.h"
#include "base/clock.h"

#include <errno.h>
#include <linux/futex.h>
#include <signal.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { SPINS = 4000 };
static const double nap_s = 0.2; // how long a sleeper goes without a look at failures

static void futex_sleep(_Atomic uint32_t *word, uint32_t seen) {
    struct timespec nap = {0, (long)(nap_s * 1e9)};
    syscall(SYS_futex, word, FUTEX_WAIT, seen, &nap, NULL, 0);
}

static void futex_wake(_Atomic uint32_t *word) { syscall(SYS_futex, word, FUTEX_WAKE, 1 << 30, NULL, NULL, 0); }

static int has_come(uint32_t arrivals, uint32_t wanted) { return (int32_t)(arrivals - wanted) >= 0; }

static int spin(ct_arrival *other, uint32_t wanted, int spins) {
    for (int i = 0; i < spins; i++) {
        if (has_come(atomic_load_explicit(&other->arrivals, memory_order_acquire), wanted)) return 1;
        __builtin_ia32_pause();
    }
    return 0;
}

ct_status ct_failure_status(const ct_comm *comm) {
    int failed = atomic_load_explicit(&comm->control->failed, memory_order_acquire);
    CT_CHECK(!failed, comm->control->failure_code, "rank %d: %s", failed - 1, comm->control->failure);
    return CT_OK;
}

ct_status ct_check_time(const ct_comm *comm, double waited_s, const char *group, const ct_comm_what *what) {
    double most = comm->started ? comm->options.train_timeout_s : comm->options.init_timeout_s;
    CT_CHECK(waited_s <= most, CT_INTERRUPTED, "the others did not come within %.0f s to %s (%s) of %s over %s, step %lld, where rank %d waits",
             most, what->kind, what->module, what->program, group, (long long)comm->step, comm->rank);
    return CT_OK;
}

// A process that is gone has no beat to wait for.
static int is_gone(const ct_rank_area *area) {
    int pid = atomic_load_explicit(&area->pid, memory_order_relaxed);
    return pid > 0 && kill(pid, 0) && errno == ESRCH;
}

double ct_elapsed_s(double *last) {
    double now = ct_now_s(), elapsed = now - *last;
    *last = now;
    return elapsed < 1 ? elapsed : 1;
}

// For how long this rank has looked at the peer and seen no new beat. A job that was stopped as a whole and goes on has seen nothing.
static double silence_of(ct_comm *comm, int peer) {
    uint64_t beat = atomic_load_explicit(&ct_area(comm, peer)->beat_ns, memory_order_relaxed);
    if (!beat || !comm->watch) return 0;
    ct_watch *w = &comm->watch[peer - comm->control_first];
    double elapsed = ct_elapsed_s(&w->looked_s);
    w->silent_s = beat == w->beat_ns ? w->silent_s + elapsed : 0;
    w->beat_ns = beat;
    return w->silent_s;
}

int ct_peer_is_silent(ct_comm *comm, int peer) { return silence_of(comm, peer) > comm->options.heartbeat_timeout_s; }

ct_status ct_check_peer(ct_comm *comm, int peer, double waited_s, const char *group, const ct_comm_what *what) {
    CT_TRY(ct_failure_status(comm));
    double silent_s = silence_of(comm, peer);
    int gone = is_gone(ct_area(comm, peer));
    CT_CHECK(!gone && silent_s <= comm->options.heartbeat_timeout_s, CT_INTERRUPTED,
             "rank %d is %s: no sign of life for %.1f s; rank %d waits for it in %s (%s) of %s over %s, step %lld", peer,
             gone ? "dead" : "dead or stopped", silent_s, comm->rank, what->kind, what->module, what->program, group, (long long)comm->step);
    return ct_check_time(comm, waited_s, group, what);
}

ct_status ct_arrival_wait(ct_comm *comm, ct_arrival *other, int peer, uint32_t wanted, const char *group, const ct_comm_what *what) {
    if (spin(other, wanted, comm->may_spin ? SPINS : 1)) return CT_OK;
    double last = ct_now_s(), waited_s = 0;
    ct_status status = CT_OK;
    atomic_fetch_add(&other->sleepers, 1);
    for (;;) {
        uint32_t seen = atomic_load(&other->arrivals);
        if (has_come(seen, wanted)) break;
        futex_sleep(&other->arrivals, seen);
        if (has_come(atomic_load(&other->arrivals), wanted)) break;
        waited_s += ct_elapsed_s(&last);
        if ((status = ct_check_peer(comm, peer, waited_s, group, what))) break;
    }
    atomic_fetch_sub(&other->sleepers, 1);
    return status;
}

uint32_t ct_arrival_raise(ct_arrival *mine) {
    uint32_t arrivals = atomic_fetch_add(&mine->arrivals, 1) + 1;
    if (atomic_load(&mine->sleepers)) futex_wake(&mine->arrivals);
    return arrivals;
}

ct_status ct_fence_wait(ct_comm *comm, const int *ranks, int count, int slot, const char *group, const ct_comm_what *what) {
    ct_arrival *mine = &ct_area(comm, comm->rank)->arrivals[slot];
    uint32_t wanted = ct_arrival_raise(mine);
    for (int i = 0; i < count; i++)
        if (ranks[i] != comm->rank && ct_comm_is_near(comm, ranks[i]))
            CT_TRY(ct_arrival_wait(comm, &ct_area(comm, ranks[i])->arrivals[slot], ranks[i], wanted, group, what));
    return CT_OK;
}
