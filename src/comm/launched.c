// Ranks as processes that mpirun or srun started: messages by the MPI module, signs of life in memory that all ranks of a machine share,
// and an end that does not wait for who is lost.
#include "world.h"
#include "base/clock.h"
#include "base/team.h"
#include "mpi_table.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

typedef struct {
    const ct_mpi_table *mpi;
    void *module;
    void *segment, *control_mapping;
    size_t segment_bytes, control_bytes;
    pthread_t beat;
    pthread_mutex_t lock;
    pthread_cond_t wake;
    int stop, beats;
} launched;

// ---- is this an MPI job? ----
static long number(const char *name) {
    const char *text = getenv(name);
    return text ? strtol(text, NULL, 10) : -1;
}

int ct_comm_is_launched(void) {
    if (number("OMPI_COMM_WORLD_SIZE") > 1 || number("PMI_SIZE") > 1) return 1;
    return number("SLURM_NTASKS") > 1 && getenv("SLURM_PROCID") && (getenv("PMIX_RANK") || getenv("PMI_FD") || getenv("SLURM_STEP_ID"));
}

int ct_comm_launched_rank(void) {
    static const char *const names[] = {"OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK", "SLURM_PROCID"};
    for (size_t i = 0; i < sizeof names / sizeof *names && ct_comm_is_launched(); i++)
        if (number(names[i]) >= 0) return (int)number(names[i]);
    return -1;
}

// ---- waiting ----
typedef struct {
    ct_comm *comm;
    const char *group;
    const ct_comm_what *what;
    double last_s, waited_s;
    ct_status status;
} waiting;

// Everyone on this machine is looked at, near or not: whoever is lost will be missed sooner or later.
static int poll_failures(void *context) {
    waiting *w = context;
    ct_comm *c = w->comm;
    if (ct_now_s() < w->last_s + 0.2) return 0;
    w->waited_s += ct_elapsed_s(&w->last_s);
    for (int r = c->machine_first; c->control && r < c->machine_first + c->machine_count && !w->status; r++)
        if (r != c->rank) w->status = ct_check_peer(c, r, w->waited_s, w->group, w->what);
    if (!w->status) w->status = ct_check_time(c, w->waited_s, w->group, w->what);
    return w->status != CT_OK;
}

static waiting wait_begin(ct_comm *c, const char *group, const ct_comm_what *what) {
    return (waiting){c, group, what, ct_now_s(), 0, CT_OK};
}

static ct_status wait_end(const waiting *w, int result) {
    if (result > 0) return w->status;
    CT_CHECK(!result, CT_IO, "MPI failed in %s (%s) of %s over %s", w->what->kind, w->what->module, w->what->program, w->group);
    return CT_OK;
}

static ct_status all_gather(ct_comm *c, const void *mine, size_t bytes, void *out, const char *text) {
    launched *l = c->context;
    ct_comm_what what = {text, "", "between steps", (int64_t)bytes};
    waiting w = wait_begin(c, "all ranks", &what);
    return wait_end(&w, l->mpi->all_gather(mine, bytes, out, poll_failures, &w));
}

static ct_status exchange(ct_comm *c, const ct_group *group, const ct_message *sends, int sends_count, const ct_message *receives,
                          int receives_count, const ct_comm_what *what) {
    _Static_assert(sizeof(ct_message) == sizeof(ct_mpi_message), "the same fields");
    launched *l = c->context;
    waiting w = wait_begin(c, group->name, what);
    return wait_end(&w, l->mpi->exchange(group->slot, (const ct_mpi_message *)sends, sends_count, (const ct_mpi_message *)receives,
                                         receives_count, poll_failures, &w));
}

static ct_status channel_make(ct_exchange *x, void **out) {
    launched *l = x->comm->context;
    *out = l->mpi->channel_make(ct_tag_of(&x->group), (const ct_mpi_message *)x->sends, x->sends_count, (const ct_mpi_message *)x->receives, x->receives_count);
    CT_CHECK(*out, CT_IO, "MPI can't prepare the messages of %s (%s) of %s", x->what.kind, x->what.module, x->what.program);
    return CT_OK;
}

static void channel_destroy(ct_exchange *x) { ((launched *)x->comm->context)->mpi->channel_free(x->channel); }

static ct_status channel_receives(ct_exchange *x) {
    waiting w = wait_begin(x->comm, x->group.name, &x->what);
    return wait_end(&w, ((launched *)x->comm->context)->mpi->channel_receives(x->channel));
}

static ct_status channel_send(ct_exchange *x, int send) {
    waiting w = wait_begin(x->comm, x->group.name, &x->what);
    return wait_end(&w, ((launched *)x->comm->context)->mpi->channel_send(x->channel, send));
}

static ct_status channel_wait(ct_exchange *x, int receive) {
    waiting w = wait_begin(x->comm, x->group.name, &x->what);
    return wait_end(&w, ((launched *)x->comm->context)->mpi->channel_wait(x->channel, receive, poll_failures, &w));
}

static void progress(ct_comm *c) { ((launched *)c->context)->mpi->progress(); }

// ---- memory of the machine ----
static ct_status share(ct_comm *c, size_t bytes, void **out_base) {
    launched *l = c->context;
    CT_CHECK(!l->segment, CT_INVALID, "shared memory is asked for twice");
    l->segment_bytes = ct_whole_pages(bytes);
    CT_TRY(ct_share_among(c, c->near_first, c->near_count, l->segment_bytes, &l->segment));
    *out_base = l->segment;
    return CT_OK;
}

// ---- signs of life ----
static void beat_once(ct_comm *c) {
    atomic_store_explicit(&ct_area(c, c->rank)->beat_ns, (uint64_t)(ct_now_s() * 1e9), memory_order_relaxed);
}

static void *beat(void *argument) {
    ct_comm *c = argument;
    launched *l = c->context;
    pthread_mutex_lock(&l->lock);
    while (!l->stop) {
        beat_once(c);
        struct timespec until;
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_sec += 1;
        pthread_cond_timedwait(&l->wake, &l->lock, &until);
    }
    pthread_mutex_unlock(&l->lock);
    return NULL;
}

static ct_status start_beat(ct_comm *c) {
    launched *l = c->context;
    atomic_store(&ct_area(c, c->rank)->pid, getpid());
    beat_once(c); // whoever is stopped before its thread runs has begun to beat
    pthread_mutex_init(&l->lock, NULL);
    pthread_cond_init(&l->wake, NULL);
    int error = pthread_create(&l->beat, NULL, beat, c);
    CT_CHECK(!error, CT_NO_MEMORY, "cannot start a thread: %s", strerror(error));
    l->beats = 1;
    return CT_OK;
}

static void stop_beat(launched *l) {
    if (!l->beats) return;
    pthread_mutex_lock(&l->lock);
    l->stop = 1;
    pthread_cond_signal(&l->wake);
    pthread_mutex_unlock(&l->lock);
    pthread_join(l->beat, NULL);
    pthread_mutex_destroy(&l->lock);
    pthread_cond_destroy(&l->wake);
}

// ---- from start to end ----
// A stopped process does not hear that the job ends, and some launchers wait long for it.
static void kill_silent_peers(ct_comm *c) {
    char own[4096], theirs[4096], path[64];
    ssize_t length = readlink("/proc/self/exe", own, sizeof own);
    for (int r = c->machine_first; c->control && r < c->machine_first + c->machine_count; r++) {
        int pid = atomic_load(&ct_area(c, r)->pid);
        if (r == c->rank || pid <= 0 || !ct_peer_is_silent(c, r)) continue;
        snprintf(path, sizeof path, "/proc/%d/exe", pid);
        if (length > 0 && readlink(path, theirs, sizeof theirs) == length && !memcmp(own, theirs, (size_t)length)) kill(pid, SIGKILL);
    }
}

static void abandon(ct_comm *c) {
    launched *l = c->context;
    kill_silent_peers(c);
    if (l->mpi) l->mpi->abort(1);
}

// A rank that ends well waits for the others, so that one lost at the very end is missed as well; after a failure MPI can't end in order.
static void destroy(ct_comm *c) {
    launched *l = c->context;
    ct_status lost = c->control ? ct_failure_status(c) : CT_OK;
    if (l->beats && !lost) lost = ct_comm_barrier(c, "ending");
    if (lost && ct_comm_may_speak(c)) fprintf(stderr, "%s\n", ct_error_text(lost));
    else if (lost) sleep(3); // for who speaks
    if (lost) abandon(c);
    stop_beat(l);
    if (l->segment) munmap(l->segment, l->segment_bytes);
    if (l->mpi) l->mpi->finalize();
    if (l->control_mapping) munmap(l->control_mapping, l->control_bytes);
    ct_flight_close(c->flight);
    free(c->watch);
    free(l);
    free(c); // the module stays: MPI libraries don't like to go
}

static const ct_comm_backend mpi_backend = {
    .kind = "mpi", .share = share, .exchange = exchange, .channel_make = channel_make, .channel_destroy = channel_destroy,
    .channel_receives = channel_receives, .channel_send = channel_send, .channel_wait = channel_wait, .progress = progress,
    .all_gather = all_gather, .destroy = destroy, .abandon = abandon};

static ct_status load_module(launched *l) {
    char own[4096], path[4200];
    ssize_t length = readlink("/proc/self/exe", own, sizeof own - 1);
    own[length > 0 ? length : 0] = 0;
    char *slash = strrchr(own, '/');
    if (slash) *slash = 0;
    static const char *const places[] = {"%s/ctitan_mpi.so", "%s/../lib/ctitan/ctitan_mpi.so", "%s/../../ctitan_mpi.so"};
    const char *why = "";
    for (size_t i = 0; i < sizeof places / sizeof *places && !l->module; i++) {
        snprintf(path, sizeof path, places[i], own);
        if (i && access(path, R_OK)) continue;
        l->module = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
        if (!l->module) why = dlerror();
    }
    CT_CHECK(l->module, CT_NOT_FOUND, "this job was started by mpirun or srun, and the MPI module can't be loaded: %s (is ctitan_mpi.so beside the program?)", why);
    ct_mpi_table_fn *table_fn;
    void *symbol = dlsym(l->module, "ctitan_mpi_table");
    memcpy(&table_fn, &symbol, sizeof symbol);
    CT_CHECK(symbol && table_fn()->abi == CT_MPI_ABI, CT_INVALID, "%s is of another version", path);
    l->mpi = table_fn();
    return CT_OK;
}

// Which of the machine's ranks are near: all, runs of options.ranks_per_node, or none.
static void set_near(ct_comm *c) {
    int k = c->options.no_shared_memory ? 1 : c->options.ranks_per_node, last = c->machine_first + c->machine_count;
    int first = k > 0 ? c->rank / k * k : c->machine_first, end = k > 0 && first + k < last ? first + k : last;
    c->near_first = first > c->machine_first ? first : c->machine_first;
    c->near_count = end - c->near_first;
}

static ct_status find_per_node(ct_comm *c) {
    int64_t first = c->rank ? 0 : c->near_count, differs;
    CT_TRY(ct_comm_max_i64(c, &first, 1));
    differs = c->near_first != c->rank / first * first;
    CT_TRY(ct_comm_max_i64(c, &differs, 1));
    c->per_node = differs ? 1 : (int)first;
    return CT_OK;
}

static ct_status join(ct_comm *c, launched *l) {
    CT_TRY(load_module(l));
    if (l->mpi->init(&c->rank, &c->size, &c->machine_first, &c->machine_count)) {
        l->mpi = NULL;
        CT_FAIL(CT_IO, "MPI can't be started");
    }
    c->may_spin = c->machine_count <= ct_cores() || ct_cores() == 1; // one core: the launcher bound this process to its own
    set_near(c);
    c->control_first = c->machine_first;
    c->watch = ct_calloc((size_t)c->machine_count, sizeof *c->watch);
    l->control_bytes = ct_whole_pages(ct_control_bytes(c->machine_count));
    CT_TRY(ct_share_among(c, c->machine_first, c->machine_count, l->control_bytes, &l->control_mapping));
    c->control = l->control_mapping;
    ct_status mine = start_beat(c);
    CT_TRY(ct_comm_agree(c, mine ? mine : ct_comm_record(c))); // from here on all beat
    return find_per_node(c);
}

ct_status ct_comm_create_mpi(const ct_comm_options *options, ct_comm **out_comm) {
    ct_comm *c = ct_calloc(1, sizeof *c);
    launched *l = ct_calloc(1, sizeof *l);
    *c = (ct_comm){.backend = &mpi_backend, .context = l};
    if (options) c->options = *options;
    ct_comm_default(&c->options);
    ct_status status = join(c, l);
    *out_comm = l->mpi ? c : NULL;
    if (!l->mpi) destroy(c);
    return status;
}
