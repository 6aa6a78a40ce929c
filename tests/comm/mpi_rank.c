// A rank of a job that test_comm_mpi starts: `mpi_rank WORK [apart] [nodes-of-two] [record=FOLDER]`. It ends as ctitan does.
#include "rank_work.h"

#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static ct_status results(void *context, ct_comm *comm) {
    if (ct_comm_near_count(comm) == ct_comm_size(comm)) CT_TRY(write_and_read(context, comm));
    CT_TRY(tell(context, comm));
    if (ct_comm_size(comm) <= 8) CT_TRY(send_all(context, comm));
    printf("rank %d of %d: near %d, at %d of its node, %d on the machine\n", ct_comm_rank(comm), ct_comm_size(comm), ct_comm_near_count(comm),
           ct_comm_near_index(comm), ct_comm_machine_count(comm));
    return CT_OK;
}

// A segment of each node: one sees what its own node wrote, and nothing else.
static ct_status nodes(void *context, ct_comm *comm) {
    (void)context;
    int ranks[64], first = ct_comm_rank(comm) - ct_comm_near_index(comm);
    ct_group group = everyone(comm, ranks);
    void *base;
    CT_TRY(ct_comm_share(comm, 3 << 20, &base));
    int64_t *cell = base;
    cell[8 * ct_comm_rank(comm)] = 100 + ct_comm_rank(comm);
    CT_TRY(ct_comm_fence(comm, &group, &what)); // near members only
    for (int r = 0; r < ct_comm_size(comm); r++) {
        int64_t wanted = ct_comm_is_near(comm, r) ? 100 + r : 0;
        CT_CHECK(cell[8 * r] == wanted, CT_CORRUPT, "the node of %d sees %lld for rank %d", first, (long long)cell[8 * r], r);
    }
    return send_all(NULL, comm);
}

// Two messages of 40,000 bytes from each rank to the next, and nothing else on this slot.
static ct_status ring(void *context, ct_comm *comm) {
    (void)context;
    static char out[40000], in[40000];
    int ranks[64], n = ct_comm_size(comm), me = ct_comm_rank(comm);
    ct_group group = everyone(comm, ranks);
    group.slot = 5;
    ct_message to = {(me + 1) % n, out, sizeof out}, from = {(me + n - 1) % n, in, sizeof in};
    for (int i = 0; i < 2; i++) CT_TRY(ct_comm_exchange(comm, &group, &to, 1, &from, 1, &what));
    return CT_OK;
}

// Meets the others for ever; the last rank but one goes away at the fifth step.
static ct_status go_on_until(ct_comm *comm, int signal_number, int by_messages) {
    int ranks[64], n = ct_comm_size(comm), me = ct_comm_rank(comm);
    ct_group group = everyone(comm, ranks);
    printf("pid %d\n", getpid());
    fflush(stdout);
    CT_TRY(ct_comm_barrier(comm, "beginning"));
    int64_t out = me, in;
    ct_message to = {(me + 1) % n, &out, sizeof out}, from = {(me + n - 1) % n, &in, sizeof in};
    for (int64_t step = 1;; step++) {
        ct_comm_set_step(comm, step);
        if (step == 5 && me == n - 2) raise(signal_number);
        if (by_messages) CT_TRY(ct_comm_exchange(comm, &group, &to, 1, &from, 1, &what));
        else CT_TRY(ct_comm_fence(comm, &group, &what));
    }
}

static ct_status killed(void *context, ct_comm *comm) { return (void)context, go_on_until(comm, SIGKILL, 0); }
static ct_status stopped(void *context, ct_comm *comm) { return (void)context, go_on_until(comm, SIGSTOP, 0); }
static ct_status killed_far(void *context, ct_comm *comm) { return (void)context, go_on_until(comm, SIGKILL, 1); }
static ct_status stopped_far(void *context, ct_comm *comm) { return (void)context, go_on_until(comm, SIGSTOP, 1); }

static ct_status stopped_at_the_end(void *context, ct_comm *comm) {
    (void)context;
    printf("pid %d\n", getpid());
    fflush(stdout);
    CT_TRY(ct_comm_barrier(comm, "beginning"));
    if (ct_comm_rank(comm) == 1) raise(SIGSTOP);
    return CT_OK;
}

// Stops these processes for longer than a beat may be missing, and lets them go on one after the other.
static void stop_for_a_while(void **pids, int count) {
    if (fork()) return;
    usleep(300000);
    for (int i = 0; i < count; i++) kill(*(pid_t *)pids[i], SIGSTOP);
    sleep(4);
    for (int i = 0; i < count; i++, usleep(300000)) kill(*(pid_t *)pids[i], SIGCONT);
    _exit(0);
}

static ct_status stopped_as_a_whole(void *context, ct_comm *comm) {
    (void)context;
    int ranks[64];
    ct_group group = everyone(comm, ranks);
    pid_t own = getpid();
    void **pids;
    size_t *bytes;
    CT_TRY(ct_comm_gather(comm, 0, &own, sizeof own, &pids, &bytes));
    if (pids) stop_for_a_while(pids, ct_comm_size(comm));
    for (int i = 0; pids && i < ct_comm_size(comm); i++) free(pids[i]);
    free(pids);
    free(bytes);
    ct_comm_set_step(comm, 1);
    for (int i = 0; i < 200; i++, usleep(5000)) CT_TRY(ct_comm_fence(comm, &group, &what));
    return CT_OK;
}

static ct_status fails(void *context, ct_comm *comm) {
    (void)context;
    int ranks[64];
    ct_group group = everyone(comm, ranks);
    if (ct_comm_rank(comm) == 1) CT_FAIL(CT_IO, "rank 1's own trouble");
    return ct_comm_fence(comm, &group, &what);
}

static ct_status is_late(void *context, ct_comm *comm) {
    (void)context;
    int ranks[64];
    ct_group group = everyone(comm, ranks);
    ct_comm_set_step(comm, 3);
    if (ct_comm_rank(comm) == 1) sleep(60);
    return ct_comm_fence(comm, &group, &what);
}

static ct_status wants_too_much(void *context, ct_comm *comm) {
    (void)context;
    void *base;
    return ct_comm_share(comm, (size_t)1 << 46, &base);
}

static ct_status wants_different_sizes(void *context, ct_comm *comm) {
    (void)context;
    void *base;
    return ct_comm_share(comm, (size_t)(1 + ct_comm_rank(comm)) << 22, &base);
}

static const struct {
    const char *name;
    ct_rank_main *work;
} works[] = {{"results", results}, {"nodes", nodes}, {"ring", ring}, {"killed", killed}, {"stopped", stopped}, {"killed_far", killed_far},
             {"stopped_far", stopped_far}, {"stopped_at_the_end", stopped_at_the_end}, {"stopped_as_a_whole", stopped_as_a_whole}, {"exchanges", exchanges}, {"one_never_sends", one_never_sends}, {"fails", fails}, {"is_late", is_late},
             {"wants_too_much", wants_too_much}, {"wants_different_sizes", wants_different_sizes}};

static ct_rank_main *work_of(const char *name) {
    for (size_t i = 0; i < sizeof works / sizeof *works; i++)
        if (!strcmp(works[i].name, name)) return works[i].work;
    return NULL;
}

int main(int argc, char **argv) {
    ct_comm_options options = {.heartbeat_timeout_s = 2, .init_timeout_s = 20, .train_timeout_s = 3, .record_entries = 16};
    for (int i = 2; i < argc; i++) {
        if (!strcmp(argv[i], "apart")) options.no_shared_memory = 1;
        if (!strcmp(argv[i], "nodes-of-two")) options.ranks_per_node = 2;
        if (!strncmp(argv[i], "record=", 7)) options.record_folder = argv[i] + 7;
    }
    signal(SIGTERM, SIG_IGN); // as `ctitan train`, which ends at a step's end
    ct_rank_main *work = argc > 1 ? work_of(argv[1]) : NULL;
    if (!work) return fprintf(stderr, "mpi_rank: which work?\n"), 2;
    ct_comm *comm;
    ct_status status = ct_comm_create_mpi(&options, &comm);
    if (!status) status = work(NULL, comm);
    if (!status) return ct_comm_destroy(comm), 0;
    if (comm) ct_comm_fail(comm, status);
    if (ct_comm_may_speak(comm)) fprintf(stderr, "MESSAGE: %s\n", ct_error_text(status));
    else sleep(3); // whoever speaks ends this process too
    if (comm) ct_comm_abandon(comm);
    return 1;
}
