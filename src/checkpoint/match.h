// What is asked for by name against what is stored.
#pragma once
#include "checkpoint/tensor.h"

// For each wanted tensor the index of the stored one of its name, or -1 where that is allowed. All that does not fit is named in one
// message (CT_INVALID) which begins with `where`.
ct_status ct_tensors_match(const char *where, const ct_named_tensor *stored, int stored_count, const ct_named_tensor *wanted,
                           int wanted_count, const ct_load_options *options, int *out_stored);
