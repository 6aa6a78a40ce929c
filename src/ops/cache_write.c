// Generation's key-value cache: rows of x are written into their slots. Slots of one batch row are all different.
#include "part.h"

#include <string.h>

static void reference(const ct_reference *call) {
    int64_t B = in_extent(call, 0, 0), S = in_extent(call, 0, 1), T = in_extent(call, 1, 1);
    int64_t row = in_extent(call, 0, 2) * in_extent(call, 0, 3);
    memcpy(call->out[0], call->in[0], (size_t)(B * S * row) * sizeof(double));
    for (int64_t b = 0; b < B; b++)
        for (int64_t t = 0; t < T; t++) {
            int64_t slot = (int64_t)call->in[2][b * T + t];
            memcpy(call->out[0] + (b * S + slot) * row, call->in[1] + (b * T + t) * row, (size_t)row * sizeof(double));
        }
}

const ct_op ct_op_cache_write = {
    .name = "cache_write",
    .formula = "cache'[slot[t]] = x[t], other rows as they are",
    .rule = "B S! G d, B T! G d, B T! -> B S! G d",
    .dtypes = "cci>c",
    .inputs = 3, .outputs = 1,
    .flags = CT_OP_LOWP0 << 1,
    .must_alias = {1},
    .reference = reference,
};

ct_value ct_cache_write(ct_graph *g, ct_value cache_BSGd, ct_value x_BTGd, ct_value slot_BT) {
    return build(g, &ct_op_cache_write, 3, (ct_value[]){cache_BSGd, x_BTGd, slot_BT}, NULL);
}
