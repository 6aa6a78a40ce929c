// Running a schedule: what passes from stage to stage goes by exchanges that are made once for each slot; between two stages of one rank it is copied.
#include "train/pipeline.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FIRST_TAG = 1000 };

// One way over one boundary of a stage, for one slot.
typedef struct {
    ct_message *messages;
    ct_exchange *exchange; // NULL: the neighbour is on this rank, or there is none
    int under_way;
} passage;

typedef struct {
    int stage, slots;
    const int *slot_of;        // by micro-batch
    passage *ways[CT_BOUNDARIES]; // by slot; NULL: none
} local_stage;

struct ct_pipeline {
    const ct_step *step;
    const ct_schedule *schedule;
    ct_exec *exec;
    ct_comm *comm;
    int rank, pp_rank, stride; // ranks from one stage's to the next one's
    int *counts, *slot_of; // of slots, by stage; by stage and micro-batch
    int local_count;
    local_stage local[CT_MOST_STAGES];
    char group_name[8];
};

static local_stage *find(ct_pipeline *p, int stage) {
    for (int k = 0; k < p->local_count; k++)
        if (p->local[k].stage == stage) return &p->local[k];
    return NULL;
}

// ---- making passages ----
static int goes_out(ct_boundary way) { return way == CT_TO_NEXT || way == CT_TO_BEFORE || way == CT_EVAL_TO_NEXT; }
static int is_after(ct_boundary way) { return way == CT_TO_NEXT || way == CT_FROM_NEXT || way == CT_EVAL_TO_NEXT; }
static int is_eval(ct_boundary way) { return way == CT_EVAL_TO_NEXT || way == CT_EVAL_FROM_BEFORE; }

// Messages over a boundary in one direction have a tag of their own: it is the number of the stage before it and what travels.
static int tag_of(ct_boundary way, int stage) {
    int boundary = is_after(way) ? stage : stage - 1, backward = way == CT_FROM_NEXT || way == CT_TO_BEFORE;
    return FIRST_TAG + boundary * 3 + (is_eval(way) ? 2 : backward);
}

static ct_status make_passage(ct_pipeline *p, int k, ct_boundary way, int slot, int peer, passage *out) {
    static const char *const kinds[CT_BOUNDARIES] = {"recv_f", "send_f", "recv_b", "send_b", "recv_f", "send_f"};
    const ct_step_messages *m = &p->step->messages[k];
    int count = m->counts[way];
    double bytes = 0;
    out->messages = ct_calloc((size_t)count + 1, sizeof *out->messages);
    for (int i = 0; i < count; i++) {
        const ct_buffer *b = &p->step->plan.kept[ct_plan_find_kept(&p->step->plan, m->names[way][i])];
        out->messages[i] = (ct_message){peer, ct_exec_slot(p->exec, m->names[way][i], slot), b->bytes};
        bytes += (double)b->bytes;
    }
    ct_group group = {&peer, 1, 0, p->group_name, tag_of(way, p->local[k].stage)};
    ct_comm_what what = {kinds[way], "", is_eval(way) ? "eval" : "micro", (int64_t)bytes};
    int out_way = goes_out(way);
    return ct_exchange_make(p->comm, &group, out->messages, out_way ? count : 0, out->messages, out_way ? 0 : count, &what, &out->exchange);
}

static ct_status make_ways(ct_pipeline *p, int k) {
    local_stage *l = &p->local[k];
    for (int way = 0; way < CT_BOUNDARIES; way++) {
        int other = l->stage + (is_after((ct_boundary)way) ? 1 : -1), slots = is_eval((ct_boundary)way) ? 1 : l->slots;
        if (other < 0 || other >= p->schedule->stages || !p->step->messages[k].counts[way]) continue;
        if (p->schedule->rank_of[other] == p->pp_rank) continue;
        l->ways[way] = ct_calloc((size_t)slots, sizeof(passage));
        int peer = p->rank + (p->schedule->rank_of[other] - p->pp_rank) * p->stride;
        for (int slot = 0; slot < slots; slot++) CT_TRY(make_passage(p, k, (ct_boundary)way, slot, peer, &l->ways[way][slot]));
    }
    return CT_OK;
}

static ct_status make(ct_pipeline *p, const ct_step_options *options) {
    const ct_mesh *mesh = &options->parallel.mesh;
    int pp = ct_mesh_find(mesh, "pp");
    p->pp_rank = ct_mesh_coord(mesh, p->rank, pp);
    p->stride = ct_mesh_ranks(mesh) / mesh->axes[pp].size; // it is the outermost axis
    snprintf(p->group_name, sizeof p->group_name, "pp");
    p->local_count = options->pipeline.local_count;
    p->counts = ct_malloc(sizeof(int) * (size_t)p->schedule->stages);
    p->slot_of = ct_malloc(sizeof(int) * (size_t)p->schedule->stages * (size_t)p->schedule->micros);
    ct_schedule_slots(p->schedule, p->counts, p->slot_of);
    for (int k = 0; k < p->local_count; k++) {
        local_stage *l = &p->local[k];
        l->stage = options->pipeline.local[k];
        l->slot_of = p->slot_of + l->stage * p->schedule->micros;
        l->slots = p->counts[l->stage];
        CT_TRY(make_ways(p, k));
    }
    return CT_OK;
}

ct_status ct_pipeline_create(const ct_step *step, const ct_step_options *options, const ct_schedule *schedule, ct_exec *exec, ct_comm *comm,
                             ct_pipeline **out) {
    ct_pipeline *p = ct_calloc(1, sizeof *p);
    *p = (ct_pipeline){.step = step, .schedule = schedule, .exec = exec, .comm = comm, .rank = options->rank};
    ct_status status = make(p, options);
    if (status) ct_pipeline_destroy(p);
    else *out = p;
    return status;
}

void ct_pipeline_destroy(ct_pipeline *p) {
    if (!p) return;
    for (int k = 0; k < p->local_count; k++) {
        for (int way = 0; way < CT_BOUNDARIES; way++) {
            int slots = is_eval((ct_boundary)way) ? 1 : p->local[k].slots;
            for (int s = 0; p->local[k].ways[way] && s < slots; s++) {
                ct_exchange_destroy(p->local[k].ways[way][s].exchange);
                free(p->local[k].ways[way][s].messages);
            }
            free(p->local[k].ways[way]);
        }
    }
    free(p->counts);
    free(p->slot_of);
    free(p);
}

// ---- passing on ----
static ct_status begin(local_stage *l, ct_boundary way, int slot) {
    passage *w = l->ways[way] ? &l->ways[way][slot] : NULL;
    if (!w) return CT_OK;
    w->under_way = 1;
    return ct_exchange_begin(w->exchange, 0);
}

static ct_status end(local_stage *l, ct_boundary way, int slot) {
    passage *w = l->ways[way] ? &l->ways[way][slot] : NULL;
    if (!w || !w->under_way) return CT_OK;
    w->under_way = 0;
    return ct_exchange_end(w->exchange);
}

// From one stage of this rank to another one beside it.
static void copy(ct_pipeline *p, const local_stage *from, ct_boundary out, int from_slot, const local_stage *to, ct_boundary in, int to_slot) {
    const ct_step_messages *a = &p->step->messages[from - p->local], *b = &p->step->messages[to - p->local];
    CT_ASSERT(a->counts[out] == b->counts[in], "stages %d and %d disagree", from->stage, to->stage);
    for (int i = 0; i < a->counts[out]; i++)
        memcpy(ct_exec_slot(p->exec, b->names[in][i], to_slot), ct_exec_slot(p->exec, a->names[out][i], from_slot),
               p->step->plan.kept[ct_plan_find_kept(&p->step->plan, a->names[out][i])].bytes);
}

// ---- actions ----
static ct_status run_program(ct_pipeline *p, const local_stage *l, int part, int micro, ct_pipeline_feed *feed, void *context) {
    ct_program w = ct_stage_program_of((int)(l - p->local), part);
    if (!p->step->has[w]) return CT_OK;
    feed(context, w, micro);
    return ct_exec_run_slot(p->exec, w, part == CT_PART_EVAL ? 0 : l->slot_of[micro]);
}

// What the slot's last micro-batch sent has to be gone before anything is written there.
static ct_status empty_slot(local_stage *l, int slot) {
    CT_TRY(end(l, CT_TO_NEXT, slot));
    return end(l, CT_TO_BEFORE, slot);
}

static ct_status forward(ct_pipeline *p, local_stage *l, int micro, ct_pipeline_feed *feed, void *context) {
    int slot = l->slot_of[micro];
    local_stage *before = l->stage > 0 ? find(p, l->stage - 1) : NULL;
    CT_TRY(empty_slot(l, slot));
    if (before) copy(p, before, CT_TO_NEXT, before->slot_of[micro], l, CT_FROM_BEFORE, slot);
    CT_TRY(end(l, CT_FROM_BEFORE, slot));
    return run_program(p, l, CT_PART_FORWARD, micro, feed, context);
}

static ct_status input_grad(ct_pipeline *p, local_stage *l, int micro, ct_pipeline_feed *feed, void *context) {
    int slot = l->slot_of[micro];
    local_stage *before = l->stage > 0 ? find(p, l->stage - 1) : NULL;
    CT_TRY(end(l, CT_FROM_NEXT, slot));
    CT_TRY(run_program(p, l, CT_PART_INPUT_GRAD, micro, feed, context));
    if (before) copy(p, l, CT_TO_BEFORE, slot, before, CT_FROM_NEXT, before->slot_of[micro]);
    return CT_OK;
}

static ct_status act(ct_pipeline *p, ct_action a, ct_pipeline_feed *feed, void *context) {
    local_stage *l = find(p, a.stage);
    switch (a.act) {
    case CT_ACT_RECV_F: CT_TRY(empty_slot(l, l->slot_of[a.micro])); return begin(l, CT_FROM_BEFORE, l->slot_of[a.micro]);
    case CT_ACT_RECV_B: return begin(l, CT_FROM_NEXT, l->slot_of[a.micro]);
    case CT_ACT_SEND_F: return begin(l, CT_TO_NEXT, l->slot_of[a.micro]);
    case CT_ACT_SEND_B: return begin(l, CT_TO_BEFORE, l->slot_of[a.micro]);
    case CT_ACT_F: return forward(p, l, a.micro, feed, context);
    case CT_ACT_I: return input_grad(p, l, a.micro, feed, context);
    case CT_ACT_W: return run_program(p, l, CT_PART_WEIGHT_GRAD, a.micro, feed, context);
    default: CT_TRY(input_grad(p, l, a.micro, feed, context)); return run_program(p, l, CT_PART_WEIGHT_GRAD, a.micro, feed, context);
    }
}

ct_status ct_pipeline_run(ct_pipeline *p, ct_pipeline_feed *feed, void *context) {
    const ct_actions *list = &p->schedule->of[p->pp_rank];
    for (int i = 0; i < list->count; i++) {
        ct_status status = act(p, list->list[i], feed, context);
        char text[48];
        ct_action_print(list->list[i], text, sizeof text);
        if (status) return ct_error_note(status, "action %s of %s", text, p->schedule->name);
    }
    for (int k = 0; k < p->local_count; k++)
        for (int slot = 0; slot < p->local[k].slots; slot++) CT_TRY(empty_slot(&p->local[k], slot));
    return CT_OK;
}

ct_status ct_pipeline_eval(ct_pipeline *p, ct_pipeline_feed *feed, void *context) {
    for (int k = 0; k < p->local_count; k++) { // ascending: a later stage waits for an earlier one
        local_stage *l = &p->local[k], *before = l->stage > 0 ? find(p, l->stage - 1) : NULL;
        CT_TRY(end(l, CT_EVAL_TO_NEXT, 0));
        if (before) copy(p, before, CT_EVAL_TO_NEXT, 0, l, CT_EVAL_FROM_BEFORE, 0);
        CT_TRY(begin(l, CT_EVAL_FROM_BEFORE, 0));
        CT_TRY(end(l, CT_EVAL_FROM_BEFORE, 0));
        CT_TRY(run_program(p, l, CT_PART_EVAL, 0, feed, context));
        CT_TRY(begin(l, CT_EVAL_TO_NEXT, 0));
        if (l->stage + 1 < p->schedule->stages && !find(p, l->stage + 1)) CT_TRY(end(l, CT_EVAL_TO_NEXT, 0));
    }
    return CT_OK;
}
