// One clock for durations.
#pragma once
#include <time.h>

// Seconds of the monotonic clock, from an arbitrary start.
static inline double ct_now_s(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}
