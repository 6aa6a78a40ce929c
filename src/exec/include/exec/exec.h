// Running a plan on one rank: its space of memory and its part of the node's shared one, instructions with resolved pointers, a walk over them. A run allocates nothing.
#pragma once
#include "comm/comm.h"
#include "plan/plan.h"

typedef struct ct_exec ct_exec;

typedef struct {
    int lazy;   // 1: pages come with first touch (debug: shows which are touched); 0: all are there before the first run
    ct_comm *comm; // of a plan whose programs move data between ranks; must outlive the exec. NULL: none does
    int poison; // 1: memory outside the running instruction's operands is NaN where dead and forbidden under AddressSanitizer
} ct_exec_options;

// Is there memory for a plan and other_bytes beside it? CT_NO_MEMORY says how much is wanted and how much there is.
ct_status ct_exec_check_memory(const ct_plan *plan, size_t other_bytes);

// Reserves the plan's space (2 MiB pages where the system gives them) and resolves every instruction. Too little memory is an error
// that says how much was wanted and how much there is. `plan` and `team` must outlive the result. Caller destroys.
ct_status ct_exec_create(const ct_plan *plan, ct_team *team, ct_exec_options options, ct_exec **out_exec);
void ct_exec_destroy(ct_exec *exec);

// The memory of a kept buffer: a state by its name, a feed or an output by "program:name". NULL where the plan has none.
void *ct_exec_data(ct_exec *exec, const char *name);

// Where a slot of a saved value lies, by the value's name.
void *ct_exec_slot(ct_exec *exec, const char *name, int slot);

// Runs one program from start to end. Where it moves data between ranks, all of them run it, and it returns when all have read what they
// need. Errors are those of comm: a rank that is lost, or fails.
ct_status ct_exec_run(ct_exec *exec, ct_program program);
// The same, with what the programs of a pipeline stage save for one another in these slots, by its life.
ct_status ct_exec_run_slots(ct_exec *exec, ct_program program, const int slots[CT_LIVES]);

// Runs one program and stops behind the first instruction that wrote a NaN or an infinity into a float output, which then is
// described in text of at most `size` bytes ("layers.3.attention.wq (matmul, forward)"); empty where none did. −inf in a
// log-sum-exp of a row that sees nothing is legal and not counted. With slots (a pipeline stage's program; else NULL), or where the program moves data
// between ranks, it runs to its end, as others need what it makes.
ct_status ct_exec_find_nonfinite(ct_exec *exec, ct_program program, const int slots[CT_LIVES], char *out_text, size_t size);

// When an instruction ran, in nanoseconds of the monotonic clock, and how much it read of memory that is not this rank's: counted by address as it
// read. What comes in messages is not among it.
typedef struct {
    int program, instruction;
    uint64_t begin_ns, end_ns;
    int64_t peer_bytes;
} ct_span;

// Caller's storage for spans; runs append while there is room.
typedef struct {
    ct_span *spans;
    int count, capacity;
} ct_recording;

// From here on runs record into `recording` (borrowed); NULL: no longer. Costs two clock readings an instruction.
void ct_exec_record(ct_exec *exec, ct_recording *recording);

// The space, and this rank's part of the node's shared one (NULL: nothing is shared), for tests of the memory's truth.
void *ct_exec_space(ct_exec *exec, size_t *out_bytes);
void *ct_exec_shared_space(ct_exec *exec, size_t *out_bytes);
