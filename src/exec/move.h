// Moves, resolved: where every piece lies, who is met before it is read.
#pragma once
#include "comm/comm.h"
#include "plan/plan.h"

typedef struct ct_move ct_move;

// Where a rank's shared space begins as this rank sees it; NULL where it can't be read.
typedef void *ct_shared_space_fn(void *context, int rank);

// Does an address lie in this rank's own memory?
typedef int ct_is_own_fn(void *context, const void *address);

typedef struct {
    ct_shared_space_fn *shared_space;
    ct_is_own_fn *is_own;
    void *context;
} ct_move_memory;

// Resolves a move of program `program`: its operands' pointers are in `call`; `inner` says where its peers have what it moves. Caller destroys.
ct_status ct_move_create(ct_comm *comm, const ct_plan_program *program, const ct_inner *inner, const ct_instruction *instruction, const ct_call *call,
                         ct_move_memory memory, ct_move **out_move);
void ct_move_destroy(ct_move *move);

// Bytes that this move has read of memory that is not this rank's, since it was made: counted by address where a copy or a sum reads them, not
// from the plan.
int64_t ct_move_peer_bytes(const ct_move *move);

// Sends what other nodes read of this rank's operand, and opens what comes from them; nothing where all are near.
ct_status ct_move_begin(ct_move *move, ct_team *team);
// Waits for that, meets the group's near members, then reads the pieces: copies them, or adds them up in the order of the ranks.
ct_status ct_move_end(ct_move *move, ct_team *team);

// A gather piece by piece, between begin and close: what lies on this node, then the others' as their ranks are asked for.
ct_status ct_move_near(ct_move *move, ct_team *team);
ct_status ct_move_piece(ct_move *move, int peer, ct_team *team);
ct_status ct_move_close(ct_move *move);
// A sum whose operand is made part by part, before its end: what comes may come, then each part goes.
ct_status ct_move_open(ct_move *move);
ct_status ct_move_send(ct_move *move, int peer, ct_team *team);

// The end of a program: all ranks have read what they need.
typedef struct {
    ct_comm *comm; // NULL: nobody to wait for
    ct_group group;
    int *ranks;
    char name[64];
    ct_comm_what what;
} ct_move_meeting;
void ct_move_meeting_make(ct_comm *comm, const ct_plan_program *program, ct_move_meeting *out_meeting);
void ct_move_meeting_deinit(ct_move_meeting *meeting);
ct_status ct_move_meet(const ct_move_meeting *meeting);
