// Programs that placement has never seen, drawn from a seed: feed-forward parts, attention, norms, embeddings, losses, with the backward ops of each
// on any values that fit; and, for whoever asks, a gradient of everything by autodiff, the optimizer, caches and attention in blocks.
#pragma once
#include "ranks.h"
#include "parallel/place.h"

typedef enum {
    DRAW_TRAINING = 0, // what a micro program is made of
    DRAW_GRADIENTS = 1, // and the gradients of a loss with respect to every weight that it depends on
    DRAW_ALL = 2,       // and every other op
} draw_what;

// A verified program of global types. Caller deinits.
void draw_program(ct_graph *out_graph, uint64_t seed, unsigned what);

// Numbers for all inputs of a drawn program, or of what passes made of one.
void draw_inputs(const ct_graph *graph, ct_reference_values *values);

// Seeds random numbers again; draw_program does, too.
void draw_seed(uint64_t seed);

// A random number below n, by the state that draw_program seeded.
int draw_below(int n);

// A random mesh of so many ranks and ways of using it, by the roles of dense parallelism. 0: heads, batches and sequences of DRAW_TRAINING and
// DRAW_GRADIENTS don't divide by it.
int draw_parallel(int ranks, ct_parallel *out_parallel);

// Places a drawn program as training does: keys in a ring, the loss in chunks and placed again, sums that go on in their accumulators. Caller deinits.
ct_status draw_place(const ct_graph *drawn, const ct_parallel *parallel, ct_graph *out_placed);

// Gives the ranks of a placed program, made of the drawn one, their parts of the numbers that the drawn one's inputs have in `alone`.
void draw_scatter(const ct_graph *drawn, const ct_reference_values *alone, all_ranks *ranks);

// Fails the test where an output or a new state, put together, differs from the drawn one's in `alone` by more than tolerance × the tensor's
// largest number (0.01 at the least); by 2^-8 more where a value is bf16 and the tolerance not that of a run in double. Returns the largest such
// difference of the others.
double draw_compare(const ct_graph *drawn, const ct_reference_values *alone, const all_ranks *ranks, double tolerance, const char *where);

// Both, and between them a run of the program in double.
void draw_check(const ct_graph *drawn, const ct_reference_values *alone, all_ranks *ranks, double tolerance, const char *where);
