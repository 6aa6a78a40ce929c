// Random programs as they are trained: planned for every rank, run by real kernels and moves on rank threads, in shared memory, with messages, and
// with both, moves begun early. On 1, 2, 3 and 6 ranks, with uneven extents, what comes out is what the ops' loops give on one rank in double; and
// all ways of moving give the same bits.
//
// Twice: under random legal layouts, which hit every index that an op lets be cut, by every axis, and every kind of move (the report lists them);
// and as placement lays them out.
#include "draw.h"
#include "execute.h"
#include "lay.h"
#include "passes/passes.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

// f32 against double, of a tensor's largest number; draw.h has it for bf16.
#define TOLERANCE 1e-5
enum { SEEDS = 320, PLACED_SEEDS = 60 };

static void assert_ok(ct_status status, const char *where) {
    if (status) fail_msg("%s: %s", where, ct_error_text(status));
}

static ct_mesh draw_mesh(void) {
    static const int sizes[][2] = {{1, 1}, {2, 1}, {3, 1}, {2, 3}, {3, 2}};
    const int *size = sizes[draw_below(8) ? 1 + draw_below(4) : 0];
    static const int pairs[][2] = {{0, 1}, {0, 2}, {0, 3}, {1, 2}, {1, 3}, {2, 3}};
    const int *pair = pairs[draw_below(6)];
    int a = size[1] == 1 ? draw_below(LAY_AXES) : pair[0], b = pair[1];
    ct_mesh mesh = {.axes_count = (size[0] > 1) + (size[1] > 1)};
    for (int k = 0; k < mesh.axes_count; k++) {
        snprintf(mesh.axes[k].name, sizeof mesh.axes[k].name, "%s", lay_axes[k ? b : a]);
        mesh.axes[k].size = size[k];
    }
    return mesh;
}

// All that comes out, rank by rank.
static double *results_of(const all_ranks *ranks, size_t *out_count) {
    const ct_graph *placed = ranks->placed;
    size_t count = 0, capacity = 1 << 16;
    double *all = ct_malloc(sizeof *all * capacity);
    for (int r = 0; r < ranks->ranks; r++)
        for (int i = 0; i < placed->outputs_count + placed->inputs_count; i++) {
            int value = i < placed->outputs_count ? placed->outputs[i].value : placed->inputs[i - placed->outputs_count].update;
            if (value < 0) continue;
            int64_t n = ct_type_elems(&ranks->local[r].values[value].type);
            assert_true(count + (size_t)n <= capacity);
            memcpy(all + count, ranks->values[r].values[value], sizeof *all * (size_t)n);
            count += (size_t)n;
        }
    *out_count = count;
    return all;
}

typedef struct {
    int programs, runs, messages;
    double worst;
} tally;

// One way of running it; its results are compared with one rank's, and with those of the way before.
static void run_one_way(const ct_graph *g, const ct_reference_values *alone, const ct_graph *placed, execution how, uint64_t input_seed, double **before,
                        tally *t, const char *where) {
    ct_graph ordered;
    assert_ok(ct_place_overlap(placed, execution_near(&how, ct_mesh_ranks(&placed->mesh), 0), how.in_parts, &ordered), where);
    assert_ok(ct_graph_verify(&ordered), where);
    all_ranks ranks;
    ranks_open(&ranks, &ordered);
    draw_seed(input_seed);
    draw_scatter(g, alone, &ranks);
    assert_ok(ranks_execute(&ranks, how), where);
    t->worst = fmax(t->worst, draw_compare(g, alone, &ranks, TOLERANCE, where));
    size_t count;
    double *now = results_of(&ranks, &count);
    if (*before && memcmp(*before, now, sizeof *now * count)) fail_msg("%s: other bits than with all memory shared", where);
    free(*before);
    *before = now;
    t->runs++;
    t->messages += how.per_node > 0;
    ranks_close(&ranks);
    ct_graph_deinit(&ordered);
}

static void run_all_ways(const ct_graph *g, const ct_reference_values *alone, const ct_graph *placed, uint64_t seed, tally *t) {
    static const execution ways[] = {{0, 0, 1}, {.per_node = 1, .threads = 2}, {.per_node = 2, .threads = 1}, {.per_node = 1, .in_parts = 1}};
    double *before = NULL;
    uint64_t input_seed = seed * 31 + 7;
    int ranks = ct_mesh_ranks(&placed->mesh);
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        if (i && ranks <= ways[i].per_node) continue; // as the first
        char where[160];
        int n = snprintf(where, sizeof where, "seed %llu on", (unsigned long long)seed);
        for (int a = 0; a < placed->mesh.axes_count; a++)
            n += snprintf(where + n, sizeof where - (size_t)n, " %s %d", placed->mesh.axes[a].name, placed->mesh.axes[a].size);
        snprintf(where + n, sizeof where - (size_t)n, ", nodes of %d%s", ways[i].per_node, ways[i].in_parts ? ", in parts" : "");
        run_one_way(g, alone, placed, ways[i], input_seed, &before, t, where);
    }
    free(before);
    t->programs++;
}

static void print_tally(const tally *t) {
    printf("%d programs, %d runs, %d of them with messages: within %.1e of one rank in double\n", t->programs, t->runs, t->messages, t->worst);
}

static void random_layouts_hit_all_that_is_legal_and_give_one_ranks_numbers(void **state) {
    (void)state;
    lay_seen seen = {0};
    tally t = {0};
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        char where[40];
        snprintf(where, sizeof where, "seed %llu", (unsigned long long)seed);
        ct_graph g, placed;
        draw_program(&g, seed, DRAW_ALL | (seed % 3 ? 0 : DRAW_GRADIENTS));
        ct_reference_values alone;
        ct_reference_init(&alone, &g);
        draw_inputs(&g, &alone);
        ct_reference_run(&g, &alone, 0);
        ct_graph whole;
        assert_ok(ct_pass_expand_loss(&g, 6 + draw_below(20), &whole), where);
        ct_mesh mesh = draw_mesh();
        assert_ok(lay_out(&whole, &mesh, &placed), where);
        assert_ok(ct_graph_verify(&placed), where);
        lay_note(&placed, &seen);
        run_all_ways(&g, &alone, &placed, seed, &t);
        ct_graph_deinit(&placed);
        ct_graph_deinit(&whole);
        ct_reference_deinit(&alone);
        ct_graph_deinit(&g);
    }
    int missing = lay_report(&seen);
    print_tally(&t);
    if (missing) fail_msg("%d legal (op, index, axis) or moves were never drawn", missing);
}

static void what_placement_lays_out_gives_one_ranks_numbers(void **state) {
    (void)state;
    static const int sizes[] = {2, 3, 6};
    tally t = {0};
    for (uint64_t seed = 1001; seed <= 1000 + PLACED_SEEDS; seed++) {
        char where[40];
        snprintf(where, sizeof where, "seed %llu", (unsigned long long)seed);
        ct_graph g, placed;
        draw_program(&g, seed, seed % 3 ? DRAW_TRAINING : DRAW_GRADIENTS);
        ct_parallel p;
        while (!draw_parallel(sizes[seed % 3], &p)) {}
        ct_reference_values alone;
        ct_reference_init(&alone, &g);
        draw_inputs(&g, &alone);
        ct_reference_run(&g, &alone, 0);
        assert_ok(draw_place(&g, &p, &placed), where);
        run_all_ways(&g, &alone, &placed, seed, &t);
        ct_graph_deinit(&placed);
        ct_reference_deinit(&alone);
        ct_graph_deinit(&g);
    }
    print_tally(&t);
}

// What the report has no line for: no move makes a sum or a maximum of what is none.
static void a_move_to_a_partial_value_is_refused(void **state) {
    (void)state;
    static const int kinds[] = {-1, CT_CUT_SHARD, CT_CUT_SUM, CT_CUT_MAX}; // -1: whole
    ct_dim D = ct_dim_make("D", 6);
    for (int from = 0; from < 4; from++)
        for (int to = 2; to < 4; to++) {
            if (from == to) continue;
            ct_graph g;
            ct_graph_init(&g, "moves");
            ct_graph_role(&g, "D", CT_ROLE_MODEL);
            g.mesh = (ct_mesh){1, {{"tp", 2}}};
            ct_value x = ct_build_input(&g, CT_FEED, "x", ct_type_make(CT_F32, 1, &D));
            g.values[x.id].layout.partial = CT_F32;
            if (from) ct_layout_add(&g.values[x.id].layout, 0, (ct_cut_kind)kinds[from], 0);
            ct_value y = ct_node_output(&g, ct_build_node(&g, ct_op_find("reshard"), 1, &x, NULL, NULL), 0);
            g.values[y.id].layout.partial = CT_F32;
            ct_layout_add(&g.values[y.id].layout, 0, (ct_cut_kind)kinds[to], 0);
            ct_build_output(&g, "y", y);
            ct_status status = ct_graph_verify(&g);
            assert_non_null(status);
            if (!strstr(ct_error_text(status), "a move to a partial value on axis tp")) fail_msg("%s", ct_error_text(status));
            ct_graph_deinit(&g);
        }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_layouts_hit_all_that_is_legal_and_give_one_ranks_numbers),
        cmocka_unit_test(what_placement_lays_out_gives_one_ranks_numbers),
        cmocka_unit_test(a_move_to_a_partial_value_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
