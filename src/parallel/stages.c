// Every node gets a stage by its module and a part by its phase; the rest follows from who reads what.
#include "parallel/stages.h"
#include "graph/op.h"
#include "graph/rewrite.h"

#include <stdlib.h>
#include <string.h>

enum { ANYWHERE = -1 };

// ---- where a node belongs ----
static int is_within(const char *module, const char *name) {
    size_t n = strlen(name);
    return !strncmp(module, name, n) && (!module[n] || module[n] == '.');
}

// The stage of a module, -1: none says so.
static int stage_of_module(const ct_stage_map *map, const char *module) {
    for (int s = 0; s < map->stages; s++)
        for (int i = 0; map->modules[s][i]; i++)
            if (is_within(module, map->modules[s][i])) return s;
    return -1;
}

static ct_status check_map(const ct_graph *g, const ct_stage_map *map) {
    for (int s = 0; s < map->stages; s++) {
        CT_CHECK(map->modules[s][0], CT_INVALID, "pipeline stage %d has no modules", s);
        for (int i = 0; map->modules[s][i]; i++) {
            int found = 0;
            for (int n = 0; n < g->nodes_count && !found; n++) found = is_within(g->nodes[n].from.module, map->modules[s][i]);
            CT_CHECK(found, CT_INVALID, "pipeline stage %d: the model has no module %s", s, map->modules[s][i]);
            for (int t = 0; t <= s; t++)
                for (int k = 0; map->modules[t][k] && (t < s || k < i); k++)
                    CT_CHECK(strcmp(map->modules[t][k], map->modules[s][i]), CT_INVALID, "module %s is in pipeline stages %d and %d", map->modules[s][i], t, s);
        }
    }
    return CT_OK;
}

// A view of one value goes wherever that value is read.
static int is_view(const ct_node *node) { return (node->op->flags & CT_OP_VIEW) && node->inputs_count == 1; }

// Does a node only look at feeds? Then whoever reads it can compute it.
static int needs_feeds_only(const ct_stages *s, const ct_node *node) {
    const ct_graph *g = s->graph;
    for (int i = 0; i < node->inputs_count; i++) {
        const ct_value_info *v = &g->values[node->inputs[i]];
        if (v->node < 0 ? g->inputs[v->output].kind != CT_FEED : s->stage[v->node] != ANYWHERE || is_view(&g->nodes[v->node])) return 0;
    }
    return !node->op->must_alias[0];
}

// The node that makes a value, through views; -1: an input.
static int maker_of(const ct_graph *g, int value) {
    int n = g->values[value].node;
    while (n >= 0 && is_view(&g->nodes[n])) n = g->values[g->nodes[n].inputs[0]].node;
    return n;
}

// The value that views show.
static int base_of(const ct_graph *g, int value) {
    while (g->values[value].node >= 0 && is_view(&g->nodes[g->values[value].node])) value = g->nodes[g->values[value].node].inputs[0];
    return value;
}

static int part_of_phase(ct_phase phase, int joint) {
    return phase == CT_FORWARD ? CT_PART_FORWARD : phase == CT_WEIGHT_GRAD && !joint ? CT_PART_WEIGHT_GRAD : CT_PART_INPUT_GRAD;
}

// A gradient that is only added up goes where it was made.
static int is_accumulation(const ct_graph *g, const ct_node *node) {
    return (node->op->flags & CT_OP_ADDITIVE) && node->op->must_alias[0] == 1 && node->inputs_count == 3 && g->values[node->inputs[0]].node < 0;
}

static void place_node(ct_stages *s, const ct_stage_map *map, int joint, int n) {
    const ct_graph *g = s->graph;
    const ct_node *node = &g->nodes[n];
    int lowest = -1, highest = -1, part = part_of_phase(node->from.phase, joint), made = -1;
    for (int i = 0; i < node->inputs_count; i++) {
        int by = maker_of(g, node->inputs[i]);
        if (by < 0 || s->stage[by] == ANYWHERE) continue;
        if (lowest < 0 || s->stage[by] < lowest) lowest = s->stage[by];
        if (s->stage[by] > highest) highest = s->stage[by];
        if (s->part[by] > made) made = s->part[by];
    }
    int stage = stage_of_module(map, node->from.module);
    s->stage[n] = stage >= 0 ? stage : part == CT_PART_FORWARD ? highest : lowest;
    int ready = node->from.phase == CT_WEIGHT_GRAD && made == CT_PART_FORWARD; // of the loss: its logits' gradient must not wait for a backward
    s->part[n] = ready || (is_accumulation(g, node) && made >= 0) ? made : part;
}

static ct_status check_node(const ct_stages *s, int n) {
    const ct_graph *g = s->graph;
    const ct_node *node = &g->nodes[n];
    CT_CHECK(s->stage[n] >= 0, CT_INVALID, "module %s is in no pipeline stage", node->from.module);
    for (int i = 0; i < node->inputs_count; i++) {
        int by = maker_of(g, node->inputs[i]), a, b = s->stage[n];
        if (by < 0 || s->stage[by] == ANYWHERE) continue;
        a = s->stage[by];
        int fits = a == b ? s->part[by] <= s->part[n] : a < b ? s->part[by] == CT_PART_FORWARD : s->part[by] < CT_PART_WEIGHT_GRAD && s->part[n] > CT_PART_FORWARD;
        CT_CHECK(fits, CT_UNSUPPORTED, "%s in %s (%s, stage %d) reads what %s in %s (%s, stage %d) makes, which comes too late", node->op->name,
                 node->from.module, ct_phase_name(node->from.phase), b, g->nodes[by].op->name, g->nodes[by].from.module,
                 ct_phase_name(g->nodes[by].from.phase), a);
    }
    return CT_OK;
}

// ---- who keeps what ----
enum { SAVED = 1, READ_LAST = 2 }; // READ_LAST: by weight gradients

static unsigned char *saved_at(const ct_stages *s, int value, int stage) { return &s->saved[(size_t)value * (size_t)s->stages + (size_t)stage]; }

static void keep_on_the_way(ct_stages *s, int value, int from, int to) {
    for (int k = from < to ? from : to; k <= (from < to ? to : from); k++) *saved_at(s, value, k) |= SAVED;
}

static void find_saved(ct_stages *s) {
    const ct_graph *g = s->graph;
    for (int n = 0; n < g->nodes_count; n++) {
        if (s->stage[n] == ANYWHERE) continue;
        for (int i = 0; i < g->nodes[n].inputs_count; i++) {
            int by = maker_of(g, g->nodes[n].inputs[i]);
            if (by < 0 || s->stage[by] == ANYWHERE) continue;
            if (s->stage[by] == s->stage[n] && s->part[by] == s->part[n]) continue;
            int value = base_of(g, g->nodes[n].inputs[i]);
            keep_on_the_way(s, value, s->stage[by], s->stage[n]);
            if (s->part[n] == CT_PART_WEIGHT_GRAD) *saved_at(s, value, s->stage[n]) |= READ_LAST;
        }
    }
}

ct_status ct_stages_find(const ct_graph *g, const ct_stage_map *map, int joint, ct_stages *out) {
    CT_TRY(check_map(g, map));
    size_t nodes = (size_t)g->nodes_count + 1;
    ct_stages s = {g, map->stages, ct_malloc(sizeof(int) * nodes), ct_malloc(sizeof(int) * nodes),
                   ct_calloc(((size_t)g->values_count + 1) * (size_t)map->stages, 1)};
    ct_status status = CT_OK;
    for (int n = 0; n < g->nodes_count && !status; n++) {
        s.stage[n] = s.part[n] = ANYWHERE;
        if (is_view(&g->nodes[n]) || needs_feeds_only(&s, &g->nodes[n])) continue;
        place_node(&s, map, joint, n);
        status = check_node(&s, n);
    }
    if (!status) find_saved(&s);
    if (status) ct_stages_deinit(&s);
    else *out = s;
    return status;
}

void ct_stages_deinit(ct_stages *s) {
    free(s->stage);
    free(s->part);
    free(s->saved);
    *s = (ct_stages){0};
}

int ct_stage_has(const ct_stages *s, int stage, int part) {
    for (int n = 0; n < s->graph->nodes_count; n++)
        if (s->stage[n] == stage && s->part[n] == part) return 1;
    return 0;
}

static int is_saved(const ct_stages *s, int value, int stage) { return *saved_at(s, value, stage) & SAVED; }

ct_saved_life ct_stage_life(const ct_stages *s, int stage, int value) {
    int by = s->graph->values[value].node;
    if (s->stage[by] > stage) return CT_LIFE_FROM_NEXT;
    if (s->stage[by] == stage && s->part[by] != CT_PART_FORWARD) return CT_LIFE_BACKWARD;
    return *saved_at(s, value, stage) & READ_LAST ? CT_LIFE_TO_WEIGHT_GRAD : CT_LIFE_TO_INPUT_GRAD;
}

int ct_stage_messages(const ct_stages *s, int stage, int backward, int *out) {
    const ct_graph *g = s->graph;
    int count = 0;
    if (stage + 1 >= s->stages) return 0;
    for (int v = 0; v < g->values_count; v++) {
        int by = g->values[v].node;
        if (by < 0 || !is_saved(s, v, stage) || !is_saved(s, v, stage + 1)) continue; // both sides of the boundary
        if ((s->stage[by] > stage) != (backward != 0)) continue;
        if (out) out[count] = v;
        count++;
    }
    return count;
}

const char *ct_stage_saved_name(ct_arena *arena, const ct_stages *s, int stage, int value) {
    return ct_arena_format(arena, "%%%s.%d.%d.%d", s->graph->name, stage, value, ct_stage_life(s, stage, value));
}

// ---- programs ----
typedef struct {
    const ct_stages *s;
    ct_rewrite r;
    int stage, part;
} cutting;

static void bring(cutting *c, int value);

static void bring_node(cutting *c, int n) {
    const ct_node *node = &c->s->graph->nodes[n];
    for (int i = 0; i < node->inputs_count; i++) bring(c, node->inputs[i]);
    ct_rewrite_node(&c->r, n);
}

// Makes a value known to the program: an input, computed again, or saved by another program.
static void bring(cutting *c, int value) {
    const ct_graph *g = c->s->graph;
    const ct_value_info *v = &g->values[value];
    if (c->r.map[value] >= 0) return;
    if (v->node < 0) {
        ct_rewrite_input(&c->r, v->output);
        return;
    }
    if (c->s->stage[v->node] == ANYWHERE) {
        bring_node(c, v->node);
        return;
    }
    ct_value saved = ct_build_input(c->r.to, CT_SAVED, ct_stage_saved_name(&c->r.to->arena, c->s, c->stage, value), v->type);
    c->r.map[value] = saved.id;
    if (saved.id < 0) return;
    c->r.to->values[saved.id].layout = v->layout;
    c->r.to->values[saved.id].hint = v->hint;
    c->r.to->values[saved.id].placed = v->placed;
}

static void save_outputs(cutting *c, int n) {
    const ct_node *node = &c->s->graph->nodes[n];
    for (int k = 0; k < node->outputs_count; k++)
        if (is_saved(c->s, node->outputs[k], c->stage) && c->r.map[node->outputs[k]] >= 0)
            ct_build_output(c->r.to, ct_stage_saved_name(&c->r.to->arena, c->s, c->stage, node->outputs[k]), (ct_value){c->r.map[node->outputs[k]]});
}

// What comes from the neighbours has room from the program on that waits for it, even if only a later one reads it, or the next stage.
static void bring_messages(cutting *c) {
    int from = c->part == CT_PART_FORWARD ? c->stage - 1 : c->stage;
    if (c->part == CT_PART_WEIGHT_GRAD || from < 0) return;
    int *values = ct_malloc(sizeof(int) * (size_t)(c->s->graph->values_count + 1));
    int count = ct_stage_messages(c->s, from, c->part == CT_PART_INPUT_GRAD, values);
    for (int i = 0; i < count; i++) bring(c, values[i]);
    free(values);
}

static int is_own(const cutting *c, int n) { return c->s->stage[n] == c->stage && c->s->part[n] == c->part; }

static void finish(cutting *c) {
    const ct_graph *g = c->s->graph;
    for (int i = 0; i < g->inputs_count; i++) {
        int update = g->inputs[i].update, by = update < 0 ? -1 : maker_of(g, update);
        if (by >= 0 && is_own(c, by)) ct_build_update(c->r.to, (ct_value){c->r.map[g->inputs[i].value]}, (ct_value){c->r.map[update]});
    }
    for (int i = 0; i < g->outputs_count; i++) {
        int by = maker_of(g, g->outputs[i].value);
        if (by >= 0 && is_own(c, by)) ct_build_output(c->r.to, g->outputs[i].name, (ct_value){c->r.map[g->outputs[i].value]});
    }
}

ct_status ct_stage_program(const ct_stages *s, int stage, int part, ct_graph *out) {
    static const char *const names[] = {"forward", "input-grad", "weight-grad"};
    cutting c = {.s = s, .stage = stage, .part = part};
    ct_rewrite_begin(&c.r, s->graph, out, 0);
    int has_backward = 0;
    for (int n = 0; n < s->graph->nodes_count; n++) has_backward |= s->part[n] > CT_PART_FORWARD;
    if (has_backward) out->name = names[part];
    bring_messages(&c);
    for (int n = 0; n < s->graph->nodes_count; n++) {
        if (!is_own(&c, n)) continue;
        bring_node(&c, n);
        save_outputs(&c, n);
    }
    if (!ct_graph_status(out)) finish(&c);
    ct_rewrite_abandon(&c.r);
    return ct_graph_status(out);
}
