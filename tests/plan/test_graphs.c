// Plans of graphs drawn at random, and of training steps: run in shared memory they give the bits that the same kernels give where every value
// has memory of its own; an output lies on an operand only where its op allows it, scratch on none; what is wrong is refused.
#include "exec/exec.h"
#include "graph/op.h"
#include "train/setup.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#define assert_ok(status_expression)                                                                                   \
    do {                                                                                                               \
        ct_status assert_ok_ = (status_expression);                                                                    \
        if (assert_ok_) fail_msg("%s", ct_error_text(assert_ok_));                                                     \
    } while (0)

static uint64_t random_state;
static int below(int n) {
    random_state ^= random_state << 13, random_state ^= random_state >> 7, random_state ^= random_state << 17;
    return (int)(random_state % (uint64_t)n);
}

// ---- every value in memory of its own ----
typedef struct {
    const ct_graph *graph;
    void **data; // by value id
} apart;

static size_t room(size_t bytes) { return (bytes + 127) & ~(size_t)63; }

static void apart_init(apart *a, const ct_graph *g) {
    *a = (apart){g, ct_calloc((size_t)g->values_count + 1, sizeof(void *))};
    for (int v = 0; v < g->values_count; v++) {
        a->data[v] = aligned_alloc(64, room(ct_type_bytes(&g->values[v].type)));
        memset(a->data[v], 0xff, ct_type_bytes(&g->values[v].type));
    }
}

static void apart_deinit(apart *a) {
    for (int v = 0; v < a->graph->values_count; v++) free(a->data[v]);
    free(a->data);
}

static void copy_view(apart *a, const ct_node *node) {
    const ct_type *type = &a->graph->values[node->outputs[0]].type;
    char *out = a->data[node->outputs[0]];
    if (strcmp(node->op->name, "concat")) {
        size_t offset = strcmp(node->op->name, "slice") ? 0 : (size_t)node->attrs[1] * ct_dtype_bytes(type->dtype);
        for (int d = (int)node->attrs[0] + 1; offset && d < type->dims_count; d++) offset *= (size_t)type->dims[d].extent;
        memcpy(out, (char *)a->data[node->inputs[0]] + offset, ct_type_bytes(type));
        return;
    }
    for (int i = 0; i < node->inputs_count; i++) {
        size_t bytes = ct_type_bytes(&a->graph->values[node->inputs[i]].type);
        memcpy(out, a->data[node->inputs[i]], bytes);
        out += bytes;
    }
}

// What an op changes in place is copied first: nobody's value is lost.
static void run_apart(apart *a, const ct_plan_program *program, ct_team *team) {
    int next = 0;
    for (int n = 0; n < a->graph->nodes_count; n++) {
        const ct_node *node = &a->graph->nodes[n];
        if (node->op->flags & CT_OP_VIEW) {
            copy_view(a, node);
            continue;
        }
        const ct_instruction *instruction = &program->instructions[next++];
        ct_call call = instruction->call;
        for (int i = 0; i < call.inputs; i++) call.in[i].data = a->data[node->inputs[i]];
        for (int o = 0; o < call.outputs; o++) {
            call.out[o].data = a->data[node->outputs[o]];
            int in_place = node->op->must_alias[o] - 1;
            if (in_place < 0) continue;
            memcpy(call.out[o].data, call.in[in_place].data, ct_type_bytes(&a->graph->values[node->outputs[o]].type));
            call.in[in_place].data = call.out[o].data;
        }
        call.scratch = aligned_alloc(64, room(instruction->scratch_bytes));
        instruction->kernel->run(&call, team);
        free(call.scratch);
    }
}

// ---- where operands lie ----
static int overlap(size_t a, size_t a_bytes, size_t b, size_t b_bytes) { return a < b + b_bytes && b < a + a_bytes; }

static size_t bytes_of(const ct_tensor *t) { return (size_t)ct_tensor_elems(t) * ct_dtype_bytes(t->dtype); }

static void check_instruction(const ct_graph *g, const ct_instruction *in) {
    const ct_node *node = &g->nodes[in->node];
    const ct_op *op = node->op;
    for (int o = 0; o < in->call.outputs; o++) {
        size_t at = in->out_offset[o], bytes = bytes_of(&in->call.out[o]);
        assert_false(in->scratch_bytes && overlap(at, bytes, in->scratch_offset, in->scratch_bytes));
        for (int k = 0; k < o; k++) assert_false(overlap(at, bytes, in->out_offset[k], bytes_of(&in->call.out[k])));
        for (int i = 0; i < in->call.inputs; i++) {
            if (!overlap(at, bytes, in->in_offset[i], bytes_of(&in->call.in[i]))) continue;
            int allowed = op->must_alias[o] == i + 1 || op->may_alias[o] >> i & 1;
            for (int k = 0; k < i; k++) // the same value twice
                allowed |= node->inputs[k] == node->inputs[i] && (op->must_alias[o] == k + 1 || op->may_alias[o] >> k & 1);
            if (!allowed || at != in->in_offset[i])
                fail_msg("node %d, %s: output %d lies on operand %d", in->node, op->name, o, i);
        }
    }
    for (int i = 0; i < in->call.inputs; i++)
        assert_false(in->scratch_bytes && overlap(in->in_offset[i], bytes_of(&in->call.in[i]), in->scratch_offset, in->scratch_bytes));
}

// A buffer lives from the first definition among its values to the last use of one.
static void check_lives(const ct_plan_program *p) {
    const ct_graph *g = p->graph;
    int *first = ct_malloc(sizeof(int) * (size_t)(p->buffers_count + 1)), *last = ct_malloc(sizeof(int) * (size_t)(p->buffers_count + 1));
    for (int b = 0; b < p->buffers_count; b++) first[b] = INT32_MAX, last[b] = -1;
    for (int n = 0; n < g->nodes_count; n++)
        for (int k = 0; k < g->nodes[n].inputs_count + g->nodes[n].outputs_count; k++) {
            const ct_node *node = &g->nodes[n];
            int b = p->value_buffer[k < node->inputs_count ? node->inputs[k] : node->outputs[k - node->inputs_count]];
            if (b < 0) continue;
            if (n < first[b]) first[b] = n;
            last[b] = n;
        }
    for (int b = 0; b < p->buffers_count; b++)
        if (last[b] >= 0) assert_true(p->buffers[b].first <= first[b] && p->buffers[b].last >= last[b]); // a view at the end is no use
    free(first), free(last);
}

static void check_plan(const ct_plan *plan) {
    for (int w = 0; w < CT_PROGRAMS; w++) {
        const ct_plan_program *p = &plan->programs[w];
        if (!p->graph) continue;
        for (int i = 0; i < p->instructions_count; i++) check_instruction(p->graph, &p->instructions[i]);
        check_lives(p);
    }
}

// ---- random graphs ----
enum { POOL = 64 };
typedef struct {
    ct_graph *g;
    ct_dtype dtype;
    ct_dim B, T, D, H, d;
    ct_value pool[POOL], first, angles;
    int count, weights, products;
} drawing;

static ct_value any(drawing *w) { return w->pool[below(w->count)]; }
static void put(drawing *w, ct_value v) {
    if (w->count < POOL) w->pool[w->count++] = v;
    else w->pool[below(POOL)] = v;
}

static ct_value weight(drawing *w, ct_input_kind kind, ct_dtype dtype, int dims, ct_dim a, ct_dim b) {
    char name[32];
    snprintf(name, sizeof name, "%s.%d", ct_input_kind_name(kind), w->weights++);
    return ct_build_input(w->g, kind, name, ct_type_make(dtype, dims, (ct_dim[]){a, b}));
}

// Parts of a value, each computed alone, joined again; sometimes a part is read once more.
static ct_value in_parts(drawing *w, ct_value x) {
    int dim = w->B.extent == 1, count = 0;
    int64_t whole = dim ? w->T.extent : w->B.extent;
    ct_value parts[16], y = any(w);
    for (int64_t at = 0, n; at < whole; at += n) {
        n = 1 + below((int)(whole - at));
        ct_value part = ct_slice(w->g, x, dim, at, n, dim ? "T" : "B");
        ct_value other = below(2) ? ct_slice(w->g, y, dim, at, n, dim ? "T" : "B") : part;
        parts[count++] = ct_add(w->g, part, other);
        if (below(3) == 0) parts[count - 1] = ct_add(w->g, parts[count - 1], part);
    }
    ct_value joined = count == 1 ? parts[0] : ct_concat(w->g, count, parts, dim, dim ? "T" : "B");
    if (below(3) == 0) { // a part outlives the whole's making
        ct_value again = ct_matmul(w->g, parts[0], weight(w, CT_WEIGHT_LOWP, w->dtype, 2, w->D, w->D), 1);
        ct_build_output(w->g, ct_arena_format(&w->g->arena, "part.%d", w->g->outputs_count), again);
    }
    return joined;
}

static void accumulate(drawing *w) {
    ct_value acc = weight(w, CT_GRADIENT, CT_F32, 2, w->D, w->D), sum = acc;
    for (int i = 1 + below(3); i > 0; i--)
        sum = below(2) ? ct_accumulate(w->g, sum, ct_matmul_dw(w->g, any(w), any(w)), w->first)
                       : ct_matmul_dw_acc(w->g, sum, any(w), any(w), w->first);
    ct_build_update(w->g, acc, sum);
}

// A state that is read and then replaced by a value of its own.
static void replace_state(drawing *w) {
    char name[32];
    snprintf(name, sizeof name, "state.%d", w->weights++);
    ct_value state = ct_build_input(w->g, CT_STATE, name, *ct_value_type(w->g, w->pool[0]));
    put(w, ct_add(w->g, state, any(w)));
    ct_value next = ct_add(w->g, any(w), any(w));
    ct_build_update(w->g, state, next);
    put(w, next);
}

static void draw_node(drawing *w) {
    ct_graph *g = w->g;
    ct_value x = any(w), a, b;
    switch (below(11)) {
    case 0: put(w, ct_add(g, x, any(w))); break;
    case 1:
        if (w->products++ < 4) put(w, ct_silu_mul(g, x, any(w)));
        break;
    case 2:
        if (w->products++ < 4) ct_silu_mul_grad(g, x, any(w), any(w), &a, &b), put(w, a), put(w, b);
        break;
    case 3: put(w, ct_rmsnorm(g, x, weight(w, CT_PARAMETER, CT_F32, 1, w->D, w->D), 1e-3)); break;
    case 4: put(w, ct_matmul(g, x, weight(w, CT_WEIGHT_LOWP, w->dtype, 2, w->D, w->D), 0)); break;
    case 5: put(w, ct_matmul_dx(g, x, weight(w, CT_WEIGHT_LOWP, w->dtype, 2, w->D, w->D))); break;
    case 6: put(w, ct_merge(g, ct_rope(g, ct_split(g, x, 2, 2, (ct_dim[]){w->H, w->d}), w->angles, below(2)), 2, 2, "D")); break;
    case 7: put(w, in_parts(w, x)); break;
    case 8: accumulate(w); break;
    case 9: replace_state(w); break;
    default: put(w, ct_merge(g, ct_split(g, x, 2, 2, (ct_dim[]){w->H, w->d}), 2, 2, "D")); break;
    }
}

static int is_made(const ct_graph *g, ct_value v) { // by a kernel, not a view of an input
    while (g->values[v.id].node >= 0 && g->nodes[g->values[v.id].node].op->flags & CT_OP_VIEW)
        v.id = g->nodes[g->values[v.id].node].inputs[0];
    return g->values[v.id].node >= 0;
}

static void draw(ct_graph *g, uint64_t seed) {
    random_state = seed * 0x9E3779B97F4A7C15ull + 1;
    ct_graph_init(g, "micro");
    static const ct_dim_role roles[] = {{"B", CT_ROLE_BATCH}, {"T", CT_ROLE_SEQUENCE}, {"D", CT_ROLE_MODEL}, {"H", CT_ROLE_HEADS}, {"d", CT_ROLE_NONE}};
    for (int i = 0; i < 5; i++) ct_graph_role(g, roles[i].name, roles[i].role);
    int heads = 1 + below(3), size = 2 * (1 + below(5));
    drawing w = {.g = g, .dtype = below(2) ? CT_BF16 : CT_F32, .B = ct_dim_make("B", 1 + below(3)), .T = ct_dim_make("T", 1 + below(9)),
                 .D = ct_dim_make("D", heads * size), .H = ct_dim_make("H", heads), .d = ct_dim_make("d", size)};
    ct_type x = ct_type_make(w.dtype, 3, (ct_dim[]){w.B, w.T, w.D});
    put(&w, ct_build_input(g, CT_FEED, "x", x));
    put(&w, ct_build_input(g, CT_FEED, "y", x));
    w.first = ct_build_input(g, CT_FEED, "first", ct_type_make(CT_I32, 0, NULL));
    w.angles = ct_build_input(g, CT_FEED, "angles", ct_type_make(CT_F32, 3, (ct_dim[]){w.B, w.T, w.d}));
    ct_graph_at(g, CT_FORWARD, -1, "drawn");
    for (int i = 10 + below(50); i > 0; i--) draw_node(&w);
    for (int i = 0; i < w.count; i++)
        if (is_made(g, w.pool[i]) && below(4) == 0)
            ct_build_output(g, ct_arena_format(&g->arena, "out.%d", g->outputs_count), w.pool[i]);
    assert_ok(ct_graph_status(g));
}

static void fill(const ct_graph *g, apart *a, ct_exec *exec) {
    for (int i = 0; i < g->inputs_count; i++) {
        const ct_input *in = &g->inputs[i];
        const ct_type *type = &g->values[in->value].type;
        for (int64_t k = 0; k < ct_type_elems(type); k++) {
            float x = (float)(below(2001) - 1000) / 2000;
            if (type->dtype == CT_I32) ((int32_t *)a->data[in->value])[k] = (int32_t)below(2);
            else if (type->dtype == CT_BF16) ((uint16_t *)a->data[in->value])[k] = ct_bf16_from_f32(x);
            else ((float *)a->data[in->value])[k] = x;
        }
        char *full = in->kind == CT_FEED ? ct_format("%s:%s", g->name, in->name) : ct_strdup(in->name);
        memcpy(ct_exec_data(exec, full), a->data[in->value], ct_type_bytes(type));
        free(full);
    }
}

static void assert_same(const ct_graph *g, const char *name, int value, const void *got, const void *wanted) {
    if (!got) fail_msg("no %s", name);
    if (memcmp(got, wanted, ct_type_bytes(&g->values[value].type))) fail_msg("%s, %%%d, has other bits", name, value);
}

static void compare(const ct_graph *g, const apart *a, ct_exec *exec) {
    for (int i = 0; i < g->inputs_count; i++) {
        const ct_input *in = &g->inputs[i];
        int value = in->update >= 0 ? in->update : in->value;
        if (in->kind != CT_FEED) assert_same(g, in->name, value, ct_exec_data(exec, in->name), a->data[value]);
    }
    for (int i = 0; i < g->outputs_count; i++) {
        char *full = ct_format("%s:%s", g->name, g->outputs[i].name);
        assert_same(g, full, g->outputs[i].value, ct_exec_data(exec, full), a->data[g->outputs[i].value]);
        free(full);
    }
}

static void run_drawn(const ct_graph *g, ct_team *team, int poison) {
    const ct_graph *programs[CT_PROGRAMS] = {[CT_PROGRAM_MICRO] = g};
    ct_plan plan;
    ct_exec *exec;
    apart a;
    assert_ok(ct_plan_make(programs, (ct_plan_options){.threads = 2}, &plan));
    check_plan(&plan);
    assert_ok(ct_exec_create(&plan, team, (ct_exec_options){.poison = poison}, &exec));
    apart_init(&a, g);
    fill(g, &a, exec);
    run_apart(&a, &plan.programs[CT_PROGRAM_MICRO], team);
    ct_exec_run(exec, CT_PROGRAM_MICRO);
    compare(g, &a, exec);
    apart_deinit(&a);
    ct_exec_destroy(exec);
    ct_plan_deinit(&plan);
}

static void random_graphs_give_the_bits_of_memory_apart(void **state) {
    (void)state;
    enum { GRAPHS = 1000 };
    ct_team *team;
    int nodes = 0;
    assert_ok(ct_team_create((ct_team_options){.threads = 2, .first_core = -1}, &team));
    for (uint64_t seed = 1; seed <= GRAPHS; seed++) {
        ct_graph g;
        draw(&g, seed);
        assert_ok(ct_graph_verify(&g));
        nodes += g.nodes_count;
        run_drawn(&g, team, seed % 2);
        ct_graph_deinit(&g);
    }
    printf("%d graphs, %d nodes\n", GRAPHS, nodes);
    ct_team_destroy(team);
}

// ---- training steps ----
static void training_steps_give_the_bits_of_memory_apart(void **state) {
    (void)state;
    ct_team *team;
    assert_ok(ct_team_create((ct_team_options){.threads = 2, .first_core = -1}, &team));
    for (int variant = 0; variant < 16; variant++) {
        ct_arena arena = {0};
        ct_model model;
        ct_step step;
        ct_exec *exec;
        apart a;
        const ct_model_override sizes[] = {{"dim", 24, NULL},        {"n_layers", 2, NULL},    {"n_heads", 4, NULL}, {"n_kv_heads", 2, NULL},
                                           {"hidden_dim", 40, NULL}, {"vocab_size", 50, NULL}, {"tied", variant & 1, NULL}};
        assert_ok(ct_model_open(&arena, "llama3", "debugmodel", sizes, 7, &model));
        ct_step_options o = {.batch = 2, .seq_len = 13, .compute = variant & 2 ? CT_BF16 : CT_F32, .max_norm = 1, .plan = {.threads = 2},
                             .recompute = {.mode = (ct_recompute_mode)(variant >> 2), .every = 1}, .loss_chunk_tokens = variant & 1 ? 5 : 0};
        assert_ok(ct_step_make(&model, &o, &step));
        check_plan(&step.plan);
        const ct_graph *g = &step.programs[CT_PROGRAM_MICRO];
        assert_ok(ct_exec_create(&step.plan, team, (ct_exec_options){.poison = 1}, &exec));
        apart_init(&a, g);
        random_state = 99;
        fill(g, &a, exec); // tokens, labels and documents of 0 and 1, positions too
        run_apart(&a, &step.plan.programs[CT_PROGRAM_MICRO], team);
        ct_exec_run(exec, CT_PROGRAM_MICRO);
        compare(g, &a, exec);
        apart_deinit(&a);
        ct_exec_destroy(exec);
        ct_step_deinit(&step);
        ct_arena_deinit(&arena);
    }
    ct_team_destroy(team);
}

static void a_step_that_no_pass_can_make_is_an_error(void **state) {
    (void)state;
    ct_arena arena = {0};
    ct_model model;
    ct_step step;
    assert_ok(ct_model_open(&arena, "llama3", "debugmodel", NULL, 0, &model));
    ct_step_options o = {.batch = 1, .seq_len = 8, .recompute = {.mode = CT_RECOMPUTE_EVERY, .every = 0}, .plan = {.threads = 1}};
    ct_status status = ct_step_make(&model, &o, &step);
    assert_non_null(status);
    assert_string_equal(ct_error_text(status), "recomputing every 0-th layer: a number ≥ 1 is wanted (program micro)");
    ct_arena_deinit(&arena);
}

// ---- several programs ----
#define DIMS "{\n dim B batch dim T sequence dim D model dim V vocabulary\n"

static ct_status plan_texts(const char *prologue, const char *micro, ct_graph *graphs, ct_plan *plan) {
    assert_ok(ct_graph_parse(&graphs[0], prologue, "prologue", ct_op_find));
    assert_ok(ct_graph_parse(&graphs[1], micro, "micro", ct_op_find));
    const ct_graph *programs[CT_PROGRAMS] = {[CT_PROGRAM_PROLOGUE] = &graphs[0], [CT_PROGRAM_MICRO] = &graphs[1]};
    return ct_plan_make(programs, (ct_plan_options){.threads = 1}, plan);
}

static void states_have_one_address_in_all_programs(void **state) {
    (void)state;
    ct_graph graphs[2];
    ct_plan plan;
    assert_ok(plan_texts("program prologue " DIMS " %0 = parameter w : f32[D=40]\n %1 = state s : f32[D=40]\n %2 = feed x : f32[D=40]\n"
                         " %3 = add(%0, %2) : f32[D=40] @ forward a\n update s = %3\n output y = %3\n}",
                         "program micro " DIMS " %0 = feed x : f32[D=40]\n %1 = state s : f32[D=40]\n %2 = parameter w : f32[D=40]\n"
                         " %3 = add(%0, %1) : f32[D=40] @ forward a\n %4 = add(%3, %2) : f32[D=40] @ forward b\n output y = %4\n}",
                         graphs, &plan));
    const ct_plan_program *p = &plan.programs[CT_PROGRAM_PROLOGUE], *m = &plan.programs[CT_PROGRAM_MICRO];
    assert_true(p->value_offset[0] == m->value_offset[2] && p->value_offset[1] == m->value_offset[1]);
    assert_true(p->value_offset[2] != m->value_offset[0]); // feeds are a program's own
    assert_true(p->value_offset[3] == p->value_offset[1]); // the update, which is an output too
    assert_int_equal(plan.kept_count, 5);                  // w, s, two feeds, micro's output
    assert_int_equal(plan.kept_bytes, 5 * 192);
    assert_int_equal(plan.peak_bytes, 6 * 192); // and micro's %3
    ct_plan_deinit(&plan);
    ct_graph_deinit(&graphs[0]), ct_graph_deinit(&graphs[1]);
}

static void a_state_of_two_sizes_is_refused(void **state) {
    (void)state;
    ct_graph graphs[2];
    ct_plan plan;
    ct_status status = plan_texts("program prologue " DIMS " %0 = parameter w : f32[D=40]\n %1 = add(%0, %0) : f32[D=40] @ forward a\n output y = %1\n}",
                                  "program micro " DIMS " %0 = parameter w : f32[D=80]\n %1 = add(%0, %0) : f32[D=80] @ forward a\n output y = %1\n}",
                                  graphs, &plan);
    assert_non_null(status);
    assert_string_equal(ct_error_text(status), "state \"w\" has 192 bytes in one program and 320 in another (planning program micro)");
    ct_graph_deinit(&graphs[0]), ct_graph_deinit(&graphs[1]);
}

static void an_output_named_as_a_feed_is_refused(void **state) {
    (void)state;
    ct_graph graphs[2];
    ct_plan plan;
    ct_status status = plan_texts("program prologue " DIMS " %0 = feed x : f32[D=4]\n %1 = add(%0, %0) : f32[D=4] @ forward a\n output y = %1\n}",
                                  "program micro " DIMS " %0 = feed x : f32[D=4]\n %1 = add(%0, %0) : f32[D=4] @ forward a\n output x = %1\n}",
                                  graphs, &plan);
    assert_non_null(status);
    assert_string_equal(ct_error_text(status), "output \"x\" has the name of a feed (planning program micro)");
    ct_graph_deinit(&graphs[0]), ct_graph_deinit(&graphs[1]);
}

// ---- what peers read ----
static ct_status plan_of_rank(const char *text, int rank) {
    ct_graph g, local;
    ct_plan plan;
    assert_ok(ct_graph_parse(&g, text, "test", ct_op_find));
    assert_ok(ct_graph_verify(&g));
    assert_ok(ct_graph_localise(&g, rank, &local));
    const ct_graph *programs[CT_PROGRAMS] = {[CT_PROGRAM_MICRO] = &local};
    ct_status status = ct_plan_make(programs, (ct_plan_options){.threads = 1}, &plan);
    if (!status) ct_plan_deinit(&plan);
    ct_graph_deinit(&local);
    ct_graph_deinit(&g);
    return status;
}

#define GATHERED(before)                                                                                                        \
    "program micro {\n axis tp 2\n dim D model\n %0 = gradient g : f32[D=6] {tp: S(D)}\n %1 = feed x : f32[D=6] {tp: S(D)}\n" \
    " %2 = feed first : i32[]\n %3 = all_gather(%0) : f32[D=6] @ forward m\n" before                                            \
    " %4 = accumulate(%0, %1, %2) : f32[D=6] {tp: S(D)} @ forward n\n update g = %4\n output y = %3\n"

// Rank 0 may be done with the gather, and change its part, while rank 1 still reads it; a later collective of both parts the two.
static void what_peers_may_still_read_is_not_changed_in_place(void **state) {
    (void)state;
    for (int rank = 0; rank < 2; rank++) {
        ct_status status = plan_of_rank(GATHERED("") "}", rank);
        assert_non_null(status);
        assert_int_equal(ct_error_code(status), CT_UNSUPPORTED);
        assert_string_equal(ct_error_text(status),
                            "accumulate in n changes what other ranks may still be reading for all_gather in m (planning program micro)");
        assert_ok(plan_of_rank(GATHERED(" %5 = all_gather(%1) : f32[D=6] @ forward m\n") " output z = %5\n}", rank));
    }
}

// ---- what a caller finds by name ----
static void an_output_that_is_part_of_a_value_is_found_where_it_is(void **state) {
    (void)state;
    ct_graph g;
    ct_plan plan;
    ct_team *team;
    ct_exec *exec;
    assert_ok(ct_graph_parse(&g, "program micro " DIMS " %0 = feed x : f32[D=40]\n %1 = add(%0, %0) : f32[D=40] @ forward a\n"
                             " %2 = slice(%1) {dim=0, start=7} : f32[D=3] @ forward a\n %3 = slice(%0) {dim=0, start=1} : f32[D=2] @ forward a\n"
                             " output whole = %1\n output again = %1\n output part = %2\n output fed = %3\n}", "test", ct_op_find));
    assert_ok(ct_graph_verify(&g));
    const ct_graph *programs[CT_PROGRAMS] = {[CT_PROGRAM_EVAL] = &g};
    assert_ok(ct_plan_make(programs, (ct_plan_options){.threads = 1}, &plan));
    assert_ok(ct_team_create((ct_team_options){.threads = 1, .first_core = -1}, &team));
    assert_ok(ct_exec_create(&plan, team, (ct_exec_options){0}, &exec));
    float *x = ct_exec_data(exec, "micro:x"), *whole = ct_exec_data(exec, "micro:whole");
    assert_non_null(whole);
    assert_ptr_equal(ct_exec_data(exec, "micro:again"), whole);
    assert_ptr_equal(ct_exec_data(exec, "micro:part"), whole + 7);
    assert_ptr_equal(ct_exec_data(exec, "micro:fed"), x + 1);
    ct_exec_destroy(exec);
    ct_team_destroy(team);
    ct_plan_deinit(&plan);
    ct_graph_deinit(&g);
}

// ---- the hash ----
static uint64_t hash_of(const char *text, int program, int threads) {
    ct_graph g;
    ct_plan plan;
    assert_ok(ct_graph_parse(&g, text, "test", ct_op_find));
    assert_ok(ct_graph_verify(&g));
    const ct_graph *programs[CT_PROGRAMS] = {0};
    programs[program] = &g;
    assert_ok(ct_plan_make(programs, (ct_plan_options){.threads = threads}, &plan));
    uint64_t hash = plan.hash;
    ct_plan_deinit(&plan);
    ct_graph_deinit(&g);
    return hash;
}

static void the_hash_sees_every_part_of_a_graph(void **state) {
    (void)state;
    static const char base[] = "program micro " DIMS " %0 = feed x : f32[D=4]\n %1 = parameter a : f32[D=4]\n %2 = parameter b : f32[D=4]\n"
                               " %3 = add(%0, %1) : f32[D=4] @ forward m\n %4 = add(%3, %2) : f32[D=4] @ forward n\n output y = %4\n}";
    static const char *const others[] = {
        // b before a; other names; another kind; another dtype of as many rounded bytes; another output; another op
        "program micro " DIMS " %0 = feed x : f32[D=4]\n %1 = parameter a : f32[D=4]\n %2 = parameter b : f32[D=4]\n"
        " %3 = add(%0, %2) : f32[D=4] @ forward m\n %4 = add(%3, %1) : f32[D=4] @ forward n\n output y = %4\n}",
        "program micro " DIMS " %0 = feed x : f32[D=4]\n %1 = parameter b : f32[D=4]\n %2 = parameter a : f32[D=4]\n"
        " %3 = add(%0, %1) : f32[D=4] @ forward m\n %4 = add(%3, %2) : f32[D=4] @ forward n\n output y = %4\n}",
        "program micro " DIMS " %0 = feed x : f32[D=4]\n %1 = parameter a : f32[D=4]\n %2 = state b : f32[D=4]\n"
        " %3 = add(%0, %1) : f32[D=4] @ forward m\n %4 = add(%3, %2) : f32[D=4] @ forward n\n output y = %4\n}",
        "program micro " DIMS " %0 = feed x : bf16[D=4]\n %1 = parameter a : bf16[D=4]\n %2 = parameter b : bf16[D=4]\n"
        " %3 = add(%0, %1) : bf16[D=4] @ forward m\n %4 = add(%3, %2) : bf16[D=4] @ forward n\n output y = %4\n}",
        "program micro " DIMS " %0 = feed x : f32[D=4]\n %1 = parameter a : f32[D=4]\n %2 = parameter b : f32[D=4]\n"
        " %3 = add(%0, %1) : f32[D=4] @ forward m\n %4 = add(%3, %2) : f32[D=4] @ forward n\n output y = %4\n output z = %3\n}",
        "program micro " DIMS " %0 = feed x : f32[D=4]\n %1 = parameter a : f32[D=4]\n %2 = parameter b : f32[D=4]\n"
        " %3 = add(%0, %1) : f32[D=4] @ forward m\n %4 = silu_mul(%3, %2) : f32[D=4] @ forward n\n output y = %4\n}"};
    enum { OTHERS = sizeof others / sizeof *others };
    uint64_t hash = hash_of(base, CT_PROGRAM_MICRO, 1), seen[OTHERS + 2] = {hash};
    assert_true(hash == hash_of(base, CT_PROGRAM_MICRO, 1));
    seen[1] = hash_of(base, CT_PROGRAM_EVAL, 1); // another program
    for (int i = 0; i < OTHERS; i++) seen[i + 2] = hash_of(others[i], CT_PROGRAM_MICRO, 1);
    for (int i = 0; i < OTHERS + 2; i++)
        for (int k = 0; k < i; k++)
            if (seen[i] == seen[k]) fail_msg("graphs %d and %d have one hash", k, i);
    assert_true(hash == hash_of("program micro " DIMS " %9 = feed x : f32[D=4] # other ids\n %1 = parameter a : f32[D=4]\n %2 = parameter b : f32[D=4]\n"
                                " %3 = add(%9, %1) : f32[D=4] @ forward m\n %4 = add(%3, %2) : f32[D=4] @ forward n\n output y = %4\n}",
                                CT_PROGRAM_MICRO, 3)); // no kernel here has scratch: a team's size changes nothing
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_graphs_give_the_bits_of_memory_apart),
        cmocka_unit_test(training_steps_give_the_bits_of_memory_apart),
        cmocka_unit_test(a_step_that_no_pass_can_make_is_an_error),
        cmocka_unit_test(states_have_one_address_in_all_programs),
        cmocka_unit_test(a_state_of_two_sizes_is_refused),
        cmocka_unit_test(an_output_named_as_a_feed_is_refused),
        cmocka_unit_test(what_peers_may_still_read_is_not_changed_in_place),
        cmocka_unit_test(an_output_that_is_part_of_a_value_is_found_where_it_is),
        cmocka_unit_test(the_hash_sees_every_part_of_a_graph),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
