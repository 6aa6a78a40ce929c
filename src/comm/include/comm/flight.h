// The flight recorder: what each rank did last with the others, in a mapped file that outlives the process.
//
// <folder>/<prefix><rank>.ring: a header and `entries` records used in turn. A process that is killed leaves the file as it was at that moment.
#pragma once
#include "base/memory.h"
#include "base/status.h"

#include <stdint.h>

enum { CT_FLIGHT_SLOTS = 65 }; // slots of groups: comm.h's and one for all ranks

typedef enum { CT_FLIGHT_POSTED = 1, CT_FLIGHT_DONE = 2 } ct_flight_state;

typedef struct {
    int64_t sequence; // from 1
    int64_t turn;     // the number of this operation among this rank's on its slot, from 1: members of a group have the same at the same time
    int64_t step, bytes;
    uint64_t start_ns, end_ns;  // CLOCK_REALTIME; end 0: not done
    int32_t slot, first, count; // the group: its slot, its lowest rank, its ranks' number
    int32_t state;
    char kind[20], program[12], group[24], module[72]; // cut where longer
} ct_flight_record;

// What is recorded of an operation; strings are copied.
typedef struct {
    const char *kind, *program, *group, *module;
    int slot, first, count; // slot < CT_FLIGHT_SLOTS
    int64_t step, bytes;
} ct_flight_operation;

typedef struct ct_flight ct_flight;

// Makes (or overwrites) a rank's file. entries ≥ 1. Caller closes, which leaves the file.
ct_status ct_flight_open(const char *folder, const char *prefix, int rank, int ranks, int64_t entries, ct_flight **out_flight);
void ct_flight_close(ct_flight *flight); // NULL is fine

// Begins a record and gives it for ct_flight_end. Costs some tens of nanoseconds and two clock readings.
ct_flight_record *ct_flight_begin(ct_flight *flight, const ct_flight_operation *what);
void ct_flight_end(ct_flight_record *record);

// Describes the newest `count` records of every rank whose file is in the folder, and says of each group whose members have not begun the same
// number of operations who is behind whom, and in what. CT_NOT_FOUND: no such file; CT_CORRUPT names one that is none.
ct_status ct_flight_print(const char *folder, int count, ct_string *out);
