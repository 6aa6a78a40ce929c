// Which checkpoints there are, which of them are whole, and which to keep. Whole means: the manifest reads, and the files it names have their
// sizes; checksums are for loading and verifying.
#include "base/file.h"
#include "folder.h"
#include "manifest.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>

static ct_status check_files(const char *path, const ct_manifest *m, size_t *bytes) {
    for (int i = 0; i < m->file_count; i++) {
        char *file = ct_format("%s/%s", path, m->files[i].name);
        struct stat st;
        int failed = stat(file, &st), error = errno;
        ct_status status = CT_OK;
        if (failed) status = ct_error_make(CT_CORRUPT, __FILE__, __LINE__, "%s: %s", file, strerror(error));
        else if ((size_t)st.st_size != m->files[i].bytes)
            status = ct_error_make(CT_CORRUPT, __FILE__, __LINE__, "%s has %lld bytes, the manifest says %zu", file, (long long)st.st_size,
                                   m->files[i].bytes);
        free(file);
        CT_TRY(status);
        *bytes += m->files[i].bytes;
    }
    return CT_OK;
}

static ct_status inspect(const char *path, int64_t step, const char *manifest_path, ct_checkpoint_info *info) {
    struct stat st;
    CT_CHECK(!stat(manifest_path, &st), CT_CORRUPT, "%s has no " CT_MANIFEST_NAME ": it was not finished, or is no checkpoint of ctitan's",
             path);
    info->time_s = st.st_mtime;
    info->bytes = (size_t)st.st_size;
    ct_manifest m;
    CT_TRY(ct_manifest_read(manifest_path, &m));
    ct_status status = CT_OK;
    if (m.step != step)
        status = ct_error_make(CT_CORRUPT, __FILE__, __LINE__, "%s is of step %lld", manifest_path, (long long)m.step);
    if (!status) status = check_files(path, &m, &info->bytes);
    ct_manifest_deinit(&m);
    return status;
}

static ct_checkpoint_info info_of(const char *root, int64_t step) {
    ct_checkpoint_info info = {.step = step, .path = ct_step_path(root, step, "")};
    char *manifest_path = ct_format("%s/" CT_MANIFEST_NAME, info.path);
    ct_status status = inspect(info.path, step, manifest_path, &info);
    info.whole = !status;
    info.why = status ? ct_strdup(ct_error_text(status)) : NULL;
    free(manifest_path);
    return info;
}

static void info_deinit(ct_checkpoint_info *info) { free(info->path), free(info->why); }

ct_status ct_checkpoint_list(const char *root, ct_checkpoint_info **out_infos, int *out_count) {
    int64_t *steps;
    int count;
    CT_TRY(ct_steps_in(root, "", &steps, &count));
    ct_checkpoint_info *infos = ct_calloc((size_t)count, sizeof *infos);
    for (int i = 0; i < count; i++) infos[i] = info_of(root, steps[i]);
    free(steps);
    *out_infos = infos;
    *out_count = count;
    return CT_OK;
}

void ct_checkpoint_list_free(ct_checkpoint_info *infos, int count) {
    for (int i = 0; i < count; i++) info_deinit(&infos[i]);
    free(infos);
}

// ---- finding ----
static ct_status find_step(const char *root, int64_t step, char **out_path) {
    ct_checkpoint_info info = info_of(root, step);
    ct_status status = CT_OK;
    if (!ct_path_is_folder(info.path))
        status = ct_error_make(CT_NOT_FOUND, __FILE__, __LINE__, "there is no checkpoint of step %lld in %s", (long long)step, root);
    else if (!info.whole)
        status = ct_error_make(CT_CORRUPT, __FILE__, __LINE__, "the checkpoint of step %lld is not whole: %s", (long long)step, info.why);
    else *out_path = ct_strdup(info.path);
    info_deinit(&info);
    return status;
}

ct_status ct_checkpoint_find_before(const char *root, int64_t before, ct_warn_fn *warn, void *context, char **out_path,
                                    int64_t *out_step) {
    int64_t *steps;
    int count;
    CT_TRY(ct_steps_in(root, "", &steps, &count));
    *out_path = NULL;
    for (int i = count - 1; i >= 0 && !*out_path; i--) {
        if (steps[i] >= before) continue;
        ct_checkpoint_info info = info_of(root, steps[i]);
        if (info.whole) *out_path = ct_strdup(info.path), *out_step = steps[i];
        else if (warn) warn(context, info.why);
        info_deinit(&info);
    }
    free(steps);
    return CT_OK;
}

ct_status ct_checkpoint_find(const char *root, int64_t step, ct_warn_fn *warn, void *context, char **out_path) {
    if (step >= 0) return find_step(root, step, out_path);
    return ct_checkpoint_find_before(root, INT64_MAX, warn, context, out_path, &step);
}

// ---- keeping ----
ct_status ct_checkpoint_prune(const char *root, int64_t keep_latest_k, int64_t keep_step) {
    if (keep_latest_k <= 0) return CT_OK;
    ct_checkpoint_info *infos;
    int count;
    CT_TRY(ct_checkpoint_list(root, &infos, &count));
    ct_status status = CT_OK;
    int64_t kept = 0;
    for (int i = count - 1; i >= 0; i--) {
        if (!infos[i].whole || kept++ < keep_latest_k || infos[i].step == keep_step) continue;
        ct_status one = ct_step_folder_discard(root, infos[i].step);
        if (!status) status = one;
    }
    ct_checkpoint_list_free(infos, count);
    return status;
}
