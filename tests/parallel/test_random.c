// Random programs that placement has never seen, on meshes of 2, 3, 4, 6, 8 and 12 ranks: forward values, sums of losses, and weight gradients, drawn
// as ops or made by autodiff, are those of one rank, and the placed program verifies. Extents are uneven; the residual hint, sequence parallelism and when
// gradients are added up are drawn as well.
#include "draw.h"
#include "ranks.h"
#include "passes/passes.h"
#include "parallel/place.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static const char *const moves[] = {"all_gather", "reduce_scatter", "all_reduce", "local_slice", "reduce_accumulate", "rotate", "all_to_all", "reshard"};
enum { MOVES = sizeof moves / sizeof *moves, WANTED = 6 }; // the roles of dense axes never want an exchange
static int moves_seen[MOVES];

// Replaces *graph by what a pass makes of it.
#define PASS(graph, call)                                                                                              \
    do {                                                                                                               \
        ct_graph after_ = {0};                                                                                         \
        ct_status status_ = (call);                                                                                    \
        ct_graph_deinit(graph);                                                                                        \
        *(graph) = after_;                                                                                             \
        if (status_) return status_;                                                                                   \
    } while (0)

// Placed; keys in a ring; the loss in chunks, and placed again; sums that go on in their accumulators; ordered so that messages hide.
static ct_status place(const ct_graph *g, const ct_parallel *p, ct_graph *placed) {
    CT_TRY(ct_place(g, p, CT_PLACE_BOUND, NULL, placed));
    if (p->ring) PASS(placed, ct_place_ring(placed, "cp", &after_));
    PASS(placed, ct_pass_expand_loss(placed, 6 + draw_below(20), &after_));
    PASS(placed, ct_place(placed, p, CT_PLACE_BOUND, NULL, &after_));
    if (draw_below(2)) PASS(placed, ct_pass_fuse_accumulate(placed, &after_));
    PASS(placed, ct_place_overlap(placed, (ct_near){0, 1 + draw_below(3), 1}, draw_below(2), &after_));
    return ct_graph_verify(placed);
}

static void check(const ct_graph *g, const ct_reference_values *alone, ct_parallel p, uint64_t seed) {
    ct_graph placed;
    ct_string name = {0};
    ct_string_add(&name, "seed %llu on", (unsigned long long)seed);
    for (int a = 0; a < p.mesh.axes_count; a++) ct_string_add(&name, " %s %d", p.mesh.axes[a].name, p.mesh.axes[a].size);
    ct_status status = place(g, &p, &placed);
    if (status) fail_msg("%s: %s", name.text, ct_error_text(status));
    all_ranks ranks;
    ranks_open(&ranks, &placed);
    for (int n = 0; n < placed.nodes_count; n++)
        for (int k = 0; k < MOVES; k++) moves_seen[k] += !strcmp(placed.nodes[n].op->name, moves[k]);
    draw_check(g, alone, &ranks, 1e-12, name.text);
    ranks_close(&ranks);
    ct_string_deinit(&name);
    ct_graph_deinit(&placed);
}

static void random_programs_on_random_meshes_are_those_of_one_rank(void **state) {
    (void)state;
    static const int sizes[] = {2, 3, 4, 6, 8, 12};
    int programs = 0, nodes = 0;
    for (uint64_t seed = 1; seed <= 600; seed++) {
        ct_graph g;
        draw_program(&g, seed, seed > 400 ? DRAW_GRADIENTS : DRAW_TRAINING);
        ct_reference_values alone;
        ct_reference_init(&alone, &g);
        draw_inputs(&g, &alone);
        ct_reference_run(&g, &alone, 0);
        for (int tries = 0; tries < 3; tries++) {
            int n = sizes[draw_below(6)], degrees[4] = {1, 1, 1, 1};
            for (int left = n, f; left > 1; left /= f) f = left % 3 ? 2 : 3, degrees[draw_below(4)] *= f;
            ct_parallel p = {.sequence_parallel = draw_below(2), .loss_parallel = draw_below(2), .reduce_once = draw_below(2), .ring = draw_below(2)};
            if (6 % degrees[3] || 12 % (degrees[0] * degrees[1]) || 12 % degrees[2]) continue; // heads and batches divide
            ct_status status = ct_mesh_make((ct_degrees){1, degrees[0], degrees[1], degrees[2], degrees[3]}, n, &p.mesh);
            if (status) fail_msg("%s", ct_error_text(status));
            check(&g, &alone, p, seed);
            programs++;
        }
        nodes += g.nodes_count;
        ct_reference_deinit(&alone);
        ct_graph_deinit(&g);
    }
    printf("%d placed programs of %d nodes", programs, nodes);
    for (int k = 0; k < MOVES; k++) printf(", %s %d", moves[k], moves_seen[k]);
    printf("\n");
    for (int k = 0; k < WANTED; k++) assert_true(moves_seen[k] > 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(random_programs_on_random_meshes_are_those_of_one_rank)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
