// Reading the recorder's files after a job, or during one. The files may be cut, damaged or strange: nothing in them is believed, neither a
// count nor a text.
#include "flight_file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MOST_RECORDS = 1 << 21 }; // of a file are read

typedef struct {
    char *path;
    int rank, ranks, pid;
    int64_t next, entries;
    ct_flight_record *records; // as they lie in the file
    size_t count;
} flight_log;

// A rank's newest record in a group.
typedef struct {
    ct_flight_record record;
    int rank;
} last_turn;

typedef struct {
    last_turn *items;
    int count, capacity;
} last_turns;

static int is_header(const ct_flight_header *h) {
    return !memcmp(h->magic, FLIGHT_MAGIC, sizeof h->magic) && h->version == FLIGHT_VERSION && h->record_bytes == sizeof(ct_flight_record) &&
           h->entries >= 1 && h->rank >= 0 && h->ranks >= 1 && atomic_load(&h->next) >= 1;
}

// Opens a file that is one of ours and reads its header. A pipe named like one is not waited for.
static ct_status open_log(const char *path, flight_log *log, int *out_fd) {
    int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    CT_CHECK(fd >= 0, CT_IO, "cannot open %s: %s", path, strerror(errno));
    ct_flight_header h;
    struct stat st;
    int is_ours = !fstat(fd, &st) && S_ISREG(st.st_mode) && pread(fd, &h, sizeof h, 0) == (ssize_t)sizeof h && is_header(&h);
    if (!is_ours) close(fd);
    CT_CHECK(is_ours, CT_CORRUPT, "%s is no flight recorder's file, or of another version", path);
    log->rank = h.rank, log->ranks = h.ranks, log->pid = h.pid;
    log->next = atomic_load(&h.next), log->entries = h.entries;
    int64_t there = ((int64_t)st.st_size - (int64_t)sizeof h) / (int64_t)sizeof(ct_flight_record); // a cut file has fewer
    if (there > h.entries) there = h.entries;
    log->count = there < MOST_RECORDS ? (size_t)there : MOST_RECORDS;
    *out_fd = fd;
    return CT_OK;
}

static ct_status read_header(flight_log *log) {
    int fd;
    CT_TRY(open_log(log->path, log, &fd));
    close(fd);
    return CT_OK;
}

static ct_status read_records(flight_log *log) {
    int fd;
    CT_TRY(open_log(log->path, log, &fd));
    log->records = ct_calloc(log->count + 1, sizeof *log->records);
    size_t done = 0, bytes = log->count * sizeof *log->records;
    for (ssize_t n; done < bytes; done += (size_t)n)
        if ((n = pread(fd, (char *)log->records + done, bytes - done, (off_t)(sizeof(ct_flight_header) + done))) <= 0) break;
    close(fd);
    log->count = done / sizeof *log->records;
    return CT_OK;
}

static int by_rank(const void *a, const void *b) { return ((const flight_log *)a)->rank - ((const flight_log *)b)->rank; }

static ct_status list_logs(const char *folder, flight_log **out, int *out_count) {
    DIR *dir = opendir(folder);
    CT_CHECK(dir, CT_NOT_FOUND, "cannot open the folder %s: %s", folder, strerror(errno));
    ct_status status = CT_OK;
    int count = 0, capacity = 0;
    flight_log *logs = NULL;
    for (struct dirent *e; !status && (e = readdir(dir));) {
        size_t n = strlen(e->d_name);
        if (n < 6 || strcmp(e->d_name + n - 5, ".ring")) continue;
        CT_GROW(logs, count, capacity);
        logs[count] = (flight_log){.path = ct_format("%s/%s", folder, e->d_name)};
        status = read_header(&logs[count++]);
    }
    closedir(dir);
    if (!status && !count) status = ct_error_make(CT_NOT_FOUND, __FILE__, __LINE__, "there is no flight recorder's file (*.ring) in %s", folder);
    if (count) qsort(logs, (size_t)count, sizeof *logs, by_rank);
    *out = logs;
    *out_count = count;
    return status;
}

// The record of this number, NULL where it is overwritten or cut off.
static const ct_flight_record *record_of(const flight_log *log, int64_t sequence) {
    if (sequence < 1 || sequence >= log->next) return NULL;
    size_t at = (size_t)((sequence - 1) % log->entries);
    const ct_flight_record *r = at < log->count ? &log->records[at] : NULL;
    return r && r->sequence == sequence && r->state ? r : NULL;
}

// ---- printing ----
// At most `size` bytes, without what would move the reader's cursor.
static void print_text(ct_string *out, const char *text, size_t size, int width) {
    char clean[80];
    size_t n = 0;
    for (; n < size && n + 1 < sizeof clean && text[n]; n++) clean[n] = (unsigned char)text[n] < ' ' || text[n] == 127 ? '?' : text[n];
    clean[n] = 0;
    ct_string_add(out, "%-*s", width, n ? clean : "-");
}
#define TEXT(out, field, width) print_text(out, field, sizeof(field), width)

static void print_record(const ct_flight_record *r, ct_string *out) {
    ct_string_add(out, "  #%-8lld step %-6lld ", (long long)r->sequence, (long long)r->step);
    TEXT(out, r->kind, 18), ct_string_add(out, " ");
    TEXT(out, r->program, 10), ct_string_add(out, " ");
    TEXT(out, r->module, 0), ct_string_add(out, ", %lld bytes, over ", (long long)r->bytes);
    TEXT(out, r->group, 0);
    if (r->state == CT_FLIGHT_DONE) ct_string_add(out, ": done in %.3f ms\n", (double)(int64_t)(r->end_ns - r->start_ns) / 1e6);
    else ct_string_add(out, ": WAITING\n");
}

static int is_same_group(const ct_flight_record *a, const ct_flight_record *b) {
    return a->slot == b->slot && a->first == b->first && a->count == b->count;
}

static void note_turn(last_turns *t, const ct_flight_record *r, int rank) {
    int i = t->count; // this rank's are at the end
    while (i > 0 && t->items[i - 1].rank == rank && !is_same_group(&t->items[i - 1].record, r)) i--;
    if (i > 0 && t->items[i - 1].rank == rank) {
        if (r->turn > t->items[i - 1].record.turn) t->items[i - 1].record = *r;
        return;
    }
    if (t->count >= 1 << 20) return;
    CT_GROW(t->items, t->count, t->capacity);
    t->items[t->count++] = (last_turn){*r, rank};
}

static int by_group(const void *a, const void *b) {
    const ct_flight_record *x = &((const last_turn *)a)->record, *y = &((const last_turn *)b)->record;
    if (x->slot != y->slot) return x->slot < y->slot ? -1 : 1;
    if (x->first != y->first) return x->first < y->first ? -1 : 1;
    if (x->count != y->count) return x->count < y->count ? -1 : 1;
    if (x->turn != y->turn) return x->turn > y->turn ? -1 : 1; // who is ahead comes first
    return ((const last_turn *)a)->rank - ((const last_turn *)b)->rank;
}

static void print_behind(const last_turns *t, ct_string *out) {
    if (t->count) qsort(t->items, (size_t)t->count, sizeof *t->items, by_group);
    const last_turn *ahead = NULL;
    for (int i = 0; i < t->count; i++) {
        const last_turn *l = &t->items[i];
        if (!ahead || !is_same_group(&ahead->record, &l->record)) ahead = l;
        if (l->record.turn == ahead->record.turn) continue;
        ct_string_add(out, "rank %d is behind over ", l->rank);
        TEXT(out, l->record.group, 0);
        ct_string_add(out, " (%d ranks from rank %d on): %lld operations begun, and %lld by rank %d, whose last is ", l->record.count, l->record.first,
                      (long long)l->record.turn, (long long)ahead->record.turn, ahead->rank);
        TEXT(out, ahead->record.kind, 0), ct_string_add(out, " (");
        TEXT(out, ahead->record.module, 0), ct_string_add(out, ") of step %lld\n", (long long)ahead->record.step);
    }
}

static ct_status print_log(flight_log *log, int count, last_turns *turns, ct_string *out) {
    CT_TRY(read_records(log));
    ct_string_add(out, "rank %d of %d, process %d: %lld operations\n", log->rank, log->ranks, log->pid, (long long)(log->next - 1));
    for (int64_t s = log->next - count; s < log->next; s++)
        if (record_of(log, s)) print_record(record_of(log, s), out);
    for (size_t i = 0; i < log->count; i++)
        if (record_of(log, log->records[i].sequence) == &log->records[i]) note_turn(turns, &log->records[i], log->rank);
    free(log->records);
    log->records = NULL;
    return CT_OK;
}

ct_status ct_flight_print(const char *folder, int count, ct_string *out) {
    flight_log *logs = NULL;
    last_turns turns = {0};
    int ranks = 0;
    ct_status status = list_logs(folder, &logs, &ranks);
    for (int i = 0; i < ranks && !status; i++) status = print_log(&logs[i], count, &turns, out);
    if (!status && ranks < logs[0].ranks) ct_string_add(out, "files of %d of %d ranks are here\n", ranks, logs[0].ranks);
    if (!status) print_behind(&turns, out);
    for (int i = 0; i < ranks; i++) free(logs[i].path);
    free(logs);
    free(turns.items);
    return status;
}
