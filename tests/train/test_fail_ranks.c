// Two ranks that load a checkpoint, train two steps and save, with one call of theirs refused: every one of the first calls, and then some of the
// rest (CT_FAIL_ALL: every one of the first 500). Memory, threads, files, and what ranks say to one another: the process ends by itself, within
// seconds, well or with one message, and the checkpoint that there was can still be gone on from.
#include "base/clock.h"
#include "base/file.h"
#include "train/trainer.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

// ---- the system, and what ranks say, standing in (the linker's --wrap) ----
typedef enum { MEMORY, THREADS, FILES, MEETINGS, KINDS } kind;
static const char *const kind_names[KINDS] = {"memory", "threads", "files", "meetings"};

static struct faults {
    int armed;
    kind kind;
    long fail_at; // the call of this kind, from 1; 0: none
    atomic_long calls[KINDS];
} *faults; // shared with the child

static int refuses(kind of) {
    if (!faults || !faults->armed) return 0;
    long n = atomic_fetch_add(&faults->calls[of], 1) + 1;
    return faults->kind == of && faults->fail_at == n;
}

// A stand-in that gives `failure` where the call is refused.
#define STAND_IN(of, type, name, parameters, arguments, error, failure)                                                \
    type __real_##name parameters;                                                                                     \
    type __wrap_##name parameters;                                                                                     \
    type __wrap_##name parameters {                                                                                    \
        if (!refuses(of)) return __real_##name arguments;                                                              \
        errno = error;                                                                                                 \
        return failure;                                                                                                \
    }

#define REFUSAL ct_error_make(CT_IO, __FILE__, __LINE__, "refused by the test")
STAND_IN(MEMORY, void *, malloc, (size_t bytes), (bytes), ENOMEM, NULL)
STAND_IN(MEMORY, void *, calloc, (size_t count, size_t bytes), (count, bytes), ENOMEM, NULL)
STAND_IN(MEMORY, void *, realloc, (void *old, size_t bytes), (old, bytes), ENOMEM, NULL)
STAND_IN(MEMORY, void *, mmap, (void *at, size_t bytes, int access, int flags, int fd, off_t offset), (at, bytes, access, flags, fd, offset), ENOMEM, MAP_FAILED)
STAND_IN(THREADS, int, pthread_create, (pthread_t *thread, const pthread_attr_t *attributes, void *(*work)(void *), void *argument),
         (thread, attributes, work, argument), EAGAIN, EAGAIN)
STAND_IN(FILES, int, open, (const char *path, int flags, int mode), (path, flags, mode), EMFILE, -1)
STAND_IN(FILES, FILE *, fopen, (const char *path, const char *mode), (path, mode), EMFILE, NULL)
STAND_IN(FILES, ssize_t, read, (int fd, void *bytes, size_t size), (fd, bytes, size), EIO, -1)
STAND_IN(FILES, ssize_t, pread, (int fd, void *bytes, size_t size, off_t offset), (fd, bytes, size, offset), EIO, -1)
STAND_IN(FILES, ssize_t, write, (int fd, const void *bytes, size_t size), (fd, bytes, size), ENOSPC, -1)
STAND_IN(FILES, int, fsync, (int fd), (fd), EIO, -1)
STAND_IN(FILES, int, rename, (const char *from, const char *to), (from, to), EIO, -1)
STAND_IN(FILES, int, renameat2, (int from_fd, const char *from, int to_fd, const char *to, unsigned flags), (from_fd, from, to_fd, to, flags), EIO, -1)
STAND_IN(FILES, int, mkdir, (const char *path, mode_t mode), (path, mode), ENOSPC, -1)
STAND_IN(MEETINGS, ct_status, ct_comm_fence, (ct_comm *comm, const ct_group *group, const ct_comm_what *what), (comm, group, what), 0, REFUSAL)
STAND_IN(MEETINGS, ct_status, ct_comm_share, (ct_comm *comm, size_t bytes, void **base), (comm, bytes, base), 0, REFUSAL)
STAND_IN(MEETINGS, ct_status, ct_exchange_begin, (ct_exchange *exchange, int hold), (exchange, hold), 0, REFUSAL)
STAND_IN(MEETINGS, ct_status, ct_exchange_end, (ct_exchange *exchange), (exchange), 0, REFUSAL)
STAND_IN(MEETINGS, ct_status, ct_comm_agree, (ct_comm *comm, ct_status mine), (comm, mine), 0, REFUSAL)
STAND_IN(MEETINGS, ct_status, ct_comm_barrier, (ct_comm *comm, const char *what), (comm, what), 0, REFUSAL)
STAND_IN(MEETINGS, ct_status, ct_comm_sum_i64, (ct_comm *comm, int64_t *values, int count), (comm, values, count), 0, REFUSAL)
STAND_IN(MEETINGS, ct_status, ct_comm_max_i64, (ct_comm *comm, int64_t *values, int count), (comm, values, count), 0, REFUSAL)
STAND_IN(MEETINGS, ct_status, ct_comm_broadcast, (ct_comm *comm, int from, void *data, size_t bytes), (comm, from, data, bytes), 0, REFUSAL)
STAND_IN(MEETINGS, ct_status, ct_comm_gather, (ct_comm *comm, int to, const void *data, size_t bytes, void ***all, size_t **sizes),
         (comm, to, data, bytes, all, sizes), 0, REFUSAL)

// ---- a run ----
enum { MOST_SECONDS = 20 };

static char folder[] = "/tmp/ct_fail_XXXXXX";

static ct_status run_rank(void *context, ct_comm *comm) {
    ct_trainer *trainer = NULL;
    int stopped = 0;
    ct_status status = ct_trainer_create(context, comm, &trainer);
    if (!status) status = ct_trainer_run(trainer, &stopped);
    ct_trainer_destroy(trainer);
    return status;
}

static ct_status run_ranks(const char *steps, int per_node) {
    char *argv[] = {"--job.dump_folder", folder, "--training.steps", (char *)steps, "--training.threads", "1", "--model.args.dim", "12", "--model.args.n_layers", "1",
                    "--training.seq_len", "16", "--training.local_batch_size", "1", "--training.global_batch_size", "4", "--checkpoint.enable",
                    "--checkpoint.interval", "2", "--checkpoint.no_last_save_model_only", "--lr_scheduler.total_steps", "8"};
    ct_arena arena = {0};
    ct_config *config;
    ct_status status = ct_config_load(&arena, "tests/train/fixtures/titan/base/config.toml", sizeof argv / sizeof *argv, argv, &config);
    if (!status) status = ct_comm_run_threads(2, &(ct_comm_options){.ranks_per_node = per_node}, run_rank, config);
    ct_arena_deinit(&arena);
    return status;
}

typedef struct {
    int status; // as waitpid has it
    char *text; // of standard error
    double seconds;
} outcome;

// In a process of its own; `alarm` ends one that hangs.
static outcome run(const char *steps, int per_node, kind of, long fail_at) {
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    outcome o = {.seconds = -ct_now_s()};
    faults->kind = of, faults->fail_at = fail_at;
    for (int k = 0; k < KINDS; k++) atomic_store(&faults->calls[k], 0);
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        dup2(ends[1], 2);
        close(ends[0]), close(ends[1]);
        if (!freopen("/dev/null", "w", stdout)) _exit(3);
        alarm(MOST_SECONDS);
        faults->armed = 1;
        ct_status status = run_ranks(steps, per_node);
        faults->armed = 0;
        if (status) fprintf(stderr, "MESSAGE: %s\n", ct_error_text(status));
        _exit(status ? 1 : 0);
    }
    close(ends[1]);
    ct_string text = {0};
    char bytes[512];
    for (ssize_t n; (n = read(ends[0], bytes, sizeof bytes)) > 0;) ct_string_add_bytes(&text, bytes, (size_t)n);
    close(ends[0]);
    assert_int_equal(waitpid(child, &o.status, 0), child);
    faults->armed = 0;
    o.seconds += ct_now_s();
    o.text = text.text ? text.text : ct_strdup("");
    return o;
}

static int count_of(const char *text, const char *words) {
    int n = 0;
    for (const char *at = text; (at = strstr(at, words)); at++) n++;
    return n;
}

static char *step_folder(int step) { return ct_format("%s/checkpoint/step-%d", folder, step); }

static void remove_step(int step) {
    char *path = step_folder(step), *half = ct_format("%s.tmp", path);
    assert_null(ct_folder_remove(path));
    assert_null(ct_folder_remove(half));
    free(path), free(half);
}

// The checkpoint of step 2 is there and can be gone on from.
static void must_go_on(const char *after) {
    remove_step(4);
    outcome o = run("4", 0, MEMORY, 0);
    char *saved = step_folder(4);
    if (o.status || !ct_path_is_folder(saved)) fail_msg("after %s: %s", after, o.text);
    free(saved);
    free(o.text);
    remove_step(4);
}

// 1 where the run did not do well.
static int check(kind of, int per_node, long n) {
    outcome o = run("4", per_node, of, n);
    const char *name = kind_names[of];
    int messages = count_of(o.text, "MESSAGE: ") + count_of(o.text, "ctitan: out of memory: the system has no ");
    if (WIFSIGNALED(o.status)) fail_msg("%s, call %ld: ended by signal %d after %.1f s: %s", name, n, WTERMSIG(o.status), o.seconds, o.text);
    int code = WEXITSTATUS(o.status);
    if (code > 1) fail_msg("%s, call %ld: exit status %d: %s", name, n, code, o.text);
    if (code != messages) fail_msg("%s, call %ld: exit status %d and %d messages: %s", name, n, code, messages, o.text);
    if (o.seconds > MOST_SECONDS / 2) fail_msg("%s, call %ld: took %.1f s: %s", name, n, o.seconds, o.text);
    free(o.text);
    remove_step(4);
    return code;
}

static void each_in_turn(kind of, int per_node) {
    int every = getenv("CT_FAIL_ALL") != NULL, tried = 0, failed = 0;
    outcome all = run("4", per_node, of, 0);
    if (all.status) fail_msg("%s", all.text);
    free(all.text);
    remove_step(4);
    long calls = atomic_load(&faults->calls[of]), dense = every ? 500 : 8, far = (calls - dense) / (every ? 200 : 16) + 1;
    for (long n = 1; n <= calls; n += n < dense ? 1 : far, tried++) {
        failed += check(of, per_node, n);
        char after[64];
        snprintf(after, sizeof after, "%s, call %ld", kind_names[of], n);
        if (tried % 8 == 7) must_go_on(after);
    }
    must_go_on(kind_names[of]);
    printf("%s, nodes of %d: %ld calls, %d refused, %d of them with a message\n", kind_names[of], per_node, calls, tried, failed);
    assert_true(failed > 0);
}

static void memory_that_is_refused_ends_all_ranks_with_one_message(void **state) {
    (void)state;
    each_in_turn(MEMORY, 0);
}
static void threads_that_are_refused_end_all_ranks_with_one_message(void **state) {
    (void)state;
    each_in_turn(THREADS, 0);
}
static void files_that_are_refused_end_all_ranks_with_one_message(void **state) {
    (void)state;
    each_in_turn(FILES, 0);
}
static void a_rank_whose_meeting_fails_ends_all_ranks_with_one_message(void **state) {
    (void)state;
    each_in_turn(MEETINGS, 0);
    each_in_turn(MEETINGS, 1);
}

static int prepare(void **state) {
    (void)state;
    faults = mmap(NULL, sizeof *faults, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (chdir(CT_SOURCE_DIR) || faults == MAP_FAILED || !mkdtemp(folder)) return -1;
    outcome o = run("2", 0, MEMORY, 0);
    if (o.status) fprintf(stderr, "%s", o.text);
    free(o.text);
    return o.status;
}

static int clean_up(void **state) {
    (void)state;
    return ct_folder_remove(folder) ? -1 : 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(threads_that_are_refused_end_all_ranks_with_one_message),
        cmocka_unit_test(a_rank_whose_meeting_fails_ends_all_ranks_with_one_message),
        cmocka_unit_test(files_that_are_refused_end_all_ranks_with_one_message),
        cmocka_unit_test(memory_that_is_refused_ends_all_ranks_with_one_message),
    };
    return cmocka_run_group_tests(tests, prepare, clean_up);
}
