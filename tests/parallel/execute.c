// One thread a rank, each with its own plan of its own part of the program, as ct_trainer has it; numbers go in and out by the names that plans give them.
#include "execute.h"
#include "exec/exec.h"

#include <stdlib.h>
#include <string.h>

ct_near execution_near(const execution *how, int ranks, int rank) {
    int per_node = how->per_node > 0 && how->per_node < ranks ? how->per_node : ranks, first = rank / per_node * per_node;
    return (ct_near){first, first + per_node <= ranks ? per_node : ranks - first, per_node};
}

static void store(void *to, ct_dtype dtype, const double *from, int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        if (dtype == CT_F32) ((float *)to)[i] = (float)from[i];
        else if (dtype == CT_F64) ((double *)to)[i] = from[i];
        else if (dtype == CT_I32) ((int32_t *)to)[i] = (int32_t)from[i];
        else ((int64_t *)to)[i] = (int64_t)from[i];
    }
}

static void load(double *to, ct_dtype dtype, const void *from, int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        if (dtype == CT_F32) to[i] = ((const float *)from)[i];
        else if (dtype == CT_F64) to[i] = ((const double *)from)[i];
        else if (dtype == CT_BF16) to[i] = ct_f32_from_bf16(((const uint16_t *)from)[i]);
        else if (dtype == CT_I32) to[i] = ((const int32_t *)from)[i];
        else to[i] = (double)((const int64_t *)from)[i];
    }
}

// Feeds and outputs are named with their program, states without.
static void *data_of(ct_exec *exec, const ct_graph *g, const char *name, int is_state) {
    char *full = is_state ? ct_strdup(name) : ct_format("%s:%s", g->name, name);
    void *data = ct_exec_data(exec, full);
    free(full);
    CT_ASSERT(data, "the plan has no %s", name);
    return data;
}

static ct_status run_once(ct_exec *exec, const ct_graph *g, ct_reference_values *values) {
    for (int i = 0; i < g->inputs_count; i++) {
        const ct_type *type = &g->values[g->inputs[i].value].type;
        store(data_of(exec, g, g->inputs[i].name, g->inputs[i].kind != CT_FEED), type->dtype, values->values[g->inputs[i].value], ct_type_elems(type));
    }
    CT_TRY(ct_exec_run(exec, CT_PROGRAM_MICRO));
    for (int i = 0; i < g->outputs_count; i++) {
        const ct_type *type = &g->values[g->outputs[i].value].type;
        load(values->values[g->outputs[i].value], type->dtype, data_of(exec, g, g->outputs[i].name, 0), ct_type_elems(type));
    }
    for (int i = 0; i < g->inputs_count; i++) {
        if (g->inputs[i].update < 0) continue;
        const ct_type *type = &g->values[g->inputs[i].update].type;
        load(values->values[g->inputs[i].update], type->dtype, data_of(exec, g, g->inputs[i].name, 1), ct_type_elems(type));
    }
    return CT_OK;
}

typedef struct {
    all_ranks *ranks;
    execution how;
} execution_job;

static ct_status run_rank(void *context, ct_comm *comm) {
    const execution_job *job = context;
    int rank = ct_comm_rank(comm);
    const ct_graph *g = &job->ranks->local[rank], *programs[CT_PROGRAMS] = {[CT_PROGRAM_MICRO] = g};
    ct_plan plan;
    ct_team *team = NULL;
    ct_exec *exec = NULL;
    CT_TRY(ct_plan_make(programs,
                        (ct_plan_options){.threads = job->how.threads, .near = execution_near(&job->how, job->ranks->ranks, rank), .in_parts = job->how.in_parts},
                        &plan));
    ct_status status = ct_team_create((ct_team_options){.threads = job->how.threads, .first_core = -1, .never_spin = 1}, &team);
    if (!status) status = ct_exec_create(&plan, team, (ct_exec_options){.lazy = 1, .poison = 1, .comm = comm}, &exec);
    if (!status) status = run_once(exec, g, &job->ranks->values[rank]);
    ct_exec_destroy(exec);
    ct_team_destroy(team);
    ct_plan_deinit(&plan);
    return status;
}

ct_status ranks_execute(all_ranks *ranks, execution how) {
    if (how.threads < 1) how.threads = 1;
    execution_job job = {ranks, how};
    ct_comm_options options = {.ranks_per_node = how.per_node, .init_timeout_s = 60, .train_timeout_s = 60};
    return ct_comm_run_threads(ranks->ranks, &options, run_rank, &job);
}
