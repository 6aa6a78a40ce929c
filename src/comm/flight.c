// The recorder writes a record before a wait and its end after it; the state comes last, so a record that says "done" is whole.
#include "comm/flight.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { VERSION = 1 };
static const char magic[8] = "ctflight";

typedef struct {
    char magic[8];
    int32_t version, rank, ranks, pid;
    int64_t entries, record_bytes;
    _Atomic int64_t next; // sequence number of the next record
    char spare[72];
} header;

struct ct_flight {
    header *head;
    ct_flight_record *records;
    size_t bytes;
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
    f->records = (ct_flight_record *)(void *)((char *)p + sizeof(header));
    f->bytes = bytes;
    return CT_OK;
}

ct_status ct_flight_open(const char *folder, const char *prefix, int rank, int ranks, int64_t entries, ct_flight **out) {
    ct_flight *f = ct_calloc(1, sizeof *f);
    char *path = ct_format("%s/%s%d.ring", folder, prefix, rank);
    ct_status status = map_file(path, sizeof(header) + sizeof(ct_flight_record) * (size_t)entries, f);
    free(path);
    if (status) {
        free(f);
        return status;
    }
    header *h = f->head;
    h->version = VERSION, h->rank = rank, h->ranks = ranks, h->pid = getpid();
    h->entries = entries, h->record_bytes = sizeof(ct_flight_record);
    atomic_store(&h->next, 1);
    memcpy(h->magic, magic, sizeof magic);
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

ct_flight_record *ct_flight_begin(ct_flight *f, const char *kind, const char *program, const char *group, const char *module, int slot,
                                  int64_t step, int64_t bytes) {
    int64_t sequence = atomic_load_explicit(&f->head->next, memory_order_relaxed);
    ct_flight_record *r = &f->records[(sequence - 1) % f->head->entries];
    r->state = 0;
    r->sequence = sequence, r->step = step, r->bytes = bytes, r->slot = slot;
    r->start_ns = now_ns(), r->end_ns = 0;
    copy_text(r->kind, kind, sizeof r->kind);
    copy_text(r->program, program, sizeof r->program);
    copy_text(r->group, group, sizeof r->group);
    copy_text(r->module, module, sizeof r->module);
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

// ---- reading ----
typedef struct {
    int rank, ranks, pid;
    int64_t next, entries;
    ct_flight_record *records; // of the file, as they lie
    size_t count;
} flight_log;

static ct_status read_log(const char *path, flight_log *log) {
    FILE *file = fopen(path, "rb");
    CT_CHECK(file, CT_IO, "cannot open %s: %s", path, strerror(errno));
    header h;
    struct stat st;
    int whole = fread(&h, sizeof h, 1, file) == 1 && !fstat(fileno(file), &st);
    int is_log = whole && !memcmp(h.magic, magic, sizeof magic) && h.version == VERSION && h.record_bytes == sizeof(ct_flight_record) &&
                 h.entries >= 1 && h.entries <= 100000000 && atomic_load(&h.next) >= 1 && h.rank >= 0 && h.ranks >= 1;
    if (is_log) {
        *log = (flight_log){h.rank, h.ranks, h.pid, atomic_load(&h.next), h.entries, NULL, 0};
        size_t there = (size_t)st.st_size / sizeof(ct_flight_record); // a cut file has fewer
        size_t count = (size_t)h.entries < there ? (size_t)h.entries : there;
        log->records = ct_calloc(count + 1, sizeof *log->records);
        log->count = fread(log->records, sizeof *log->records, count, file);
    }
    fclose(file);
    CT_CHECK(is_log, CT_CORRUPT, "%s is no flight recorder's file, or of another version", path);
    return CT_OK;
}

static int by_rank(const void *a, const void *b) { return ((const flight_log *)a)->rank - ((const flight_log *)b)->rank; }

static ct_status read_folder(const char *folder, flight_log **out, int *out_count) {
    DIR *dir = opendir(folder);
    CT_CHECK(dir, CT_NOT_FOUND, "cannot open the folder %s: %s", folder, strerror(errno));
    ct_status status = CT_OK;
    int count = 0, capacity = 0;
    flight_log *logs = NULL;
    for (struct dirent *e; !status && (e = readdir(dir));) {
        size_t n = strlen(e->d_name);
        if (n < 6 || strcmp(e->d_name + n - 5, ".ring")) continue;
        char *path = ct_format("%s/%s", folder, e->d_name);
        CT_GROW(logs, count, capacity);
        status = read_log(path, &logs[count]);
        count += !status;
        free(path);
    }
    closedir(dir);
    if (!status && !count) status = ct_error_make(CT_NOT_FOUND, __FILE__, __LINE__, "there is no flight recorder's file (*.ring) in %s", folder);
    if (count) qsort(logs, (size_t)count, sizeof *logs, by_rank);
    *out = logs;
    *out_count = count;
    return status;
}

// The record with this number, NULL where it is overwritten or cut off.
static const ct_flight_record *record_of(const flight_log *log, int64_t sequence) {
    if (sequence < 1 || sequence >= log->next) return NULL;
    size_t at = (size_t)((sequence - 1) % log->entries);
    const ct_flight_record *r = at < log->count ? &log->records[at] : NULL;
    return r && r->sequence == sequence ? r : NULL;
}

static void print_record(const ct_flight_record *r, ct_string *out) {
    ct_string_add(out, "  #%-8lld step %-6lld %-18.*s %-10.*s %.*s, %lld bytes, over %.*s: ", (long long)r->sequence, (long long)r->step,
                  (int)sizeof r->kind, r->kind, (int)sizeof r->program, r->program, (int)sizeof r->module, r->module[0] ? r->module : "-",
                  (long long)r->bytes, (int)sizeof r->group, r->group);
    if (r->state == CT_FLIGHT_DONE) ct_string_add(out, "done in %.3f ms\n", (double)(r->end_ns - r->start_ns) / 1e6);
    else ct_string_add(out, "WAITING\n");
}

ct_status ct_flight_print(const char *folder, int count, ct_string *out) {
    flight_log *logs = NULL;
    int ranks = 0;
    ct_status status = read_folder(folder, &logs, &ranks);
    int behind = -1;
    int64_t least = INT64_MAX;
    for (int i = 0; i < ranks && !status; i++) {
        ct_string_add(out, "rank %d of %d, process %d: %lld operations\n", logs[i].rank, logs[i].ranks, logs[i].pid, (long long)(logs[i].next - 1));
        for (int64_t s = logs[i].next - count; s < logs[i].next; s++)
            if (record_of(&logs[i], s)) print_record(record_of(&logs[i], s), out);
        if (logs[i].next < least) least = logs[i].next, behind = i;
    }
    int differ = 0;
    for (int i = 0; i < ranks && !status; i++) differ |= logs[i].next != least;
    if (!status && ranks && ranks < logs[0].ranks) ct_string_add(out, "files of %d of %d ranks are here\n", ranks, logs[0].ranks);
    if (!status && differ)
        ct_string_add(out, "rank %d is behind: it began %lld operations, others more\n", logs[behind].rank, (long long)(least - 1));
    for (int i = 0; i < ranks; i++) free(logs[i].records);
    free(logs);
    return status;
}
