// The recorder writes a record before a wait and its end after it; the state comes last, so a record that says "done" is whole.
#include "flight_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

struct ct_flight {
    ct_flight_header *head;
    ct_flight_record *records;
    size_t bytes;
    int64_t turns[CT_FLIGHT_SLOTS]; // operations begun on each slot
};

static uint64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static ct_status map_file(const char *path, size_t bytes, ct_flight *f) {
    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    CT_CHECK(fd >= 0, CT_IO, "cannot make %s: %s", path, strerror(errno));
    int error = posix_fallocate(fd, 0, (off_t)bytes); // a full disk is an error now, not a signal later
    void *p = error ? MAP_FAILED : mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (!error && p == MAP_FAILED) error = errno;
    close(fd);
    CT_CHECK(!error, CT_IO, "cannot make %s of %zu bytes: %s", path, bytes, strerror(error));
    f->head = p;
    f->records = (ct_flight_record *)(void *)((char *)p + sizeof(ct_flight_header));
    f->bytes = bytes;
    return CT_OK;
}

ct_status ct_flight_open(const char *folder, const char *prefix, int rank, int ranks, int64_t entries, ct_flight **out) {
    ct_flight *f = ct_calloc(1, sizeof *f);
    char *path = ct_format("%s/%s%d.ring", folder, prefix, rank);
    ct_status status = map_file(path, sizeof(ct_flight_header) + sizeof(ct_flight_record) * (size_t)entries, f);
    free(path);
    if (status) {
        free(f);
        return status;
    }
    ct_flight_header *h = f->head;
    h->version = FLIGHT_VERSION, h->rank = rank, h->ranks = ranks, h->pid = getpid();
    h->entries = entries, h->record_bytes = sizeof(ct_flight_record);
    atomic_store(&h->next, 1);
    memcpy(h->magic, FLIGHT_MAGIC, sizeof h->magic);
    *out = f;
    return CT_OK;
}

void ct_flight_close(ct_flight *f) {
    if (!f) return;
    munmap(f->head, f->bytes);
    free(f);
}

static void copy_text(char *to, const char *from, size_t size) {
    size_t n = strnlen(from, size - 1);
    memcpy(to, from, n);
    to[n] = 0;
}

ct_flight_record *ct_flight_begin(ct_flight *f, const ct_flight_operation *what) {
    int64_t sequence = atomic_load_explicit(&f->head->next, memory_order_relaxed);
    ct_flight_record *r = &f->records[(sequence - 1) % f->head->entries];
    r->state = 0;
    atomic_signal_fence(memory_order_release);
    r->sequence = sequence, r->step = what->step, r->bytes = what->bytes;
    r->slot = what->slot, r->first = what->first, r->count = what->count;
    r->turn = ++f->turns[what->slot];
    r->start_ns = now_ns(), r->end_ns = 0;
    copy_text(r->kind, what->kind, sizeof r->kind);
    copy_text(r->program, what->program, sizeof r->program);
    copy_text(r->group, what->group, sizeof r->group);
    copy_text(r->module, what->module, sizeof r->module);
    atomic_signal_fence(memory_order_release);
    r->state = CT_FLIGHT_POSTED;
    atomic_store_explicit(&f->head->next, sequence + 1, memory_order_release);
    return r;
}

void ct_flight_end(ct_flight_record *r) {
    r->end_ns = now_ns();
    atomic_signal_fence(memory_order_release);
    r->state = CT_FLIGHT_DONE;
}
