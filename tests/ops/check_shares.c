// Partial sums pass where the table says so: the op on k ranks, each with a random share of an operand that it is linear in (of all of
// them, where it is additive; of what it adds to in place as well), gives shares of what it gives on one.
#include "example.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

enum { SEEDS = 6, RANKS = 3 };

static double compare(const example *e, int output, const double *got, unsigned shared) {
    double worst = 0, largest = 1e-3;
    int64_t n = ct_type_elems(&e->out[output]);
    for (int64_t i = 0; i < n; i++)
        if (isfinite(e->result[output][i])) largest = fmax(largest, fabs(e->result[output][i]));
    for (int64_t i = 0; i < n; i++) {
        double error = fabs(e->result[output][i] - got[i]) / largest;
        worst = error <= worst ? worst : error; // NaN is the worst
        if (!(error <= 1e-11))
            fail_msg("%s with shares of the inputs in mask %x: output %d, element %lld adds up to %.15g, on one rank %.15g", e->op->name,
                     shared, output, (long long)i, got[i], e->result[output][i]);
    }
    return worst;
}

static void check_mask(const example *e, unsigned shared, finding *found) {
    for (int ranks = 1; ranks <= RANKS; ranks++) {
        example shares[RANKS];
        double *sum[CT_MAX_OUTPUTS];
        example_share(e, shared, ranks, shares);
        for (int o = 0; o < e->outputs; o++) sum[o] = ct_calloc((size_t)ct_type_elems(&e->out[o]) + 1, sizeof *sum[o]);
        for (int r = 0; r < ranks; r++) {
            example_run(&shares[r]);
            for (int o = 0; o < e->outputs; o++)
                for (int64_t i = 0; i < ct_type_elems(&e->out[o]); i++) sum[o][i] += shares[r].result[o][i];
            example_deinit(&shares[r]);
        }
        for (int o = 0; o < e->outputs; o++) {
            found->share_error = fmax(found->share_error, compare(e, o, sum[o], shared));
            free(sum[o]);
        }
    }
}

// The masks of inputs that may be partial at once.
static int masks_of(const example *e, unsigned *out_masks) {
    const ct_op *op = e->op;
    int addend = example_addend(op), count = 0;
    unsigned with = addend >= 0 ? 1u << addend : 0;
    if (op->flags & CT_OP_ADDITIVE && addend < 0) out_masks[count++] = (1u << e->inputs) - 1;
    for (int i = 0; i < e->inputs && i < 8; i++)
        if (op->flags & CT_OP_LINEAR0 << i) out_masks[count++] = 1u << i | with;
    return count;
}

void check_shares(const ct_op *op, finding *found) {
    if (op->flags & CT_OP_MOVE) return;
    for (unsigned seed = 0; seed < SEEDS; seed++) {
        example e;
        unsigned masks[8];
        example_init(&e, op, CT_F32, SMALL, seed);
        example_run(&e);
        int count = masks_of(&e, masks);
        for (int m = 0; m < count; m++) {
            check_mask(&e, masks[m], found);
            char word[16];
            snprintf(word, sizeof word, "%x ", masks[m]);
            if (!strstr(found->shared, word) && strlen(found->shared) + strlen(word) < sizeof found->shared) strcat(found->shared, word);
        }
        example_deinit(&e);
    }
}
