// A rename is the only moment at which a checkpoint comes to be or ceases to be. A checkpoint of the same step is exchanged with the new one in
// one call where the file system can (renameat2); where it can't, the old one stands aside as step-N.old for the moment between two renames,
// and ct_checkpoint_clean puts it back if the process dies just then.
#include "folder.h"
#include "base/file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

char *ct_step_path(const char *root, int64_t step, const char *suffix) {
    return ct_format("%s/step-%lld%s", root, (long long)step, suffix);
}

int ct_step_of_name(const char *name, const char *suffix, int64_t *out_step) {
    char *end, expected[128];
    if (strncmp(name, "step-", 5) || name[5] < '0' || name[5] > '9') return 0;
    errno = 0;
    long long step = strtoll(name + 5, &end, 10);
    if (errno) return 0;
    snprintf(expected, sizeof expected, "step-%lld%s", step, suffix); // no leading zeros
    if (strcmp(name, expected)) return 0;
    *out_step = step;
    return 1;
}

ct_status ct_folder_sync(const char *path) {
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    CT_CHECK(fd >= 0, CT_IO, "cannot open the folder %s: %s", path, strerror(errno));
    int failed = fsync(fd) && errno != EINVAL, error = errno; // EINVAL: the file system does not sync folders
    close(fd);
    CT_CHECK(!failed, CT_IO, "cannot write the folder %s to its disk: %s", path, strerror(error));
    return CT_OK;
}

static int is_ours(const char *name) {
    size_t n = strlen(name), tail = strlen(".safetensors");
    return !strcmp(name, CT_MANIFEST_NAME) || !strcmp(name, CT_MANIFEST_NAME ".tmp") ||
           (!strncmp(name, "shard-", 6) && n > tail && !strcmp(name + n - tail, ".safetensors"));
}

static ct_status remove_ours(const char *path) {
    DIR *dir = opendir(path);
    if (!dir && errno == ENOENT) return CT_OK;
    CT_CHECK(dir, CT_IO, "cannot open the folder %s: %s", path, strerror(errno));
    unlinkat(dirfd(dir), CT_MANIFEST_NAME, 0); // first, so that what is left is no checkpoint
    for (struct dirent *entry; (entry = readdir(dir));)
        if (is_ours(entry->d_name)) unlinkat(dirfd(dir), entry->d_name, 0);
    closedir(dir);
    int is_left = rmdir(path) && errno != ENOTEMPTY && errno != EEXIST; // what others put there stays, and stops nobody
    CT_CHECK(!is_left, CT_IO, "cannot remove %s: %s", path, strerror(errno));
    return CT_OK;
}

static ct_status clean(const char *root, int64_t step, const char *suffix) {
    char *path = ct_step_path(root, step, suffix);
    ct_status status = remove_ours(path);
    free(path);
    return status;
}

ct_status ct_step_folder_clean(const char *root, int64_t step) { return clean(root, step, ".tmp"); }

static ct_status rename_folder(const char *from, const char *to) {
    CT_CHECK(!rename(from, to), CT_IO, "cannot rename %s to %s: %s", from, to, strerror(errno));
    return CT_OK;
}

// Returns what it left to be removed: the suffix under which the replaced checkpoint now stands.
static ct_status replace(const char *fresh, const char *place, const char *aside, const char **out_leftover) {
    *out_leftover = NULL;
    if (!ct_path_exists(place)) return rename_folder(fresh, place);
    if (!renameat2(AT_FDCWD, fresh, AT_FDCWD, place, RENAME_EXCHANGE)) return *out_leftover = ".tmp", CT_OK;
    CT_CHECK(errno == EINVAL || errno == ENOSYS || errno == EOPNOTSUPP, CT_IO, "cannot exchange %s and %s: %s", fresh, place,
             strerror(errno));
    CT_TRY(rename_folder(place, aside));
    ct_status status = rename_folder(fresh, place);
    if (status) rename(aside, place);
    else *out_leftover = ".old";
    return status;
}

ct_status ct_step_folder_commit(const char *root, int64_t step) {
    char *fresh = ct_step_path(root, step, ".tmp"), *place = ct_step_path(root, step, ""), *aside = ct_step_path(root, step, ".old");
    const char *leftover;
    ct_status status = replace(fresh, place, aside, &leftover);
    free(fresh), free(place), free(aside);
    CT_TRY(status);
    CT_TRY(ct_folder_sync(root));
    if (leftover) clean(root, step, leftover); // what fails here is tried again by ct_checkpoint_clean
    return CT_OK;
}

ct_status ct_step_folder_discard(const char *root, int64_t step) {
    CT_TRY(ct_step_folder_clean(root, step));
    char *place = ct_step_path(root, step, ""), *leaving = ct_step_path(root, step, ".tmp");
    ct_status status = rename_folder(place, leaving);
    free(place), free(leaving);
    return status ? status : ct_step_folder_clean(root, step);
}

static int by_value(const void *a, const void *b) {
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return x < y ? -1 : x > y;
}

ct_status ct_steps_in(const char *root, const char *suffix, int64_t **out_steps, int *out_count) {
    int64_t *steps = NULL, step;
    int count = 0, capacity = 0;
    DIR *dir = opendir(root);
    CT_CHECK(dir || errno == ENOENT, CT_IO, "cannot open the folder %s: %s", root, strerror(errno));
    for (struct dirent *entry; dir && (entry = readdir(dir));)
        if (ct_step_of_name(entry->d_name, suffix, &step)) {
            CT_GROW(steps, count, capacity);
            steps[count++] = step;
        }
    if (dir) closedir(dir);
    if (count) qsort(steps, (size_t)count, sizeof *steps, by_value);
    *out_steps = steps;
    *out_count = count;
    return CT_OK;
}

static ct_status clean_all(const char *root, const char *suffix) {
    int64_t *steps;
    int count;
    CT_TRY(ct_steps_in(root, suffix, &steps, &count));
    ct_status status = CT_OK;
    for (int i = 0; i < count; i++) {
        char *place = ct_step_path(root, steps[i], ""), *aside = ct_step_path(root, steps[i], suffix);
        ct_status one = !strcmp(suffix, ".old") && !ct_path_exists(place) ? rename_folder(aside, place) : remove_ours(aside);
        if (!status) status = one;
        free(place), free(aside);
    }
    free(steps);
    return status;
}

ct_status ct_checkpoint_clean(const char *root) {
    ct_status old = clean_all(root, ".old"), fresh = clean_all(root, ".tmp");
    return old ? old : fresh;
}
