// Trailing dims that both boxes hold in full are merged into one run; the dims in front are counted like an odometer.
#include "region.h"
#include "safetensors_header.h"

int64_t ct_named_tensor_elems(const ct_named_tensor *tensor) {
    return ct_extents_product(tensor->is_piece ? tensor->box.extent : tensor->shape, tensor->dims);
}

size_t ct_named_tensor_bytes(const ct_named_tensor *tensor) {
    return (size_t)ct_named_tensor_elems(tensor) * ct_dtype_bytes(tensor->dtype);
}

ct_box ct_named_tensor_box(const ct_named_tensor *tensor) {
    if (tensor->is_piece) return tensor->box;
    ct_box box = {0};
    for (int d = 0; d < tensor->dims; d++) box.extent[d] = tensor->shape[d];
    return box;
}

static int64_t common(const ct_box *a, const ct_box *b, int d, int64_t *out_begin) {
    int64_t end_a = a->offset[d] + a->extent[d], end_b = b->offset[d] + b->extent[d];
    int64_t begin = a->offset[d] > b->offset[d] ? a->offset[d] : b->offset[d], end = end_a < end_b ? end_a : end_b;
    *out_begin = begin;
    return end > begin ? end - begin : 0;
}

int64_t ct_box_overlap(int dims, const ct_box *a, const ct_box *b) {
    int64_t elems = 1, begin;
    for (int d = 0; d < dims; d++) elems *= common(a, b, d, &begin);
    return elems;
}

ct_runs ct_runs_begin(int dims, const ct_box *stored, const ct_box *wanted) {
    ct_runs runs = {.outer = dims, .length = 1, .remaining = ct_box_overlap(dims, stored, wanted)};
    if (!runs.remaining) return runs;
    int64_t from_stride = 1, to_stride = 1, begin;
    int merging = 1;
    runs.end = 1;
    for (int d = dims - 1; d >= 0; d--) {
        int64_t count = common(stored, wanted, d, &begin);
        runs.from += (begin - stored->offset[d]) * from_stride;
        runs.to += (begin - wanted->offset[d]) * to_stride;
        runs.end += (begin - stored->offset[d] + count - 1) * from_stride;
        runs.count[d] = count, runs.from_stride[d] = from_stride, runs.to_stride[d] = to_stride;
        if (merging) runs.length *= count, runs.outer = d;
        merging = merging && count == stored->extent[d] && count == wanted->extent[d];
        from_stride *= stored->extent[d], to_stride *= wanted->extent[d];
    }
    runs.remaining /= runs.length;
    return runs;
}

void ct_runs_next(ct_runs *runs) {
    if (!--runs->remaining) return;
    for (int d = runs->outer - 1; d >= 0; d--) {
        runs->from += runs->from_stride[d], runs->to += runs->to_stride[d];
        if (++runs->index[d] < runs->count[d]) return;
        runs->index[d] = 0;
        runs->from -= runs->count[d] * runs->from_stride[d], runs->to -= runs->count[d] * runs->to_stride[d];
    }
}
