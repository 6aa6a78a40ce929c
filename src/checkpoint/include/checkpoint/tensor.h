// Named tensors and boxes of global indices: all that saving, loading, import and export know of a model.
#pragma once
#include "base/dtype.h"
#include "base/status.h"
#include <stddef.h>
#include <stdint.h>

enum { CT_TENSOR_DIMS = 8 };

// Indices offset[d] … offset[d] + extent[d] - 1 of each dim of a global tensor.
typedef struct {
    int64_t offset[CT_TENSOR_DIMS], extent[CT_TENSOR_DIMS];
} ct_box;

// A tensor, or the box of one that this rank holds. Borrows name and data.
typedef struct {
    const char *name; // fully qualified: "layers.0.attention.wq.weight", "optimizer.<fqn>.exp_avg"
    ct_dtype dtype;   // of data
    int dims;
    int64_t shape[CT_TENSOR_DIMS]; // extents of the whole tensor
    int is_piece;                  // 0: data is the whole tensor and box is not looked at
    ct_box box;                    // what data holds, row-major, where is_piece
    void *data;                    // read by saving and export, written by loading; NULL: see ct_fetch_fn
} ct_named_tensor;

// Elements in data, and their bytes.
int64_t ct_named_tensor_elems(const ct_named_tensor *tensor);
size_t ct_named_tensor_bytes(const ct_named_tensor *tensor);

// Gives the data of a tensor whose data is NULL when its turn to be written comes, so that a model larger than memory can be
// converted. What is given stays valid until the next call.
typedef ct_status ct_fetch_fn(void *context, const ct_named_tensor *tensor, const void **out_data);

// Told now and then how far a load, save, verification or export has come; once at the end with done = total.
typedef void ct_progress_fn(void *context, size_t bytes_done, size_t bytes_total);

// Names of averages of the weights: this and the weight's own.
#define CT_AVERAGE_PREFIX "ema."

// Told what was passed over (one line, no newline): a damaged checkpoint, a field of config.json that differs.
typedef void ct_warn_fn(void *context, const char *text);

// How tensors are loaded by name. All zero: what is stored and what is asked for must have the same names and shapes.
typedef struct {
    const char *const *ignored_prefixes; // stored tensors with these prefixes need not be asked for ("optimizer.")
    int ignored_count;
    int allow_unexpected; // stored tensors need not be asked for
    // Is this stored tensor another rank's to load? NULL: all are asked for here.
    int (*is_elsewhere)(const void *elsewhere, const char *name);
    const void *elsewhere;
    int allow_missing;    // tensors that are not stored keep what their data holds
    const char *const *optional_prefixes; // where nothing with one of these is stored, tensors with it may be missing as well
    int optional_count;
    int skip_checksums;   // read only the byte ranges needed, and trust them
    ct_progress_fn *progress;
    ct_warn_fn *warn;
    void *context; // of progress and warn
} ct_load_options;
