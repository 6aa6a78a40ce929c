// Running a schedule: what passes from stage to stage goes by exchanges that are made once for each slot; between two stages of one rank it is copied.
#include "train/pipeline.h"
#include "base/clock.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FIRST_TAG = 1000, MOST_MESSAGES = 32 }; // over one boundary; gradients that stages share have the tags before

// One value on its way over a boundary, from or to one slot of its pool.
typedef struct {
    ct_message message;
    ct_exchange *exchange;
    int under_way;
} passage;

typedef struct {
    int pool, slots;
    passage *by_slot; // NULL: the neighbour is on this rank
} traveller;

typedef struct {
    int stage;
    const int *counts;         // of slots, by pool
    const int *slot_of;        // by micro-batch and pool
    traveller *ways[CT_BOUNDARIES]; // by message
} local_stage;

// The first program, in the order of a micro-batch's way, that made a number which is not finite.
typedef struct {
    int64_t place; // < 0: none
    char text[256];
} found;

struct ct_pipeline {
    const ct_step *step;
    const ct_schedule *schedule;
    ct_exec *exec;
    ct_comm *comm;
    ct_arena arena;
    int runs; // which of the step's runs is the present one
    int rank, pp_rank, stride; // ranks from one stage's to the next one's
    int *counts, *slot_of; // of slots, by stage and pool; by stage, micro-batch and pool
    int local_count;
    local_stage local[CT_MOST_STAGES];
    passage *shared; // of gradients that stages share
    int shared_count;
    found *search; // NULL: nothing is looked for
    ct_pipeline_moment *moments, *now; // by action, NULL: not recorded; the present action's
    double began_s;
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

// Messages over a boundary in one direction have tags of their own, from this one on.
static int tag_of(ct_boundary way, int stage) {
    int boundary = is_after(way) ? stage : stage - 1, backward = way == CT_FROM_NEXT || way == CT_TO_BEFORE;
    return FIRST_TAG + (boundary * 3 + (is_eval(way) ? 2 : backward)) * MOST_MESSAGES;
}

static ct_status make_passage(ct_pipeline *p, int k, ct_boundary way, int i, int peer, int slot, passage *out) {
    static const char *const kinds[CT_BOUNDARIES] = {"recv_f", "send_f", "recv_b", "send_b", "recv_f", "send_f"};
    const char *name = p->step->messages[k].names[way][i];
    const ct_buffer *b = &p->step->plan.kept[ct_plan_find_kept(&p->step->plan, name)];
    out->message = (ct_message){peer, ct_exec_slot(p->exec, name, slot), b->bytes};
    ct_group group = {&peer, 1, 0, "pp", tag_of(way, p->local[k].stage) + i};
    ct_comm_what what = {kinds[way], "", is_eval(way) ? "eval" : "micro", (int64_t)b->bytes};
    int sends = goes_out(way);
    return ct_exchange_make(p->comm, &group, &out->message, sends, &out->message, !sends, &what, &out->exchange);
}

static ct_status make_way(ct_pipeline *p, int k, ct_boundary way) {
    local_stage *l = &p->local[k];
    int other = l->stage + (is_after(way) ? 1 : -1), count = p->step->messages[k].counts[way];
    if (other < 0 || other >= p->schedule->stages || !count) return CT_OK;
    CT_CHECK(count <= MOST_MESSAGES, CT_UNSUPPORTED, "%d values pass between pipeline stages %d and %d: at most %d are possible", count, l->stage, other, MOST_MESSAGES);
    int is_here = p->schedule->rank_of[other] == p->pp_rank, peer = p->rank + (p->schedule->rank_of[other] - p->pp_rank) * p->stride;
    l->ways[way] = ct_calloc((size_t)count, sizeof(traveller));
    for (int i = 0; i < count; i++) {
        traveller *t = &l->ways[way][i];
        t->pool = (int)ct_life_of(p->step->messages[k].names[way][i]);
        t->slots = is_eval(way) ? 1 : l->counts[t->pool];
        if (is_here) continue;
        t->by_slot = ct_calloc((size_t)t->slots, sizeof(passage));
        for (int slot = 0; slot < t->slots; slot++) CT_TRY(make_passage(p, k, way, i, peer, slot, &t->by_slot[slot]));
    }
    return CT_OK;
}

// The ranks of a gradient's other users, each once; this rank's list of them where it makes it, else its maker where it is a user.
static int peers_of(const ct_pipeline *p, const ct_shared_gradient *g, int *out) {
    int maker = p->schedule->rank_of[g->stage], uses = 0, count = 0;
    for (int i = 0; i < g->users_count; i++) {
        int rank = p->schedule->rank_of[g->users[i]], known = rank == maker;
        uses |= rank == p->pp_rank;
        for (int k = 0; k < count; k++) known |= out[k] == rank;
        if (!known) out[count++] = rank;
    }
    if (maker == p->pp_rank) return count;
    out[0] = maker;
    return uses;
}

static ct_status make_shared(ct_pipeline *p) {
    int *peers = CT_ARENA_ARRAY(&p->arena, int, p->schedule->stages + 1);
    CT_CHECK(p->step->shared_count < FIRST_TAG - CT_MAX_GROUPS, CT_UNSUPPORTED, "%d gradients are shared by pipeline stages", p->step->shared_count);
    p->shared = CT_ARENA_ARRAY(&p->arena, passage, p->step->shared_count * p->schedule->stages + 1);
    for (int i = 0; i < p->step->shared_count; i++) {
        const ct_shared_gradient *g = &p->step->shared[i];
        int count = peers_of(p, g, peers), sends = p->schedule->rank_of[g->stage] == p->pp_rank;
        for (int k = 0; k < count; k++) {
            passage *at = &p->shared[p->shared_count++];
            int peer = p->rank + (peers[k] - p->pp_rank) * p->stride;
            at->message = (ct_message){peer, ct_exec_data(p->exec, g->name), p->step->plan.kept[ct_plan_find_kept(&p->step->plan, g->name)].bytes};
            ct_group group = {&peer, 1, 0, "pp", FIRST_TAG - 1 - i};
            ct_comm_what what = {sends ? "send_grad" : "recv_grad", "", "micro", (int64_t)at->message.bytes};
            CT_TRY(ct_exchange_make(p->comm, &group, &at->message, sends, &at->message, !sends, &what, &at->exchange));
        }
    }
    return CT_OK;
}

static ct_status make(ct_pipeline *p, const ct_step_options *options) {
    const ct_mesh *mesh = &options->parallel.mesh;
    int pp = ct_mesh_find(mesh, "pp");
    p->pp_rank = ct_mesh_coord(mesh, p->rank, pp);
    p->stride = ct_mesh_ranks(mesh) / mesh->axes[pp].size; // it is the outermost axis
    p->local_count = options->pipeline.local_count;
    p->counts = ct_malloc(sizeof(int) * (size_t)p->schedule->stages * CT_POOLS);
    p->slot_of = ct_malloc(sizeof(int) * (size_t)p->schedule->stages * (size_t)p->schedule->micros * CT_POOLS);
    ct_schedule_slots(p->schedule, p->counts, p->slot_of);
    for (int k = 0; k < p->local_count; k++) {
        local_stage *l = &p->local[k];
        l->stage = options->pipeline.local[k];
        l->slot_of = p->slot_of + l->stage * p->schedule->micros * CT_POOLS;
        l->counts = p->counts + l->stage * CT_POOLS;
        for (int way = 0; way < CT_BOUNDARIES; way++) CT_TRY(make_way(p, k, (ct_boundary)way));
    }
    return make_shared(p);
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
    for (int k = 0; k < p->local_count; k++)
        for (int way = 0; way < CT_BOUNDARIES; way++) {
            traveller *t = p->local[k].ways[way];
            for (int i = 0; t && i < p->step->messages[k].counts[way]; i++) {
                for (int slot = 0; t[i].by_slot && slot < t[i].slots; slot++) ct_exchange_destroy(t[i].by_slot[slot].exchange);
                free(t[i].by_slot);
            }
            free(t);
        }
    for (int i = 0; i < p->shared_count; i++) ct_exchange_destroy(p->shared[i].exchange);
    ct_arena_deinit(&p->arena);
    free(p->counts);
    free(p->slot_of);
    free(p);
}

// ---- passing on ----
static const int no_slots[CT_POOLS];

static const int *slots_of(const local_stage *l, int micro) { return micro < 0 ? no_slots : l->slot_of + micro * CT_POOLS; }

static ct_status begin(ct_pipeline *p, local_stage *l, ct_boundary way, int micro) {
    for (int i = 0; l->ways[way] && i < p->step->messages[l - p->local].counts[way]; i++) {
        traveller *t = &l->ways[way][i];
        if (!t->by_slot) continue;
        passage *at = &t->by_slot[slots_of(l, micro)[t->pool]];
        at->under_way = 1;
        CT_TRY(ct_exchange_begin(at->exchange, 0));
    }
    return CT_OK;
}

static ct_status end_at(passage *at) {
    if (!at->under_way) return CT_OK;
    at->under_way = 0;
    return ct_exchange_end(at->exchange);
}

static ct_status end(ct_pipeline *p, local_stage *l, ct_boundary way, int micro) {
    for (int i = 0; l->ways[way] && i < p->step->messages[l - p->local].counts[way]; i++) {
        traveller *t = &l->ways[way][i];
        if (t->by_slot) CT_TRY(end_at(&t->by_slot[slots_of(l, micro)[t->pool]]));
    }
    return CT_OK;
}

// What the last micro-batch in a slot of these pools sent has to be gone before anything is written there.
static ct_status empty_slots(ct_pipeline *p, local_stage *l, int micro, int backward) {
    static const ct_boundary out[] = {CT_TO_NEXT, CT_TO_BEFORE};
    for (int w = 0; w < 2; w++)
        for (int i = 0; l->ways[out[w]] && i < p->step->messages[l - p->local].counts[out[w]]; i++) {
            traveller *t = &l->ways[out[w]][i];
            if (t->by_slot && (t->pool == CT_LIFE_BACKWARD) == backward) CT_TRY(end_at(&t->by_slot[slots_of(l, micro)[t->pool]]));
        }
    return CT_OK;
}

// From one stage of this rank to another one beside it.
static void copy(ct_pipeline *p, const local_stage *from, ct_boundary out, const local_stage *to, ct_boundary in, int micro) {
    const ct_step_messages *a = &p->step->messages[from - p->local], *b = &p->step->messages[to - p->local];
    CT_ASSERT(a->counts[out] == b->counts[in], "stages %d and %d disagree", from->stage, to->stage);
    for (int i = 0; i < a->counts[out]; i++)
        memcpy(ct_exec_slot(p->exec, b->names[in][i], slots_of(to, micro)[to->ways[in][i].pool]),
               ct_exec_slot(p->exec, a->names[out][i], slots_of(from, micro)[from->ways[out][i].pool]),
               p->step->plan.kept[ct_plan_find_kept(&p->step->plan, a->names[out][i])].bytes);
}

// ---- actions ----
static ct_status search_program(ct_pipeline *p, const local_stage *l, ct_program w, int part, int micro) {
    char text[sizeof p->search->text];
    int64_t way = part == CT_PART_FORWARD ? l->stage : 3 * p->schedule->stages - 2 * l->stage + part; // forwards ascend, backwards descend
    int64_t place = (int64_t)micro * 4 * p->schedule->stages + way;
    CT_TRY(ct_exec_find_nonfinite(p->exec, w, slots_of(l, micro), text, sizeof text));
    if (!text[0] || (p->search->place >= 0 && p->search->place < place)) return CT_OK;
    p->search->place = place;
    memcpy(p->search->text, text, sizeof text);
    return CT_OK;
}

static ct_status run_program(ct_pipeline *p, const local_stage *l, int part, int micro, ct_pipeline_feed *feed, void *context) {
    ct_program w = ct_stage_program_of((int)(l - p->local), part);
    if (!p->step->has[w]) return CT_OK;
    feed(context, w, micro);
    if (p->search) return search_program(p, l, w, part, micro);
    if (!p->now) return ct_exec_run_slots(p->exec, w, slots_of(l, micro));
    double begin = ct_now_s() - p->began_s;
    ct_status status = ct_exec_run_slots(p->exec, w, slots_of(l, micro));
    if (p->now->end_s == 0) p->now->begin_s = begin;
    p->now->middle_s = p->now->end_s ? begin : 0;
    p->now->end_s = ct_now_s() - p->began_s;
    return status;
}

// What a stage does once a step.
static ct_status run_once(ct_pipeline *p, const local_stage *l, int part) {
    ct_program w = ct_stage_program_of((int)(l - p->local), part);
    return p->step->has[w] ? ct_exec_run(p->exec, w) : CT_OK;
}

static ct_status forward(ct_pipeline *p, local_stage *l, int micro, ct_pipeline_feed *feed, void *context) {
    local_stage *before = l->stage > 0 ? find(p, l->stage - 1) : NULL;
    CT_TRY(empty_slots(p, l, micro, 0));
    if (before) copy(p, before, CT_TO_NEXT, l, CT_FROM_BEFORE, micro);
    CT_TRY(end(p, l, CT_FROM_BEFORE, micro));
    return run_program(p, l, CT_PART_FORWARD, micro, feed, context);
}

static ct_status input_grad(ct_pipeline *p, local_stage *l, int micro, ct_pipeline_feed *feed, void *context) {
    local_stage *before = l->stage > 0 ? find(p, l->stage - 1) : NULL;
    CT_TRY(empty_slots(p, l, micro, 1));
    CT_TRY(end(p, l, CT_FROM_NEXT, micro));
    CT_TRY(run_program(p, l, CT_PART_INPUT_GRAD, micro, feed, context));
    if (before) copy(p, l, CT_TO_BEFORE, before, CT_FROM_NEXT, micro);
    return CT_OK;
}

static ct_status act(ct_pipeline *p, ct_action a, ct_pipeline_feed *feed, void *context) {
    local_stage *l = find(p, a.stage);
    switch (a.act) {
    case CT_ACT_RECV_F: CT_TRY(empty_slots(p, l, a.micro, 0)); return begin(p, l, CT_FROM_BEFORE, a.micro);
    case CT_ACT_RECV_B: return begin(p, l, CT_FROM_NEXT, a.micro);
    case CT_ACT_SEND_F: return begin(p, l, CT_TO_NEXT, a.micro);
    case CT_ACT_SEND_B: return begin(p, l, CT_TO_BEFORE, a.micro);
    case CT_ACT_F: return forward(p, l, a.micro, feed, context);
    case CT_ACT_I: return input_grad(p, l, a.micro, feed, context);
    case CT_ACT_W: return run_program(p, l, CT_PART_WEIGHT_GRAD, a.micro, feed, context);
    case CT_ACT_UNSHARD: return p->runs & CT_RUN_FIRST ? run_once(p, l, CT_PART_UNSHARD) : CT_OK;
    case CT_ACT_REDUCE: return p->runs & CT_RUN_LAST ? run_once(p, l, CT_PART_REDUCE) : CT_OK;
    default: CT_TRY(input_grad(p, l, a.micro, feed, context)); return run_program(p, l, CT_PART_WEIGHT_GRAD, a.micro, feed, context);
    }
}

// Nothing is on its way any more.
static ct_status settle(ct_pipeline *p) {
    for (int k = 0; k < p->local_count; k++)
        for (int way = 0; way < CT_BOUNDARIES; way++)
            for (int i = 0; p->local[k].ways[way] && i < p->step->messages[k].counts[way]; i++) {
                traveller *t = &p->local[k].ways[way][i];
                for (int slot = 0; t->by_slot && slot < t->slots; slot++) CT_TRY(end_at(&t->by_slot[slot]));
            }
    return CT_OK;
}

ct_status ct_pipeline_run(ct_pipeline *p, int runs, ct_pipeline_feed *feed, void *context) {
    p->runs = runs;
    const ct_actions *list = &p->schedule->of[p->pp_rank];
    if (p->moments) CT_TRY(ct_comm_agree(p->comm, CT_OK)); // all begin now
    p->began_s = ct_now_s();
    for (int i = 0; i < list->count; i++) {
        p->now = p->moments ? &p->moments[i] : NULL;
        if (p->now) *p->now = (ct_pipeline_moment){0};
        ct_status status = act(p, list->list[i], feed, context);
        char text[48];
        ct_action_print(list->list[i], text, sizeof text);
        if (status) return ct_error_note(status, "action %s of %s", text, p->schedule->name);
    }
    p->now = NULL;
    return settle(p);
}

ct_status ct_pipeline_find_nonfinite(ct_pipeline *p, ct_pipeline_feed *feed, void *context, char *out_text, size_t size) {
    found search = {.place = -1};
    p->search = &search;
    ct_status status = ct_pipeline_run(p, 0, feed, context);
    p->search = NULL;
    if (status) return status;
    int64_t ranks = ct_comm_size(p->comm), none = INT64_MAX / ranks - 1, first = -((search.place < 0 ? none : search.place) * ranks + p->rank);
    CT_TRY(ct_comm_max_i64(p->comm, &first, 1));
    CT_TRY(ct_comm_broadcast(p->comm, (int)(-first % ranks), search.text, sizeof search.text));
    snprintf(out_text, size, "%s", search.text);
    return CT_OK;
}

void ct_pipeline_record(ct_pipeline *p, ct_pipeline_moment *by_action) { p->moments = by_action; }

ct_status ct_pipeline_share_gradients(ct_pipeline *p) {
    for (int i = 0; i < p->shared_count; i++) CT_TRY(ct_exchange_begin(p->shared[i].exchange, 0));
    for (int i = 0; i < p->shared_count; i++) CT_TRY(ct_exchange_end(p->shared[i].exchange));
    return CT_OK;
}

ct_status ct_pipeline_unshard(ct_pipeline *p) {
    for (int k = 0; k < p->local_count; k++) CT_TRY(run_once(p, &p->local[k], CT_PART_UNSHARD));
    return CT_OK;
}

ct_status ct_pipeline_eval(ct_pipeline *p, ct_pipeline_feed *feed, void *context) {
    enum { NO_MICRO = -1 }; // what passes in validation has one place
    for (int k = 0; k < p->local_count; k++) { // ascending: a later stage waits for an earlier one
        local_stage *l = &p->local[k], *before = l->stage > 0 ? find(p, l->stage - 1) : NULL;
        if (before) copy(p, before, CT_EVAL_TO_NEXT, l, CT_EVAL_FROM_BEFORE, NO_MICRO);
        CT_TRY(begin(p, l, CT_EVAL_FROM_BEFORE, NO_MICRO));
        CT_TRY(end(p, l, CT_EVAL_FROM_BEFORE, NO_MICRO));
        CT_TRY(run_program(p, l, CT_PART_EVAL, NO_MICRO, feed, context));
        CT_TRY(begin(p, l, CT_EVAL_TO_NEXT, NO_MICRO));
        CT_TRY(end(p, l, CT_EVAL_TO_NEXT, NO_MICRO));
    }
    return CT_OK;
}
