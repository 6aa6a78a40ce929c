// The recorder's file: this header and `entries` records, the one of number n at place (n - 1) mod entries.
#pragma once
#include "comm/flight.h"

#include <stdatomic.h>

#define FLIGHT_MAGIC "ctflight" // 8 bytes
enum { FLIGHT_VERSION = 2 };

typedef struct {
    char magic[8];
    int32_t version, rank, ranks, pid;
    int64_t entries, record_bytes;
    _Atomic int64_t next; // number of the next record
    char spare[144];
} ct_flight_header;

_Static_assert(sizeof(ct_flight_header) == 192 && sizeof(ct_flight_record) == 192, "whole cache lines, the same everywhere");
