// The loss matrix: every mesh of 1, 2, 3, 4, 6 and 8 ranks × sequence parallelism × loss parallelism × recomputation × rotation, each against one
// rank.
// usage: loss_matrix [steps] [ranks …]. Prints a Markdown table; exits with 1 where a cell is off.
//
// FLOPs: those that all ranks execute over one rank's; peak: bytes of the largest rank over one rank's.
#include "matrix.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int cells, bad;
static mesh_result alone[3]; // by recomputation
static const char *const modes[] = {"none", "selective", "full"};

static void fail(const char *name, const char *what) {
    printf("| %s | %s |\n", name, what);
    bad++;
}

static void run_cell(mesh_cell c, int mode, int64_t steps) {
    char name[160];
    c.recompute = modes[mode];
    mesh_print(&c, name, sizeof name);
    mesh_result r;
    ct_status status = mesh_run(&c, steps, &r);
    cells++;
    if (status) {
        fail(name, ct_error_text(status));
        mesh_result_free(&r);
        return;
    }
    int same, wanted = c.cp == 1 && c.tp == 1;
    double error = mesh_compare(&alone[0], &r, &same);
    int ok = error <= 5e-6 && (same || !wanted);
    printf("| %s | %.1e | %s | %.3f | %.3f |%s\n", name, error, same ? "yes" : "no", r.flops / alone[mode].flops,
           (double)r.peak_bytes / (double)alone[mode].peak_bytes, ok ? "" : " **off**");
    fflush(stdout);
    bad += !ok;
    mesh_result_free(&r);
}

static void run_mesh(mesh_cell c, int64_t steps) {
    for (int mode = 0; mode < 3; mode++)
        for (int rotate = 0; rotate <= (c.cp > 1); rotate++)
        for (int sp = 0; sp <= (c.tp > 1); sp++)
            for (int lp = 0; lp <= (c.tp > 1); lp++) {
                c.no_sp = sp, c.no_loss_parallel = lp, c.rotate = rotate ? "alltoall" : NULL;
                run_cell(c, mode, steps);
            }
}

int main(int argc, char **argv) {
    int64_t steps = argc > 1 ? atoll(argv[1]) : 20;
    static const int all[] = {1, 2, 3, 4, 6, 8};
    int count = argc > 2 ? argc - 2 : 6;
    for (int mode = 0; mode < 3; mode++) {
        mesh_cell c = {MESH(1, 1, 1, 1), .recompute = modes[mode]};
        ct_status status = mesh_run(&c, steps, &alone[mode]);
        if (status) return fprintf(stderr, "%s\n", ct_error_text(status)), 1;
    }
    printf("| mesh | loss, relative error | same bits | FLOPs | peak bytes |\n|---|---|---|---|---|\n");
    for (int i = 0; i < count; i++) {
        int n = argc > 2 ? atoi(argv[2 + i]) : all[i];
        for (int rep = 1; rep <= n; rep++)
            for (int shard = 1; rep * shard <= n; shard++)
                for (int cp = 1; rep * shard * cp <= n; cp++)
                    if (n % (rep * shard * cp) == 0) run_mesh((mesh_cell){MESH(rep, shard, cp, n / (rep * shard * cp))}, steps);
    }
    printf("\n%d cells, %d off\n", cells, bad);
    return bad != 0;
}
