// Programs that placement has never seen, drawn from a seed: feed-forward parts, attention, norms, embeddings, losses, with the backward ops of each
// on any values that fit; and, for whoever asks, a gradient of everything by autodiff, the optimizer, caches and attention in blocks.
#pragma once
#include "ranks.h"

typedef enum {
    DRAW_TRAINING = 0, // what a micro program is made of
    DRAW_GRADIENTS = 1, // and the gradients of a loss with respect to every weight that it depends on
    DRAW_ALL = 2,       // and every other op
} draw_what;

// A verified program of global types. Caller deinits.
void draw_program(ct_graph *out_graph, uint64_t seed, unsigned what);

// Numbers for all inputs of a drawn program, or of what passes made of one.
void draw_inputs(const ct_graph *graph, ct_reference_values *values);

// A random number below n, by the state that draw_program seeded.
int draw_below(int n);

// Runs a placed program, made of the drawn one, on all its ranks, from the numbers that the drawn one's inputs have in `alone`, and fails the
// test where an output or a new state differs from the drawn one's there by more than tolerance × the tensor's largest number.
void draw_check(const ct_graph *drawn, const ct_reference_values *alone, all_ranks *ranks, double tolerance, const char *where);
