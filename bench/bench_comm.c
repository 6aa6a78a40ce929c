// What a meeting costs: the median time of a fence over all ranks, threads of one process, and of a record of the flight recorder.
//   bench_comm [RANKS …]
#include "base/clock.h"
#include "base/file.h"
#include "base/memory.h"
#include "base/team.h"
#include "comm/comm.h"
#include "comm/flight.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { ROUNDS = 400, FENCES = 100 };

static int by_value(const void *a, const void *b) { return (*(const double *)a > *(const double *)b) - (*(const double *)a < *(const double *)b); }

static ct_status meet(void *context, ct_comm *comm) {
    int ranks[64], n = ct_comm_size(comm);
    for (int r = 0; r < n; r++) ranks[r] = r;
    ct_group group = {ranks, n, 1, "all", 0};
    ct_comm_what what = {"fence", "bench", "micro", 0};
    static double times[ROUNDS];
    for (int i = 0; i < ROUNDS; i++) {
        double start = ct_now_s();
        for (int k = 0; k < FENCES; k++) CT_TRY(ct_comm_fence(comm, &group, &what));
        if (ct_comm_rank(comm) == 0) times[i] = (ct_now_s() - start) / FENCES;
    }
    if (ct_comm_rank(comm) == 0) {
        qsort(times, ROUNDS, sizeof *times, by_value);
        printf("%2d ranks%s: a fence takes %.2f us (median of %d x %d; best %.2f, worst %.2f)\n", n, context ? ", recorded" : "", times[ROUNDS / 2] * 1e6,
               ROUNDS, FENCES, times[0] * 1e6, times[ROUNDS - 1] * 1e6);
    }
    return CT_OK;
}

static ct_status time_records(const char *folder) {
    ct_flight *flight;
    CT_TRY(ct_flight_open(folder, "alone_", 0, 1, 256, &flight));
    ct_flight_operation what = {"all_gather", "micro", "dp_shard", "layers.3.attention.wq", 2, 0, 8, 100, 1 << 20};
    double times[ROUNDS];
    for (int i = 0; i < ROUNDS; i++) {
        double start = ct_now_s();
        for (int k = 0; k < 1000; k++) ct_flight_end(ct_flight_begin(flight, &what));
        times[i] = (ct_now_s() - start) / 1000;
    }
    ct_flight_close(flight);
    qsort(times, ROUNDS, sizeof *times, by_value);
    printf("a record takes %.0f ns (median of %d x 1000; best %.0f)\n", times[ROUNDS / 2] * 1e9, ROUNDS, times[0] * 1e9);
    return CT_OK;
}

static ct_status measure(int argc, char **argv, const char *folder) {
    ct_comm_options recorded = {.record_folder = folder, .record_entries = 256};
    static const int usual[] = {2, 4, 8};
    for (int i = 0; i < (argc > 1 ? argc - 1 : 3); i++) {
        int ranks = argc > 1 ? atoi(argv[i + 1]) : usual[i];
        CT_CHECK(ranks >= 1 && ranks <= 64, CT_INVALID, "1 to 64 ranks can be timed");
        CT_TRY(ct_comm_run_threads(ranks, NULL, meet, NULL));
        CT_TRY(ct_comm_run_threads(ranks, &recorded, meet, &recorded));
    }
    return time_records(folder);
}

int main(int argc, char **argv) {
    char folder[] = "/tmp/bench_comm_XXXXXX";
    if (!mkdtemp(folder)) return perror(folder), 1;
    printf("%d cores\n", ct_cores());
    ct_status status = measure(argc, argv, folder);
    if (status) fprintf(stderr, "bench_comm: %s\n", ct_error_text(status));
    ct_status removed = ct_folder_remove(folder);
    return status || removed;
}
