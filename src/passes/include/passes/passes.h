// Passes: each reads one graph and writes another. A pass sees graph and ops, never a model or another pass; the order in which they
// run stands in train/step.c.
#pragma once
#include "graph/graph.h"

// Low precision: every parameter that an op reads in the compute dtype is read from a state of kind weight-lowp named
// "<parameter>.bf16" instead, and all that follows takes that dtype by inference. With compute = f32 the graph is copied as it is.
ct_status ct_pass_precision(const ct_graph *from, ct_dtype compute, ct_graph *to);

// The program that refreshes those states: one cast for each weight-lowp input of `readers`, and nothing but a move for one that is only gathered
// ("<parameter>.whole", "<parameter>.bf16.whole").
ct_status ct_pass_prologue(const ct_graph *const *readers, int count, ct_graph *to);

// The program that adds up over the ranks, once a step, what these placed programs have piled up: a new state "<gradient>.sum" for each of their
// accumulators that is a partial sum; placement moves it. Their other accumulators are its inputs, unread.
ct_status ct_pass_reduce(const ct_graph *const *writers, int count, ct_graph *to);
#define CT_SUM_SUFFIX ".sum"

// Expands lm_loss into chunks of at most chunk_tokens tokens (whole rows, or parts of one row): logits of a chunk, loss, and, where
// they are used, its dh and its part of dW, in the same visit. No chunk outlives the next but for dW's running sum.
ct_status ct_pass_expand_loss(const ct_graph *from, int64_t chunk_tokens, ct_graph *to);

// What an op made is made again by its gradient where only weight gradients read it behind the forward, and those follow the gradient: it is not kept
// meanwhile. On a placed joint graph; bits are the same.
ct_status ct_pass_again(const ct_graph *from, ct_graph *to);

// Drops nodes whose outputs nobody reads and inputs that are neither read nor updated.
ct_status ct_pass_prune(const ct_graph *from, ct_graph *to);

// Activation checkpointing on the joint graph: what the backward of a recomputed layer reads of its forward is computed again
// (phase recompute) from the layer's inputs, next to its first reader. Bits are those of not recomputing.
typedef enum { CT_RECOMPUTE_NONE, CT_RECOMPUTE_FULL, CT_RECOMPUTE_EVERY, CT_RECOMPUTE_OP } ct_recompute_mode;
typedef struct {
    ct_recompute_mode mode;
    int every; // CT_RECOMPUTE_EVERY: layers with (index % every) == 0 are recomputed
    int regather; // weights gathered from other ranks are gathered again for the backward
} ct_recompute_options; // CT_RECOMPUTE_OP: attention and every other matmul of a layer are kept, the rest is recomputed
ct_status ct_pass_recompute(const ct_graph *from, ct_recompute_options options, ct_graph *to);

// A weight gradient that is only accumulated goes into the accumulator in its kernel's epilogue (the same bits).
ct_status ct_pass_fuse_accumulate(const ct_graph *from, ct_graph *to);
