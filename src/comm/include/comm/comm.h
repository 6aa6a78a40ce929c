// Ranks and what they say to one another: self (one rank), threads (ranks are threads of this process), MPI (a module loaded at run time;
// shared memory inside a node, messages between nodes). Moves bytes and agrees; it never adds: owners add what they read.
//
// One collective at a time per rank, but for exchanges that were begun, from the rank's own thread. Ranks of a group make the same calls on it in the same order. Every
// waiting call ends in an error instead of hanging when a rank is lost, fails alone (ct_comm_fail), or does not come in time; the error
// names the rank, the operation and the step.
#pragma once
#include "base/status.h"

#include <stddef.h>
#include <stdint.h>

typedef struct ct_comm ct_comm;

typedef struct {
    double init_timeout_s, train_timeout_s; // ≤ 0: 300 and 100
    double heartbeat_timeout_s;             // ≤ 0: 5. No beat for so long: the rank is dead or stopped
    int ranks_per_node;     // > 0: nodes of so many consecutive ranks, as tests want them; 0: as the machines are
    int no_shared_memory;   // 1: everything goes through messages (MPI only)
    const char *record_folder, *record_prefix; // of the flight recorder's files (comm/flight.h); NULL: nothing is recorded
    int64_t record_entries;
} ct_comm_options;

// ---- making a world ----

// One rank. Nothing waits, nothing is sent.
ct_status ct_comm_create_self(ct_comm **out_comm);

// What a rank does; its error is the job's. `comm` is the rank's and lives until main returns.
typedef ct_status ct_rank_main(void *context, ct_comm *comm);

// Runs `ranks` threads of this process as ranks and returns when all have ended: the error of the lowest rank that failed by itself, noted
// "rank 3", those that only were let down by it not counted.
ct_status ct_comm_run_threads(int ranks, const ct_comm_options *options, ct_rank_main *main, void *context);

// Was this process started by mpirun or srun, as one of several? (from their environment variables)
int ct_comm_is_launched(void);

// Joins the MPI world (loads the module that uses libmpi; an error says what is missing). Caller destroys. *out_comm is set on failure too
// wherever MPI itself came up, so that the caller can end the job through it, and NULL elsewhere:
//
//     ct_comm *comm;
//     ct_status status = ct_comm_create_mpi(&options, &comm);
//     if (!status) status = work(comm);
//     if (!status) return ct_comm_destroy(comm), 0;
//     if (comm) ct_comm_fail(comm, status);
//     if (ct_comm_may_speak(comm)) print(status);
//     else sleep(3); // whoever speaks ends this process too
//     if (comm) ct_comm_abandon(comm);
//     exit(1);
ct_status ct_comm_create_mpi(const ct_comm_options *options, ct_comm **out_comm);
void ct_comm_destroy(ct_comm *comm);

int ct_comm_rank(const ct_comm *comm);
int ct_comm_size(const ct_comm *comm);
int ct_comm_is_near(const ct_comm *comm, int rank); // on this node, and its memory can be read
int ct_comm_near_count(const ct_comm *comm);        // ranks of this node, itself included; they are consecutive
int ct_comm_near_index(const ct_comm *comm);        // its place among them
int ct_comm_per_node(const ct_comm *comm);          // nodes hold so many consecutive ranks, from rank 0 on; 1: not all do. The same on all ranks
int ct_comm_machine_count(const ct_comm *comm);     // ranks on this machine, near or not, and this one's place among them
int ct_comm_machine_index(const ct_comm *comm);
const char *ct_comm_kind(const ct_comm *comm);      // "self", "threads", "mpi"

// ---- the node's shared memory ----

// One segment for the near ranks, all of which ask for the same size: zeroed, allocated in full (too little is CT_NO_MEMORY, with how much
// was wanted and how much there is), page-aligned to 2 MiB and in 2 MiB pages where the system gives them. *out_base is where this rank
// sees it. It is gone with its last user, however that ends. Once a comm; freed by destroy. With `self`: private memory.
// Collective over the near ranks.
ct_status ct_comm_share(ct_comm *comm, size_t bytes, void **out_base);

// ---- groups ----

enum { CT_MAX_GROUPS = 64 };

// Ranks that work together. `slot` < CT_MAX_GROUPS tells this rank's groups apart; the same on all members (a mask of mesh axes).
typedef struct {
    const int *ranks; // ascending, this one among them
    int count, slot;
    const char *name; // for messages: "dp_shard", borrowed
    int tag;          // of exchanges (from CT_MAX_GROUPS + 1 to 30000): those of different tags don't meet; 0: the slot
} ct_group;

// What an operation is called in the recorder and in errors: borrowed strings and plain numbers.
typedef struct {
    const char *kind, *module; // "all_gather", "layers.3.attention.wq"
    const char *program;       // "micro"
    int64_t bytes;
} ct_comm_what;

// Returns when every near member of the group has come to its call of the same number on this group; what a member wrote to shared memory
// before is then visible. Far members are not waited for (messages do that).
ct_status ct_comm_fence(ct_comm *comm, const ct_group *group, const ct_comm_what *what);

typedef struct {
    int rank;
    void *data;
    size_t bytes; // 0 is fine, and sends nothing
} ct_message;

// Sends and receives whole messages between members, any sizes that both sides know; at most one message each way and peer. Returns when all
// are received and what was sent may change. For ranks that are not near, or anyone where shared memory is off.
ct_status ct_comm_exchange(ct_comm *comm, const ct_group *group, const ct_message *sends, int sends_count, const ct_message *receives,
                           int receives_count, const ct_comm_what *what);

// An exchange that goes again and again between the same memory: made once, then begun and ended as often as one likes, with nothing allocated and
// with work in between. Between two ranks the messages of a tag meet in the order in which they are sent and their receives are opened.
typedef struct ct_exchange ct_exchange;

// `group` and `what` are copied, their strings borrowed; the messages must stay where they are, as in ct_comm_exchange. Each rank and message has
// one partner: a receive from a rank that makes no such send is an error when it is waited for. Caller destroys.
ct_status ct_exchange_make(ct_comm *comm, const ct_group *group, const ct_message *sends, int sends_count, const ct_message *receives,
                           int receives_count, const ct_comm_what *what, ct_exchange **out_exchange);
void ct_exchange_destroy(ct_exchange *exchange); // NULL is fine; not between begin and end

// Opens the receives, and the sends with them unless `hold`: then each goes with its own ct_exchange_send, all of them before the end.
ct_status ct_exchange_begin(ct_exchange *exchange, int hold);
ct_status ct_exchange_send(ct_exchange *exchange, int send);
ct_status ct_exchange_wait(ct_exchange *exchange, int receive); // until this one is here
ct_status ct_exchange_end(ct_exchange *exchange);               // until all are, and what was sent may change

// Moves what is under way along, where the back end needs a thread of ours for that; cheap where nothing is.
void ct_comm_progress(ct_comm *comm);

// ---- between steps: all ranks; these may allocate ----

// All succeed, or all fail with the message of the lowest rank that did, noted with its number.
ct_status ct_comm_agree(ct_comm *comm, ct_status mine);
ct_status ct_comm_barrier(ct_comm *comm, const char *what);
ct_status ct_comm_sum_i64(ct_comm *comm, int64_t *values, int count); // in place, the same on all
ct_status ct_comm_max_i64(ct_comm *comm, int64_t *values, int count);
ct_status ct_comm_broadcast(ct_comm *comm, int from, void *data, size_t bytes);
// On rank `to`: out_data[r] and out_bytes[r] of every rank, each to be freed with the array by the caller; elsewhere NULL.
ct_status ct_comm_gather(ct_comm *comm, int to, const void *data, size_t bytes, void ***out_data, size_t **out_bytes);

// Tells the others that this rank ends with an error: whoever waits, or will wait, for it gets an error that quotes it. Never waits.
void ct_comm_fail(ct_comm *comm, ct_status status);

// 1 for one rank of a machine, once: it prints what ended the job. NULL (there is no world yet): 1 for the launcher's rank 0, and where there
// is no launcher.
int ct_comm_may_speak(ct_comm *comm);

// Ends the job's other ranks, however they are (MPI: stopped ones of this machine are killed). May not return.
void ct_comm_abandon(ct_comm *comm);

// For the recorder and errors: the optimizer step from here on.
void ct_comm_set_step(ct_comm *comm, int64_t step);
