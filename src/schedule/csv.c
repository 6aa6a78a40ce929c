// A schedule from a file: ranks write down what they compute; who has which stage follows from that. And the costs of stages from another one.
#include "schedule/schedule.h"
#include "base/file.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    const char *path;
    int line, field;
    ct_schedule *s;
    int stages_capacity;
} reading;

static int number(const char **at) {
    if (!isdigit((unsigned char)**at)) return -1;
    char *end;
    long n = strtol(*at, &end, 10);
    *at = end;
    return n <= 1 << 20 ? (int)n : -1;
}

static ct_status parse(const reading *r, const char *text, ct_action *out) {
    const char *at = text;
    out->stage = number(&at);
    const char *letter = out->stage >= 0 && *at ? strchr("FIWB", *at) : NULL;
    if (letter) at++;
    out->micro = letter ? number(&at) : -1;
    CT_CHECK(letter && out->micro >= 0 && !*at, CT_INVALID,
             "%s:%d, field %d: \"%.40s\" is no action: a stage, one of F I W B, and a micro-batch are wanted, such as 2F3", r->path, r->line, r->field, text);
    static const ct_act acts[] = {CT_ACT_F, CT_ACT_I, CT_ACT_W, CT_ACT_B};
    out->act = acts[letter - "FIWB"];
    return CT_OK;
}

static ct_status place(reading *r, int rank, ct_action a) {
    ct_schedule *s = r->s;
    CT_CHECK(a.stage < 64 * s->ranks, CT_INVALID, "%s:%d, field %d: stage %d of %d ranks: at most %d are possible", r->path, r->line, r->field, a.stage, s->ranks,
             64 * s->ranks);
    CT_CHECK(a.micro < s->micros, CT_INVALID, "%s:%d, field %d: micro-batch %d: there are %d", r->path, r->line, r->field, a.micro, s->micros);
    while (s->stages <= a.stage) s->rank_of[s->stages++] = -1;
    CT_CHECK(s->rank_of[a.stage] < 0 || s->rank_of[a.stage] == rank, CT_INVALID, "%s:%d, field %d: stage %d is rank %d's already", r->path, r->line, r->field,
             a.stage, s->rank_of[a.stage]);
    s->rank_of[a.stage] = rank;
    ct_actions *list = &s->of[rank];
    CT_GROW(list->list, list->count, list->capacity);
    list->list[list->count++] = a;
    return CT_OK;
}

static char *trimmed(char *text) {
    while (isspace((unsigned char)*text)) text++;
    size_t n = strlen(text);
    while (n && isspace((unsigned char)text[n - 1])) text[--n] = 0;
    return text;
}

static ct_status read_line(reading *r, char *line) {
    int rank = r->line - 1;
    CT_CHECK(rank < r->s->ranks, CT_INVALID, "%s:%d: a line too many: there are %d ranks", r->path, r->line, r->s->ranks);
    r->field = 0;
    for (char *field = line, *next; field; field = next) {
        next = strchr(field, ',');
        if (next) *next++ = 0;
        r->field++;
        field = trimmed(field);
        if (!*field) continue;
        ct_action a;
        CT_TRY(parse(r, field, &a));
        CT_TRY(place(r, rank, a));
    }
    return CT_OK;
}

static ct_status read_all(reading *r, char *text) {
    for (char *line = text, *next; line && *line; line = next) {
        next = strchr(line, '\n');
        if (next) *next++ = 0;
        r->line++;
        CT_TRY(read_line(r, line));
    }
    CT_CHECK(r->line == r->s->ranks, CT_INVALID, "%s: %d lines for %d ranks: one each is wanted", r->path, r->line, r->s->ranks);
    for (int k = 0; k < r->s->stages; k++) CT_CHECK(r->s->rank_of[k] >= 0, CT_INVALID, "%s: no rank has stage %d", r->path, k);
    return CT_OK;
}

ct_status ct_schedule_read_csv(const char *path, int ranks, int micros, ct_schedule *out) {
    char *text;
    CT_TRY(ct_file_read(path, 64 << 20, &text, NULL));
    ct_schedule s = {.name = "CSV", .ranks = ranks, .micros = micros};
    s.rank_of = ct_malloc(sizeof(int) * 64 * (size_t)ranks);
    s.of = ct_calloc((size_t)ranks, sizeof *s.of);
    reading r = {.path = path, .s = &s};
    ct_status status = read_all(&r, text);
    free(text);
    if (status) ct_schedule_deinit(&s);
    else *out = s;
    return status;
}

// ---- costs ----
static ct_status read_cost(const char *path, int line, const char *text, int stage, ct_stage_cost *out) {
    int number;
    char rest;
    ct_stage_cost c = {.saved_bytes = 1};
    int fields = sscanf(text, "%d,%lf,%lf,%lf %c", &number, &c.forward_s, &c.input_grad_s, &c.weight_grad_s, &rest);
    int possible = c.forward_s >= 0 && c.input_grad_s >= 0 && c.weight_grad_s >= 0 && isfinite(c.forward_s + c.input_grad_s + c.weight_grad_s);
    CT_CHECK(fields == 4 && possible, CT_INVALID,
             "%s:%d: \"%.60s\": stage, and seconds of its forward, input gradient and weight gradients are wanted, as 0,0.01,0.01,0.01", path, line, text);
    CT_CHECK(number == stage, CT_INVALID, "%s:%d: stage %d where stage %d is wanted", path, line, number, stage);
    *out = c;
    return CT_OK;
}

static ct_status read_costs(const char *path, char *text, int stages, ct_stage_cost *out) {
    int stage = 0, line = 1;
    for (char *at = text, *next; at && *at; at = next, line++) {
        next = strchr(at, '\n');
        if (next) *next++ = 0;
        at = trimmed(at);
        if (!*at || (line == 1 && !isdigit((unsigned char)*at))) continue;
        CT_CHECK(stage < stages, CT_INVALID, "%s:%d: a line too many: there are %d stages", path, line, stages);
        CT_TRY(read_cost(path, line, at, stage, &out[stage]));
        stage++;
    }
    CT_CHECK(stage == stages, CT_INVALID, "%s: costs of %d stages, %d are wanted", path, stage, stages);
    return CT_OK;
}

ct_status ct_schedule_read_costs(const char *path, int stages, ct_stage_cost *out) {
    char *text;
    CT_TRY(ct_file_read(path, 1 << 20, &text, NULL));
    ct_status status = read_costs(path, text, stages, out);
    free(text);
    return status;
}
