// `ctitan train FILE.toml [--section.key value …]`.
#include "commands.h"
#include "base/file.h"
#include "comm/flight.h"
#include "train/trainer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char help[] =
    "usage: ctitan train FILE.toml [--ranks N] [--section.key value …]\n\n"
    "Trains the model that the file describes: torchtitan v0.2.2's sections and keys, `ctitan config` lists them all.\n"
    "Booleans may be written --section.flag and --section.no_flag. Progress goes to the console, metrics.jsonl, config.toml and\n"
    "checkpoints below job.dump_folder. With checkpoint.enable a run goes on from its newest whole checkpoint.\n\n"
    "--ranks N: N ranks as threads of this process, on the mesh that [parallelism] says. As processes: mpirun -n N ctitan train FILE.toml,\n"
    "or srun.\n\n"
    "exit status: 0 done, 1 an error, 2 wrong usage, 75 stopped by SIGTERM or SIGUSR1 (saved where checkpoints are on)\n";

static void print_note(void *context, const char *line) {
    (void)context;
    fprintf(stderr, "ctitan: %s\n", line);
}

typedef struct {
    const ct_config *config;
    ct_arena *arena;
    const char *record_folder; // of the flight recorder, or NULL
    int stopped;
} job;

// One rank, from its first byte to its last.
static ct_status run_rank(void *context, ct_comm *comm) {
    job *j = context;
    ct_trainer *trainer = NULL;
    int stopped = 0;
    ct_status status = ct_trainer_create(j->config, comm, &trainer);
    if (!status) status = ct_trainer_run(trainer, &stopped);
    if (!status && ct_comm_rank(comm) == 0) j->stopped = stopped;
    ct_trainer_destroy(trainer);
    return status;
}

// The folder of the flight recorder, made; NULL where nothing is to be recorded. In the arena.
static ct_status make_record_folder(job *j) {
    const ct_config *c = j->config;
    if (c->comm.trace_buf_size < 1) return CT_OK;
    j->record_folder = ct_arena_format(j->arena, "%s/%s", c->job.dump_folder, c->comm.save_traces_folder);
    return ct_folder_make(j->record_folder);
}

static ct_comm_options options_of(const job *j) {
    const ct_config_comm *c = &j->config->comm;
    return (ct_comm_options){.record_folder = j->record_folder, .record_prefix = c->save_traces_file_prefix,
                             .record_entries = c->trace_buf_size,
                             .init_timeout_s = (double)c->init_timeout_seconds, .train_timeout_s = (double)c->train_timeout_seconds,
                             .heartbeat_timeout_s = c->heartbeat_timeout_seconds, .ranks_per_node = (int)c->ranks_per_node,
                             .no_shared_memory = !c->shared_memory};
}

static ct_status run_alone(job *j) {
    ct_comm *comm;
    CT_TRY(ct_comm_create_self(&comm));
    ct_status status = run_rank(j, comm);
    ct_comm_destroy(comm);
    return status;
}

// What the ranks did last, where some did not end well.
static void print_flight(const job *j, ct_status status) {
    if (ct_error_code(status) != CT_INTERRUPTED || !j->record_folder) return;
    ct_string text = {0};
    if (!ct_flight_print(j->record_folder, 3, &text)) fprintf(stderr, "%s(%s; more by: ctitan trace %s)\n", text.text, j->record_folder, j->record_folder);
    ct_string_deinit(&text);
}

// One of a job's processes says why it ends; the others give it time to, and are then ended by it or the launcher.
static void speak(const job *j, ct_comm *comm, ct_status status) {
    if (ct_comm_may_speak(comm)) {
        fprintf(stderr, "ctitan train: %s\n", ct_error_text(status));
        print_flight(j, status);
    } else sleep(3);
    fflush(NULL);
}

// One process of an MPI job. An error ends them all, and one of them says it.
static ct_status run_launched(job *j) {
    ct_comm_options options = options_of(j);
    ct_comm *comm = NULL;
    ct_status status = ct_comm_create_mpi(&options, &comm);
    if (!status) status = run_rank(j, comm);
    if (!status) ct_comm_destroy(comm);
    else if (comm) { // else there is no world yet
        ct_comm_fail(comm, status);
        speak(j, comm, status);
        ct_comm_abandon(comm);
        exit(1);
    }
    return status;
}

static ct_status run_ranks(job *j, int ranks) {
    if (ranks > 1 || ct_comm_is_launched()) CT_TRY(make_record_folder(j));
    if (ct_comm_is_launched()) {
        CT_CHECK(ranks <= 1, CT_INVALID, "--ranks %d under mpirun or srun: its number of processes is the number of ranks", ranks);
        return run_launched(j);
    }
    if (ranks <= 1) return run_alone(j);
    ct_comm_options options = options_of(j);
    return ct_comm_run_threads(ranks, &options, run_rank, j);
}

static ct_status train(const char *path, int ranks, int argc, char **argv, int *out_stopped) {
    ct_arena arena = {0};
    ct_config *config;
    ct_stop_handlers handlers;
    signal(SIGPIPE, SIG_IGN); // a reader of the progress lines that goes away is no reason to end
    ct_stop_watch(&handlers); // until the end: asking twice is no reason to lose anything
    ct_status status = ct_config_load(&arena, path, argc, argv, &config);
    if (!status) status = ct_config_check_train(config, print_note, NULL);
    job j = {.config = config, .arena = &arena};
    if (!status) status = ct_setup_plugins(config);
    if (!status) status = run_ranks(&j, ranks);
    *out_stopped = j.stopped;
    if (status) speak(&j, NULL, status);
    ct_arena_deinit(&arena);
    return status;
}

int ct_cmd_train(int argc, char **argv) {
    int ranks = ct_take_count(&argc, argv, "--ranks"), own = ct_config_args_split(argc, argv), stopped = 0;
    for (int i = 1; i < argc; i++)
        if (!strcmp(argv[i], "--help") || !strcmp(argv[i], "-h")) return fputs(help, stdout), 0;
    if (ranks < 0) return fputs("ctitan train: --ranks: a number from 1 to 1000000 is wanted\n", stderr), 2;
    if (argc < 2) return fputs(help, stderr), 2;
    if (ct_check_file_argument("train", own, argv)) return 2;
    if (train(own == 2 ? argv[1] : NULL, ranks, argc - own, argv + own, &stopped)) return 1;
    return stopped ? CT_EXIT_STOPPED : 0;
}
