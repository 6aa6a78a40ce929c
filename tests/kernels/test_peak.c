// Ceilings: kept by CPU and threads, the highest seen; a missing, spoilt or unwritable file only costs a measurement.
#include "base/file.h"
#include "base/memory.h"
#include "kernels/peak.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

static char folder[] = "/tmp/ct_peak_XXXXXX";

static int set_up(void **state) {
    *state = NULL;
    ct_team *team;
    if (!mkdtemp(folder) || setenv("XDG_CACHE_HOME", folder, 1)) return -1;
    if (ct_team_create((ct_team_options){.threads = 2, .first_core = -1, .never_spin = 1}, &team)) return -1;
    *state = team;
    return 0;
}
static int tear_down(void **state) {
    ct_team_destroy(*state);
    return ct_folder_remove(folder) != NULL;
}

static char *cache_path(void) { return ct_format("%s/ctitan/peak.json", folder); }

static double get(ct_dtype dtype, ct_team *team) {
    double flops = 0;
    assert_null(ct_peak_get(dtype, team, &flops));
    return flops;
}

static void a_peak_is_measured_once_and_kept(void **state) {
    double first = get(CT_F32, *state);
    assert_true(first > 1e8 && first < 1e15);
    char *path = cache_path();
    assert_true(ct_path_exists(path));
    free(path);
    assert_true(get(CT_F32, *state) > 0.999 * first && get(CT_F32, *state) < 1.001 * first); // kept with 6 digits
}

static void only_a_higher_peak_replaces_the_kept_one(void **state) {
    ct_peak_keep(CT_BF16, 2, 4e15);
    assert_true(get(CT_BF16, *state) == 4e15);
    ct_peak_keep(CT_BF16, 2, 3e15);
    assert_true(get(CT_BF16, *state) == 4e15);
    ct_peak_keep(CT_BF16, 2, 5e15);
    assert_true(get(CT_BF16, *state) == 5e15);
    ct_peak_keep(CT_BF16, 3, 9e15); // another number of threads
    assert_true(get(CT_BF16, *state) == 5e15);
}

static void other_types_have_no_peak(void **state) {
    double flops = 7;
    ct_status status = ct_peak_get(CT_I32, *state, &flops);
    assert_non_null(status);
    assert_int_equal(ct_error_code(status), CT_INVALID);
    assert_true(flops == 7);
}

static void a_spoilt_file_is_measured_anew(void **state) {
    static const char *const spoilt[] = {
        "", "{", "[1, 2]", "{\"a\": {\"b\": 1}}", "{\"a\": \"fast\"}", "\xff\xfe", "{\"a\": 1e999"};
    char *path = cache_path();
    for (size_t i = 0; i < sizeof spoilt / sizeof *spoilt; i++) {
        assert_null(ct_file_write_atomic(path, spoilt[i], strlen(spoilt[i])));
        double flops = get(CT_F32, *state);
        assert_true(flops > 1e8 && flops < 1e15);
    }
    free(path);
}

static void a_file_that_cannot_be_written_is_no_error(void **state) {
    char *path = ct_format("%s/blocked", folder); // a file where a folder is wanted
    assert_null(ct_file_write_atomic(path, "x", 1));
    assert_int_equal(setenv("XDG_CACHE_HOME", path, 1), 0);
    assert_true(get(CT_F32, *state) > 1e8);
    assert_int_equal(unsetenv("XDG_CACHE_HOME"), 0);
    assert_int_equal(unsetenv("HOME"), 0);
    assert_true(get(CT_F32, *state) > 1e8);
    assert_int_equal(setenv("XDG_CACHE_HOME", folder, 1), 0);
    free(path);
}

static void the_memory_has_a_speed(void **state) {
    ct_bandwidth first, second;
    assert_null(ct_bandwidth_get(*state, &first));
    assert_null(ct_bandwidth_get(*state, &second));
    assert_true(first.read > 1e7 && first.copy > 1e7 && first.triad > 1e7);
    assert_true(second.triad > 0.999 * first.triad && second.triad < 1.001 * first.triad);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_peak_is_measured_once_and_kept),
        cmocka_unit_test(only_a_higher_peak_replaces_the_kept_one),
        cmocka_unit_test(other_types_have_no_peak),
        cmocka_unit_test(a_spoilt_file_is_measured_anew),
        cmocka_unit_test(a_file_that_cannot_be_written_is_no_error),
        cmocka_unit_test(the_memory_has_a_speed),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
