// base: statuses keep their message and path, arenas hold many blocks, a team runs every member and its barrier holds, files are atomic.
#include "base/dtype.h"
#include "base/file.h"
#include "base/memory.h"
#include "base/status.h"
#include "base/team.h"

#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

static ct_status fail_deep(int n) { CT_FAIL(CT_INVALID, "seq_len = %d", n); }
static ct_status fail_middle(int n) {
    CT_TRY_AS(fail_deep(n), "reading %s", "a.toml");
    return CT_OK;
}

static void a_status_keeps_message_and_path(void **state) {
    (void)state;
    ct_status s = ct_error_note(fail_middle(3), "at start");
    assert_int_equal(ct_error_code(s), CT_INVALID);
    assert_string_equal(ct_error_text(s), "seq_len = 3 (reading a.toml; at start)");
}

static void an_arena_holds_blocks_of_all_sizes(void **state) {
    (void)state;
    ct_arena arena = {0};
    unsigned char *blocks[300];
    for (int i = 0; i < 300; i++) {
        blocks[i] = ct_arena_alloc(&arena, (size_t)i * 97);
        memset(blocks[i], i & 255, (size_t)i * 97);
    }
    for (int i = 1; i < 300; i++) assert_int_equal(blocks[i][i * 97 - 1], i & 255);
    ct_arena_deinit(&arena);
}

typedef struct {
    ct_team *team;
    atomic_int sum, phase_errors;
} team_case;

static void team_task(void *context, int thread, int threads) {
    team_case *c = context;
    for (int round = 1; round <= 20; round++) {
        atomic_fetch_add(&c->sum, 1);
        ct_team_barrier(c->team);
        if (atomic_load(&c->sum) != round * threads) atomic_fetch_add(&c->phase_errors, 1);
        ct_team_barrier(c->team);
    }
    (void)thread;
}

static void a_team_runs_every_member_and_its_barrier_holds(void **state) {
    (void)state;
    for (int threads = 1; threads <= 4; threads++) {
        team_case c = {0};
        ct_team_options options = {.threads = threads, .first_core = -1, .never_spin = threads > 2};
        assert_null(ct_team_create(options, &c.team));
        for (int run = 0; run < 50; run++) {
            atomic_store(&c.sum, 0);
            ct_team_run(c.team, team_task, &c);
            assert_int_equal(atomic_load(&c.sum), 20 * threads);
        }
        assert_int_equal(atomic_load(&c.phase_errors), 0);
        ct_team_destroy(c.team);
    }
}

// A pinned caller must not narrow what later teams and threads may use.
static void a_second_team_has_all_cores_too(void **state) {
    (void)state;
    int cores = ct_cores();
    for (int i = 0; i < 2; i++) {
        ct_team *team;
        assert_null(ct_team_create((ct_team_options){.threads = 2, .first_core = 0, .never_spin = 1}, &team));
        assert_int_equal(ct_cores(), cores);
        ct_team_destroy(team);
        cpu_set_t mask;
        assert_int_equal(sched_getaffinity(0, sizeof mask, &mask), 0);
        assert_int_equal(CPU_COUNT(&mask), cores);
    }
}

static void bf16_rounds_to_nearest_even(void **state) {
    (void)state;
    assert_int_equal(ct_bf16_from_f32(1.0f), 0x3f80);
    assert_int_equal(ct_bf16_from_f32(1.00390625f), 0x3f80);  // halfway, to even
    assert_int_equal(ct_bf16_from_f32(1.01171875f), 0x3f82);  // halfway, to even
    assert_int_equal(ct_bf16_from_f32(1.0040f), 0x3f81);
    assert_int_equal(ct_bf16_from_f32(3.4e38f), 0x7f80);      // overflow to infinity
    assert_true(ct_f32_from_bf16(ct_bf16_from_f32(__builtin_nanf(""))) != ct_f32_from_bf16(0x7f80));
}

static void files_are_written_whole_or_not_at_all(void **state) {
    (void)state;
    char folder[] = "/tmp/ct_base_XXXXXX";
    assert_non_null(mkdtemp(folder));
    char *deep = ct_format("%s/a/b", folder), *path = ct_format("%s/f", deep);
    assert_null(ct_folder_make(deep));
    assert_null(ct_file_write_atomic(path, "hello", 5));
    char *text;
    size_t size;
    assert_null(ct_file_read(path, 0, &text, &size));
    assert_string_equal(text, "hello");
    assert_int_equal(size, 5);
    free(text);
    assert_int_equal(ct_error_code(ct_file_read("/nonexistent/x", 0, &text, &size)), CT_NOT_FOUND);
    assert_non_null(ct_file_write_atomic("/nonexistent/x", "a", 1));
    assert_int_equal(ct_error_code(ct_folder_make("")), CT_INVALID);
    assert_null(ct_folder_remove(folder));
    assert_false(ct_path_exists(folder));
    free(deep);
    free(path);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_status_keeps_message_and_path),
        cmocka_unit_test(an_arena_holds_blocks_of_all_sizes),
        cmocka_unit_test(a_team_runs_every_member_and_its_barrier_holds),
        cmocka_unit_test(a_second_team_has_all_cores_too),
        cmocka_unit_test(bf16_rounds_to_nearest_even),
        cmocka_unit_test(files_are_written_whole_or_not_at_all),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
