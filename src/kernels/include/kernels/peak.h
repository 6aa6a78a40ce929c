// What this machine can do at most, measured: arithmetic from registers, and streams from memory. Shares of these ceilings mean more
// than seconds, because machines differ and have slow phases.
//
// The `get` functions keep what they find in $XDG_CACHE_HOME/ctitan/peak.json (or ~/.cache/ctitan/peak.json), by CPU model and number of
// threads, the highest seen: a slow phase never lowers a ceiling. An unreadable or unwritable file only means measuring again.
#pragma once
#include "base/dtype.h"
#include "base/status.h"
#include "base/team.h"

// The most FLOP/s (a multiply-add is 2) that the team reaches on fused multiply-adds of f32, or on dot products of bf16 pairs into f32
// (where the CPU has none: f32's figure). The best of rounds of half a millisecond within about `seconds`; allocates nothing.
// dtype: CT_F32 or CT_BF16.
double ct_peak_measure(ct_dtype dtype, ct_team *team, double seconds);

// The kept figure for this CPU and this number of threads, or else one measured for 0.2 s and kept. CT_INVALID: another dtype.
ct_status ct_peak_get(ct_dtype dtype, ct_team *team, double *out_flops_per_s);

// Keeps a figure that was measured elsewhere, where it is higher than the kept one.
void ct_peak_keep(ct_dtype dtype, int threads, double flops_per_s);

// Bytes a second, counting what the loop names: read 1, copy (a = b) 2, triad (a = b + s·c) 3 streams, with non-temporal stores.
typedef struct {
    double read, copy, triad;
} ct_bandwidth;

// Streams over 64 MiB an array on all threads, the best of interleaved rounds within about `seconds` (at least one each).
// CT_NO_MEMORY: the arrays could not be had.
ct_status ct_bandwidth_measure(ct_team *team, double seconds, ct_bandwidth *out_bandwidth);

// The kept figures, or else measured for 0.3 s and kept.
ct_status ct_bandwidth_get(ct_team *team, ct_bandwidth *out_bandwidth);
