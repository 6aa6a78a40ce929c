// The loss matrix: every mesh of 1, 2, 3, 4, 6 and 8 ranks × sequence parallelism × loss parallelism × recomputation × rotation × async tensor
// parallelism (on nodes of one rank each, where there is something to hide), each against one rank.
// With `pp`: pipelines of 2, 4 and 8 ranks × every schedule × every mesh that makes 8 ranks or fewer of it × recomputation, each against the same
// mesh without a pipeline.
// usage: loss_matrix [pp] [steps] [ranks …]. Prints a Markdown table; exits with 1 where a cell is off.
//
// A cell is off where a loss differs by more than 5e-6 relative; where splitting the batch alone changes a bit of a loss or norm, or async tensor
// parallelism one of its mesh's without; where all ranks together execute more or less than one rank's FLOPs by over 3 % (without loss parallelism
// the head is not cut by tp, and the factor is only shown); where the largest rank's parameters and moments are not one rank's over the axes that
// cut them, within 3 %. A pipeline is off where a bit of a loss or norm differs, or FLOPs do by over 3 %.
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

static double states_of(const mesh_result *r) {
    return (double)r->bytes[CT_BYTES_PARAMETERS] + (double)r->bytes[CT_BYTES_OPTIMIZER];
}

static int within(double x, double wanted) { return x >= 0.97 * wanted && x <= 1.03 * wanted; }

// twin: the same mesh without what should change no bit; NULL: none. Caller frees *out.
static void run_cell(mesh_cell c, int mode, int64_t steps, const mesh_result *twin, mesh_result *out) {
    char name[200];
    c.recompute = modes[mode];
    mesh_print(&c, name, sizeof name);
    ct_status status = mesh_run(&c, steps, out);
    cells++;
    if (status) {
        fail(name, ct_error_text(status));
        return;
    }
    int same, same_as_twin = 1, split_only = c.cp == 1 && c.tp == 1;
    double error = mesh_compare(&alone[0], out, &same), flops = out->flops / alone[mode].flops;
    double states = states_of(out) / states_of(&alone[mode]), wanted = 1.0 / (c.dp_shard * c.cp * c.tp);
    if (twin) mesh_compare(twin, out, &same_as_twin);
    int ok = error <= 5e-6 && (same || !split_only) && same_as_twin && (c.no_loss_parallel || within(flops, 1)) && within(states, wanted);
    printf("| %s | %.1e | %s | %.3f | %.3f | %.3f |%s\n", name, error, same ? "yes" : twin && same_as_twin ? "as without" : "no", flops, states,
           (double)out->peak_bytes / (double)alone[mode].peak_bytes, ok ? "" : " **off**");
    fflush(stdout);
    bad += !ok;
}

static void run_pair(mesh_cell c, int mode, int64_t steps) {
    mesh_result r = {0}, async = {0};
    run_cell(c, mode, steps, NULL, &r);
    c.async_tp = c.per_node = 1;
    if (c.tp > 1 && r.flops > 0) run_cell(c, mode, steps, &r, &async);
    mesh_result_free(&r);
    mesh_result_free(&async);
}

static void run_mesh(mesh_cell c, int64_t steps) {
    for (int mode = 0; mode < 3; mode++)
        for (int rotate = 0; rotate <= (c.cp > 1); rotate++)
            for (int sp = 0; sp <= (c.tp > 1); sp++)
                for (int lp = 0; lp <= (c.tp > 1); lp++) {
                    c.no_sp = sp, c.no_loss_parallel = lp, c.rotate = rotate ? "alltoall" : NULL;
                    run_pair(c, mode, steps);
                }
}

// ---- pipelines ----
static const char *const schedules[] = {"GPipe", "1F1B", "LoopedBFS", "Interleaved1F1B", "InterleavedZeroBubble", "ZBVZeroBubble", "DualPipeV", "Auto"};
static const char *const deep[] = {"--model.args.n_layers", "16", NULL}; // two stages of one layer on each of 8 ranks

static void run_schedule(mesh_cell c, int64_t steps, const mesh_result *without) {
    mesh_result r;
    char name[200];
    mesh_print(&c, name, sizeof name);
    ct_status status = mesh_run(&c, steps, &r);
    cells++;
    if (status) fail(name, ct_error_text(status));
    else {
        int same;
        double error = mesh_compare(without, &r, &same), flops = r.flops / without->flops;
        int ok = same && within(flops, 1);
        printf("| %s | %.1e | %s | %.3f | %.3f | %.3f |%s\n", name, error, same ? "yes" : "no", flops, states_of(&r) / states_of(without),
               (double)r.peak_bytes / (double)without->peak_bytes, ok ? "" : " **off**");
        bad += !ok;
    }
    fflush(stdout);
    mesh_result_free(&r);
}

static void run_pipelines(mesh_cell c, int64_t steps) {
    int ranks = mesh_ranks(&c);
    for (int mode = 0; mode < 3; mode += 2) {
        mesh_result without;
        c.recompute = modes[mode], c.more = deep, c.pp = 0, c.local_batch = 1;
        ct_status status = mesh_run(&c, steps, &without);
        if (status) fail("without a pipeline", ct_error_text(status));
        for (c.pp = 2; c.pp * ranks <= 8 && !status; c.pp *= 2)
            for (size_t i = 0; i < sizeof schedules / sizeof *schedules; i++) {
                c.schedule = schedules[i], c.local_batch = 24 / (c.dp_replicate * c.dp_shard);
                run_schedule(c, steps, &without);
            }
        mesh_result_free(&without);
    }
}

typedef void mesh_fn(mesh_cell cell, int64_t steps);

static void every_mesh_of(int n, int64_t steps, mesh_fn *run) {
    for (int rep = 1; rep <= n; rep++)
        for (int shard = 1; rep * shard <= n; shard++)
            for (int cp = 1; rep * shard * cp <= n; cp++)
                if (n % (rep * shard * cp) == 0) run((mesh_cell){MESH(rep, shard, cp, n / (rep * shard * cp))}, steps);
}

int main(int argc, char **argv) {
    int pipelines = argc > 1 && !strcmp(argv[1], "pp");
    argc -= pipelines, argv += pipelines;
    int64_t steps = argc > 1 ? atoll(argv[1]) : 20;
    static const int all[] = {1, 2, 3, 4, 6, 8}, beside[] = {1, 2, 4};
    int count = argc > 2 ? argc - 2 : pipelines ? 3 : 6;
    for (int mode = 0; mode < 3 && !pipelines; mode++) {
        mesh_cell c = {MESH(1, 1, 1, 1), .recompute = modes[mode]};
        ct_status status = mesh_run(&c, steps, &alone[mode]);
        if (status) return fprintf(stderr, "%s\n", ct_error_text(status)), 1;
    }
    printf("| mesh | loss, relative error | same bits | FLOPs | states | peak |\n|---|---|---|---|---|---|\n");
    for (int i = 0; i < count; i++) {
        int n = argc > 2 ? atoi(argv[2 + i]) : pipelines ? beside[i] : all[i];
        every_mesh_of(n, steps, pipelines ? run_pipelines : run_mesh);
    }
    printf("\n%d cells, %d off\n", cells, bad);
    return bad != 0;
}
