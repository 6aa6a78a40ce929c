// The collectives of a plan, one a module: what moves over which axes, how often, and by what way. They are read from the placed programs'
// moves, so that nothing is said twice.
#include "explain_parts.h"
#include "graph/local.h"
#include "graph/op.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *kind_of(const ct_node *node) {
    static const char *const kinds[][2] = {{"reduce_accumulate", "reduce_scatter"}, {"rotate", "send_recv"}, {"reshard", "all_to_all"}};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (!strcmp(node->op->name, kinds[i][0])) return kinds[i][1];
    return node->op->name;
}

// Are all ranks of the group near this one?
static int all_near(const ct_mesh *mesh, int rank, unsigned axes, ct_near near_ranks) {
    int count = ct_mesh_group(mesh, rank, axes, NULL), *ranks = ct_malloc(sizeof(int) * (size_t)count), near = 1;
    ct_mesh_group(mesh, rank, axes, ranks);
    for (int i = 0; i < count; i++) near &= ct_is_near(near_ranks, ranks[i]);
    free(ranks);
    return near;
}

// FLOPs of what this rank computes between the beginning and the end of each node's messages. Caller frees.
static double *hidden_flops(const ct_plan_program *program) {
    int nodes = program->graph->nodes_count;
    double *begun = ct_calloc((size_t)nodes + 1, sizeof *begun), *hidden = ct_calloc((size_t)nodes + 1, sizeof *hidden), so_far = 0;
    for (int i = 0; i < program->instructions_count; i++) {
        const ct_instruction *in = &program->instructions[i];
        if (in->doing == CT_DO_BEGIN || in->doing == CT_DO_OPEN) begun[in->node] = so_far;
        else if (in->doing == CT_DO_END || in->doing == CT_DO_CLOSE) hidden[in->node] = so_far - begun[in->node];
        so_far += ct_instruction_cost(program, i).flops;
    }
    free(begun);
    return hidden;
}

static ct_collective collective_of(const ct_graph *g, const ct_node *node, const ct_step_options *o, ct_program program, int64_t count) {
    const ct_value_info *v = &g->values[node->inputs[ct_moved_operand(node)]];
    unsigned axes = ct_move_axes(g, node);
    ct_type type = v->type;
    if (ct_layout_axes(&v->layout, CT_CUT_SUM)) type.dtype = (ct_dtype)v->layout.partial;
    int64_t extents[CT_MAX_DIMS];
    for (int d = 0; d < type.dims_count; d++) extents[d] = type.dims[d].extent;
    // The whole of what the group has together: what other axes cut is another group's.
    ct_layout others = v->layout;
    for (int a = 0; a < g->mesh.axes_count; a++)
        if (axes >> a & 1) ct_layout_remove(&others, a);
    ct_region whole = ct_layout_box(&g->mesh, &others, type.dims_count, extents, o->rank);
    double bytes = (double)ct_dtype_bytes(type.dtype);
    for (int d = 0; d < type.dims_count; d++) bytes *= (double)whole.extent[d];
    return (ct_collective){.program = program,
                           .axes = axes,
                           .kind = kind_of(node),
                           .module = node->from.module,
                           .phase = node->from.phase,
                           .dtype = type.dtype,
                           .bytes = bytes,
                           .moved_bytes = ct_move_bytes(g, node, o->rank),
                           .count = count,
                           .lowering = all_near(&g->mesh, o->rank, axes, o->plan.near) ? "copy" : "mpi"};
}

int ct_collectives_list(const ct_step *step, const ct_step_options *options, int64_t micro_batches, ct_collective **out) {
    int count = 0, capacity = 0;
    *out = NULL;
    for (int w = 0; w < CT_PROGRAMS; w++) {
        const ct_graph *g = &step->programs[w];
        int64_t runs = step->has[w] ? ct_program_runs((ct_program)w, micro_batches) : 0;
        if (!runs) continue;
        double *hidden = hidden_flops(&step->plan.programs[w]);
        for (int n = 0; n < g->nodes_count; n++) {
            if (!(g->nodes[n].op->flags & CT_OP_MOVE) || !ct_move_axes(g, &g->nodes[n])) continue;
            CT_GROW(*out, count, capacity);
            (*out)[count++] = collective_of(g, &g->nodes[n], options, (ct_program)w, runs);
            (*out)[count - 1].overlapped_flops = hidden[n];
        }
        free(hidden);
    }
    return count;
}

void ct_collective_axes(const ct_mesh *mesh, unsigned axes, const char *before, const char *between, const char *after, ct_string *out) {
    for (int a = 0, any = 0; a < mesh->axes_count; a++)
        if (axes >> a & 1) ct_string_add(out, "%s%s%s%s", any++ ? between : "", before, mesh->axes[a].name, after);
}

// ---- for machines ----
void ct_collectives_json(const ct_step *step, const ct_step_options *options, int64_t micro_batches, ct_string *out) {
    ct_collective *list;
    int count = ct_collectives_list(step, options, micro_batches, &list);
    ct_string_add(out, "[");
    for (int i = 0; i < count; i++) {
        const ct_collective *c = &list[i];
        ct_string_add(out, "%s{\"axis\": [", i ? ", " : "");
        ct_collective_axes(&options->parallel.mesh, c->axes, "\"", ", ", "\"", out);
        ct_string_add(out, "], \"kind\": \"%s\", \"dtype\": \"%s\", \"bytes\": %.17g, \"moved_bytes\": %.17g, \"count\": %lld, \"module\": ", c->kind,
                      ct_dtype_name(c->dtype), c->bytes, c->moved_bytes, (long long)c->count);
        ct_string_add_json(out, c->module);
        ct_string_add(out, ", \"program\": \"%s\", \"phase\": \"%s\", \"lowering\": \"%s\", \"overlapped_flops\": %.17g}",
                      ct_program_name(c->program), ct_phase_name(c->phase), c->lowering, c->overlapped_flops);
    }
    ct_string_add(out, "]");
    free(list);
}

// ---- for people: layers together ----
// "layers.7.attention.wq" → "layers.*.attention.wq".
void ct_module_without_number(const char *module, char *out, size_t size) {
    const char *rest = strncmp(module, "layers.", 7) ? NULL : strchr(module + 7, '.');
    if (rest) snprintf(out, size, "layers.*%s", rest);
    else snprintf(out, size, "%s", module);
}

typedef struct {
    ct_collective first;
    char module[96];
    int64_t calls;
    double moved, overlapped;
} line;

static int same_line(const line *l, const ct_collective *c, const char *module) {
    return l->first.program == c->program && l->first.axes == c->axes && l->first.phase == c->phase && !strcmp(l->first.kind, c->kind) &&
           l->first.dtype == c->dtype && l->first.bytes == c->bytes && !strcmp(l->module, module);
}

static void print_line(const line *l, const ct_mesh *mesh, ct_string *out) {
    ct_string axes = {0};
    ct_collective_axes(mesh, l->first.axes, "", " × ", "", &axes);
    char bytes[32], moved[32], behind[32] = "";
    if (l->overlapped > 0) snprintf(behind, sizeof behind, "%.3g", l->overlapped / (double)l->calls / 1e9);
    ct_bytes_text(l->first.bytes, bytes, sizeof bytes);
    ct_bytes_text(l->moved, moved, sizeof moved);
    ct_string_add(out, "  %-11s %-14s %-22s %-4s %11s × %-5lld %11s  %-5s %8s  %s (%s)\n", ct_program_name(l->first.program), l->first.kind, axes.text,
                  ct_dtype_name(l->first.dtype), bytes, (long long)l->calls, moved, l->first.lowering, behind, l->module, ct_phase_name(l->first.phase));
    ct_string_deinit(&axes);
}

void ct_collectives_print(const ct_step *step, const ct_step_options *options, int64_t micro_batches, ct_string *out) {
    ct_collective *list;
    int count = ct_collectives_list(step, options, micro_batches, &list), lines_count = 0;
    line *lines = ct_calloc((size_t)count + 1, sizeof *lines);
    double total = 0;
    for (int i = 0; i < count; i++) {
        char module[96];
        ct_module_without_number(list[i].module, module, sizeof module);
        int k = 0;
        while (k < lines_count && !same_line(&lines[k], &list[i], module)) k++;
        if (k == lines_count) {
            lines[lines_count].first = list[i];
            memcpy(lines[lines_count++].module, module, sizeof module);
        }
        lines[k].calls += list[i].count;
        lines[k].overlapped += list[i].overlapped_flops * (double)list[i].count;
        lines[k].moved += list[i].moved_bytes * (double)list[i].count;
        total += list[i].moved_bytes * (double)list[i].count;
    }
    char text[32];
    ct_bytes_text(total, text, sizeof text);
    if (!count) ct_string_add(out, "\ncollectives: none (one rank)\n");
    else
        ct_string_add(out, "\ncollectives: %s to this rank in a step\n  program     kind           axes                   type       bytes × calls  to this rank  way   behind *  for\n",
                      text);
    int any = 0;
    for (int k = 0; k < lines_count; k++) {
        print_line(&lines[k], &options->parallel.mesh, out);
        any |= lines[k].overlapped > 0;
    }
    if (count) ct_string_add(out, any ? "  * GFLOP that this rank computes while a call is under way, mean of the calls\n"
                                      : "  * nothing is computed meanwhile\n");
    free(lines);
    free(list);
}
