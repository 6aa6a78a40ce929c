// What the back ends share: the control area that near ranks see, and the table of what each back end does its own way.
#pragma once
#include "base/memory.h"
#include "comm/comm.h"
#include "comm/flight.h"

#include <stdio.h>

#include <stdatomic.h>

enum { WORLD_SLOT = CT_MAX_GROUPS, SLOTS, FAILURE_TEXT = 480 };

// One rank's counter of arrivals in one group; a futex word in a cache line of its own.
typedef struct {
    _Alignas(64) _Atomic uint32_t arrivals;
    _Atomic uint32_t sleepers; // ranks that may wait on it
} ct_arrival;

typedef struct {
    ct_arrival arrivals[SLOTS];
    _Alignas(64) _Atomic uint64_t beat_ns; // of its process; 0: does not beat
    _Atomic int pid;
    _Atomic(void *) mail;                  // threads only: what it shows the others at a fence
} ct_rank_area;

// Zeroed memory that the ranks of a machine share.
typedef struct {
    _Atomic int failing;   // 1 + the first rank that failed, from when it began to say so
    _Atomic int failed;    // the same, once the text stands
    _Atomic int spoken;    // somebody prints the job's error
    ct_code failure_code;
    char failure[FAILURE_TEXT];
    _Alignas(64) ct_rank_area ranks[];
} ct_control;

static inline size_t ct_control_bytes(int near) { return sizeof(ct_control) + sizeof(ct_rank_area) * (size_t)near; }

typedef struct {
    const char *kind;
    ct_status (*share)(ct_comm *comm, size_t bytes, void **out_base);
    ct_status (*exchange)(ct_comm *comm, const ct_group *group, const ct_message *sends, int sends_count, const ct_message *receives,
                          int receives_count, const ct_comm_what *what);
    // What ct_exchange does, for one exchange; `channel` is the back end's own.
    ct_status (*channel_make)(ct_exchange *x, void **out_channel);
    void (*channel_destroy)(ct_exchange *x);
    ct_status (*channel_receives)(ct_exchange *x);       // opens them
    ct_status (*channel_send)(ct_exchange *x, int send); // -1: all
    ct_status (*channel_wait)(ct_exchange *x, int receive); // -1: all that was begun, sends too
    void (*progress)(ct_comm *comm); // NULL: needs none
    // All ranks: out[r] = rank r's `bytes` bytes. Everything between steps is made of this.
    ct_status (*all_gather)(ct_comm *comm, const void *mine, size_t bytes, void *out, const char *what);
    void (*destroy)(ct_comm *comm);
    void (*abandon)(ct_comm *comm); // ends the other ranks; NULL: they end by themselves
} ct_comm_backend;

// What a rank has seen of another's beats.
typedef struct {
    uint64_t beat_ns;
    double silent_s, looked_s; // time that this rank has watched without a new beat; when it last looked
} ct_watch;

static inline int ct_tag_of(const ct_group *group) { return group->tag ? group->tag : group->slot; }

struct ct_exchange {
    ct_comm *comm;
    ct_group group;
    ct_comm_what what;
    const ct_message *sends, *receives;
    int sends_count, receives_count;
    void *channel;            // the back end's
    ct_flight_record *record; // of the one under way
};

struct ct_comm {
    const ct_comm_backend *backend;
    ct_comm_options options;
    int rank, size;
    int near_first, near_count; // ranks [near_first, near_first + near_count) are near
    int per_node;
    int machine_first, machine_count;
    int may_spin;
    int64_t step;
    int under_way; // exchanges begun and not ended
    int started; // the first step has begun: train_timeout instead of init_timeout
    ct_control *control;
    int control_first; // the rank of its first area
    ct_watch *watch;   // by area; NULL: nobody beats
    ct_flight *flight; // NULL: nothing is recorded
    void *context; // of the back end
};

// This process's number as the launcher's environment tells it, before there is a world; -1: there is none.
int ct_comm_launched_rank(void);

// Opens the rank's flight recorder where the options want one (comm.c).
ct_status ct_comm_record(ct_comm *comm);

// Can so many bytes be had, as far as the system says? (CT_NO_MEMORY says how many were wanted and how many there are: room.c)
ct_status ct_check_room(size_t bytes, int ranks);

// One zeroed mapping for `count` processes from rank `first` on, `bytes` (whole huge pages: ct_whole_pages) allocated in full. Called by all ranks of
// the world; an error is all ranks' (segment.c).
size_t ct_whole_pages(size_t bytes);
ct_status ct_share_among(ct_comm *comm, int first, int count, size_t bytes, void **out);

static inline ct_rank_area *ct_area(const ct_comm *comm, int rank) { return &comm->control->ranks[rank - comm->control_first]; }

void ct_comm_default(ct_comm_options *options);

// The meeting of near ranks on a slot (fence.c).
ct_status ct_fence_wait(ct_comm *comm, const int *ranks, int count, int slot, const char *group, const ct_comm_what *what);
// A counter goes up by one and whoever sleeps on it is woken; gives the new count. And the wait until a peer's is so high.
uint32_t ct_arrival_raise(ct_arrival *mine);
ct_status ct_arrival_wait(ct_comm *comm, ct_arrival *theirs, int peer, uint32_t wanted, const char *group, const ct_comm_what *what);
// Seconds since *last, which becomes now; a second at the most: whoever was stopped itself has not waited meanwhile.
double ct_elapsed_s(double *last);
// Is the peer alive, and not late? (CT_INTERRUPTED says who, where and for how long.)
ct_status ct_check_peer(ct_comm *comm, int peer, double waited_s, const char *group, const ct_comm_what *what);
int ct_peer_is_silent(ct_comm *comm, int peer);
ct_status ct_check_time(const ct_comm *comm, double waited_s, const char *group, const ct_comm_what *what);
// The error of a failure that somebody told, or CT_OK.
ct_status ct_failure_status(const ct_comm *comm);
