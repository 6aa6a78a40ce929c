// Ranks as processes that mpirun or srun started: messages by the MPI module, memory inside a node by one memfd that its first rank makes and
// the others open through /proc, so that nothing is left behind however they end.
#include "world.h"
#include "base/clock.h"
#include "base/team.h"
#include "mpi_table.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { HUGE_PAGE = 2 << 20, COLLAPSE = 25 /* MADV_COLLAPSE, missing from older headers */ };

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

// ---- waiting ----
typedef struct {
    ct_comm *comm;
    const char *group;
    const ct_comm_what *what;
    double start_s, next_s;
    ct_status status;
} waiting;

static int poll_failures(void *context) {
    waiting *w = context;
    double now = ct_now_s();
    if (now < w->next_s) return 0;
    w->next_s = now + 0.2;
    if (!w->comm->control) { // the very beginning: nobody beats yet
        w->status = ct_check_time(w->comm, now - w->start_s, w->group, w->what);
        return w->status != CT_OK;
    }
    for (int r = w->comm->near_first; r < w->comm->near_first + w->comm->near_count && !w->status; r++)
        if (r != w->comm->rank) w->status = ct_check_peer(w->comm, r, now - w->start_s, w->group, w->what);
    if (!w->status && w->comm->near_count == 1) w->status = ct_check_time(w->comm, now - w->start_s, w->group, w->what);
    return w->status != CT_OK;
}

static waiting wait_begin(ct_comm *c, const char *group, const ct_comm_what *what) {
    double now = ct_now_s();
    return (waiting){c, group, what, now, now + 0.2, CT_OK};
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

// ---- memory of the node ----
static ct_status make_segment(size_t bytes, int *out_fd) {
    int fd = memfd_create("ctitan", MFD_CLOEXEC);
    CT_CHECK(fd >= 0, CT_NO_MEMORY, "cannot make shared memory: %s", strerror(errno));
    int error = ftruncate(fd, (off_t)bytes) ? errno : posix_fallocate(fd, 0, (off_t)bytes);
    if (error) close(fd);
    CT_CHECK(!error, CT_NO_MEMORY, "%.2f GB of shared memory are wanted for the ranks of this node: %s", (double)bytes / 1e9, strerror(error));
    *out_fd = fd;
    return CT_OK;
}

static ct_status map_fd(int fd, size_t bytes, void **out) {
    unsigned char *hole = mmap(NULL, bytes + HUGE_PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    CT_CHECK(hole != MAP_FAILED, CT_NO_MEMORY, "no room for %.2f GB of shared memory: %s", (double)bytes / 1e9, strerror(errno));
    unsigned char *at = (unsigned char *)(((uintptr_t)hole + HUGE_PAGE - 1) & ~(uintptr_t)(HUGE_PAGE - 1));
    void *p = mmap(at, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0);
    CT_CHECK(p != MAP_FAILED, CT_NO_MEMORY, "cannot map %.2f GB of shared memory: %s", (double)bytes / 1e9, strerror(errno));
    madvise(p, bytes, COLLAPSE);
    *out = p;
    return CT_OK;
}

typedef struct {
    int64_t pid, fd; // of the node's first rank; fd -1: it failed
    size_t bytes;
} segment_place;

// Everyone's error is agreed on by an all-gather that has to happen anyway.
static ct_status node_segment(ct_comm *c, size_t bytes, void **out) {
    bytes = (bytes + HUGE_PAGE - 1) & ~(size_t)(HUGE_PAGE - 1);
    int fd = -1, is_first = c->rank == c->near_first;
    ct_status made = is_first ? make_segment(bytes, &fd) : CT_OK;
    segment_place mine = {getpid(), fd, bytes}, *all = ct_malloc(sizeof mine * (size_t)c->size);
    ct_status status = all_gather(c, &mine, sizeof mine, all, "sharing memory");
    segment_place first = status ? mine : all[c->near_first];
    for (int r = c->near_first; r < c->near_first + c->near_count && !status; r++)
        if (all[r].bytes != bytes) status = ct_error_make(CT_INVALID, __FILE__, __LINE__, "rank %d asks for %zu bytes of shared memory, rank %d for %zu", c->rank, bytes, r, all[r].bytes);
    free(all);
    if (!status && first.fd < 0) status = made ? made : ct_error_make(CT_NO_MEMORY, __FILE__, __LINE__, "rank %d could not make the node's shared memory", c->near_first);
    if (!status && !is_first) {
        char path[64];
        snprintf(path, sizeof path, "/proc/%lld/fd/%lld", (long long)first.pid, (long long)first.fd);
        fd = open(path, O_RDWR | O_CLOEXEC);
        if (fd < 0) status = ct_error_make(CT_IO, __FILE__, __LINE__, "cannot open rank %d's shared memory, %s: %s", c->near_first, path, strerror(errno));
    }
    if (!status) status = map_fd(fd, bytes, out);
    char done = status != CT_OK, *dones = ct_malloc((size_t)c->size); // the first keeps its file open until all have it
    ct_status met = all_gather(c, &done, 1, dones, "sharing memory");
    for (int r = 0; r < c->size && !met && !status; r++)
        if (dones[r]) status = ct_error_make(CT_NO_MEMORY, __FILE__, __LINE__, "rank %d has no shared memory", r);
    free(dones);
    if (fd >= 0) close(fd);
    return status ? status : met;
}

static ct_status share(ct_comm *c, size_t bytes, void **out_base) {
    launched *l = c->context;
    CT_CHECK(!l->segment, CT_INVALID, "shared memory is asked for twice");
    CT_TRY(node_segment(c, bytes, &l->segment));
    l->segment_bytes = bytes;
    *out_base = l->segment;
    return CT_OK;
}

// ---- signs of life ----
static void *beat(void *argument) {
    ct_comm *c = argument;
    launched *l = c->context;
    pthread_mutex_lock(&l->lock);
    while (!l->stop) {
        atomic_store_explicit(&ct_area(c, c->rank)->beat_ns, (uint64_t)(ct_now_s() * 1e9), memory_order_relaxed);
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
static void destroy(ct_comm *c) {
    launched *l = c->context;
    stop_beat(l);
    if (l->segment) munmap(l->segment, (l->segment_bytes + HUGE_PAGE - 1) & ~(size_t)(HUGE_PAGE - 1));
    if (l->mpi) l->mpi->finalize();
    if (l->control_mapping) munmap(l->control_mapping, l->control_bytes);
    free(l);
    free(c); // the module stays: MPI libraries don't like to go
}

static void abandon(ct_comm *c) {
    launched *l = c->context;
    if (l->mpi) l->mpi->abort(1);
}

static const ct_comm_backend mpi_backend = {"mpi", share, exchange, all_gather, destroy, abandon};

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

static ct_status join(ct_comm *c, launched *l) {
    CT_TRY(load_module(l));
    if (l->mpi->init(&c->rank, &c->size, &c->near_first, &c->near_count)) {
        l->mpi = NULL;
        CT_FAIL(CT_IO, "MPI can't be started");
    }
    c->machine_first = c->near_first;
    c->machine_count = c->near_count;
    c->may_spin = c->machine_count <= ct_cores() || ct_cores() == 1;
    int k = c->options.ranks_per_node, last = c->near_first + c->near_count;
    if (c->options.no_shared_memory) c->near_first = c->rank, c->near_count = 1;
    else if (k > 0) {
        int first = c->rank / k * k, end = first + k < last ? first + k : last;
        c->near_first = first > c->near_first ? first : c->near_first;
        c->near_count = end - c->near_first;
    }
    c->control_first = c->near_first;
    l->control_bytes = (ct_control_bytes(c->near_count) + HUGE_PAGE - 1) & ~(size_t)(HUGE_PAGE - 1);
    CT_TRY(node_segment(c, l->control_bytes, &l->control_mapping));
    c->control = l->control_mapping;
    CT_TRY(start_beat(c));
    CT_TRY(ct_comm_barrier(c, "starting")); // all beat before anyone looks
    return ct_comm_record(c);
}

ct_status ct_comm_create_mpi(const ct_comm_options *options, ct_comm **out_comm) {
    ct_comm *c = ct_calloc(1, sizeof *c);
    launched *l = ct_calloc(1, sizeof *l);
    *c = (ct_comm){.backend = &mpi_backend, .context = l};
    if (options) c->options = *options;
    ct_comm_default(&c->options);
    ct_status status = join(c, l);
    if (status) destroy(c);
    else *out_comm = c;
    return status;
}
