// A save that stops the step only for a copy: everything goes into staging memory, and one thread at a time writes it from there. An error
// waits in the saver, as text, until someone asks.
#include "base/file.h"
#include "checkpoint/checkpoint.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { ALIGN = 64, GRAIN = 1 << 16 };

struct ct_saver {
    ct_team *team;
    unsigned char *staging;
    size_t staging_bytes;
    int owns_staging, has_thread;
    pthread_t thread;
    atomic_int is_running;
    ct_arena arena; // names, root, state of the save in flight
    ct_save_options options;
    ct_named_tensor *tensors;
    int count;
    int rank; // whose shard is written; -1: all there is
    ct_string part;
    ct_code code; // 0: it went well
    char text[2048];
};

static void free_staging(ct_saver *saver) {
    if (saver->owns_staging && saver->staging) munmap(saver->staging, saver->staging_bytes);
}

void ct_saver_destroy(ct_saver *saver) {
    if (!saver) return;
    ct_checkpoint_save_wait(saver);
    free_staging(saver);
    ct_string_deinit(&saver->part);
    free(saver);
}

static size_t staged(const ct_named_tensor *tensor) { return (ct_named_tensor_bytes(tensor) + ALIGN - 1) & ~(size_t)(ALIGN - 1); }

size_t ct_saver_staging_bytes(const ct_named_tensor *tensors, int count) {
    size_t bytes = 0;
    for (int i = 0; i < count; i++) bytes += staged(&tensors[i]);
    return bytes;
}

static ct_status reserve(ct_saver *saver, size_t bytes) {
    if (bytes <= saver->staging_bytes) return CT_OK;
    CT_CHECK(saver->owns_staging, CT_INVALID, "a save needs %zu bytes of staging, %zu were reserved", bytes, saver->staging_bytes);
    free_staging(saver);
    saver->staging = NULL, saver->staging_bytes = 0;
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CT_CHECK(memory != MAP_FAILED, CT_NO_MEMORY, "no memory for a copy of the %zu bytes to be saved", bytes);
    madvise(memory, bytes, MADV_HUGEPAGE);
    madvise(memory, bytes, MADV_POPULATE_WRITE); // now rather than in a step; a kernel without it touches pages later
    saver->staging = memory, saver->staging_bytes = bytes;
    return CT_OK;
}

ct_status ct_saver_create(const ct_saver_options *options, ct_saver **out_saver) {
    CT_CHECK((uintptr_t)options->staging % ALIGN == 0, CT_INVALID, "staging memory must be aligned to %d bytes", ALIGN);
    ct_saver *saver = ct_calloc(1, sizeof *saver);
    saver->team = options->team;
    saver->staging = options->staging;
    saver->staging_bytes = options->staging ? options->staging_bytes : 0;
    saver->owns_staging = !options->staging;
    ct_status status = reserve(saver, options->staging_bytes);
    if (status) ct_saver_destroy(saver);
    else *out_saver = saver;
    return status;
}

// ---- the copy ----
typedef struct {
    ct_saver *saver;
    const ct_named_tensor *from;
} copying;

static void copy_share(void *context, int thread, int threads) {
    const copying *c = context;
    for (int i = 0; i < c->saver->count; i++) {
        long long begin, end;
        ct_share((long long)ct_named_tensor_bytes(&c->from[i]), GRAIN, thread, threads, &begin, &end);
        if (end > begin)
            memcpy((char *)c->saver->tensors[i].data + begin, (const char *)c->from[i].data + begin, (size_t)(end - begin));
    }
}

static void stage(ct_saver *saver, const ct_save_options *options, const ct_named_tensor *tensors, int count) {
    ct_arena *arena = &saver->arena;
    ct_arena_deinit(arena);
    saver->options = *options;
    saver->options.root = ct_arena_strdup(arena, options->root);
    saver->options.state_json = ct_arena_strdup(arena, options->state_json ? options->state_json : "{}");
    saver->tensors = CT_ARENA_ARRAY(arena, ct_named_tensor, count);
    saver->count = count;
    unsigned char *at = saver->staging;
    for (int i = 0; i < count; i++) {
        CT_ASSERT(tensors[i].data, "%s has no data", tensors[i].name);
        saver->tensors[i] = tensors[i];
        saver->tensors[i].name = ct_arena_strdup(arena, tensors[i].name);
        saver->tensors[i].data = at;
        at += staged(&tensors[i]);
    }
    copying c = {saver, tensors};
    if (saver->team) ct_team_run(saver->team, copy_share, &c);
    else copy_share(&c, 0, 1);
}

// ---- the thread ----
static void *write_main(void *argument) {
    ct_saver *saver = argument;
    ct_thread_unpin(); // whoever started it may be pinned
    ct_status status = saver->rank < 0 ? ct_checkpoint_save(&saver->options, saver->tensors, saver->count)
                                       : ct_checkpoint_shard_write(&saver->options, saver->rank, saver->tensors, saver->count, &saver->part);
    saver->code = status ? ct_error_code(status) : 0;
    if (status) snprintf(saver->text, sizeof saver->text, "%s", ct_error_text(status));
    atomic_store(&saver->is_running, 0);
    return NULL;
}

// Signals belong to the training thread.
static int start_thread(ct_saver *saver) {
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = pthread_create(&saver->thread, NULL, write_main, saver);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return error;
}

static ct_status begin(ct_saver *saver, const ct_save_options *options, int rank, const ct_named_tensor *tensors, int count) {
    CT_TRY(ct_checkpoint_save_wait(saver));
    CT_TRY(reserve(saver, ct_saver_staging_bytes(tensors, count)));
    stage(saver, options, tensors, count);
    saver->rank = rank;
    atomic_store(&saver->is_running, 1);
    int error = start_thread(saver);
    if (error) atomic_store(&saver->is_running, 0);
    CT_CHECK(!error, CT_IO, "cannot start a thread to save step %lld: %s", (long long)options->step, strerror(error));
    saver->has_thread = 1;
    return CT_OK;
}

ct_status ct_checkpoint_save_begin(ct_saver *saver, const ct_save_options *options, const ct_named_tensor *tensors, int count) {
    return begin(saver, options, -1, tensors, count);
}

ct_status ct_checkpoint_shard_begin(ct_saver *saver, const ct_save_options *options, int rank, const ct_named_tensor *tensors, int count) {
    return begin(saver, options, rank, tensors, count);
}

ct_status ct_checkpoint_save_wait(ct_saver *saver) {
    if (!saver->has_thread) return CT_OK;
    pthread_join(saver->thread, NULL);
    saver->has_thread = 0;
    ct_arena_deinit(&saver->arena);
    if (!saver->code) return CT_OK;
    return ct_error_make(saver->code, __FILE__, __LINE__, "%s", saver->text);
}

ct_status ct_checkpoint_shard_end(ct_saver *saver, ct_string *out_part) {
    ct_status status = ct_checkpoint_save_wait(saver);
    *out_part = saver->part;
    saver->part = (ct_string){0};
    return status;
}

int ct_checkpoint_save_is_running(ct_saver *saver) { return atomic_load(&saver->is_running); }
