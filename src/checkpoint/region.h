// Where a box that is stored and a box that is wanted overlap, as runs of elements that lie together in both.
#pragma once
#include "checkpoint/tensor.h"

typedef struct {
    int outer;         // dims in front of those a run spans
    int64_t length;    // elements a run
    int64_t remaining; // runs, the one at hand included; 0: done
    int64_t from, to;  // the run's place in the stored and in the wanted box
    int64_t end;       // behind the last run, in the stored box
    int64_t count[CT_TENSOR_DIMS], index[CT_TENSOR_DIMS], from_stride[CT_TENSOR_DIMS], to_stride[CT_TENSOR_DIMS];
} ct_runs;

// The box of a tensor that its data holds.
ct_box ct_named_tensor_box(const ct_named_tensor *tensor);

// Elements in both boxes.
int64_t ct_box_overlap(int dims, const ct_box *a, const ct_box *b);

// Runs in ascending order of the stored place.
ct_runs ct_runs_begin(int dims, const ct_box *stored, const ct_box *wanted);
void ct_runs_next(ct_runs *runs);
