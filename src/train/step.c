// The order of things: model → autodiff → precision → placement → loss chunks (and their placement) → recomputation → fusion → pruning →
// one rank's program → plan. Every graph is verified where it is made; passes write a fresh graph each, and only the last one stays.
#include "train/step.h"
#include "autodiff/autodiff.h"
#include "base/wide.h"
#include "graph/local.h"
#include "graph/op.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_CHUNKS = 2048 }; // of a micro-batch: a graph stays small whatever its extents

static int64_t chunk_tokens(const ct_model *model, const ct_step_options *options, int64_t tokens) {
    if (options->loss_chunk_tokens > 0) return options->loss_chunk_tokens;
    int64_t most = (64 << 20) / model->shape.vocab_size, chunk = 1024; // logits of a chunk: 256 MB at the most
    while (chunk > 64 && chunk > most) chunk /= 2;
    while (tokens / chunk > MOST_CHUNKS) chunk *= 2;
    return chunk;
}

// Replaces *graph by what a pass makes of it.
#define PASS(graph, call)                                                                                              \
    do {                                                                                                               \
        ct_graph after_ = {0};                                                                                         \
        ct_status status_ = (call);                                                                                    \
        ct_graph_deinit(graph);                                                                                        \
        *(graph) = after_;                                                                                             \
        if (status_) return status_;                                                                                   \
    } while (0)

static ct_status verified(const ct_graph *graph) {
    CT_TRY(ct_graph_status(graph));
    return ct_graph_verify(graph);
}

// The sum of the token losses, exact and order-free, in the state "loss_sum".
static void sum_loss(ct_graph *g) {
    ct_dim W = ct_dim_make("W", CT_WIDE_DIGITS);
    int output = ct_graph_find_output(g, "token_loss"), first = ct_graph_find_input(g, "first");
    if (output < 0) return;
    ct_graph_role(g, "W", CT_ROLE_NONE);
    ct_value flag = first >= 0 ? (ct_value){g->inputs[first].value}
                               : ct_build_input(g, CT_FEED, "first", ct_type_make(CT_I32, 0, NULL));
    ct_graph_at(g, CT_FORWARD, -1, "loss");
    ct_value acc = ct_build_input(g, CT_STATE, "loss_sum", ct_type_make(CT_I64, 1, &W));
    ct_build_update(g, acc, ct_wide_sum(g, (ct_value){g->outputs[output].value}, acc, flag, 0));
    g->outputs_count = 0;
}

static int64_t data_ranks(const ct_step_options *o) { return ct_mesh_data_ranks(&o->parallel.mesh); }

// Placement, the loss in chunks of what a rank has of it, and the placement of those.
static ct_status place(const ct_model *model, const ct_step_options *o, int64_t tokens, const ct_graph *states, ct_graph *g) {
    PASS(g, ct_place(g, &o->parallel, CT_PLACE_BOUND, states, &after_));
    CT_TRY_AS(verified(g), "after placement");
    if (o->parallel.ring) PASS(g, ct_place_ring(g, "cp", &after_));
    PASS(g, ct_pass_expand_loss(g, chunk_tokens(model, o, tokens), &after_));
    PASS(g, ct_place(g, &o->parallel, CT_PLACE_BOUND, states, &after_));
    CT_TRY_AS(verified(g), "after the loss was expanded");
    return CT_OK;
}

static ct_status overlap(const ct_step_options *o, const ct_graph *from, ct_graph *to) {
    return ct_place_overlap(from, o->plan.no_overlap ? (ct_near){0} : o->plan.near, o->plan.in_parts, to);
}

// Without the order of moves, which is each program's own matter.
static ct_status make_joint(const ct_model *model, const ct_step_options *o, ct_graph *g) {
    ct_graph_init(g, "micro");
    CT_TRY(ct_model_build(model, g, (ct_build_options){.batch = o->batch * data_ranks(o), .seq_len = o->seq_len, .kind = CT_BUILD_LOSS}));
    CT_TRY_AS(verified(g), "as built");
    CT_TRY(ct_autodiff_apply(g, "token_loss"));
    sum_loss(g);
    CT_TRY_AS(verified(g), "after autodiff");
    PASS(g, ct_pass_precision(g, o->compute, &after_));
    CT_TRY(place(model, o, o->batch * o->seq_len, NULL, g));
    PASS(g, ct_pass_again(g, &after_));
    if (o->pipeline.stages && !o->recompute.regather) PASS(g, ct_place_hoist(g, &after_)); // a pipeline's micro-batches share what is gathered
    PASS(g, ct_pass_recompute(g, o->recompute, &after_));
    PASS(g, ct_pass_fuse_accumulate(g, &after_));
    PASS(g, ct_pass_prune(g, &after_));
    CT_TRY_AS(verified(g), "after all passes");
    return CT_OK;
}

static ct_status finish(const ct_step_options *o, ct_graph *g) {
    PASS(g, overlap(o, g, &after_));
    return verified(g);
}

static ct_status make_forward(const ct_model *model, const ct_step_options *o, ct_build_options build, const char *name,
                              const ct_graph *states, ct_graph *g) {
    ct_graph_init(g, name);
    CT_TRY(ct_model_build(model, g, build));
    if (build.kind == CT_BUILD_LOSS) sum_loss(g);
    PASS(g, ct_pass_precision(g, o->compute, &after_));
    CT_TRY(place(model, o, build.batch * build.seq_len, states, g));
    PASS(g, ct_pass_prune(g, &after_));
    return verified(g);
}

static ct_status make_eval(const ct_model *model, const ct_step_options *o, const ct_graph *states, ct_graph *g) {
    ct_build_options build = {.batch = o->eval_batch * data_ranks(o), .seq_len = o->eval_seq_len, .kind = CT_BUILD_LOSS};
    return make_forward(model, o, build, "eval", states, g);
}

static ct_status place_states(const ct_step_options *o, const ct_graph *states, ct_graph *g) {
    PASS(g, ct_place(g, &o->parallel, CT_PLACE_STATES, states, &after_));
    return CT_OK;
}

// ---- a pipeline: the same graph, cut ----
static void list_messages(ct_step *step, const ct_stages *stages, int stage, int boundary, int backward, ct_boundary which, ct_step_messages *out) {
    if (boundary < 0) return;
    int *values = ct_malloc(sizeof(int) * (size_t)(stages->graph->values_count + 1));
    int count = out->counts[which] = ct_stage_messages(stages, boundary, backward, values);
    out->names[which] = CT_ARENA_ARRAY(&step->arena, const char *, count + 1);
    for (int i = 0; i < count; i++) out->names[which][i] = ct_stage_saved_name(&step->arena, stages, stage, values[i]);
    free(values);
}

static ct_status cut_micro(const ct_step_options *o, const ct_stages *stages, int k, ct_step *step) {
    int stage = o->pipeline.local[k];
    for (int part = 0; part < CT_PARTS; part++) {
        int w = ct_stage_program_of(k, part);
        step->has[w] = ct_stage_has(stages, stage, part);
        if (!step->has[w]) continue;
        CT_TRY_AS(ct_stage_program(stages, stage, part, &step->programs[w]), "pipeline stage %d", stage);
        CT_TRY_AS(finish(o, &step->programs[w]), "program %s of pipeline stage %d", step->programs[w].name, stage);
    }
    ct_step_messages *m = &step->messages[k];
    list_messages(step, stages, stage, stage - 1, 0, CT_FROM_BEFORE, m);
    list_messages(step, stages, stage, stage, 0, CT_TO_NEXT, m);
    list_messages(step, stages, stage, stage, 1, CT_FROM_NEXT, m);
    list_messages(step, stages, stage, stage - 1, 1, CT_TO_BEFORE, m);
    return CT_OK;
}

static ct_status cut_eval(const ct_step_options *o, const ct_stages *stages, int k, ct_step *step) {
    int w = ct_stage_program_of(k, CT_PART_EVAL), stage = o->pipeline.local[k];
    step->has[w] = 1;
    CT_TRY_AS(ct_stage_program(stages, stage, CT_PART_FORWARD, &step->programs[w]), "pipeline stage %d", stage);
    CT_TRY_AS(finish(o, &step->programs[w]), "program eval of pipeline stage %d", stage);
    list_messages(step, stages, stage, stage - 1, 0, CT_EVAL_FROM_BEFORE, &step->messages[k]);
    list_messages(step, stages, stage, stage, 0, CT_EVAL_TO_NEXT, &step->messages[k]);
    return CT_OK;
}

static int count_layers(const char *const *modules) {
    int count = 0;
    for (; *modules; modules++) count += !strncmp(*modules, "layers.", 7);
    return count;
}

// What every stage does and keeps, on the rank of it that is this one's neighbour along pp.
static ct_status count_figures(const ct_step_options *o, const ct_stages *stages, ct_step *step) {
    ct_graph local;
    CT_TRY(ct_graph_localise(stages->graph, o->rank, &local));
    step->stages = stages->stages;
    step->figures = CT_ARENA_ARRAY(&step->arena, ct_stage_figures, stages->stages);
    for (int n = 0; n < local.nodes_count; n++)
        if (stages->stage[n] >= 0) {
            int part = stages->part[n] == CT_PART_INPUT_GRAD && local.nodes[n].from.phase == CT_WEIGHT_GRAD ? CT_PART_WEIGHT_GRAD : stages->part[n];
            step->figures[stages->stage[n]].flops[part] += ct_op_cost(&local, &local.nodes[n]).flops;
        }
    int *values = ct_malloc(sizeof(int) * (size_t)(local.values_count + 1));
    for (int s = 0; s < stages->stages; s++) {
        ct_stage_figures *f = &step->figures[s];
        f->layers = count_layers(o->pipeline.modules[s]);
        for (int v = 0; v < local.values_count; v++)
            if (stages->saved[(size_t)v * (size_t)stages->stages + (size_t)s]) f->saved_bytes[ct_stage_life(stages, s, v)] += ct_value_room_bytes(&local, v);
        for (int backward = 0; backward < 2; backward++) {
            int count = s - backward < 0 ? 0 : ct_stage_messages(stages, s - backward, backward, values);
            for (int i = 0; i < count; i++) f->sent_bytes[backward] += (double)ct_value_room_bytes(&local, values[i]);
        }
    }
    free(values);
    ct_graph_deinit(&local);
    return CT_OK;
}

// The stage that piles a gradient up, -1: none.
static int stage_of_gradient(const ct_stages *stages, const char *name) {
    const ct_graph *g = stages->graph;
    int input = ct_graph_find_input(g, name);
    return input < 0 ? -1 : stages->stage[g->values[g->inputs[input].update].node];
}

static void share_gradients(const ct_model *model, const ct_stages *stages, ct_step *step) {
    int count = 0;
    for (int i = 0; i < stages->graph->inputs_count; i++) count += stages->graph->inputs[i].kind == CT_GRADIENT;
    step->shared = CT_ARENA_ARRAY(&step->arena, ct_shared_gradient, count + 1);
    for (int p = 0; p < model->parameters_count; p++) {
        int *users = CT_ARENA_ARRAY(&step->arena, int, stages->stages), users_count = 0, stage;
        for (int use = 0; (stage = stage_of_gradient(stages, ct_gradient_name(&step->arena, model->parameters[p].name, use))) >= 0; use++) {
            int known = 0;
            for (int k = 0; k < users_count; k++) known |= users[k] == stage;
            if (!known) users[users_count++] = stage;
        }
        for (int use = 0; users_count > 1; use++) {
            const char *name = ct_gradient_name(&step->arena, model->parameters[p].name, use);
            if ((stage = stage_of_gradient(stages, name)) < 0) break;
            step->shared[step->shared_count++] = (ct_shared_gradient){name, stage, users, users_count};
        }
    }
}

typedef ct_status cut_fn(const ct_step_options *o, const ct_stages *stages, int k, ct_step *step);

static ct_status cut_all(const ct_model *model, const ct_step_options *o, const ct_graph *whole, cut_fn *cut, ct_step *step) {
    const ct_stage_map map = {o->pipeline.stages, o->pipeline.modules};
    ct_stages stages;
    CT_TRY(ct_stages_find(whole, &map, o->pipeline.joint, &stages));
    ct_status status = CT_OK;
    if (!step->figures) {
        share_gradients(model, &stages, step);
        status = count_figures(o, &stages, step);
    }
    for (int k = 0; k < o->pipeline.local_count && !status; k++) status = cut(o, &stages, k, step);
    ct_stages_deinit(&stages);
    return status;
}

// ---- all programs ----

// Programs of a micro-batch, of a stage (-1: of all). Returns their number.
static int micros_of(const ct_step *step, int k, const ct_graph *out[CT_PROGRAMS]) {
    int count = 0;
    for (int w = 0; w < CT_PROGRAMS; w++) {
        int of = w < CT_PROGRAM_STAGES ? -1 : (w - CT_PROGRAM_STAGES) / CT_STAGE_PROGRAMS;
        if (step->has[w] && ct_program_is_micro((ct_program)w) && (k < 0 || k == of)) out[count++] = &step->programs[w];
    }
    return count;
}

// Makes one of a step's programs out of those of a micro-batch.
static ct_status make_program(const ct_step_options *o, ct_status (*pass)(const ct_graph *const *, int, ct_graph *), const ct_graph *const *micros, int count,
                              const ct_graph *states, int w, ct_step *step) {
    step->has[w] = 1;
    CT_TRY(pass(micros, count, &step->programs[w]));
    CT_TRY(place_states(o, states, &step->programs[w]));
    return finish(o, &step->programs[w]);
}

static ct_status make_prologue(const ct_step_options *o, const ct_graph *reader, ct_step *step) {
    CT_TRY_AS(make_program(o, ct_pass_prologue, &reader, 1, reader, CT_PROGRAM_PROLOGUE, step), "program prologue");
    return CT_OK;
}

// The update, of gradients that `micros` on this rank pile up, or else add up; all ranks' together do as `whole`.
static ct_status make_update(const ct_model *model, const ct_step_options *o, const ct_graph *whole, const ct_graph *const *micros, int count, ct_step *step) {
    step->has[CT_PROGRAM_UPDATE] = 1;
    CT_TRY(ct_step_build_update(model, whole, micros, count, o, &step->programs[CT_PROGRAM_UPDATE]));
    CT_TRY(place_states(o, whole, &step->programs[CT_PROGRAM_UPDATE]));
    return finish(o, &step->programs[CT_PROGRAM_UPDATE]);
}

// What a stage does once a step: its weights gathered, its gradients added up where that is not done for each micro-batch.
static ct_status make_once(const ct_step_options *o, int k, ct_step *step) {
    const ct_graph *micros[CT_PROGRAMS];
    int count = micros_of(step, k, micros);
    CT_TRY_AS(make_program(o, ct_pass_prologue, micros, count, &step->whole_micro, ct_stage_program_of(k, CT_PART_UNSHARD), step), "program unshard");
    if (!o->parallel.reduce_once) return CT_OK;
    CT_TRY_AS(make_program(o, ct_pass_reduce, micros, count, &step->whole_micro, ct_stage_program_of(k, CT_PART_REDUCE), step), "program reduce");
    return CT_OK;
}

static ct_status make_pipeline_update(const ct_model *model, const ct_step_options *o, ct_step *step) {
    const ct_graph *micros[CT_PROGRAMS], *whole = &step->whole_micro;
    int count = micros_of(step, -1, micros);
    if (o->parallel.reduce_once) {
        CT_TRY(ct_pass_reduce(&whole, 1, &step->whole_reduce));
        CT_TRY(place_states(o, whole, &step->whole_reduce));
        for (count = 0; count < o->pipeline.local_count; count++) micros[count] = &step->programs[ct_stage_program_of(count, CT_PART_REDUCE)];
        whole = &step->whole_reduce;
        for (int i = 0; i < step->shared_count; i++) { // what is shared is the sum
            const char *sum = ct_arena_format(&step->arena, "%s%s", step->shared[i].name, CT_SUM_SUFFIX);
            if (ct_graph_find_input(whole, sum) >= 0) step->shared[i].name = sum;
        }
    }
    return make_update(model, o, whole, micros, count, step);
}

static ct_status make_pipeline(const ct_model *model, const ct_step_options *o, ct_step *step) {
    CT_TRY_AS(make_joint(model, o, &step->whole_micro), "program micro");
    CT_TRY(cut_all(model, o, &step->whole_micro, cut_micro, step));
    for (int k = 0; k < o->pipeline.local_count; k++) CT_TRY_AS(make_once(o, k, step), "pipeline stage %d", o->pipeline.local[k]);
    CT_TRY_AS(make_pipeline_update(model, o, step), "program update");
    if (o->eval_batch <= 0) return CT_OK;
    CT_TRY_AS(make_eval(model, o, &step->whole_micro, &step->whole_eval), "program eval");
    return cut_all(model, o, &step->whole_eval, cut_eval, step);
}

ct_status ct_step_figures(ct_arena *arena, const ct_model *model, const ct_step_options *options, ct_stage_figures **out) {
    ct_step step = {0};
    ct_step_options o = *options;
    o.rank = o.pipeline.local_count = o.pipeline.joint = 0;
    o.parallel.choices = NULL;
    ct_status status = make_joint(model, &o, &step.whole_micro);
    if (!status) status = cut_all(model, &o, &step.whole_micro, cut_micro, &step);
    if (!status) {
        *out = CT_ARENA_ARRAY(arena, ct_stage_figures, step.stages);
        memcpy(*out, step.figures, sizeof **out * (size_t)step.stages);
    }
    ct_step_deinit(&step);
    return status;
}

static ct_status make_training(const ct_model *model, const ct_step_options *o, ct_step *step) {
    ct_graph *micro = &step->programs[CT_PROGRAM_MICRO];
    step->has[CT_PROGRAM_MICRO] = 1;
    CT_TRY_AS(make_joint(model, o, micro), "program micro");
    CT_TRY_AS(finish(o, micro), "program micro");
    const ct_graph *const writers[] = {micro};
    CT_TRY_AS(make_update(model, o, micro, writers, 1, step), "program update");
    CT_TRY(make_prologue(o, micro, step));
    if (o->eval_batch <= 0) return CT_OK;
    step->has[CT_PROGRAM_EVAL] = 1;
    CT_TRY_AS(make_eval(model, o, micro, &step->programs[CT_PROGRAM_EVAL]), "program eval");
    CT_TRY_AS(finish(o, &step->programs[CT_PROGRAM_EVAL]), "program eval");
    return CT_OK;
}

static ct_status make_generation(const ct_model *model, const ct_step_options *o, ct_step *step) {
    ct_build_options build = {.batch = 1, .seq_len = 1, .cache_len = o->cache_len, .kind = CT_BUILD_GENERATE};
    ct_graph *generate = &step->programs[CT_PROGRAM_GENERATE];
    step->has[CT_PROGRAM_GENERATE] = 1;
    CT_TRY_AS(make_forward(model, o, build, "generate", NULL, generate), "program generate");
    CT_TRY_AS(finish(o, generate), "program generate");
    return make_prologue(o, generate, step);
}

static ct_status make_programs(const ct_model *model, const ct_step_options *o, ct_step *step) {
    if (o->cache_len > 0) return make_generation(model, o, step);
    return o->pipeline.stages > 0 ? make_pipeline(model, o, step) : make_training(model, o, step);
}

ct_status ct_step_make(const ct_model *model, const ct_step_options *options, ct_step *out_step) {
    *out_step = (ct_step){0};
    ct_status status = make_programs(model, options, out_step);
    const ct_graph *programs[CT_PROGRAMS];
    for (int w = 0; w < CT_PROGRAMS; w++) {
        programs[w] = out_step->has[w] ? &out_step->local[w] : NULL;
        if (!status && out_step->has[w]) status = ct_graph_localise(&out_step->programs[w], options->rank, &out_step->local[w]);
    }
    if (!status) status = ct_plan_make(programs, options->plan, &out_step->plan);
    if (status) ct_step_deinit(out_step);
    return status;
}

void ct_step_deinit(ct_step *step) {
    ct_plan_deinit(&step->plan);
    ct_graph_deinit(&step->whole_micro);
    ct_graph_deinit(&step->whole_eval);
    ct_graph_deinit(&step->whole_reduce);
    ct_arena_deinit(&step->arena);
    for (int w = 0; w < CT_PROGRAMS; w++) {
        if (!step->has[w]) continue;
        ct_graph_deinit(&step->local[w]);
        ct_graph_deinit(&step->programs[w]);
    }
    *step = (ct_step){0};
}

const ct_mesh *ct_step_mesh(const ct_step *step) {
    int w = 0;
    while (!step->has[w]) w++;
    return &step->programs[w].mesh;
}

double ct_step_flops(const ct_step *step, int64_t micro_batches) {
    double flops = 0;
    for (int w = 0; w < CT_PROGRAMS; w++) {
        int64_t runs = step->has[w] ? ct_program_runs((ct_program)w, micro_batches) : 0;
        if (runs) flops += ct_plan_program_flops(&step->plan, (ct_program)w) * (double)runs;
    }
    return flops;
}
