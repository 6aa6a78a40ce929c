// What the files of the explainer share.
#pragma once
#include "train/explain.h"

typedef struct {
    ct_program program;
    unsigned axes;      // mask of mesh axes that the ranks reach one another over
    const char *kind;   // all_gather, reduce_scatter, all_reduce, all_to_all, send_recv
    const char *module; // whose reader wanted it; borrowed
    ct_phase phase;
    ct_dtype dtype;
    double bytes;       // the whole tensor of a group, in one call
    double moved_bytes; // that come to this rank from others, in one call
    int64_t count;      // calls a step
    double overlapped_flops; // that this rank computes while one call is under way; 0: it waits for it
    const char *lowering; // copy: read where a peer wrote it; mpi: sent
} ct_collective;

// All of a step, in the order of the programs. Caller frees.
int ct_collectives_list(const ct_step *step, const ct_step_options *options, int64_t micro_batches, ct_collective **out_list);
void ct_collectives_print(const ct_step *step, const ct_step_options *options, int64_t micro_batches, ct_string *out);
void ct_collectives_json(const ct_step *step, const ct_step_options *options, int64_t micro_batches, ct_string *out);
void ct_collective_axes(const ct_mesh *mesh, unsigned axes, const char *before, const char *between, const char *after, ct_string *out);

double ct_pipeline_flops(const ct_step *step); // of a micro-batch, on one rank of each stage
void ct_pipeline_print(const ct_step *step, const ct_schedule *schedule, double flops_per_s, ct_string *out);
void ct_pipeline_json(const ct_step *step, const ct_schedule *schedule, ct_string *out);
void ct_stages_json(const ct_step *step, ct_string *out); // the items of "stages"

void ct_choices_print(const ct_choices *choices, const ct_mesh *mesh, int all, ct_string *out);
void ct_choices_json(const ct_choices *choices, const ct_mesh *mesh, ct_string *out);

void ct_module_without_number(const char *module, char *out, size_t size); // "layers.7.attention.wq" → "layers.*.attention.wq"
void ct_bytes_text(double bytes, char *out, size_t size); // "1.25 GB"
