// One mapping for ranks that are processes of one machine: a memfd that the first of them makes and fills with pages, and the others open through
// /proc. It has no name, so it is gone with its last user, however that ends.
#include "world.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { HUGE_PAGE = 2 << 20, COLLAPSE = 25 /* MADV_COLLAPSE, missing from older headers */ };

size_t ct_whole_pages(size_t bytes) { return (bytes + HUGE_PAGE - 1) & ~(size_t)(HUGE_PAGE - 1); }

static ct_status make_segment(size_t bytes, int ranks, int *out_fd) {
    CT_TRY(ct_check_room(bytes, ranks));
    int fd = memfd_create("ctitan", MFD_CLOEXEC);
    CT_CHECK(fd >= 0, CT_NO_MEMORY, "cannot make shared memory: %s", strerror(errno));
    int error = ftruncate(fd, (off_t)bytes) ? errno : posix_fallocate(fd, 0, (off_t)bytes);
    if (error) close(fd);
    CT_CHECK(!error, CT_NO_MEMORY, "%.2f GB of shared memory are wanted for %d ranks: %s", (double)bytes / 1e9, ranks, strerror(error));
    *out_fd = fd;
    return CT_OK;
}

static ct_status open_fd_of(int rank, int64_t pid, int64_t fd, int *out_fd) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%lld/fd/%lld", (long long)pid, (long long)fd);
    *out_fd = open(path, O_RDWR | O_CLOEXEC);
    CT_CHECK(*out_fd >= 0, CT_IO, "cannot open rank %d's shared memory, %s: %s", rank, path, strerror(errno));
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
    int64_t pid, fd; // of a segment's first rank; fd -1: it failed
    size_t bytes;
} segment_place;

ct_status ct_share_among(ct_comm *c, int first, int count, size_t bytes, void **out) {
    int fd = -1;
    ct_status mine = c->rank == first ? make_segment(bytes, count, &fd) : CT_OK;
    segment_place place = {getpid(), fd, bytes}, *all = ct_malloc(sizeof place * (size_t)c->size);
    ct_status met = c->backend->all_gather(c, &place, sizeof place, all, "sharing memory");
    for (int r = first; r < first + count && !met && !mine; r++)
        if (all[r].bytes != bytes)
            mine = ct_error_make(CT_INVALID, __FILE__, __LINE__, "rank %d asks for %zu bytes of shared memory, rank %d for %zu", c->rank, bytes, r, all[r].bytes);
    if (!met && !mine && c->rank != first && all[first].fd >= 0) mine = open_fd_of(first, all[first].pid, all[first].fd, &fd);
    if (!met && !mine && all[first].fd >= 0) mine = map_fd(fd, bytes, out);
    free(all);
    if (!met) met = ct_comm_agree(c, mine); // until all have it, the first keeps its file open
    if (fd >= 0) close(fd);
    return met;
}
