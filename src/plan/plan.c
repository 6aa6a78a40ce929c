// Making the plan: aliases, lives, kept buffers, placement, kernels. Explaining it stands in explain.c.
#include "plan/plan.h"
#include "planning.h"
#include "graph/op.h"

#include <stdlib.h>
#include <string.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

const char *ct_program_name(ct_program program) {
    static const char *const names[CT_PROGRAM_STAGES] = {"prologue", "micro", "update", "eval", "generate"};
    static const char *const of_stage[CT_STAGE_PROGRAMS] = {"forward", "input-grad", "weight-grad", "unshard", "reduce", "eval"};
    return program < CT_PROGRAM_STAGES ? names[program] : of_stage[(program - CT_PROGRAM_STAGES) % CT_STAGE_PROGRAMS];
}

int ct_program_find(const char *name) {
    for (int w = 0; w < CT_PROGRAM_STAGES; w++)
        if (!strcmp(ct_program_name((ct_program)w), name)) return w;
    return CT_PROGRAMS;
}

static const char *const kind_names[CT_BYTES_KINDS] = {"parameters",   "optimizer",     "gradients", "activations",
                                                       "weights_lowp", "communication", "other"};
const char *ct_bytes_kind_name(ct_bytes_kind kind) { return kind_names[kind]; }

static ct_bytes_kind kind_of_input(ct_input_kind kind) {
    switch (kind) {
    case CT_PARAMETER: return CT_BYTES_PARAMETERS;
    case CT_MOMENT: return CT_BYTES_OPTIMIZER;
    case CT_GRADIENT: return CT_BYTES_GRADIENTS;
    case CT_WEIGHT_LOWP: return CT_BYTES_WEIGHTS_LOWP;
    case CT_SAVED: return CT_BYTES_ACTIVATIONS;
    default: return CT_BYTES_OTHER;
    }
}

static uint64_t hash_name(const char *name) { return XXH3_64bits(name, strlen(name)); }

static struct name_slot *slot_of(planning *p, const char *name) {
    size_t i = hash_name(name) % (size_t)p->slots;
    while (p->names[i].name && strcmp(p->names[i].name, name)) i = (i + 1) % (size_t)p->slots;
    return &p->names[i];
}

// Adds (or finds) a kept buffer; its size must be the same in every program.
static ct_status keep(planning *p, const char *name, size_t bytes, ct_bytes_kind kind, int *out_index) {
    struct name_slot *slot = slot_of(p, name);
    ct_plan *plan = p->plan;
    if (slot->name) {
        CT_CHECK(plan->kept[slot->index].bytes == planning_round(bytes), CT_INVALID,
                 "state \"%s\" has %zu bytes in one program and %zu in another", name, plan->kept[slot->index].bytes, bytes);
        *out_index = slot->index;
        return CT_OK;
    }
    *slot = (struct name_slot){ct_arena_strdup(&plan->arena, name), plan->kept_count};
    *out_index = plan->kept_count;
    plan->kept[plan->kept_count++] = (ct_buffer){.bytes = planning_round(bytes), .kind = kind, .kept = 1, .slots = 1, .name = slot->name};
    return CT_OK;
}

static int slots_of(const planning *p, int which, const char *name) {
    int slots = which < CT_PROGRAM_STAGES ? 1 : p->options.slots[(which - CT_PROGRAM_STAGES) / CT_STAGE_PROGRAMS][ct_life_of(name)];
    return slots > 0 && (which - CT_PROGRAM_STAGES) % CT_STAGE_PROGRAMS != CT_STAGE_PROGRAMS - 1 ? slots : 1; // eval has one batch at a time
}

// What one program of a stage leaves for another has one name in all of them.
static ct_status keep_saved_output(planning *p, int which, const char *name, int root) {
    int index;
    CT_TRY(keep(p, name, p->aliases[which].bytes[root], CT_BYTES_ACTIVATIONS, &index));
    p->plan->kept[index].slots = slots_of(p, which, name);
    p->plan->kept[index].shared |= p->aliases[which].shared[root];
    p->plan->programs[which].value_buffer[root] = -1 - index;
    return CT_OK;
}

static ct_status keep_inputs(planning *p, int which) {
    ct_plan_program *program = &p->plan->programs[which];
    const ct_graph *g = program->graph;
    for (int i = 0; i < g->inputs_count; i++) {
        const ct_input *in = &g->inputs[i];
        const char *name = in->kind == CT_FEED ? ct_arena_format(&p->plan->arena, "%s:%s", g->name, in->name) : in->name;
        int index;
        CT_TRY(keep(p, name, ct_value_room_bytes(g, in->value), kind_of_input(in->kind), &index));
        if (in->kind == CT_SAVED) p->plan->kept[index].slots = slots_of(p, which, in->name);
        p->plan->kept[index].shared |= p->aliases[which].shared[ct_alias_root(&p->aliases[which], in->value, NULL)];
        program->value_buffer[in->value] = -1 - index;
    }
    for (int i = 0; i < g->outputs_count; i++) {
        int root = ct_alias_root(&p->aliases[which], g->outputs[i].value, NULL), index;
        if (g->values[root].node < 0 || program->value_buffer[root] < 0) continue; // a state, or named twice
        if (g->outputs[i].name[0] == '%') {
            CT_TRY(keep_saved_output(p, which, g->outputs[i].name, root));
            continue;
        }
        const char *name = ct_arena_format(&p->plan->arena, "%s:%s", g->name, g->outputs[i].name);
        CT_CHECK(!slot_of(p, name)->name, CT_INVALID, "output \"%s\" has the name of a feed", g->outputs[i].name);
        CT_TRY(keep(p, name, p->aliases[which].bytes[root], CT_BYTES_OTHER, &index));
        p->plan->kept[index].shared |= p->aliases[which].shared[root];
        program->value_buffer[root] = -1 - index;
    }
    return CT_OK;
}

// What ranks of other pipeline stages read lies at one place in all their plans, which share nothing else: in front.
static ct_status keep_for_other_stages(planning *p, int which) {
    ct_plan_program *program = &p->plan->programs[which];
    const ct_graph *g = program->graph;
    int pp = ct_mesh_find(&g->mesh, "pp");
    for (int n = 0; pp >= 0 && n < g->nodes_count; n++) {
        if (!(g->nodes[n].op->flags & CT_OP_MOVE) || !(ct_move_axes(g, &g->nodes[n]) >> pp & 1)) continue;
        int root = ct_alias_root(&p->aliases[which], g->nodes[n].inputs[ct_moved_operand(&g->nodes[n])], NULL), index;
        CT_CHECK(program->value_buffer[root] >= 0, CT_UNSUPPORTED, "%s in %s: a state that other pipeline stages read", g->nodes[n].op->name,
                 g->nodes[n].from.module);
        CT_ASSERT(p->plan->common_count < MOST_COMMON, "more than %d moves between pipeline stages", MOST_COMMON);
        const char *name = ct_arena_format(&p->plan->arena, "%%%s.stages.%d", g->name, p->plan->common_count);
        CT_TRY(keep(p, name, p->aliases[which].bytes[root], CT_BYTES_COMMUNICATION, &index));
        p->plan->kept[index].shared = p->plan->kept[index].common = 1;
        program->value_buffer[root] = -1 - index;
        p->plan->common_count++;
    }
    return CT_OK;
}

static void place_kept(ct_plan *plan) {
    for (int i = 0; i < plan->kept_count; i++) {
        if (!plan->kept[i].common) continue;
        plan->kept[i].offset = plan->shared_kept_bytes;
        plan->shared_kept_bytes += plan->kept[i].bytes;
    }
    for (int i = 0; i < plan->kept_count; i++) {
        if (plan->kept[i].common) continue;
        size_t *end = plan->kept[i].shared ? &plan->shared_kept_bytes : &plan->kept_bytes;
        plan->kept[i].offset = *end;
        *end += plan->kept[i].bytes * (size_t)plan->kept[i].slots;
    }
}

// ---- one program ----
static ct_bytes_kind kind_of_temporary(const ct_graph *g, int root) {
    const ct_node *node = &g->nodes[g->values[root].node];
    if ((node->op->flags & CT_OP_MOVE) && g->values[node->inputs[0]].node < 0) return CT_BYTES_COMMUNICATION; // weights as gathered
    return g->nodes[g->values[root].node].from.phase == CT_WEIGHT_GRAD ? CT_BYTES_GRADIENTS : CT_BYTES_ACTIVATIONS;
}

static void list_temporaries(planning *p, int which) {
    ct_plan_program *program = &p->plan->programs[which];
    const ct_aliases *a = &p->aliases[which];
    const ct_graph *g = program->graph;
    program->buffers = CT_ARENA_ARRAY(&p->plan->arena, ct_buffer, g->values_count + program->instructions_count);
    for (int v = 0; v < g->values_count; v++) {
        if (a->of[v].parent != v || program->value_buffer[v] < 0 || g->values[v].node < 0) continue; // a graph read from text may skip ids
        program->value_buffer[v] = program->buffers_count;
        program->buffers[program->buffers_count++] = (ct_buffer){
            .bytes = planning_round(a->bytes[v]), .first = a->first[v], .last = a->last[v], .shared = program->move_axes != 0, .kind = kind_of_temporary(g, v)};
    }
    for (int i = 0; i < program->instructions_count; i++) {
        const ct_instruction *in = &program->instructions[i];
        if (in->scratch_bytes && in->is_last) // a node's instructions share theirs
            program->buffers[program->buffers_count++] =
                (ct_buffer){.bytes = in->scratch_bytes, .first = p->overlap[which].first[in->node], .last = p->overlap[which].last[in->node],
                            .shared = program->move_axes != 0, .kind = in->kernel ? CT_BYTES_OTHER : CT_BYTES_COMMUNICATION};
    }
}

// The largest sum of live bytes, where it is, and what it consists of.
static void find_peak(ct_plan *plan, ct_plan_program *program) {
    int nodes = program->graph->nodes_count;
    int64_t *change = ct_calloc((size_t)nodes + 2, sizeof *change), live = 0;
    for (int i = 0; i < program->buffers_count; i++) {
        change[program->buffers[i].first] += (int64_t)program->buffers[i].bytes;
        change[program->buffers[i].last + 1] -= (int64_t)program->buffers[i].bytes;
    }
    for (int n = 0; n < nodes; n++) {
        live += change[n];
        if ((size_t)live <= program->live_bytes) continue;
        program->live_bytes = (size_t)live;
        program->peak_node = n;
    }
    free(change);
    for (int i = 0; i < plan->kept_count; i++) program->peak_kinds[plan->kept[i].kind] += plan->kept[i].bytes * (size_t)plan->kept[i].slots;
    for (int i = 0; i < program->buffers_count; i++) {
        const ct_buffer *b = &program->buffers[i];
        if (b->first <= program->peak_node && program->peak_node <= b->last) program->peak_kinds[b->kind] += b->bytes;
    }
}

int ct_plan_is_shared(const ct_plan *plan, ct_program program, int value) {
    int buffer = plan->programs[program].value_buffer[value];
    return buffer < 0 ? plan->kept[-1 - buffer].shared : plan->programs[program].buffers[buffer].shared;
}

static void resolve_offsets(planning *p, int which) {
    ct_plan *plan = p->plan;
    ct_plan_program *program = &plan->programs[which];
    const ct_graph *g = program->graph;
    for (int i = 0; i < program->buffers_count; i++)
        program->buffers[i].offset += program->buffers[i].shared ? plan->shared_kept_bytes : plan->kept_bytes;
    for (int v = 0; v < g->values_count; v++) {
        size_t inner;
        int root = ct_alias_root(&p->aliases[which], v, &inner), buffer = program->value_buffer[root];
        program->value_buffer[v] = buffer;
        program->value_offset[v] = inner + (buffer < 0 ? plan->kept[-1 - buffer].offset : program->buffers[buffer].offset);
    }
    int scratch = program->buffers_count;
    size_t *scratches = CT_ARENA_ARRAY(&plan->arena, size_t, g->nodes_count + 1); // by node
    for (int i = program->instructions_count - 1; i >= 0; i--) {
        ct_instruction *in = &program->instructions[i];
        const ct_node *node = &g->nodes[in->node];
        for (int k = 0; k < node->inputs_count; k++) in->in_offset[k] += program->value_offset[node->inputs[k]];
        for (int k = 0; k < node->outputs_count; k++) in->out_offset[k] += program->value_offset[node->outputs[k]];
        for (int k = 0; k < node->inputs_count; k++) in->in_shared |= (unsigned)ct_plan_is_shared(plan, (ct_program)which, node->inputs[k]) << k;
        for (int k = 0; k < node->outputs_count; k++) in->out_shared |= (unsigned)ct_plan_is_shared(plan, (ct_program)which, node->outputs[k]) << k;
        if (in->scratch_bytes && in->is_last) scratches[in->node] = program->buffers[--scratch].offset;
        in->scratch_offset = scratches[in->node];
    }
}

// Where a value is and what it is; ids, dims' names and provenance change nothing that is done.
static void hash_value(XXH3_state_t *state, const ct_plan_program *program, int value) {
    const ct_type *type = &program->graph->values[value].type;
    int64_t numbers[3 + CT_MAX_DIMS] = {(int64_t)program->value_offset[value], type->dtype, type->dims_count};
    for (int d = 0; d < type->dims_count; d++) numbers[3 + d] = type->dims[d].extent;
    XXH3_64bits_update(state, numbers, sizeof numbers);
}

static void hash_word(XXH3_state_t *state, const char *word, int number) {
    XXH3_64bits_update(state, word, strlen(word) + 1);
    XXH3_64bits_update(state, &number, sizeof number);
}

static void hash_program(XXH3_state_t *state, const ct_plan_program *program, int which) {
    const ct_graph *g = program->graph;
    hash_word(state, ct_program_name((ct_program)which), g->nodes_count);
    for (int i = 0; i < g->inputs_count; i++) {
        hash_word(state, g->inputs[i].name, (int)g->inputs[i].kind);
        hash_value(state, program, g->inputs[i].value);
    }
    for (int n = 0; n < g->nodes_count; n++) {
        const ct_node *node = &g->nodes[n];
        hash_word(state, node->op->name, node->inputs_count);
        XXH3_64bits_update(state, node->attrs, sizeof node->attrs);
        for (int i = 0; i < node->inputs_count; i++) hash_value(state, program, node->inputs[i]);
        for (int i = 0; i < node->outputs_count; i++) hash_value(state, program, node->outputs[i]);
    }
    for (int i = 0; i < g->outputs_count; i++) {
        hash_word(state, g->outputs[i].name, i);
        hash_value(state, program, g->outputs[i].value);
    }
}

static void hash_plan(ct_plan *plan) {
    XXH3_state_t *state = XXH3_createState();
    XXH3_64bits_reset(state);
    for (int w = 0; w < CT_PROGRAMS; w++)
        if (plan->programs[w].graph) hash_program(state, &plan->programs[w], w);
    plan->hash = XXH3_64bits_digest(state);
    XXH3_freeState(state);
}

// Sums of sizes below don't overflow.
static ct_status check_total(const ct_plan *plan, const ct_plan_program *program) {
    double total = 0;
    for (int i = 0; i < plan->kept_count; i++) total += (double)plan->kept[i].bytes * plan->kept[i].slots;
    for (int i = 0; i < program->buffers_count; i++) total += (double)program->buffers[i].bytes;
    CT_CHECK(total < 0x1p62, CT_INVALID, "its tensors come to %.3g bytes, more than any machine addresses", total);
    return CT_OK;
}

static ct_status plan_program(planning *p, int which) {
    ct_plan_program *program = &p->plan->programs[which];
    CT_TRY(planning_instructions(p, which));
    list_temporaries(p, which);
    CT_TRY(check_total(p->plan, program));
    find_peak(p->plan, program);
    size_t *extent = program->move_axes ? &program->shared_extent_bytes : &program->extent_bytes;
    *extent = ct_place_buffers(program->buffers, program->buffers_count, program->live_bytes);
    resolve_offsets(p, which);
    ct_plan *plan = p->plan;
    size_t own = plan->kept_bytes + program->extent_bytes, shared = plan->shared_kept_bytes + program->shared_extent_bytes;
    const ct_plan_program *largest = &plan->programs[plan->peak_program];
    if (own + shared > plan->kept_bytes + largest->extent_bytes + plan->shared_kept_bytes + largest->shared_extent_bytes)
        plan->peak_program = which;
    if (own > plan->private_bytes) plan->private_bytes = own;
    if (shared > plan->shared_bytes) plan->shared_bytes = shared;
    plan->peak_bytes = plan->private_bytes + plan->shared_bytes;
    return CT_OK;
}

static ct_status plan_all(planning *p) {
    ct_plan *plan = p->plan;
    int names = 0;
    for (int w = 0; w < CT_PROGRAMS; w++)
        if (plan->programs[w].graph) names += plan->programs[w].graph->inputs_count + plan->programs[w].graph->outputs_count;
    names += MOST_COMMON;
    p->slots = 2 * names + 1;
    p->names = CT_ARENA_ARRAY(&plan->arena, struct name_slot, p->slots);
    plan->kept = CT_ARENA_ARRAY(&plan->arena, ct_buffer, names + 1);
    for (int w = 0; w < CT_PROGRAMS; w++) {
        ct_plan_program *program = &plan->programs[w];
        if (!program->graph) continue;
        CT_TRY_AS(ct_aliases_find(&plan->arena, program->graph, &p->aliases[w]), "planning program %s", ct_program_name((ct_program)w));
        program->value_offset = CT_ARENA_ARRAY(&plan->arena, size_t, program->graph->values_count + 1);
        program->value_buffer = CT_ARENA_ARRAY(&plan->arena, int, program->graph->values_count + 1);
        CT_TRY_AS(keep_inputs(p, w), "planning program %s", ct_program_name((ct_program)w));
        CT_TRY_AS(keep_for_other_stages(p, w), "planning program %s", ct_program_name((ct_program)w));
        planning_overlap(p, w);
    }
    place_kept(plan);
    for (int w = 0; w < CT_PROGRAMS; w++)
        if (plan->programs[w].graph) CT_TRY_AS(plan_program(p, w), "planning program %s", ct_program_name((ct_program)w));
    hash_plan(plan);
    return CT_OK;
}

ct_status ct_plan_make(const ct_graph *const programs[CT_PROGRAMS], ct_plan_options options, ct_plan *out_plan) {
    *out_plan = (ct_plan){.threads = options.threads, .isa = ct_isa_best(options.isa_limit)};
    planning p = {.plan = out_plan, .options = options};
    for (int w = 0; w < CT_PROGRAMS; w++) out_plan->programs[w].graph = programs[w];
    ct_status status = plan_all(&p);
    if (status) ct_plan_deinit(out_plan);
    return status;
}

void ct_plan_deinit(ct_plan *plan) {
    for (int w = 0; w < CT_PROGRAMS; w++) free(plan->programs[w].instructions);
    ct_arena_deinit(&plan->arena);
    *plan = (ct_plan){0};
}

int ct_plan_find_kept(const ct_plan *plan, const char *name) {
    for (int i = 0; i < plan->kept_count; i++)
        if (!strcmp(plan->kept[i].name, name)) return i;
    return -1;
}

size_t ct_plan_live_bytes(const ct_plan *plan) {
    size_t most = 0;
    for (int w = 0; w < CT_PROGRAMS; w++) {
        size_t live = 0;
        for (int k = 0; k < CT_BYTES_KINDS; k++) live += plan->programs[w].peak_kinds[k];
        if (live > most) most = live;
    }
    return most;
}

ct_cost ct_instruction_cost(const ct_plan_program *p, int instruction) {
    const ct_instruction *in = &p->instructions[instruction];
    const ct_node *node = &p->graph->nodes[in->node];
    ct_cost cost = ct_op_cost(p->graph, node);
    if (!in->kernel) return in->is_last ? cost : (ct_cost){0};
    if (in->doing != CT_DO_PART) return cost;
    double share = (double)ct_tensor_elems(&in->call.out[0]) / (double)ct_type_elems(&p->graph->values[node->outputs[0]].type);
    return (ct_cost){cost.flops * share, cost.bytes_read * share, cost.bytes_written * share};
}

double ct_plan_program_flops(const ct_plan *plan, ct_program program) {
    const ct_plan_program *p = &plan->programs[program];
    double flops = 0;
    for (int i = 0; i < p->instructions_count; i++) flops += ct_instruction_cost(p, i).flops;
    return flops;
}
