// Moves between nodes begin early and end late, and the plan knows it: nothing that runs meanwhile touches what is on its way, weights come no
// more than a layer ahead, and what can be hidden is.
#include "train/setup.h"
#include "graph/op.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#define assert_ok(status_expression)                                                                                   \
    do {                                                                                                               \
        ct_status assert_ok_ = (status_expression);                                                                    \
        if (assert_ok_) fail_msg("%s", ct_error_text(assert_ok_));                                                     \
    } while (0)

typedef struct {
    ct_arena arena;
    ct_model model;
    ct_step step;
} made;

static void make(made *m, char **overrides, int ranks, int per_node, int no_overlap) {
    *m = (made){0};
    ct_config *config;
    ct_parallel parallel;
    ct_step_options options;
    int count = 0;
    while (overrides[count]) count++;
    assert_ok(ct_config_load(&m->arena, "tests/train/fixtures/titan/base/config.toml", count, overrides, &config));
    assert_ok(ct_setup_model(&m->arena, config, &m->model));
    assert_ok(ct_setup_parallel(config, ranks, &parallel));
    assert_ok(ct_setup_step_options(&m->arena, config, &m->model, &parallel, 0, &options));
    options.plan.near = (ct_near){0, per_node, per_node};
    options.plan.no_overlap = no_overlap;
    assert_ok(ct_step_make(&m->model, &options, &m->step));
}

static void unmake(made *m) {
    ct_step_deinit(&m->step);
    ct_arena_deinit(&m->arena);
}

static const ct_plan_program *micro_of(const made *m) { return &m->step.plan.programs[CT_PROGRAM_MICRO]; }
static const ct_node *node_at(const ct_plan_program *p, int i) { return &p->graph->nodes[p->instructions[i].node]; }

typedef struct {
    size_t begin, end;
    int shared;
} stretch;

static stretch operand(const ct_plan_program *p, int i, int output, int k) {
    const ct_instruction *in = &p->instructions[i];
    const ct_tensor *t = output ? &in->call.out[k] : &in->call.in[k];
    size_t at = output ? in->out_offset[k] : in->in_offset[k];
    return (stretch){at, at + (size_t)ct_tensor_elems(t) * ct_dtype_bytes(t->dtype), (int)((output ? in->out_shared : in->in_shared) >> k & 1)};
}

static int overlap(stretch a, stretch b) { return a.shared == b.shared && a.begin < b.end && b.begin < a.end; }

// What one instruction reads or writes against what is on its way.
static void check_apart(const ct_plan_program *p, int between, stretch way, int written_only) {
    const ct_instruction *in = &p->instructions[between];
    for (int k = 0; k < in->call.outputs; k++)
        if (overlap(operand(p, between, 1, k), way)) fail_msg("instruction %d (%s) writes what is on its way", between, node_at(p, between)->op->name);
    for (int k = 0; k < in->call.inputs && !written_only; k++)
        if (overlap(operand(p, between, 0, k), way)) fail_msg("instruction %d (%s) reads what is on its way", between, node_at(p, between)->op->name);
    stretch scratch = {in->scratch_offset, in->scratch_offset + in->scratch_bytes, p->move_axes != 0};
    if (in->scratch_bytes && overlap(scratch, way)) fail_msg("the scratch of instruction %d (%s) is on its way", between, node_at(p, between)->op->name);
}

static int is_sum(const ct_node *node) { return !strncmp(node->op->name, "reduce", 6) || !strcmp(node->op->name, "all_reduce"); }

static int check_memory(const ct_plan_program *p) {
    int checked = 0;
    for (int i = 0; i < p->instructions_count; i++) {
        const ct_instruction *in = &p->instructions[i];
        if (in->doing != CT_DO_BEGIN && in->doing != CT_DO_OPEN) continue;
        int end = i + 1, in_parts = 0;
        while (p->instructions[end].node != in->node || !p->instructions[end].is_last) in_parts |= p->instructions[end++].node == in->node;
        int moved = ct_moved_operand(node_at(p, i));
        stretch scratch = {in->scratch_offset, in->scratch_offset + in->scratch_bytes, p->move_axes != 0};
        for (int k = i + 1; k < end; k++) {
            if (!p->instructions[k].kernel) continue; // its own end is looked at
            if (in->doing != CT_DO_OPEN) check_apart(p, k, operand(p, i, 0, moved), 1);
            if (!is_sum(node_at(p, i))) check_apart(p, k, operand(p, i, 1, 0), in_parts); // what has come is read
            if (in->scratch_bytes) check_apart(p, k, scratch, 0);
            checked++;
        }
    }
    return checked;
}

static char *meshes[][6] = {
    {"--parallelism.tensor_parallel_degree", "2", NULL},
    {"--parallelism.context_parallel_degree", "2", "--activation_checkpoint.mode", "full", NULL},
    {"--parallelism.data_parallel_replicate_degree", "2", "--training.mixed_precision_param", "bfloat16", NULL},
};

static void what_is_on_its_way_is_left_alone(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof meshes / sizeof *meshes; i++)
        for (int per_node = 1; per_node <= 2; per_node++) {
            made m;
            make(&m, meshes[i], 8, per_node, 0);
            int checked = check_memory(micro_of(&m));
            printf("mesh %zu, nodes of %d: %d instructions beside messages\n", i, per_node, checked);
            assert_true(checked > 100);
            unmake(&m);
        }
}

// Two ranks, one a node: a gather of activations and the products behind it take turns, and a sum's parts go as they are made.
static void products_run_in_parts(void **state) {
    (void)state;
    made m;
    make(&m, (char *[]){"--parallelism.tensor_parallel_degree", "2", "--parallelism.enable_async_tensor_parallel", NULL}, 2, 1, 0);
    const ct_plan_program *p = micro_of(&m);
    int counts[CT_DO_SEND + 1] = {0};
    double parts = 0, wholes = 0;
    for (int i = 0; i < p->instructions_count; i++) {
        counts[p->instructions[i].doing]++;
        if (strncmp(node_at(p, i)->op->name, "matmul", 6) || node_at(p, i)->from.layer < 0 || node_at(p, i)->from.phase != CT_FORWARD) continue;
        *(p->instructions[i].doing == CT_DO_PART ? &parts : &wholes) += ct_instruction_cost(p, i).flops;
    }
    printf("gathers %d, their pieces %d, sums %d, their parts %d; forward FLOPs in parts %.4g, whole %.4g\n", counts[CT_DO_NEAR], counts[CT_DO_PIECE],
           counts[CT_DO_OPEN], counts[CT_DO_SEND], parts, wholes);
    // Forward: x before wq wk wv and before w1 w3 of 2 layers, h before the head; backward: dy before w2's and wo's dX of 2 layers.
    assert_int_equal(counts[CT_DO_NEAR], 2 * 2 + 1 + 2 * 2);
    assert_int_equal(counts[CT_DO_PIECE], counts[CT_DO_NEAR]); // of the one other rank
    assert_int_equal(counts[CT_DO_OPEN], counts[CT_DO_SEND]);
    assert_true(counts[CT_DO_OPEN] >= 2 * 2);
    assert_true(wholes == 0);
    // 4 sequences of 64 tokens on this rank's half of 48 × (48 + 48 + 48 + 48) + 3 × 48 × 128 weights, 2 layers, 2 FLOPs each
    assert_true(parts == 2.0 * 2 * 4 * 64 * (4 * 48 * 48 + 3 * 48 * 128) / 2);
    assert_true(check_memory(p) > 100);
    unmake(&m);
}

static int layers_between(const ct_plan_program *p, int from, int end) {
    int changes = 0, layer = node_at(p, end)->from.layer;
    for (int i = end; i >= from; i--)
        if (p->instructions[i].kernel && node_at(p, i)->from.layer != layer) changes++, layer = node_at(p, i)->from.layer;
    return changes;
}

// FLOPs that run between each move's beginning and its end, and how many layers' boundaries lie there.
static void what_can_be_hidden_is(void **state) {
    (void)state;
    made m;
    make(&m, (char *[]){"--parallelism.tensor_parallel_degree", "2", NULL}, 8, 1, 0);
    const ct_plan_program *p = micro_of(&m);
    int weights = 0, sums = 0, gradients = 0;
    for (int i = 0; i < p->instructions_count; i++) {
        if (p->instructions[i].doing != CT_DO_BEGIN) continue;
        const ct_node *node = node_at(p, i);
        int end = i + 1, kernels = 0;
        double flops = 0;
        for (; p->instructions[end].node != p->instructions[i].node; kernels += p->instructions[end++].kernel != NULL)
            if (p->instructions[end].kernel) flops += ct_op_cost(p->graph, node_at(p, end)).flops;
        int layers = layers_between(p, i, end), is_weight = p->graph->values[node->inputs[0]].node < 0 && !is_sum(node);
        if (layers > 2) fail_msg("%s of %s begins %d layers ahead", node->op->name, node->from.module, layers);
        if (is_weight && strcmp(node->from.module, "tok_embeddings")) { // nothing comes before that one
            if (!kernels) fail_msg("the gather of %s (%s) hides behind nothing", node->from.module, ct_phase_name(node->from.phase));
            weights++;
        }
        if (!strcmp(node->op->name, "reduce_scatter") && node->from.phase == CT_INPUT_GRAD && node->from.layer >= 0) {
            if (!(flops > 0)) fail_msg("the sum of dX in %s hides behind nothing", node->from.module);
            sums++; // behind dW
        }
        if (!strcmp(node->op->name, "reduce_accumulate") && node->from.layer > 0) {
            if (!(flops > 0)) fail_msg("the sum of dW in %s hides behind nothing", node->from.module);
            gradients++;
        }
    }
    printf("hidden: %d gathers of weights, %d sums of dX, %d sums of dW\n", weights, sums, gradients);
    // 2 layers of 9 weights, norm and output, gathered in both directions but for the head, whose loss is one visit; 2 norms a layer; 9 a layer
    assert_int_equal(weights, 2 * 9 * 2 + 3);
    assert_int_equal(sums, 2 * 2);
    assert_int_equal(gradients, 9);
    unmake(&m);
}

static void near_ranks_and_the_key_leave_the_order_alone(void **state) {
    (void)state;
    char *tp[] = {"--parallelism.tensor_parallel_degree", "2", NULL};
    made far, off, near;
    make(&far, tp, 8, 1, 0);
    make(&off, tp, 8, 1, 1);
    make(&near, tp, 8, 8, 0);
    const ct_plan_program *a = micro_of(&off), *b = micro_of(&near);
    assert_int_equal(a->graph->nodes_count, b->graph->nodes_count);
    for (int n = 0; n < a->graph->nodes_count; n++) assert_ptr_equal(a->graph->nodes[n].op, b->graph->nodes[n].op);
    for (int i = 0; i < b->instructions_count; i++) assert_int_equal(b->instructions[i].doing, CT_DO_RUN);
    for (int i = 0; i + 1 < a->instructions_count; i++)
        if (a->instructions[i].doing == CT_DO_BEGIN) assert_int_equal(a->instructions[i + 1].node, a->instructions[i].node);
    assert_true(micro_of(&far)->live_bytes >= a->live_bytes); // what is hidden needs room
    unmake(&far), unmake(&off), unmake(&near);
}

int main(void) {
    if (chdir(CT_SOURCE_DIR)) return 1;
    const struct CMUnitTest tests[] = {cmocka_unit_test(what_is_on_its_way_is_left_alone), cmocka_unit_test(what_can_be_hidden_is), cmocka_unit_test(products_run_in_parts),
                                       cmocka_unit_test(near_ranks_and_the_key_leave_the_order_alone)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
