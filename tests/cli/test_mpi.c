// Ranks as processes under mpirun: the curves of ranks as threads, bit for bit, in shared memory, by messages and both; and how a job ends
// when a rank dies, stops, or is told something else. Where there is no mpirun, it says so.
#include "command.h"

#include <dirent.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#define SIZES " --training.global_batch_size 8 --training.local_batch_size 2 --checkpoint.no_enable "

static int has_mpirun(void) {
    if (!system("command -v mpirun > /dev/null 2>&1")) return 1;
    printf("SKIPPED: there is no mpirun\n");
    return 0;
}

static char *launcher(int ranks) { return ct_format("mpirun --allow-run-as-root --oversubscribe -n %d", ranks); }

// The curve of a run with these words on so many ranks, as threads or as processes. Caller frees.
static char *curve(scene *s, int ranks, int processes, const char *words) {
    static int number;
    char *dump = ct_format("run-%d", number++), *mpi = launcher(ranks);
    s->launcher = processes ? mpi : NULL;
    char *count = processes ? ct_format(" ") : ct_format(" --ranks %d ", ranks);
    if (run(s, BASE "%s%s--training.steps 4" SIZES "%s", dump, count, words)) fail_msg("%d ranks, %s: %s", ranks, words, s->err);
    s->launcher = NULL;
    char *text = curve_of(s, dump);
    free(dump), free(mpi), free(count);
    return text;
}

static void processes_give_the_bits_of_threads(void **state) {
    scene *s = *state;
    if (!has_mpirun()) skip();
    static const struct {
        int ranks;
        const char *words;
    } cases[] = {{2, ""},
                 {4, "--parallelism.tensor_parallel_degree 2"},
                 {4, "--parallelism.tensor_parallel_degree 2 --comm.no_shared_memory"},
                 {4, "--parallelism.context_parallel_degree 2 --comm.ranks_per_node 2"},
                 {4, "--parallelism.context_parallel_degree 4 --parallelism.context_parallel_rotate_method alltoall --comm.ranks_per_node 2"},
                 {3, "--parallelism.tensor_parallel_degree 3 --comm.no_shared_memory"},
                 {2, "--parallelism.pipeline_parallel_degree 2"},
                 {4, "--parallelism.pipeline_parallel_degree 2 --parallelism.pipeline_parallel_schedule InterleavedZeroBubble --model.args.n_layers 4 --comm.no_shared_memory"},
                 {4, "--parallelism.pipeline_parallel_degree 2 --parallelism.pipeline_parallel_schedule ZBVZeroBubble --model.args.n_layers 4 "
                     "--parallelism.tensor_parallel_degree 2 --comm.ranks_per_node 2 --model.args.enable_weight_tying"},
                 {4, "--parallelism.data_parallel_replicate_degree 2 --comm.ranks_per_node 2 --training.mixed_precision_param bfloat16"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *threads = curve(s, cases[i].ranks, 0, cases[i].words), *processes = curve(s, cases[i].ranks, 1, cases[i].words);
        assert_string_equal(threads, processes);
        free(threads), free(processes);
    }
}

// ---- ends ----
// A process of the job whose working command line has `mark`; the n-th found.
static pid_t process_of(const char *mark, int n) {
    DIR *dir = opendir("/proc");
    pid_t found = 0;
    for (struct dirent *e; !found && (e = readdir(dir));) {
        char path[300], line[4096] = "", name[64] = "";
        snprintf(path, sizeof path, "/proc/%s/cmdline", e->d_name);
        FILE *f = fopen(path, "r");
        if (!f) continue;
        size_t size = fread(line, 1, sizeof line - 1, f);
        fclose(f);
        for (size_t i = 0; i + 1 < size; i++)
            if (!line[i]) line[i] = ' ';
        snprintf(path, sizeof path, "/proc/%s/comm", e->d_name);
        f = fopen(path, "r");
        if (f && fscanf(f, "%63s", name) == 1 && !strcmp(name, "ctitan") && strstr(line, mark) && n-- == 0) found = (pid_t)atoi(e->d_name);
        if (f) fclose(f);
    }
    closedir(dir);
    return found;
}

// Waits until the run in ~/<dump> has written a step.
static void wait_for_step(scene *s, const char *dump) {
    char *name = ct_format("%s/metrics.jsonl", dump);
    for (int i = 0; i < 600; i++, usleep(50000)) {
        if (!has_scene_file(s, name)) continue;
        char *text = read_scene_file(s, name);
        int there = strstr(text, "loss") != NULL;
        free(text);
        if (there) break;
    }
    free(name);
}

static void a_lost_rank_ends_the_job(scene *s, int signal_number, const char *dump, const char *words) {
    char *mpi = launcher(4), *mark = ct_format("%s/%s", s->folder, dump);
    s->launcher = mpi;
    pid_t job = start(s, BASE "%s --training.steps 1000000 --parallelism.tensor_parallel_degree 2 --comm.heartbeat_timeout_seconds 2" SIZES, dump);
    wait_for_step(s, dump);
    pid_t victim = process_of(mark, 2);
    assert_true(victim > 0);
    kill(victim, signal_number);
    double before = s->seconds;
    int status = finish(s, job);
    (void)before;
    assert_int_not_equal(status, 0);
    if (!strstr(s->err, words)) fail_msg("'%s' is not in: %s", words, s->err);
    char *first = strstr(s->err, "ctitan train: ");
    assert_non_null(first);
    assert_null(strstr(first + 1, "ctitan train: ")); // one message
    assert_non_null(strstr(s->err, "WAITING"));       // and what the ranks did last
    for (int i = 0; i < 40 && process_of(mark, 0); i++) usleep(100000);
    if (process_of(mark, 0)) fail_msg("a process of the job is left over");
    s->launcher = NULL;
    free(mpi), free(mark);
}

static void a_killed_rank_ends_the_job(void **state) {
    if (!has_mpirun()) skip();
    a_lost_rank_ends_the_job(*state, SIGKILL, "killed", "is dead");
}

static void a_stopped_rank_ends_the_job(void **state) {
    if (!has_mpirun()) skip();
    a_lost_rank_ends_the_job(*state, SIGSTOP, "stopped", "dead or stopped");
}

static void a_wrong_number_of_ranks_is_one_message(void **state) {
    scene *s = *state;
    if (!has_mpirun()) skip();
    char *mpi = launcher(3);
    s->launcher = mpi;
    int status = run(s, BASE "three --training.steps 2 --parallelism.tensor_parallel_degree 2" SIZES);
    assert_int_not_equal(status, 0);
    char *first = strstr(s->err, "ctitan train: ");
    assert_non_null(first);
    assert_non_null(strstr(first, "3 ranks for pp 1"));
    assert_null(strstr(first + 1, "ctitan train: "));
    s->launcher = NULL;
    free(mpi);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(processes_give_the_bits_of_threads, scene_open, scene_close),
        cmocka_unit_test_setup_teardown(a_killed_rank_ends_the_job, scene_open, scene_close),
        cmocka_unit_test_setup_teardown(a_stopped_rank_ends_the_job, scene_open, scene_close),
        cmocka_unit_test_setup_teardown(a_wrong_number_of_ranks_is_one_message, scene_open, scene_close),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
