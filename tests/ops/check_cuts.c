// What a rule allows to be sharded is true: the op on k ranks, each with its part of an index, equals the op on one. Outputs that have
// the index are laid side by side, those that lack it are added (CT_OP_SUM) or their maximum is taken (CT_OP_MAX); an op that is
// neither may not let an index be cut that one of its outputs lacks. Ranks get even and uneven parts, and nothing. What an op adds to in
// place is then partial as well: each rank has a share of it.
#include "example.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

enum { SEEDS = 4, RANKS_MAX = 3 };

// Adds one rank's output to what the ranks give together.
static void combine(const example *whole, int output, int dim, int64_t begin, const example *part, double *sum) {
    const ct_type *type = &part->out[output];
    int64_t n = ct_type_elems(type), inner = 1;
    for (int i = dim + 1; dim >= 0 && i < type->dims_count; i++) inner *= type->dims[i].extent;
    for (int64_t i = 0; i < n; i++) {
        double y = part->result[output][i];
        if (dim >= 0) {
            int64_t run = type->dims[dim].extent * inner;
            sum[i / run * whole->out[output].dims[dim].extent * inner + begin * inner + i % run] = y;
        } else if (whole->op->flags & CT_OP_MAX) {
            sum[i] = fmax(sum[i], y);
        } else {
            sum[i] += y;
        }
    }
}

static double compare(const example *e, int output, const double *got, const char *letter, int ranks) {
    double worst = 0, largest = 1e-3;
    for (int64_t i = 0; i < ct_type_elems(&e->out[output]); i++)
        if (isfinite(e->result[output][i])) largest = fmax(largest, fabs(e->result[output][i]));
    for (int64_t i = 0; i < ct_type_elems(&e->out[output]); i++) {
        double want = e->result[output][i];
        double error = want == got[i] || (want != want && got[i] != got[i]) ? 0 : fabs(want - got[i]) / largest;
        worst = error <= worst ? worst : error;
        if (!(error <= 1e-12))
            fail_msg("%s cut in %s on %d ranks: output %d, element %lld is %.15g, on one rank %.15g", e->op->name, letter, ranks,
                     output, (long long)i, got[i], want);
    }
    return worst;
}

static double check_cut(const example *e, const char *letter, int star, const int64_t *bounds, int ranks) {
    double *sum[CT_MAX_OUTPUTS] = {0}, worst = 0;
    for (int o = 0; o < e->outputs; o++) {
        int64_t n = ct_type_elems(&e->out[o]);
        sum[o] = ct_calloc((size_t)n + 1, sizeof *sum[o]);
        for (int64_t i = 0; i < n && e->op->flags & CT_OP_MAX; i++) sum[o][i] = -INFINITY;
    }
    // What the op adds to is partial where its output is.
    int addend = example_addend(e->op), adds = addend >= 0 && example_dim(&e->rule.out[0], letter, star) < 0;
    example shares[RANKS_MAX];
    example_share(e, adds ? 1u << addend : 0, ranks, shares);
    for (int r = 0; r < ranks; r++) {
        example part;
        example_cut(&shares[r], letter, star, bounds[r], bounds[r + 1], &part);
        example_deinit(&shares[r]);
        example_run(&part);
        for (int o = 0; o < e->outputs; o++)
            combine(e, o, example_dim(&e->rule.out[o], letter, star), bounds[r], &part, sum[o]);
        example_deinit(&part);
    }
    const example_hook *hook = example_hook_of(e->op->name);
    if (hook && hook->canonical) hook->canonical(e, sum);
    for (int o = 0; o < e->outputs; o++) {
        worst = fmax(worst, compare(e, o, sum[o], letter, ranks));
        free(sum[o]);
    }
    return worst;
}

static void check_letter(example *e, const char *letter, int star, int64_t extent, finding *found) {
    for (int o = 0; o < e->outputs; o++)
        if (example_dim(&e->rule.out[o], letter, star) < 0 && !(e->op->flags & (CT_OP_SUM | CT_OP_MAX)))
            fail_msg("%s: %s may be cut, output %d lacks it, and the op is no sum or maximum", e->op->name, letter, o);
    if (extent < 3) return;
    const int64_t cuts[][4] = {{0, extent / 2, extent}, {0, 1, extent}, {0, extent - 1, extent},
                               {0, 0, extent}, {0, extent, extent},
                               {0, extent / 3, 2 * extent / 3, extent}, {0, 1, 2, extent}, {0, 1, extent - 1, extent}, {0, 1, extent, extent}};
    for (size_t i = 0; i < sizeof cuts / sizeof *cuts; i++)
        found->cut_error = fmax(found->cut_error, check_cut(e, letter, star, cuts[i], i < 5 ? 2 : 3));
}

static void note_letter(finding *found, const char *letter) {
    char word[16];
    snprintf(word, sizeof word, "%s ", letter);
    if (!strstr(found->cuts, word)) snprintf(found->cuts + strlen(found->cuts), sizeof found->cuts - strlen(found->cuts), "%s", word);
}

static void check_seed(example *e, finding *found) {
    example_letter letters[LETTERS_MAX];
    int count = example_letters(e, letters);
    for (int i = 0; i < count; i++) {
        if (letters[i].fixed) continue;
        check_letter(e, letters[i].letter, letters[i].star, letters[i].extent, found);
        note_letter(found, letters[i].letter);
    }
}

void check_cuts(const ct_op *op, finding *found) {
    if (op->check || op->flags & (CT_OP_MOVE | CT_OP_MACRO)) return; // views map dims, moves are cuts, macros become other ops
    for (unsigned seed = 0; seed < SEEDS; seed++) {
        example e;
        example_init(&e, op, CT_F32, SMALL, seed);
        example_run(&e);
        check_seed(&e, found);
        example_deinit(&e);
    }
}
