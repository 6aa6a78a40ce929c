#include "matrix.h"
#include "base/file.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MOST_ARGUMENTS = 96 };

typedef struct {
    const ct_config *config;
    mesh_result *result;
} job;

static int pp_of(const mesh_cell *c) { return c->pp ? c->pp : 1; }

int mesh_ranks(const mesh_cell *c) { return pp_of(c) * c->dp_replicate * c->dp_shard * c->cp * c->tp; }

void mesh_print(const mesh_cell *c, char *text, size_t size) {
    char nodes[32] = "";
    char pipeline[64] = "";
    if (c->pp > 1) snprintf(pipeline, sizeof pipeline, "pp %d %s of %d  ", c->pp, c->schedule ? c->schedule : "1F1B", c->local_batch);
    if (c->per_node) snprintf(nodes, sizeof nodes, "  nodes of %d", c->per_node);
    snprintf(text, size, "%srep %d  shard %d  cp %d  tp %d%s%s%s%s%s%s%s%s%s", pipeline, c->dp_replicate, c->dp_shard, c->cp, c->tp, c->no_sp ? "  no sp" : "",
             c->no_loss_parallel ? "  no loss-parallel" : "", c->recompute ? "  ac " : "", c->recompute ? c->recompute : "",
             c->rotate ? "  ring" : "", c->reshard ? "  reshard " : "", c->reshard ? c->reshard : "", c->async_tp ? "  async tp" : "", nodes);
}

static ct_status measure(const job *j, ct_comm *comm, const ct_trainer *trainer) {
    mesh_result *r = j->result;
    const ct_plan *plan = ct_trainer_plan(trainer);
    int data_ranks = ct_mesh_data_ranks(ct_step_mesh(ct_trainer_step_made(trainer)));
    double flops = ct_step_flops(ct_trainer_step_made(trainer), 24 / data_ranks);
    int64_t sum = (int64_t)flops, most = (int64_t)flops, peak = (int64_t)plan->peak_bytes;
    CT_TRY(ct_comm_sum_i64(comm, &sum, 1));
    CT_TRY(ct_comm_max_i64(comm, &most, 1));
    CT_TRY(ct_comm_max_i64(comm, &peak, 1));
    if (ct_comm_rank(comm)) return CT_OK;
    r->flops = (double)sum;
    r->flops_most = (double)most;
    r->peak_bytes = (size_t)peak;
    memcpy(r->bytes, plan->programs[plan->peak_program].peak_kinds, sizeof r->bytes);
    return CT_OK;
}

static ct_status run_rank(void *context, ct_comm *comm) {
    job *j = context;
    ct_trainer *trainer;
    CT_TRY(ct_trainer_create(j->config, comm, &trainer));
    ct_status status = measure(j, comm, trainer);
    for (int64_t s = 0; s < j->result->steps && !status; s++) {
        ct_step_report report;
        status = ct_trainer_step(trainer, &report);
        if (status || ct_comm_rank(comm)) continue;
        j->result->loss[s] = report.loss;
        j->result->norm[s] = report.grad_norm;
    }
    ct_trainer_destroy(trainer);
    return status;
}

static ct_status load(const mesh_cell *c, int64_t steps, ct_arena *arena, ct_config **out) {
    char *argv[MOST_ARGUMENTS];
    int argc = 0;
#define GIVE(key, ...) argv[argc++] = (char *)(key), argv[argc++] = ct_arena_format(arena, __VA_ARGS__)
    GIVE("--training.seq_len", "96");
    GIVE("--training.local_batch_size", "%d", c->local_batch ? c->local_batch : 1);
    GIVE("--training.global_batch_size", "24");
    GIVE("--training.steps", "%lld", (long long)(steps > 24 ? steps : 24));
    GIVE("--training.threads", "%d", c->threads ? c->threads : 1);
    GIVE("--training.mixed_precision_param", "%s", c->dtype ? c->dtype : "float32");
    GIVE("--model.args.dim", "96");
    GIVE("--model.args.n_heads", "24");
    GIVE("--model.args.hidden_dim", "163");
    GIVE("--model.args.vocab_size", "515");
    GIVE("--parallelism.pipeline_parallel_degree", "%d", pp_of(c));
    if (c->schedule) GIVE("--parallelism.pipeline_parallel_schedule", "%s", c->schedule);
    GIVE("--parallelism.data_parallel_replicate_degree", "%d", c->dp_replicate);
    GIVE("--parallelism.data_parallel_shard_degree", "%d", c->dp_shard);
    GIVE("--parallelism.context_parallel_degree", "%d", c->cp);
    GIVE("--parallelism.tensor_parallel_degree", "%d", c->tp);
    GIVE("--activation_checkpoint.mode", "%s", c->recompute ? c->recompute : "none");
    if (c->rotate) GIVE("--parallelism.context_parallel_rotate_method", "%s", c->rotate);
    if (c->reshard) GIVE("--parallelism.fsdp_reshard_after_forward", "%s", c->reshard);
#undef GIVE
    if (c->no_sp) argv[argc++] = "--parallelism.no_enable_sequence_parallel";
    if (c->no_loss_parallel) argv[argc++] = "--parallelism.disable_loss_parallel";
    if (c->async_tp) argv[argc++] = "--parallelism.enable_async_tensor_parallel";
    argv[argc++] = "--checkpoint.no_enable";
    for (int i = 0; c->more && c->more[i]; i++) argv[argc++] = (char *)c->more[i];
    char *path = ct_arena_format(arena, "%s/tests/train/fixtures/titan/base/config.toml", CT_SOURCE_DIR);
    CT_TRY(ct_config_load(arena, path, argc, argv, out));
    return ct_config_check_train(*out, NULL, NULL);
}

ct_status mesh_on_ranks(const mesh_cell *c, int64_t steps, ct_rank_main *work, void *context, const ct_config **out_config) {
    if (chdir(CT_SOURCE_DIR)) return ct_error_make(CT_IO, __FILE__, __LINE__, "cannot go to %s", CT_SOURCE_DIR);
    char dump[] = "/tmp/ct_mesh_XXXXXX";
    if (!mkdtemp(dump)) return ct_error_make(CT_IO, __FILE__, __LINE__, "no temporary folder");
    ct_arena arena = {0};
    ct_config *config;
    ct_status status = load(c, steps, &arena, &config);
    if (!status) {
        config->job.dump_folder = dump;
        *out_config = config;
        status = ct_comm_run_threads(mesh_ranks(c), &(ct_comm_options){.ranks_per_node = c->per_node}, work, context);
    }
    ct_arena_deinit(&arena);
    ct_status removed = ct_folder_remove(dump);
    return status ? status : removed;
}

ct_status mesh_run(const mesh_cell *c, int64_t steps, mesh_result *out) {
    *out = (mesh_result){.steps = steps, .loss = ct_calloc((size_t)steps, sizeof(double)), .norm = ct_calloc((size_t)steps, sizeof(double))};
    job j = {.result = out};
    return mesh_on_ranks(c, steps, run_rank, &j, &j.config);
}

void mesh_result_free(mesh_result *r) {
    free(r->loss);
    free(r->norm);
    *r = (mesh_result){0};
}

double mesh_compare(const mesh_result *a, const mesh_result *b, int *out_same) {
    double worst = 0;
    *out_same = 1;
    for (int64_t s = 0; s < a->steps; s++) {
        double error = fabs(a->loss[s] - b->loss[s]) / fabs(a->loss[s]);
        worst = error <= worst ? worst : error; // a NaN is the worst
        *out_same &= a->loss[s] == b->loss[s] && a->norm[s] == b->norm[s];
    }
    return worst;
}
