// The flight recorder: what each rank did last with the others, in a mapped file that outlives the process.
//
// <folder>/<prefix><rank>.ring: a header and `entries` records used in turn. A process that is killed leaves the file as it was at that moment.
#pragma once
#include "base/memory.h"
#include "base/status.h"

#include <stdint.h>

typedef enum { CT_FLIGHT_POSTED = 1, CT_FLIGHT_DONE = 2 } ct_flight_state;

typedef struct {
    int64_t sequence; // from 1
    int64_t step, bytes;
    uint64_t start_ns, end_ns; // CLOCK_REALTIME; end 0: not done
    int32_t slot, state;
    char kind[20], program[12], group[24], module[64]; // cut where longer
} ct_flight_record;

typedef struct ct_flight ct_flight;

// Makes (or overwrites) a rank's file. entries ≥ 1. Caller closes, which leaves the file.
ct_status ct_flight_open(const char *folder, const char *prefix, int rank, int ranks, int64_t entries, ct_flight **out_flight);
void ct_flight_close(ct_flight *flight); // NULL is fine

// Begins a record and gives it for ct_flight_end. Strings are copied. Costs some tens of nanoseconds and two clock readings.
ct_flight_record *ct_flight_begin(ct_flight *flight, const char *kind, const char *program, const char *group, const char *module, int slot,
                                  int64_t step, int64_t bytes);
void ct_flight_end(ct_flight_record *record);

// Describes the newest `count` records of every rank whose file is in the folder, and says who is behind: the rank whose last step and
// record are the oldest, and the ones that wait. CT_NOT_FOUND: no such file; CT_CORRUPT names one that is none.
ct_status ct_flight_print(const char *folder, int count, ct_string *out);
