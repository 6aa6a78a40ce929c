// Saves that go wrong: the system refuses a call (each in turn), the disk is full, the process is killed at any moment. What was committed before
// stays loadable, the error is one line that names a file, and nothing half-written is ever loaded.
#include "support.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>

// ---- the system, standing in (the linker's --wrap) ----
static struct {
    int armed, fail_at, calls, error; // fail_at: the call, counted from 1, from which all of them fail
    int only_once;
    const char *last;
} fault;

static int refuses(const char *call) {
    if (!fault.armed) return 0;
    int n = ++fault.calls;
    if (n < fault.fail_at || (fault.only_once && n > fault.fail_at)) return 0;
    if (n == fault.fail_at) fault.last = call;
    errno = fault.error;
    return 1;
}

ssize_t __real_write(int fd, const void *bytes, size_t size);
int __real_fsync(int fd);
int __real_rename(const char *from, const char *to);
int __real_renameat2(int from_fd, const char *from, int to_fd, const char *to, unsigned flags);
int __real_open(const char *path, int flags, ...);
int __real_mkdir(const char *path, mode_t mode);
ssize_t __real_pread(int fd, void *bytes, size_t size, off_t offset);
ssize_t __real_read(int fd, void *bytes, size_t size);
ssize_t __wrap_write(int fd, const void *bytes, size_t size);
int __wrap_fsync(int fd);
int __wrap_rename(const char *from, const char *to);
int __wrap_renameat2(int from_fd, const char *from, int to_fd, const char *to, unsigned flags);
int __wrap_open(const char *path, int flags, ...);
int __wrap_mkdir(const char *path, mode_t mode);
ssize_t __wrap_pread(int fd, void *bytes, size_t size, off_t offset);
ssize_t __wrap_read(int fd, void *bytes, size_t size);

ssize_t __wrap_write(int fd, const void *bytes, size_t size) {
    if (refuses("write")) return -1;
    if (fault.armed && size > 100) size = size / 2 + 1; // short writes are legal
    return __real_write(fd, bytes, size);
}
ssize_t __wrap_pread(int fd, void *bytes, size_t size, off_t offset) {
    if (refuses("pread")) return -1;
    return __real_pread(fd, bytes, fault.armed && size > 100 ? size / 2 + 1 : size, offset);
}
ssize_t __wrap_read(int fd, void *bytes, size_t size) {
    if (refuses("read")) return -1;
    return __real_read(fd, bytes, fault.armed && size > 100 ? size / 2 + 1 : size);
}
int __wrap_fsync(int fd) { return refuses("fsync") ? -1 : __real_fsync(fd); }
int __wrap_rename(const char *from, const char *to) { return refuses("rename") ? -1 : __real_rename(from, to); }
int __wrap_renameat2(int from_fd, const char *from, int to_fd, const char *to, unsigned flags) {
    return refuses("renameat2") ? -1 : __real_renameat2(from_fd, from, to_fd, to, flags);
}
int __wrap_open(const char *path, int flags, ...) {
    va_list args;
    va_start(args, flags);
    int mode = flags & O_CREAT ? va_arg(args, int) : 0;
    va_end(args);
    return refuses("open") ? -1 : __real_open(path, flags, mode);
}
int __wrap_mkdir(const char *path, mode_t mode) {
    if (!fault.armed) return __real_mkdir(path, mode);
    struct stat st;
    if (!stat(path, &st)) return errno = EEXIST, -1; // a parent that is there
    return refuses("mkdir") ? -1 : __real_mkdir(path, mode);
}

// ---- saving and looking ----
static char path_text[256];
static const char *step_path(const char *root, int64_t step, const char *suffix) {
    snprintf(path_text, sizeof path_text, "%s/step-%lld%s", root, (long long)step, suffix);
    return path_text;
}

static ct_status save_step(const char *root, int64_t step, uint64_t seed, int64_t keep) {
    ct_arena arena = {0};
    ct_named_tensor *tensors = make_tensors(&arena, seed);
    char state[64];
    snprintf(state, sizeof state, "{\"seed\": %llu}", (unsigned long long)seed);
    ct_status status =
        ct_checkpoint_save(&(ct_save_options){.root = root, .step = step, .state_json = state, .keep_latest_k = keep}, tensors, TENSORS);
    ct_arena_deinit(&arena);
    return status;
}

// Loads the newest and checks that its data are those of the seed in its state. Returns step and seed; -1: there is none.
static int64_t look(const char *root, unsigned long long *out_seed) {
    ct_arena arena = {0};
    ct_named_tensor *loaded = empty_tensors(&arena);
    ct_checkpoint *checkpoint;
    OK(ct_checkpoint_restore(root, -1, NULL, loaded, TENSORS, &checkpoint));
    int64_t step = -1;
    *out_seed = 0;
    if (checkpoint) {
        step = ct_checkpoint_step(checkpoint);
        assert_int_equal(sscanf(ct_checkpoint_state(checkpoint), "{\"seed\": %llu}", out_seed), 1);
        assert_true(same_data(loaded, make_tensors(&arena, *out_seed), TENSORS));
        OK(ct_checkpoint_verify(ct_checkpoint_path(checkpoint), NULL, NULL));
        ct_checkpoint_close(checkpoint);
    }
    ct_arena_deinit(&arena);
    return step;
}

// Fails the n-th call of a save of `step` for every n, until a save needs no more calls than that.
static void fail_every_call(const char *root, int64_t step, int error, int only_once) {
    unsigned long long seed;
    char seen[256] = "";
    for (int n = 1;; n++) {
        assert_true(n < 200);
        fault.armed = 1, fault.fail_at = n, fault.calls = 0, fault.error = error, fault.only_once = only_once, fault.last = NULL;
        ct_status status = save_step(root, step, 1000u + (unsigned)n, 0);
        fault.armed = 0;
        int64_t found = look(root, &seed);
        if (!status && !fault.last) {
            assert_true(found == step && seed == 1000u + (unsigned)n);
            assert_non_null(strstr(seen, "write"));
            assert_non_null(strstr(seen, "fsync"));
            assert_non_null(strstr(seen, "open"));
            return;
        }
        if (status) {
            expect_error(status, CT_IO, root, strerror(error), NULL);
            // The old one, or the new one where the last sync failed behind the rename; never anything else.
            assert_true((found == 1 && seed == 1) || (found == step && seed >= 1000));
        }
        if (strlen(seen) < 200 && fault.last) strcat(strcat(seen, " "), fault.last);
        if (found == step && step != 1) OK(ct_folder_remove(step_path(root, step, "")));
    }
}

static void a_refused_call_costs_nothing_but_the_save(void **state) {
    for (int only_once = 0; only_once < 2; only_once++) {
        char *root = ct_format("%s/%d", (char *)*state, only_once);
        OK(save_step(root, 1, 1, 0));
        fail_every_call(root, 2, only_once ? EIO : ENOSPC, only_once);
        free(root);
    }
}

static void a_refused_call_leaves_the_step_that_was_to_be_replaced(void **state) {
    OK(save_step(*state, 1, 1, 0));
    fail_every_call(*state, 1, ENOSPC, 0);
}

static void without_renameat2_a_step_is_still_replaced(void **state) {
    unsigned long long seed;
    OK(save_step(*state, 1, 1, 0));
    int calls = 0;
    for (int n = 1; n < 100 && !calls; n++) { // find the exchange, and refuse just it as an old file system does
        fault.armed = 1, fault.fail_at = n, fault.calls = 0, fault.error = EINVAL, fault.only_once = 1, fault.last = NULL;
        ct_status status = save_step(*state, 1, 50u + (unsigned)n, 0);
        fault.armed = 0;
        if (!fault.last || strcmp(fault.last, "renameat2")) continue;
        OK(status);
        calls = n;
        assert_int_equal(look(*state, &seed), 1);
        assert_int_equal(seed, 50 + n);
    }
    assert_true(calls > 0);
}

static void a_full_disk_is_said_and_survived(void **state) {
    unsigned long long seed;
    OK(save_step(*state, 1, 1, 0));
    signal(SIGXFSZ, SIG_IGN);
    struct rlimit before, limit;
    getrlimit(RLIMIT_FSIZE, &before);
    for (rlim_t size = 0; size < 4000; size += 37) {
        limit = before, limit.rlim_cur = size;
        setrlimit(RLIMIT_FSIZE, &limit);
        ct_status status = save_step(*state, 2, 2, 0);
        setrlimit(RLIMIT_FSIZE, &before);
        if (!status) {
            OK(ct_folder_remove(step_path(*state, 2, "")));
            continue;
        }
        expect_error(status, CT_IO, "step-2.tmp/", "File too large", "earlier checkpoints are as they were", NULL);
        assert_int_equal(look(*state, &seed), 1);
        assert_false(ct_path_exists(step_path(*state, 2, ".tmp")));
    }
    signal(SIGXFSZ, SIG_DFL);
}

static void a_refused_call_while_loading_is_said(void **state) {
    OK(save_step(*state, 1, 1, 0));
    OK(save_step(*state, 2, 2, 0));
    ct_arena arena = {0};
    ct_named_tensor *saved[] = {NULL, make_tensors(&arena, 1), make_tensors(&arena, 2)};
    int refused = 0, fell_back = 0;
    for (int newest = 0; newest < 2; newest++)
        for (int n = 1;; n++) {
            ct_named_tensor *loaded = empty_tensors(&arena);
            ct_checkpoint *checkpoint = NULL;
            assert_true(n < 1000);
            fault.armed = 1, fault.fail_at = n, fault.calls = 0, fault.error = EIO, fault.only_once = 1, fault.last = NULL;
            ct_status status = ct_checkpoint_restore(*state, newest ? -1 : 2, NULL, loaded, TENSORS, &checkpoint);
            fault.armed = 0;
            if (status) {
                assert_false(newest);
                assert_true(ct_error_code(status) == CT_IO || ct_error_code(status) == CT_CORRUPT);
                assert_non_null(strstr(ct_error_text(status), "step-2"));
                assert_non_null(strstr(ct_error_text(status), strerror(EIO)));
                refused++;
                continue;
            }
            int64_t step = ct_checkpoint_step(checkpoint);
            assert_true(same_data(loaded, saved[step], TENSORS));
            fell_back += step == 1;
            ct_checkpoint_close(checkpoint);
            if (!fault.last) break;
        }
    assert_true(refused > 10 && fell_back > 10);
    ct_arena_deinit(&arena);
}

static void a_failed_removal_does_not_fail_the_save(void **state) {
    // Pruning renames step-1 away: the last call of all that can be refused.
    for (int64_t step = 1; step <= 2; step++) OK(save_step(*state, step, (uint64_t)step, 2));
    unsigned long long seed;
    int survived = 0;
    for (int n = 1; n < 60; n++) {
        fault.armed = 1, fault.fail_at = n, fault.calls = 0, fault.error = EACCES, fault.only_once = 1, fault.last = NULL;
        ct_status status = save_step(*state, 2 + n, 7, 2);
        fault.armed = 0;
        if (!fault.last) break;
        survived += !status;
        if (!status) assert_int_equal(look(*state, &seed), 2 + n);
    }
    assert_true(survived >= 1);
}

// ---- kills ----
typedef struct {
    _Atomic long long committed; // the last step whose save returned
} shared;

static void save_until_killed(const char *root, shared *s, int64_t first, int same_step) {
    for (int64_t n = first;; n++) {
        ct_checkpoint_clean(root);
        if (save_step(root, same_step ? 5 : n, (uint64_t)n, 2)) _exit(3);
        s->committed = n;
    }
}

static void kill_many_times(const char *root, int same_step, int kills) {
    shared *s = mmap(NULL, sizeof *s, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    unsigned random = 12345;
    unsigned long long seed = 0;
    int half_done = 0;
    s->committed = 0;
    for (int i = 0; i < kills; i++) {
        long long before = s->committed;
        pid_t child = fork();
        if (!child) save_until_killed(root, s, before + 1, same_step);
        random = random * 1103515245u + 12345u;
        long long least = before + (i % 3 == 0); // mostly not even one whole save
        for (int wait = 0; s->committed < least && wait < 20000; wait++) usleep(500);
        usleep(random >> 8 & 0x1fff);
        kill(child, SIGKILL);
        int status;
        waitpid(child, &status, 0);
        assert_true(WIFSIGNALED(status));
        int64_t step = look(root, &seed);
        if (step < 0) assert_int_equal(s->committed, 0);
        else assert_true((long long)seed >= s->committed && (long long)seed <= s->committed + 1); // no step back, nothing invented
        if (step >= 0 && !same_step) assert_int_equal(step, (int64_t)seed);
        int64_t leftover = same_step ? 5 : s->committed + 1;
        half_done += ct_path_exists(step_path(root, leftover, ".tmp"));
        s->committed = seed > 0 ? (long long)seed : 0;
    }
    assert_true(half_done > 0); // some kills did strike in the middle of a save
    assert_true(s->committed > 0);
    OK(ct_checkpoint_clean(root));
    look(root, &seed);
    assert_int_equal(seed, s->committed);
    munmap(s, sizeof *s);
}

static void a_kill_at_any_moment_loses_nothing_committed(void **state) { kill_many_times(*state, 0, 60); }
static void a_kill_while_a_step_is_replaced_leaves_the_old_or_the_new(void **state) { kill_many_times(*state, 1, 60); }

#define TEST(name) cmocka_unit_test_setup_teardown(name, make_folder, remove_folder)
int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(a_refused_call_costs_nothing_but_the_save),
        TEST(a_refused_call_leaves_the_step_that_was_to_be_replaced),
        TEST(without_renameat2_a_step_is_still_replaced),
        TEST(a_full_disk_is_said_and_survived),
        TEST(a_refused_call_while_loading_is_said),
        TEST(a_failed_removal_does_not_fail_the_save),
        TEST(a_kill_at_any_moment_loses_nothing_committed),
        TEST(a_kill_while_a_step_is_replaced_leaves_the_old_or_the_new),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
