// The order of things: model → autodiff → precision → placement → loss chunks (and their placement) → recomputation → fusion → pruning →
// one rank's program → plan. Every graph is verified where it is made; passes write a fresh graph each, and only the last one stays.
#include "train/step.h"
#include "autodiff/autodiff.h"
#include "base/wide.h"
#include "graph/local.h"

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

static ct_status make_micro(const ct_model *model, const ct_step_options *o, ct_graph *g) {
    ct_graph_init(g, "micro");
    CT_TRY(ct_model_build(model, g, (ct_build_options){.batch = o->batch * data_ranks(o), .seq_len = o->seq_len, .kind = CT_BUILD_LOSS}));
    CT_TRY_AS(verified(g), "as built");
    CT_TRY(ct_autodiff_apply(g, "token_loss"));
    sum_loss(g);
    CT_TRY_AS(verified(g), "after autodiff");
    PASS(g, ct_pass_precision(g, o->compute, &after_));
    CT_TRY(place(model, o, o->batch * o->seq_len, NULL, g));
    PASS(g, ct_pass_recompute(g, o->recompute, &after_));
    PASS(g, ct_pass_fuse_accumulate(g, &after_));
    PASS(g, ct_pass_prune(g, &after_));
    PASS(g, overlap(o, g, &after_));
    CT_TRY_AS(verified(g), "after all passes");
    return CT_OK;
}

static ct_status make_forward(const ct_model *model, const ct_step_options *o, ct_build_options build, const char *name,
                              const ct_graph *states, ct_graph *g) {
    ct_graph_init(g, name);
    CT_TRY(ct_model_build(model, g, build));
    if (build.kind == CT_BUILD_LOSS) sum_loss(g);
    PASS(g, ct_pass_precision(g, o->compute, &after_));
    CT_TRY(place(model, o, build.batch * build.seq_len, states, g));
    PASS(g, ct_pass_prune(g, &after_));
    PASS(g, overlap(o, g, &after_));
    return verified(g);
}

static const ct_graph *reader_of(const ct_step *step) { return &step->programs[CT_PROGRAM_MICRO]; }

static ct_status place_states(const ct_step_options *o, const ct_graph *states, ct_graph *g) {
    PASS(g, ct_place(g, &o->parallel, CT_PLACE_STATES, states, &after_));
    return CT_OK;
}

static ct_status make_programs(const ct_model *model, const ct_step_options *o, ct_step *step) {
    ct_graph *programs = step->programs;
    const ct_graph *reader = reader_of(step);
    if (o->cache_len > 0) {
        ct_build_options build = {.batch = 1, .seq_len = 1, .cache_len = o->cache_len, .kind = CT_BUILD_GENERATE};
        step->has[CT_PROGRAM_GENERATE] = 1;
        CT_TRY_AS(make_forward(model, o, build, "generate", NULL, &programs[CT_PROGRAM_GENERATE]), "program generate");
        reader = &programs[CT_PROGRAM_GENERATE];
    } else {
        step->has[CT_PROGRAM_MICRO] = step->has[CT_PROGRAM_UPDATE] = 1;
        CT_TRY_AS(make_micro(model, o, &programs[CT_PROGRAM_MICRO]), "program micro");
        CT_TRY_AS(ct_step_build_update(model, &programs[CT_PROGRAM_MICRO], o, &programs[CT_PROGRAM_UPDATE]), "program update");
        CT_TRY_AS(place_states(o, reader_of(step), &programs[CT_PROGRAM_UPDATE]), "program update");
        CT_TRY_AS(verified(&programs[CT_PROGRAM_UPDATE]), "program update");
    }
    step->has[CT_PROGRAM_PROLOGUE] = 1;
    CT_TRY_AS(ct_pass_prologue(reader, &programs[CT_PROGRAM_PROLOGUE]), "program prologue");
    CT_TRY_AS(place_states(o, reader, &programs[CT_PROGRAM_PROLOGUE]), "program prologue");
    CT_TRY_AS(verified(&programs[CT_PROGRAM_PROLOGUE]), "program prologue");
    if (o->eval_batch > 0) {
        ct_build_options build = {.batch = o->eval_batch * data_ranks(o), .seq_len = o->eval_seq_len, .kind = CT_BUILD_LOSS};
        step->has[CT_PROGRAM_EVAL] = 1;
        CT_TRY_AS(make_forward(model, o, build, "eval", reader, &programs[CT_PROGRAM_EVAL]), "program eval");
    }
    return CT_OK;
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
    for (int w = 0; w < CT_PROGRAMS; w++) {
        if (!step->has[w]) continue;
        ct_graph_deinit(&step->local[w]);
        ct_graph_deinit(&step->programs[w]);
    }
    *step = (ct_step){0};
}
