// What was recorded of a run: as a trace that Perfetto and Chrome draw, and as a table of where the time went.
#pragma once
#include "exec/exec.h"

// Writes spans as a Chrome trace (JSON, "X" events; one track a program kind): name, phase, module, FLOPs, bytes, rates. Times are
// microseconds from the first span.
ct_status ct_trace_write(const char *path, const ct_plan *plan, const ct_recording *recording);

// A line for each op × phase, the longest first: calls, milliseconds, share, GFLOP/s and share of peak, GB/s; then the time between
// instructions. peak_flops: FLOP/s of the team, 0: not known.
void ct_trace_summary(const ct_plan *plan, const ct_recording *recording, double peak_flops, ct_string *out);
