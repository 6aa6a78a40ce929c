// From nodes to instructions: which kernel, which scratch, and, where ranks of several nodes work together, in which parts.
#include "planning.h"
#include "graph/op.h"
#include "graph/parts.h"

#include <stdlib.h>
#include <string.h>

static void fill_call(const ct_graph *g, const ct_node *node, ct_call *call) {
    call->inputs = node->inputs_count;
    call->outputs = node->outputs_count;
    for (int i = 0; i < node->inputs_count + node->outputs_count; i++) {
        int is_input = i < node->inputs_count;
        const ct_type *type = &g->values[is_input ? node->inputs[i] : node->outputs[i - node->inputs_count]].type;
        ct_tensor *t = is_input ? &call->in[i] : &call->out[i - node->inputs_count];
        t->dtype = type->dtype;
        t->dims_count = type->dims_count;
        int value = is_input ? node->inputs[i] : node->outputs[i - node->inputs_count];
        for (int d = 0; d < type->dims_count; d++) {
            t->dims[d] = type->dims[d].extent;
            t->origin[d] = g->values[value].origin[d];
        }
    }
    memcpy(call->attrs, node->attrs, sizeof call->attrs);
}

static void make_roomy(const ct_graph *g, const ct_node *node, ct_call *call) {
    for (int i = 0; g->rank >= 0 && i < call->inputs + call->outputs; i++) {
        int is_input = i < call->inputs, value = is_input ? node->inputs[i] : node->outputs[i - call->inputs];
        ct_tensor *t = is_input ? &call->in[i] : &call->out[i - call->inputs];
        for (int d = 0; d < t->dims_count; d++) t->dims[d] = g->values[value].room[d];
    }
}

// Layers repeat: the same move between the same layouts has the same messages.
static size_t message_bytes(planning *p, const ct_graph *g, const ct_node *move) {
    if (!p->options.near.count) return 0;
    const ct_value_info *from = &g->values[move->inputs[ct_moved_operand(move)]], *to = &g->values[move->outputs[0]];
    for (int i = 0; i < p->messages_count; i++) {
        const struct known_message *k = &p->messages[i];
        if (k->op == move->op && !memcmp(k->attrs, move->attrs, sizeof k->attrs) && ct_type_equal(&k->type, &from->type) &&
            ct_layout_equal(&k->from, &from->layout) && ct_layout_equal(&k->to, &to->layout))
            return k->bytes;
    }
    size_t bytes = 0; // of the rank of this node that has most: what lies behind it is at one place on all of them
    for (int r = p->options.near.first; r < p->options.near.first + p->options.near.count && r < ct_mesh_ranks(&g->mesh); r++) {
        size_t of_rank = ct_move_message_bytes(g, move, r, p->options.near);
        if (of_rank > bytes) bytes = of_rank;
    }
    if (p->messages_count < MOST_MESSAGES) {
        struct known_message *k = &p->messages[p->messages_count++];
        *k = (struct known_message){.op = move->op, .type = from->type, .from = from->layout, .to = to->layout, .bytes = bytes};
        memcpy(k->attrs, move->attrs, sizeof k->attrs);
    }
    return bytes;
}

static ct_status choose_kernel(planning *p, const ct_graph *g, int n, ct_instruction *instruction) {
    const ct_node *node = &g->nodes[n];
    CT_CHECK(!(node->op->flags & CT_OP_MACRO), CT_INVALID, "%s in %s was not expanded", node->op->name, node->from.module);
    instruction->node = n;
    fill_call(g, node, &instruction->call);
    if (node->op->flags & CT_OP_MOVE) {
        instruction->scratch_bytes = message_bytes(p, g->global, &g->global->nodes[n]);
        return CT_OK;
    }
    instruction->kernel = ct_kernel_find(node->op->kernel ? node->op->kernel : node->op->name, &instruction->call, p->options.isa_limit);
    if (!instruction->kernel) {
        ct_string types = {0};
        for (int i = 0; i < instruction->call.inputs; i++) ct_string_add(&types, " %s", ct_dtype_name(instruction->call.in[i].dtype));
        ct_status s = ct_error_make(CT_UNSUPPORTED, __FILE__, __LINE__, "no kernel for %s on%s in %s", node->op->name, types.text,
                                    node->from.module);
        ct_string_deinit(&types);
        return s;
    }
    if (instruction->kernel->scratch) {
        ct_call roomy = instruction->call; // the largest shard's: what lies behind it is at one place on every rank
        make_roomy(g, node, &roomy);
        instruction->scratch_bytes = planning_round(instruction->kernel->scratch(&roomy, p->options.threads));
    }
    return CT_OK;
}

static ct_instruction *add(planning *p, ct_plan_program *program, int n, ct_doing doing, ct_status *status) {
    int capacity = program->instructions_capacity;
    CT_GROW(program->instructions, program->instructions_count, capacity);
    program->instructions_capacity = capacity;
    ct_instruction *in = &program->instructions[program->instructions_count++];
    *in = (ct_instruction){.doing = doing, .peer = -1};
    if (!*status) *status = choose_kernel(p, program->graph, n, in);
    return in;
}

static ct_status add_one(planning *p, ct_plan_program *program, int n, ct_doing doing) {
    ct_status status = CT_OK;
    add(p, program, n, doing, &status);
    return status;
}

// ---- parts ----

// Narrows a tensor to [begin, begin + extent) of its dim, at one place of the dims before it. Gives the bytes from its old start to its new one.
static size_t narrow(ct_tensor *t, int dim, int64_t leading, int64_t begin, int64_t extent) {
    if (dim < 0) return 0;
    int64_t stride = 1;
    for (int d = dim + 1; d < t->dims_count; d++) stride *= t->dims[d];
    size_t bytes = (size_t)((leading * t->dims[dim] + begin) * stride) * ct_dtype_bytes(t->dtype);
    for (int d = dim - 1; d >= 0; d--) {
        t->origin[d] += leading % t->dims[d];
        leading /= t->dims[d];
        t->dims[d] = 1;
    }
    t->origin[dim] += begin;
    t->dims[dim] = extent;
    return bytes;
}

// Runs node n on [begin, begin + extent) of a dim, one call for each place of the dims before it.
static ct_status add_part(planning *p, ct_plan_program *program, int n, const ct_parts *parts, int64_t begin, int64_t extent) {
    const ct_node *node = &program->graph->nodes[n];
    const ct_type *out = &program->graph->values[node->outputs[0]].type;
    int64_t leading = 1;
    for (int d = 0; d < parts->leading; d++) leading *= out->dims[d].extent;
    ct_status status = CT_OK;
    for (int64_t l = 0; l < leading && !status; l++) {
        ct_instruction *in = add(p, program, n, CT_DO_PART, &status);
        for (int i = 0; i < node->inputs_count && !status; i++) in->in_offset[i] = narrow(&in->call.in[i], parts->in_dim[i], l, begin, extent);
        for (int o = 0; o < node->outputs_count && !status; o++) in->out_offset[o] = narrow(&in->call.out[o], parts->out_dim[o], l, begin, extent);
        size_t scratch = !status && in->kernel->scratch ? planning_round(in->kernel->scratch(&in->call, p->options.threads)) : 0;
        CT_CHECK(status || scratch <= in->scratch_bytes, CT_UNSUPPORTED, "%s in %s needs more scratch for a part than for the whole", node->op->name,
                 node->from.module);
    }
    return status;
}

// A rank's own place among others comes first, then those behind it: no two ranks want the same peer's part at once.
static int distance(const ct_plan_program *program, int peer) {
    int ranks = ct_mesh_ranks(&program->graph->mesh);
    return (peer - program->graph->rank + ranks) % ranks;
}

static void sort_pieces(const ct_plan_program *program, ct_piece *pieces, int count) {
    for (int i = 1; i < count; i++)
        for (int k = i; k > 0 && distance(program, pieces[k].rank) < distance(program, pieces[k - 1].rank); k--) {
            ct_piece piece = pieces[k];
            pieces[k] = pieces[k - 1];
            pieces[k - 1] = piece;
        }
}

static int operand_of(const ct_node *node, int value) {
    int i = 0;
    while (node->inputs[i] != value) i++;
    return i;
}

static ct_status add_readers(planning *p, ct_plan_program *program, int n, int last, const ct_piece *piece) {
    const ct_graph *g = program->graph;
    int dim = ct_move_dim(g->global, &g->global->nodes[n]);
    for (int m = n + 1; m <= last; m++) {
        ct_parts parts;
        int found = ct_parts_find(g, &g->nodes[m], 0, operand_of(&g->nodes[m], g->nodes[n].outputs[0]), dim, &parts);
        CT_ASSERT(found, "%s was to run in parts", g->nodes[m].op->name);
        CT_TRY(add_part(p, program, m, &parts, piece->to[dim], piece->extent[dim]));
    }
    return CT_OK;
}

// A gather and what runs on its pieces: first those that lie here, then the others' as they come.
static ct_status add_gather(planning *p, ct_plan_program *program, int n, int last) {
    const ct_graph *g = program->graph;
    ct_status status = CT_OK;
    ct_piece *pieces = ct_malloc(sizeof *pieces * (size_t)ct_mesh_group(&g->mesh, g->rank, ct_move_axes(g, &g->nodes[n]), NULL));
    int count = ct_move_pieces(g->global, &g->global->nodes[n], g->rank, pieces);
    sort_pieces(program, pieces, count);
    add(p, program, n, CT_DO_NEAR, &status);
    for (int far = 0; far < 2; far++)
        for (int i = 0; i < count && !status; i++) {
            if (ct_is_near(p->options.near, pieces[i].rank) == far) continue;
            if (far) add(p, program, n, CT_DO_PIECE, &status)->peer = pieces[i].rank;
            if (!status) status = add_readers(p, program, n, last, &pieces[i]);
        }
    if (!status) add(p, program, n, CT_DO_CLOSE, &status);
    for (int m = n + 1; m <= last && !count && !status; m++) status = add_one(p, program, m, CT_DO_RUN); // of nothing: a sum over it is zero
    free(pieces);
    return status;
}

// What a peer gets of this rank's operand of a move that spreads sums; 0: nothing.
static int part_for(const ct_graph *g, int move, int peer, ct_piece *room, ct_piece *out) {
    int count = ct_move_pieces(g->global, &g->global->nodes[move], peer, room);
    for (int i = 0; i < count; i++)
        if (room[i].rank == g->rank) {
            *out = room[i];
            return 1;
        }
    return 0;
}

// A node whose output is spread over ranks: the others' parts first, each sent as soon as it is made.
static ct_status add_maker(planning *p, ct_plan_program *program, int n, int move) {
    const ct_graph *g = program->graph;
    int size = ct_mesh_group(&g->mesh, g->rank, ct_move_axes(g, &g->nodes[move]), NULL), dim = ct_move_dim(g->global, &g->global->nodes[move]), k = 0;
    int *group = ct_malloc(sizeof(int) * (size_t)size);
    ct_piece *room = ct_malloc(sizeof *room * (size_t)size);
    ct_parts parts;
    while (g->nodes[n].outputs[k] != g->nodes[move].inputs[0]) k++;
    CT_ASSERT(ct_parts_find(g, &g->nodes[n], 1, k, dim, &parts), "%s was to run in parts", g->nodes[n].op->name);
    ct_mesh_group(&g->mesh, g->rank, ct_move_axes(g, &g->nodes[move]), group);
    int mine = 0, made = 0;
    while (group[mine] != g->rank) mine++;
    ct_status status = CT_OK;
    for (int near = 0; near < 2; near++)
        for (int i = 1; i <= size && !status; i++) { // this rank's own part is the last
            int peer = group[(mine + i) % size];
            ct_piece part;
            if (ct_is_near(p->options.near, peer) != near || !part_for(g, move, peer, room, &part)) continue;
            status = add_part(p, program, n, &parts, part.from[dim], part.extent[dim]);
            made = 1;
            if (!near && !status) add(p, program, move, CT_DO_SEND, &status)->peer = peer;
        }
    if (!made && !status) status = add_one(p, program, n, CT_DO_RUN); // it makes nothing that goes; what else it makes may be something
    free(group);
    free(room);
    return status;
}

// ---- a program ----

// Moves whose messages begin before a node, as chains: heads by node, nexts by move.
static void chain_begins(const int *begins, int nodes, int *heads, int *nexts) {
    for (int n = 0; n <= nodes; n++) heads[n] = -1;
    for (int n = nodes - 1; n >= 0; n--) {
        if (begins[n] < 0) continue;
        nexts[n] = heads[begins[n]];
        heads[begins[n]] = n;
    }
}

static void mark_last(ct_plan_program *program) {
    unsigned char *seen = ct_calloc((size_t)program->graph->nodes_count + 1, 1);
    for (int i = program->instructions_count - 1; i >= 0; i--) {
        ct_instruction *in = &program->instructions[i];
        in->is_last = !seen[in->node];
        seen[in->node] = 1;
    }
    free(seen);
}

ct_status planning_instructions(planning *p, int which) {
    ct_plan_program *program = &p->plan->programs[which];
    const ct_graph *g = program->graph;
    const planned_overlap *o = &p->overlap[which];
    int *heads = CT_ARENA_ARRAY(&p->plan->arena, int, g->nodes_count + 1), *nexts = CT_ARENA_ARRAY(&p->plan->arena, int, g->nodes_count + 1);
    chain_begins(o->begins, g->nodes_count, heads, nexts);
    for (int n = 0; n < g->nodes_count; n++) {
        for (int m = heads[n]; m >= 0; m = nexts[m])
            if (m != o->sum[n]) CT_TRY(add_one(p, program, m, CT_DO_BEGIN));
        if (o->sum[n] >= 0) CT_TRY(add_one(p, program, o->sum[n], CT_DO_OPEN)); // behind the others, as what is sent for it goes behind what they send
        if (g->nodes[n].op->flags & CT_OP_VIEW) continue;
        if (g->nodes[n].op->flags & CT_OP_MOVE) program->move_axes |= ct_move_axes(g, &g->nodes[n]);
        if (o->last_reader[n] >= 0) {
            CT_TRY(add_gather(p, program, n, o->last_reader[n]));
            n = o->last_reader[n];
        } else if (o->sum[n] >= 0) CT_TRY(add_maker(p, program, n, o->sum[n]));
        else CT_TRY(add_one(p, program, n, o->begins[n] < 0 ? CT_DO_RUN : CT_DO_END));
    }
    mark_last(program);
    return CT_OK;
}
