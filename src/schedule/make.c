// The named schedules. Sources: GPipe (Huang et al. 2019), 1F1B and its interleaving (Narayanan et al. 2021), breadth first (Lamy-Poirier 2023), zero
// bubble and its V (Qi et al. 2024), DualPipe's V (DeepSeek 2025); orders and names as torch has them.
#include "schedule/schedule.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

void ct_schedule_deinit(ct_schedule *s) {
    for (int r = 0; s->of && r < s->ranks; r++) free(s->of[r].list);
    free(s->of);
    free(s->rank_of);
    *s = (ct_schedule){0};
}

void ct_action_print(ct_action a, char *out, size_t size) {
    static const char *const names[CT_ACT_KINDS] = {"F", "I", "W", "B", "SEND_F", "RECV_F", "SEND_B", "RECV_B", "UNSHARD", "REDUCE_GRAD"};
    if (a.act == CT_ACT_UNSHARD || a.act == CT_ACT_REDUCE) snprintf(out, size, "%d%s", a.stage, names[a.act]);
    else snprintf(out, size, "%d%s%d", a.stage, names[a.act], a.micro);
}

static void add(ct_schedule *s, int rank, ct_act act, int stage, int micro) {
    ct_actions *a = &s->of[rank];
    if (micro >= s->micros) return; // of a pattern for more micro-batches than there are
    CT_GROW(a->list, a->count, a->capacity);
    a->list[a->count++] = (ct_action){act, stage, micro};
}

static void gpipe(ct_schedule *s, int rank) {
    for (int m = 0; m < s->micros; m++) add(s, rank, CT_ACT_F, rank, m);
    for (int m = 0; m < s->micros; m++) add(s, rank, CT_ACT_B, rank, m);
}

static void one_forward_one_backward(ct_schedule *s, int rank) {
    int warm = s->ranks - rank < s->micros ? s->ranks - rank : s->micros;
    for (int m = 0; m < warm; m++) add(s, rank, CT_ACT_F, rank, m);
    for (int m = 0; m < s->micros; m++) {
        add(s, rank, CT_ACT_B, rank, m);
        add(s, rank, CT_ACT_F, rank, warm + m);
    }
}

static void looped_breadth_first(ct_schedule *s, int rank) {
    for (int stage = rank; stage < s->stages; stage += s->ranks)
        for (int m = 0; m < s->micros; m++) add(s, rank, CT_ACT_F, stage, m);
    for (int stage = s->stages - s->ranks + rank; stage >= 0; stage -= s->ranks)
        for (int m = 0; m < s->micros; m++) add(s, rank, CT_ACT_B, stage, m);
}

// Rounds of `group` micro-batches over the local stages, forwards from the first stage on, backwards from the last.
typedef struct {
    ct_schedule *s;
    int rank, local, group;
    int forwards, backwards, weights; // done
} rounds;

static ct_action round_action(const rounds *r, ct_act act, int number) {
    int local = number / r->group % r->local, micro = number / (r->group * r->local) * r->group + number % r->group;
    if (act != CT_ACT_F) local = r->local - 1 - local;
    return (ct_action){act, local * r->s->ranks + r->rank, micro};
}

static void add_round(rounds *r, ct_act act, int *number) {
    if (*number >= r->s->micros * r->local) return;
    ct_action a = round_action(r, act, (*number)++);
    add(r->s, r->rank, a.act, a.stage, a.micro);
}

// lag < 0: backwards are whole; else weight gradients come so many backwards later.
static void interleaved(ct_schedule *s, int rank, int hop, int lag) {
    int count = s->micros / s->ranks > 1 ? s->micros / s->ranks : 1;
    rounds r = {.s = s, .rank = rank, .local = s->stages / s->ranks, .group = s->micros / count};
    int total = s->micros * r.local, warm = (r.local - 1) * r.group + hop * (s->ranks - 1 - rank);
    for (int i = 0; i < warm && i < total; i++) add_round(&r, CT_ACT_F, &r.forwards);
    while (r.backwards < total) {
        add_round(&r, CT_ACT_F, &r.forwards);
        add_round(&r, lag < 0 ? CT_ACT_B : CT_ACT_I, &r.backwards);
        if (lag >= 0 && r.backwards > lag) add_round(&r, CT_ACT_W, &r.weights);
    }
    while (lag >= 0 && r.weights < total) add_round(&r, CT_ACT_W, &r.weights);
}

// Two stages a rank, the second on the way back.
typedef struct {
    ct_schedule *s;
    int rank, stage[2];
    int f[2], b[2], w[2];       // done, by the rank's stages
    int waiting[4096], first, last; // stages whose weight gradients are put off, oldest first
} vee;

static void forward(vee *v, int k) { add(v->s, v->rank, CT_ACT_F, v->stage[k], v->f[k]++); }
static void input_grad(vee *v, int k) { add(v->s, v->rank, CT_ACT_I, v->stage[k], v->b[k]++); }
static void weight_grad(vee *v, int k) { add(v->s, v->rank, CT_ACT_W, v->stage[k], v->w[k]++); }

static void zero_bubble_v(ct_schedule *s, int rank) {
    int p = s->ranks, n = s->micros > 2 * p - 1 ? s->micros : 2 * p - 1;
    vee v = {.s = s, .rank = rank, .stage = {rank, 2 * p - 1 - rank}};
    for (int i = 0; i < 2 * (p - rank) - 1; i++) forward(&v, 0);
    for (int i = 0; i < rank; i++) forward(&v, 1), forward(&v, 0);
    for (int i = 0; i < p - rank; i++) forward(&v, 1), input_grad(&v, 1), weight_grad(&v, 1);
    while (v.f[1] < v.f[0] || v.f[0] < n) {
        if (v.f[0] < n) forward(&v, 0);
        input_grad(&v, 0), weight_grad(&v, 0);
        forward(&v, 1), input_grad(&v, 1), weight_grad(&v, 1);
    }
    for (int i = 0; i < rank; i++) input_grad(&v, 0), input_grad(&v, 1);
    for (int i = 0; i < p - rank; i++) input_grad(&v, 0), weight_grad(&v, 0);
    while (v.w[1] < v.b[1]) weight_grad(&v, 1);
    while (v.w[0] < v.b[0]) weight_grad(&v, 0);
}

// A backward, whole or with its weight gradients put off.
static void backward(vee *v, int k, int split) {
    if (split) {
        if (v->b[k] < v->s->micros) v->waiting[v->last++ % 4096] = k;
        input_grad(v, k);
        return;
    }
    add(v->s, v->rank, CT_ACT_B, v->stage[k], v->b[k]++);
    v->w[k]++;
}

static void oldest_weight_grad(vee *v) {
    if (v->first < v->last) weight_grad(v, v->waiting[v->first++ % 4096]);
}

static void dual_pipe_v(ct_schedule *s, int rank) {
    int p = s->ranks, n = s->micros, split = 0;
    vee v = {.s = s, .rank = rank, .stage = {rank, 2 * p - 1 - rank}};
    for (int i = 0; i < 2 * (p - rank - 1); i++) forward(&v, 0);
    for (int i = 0; i < rank + 1; i++) forward(&v, 0), forward(&v, 1);
    for (int i = 0; i < p - rank - 1; i++) backward(&v, 1, 1), oldest_weight_grad(&v), forward(&v, 1);
    for (int i = 0; i < n - 2 * p + rank + 1; i++) forward(&v, 0), backward(&v, 1, 0), forward(&v, 1), backward(&v, 0, 0);
    for (int i = 0; i < p - rank - 1; i++) backward(&v, 1, 0), forward(&v, 1), backward(&v, 0, 0);
    for (int i = 0; i < rank + 1; i++) {
        if (i == (rank + 1) / 2 && rank % 2) split = 1;
        backward(&v, 1, split);
        if (i == (rank + 1) / 2 && !(rank % 2)) split = 1;
        backward(&v, 0, split);
    }
    for (int i = 0; i < p - rank - 1; i++) oldest_weight_grad(&v), backward(&v, 0, 1);
    while (v.first < v.last) oldest_weight_grad(&v);
}

// ---- names ----
typedef struct {
    const char *name;
    int local; // stages a rank: 1, 2; 0: any number
    int v;     // the stages come back
    int rounds; // micro-batches must fall into equal rounds
} form;

enum { GPIPE, ONE_F_ONE_B, LOOPED, INTERLEAVED, ZERO_BUBBLE, ZBV, DUAL, AUTO, FORMS };
static const form forms[FORMS] = {{"GPipe", 1, 0, 0},       {"1F1B", 1, 0, 0},          {"LoopedBFS", 0, 0, 0}, {"Interleaved1F1B", 0, 0, 1},
                                  {"InterleavedZeroBubble", 0, 0, 1}, {"ZBVZeroBubble", 2, 1, 0}, {"DualPipeV", 2, 1, 0},
                                  {"Auto", 0, 1, 0}};

static ct_status find(const char *name, int *out) {
    char known[256] = "";
    for (*out = 0; *out < FORMS; ++*out) {
        if (!strcasecmp(forms[*out].name, name)) return CT_OK;
        snprintf(known + strlen(known), sizeof known - strlen(known), "%s%s", *out ? ", " : "", forms[*out].name);
    }
    CT_FAIL(CT_INVALID, "there is no pipeline schedule \"%s\"; there are %s", name, known);
}

static ct_status check(const form *f, int ranks, int local, int micros) {
    CT_CHECK(ranks >= 1 && local >= 1 && micros >= 1, CT_INVALID, "%s of %d ranks with %d stages each and %d micro-batches: at least 1 of each is wanted",
             f->name, ranks, local, micros);
    CT_CHECK(!f->local || local == f->local, CT_INVALID, "%s has %d stage%s a rank, not %d", f->name, f->local, f->local > 1 ? "s" : "", local);
    CT_CHECK(f != &forms[DUAL] || micros >= 2 * ranks, CT_INVALID, "DualPipeV on %d ranks needs at least %d micro-batches, not %d", ranks, 2 * ranks, micros);
    int count = micros / ranks > 1 ? micros / ranks : 1;
    if (!f->rounds || micros % count == 0) return CT_OK;
    int below = micros, above = micros;
    while (below % (below / ranks > 1 ? below / ranks : 1)) below--;
    while (above % (above / ranks > 1 ? above / ranks : 1)) above++;
    CT_FAIL(CT_INVALID, "%s on %d ranks can't do %d micro-batches: they don't fall into %d equal rounds; %d or %d would", f->name, ranks, micros, count, below,
            above);
}

static ct_status make_auto(int ranks, int local, int micros, ct_schedule *out) {
    ct_stage_cost *costs = ct_malloc(sizeof *costs * (size_t)ranks * (size_t)local);
    for (int k = 0; k < ranks * local; k++) costs[k] = (ct_stage_cost){1, 1, 1, 1};
    ct_status status = ct_schedule_auto(ranks, local, micros, costs, 0, 0, out);
    free(costs);
    return status;
}

ct_status ct_schedule_make(const char *name, int ranks, int local, int micros, ct_schedule *out) {
    int which;
    CT_TRY(find(name, &which));
    CT_TRY(check(&forms[which], ranks, local, micros));
    if (which == AUTO) return make_auto(ranks, local, micros, out);
    ct_schedule s = {.ranks = ranks, .stages = ranks * local, .micros = micros};
    snprintf(s.name, sizeof s.name, "%s", forms[which].name);
    s.rank_of = ct_malloc(sizeof(int) * (size_t)s.stages);
    s.of = ct_calloc((size_t)ranks, sizeof *s.of);
    for (int k = 0; k < s.stages; k++) s.rank_of[k] = forms[which].v && k >= ranks ? 2 * ranks - 1 - k : k % ranks;
    for (int r = 0; r < ranks; r++) switch (which) {
        case GPIPE: gpipe(&s, r); break;
        case ONE_F_ONE_B: one_forward_one_backward(&s, r); break;
        case LOOPED: looped_breadth_first(&s, r); break;
        case INTERLEAVED: interleaved(&s, r, 2, -1); break;
        case ZERO_BUBBLE: interleaved(&s, r, 1, r); break;
        case ZBV: zero_bubble_v(&s, r); break;
        default: dual_pipe_v(&s, r); break;
        }
    *out = s;
    return CT_OK;
}
