// Thin wrappers over POSIX files whose errors say path and cause. No buffering layer: callers map, read whole or write whole.
#include "base/file.h"
#include "base/memory.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static ct_code code_of(int error) { return error == ENOENT || error == ENOTDIR ? CT_NOT_FOUND : CT_IO; }

static ct_status open_regular(const char *path, int *out_fd, size_t *out_size) {
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) CT_FAIL(code_of(errno), "cannot open %s: %s", path, strerror(errno));
    struct stat st;
    if (fstat(fd, &st) || !S_ISREG(st.st_mode)) {
        close(fd);
        CT_FAIL(CT_INVALID, "%s is not a regular file", path);
    }
    *out_fd = fd;
    *out_size = (size_t)st.st_size;
    return CT_OK;
}

ct_status ct_file_map_open(const char *path, ct_file_map *out_map) {
    int fd;
    size_t size;
    CT_TRY(open_regular(path, &fd, &size));
    void *bytes = size ? mmap(NULL, size, PROT_READ, MAP_SHARED, fd, 0) : NULL;
    int error = errno;
    close(fd);
    if (bytes == MAP_FAILED) CT_FAIL(CT_IO, "cannot map %s (%zu bytes): %s", path, size, strerror(error));
    *out_map = (ct_file_map){bytes, size};
    return CT_OK;
}

void ct_file_map_close(ct_file_map *map) {
    if (map->bytes) munmap((void *)map->bytes, map->size);
    *map = (ct_file_map){0};
}

ct_status ct_file_read(const char *path, size_t max_bytes, char **out_text, size_t *out_size) {
    int fd;
    size_t size;
    CT_TRY(open_regular(path, &fd, &size));
    if (max_bytes && size > max_bytes) {
        close(fd);
        CT_FAIL(CT_INVALID, "%s has %zu bytes; at most %zu are read here", path, size, max_bytes);
    }
    char *text = ct_malloc(size + 1);
    size_t done = 0;
    while (done < size) {
        ssize_t n = read(fd, text + done, size - done);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) break;
        done += (size_t)n;
    }
    int error = errno;
    close(fd);
    if (done < size) {
        free(text);
        CT_FAIL(CT_IO, "cannot read %s: %zu of %zu bytes came: %s", path, done, size, strerror(error));
    }
    text[size] = 0;
    *out_text = text;
    if (out_size) *out_size = size;
    return CT_OK;
}

static ct_status sync_folder_of(const char *path) {
    char *folder = ct_strdup(path), *slash = strrchr(folder, '/');
    if (slash) slash[slash == folder] = 0;
    int fd = open(slash ? folder : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    free(folder);
    if (fd < 0) return CT_OK; // a folder that can't be opened can't be synced; the rename stands
    fsync(fd);
    close(fd);
    return CT_OK;
}

static ct_status write_all(int fd, const char *path, const void *bytes, size_t size) {
    for (size_t done = 0; done < size;) {
        ssize_t n = write(fd, (const char *)bytes + done, size - done);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) CT_FAIL(CT_IO, "cannot write %s: %s", path, strerror(errno));
        done += (size_t)n;
    }
    if (fsync(fd)) CT_FAIL(CT_IO, "cannot write %s to its disk: %s", path, strerror(errno));
    return CT_OK;
}

ct_status ct_file_write_atomic(const char *path, const void *bytes, size_t size) {
    char *temporary = ct_format("%s.tmp", path);
    int fd = open(temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    ct_status status = CT_OK;
    if (fd < 0) {
        status = ct_error_make(code_of(errno), __FILE__, __LINE__, "cannot create %s: %s", temporary, strerror(errno));
    } else {
        status = write_all(fd, path, bytes, size);
        if (close(fd) && !status)
            status = ct_error_make(CT_IO, __FILE__, __LINE__, "cannot write %s: %s", path, strerror(errno));
        if (!status && rename(temporary, path))
            status = ct_error_make(CT_IO, __FILE__, __LINE__, "cannot rename %s: %s", temporary, strerror(errno));
        if (!status) status = sync_folder_of(path);
        else unlink(temporary);
    }
    free(temporary);
    return status;
}

ct_status ct_folder_make(const char *path) {
    CT_CHECK(*path, CT_INVALID, "a folder's path is empty");
    char *part = ct_strdup(path);
    ct_status status = CT_OK;
    for (char *p = part + 1; !status; p++) {
        if (*p && *p != '/') continue;
        char saved = *p;
        *p = 0;
        if (mkdir(part, 0755) && errno != EEXIST)
            status = ct_error_make(CT_IO, __FILE__, __LINE__, "cannot make the folder %s: %s", part, strerror(errno));
        else if (!saved && !ct_path_is_folder(part))
            status = ct_error_make(CT_IO, __FILE__, __LINE__, "%s is there and is not a folder", part);
        *p = saved;
        if (!saved) break;
    }
    free(part);
    return status;
}

static int remove_one(const char *path, const struct stat *st, int kind, struct FTW *walk) {
    (void)st, (void)kind, (void)walk;
    return remove(path);
}

ct_status ct_folder_remove(const char *path) {
    if (nftw(path, remove_one, 32, FTW_DEPTH | FTW_PHYS) && errno != ENOENT)
        CT_FAIL(CT_IO, "cannot remove %s: %s", path, strerror(errno));
    return CT_OK;
}

int ct_path_exists(const char *path) {
    struct stat st;
    return !stat(path, &st);
}

int ct_path_is_folder(const char *path) {
    struct stat st;
    return !stat(path, &st) && S_ISDIR(st.st_mode);
}
