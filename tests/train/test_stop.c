// A stop signal ends every rank of a process at the same step's end, and asks no rank's thread to touch the process's handlers.
#include "matrix.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

enum { STEPS = 4, RANKS = 3 };

typedef struct {
    const ct_config *config;
    int64_t positions[RANKS];
    int stopped[RANKS];
} stop_job;

static ct_status run_rank(void *context, ct_comm *comm) {
    stop_job *j = context;
    ct_trainer *trainer;
    CT_TRY(ct_trainer_create(j->config, comm, &trainer));
    ct_status status = ct_trainer_run(trainer, &j->stopped[ct_comm_rank(comm)]);
    j->positions[ct_comm_rank(comm)] = ct_trainer_position(trainer);
    ct_trainer_destroy(trainer);
    return status;
}

static void run_all(int signal_first, int64_t want_position) {
    const mesh_cell cell = {MESH(1, RANKS, 1, 1)};
    stop_job j = {0};
    ct_stop_handlers handlers;
    ct_stop_watch(&handlers);
    if (signal_first) raise(SIGTERM);
    ct_status status = mesh_on_ranks(&cell, STEPS, run_rank, &j, &j.config);
    ct_stop_unwatch(&handlers);
    if (status) fail_msg("%s", ct_error_text(status));
    for (int r = 0; r < RANKS; r++) {
        assert_int_equal(j.stopped[r], signal_first);
        assert_int_equal(j.positions[r], want_position);
    }
}

static void a_signal_before_the_first_step_ends_all_ranks(void **state) {
    (void)state;
    run_all(1, 0);
}

static void ranks_run_to_the_end_after_a_signal_is_forgotten(void **state) {
    (void)state;
    run_all(0, 24); // as many as mesh_on_ranks gives
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_signal_before_the_first_step_ends_all_ranks),
        cmocka_unit_test(ranks_run_to_the_end_after_a_signal_is_forgotten),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
