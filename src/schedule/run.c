// What running a schedule takes: sends and receives, the proof that it ends, slots for what lives from a forward to its weight gradients.
#include "schedule/schedule.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// ---- sends and receives ----
static void append(ct_actions *to, ct_act act, int stage, int micro) {
    CT_GROW(to->list, to->count, to->capacity);
    to->list[to->count++] = (ct_action){act, stage, micro};
}

static int is_backward(ct_act act) { return act == CT_ACT_I || act == CT_ACT_B; }
static int ends_micro(ct_act act) { return act == CT_ACT_W || act == CT_ACT_B; }

// The receive that an action waits for; 0: none.
static int receive_of(const ct_schedule *s, ct_action a, ct_action *out) {
    int from = a.act == CT_ACT_F ? a.stage - 1 : a.stage + 1;
    if ((a.act != CT_ACT_F && !is_backward(a.act)) || from < 0 || from >= s->stages || s->rank_of[from] == s->rank_of[a.stage]) return 0;
    *out = (ct_action){a.act == CT_ACT_F ? CT_ACT_RECV_F : CT_ACT_RECV_B, a.stage, a.micro};
    return 1;
}

static int send_of(const ct_schedule *s, ct_action a, ct_action *out) {
    int to = a.act == CT_ACT_F ? a.stage + 1 : a.stage - 1;
    if ((a.act != CT_ACT_F && !is_backward(a.act)) || to < 0 || to >= s->stages || s->rank_of[to] == s->rank_of[a.stage]) return 0;
    *out = (ct_action){a.act == CT_ACT_F ? CT_ACT_SEND_F : CT_ACT_SEND_B, a.stage, a.micro};
    return 1;
}

static void lower_rank(const ct_schedule *s, const ct_actions *from, ct_actions *to) {
    int opened = 0; // actions whose receive stands already
    int *begun = ct_calloc((size_t)s->stages, sizeof *begun), *left = ct_calloc((size_t)s->stages, sizeof *left);
    for (int i = 0; i < from->count; i++) left[from->list[i].stage] += ends_micro(from->list[i].act);
    for (int i = 0; i < from->count; i++) {
        ct_action a = from->list[i], message;
        for (; opened <= i + 1 && opened < from->count; opened++) {
            // A forward's receive takes the slot that an action ahead of it gives back.
            if (opened == i + 1 && from->list[opened].act == CT_ACT_F && ends_micro(a.act)) break;
            if (receive_of(s, from->list[opened], &message)) append(to, message.act, message.stage, message.micro);
        }
        if (!begun[a.stage]) append(to, CT_ACT_UNSHARD, a.stage, 0);
        begun[a.stage] = 1;
        append(to, a.act, a.stage, a.micro);
        if (send_of(s, a, &message)) append(to, message.act, message.stage, message.micro);
        if (ends_micro(a.act) && !--left[a.stage]) append(to, CT_ACT_REDUCE, a.stage, 0);
    }
    free(begun);
    free(left);
}

ct_status ct_schedule_lower(const ct_schedule *s, ct_schedule *out) {
    *out = *s;
    out->rank_of = ct_malloc(sizeof(int) * (size_t)s->stages);
    memcpy(out->rank_of, s->rank_of, sizeof(int) * (size_t)s->stages);
    out->of = ct_calloc((size_t)s->ranks, sizeof *out->of);
    for (int r = 0; r < s->ranks; r++) lower_rank(s, &s->of[r], &out->of[r]);
    return CT_OK;
}

// ---- does it end? ----
typedef struct {
    const ct_schedule *s;
    unsigned char *done; // by act, stage, micro
    int *at;             // by rank: the next action
    const int *before;   // by stage and micro: the micro-batch that had its slot before, -1; NULL: slots don't matter
} proof;

static unsigned char *done_at(const proof *p, ct_act act, int stage, int micro) {
    return &p->done[((size_t)act * (size_t)p->s->stages + (size_t)stage) * (size_t)p->s->micros + (size_t)micro];
}

static int backward_done(const proof *p, int stage, int micro) { return *done_at(p, CT_ACT_I, stage, micro) || *done_at(p, CT_ACT_B, stage, micro); }

// A slot of the backward pool is free when what its last micro-batch sent back has been received: the stage before has opened it. (What went forward
// has long been received when its slot is free, for the backward has come back.)
static int waits_for_slot(const proof *p, ct_action a, ct_action *out) {
    const ct_schedule *s = p->s;
    ct_action message, last = {CT_ACT_I, a.stage, p->before[a.stage * s->micros + a.micro]};
    if (last.micro < 0 || !send_of(s, last, &message) || *done_at(p, CT_ACT_RECV_B, a.stage - 1, last.micro)) return 0;
    *out = (ct_action){CT_ACT_RECV_B, a.stage - 1, last.micro};
    return 1;
}

static int has_next_here(const ct_schedule *s, int stage) { return stage + 1 < s->stages && s->rank_of[stage + 1] == s->rank_of[stage]; }

// What an action still waits for, as an action; 0: nothing.
static int waits_for(const proof *p, ct_action a, ct_action *out) {
    const ct_schedule *s = p->s;
    int last = s->stages - 1;
#define WAIT(act_, stage_)                                                                                             \
    do {                                                                                                               \
        *out = (ct_action){(act_), (stage_), a.micro};                                                                 \
        return 1;                                                                                                      \
    } while (0)
    switch (a.act) {
    case CT_ACT_F:
        if (a.stage > 0 && !*done_at(p, CT_ACT_F, a.stage - 1, a.micro)) WAIT(CT_ACT_F, a.stage - 1);
        return 0;
    case CT_ACT_I:
    case CT_ACT_B:
        if (p->before && waits_for_slot(p, a, out)) return 1;
        if (!*done_at(p, CT_ACT_F, a.stage, a.micro)) WAIT(CT_ACT_F, a.stage);
        if (a.stage < last && !backward_done(p, a.stage + 1, a.micro)) WAIT(CT_ACT_I, a.stage + 1);
        return 0;
    case CT_ACT_W:
        if (!*done_at(p, CT_ACT_I, a.stage, a.micro)) WAIT(CT_ACT_I, a.stage);
        return 0;
    case CT_ACT_SEND_F:
        if (!*done_at(p, CT_ACT_F, a.stage, a.micro)) WAIT(CT_ACT_F, a.stage);
        return 0;
    case CT_ACT_SEND_B:
        if (!backward_done(p, a.stage, a.micro)) WAIT(CT_ACT_I, a.stage);
        return 0;
    default: return 0; // a receive is opened and waits for nothing
    }
#undef WAIT
}

static ct_status check_action(const ct_schedule *s, int rank, int i) {
    ct_action a = s->of[rank].list[i];
    char text[48];
    ct_action_print(a, text, sizeof text);
    CT_CHECK(a.stage >= 0 && a.stage < s->stages, CT_INVALID, "rank %d, action %d, %s: there are stages 0 to %d", rank, i, text, s->stages - 1);
    CT_CHECK(a.micro >= 0 && a.micro < s->micros, CT_INVALID, "rank %d, action %d, %s: there are micro-batches 0 to %d", rank, i, text, s->micros - 1);
    CT_CHECK(s->rank_of[a.stage] == rank, CT_INVALID, "rank %d, action %d, %s: that stage is rank %d's", rank, i, text, s->rank_of[a.stage]);
    return CT_OK;
}

static ct_status run_some(proof *p, int rank, int *out_ran) {
    const ct_actions *list = &p->s->of[rank];
    for (; p->at[rank] < list->count; p->at[rank]++, *out_ran = 1) {
        ct_action a = list->list[p->at[rank]], other;
        if (waits_for(p, a, &other)) return CT_OK;
        unsigned char *done = done_at(p, a.act, a.stage, a.micro);
        char text[48];
        ct_action_print(a, text, sizeof text);
        CT_CHECK(!*done, CT_INVALID, "rank %d, action %d, %s: it was done before", rank, p->at[rank], text);
        CT_CHECK(a.act != CT_ACT_B || !backward_done(p, a.stage, a.micro), CT_INVALID, "rank %d, action %d, %s: its input gradient was done before", rank,
                 p->at[rank], text);
        CT_CHECK(a.act != CT_ACT_I || !backward_done(p, a.stage, a.micro), CT_INVALID, "rank %d, action %d, %s: it was done before", rank, p->at[rank], text);
        *done = 1;
    }
    return CT_OK;
}

static ct_status check_complete(const proof *p) {
    for (int k = 0; k < p->s->stages; k++)
        for (int m = 0; m < p->s->micros; m++) {
            CT_CHECK(*done_at(p, CT_ACT_F, k, m), CT_INVALID, "%dF%d is missing", k, m);
            CT_CHECK(backward_done(p, k, m), CT_INVALID, "%dB%d (or %dI%d) is missing", k, m, k, m);
            CT_CHECK(*done_at(p, CT_ACT_B, k, m) || *done_at(p, CT_ACT_W, k, m), CT_INVALID, "%dW%d is missing", k, m);
        }
    return CT_OK;
}

static int stands_anywhere(const ct_schedule *s, ct_action a) {
    const ct_actions *list = &s->of[s->rank_of[a.stage]];
    for (int i = 0; i < list->count; i++) {
        ct_action b = list->list[i];
        if (b.stage == a.stage && b.micro == a.micro && (b.act == a.act || (a.act == CT_ACT_I && b.act == CT_ACT_B))) return 1;
    }
    return 0;
}

// An input gradient may be part of a whole backward.
static const char *name_missing(ct_action a, char text[48]) {
    if (a.act == CT_ACT_I) snprintf(text, 48, "%dB%d (or %dI%d)", a.stage, a.micro, a.stage, a.micro);
    return text;
}

static ct_status prove(proof *p) {
    const ct_schedule *s = p->s;
    for (int r = 0; r < s->ranks; r++)
        for (int i = 0; i < s->of[r].count; i++) CT_TRY(check_action(s, r, i));
    for (int ran = 1; ran;) {
        ran = 0;
        for (int r = 0; r < s->ranks; r++) CT_TRY(run_some(p, r, &ran));
    }
    for (int r = 0; r < s->ranks; r++) {
        if (p->at[r] == s->of[r].count) continue;
        ct_action a = s->of[r].list[p->at[r]], other;
        char text[48], wanted[48];
        CT_ASSERT(waits_for(p, a, &other), "nothing stops rank %d", r);
        ct_action_print(a, text, sizeof text);
        ct_action_print(other, wanted, sizeof wanted);
        CT_CHECK(stands_anywhere(s, other), CT_INVALID, "%s is missing: rank %d, action %d, %s waits for it", name_missing(other, wanted), r, p->at[r], text);
        CT_FAIL(CT_INVALID, "rank %d, action %d, %s: waits for ever for %s of rank %d", r, p->at[r], text, wanted, s->rank_of[other.stage]);
    }
    return check_complete(p);
}

ct_status ct_schedule_verify(const ct_schedule *s) {
    proof p = {s, ct_calloc((size_t)CT_ACT_KINDS * (size_t)s->stages * (size_t)s->micros + 1, 1), ct_calloc((size_t)s->ranks + 1, sizeof(int)), NULL};
    ct_status status = prove(&p);
    free(p.done);
    free(p.at);
    return status;
}

// ---- slots ----

// Does an action take a slot of one of the stage's pools? Between two stages of a rank the upper one's gradient is put into the lower one's slot.
static int takes(const ct_schedule *s, int stage, ct_action a, int pool) {
    if (pool == CT_POOL_FROM_NEXT && a.stage == stage + 1 && has_next_here(s, stage)) return is_backward(a.act);
    if (a.stage != stage) return 0;
    if (pool == CT_POOL_FROM_NEXT) return a.act == CT_ACT_RECV_B || is_backward(a.act);
    return pool == CT_POOL_BACKWARD ? is_backward(a.act) : a.act == CT_ACT_F || a.act == CT_ACT_RECV_F;
}

static int gives(ct_act act, int pool) { return pool == CT_POOL_TO_INPUT_GRAD ? is_backward(act) : ends_micro(act); }

// Deals a pool's slots out, the one that has been free for longest first; at least `count` of them. before[micro]: who had its slot. Returns how many there are.
static int deal(const ct_schedule *s, int stage, int pool, int count, int *slot_of, int *before) {
    const ct_actions *list = &s->of[s->rank_of[stage]];
    int *last = ct_malloc(sizeof(int) * ((size_t)s->micros + (size_t)count + 1));
    int *free_slots = ct_malloc(sizeof(int) * (2 * (size_t)s->micros + (size_t)count + 1)), first = 0, end = 0, slots = 0; // a queue that never wraps
    for (; slots < count; slots++) free_slots[end++] = slots, last[slots] = -1;
    for (int m = 0; m < s->micros; m++) slot_of[m * CT_POOLS + pool] = -1;
    for (int i = 0; i < list->count; i++) {
        ct_action a = list->list[i];
        int *slot = &slot_of[a.micro * CT_POOLS + pool];
        if (takes(s, stage, a, pool) && *slot < 0) {
            if (first == end) free_slots[end++] = slots, last[slots++] = -1;
            *slot = free_slots[first++];
            before[a.micro] = last[*slot];
            last[*slot] = a.micro;
        }
        if (a.stage == stage && gives(a.act, pool)) free_slots[end++] = *slot;
    }
    free(free_slots);
    free(last);
    return slots;
}

// The stage whose slots stop it; -1: it runs.
static int stopped_stage(const ct_schedule *s, const int *before) {
    proof p = {s, ct_calloc((size_t)CT_ACT_KINDS * (size_t)s->stages * (size_t)s->micros + 1, 1), ct_calloc((size_t)s->ranks + 1, sizeof(int)), before};
    ct_status status = CT_OK;
    int stage = -1;
    for (int ran = 1; ran && !status;) {
        ran = 0;
        for (int r = 0; r < s->ranks && !status; r++) status = run_some(&p, r, &ran);
    }
    for (int r = 0; r < s->ranks && stage < 0; r++) {
        ct_action other;
        if (p.at[r] == s->of[r].count) continue;
        ct_action a = s->of[r].list[p.at[r]];
        if (is_backward(a.act) && waits_for_slot(&p, a, &other)) stage = a.stage;
    }
    free(p.done);
    free(p.at);
    return stage;
}

void ct_schedule_slots(const ct_schedule *s, int *counts, int *slot_of) {
    int *before = ct_malloc(sizeof(int) * ((size_t)s->stages * (size_t)s->micros + 1)), *other = ct_malloc(sizeof(int) * ((size_t)s->micros + 1));
    size_t row = (size_t)s->micros * CT_POOLS;
    for (int k = 0; k < s->stages; k++)
        for (int pool = 0; pool < CT_POOLS; pool++)
            counts[k * CT_POOLS + pool] = deal(s, k, pool, 0, slot_of + (size_t)k * row, pool == CT_POOL_BACKWARD ? before + k * s->micros : other);
    for (int k; (k = stopped_stage(s, before)) >= 0;) {
        int *count = &counts[k * CT_POOLS + CT_POOL_BACKWARD];
        *count = deal(s, k, CT_POOL_BACKWARD, *count + 1, slot_of + (size_t)k * row, before + k * s->micros);
    }
    free(before);
    free(other);
}
