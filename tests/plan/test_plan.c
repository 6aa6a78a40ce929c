// Plans by brute force: placed buffers never share a byte while both live; a byte-level simulation that knows only graphs, not how the planner
// found its aliases, sees every operand hold what it should; live bytes counted node by node are those of the plan.
#include "base/file.h"
#include "graph/op.h"
#include "train/step.h"

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

// ---- placing ----
static uint64_t random_state = 88172645463325252ull;
static int below(int n) {
    random_state ^= random_state << 13, random_state ^= random_state >> 7, random_state ^= random_state << 17;
    return (int)(random_state % (uint64_t)n);
}

static size_t largest_sum(const ct_buffer *b, int count, int nodes) {
    size_t largest = 0;
    for (int n = 0; n < nodes; n++) {
        size_t sum = 0;
        for (int i = 0; i < count; i++)
            if (b[i].first <= n && n <= b[i].last) sum += b[i].bytes;
        if (sum > largest) largest = sum;
    }
    return largest;
}

static void assert_disjoint(const ct_buffer *b, int count, size_t extent) {
    for (int i = 0; i < count; i++) {
        assert_true(b[i].offset + b[i].bytes <= extent);
        for (int j = 0; j < i; j++) {
            int together = b[i].first <= b[j].last && b[j].first <= b[i].last;
            int overlap = b[i].offset < b[j].offset + b[j].bytes && b[j].offset < b[i].offset + b[i].bytes;
            assert_false(together && overlap);
        }
    }
}

static void buffers_that_live_together_share_no_byte(void **state) {
    (void)state;
    enum { MOST = 120, NODES = 60 };
    for (int round = 0; round < 300; round++) {
        ct_buffer b[MOST];
        int count = 1 + below(MOST);
        for (int i = 0; i < count; i++) {
            int first = below(NODES), life = below(round % 2 ? NODES : 6);
            b[i] = (ct_buffer){.bytes = 64 * (size_t)(1 + below(50)), .first = first, .last = first + life < NODES ? first + life : NODES - 1};
        }
        size_t live = largest_sum(b, count, NODES), extent = ct_place_buffers(b, count, live);
        assert_true(extent >= live);
        assert_disjoint(b, count, extent);
    }
}

// What a forward keeps for its backward nests like a stack, with short-lived buffers between.
static void nested_lives_are_placed_without_loss(void **state) {
    (void)state;
    enum { LAYERS = 20, EACH = 6 };
    for (int round = 0; round < 50; round++) {
        ct_buffer b[LAYERS * (EACH + 2)];
        int count = 0, nodes = 2 * LAYERS * EACH;
        for (int l = 0; l < LAYERS; l++) {
            for (int k = 0; k < EACH; k++)
                b[count++] = (ct_buffer){.bytes = 64 * (size_t)(1 + k * 7), .first = l * EACH + k, .last = nodes - 1 - l * EACH - k};
            for (int k = 0; k < 2; k++) {
                int at = below(nodes - 2);
                b[count++] = (ct_buffer){.bytes = 64 * (size_t)(1 + below(40)), .first = at, .last = at + 1};
            }
        }
        size_t live = largest_sum(b, count, nodes), extent = ct_place_buffers(b, count, live);
        assert_disjoint(b, count, extent);
        assert_true((double)extent <= 1.02 * (double)live);
    }
}

// ---- simulation ----
enum { UNIT = 2 }; // bytes: the smallest element

// Every unit of the space holds a content: a number given to each fresh write. A view has its source's contents, a concatenation its parts'.
typedef struct {
    const ct_plan_program *program;
    const ct_graph *graph;
    uint32_t *held;     // by unit of the space
    uint32_t **content; // by value: what its units must hold, NULL where not made yet
    uint32_t next;
} simulation;

static int64_t units(size_t offset, size_t bytes) { return (int64_t)((offset % UNIT + bytes + UNIT - 1) / UNIT); }
static int64_t units_of(const simulation *s, int v) {
    return units(s->program->value_offset[v], ct_type_bytes(&s->graph->values[v].type));
}

static void write_value(simulation *s, int v) {
    int64_t n = units_of(s, v), base = (int64_t)(s->program->value_offset[v] / UNIT);
    s->content[v] = ct_malloc(sizeof(uint32_t) * (size_t)(n + 1));
    for (int64_t i = 0; i < n; i++) s->content[v][i] = s->held[base + i] = ++s->next;
}

static void assert_held(const simulation *s, int v, int node) {
    int64_t n = units_of(s, v), base = (int64_t)(s->program->value_offset[v] / UNIT);
    assert_non_null(s->content[v]);
    for (int64_t i = 0; i < n; i++)
        if (s->held[base + i] != s->content[v][i])
            fail_msg("node %d, %s in %s, reads %%%d, but its unit %lld was overwritten", node, s->graph->nodes[node].op->name,
                     s->graph->nodes[node].from.module, v, (long long)i);
}

// A view lies inside its source (slices, splits), or its parts lie inside it, one behind the other (concat).
static void check_view(simulation *s, int n) {
    const ct_node *node = &s->graph->nodes[n];
    int out = node->outputs[0];
    size_t offset = s->program->value_offset[out], bytes = ct_type_bytes(&s->graph->values[out].type);
    if (!strcmp(node->op->name, "concat")) {
        size_t at = offset;
        for (int i = 0; i < node->inputs_count; i++) {
            assert_held(s, node->inputs[i], n);
            assert_int_equal(s->program->value_offset[node->inputs[i]], at);
            at += ct_type_bytes(&s->graph->values[node->inputs[i]].type);
        }
        assert_int_equal(at, offset + bytes);
    } else {
        size_t from = s->program->value_offset[node->inputs[0]];
        assert_held(s, node->inputs[0], n);
        assert_true(offset >= from && offset + bytes <= from + ct_type_bytes(&s->graph->values[node->inputs[0]].type));
    }
    int64_t count = units_of(s, out);
    s->content[out] = ct_malloc(sizeof(uint32_t) * (size_t)(count + 1));
    memcpy(s->content[out], s->held + offset / UNIT, sizeof(uint32_t) * (size_t)count);
}

static void scribble(simulation *s, size_t offset, size_t bytes) {
    for (int64_t i = 0; i < units(offset, bytes); i++) s->held[(int64_t)(offset / UNIT) + i] = ++s->next;
}

static void run_node(simulation *s, int n, const ct_instruction *instruction) {
    const ct_node *node = &s->graph->nodes[n];
    if (node->op->flags & CT_OP_VIEW) {
        check_view(s, n);
        return;
    }
    assert_int_equal(instruction->node, n);
    scribble(s, instruction->scratch_offset, instruction->scratch_bytes); // scratch must not cost an operand its bytes
    for (int i = 0; i < node->inputs_count; i++) {
        assert_held(s, node->inputs[i], n);
        assert_int_equal(instruction->in_offset[i], s->program->value_offset[node->inputs[i]]);
    }
    for (int o = 0; o < node->outputs_count; o++) {
        int out = node->outputs[o], state = node->op->must_alias[o];
        if (state) assert_int_equal(s->program->value_offset[out], s->program->value_offset[node->inputs[state - 1]]);
        write_value(s, out);
        assert_int_equal(instruction->out_offset[o], s->program->value_offset[out]);
    }
    for (int o = 0; o < node->outputs_count; o++) assert_held(s, node->outputs[o], n); // outputs don't overlap
}

static void simulate(const ct_plan *plan, int which) {
    simulation s = {.program = &plan->programs[which], .graph = plan->programs[which].graph};
    s.held = ct_calloc(plan->peak_bytes / UNIT + 2, sizeof(uint32_t));
    s.content = ct_calloc((size_t)s.graph->values_count + 1, sizeof *s.content);
    for (int i = 0; i < s.graph->inputs_count; i++) write_value(&s, s.graph->inputs[i].value);
    int next = 0;
    for (int n = 0; n < s.graph->nodes_count; n++) {
        const ct_instruction *instruction = next < s.program->instructions_count ? &s.program->instructions[next] : NULL;
        run_node(&s, n, instruction);
        next += !(s.graph->nodes[n].op->flags & CT_OP_VIEW);
    }
    assert_int_equal(next, s.program->instructions_count);
    for (int i = 0; i < s.graph->inputs_count; i++) { // a state's new value is where the state is, and still there
        const ct_input *in = &s.graph->inputs[i];
        int last = in->update >= 0 ? in->update : in->value;
        assert_int_equal(s.program->value_offset[last], s.program->value_offset[in->value]);
        assert_held(&s, last, s.graph->nodes_count - 1);
    }
    for (int i = 0; i < s.graph->outputs_count; i++) assert_held(&s, s.graph->outputs[i].value, s.graph->nodes_count - 1);
    for (int v = 0; v < s.graph->values_count; v++) free(s.content[v]);
    free(s.content);
    free(s.held);
}

static void check_plan(const ct_plan *plan) {
    for (int w = 0; w < CT_PROGRAMS; w++) {
        const ct_plan_program *p = &plan->programs[w];
        if (!p->graph) continue;
        simulate(plan, w);
        assert_int_equal(p->live_bytes, largest_sum(p->buffers, p->buffers_count, p->graph->nodes_count + 1));
        for (int i = 0; i < p->buffers_count; i++) assert_true(p->buffers[i].offset >= plan->kept_bytes);
    }
    for (int i = 0; i < plan->kept_count; i++)
        for (int j = 0; j < i; j++)
            assert_true(plan->kept[j].offset + plan->kept[j].bytes <= plan->kept[i].offset ||
                        plan->kept[i].offset + plan->kept[i].bytes <= plan->kept[j].offset);
}

typedef struct {
    ct_arena arena;
    ct_model model;
    ct_step step;
} planned;

// The plan points to the step's graphs, so it stays where it was made.
static planned *plan_of(int tied, ct_step_options options) {
    planned *p = ct_calloc(1, sizeof *p);
    const ct_model_override sizes[] = {{"dim", 32, NULL},      {"n_layers", 3, NULL}, {"n_heads", 4, NULL}, {"n_kv_heads", 2, NULL},
                                       {"hidden_dim", 56, NULL}, {"vocab_size", 97, NULL}, {"tied", (double)tied, NULL}};
    assert_ok(ct_model_open(&p->arena, "llama3", "debugmodel", sizes, sizeof sizes / sizeof *sizes, &p->model));
    assert_ok(ct_step_make(&p->model, &options, &p->step));
    return p;
}

static void drop(planned *p) {
    ct_step_deinit(&p->step);
    ct_arena_deinit(&p->arena);
    free(p);
}

static void every_operand_holds_its_value_when_it_is_read(void **state) {
    (void)state;
    static const ct_recompute_options modes[] = {
        {.mode = CT_RECOMPUTE_NONE, .every = 1}, {.mode = CT_RECOMPUTE_FULL, .every = 1}, {.mode = CT_RECOMPUTE_EVERY, .every = 2}, {.mode = CT_RECOMPUTE_OP, .every = 1}};
    for (int mode = 0; mode < 4; mode++)
        for (int variant = 0; variant < 8; variant++) {
            ct_step_options o = {.batch = 3, .seq_len = 17, .compute = variant & 1 ? CT_BF16 : CT_F32, .recompute = modes[mode], .max_norm = 1,
                                 .plan = {.threads = 2}};
            if (variant & 2) o.loss_chunk_tokens = 5;
            if (variant & 4) o.eval_batch = 2, o.eval_seq_len = 9;
            planned *p = plan_of(variant >> 1 & 1, o);
            check_plan(&p->step.plan);
            drop(p);
        }
    planned *p = plan_of(0, (ct_step_options){.cache_len = 33, .compute = CT_BF16, .plan = {.threads = 2}});
    check_plan(&p->step.plan);
    drop(p);
}

static void the_hash_changes_with_what_matters_only(void **state) {
    (void)state;
    ct_step_options o = {.batch = 2, .seq_len = 16, .compute = CT_F32, .max_norm = 1, .plan = {.threads = 2}}, longer = o, clipped = o;
    longer.seq_len = 18;
    clipped.max_norm = 2;
    planned *a = plan_of(0, o), *b = plan_of(0, o), *c = plan_of(0, longer), *d = plan_of(0, clipped), *e = plan_of(1, o);
    assert_true(a->step.plan.hash == b->step.plan.hash);
    assert_true(a->step.plan.hash != c->step.plan.hash && a->step.plan.hash != d->step.plan.hash && a->step.plan.hash != e->step.plan.hash);
    drop(a), drop(b), drop(c), drop(d), drop(e);
}

static void large_flavours_are_planned_within_two_per_cent(void **state) {
    (void)state;
    static const char *const flavors[] = {"8B", "70B", "405B"};
    for (int i = 0; i < 3; i++)
        for (int full = 0; full < 2; full++) {
            ct_arena arena = {0};
            ct_model model;
            ct_step step;
            assert_ok(ct_model_open(&arena, "llama3", flavors[i], NULL, 0, &model));
            ct_step_options o = {.batch = 1, .seq_len = 8192, .compute = CT_BF16, .max_norm = 1, .plan = {.threads = 2}};
            o.recompute.mode = full ? CT_RECOMPUTE_FULL : CT_RECOMPUTE_NONE;
            assert_ok(ct_step_make(&model, &o, &step));
            assert_true((double)step.plan.peak_bytes <= 1.02 * (double)ct_plan_live_bytes(&step.plan));
            ct_step_deinit(&step);
            ct_arena_deinit(&arena);
        }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(buffers_that_live_together_share_no_byte),
        cmocka_unit_test(nested_lives_are_placed_without_loss),
        cmocka_unit_test(every_operand_holds_its_value_when_it_is_read),
        cmocka_unit_test(the_hash_changes_with_what_matters_only),
        cmocka_unit_test(large_flavours_are_planned_within_two_per_cent),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
