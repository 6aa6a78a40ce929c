// One cell of the loss matrix: a mesh and the ways of using it, trained for some steps beside one rank.
#pragma once
#include "train/trainer.h"

typedef struct {
    int dp_replicate, dp_shard, cp, tp;
    int no_sp, no_loss_parallel;
    const char *recompute; // activation_checkpoint.mode
    const char *rotate;    // parallelism.context_parallel_rotate_method
    const char *reshard;   // parallelism.fsdp_reshard_after_forward
    const char *dtype;     // training.mixed_precision_param
    int async_tp;
    int pp;                // 0: 1
    const char *schedule;  // parallelism.pipeline_parallel_schedule
    int local_batch;       // sequences of a data rank in one run of the schedule; 0: 1
    int threads;           // a rank
    int per_node;          // ranks of a node, which alone read one another; 0: all
    const char *const *more; // further overrides, NULL-terminated; NULL: none
} mesh_cell;

#define MESH(replicate, shard, c, t) .dp_replicate = (replicate), .dp_shard = (shard), .cp = (c), .tp = (t)

typedef struct {
    int64_t steps;
    double *loss, *norm;
    double flops;      // executed in a step, of all ranks
    double flops_most; // of the rank that executes most
    size_t peak_bytes; // of the largest rank
    size_t bytes[CT_BYTES_KINDS]; // at its peak
} mesh_result;

// Trains a small Llama (24 heads, an odd vocabulary and ffn) on 24 sequences of 96 tokens a step, on threads.
ct_status mesh_run(const mesh_cell *cell, int64_t steps, mesh_result *out);
// Calls `work` on every rank of a cell; *out_config is the cell's configuration meanwhile.
ct_status mesh_on_ranks(const mesh_cell *cell, int64_t steps, ct_rank_main *work, void *context, const ct_config **out_config);
void mesh_result_free(mesh_result *result);
int mesh_ranks(const mesh_cell *cell);
void mesh_print(const mesh_cell *cell, char *text, size_t size);

// Largest relative difference of the losses; *out_same is 1 where losses and norms have the same bits.
double mesh_compare(const mesh_result *a, const mesh_result *b, int *out_same);
