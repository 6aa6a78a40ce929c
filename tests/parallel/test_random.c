// Random programs that placement has never seen, on meshes of 2, 3, 4, 6, 8 and 12 ranks: forward values, sums of losses, and weight gradients, drawn
// as ops or made by autodiff, are those of one rank, and the placed program verifies. Extents are uneven; the residual hint, sequence parallelism and when
// gradients are added up are drawn as well.
#include "draw.h"
#include "ranks.h"

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

// Placed, and ordered so that messages hide.
static ct_status place(const ct_graph *g, const ct_parallel *p, ct_graph *ordered) {
    ct_graph placed;
    CT_TRY(draw_place(g, p, &placed));
    ct_status status = ct_place_overlap(&placed, (ct_near){0, 1 + draw_below(3), 1}, draw_below(2), ordered);
    ct_graph_deinit(&placed);
    return status ? status : ct_graph_verify(ordered);
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
            ct_parallel p;
            if (!draw_parallel(sizes[draw_below(6)], &p)) continue;
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
