// From [parallelism] to a pipeline: the schedule, which modules each stage has, which stages are this rank's.
#include "train/pipeline.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

static const char *schedule_name(ct_cfg_schedule schedule) {
    switch (schedule) {
    case CT_CFG_GPIPE: return "GPipe";
    case CT_CFG_1F1B: return "1F1B";
    case CT_CFG_LOOPED_BFS: return "LoopedBFS";
    case CT_CFG_INTERLEAVED_1F1B: return "Interleaved1F1B";
    case CT_CFG_INTERLEAVED_ZERO_BUBBLE: return "InterleavedZeroBubble";
    case CT_CFG_ZBV_ZERO_BUBBLE: return "ZBVZeroBubble";
    case CT_CFG_DUAL_PIPE_V: return "DualPipeV";
    case CT_CFG_AUTO: return "Auto";
    default: return NULL;
    }
}

static int is_single(ct_cfg_schedule schedule) { return schedule == CT_CFG_GPIPE || schedule == CT_CFG_1F1B; }

// ---- stages of a rank ----
static ct_status count_stages(const ct_config *config, int64_t layers, int *out_local) {
    const ct_config_parallelism *c = &config->parallelism;
    int64_t pp = c->pipeline_parallel_degree, stages = pp * (is_single(c->pipeline_parallel_schedule) ? 1 : 2);
    const char *key = "parallelism.pipeline_parallel_schedule";
    if (c->module_fqns_per_model_part.count > 0) {
        key = "parallelism.module_fqns_per_model_part";
        stages = c->module_fqns_per_model_part.count;
    } else if (c->pipeline_parallel_layers_per_stage.has) {
        key = "parallelism.pipeline_parallel_layers_per_stage";
        int64_t per = c->pipeline_parallel_layers_per_stage.value;
        stages = (layers + c->pipeline_parallel_first_stage_less_layers + c->pipeline_parallel_last_stage_less_layers + per - 1) / per;
    }
    CT_CHECK(stages % pp == 0 && stages >= pp, CT_INVALID, "%s: %s makes %lld stages: a multiple of pipeline_parallel_degree = %lld is wanted",
             ct_config_origin_text(config, key), key, (long long)stages, (long long)pp);
    CT_CHECK(stages / pp <= CT_MOST_STAGES, CT_INVALID, "%s: %s makes %lld stages a rank: at most %d are possible", ct_config_origin_text(config, key), key,
             (long long)(stages / pp), CT_MOST_STAGES);
    *out_local = (int)(stages / pp);
    return CT_OK;
}

// ---- modules of a stage ----
typedef struct {
    ct_arena *arena;
    const char **names;
    int count;
} name_list;

static void add_name(name_list *l, const char *name) { l->names[l->count++] = name; }

// Layers are dealt out so that each stage has as much; the embedding counts for so many of them, and so does the head.
static ct_status deal_layers(ct_arena *arena, const ct_config *config, const ct_model *model, int stages, const char *const **out) {
    const ct_config_parallelism *c = &config->parallelism;
    int64_t first = c->pipeline_parallel_first_stage_less_layers, last = c->pipeline_parallel_last_stage_less_layers, layers = model->shape.n_layers;
    int64_t all = layers + first + last, each = all / stages, more = all % stages, next = 0;
    CT_CHECK(each >= 1 && each + (more > 0) >= first && each >= last, CT_INVALID,
             "%d pipeline stages for %lld layers, %lld for the embedding and %lld for the head: stages of %lld are too small for that", stages, (long long)layers,
             (long long)first, (long long)last, (long long)each);
    for (int s = 0; s < stages; s++) {
        int64_t here = each + (s < more) - (s == 0 ? first : 0) - (s == stages - 1 ? last : 0);
        name_list l = {arena, CT_ARENA_ARRAY(arena, const char *, here + 4), 0};
        if (s == 0) add_name(&l, "tok_embeddings");
        for (int64_t i = 0; i < here; i++) add_name(&l, ct_arena_format(arena, "layers.%lld", (long long)next++));
        if (s == stages - 1) add_name(&l, "norm"), add_name(&l, "output");
        out[s] = l.names;
    }
    return CT_OK;
}

static void copy_lists(ct_arena *arena, const ct_string_lists *lists, const char *const **out) {
    for (int s = 0; s < lists->count; s++) {
        name_list l = {arena, CT_ARENA_ARRAY(arena, const char *, lists->items[s].count + 1), 0};
        for (int i = 0; i < lists->items[s].count; i++) add_name(&l, lists->items[s].items[i]);
        out[s] = l.names;
    }
}

// Every parameter belongs to one module of the lists.
static ct_status check_parameters(const ct_config *config, const ct_model *model, const char *const *const *modules, int stages) {
    for (int i = 0; i < model->parameters_count; i++) {
        const char *name = model->parameters[i].name;
        int found = 0;
        for (int s = 0; s < stages; s++)
            for (int k = 0; modules[s][k]; k++) {
                size_t n = strlen(modules[s][k]);
                found |= !strncmp(name, modules[s][k], n) && name[n] == '.';
            }
        CT_CHECK(found, CT_INVALID, "%s: no pipeline stage has the module of %s", ct_config_origin_text(config, "parallelism.module_fqns_per_model_part"), name);
    }
    return CT_OK;
}

// ---- the whole ----
int64_t ct_pipeline_micros(const ct_config *config) {
    const ct_config_parallelism *c = &config->parallelism;
    return c->pipeline_parallel_degree > 1 ? config->training.local_batch_size / c->pipeline_parallel_microbatch_size : 1;
}

static ct_status set_modules(ct_arena *arena, const ct_config *config, const ct_model *model, int stages, ct_step_options *options) {
    const char *const **modules = CT_ARENA_ARRAY(arena, const char *const *, stages + 1);
    const ct_string_lists *lists = &config->parallelism.module_fqns_per_model_part;
    CT_CHECK(lists->count == 0 || lists->count == stages, CT_INVALID, "%s: %d lists of modules for %d pipeline stages",
             ct_config_origin_text(config, "parallelism.module_fqns_per_model_part"), lists->count, stages);
    if (lists->count > 0) copy_lists(arena, lists, modules);
    else CT_TRY(deal_layers(arena, config, model, stages, modules));
    CT_TRY(check_parameters(config, model, modules, stages));
    options->pipeline.stages = stages;
    options->pipeline.modules = modules;
    return CT_OK;
}

// Seconds of each stage, measured, or as a machine has them that does 1 TFLOP/s.
static ct_status find_costs(ct_arena *arena, const ct_config *config, const ct_model *model, const ct_step_options *options, ct_stage_cost *out) {
    const char *path = config->parallelism.pipeline_parallel_costs_csv;
    if (path[0]) return ct_schedule_read_costs(path, options->pipeline.stages, out);
    ct_stage_figures *figures;
    CT_TRY(ct_step_figures(arena, model, options, &figures));
    for (int s = 0; s < options->pipeline.stages; s++) {
        const double *flops = figures[s].flops;
        out[s] = (ct_stage_cost){1e-12 * flops[CT_PART_FORWARD], 1e-12 * flops[CT_PART_INPUT_GRAD], 1e-12 * flops[CT_PART_WEIGHT_GRAD], 1};
    }
    return CT_OK;
}

static ct_status make_auto(ct_arena *arena, const ct_config *config, const ct_model *model, int local, ct_step_options *options, ct_schedule *out) {
    const ct_config_parallelism *c = &config->parallelism;
    int pp = (int)c->pipeline_parallel_degree, stages = pp * local;
    CT_CHECK(c->pipeline_parallel_slots <= INT_MAX, CT_INVALID, "parallelism.pipeline_parallel_slots = %lld: so many are not possible",
             (long long)c->pipeline_parallel_slots);
    ct_stage_cost *costs = CT_ARENA_ARRAY(arena, ct_stage_cost, stages);
    CT_TRY(set_modules(arena, config, model, stages, options));
    CT_TRY_AS(find_costs(arena, config, model, options, costs), "%s: costs of the pipeline's stages",
              ct_config_origin_text(config, "parallelism.pipeline_parallel_costs_csv"));
    CT_TRY_AS(ct_schedule_auto(pp, local, (int)ct_pipeline_micros(config), costs, 0, (int)c->pipeline_parallel_slots, out),
              "%s: parallelism.pipeline_parallel_slots = %lld",
              ct_config_origin_text(config, "parallelism.pipeline_parallel_slots"), (long long)c->pipeline_parallel_slots);
    return CT_OK;
}

static ct_status make_compute(ct_arena *arena, const ct_config *config, const ct_model *model, ct_step_options *options, ct_schedule *out) {
    const ct_config_parallelism *c = &config->parallelism;
    const char *name = schedule_name(c->pipeline_parallel_schedule);
    int local, pp = (int)c->pipeline_parallel_degree, micros = (int)ct_pipeline_micros(config);
    if (name) {
        CT_TRY(count_stages(config, model->shape.n_layers, &local));
        if (c->pipeline_parallel_schedule == CT_CFG_AUTO) return make_auto(arena, config, model, local, options, out);
        return ct_schedule_make(name, pp, local, micros, out);
    }
    CT_CHECK(c->pipeline_parallel_schedule_csv[0], CT_INVALID, "such a schedule comes from a file: parallelism.pipeline_parallel_schedule_csv is wanted");
    return ct_schedule_read_csv(c->pipeline_parallel_schedule_csv, pp, micros, out);
}

static ct_status make_schedule(ct_arena *arena, const ct_config *config, const ct_model *model, ct_step_options *options, ct_schedule *out) {
    const ct_config_parallelism *c = &config->parallelism;
    CT_CHECK(config->training.local_batch_size % c->pipeline_parallel_microbatch_size == 0, CT_INVALID,
             "%s: training.local_batch_size = %lld is not a multiple of pipeline_parallel_microbatch_size = %lld",
             ct_config_origin_text(config, "training.local_batch_size"), (long long)config->training.local_batch_size,
             (long long)c->pipeline_parallel_microbatch_size);
    ct_schedule compute;
    CT_TRY_AS(make_compute(arena, config, model, options, &compute), "%s", ct_config_origin_text(config, "parallelism.pipeline_parallel_schedule"));
    ct_status status = ct_schedule_verify(&compute);
    if (status) status = ct_error_note(status, "%s", c->pipeline_parallel_schedule_csv[0] ? c->pipeline_parallel_schedule_csv : compute.name);
    if (!status) status = ct_schedule_lower(&compute, out);
    ct_schedule_deinit(&compute);
    return status;
}

ct_status ct_setup_pipeline(ct_arena *arena, const ct_config *config, const ct_model *model, ct_step_options *options, ct_schedule *out) {
    int pp = ct_mesh_find(&options->parallel.mesh, "pp");
    *out = (ct_schedule){0};
    if (pp < 0) return CT_OK;
    CT_TRY(make_schedule(arena, config, model, options, out));
    if (!options->pipeline.modules) CT_TRY(set_modules(arena, config, model, out->stages, options));
    options->pipeline.joint = 1;
    for (int r = 0; r < out->ranks; r++)
        for (int i = 0; i < out->of[r].count; i++) options->pipeline.joint &= out->of[r].list[i].act != CT_ACT_I;
    int mine = ct_mesh_coord(&options->parallel.mesh, options->rank, pp), *counts = CT_ARENA_ARRAY(arena, int, out->stages * CT_POOLS);
    ct_schedule_slots(out, counts, CT_ARENA_ARRAY(arena, int, out->stages * out->micros * CT_POOLS));
    for (int s = 0; s < out->stages; s++) {
        if (out->rank_of[s] != mine) continue;
        CT_CHECK(options->pipeline.local_count < CT_MOST_STAGES, CT_INVALID, "more than %d pipeline stages on a rank", CT_MOST_STAGES);
        memcpy(options->plan.slots[options->pipeline.local_count], counts + s * CT_POOLS, sizeof options->plan.slots[0]);
        options->pipeline.local[options->pipeline.local_count++] = s;
    }
    return CT_OK;
}
