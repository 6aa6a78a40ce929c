// From a source's path and format to a sorted list of files: folders, globs, and torchtitan's names for C4. Files whose names begin with
// a dot are passed over. Left out: anything that is not on a file system.
#include "files.h"
#include "base/file.h"
#include "base/memory.h"

#include <dirent.h>
#include <errno.h>
#include <glob.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { FOLDER_DEPTH_MAX = 64 };

static int ends_with(const char *text, const char *ending) {
    size_t n = strlen(text), m = strlen(ending);
    return n >= m && !strcmp(text + n - m, ending);
}

int files_is_compressed(const char *path) { return ends_with(path, ".gz") || ends_with(path, ".zst"); }

// 1 where the name, without .gz or .zst, ends in one of the endings (a list parted by spaces).
static int has_ending(const char *path, const char *endings) {
    char *plain = ct_strdup(path), *list = ct_strdup(endings), *rest = list, *ending;
    if (files_is_compressed(plain)) *strrchr(plain, '.') = 0;
    int found = 0;
    while (!found && (ending = strtok_r(rest, " ", &rest))) found = ends_with(plain, ending);
    free(plain);
    free(list);
    return found;
}

static const char json_endings[] = ".json .jsonl .ndjson";

static int is_of_format(const char *path, data_format format) {
    if (format == FORMAT_JSONL) return has_ending(path, json_endings);
    if (format == FORMAT_CORPUS) return has_ending(path, ".ctc");
    return !has_ending(path, ".ctc");
}

static data_format format_by_name(const char *path) {
    return has_ending(path, json_endings) ? FORMAT_JSONL : has_ending(path, ".ctc") ? FORMAT_CORPUS : FORMAT_TEXT;
}

static void add(data_files *files, char *path) {
    CT_GROW(files->paths, files->count, files->capacity);
    files->paths[files->count++] = path;
}

static int by_bytes(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

static ct_status walk(const char *folder, int recursive, int depth, data_files *files) {
    CT_CHECK(depth < FOLDER_DEPTH_MAX, CT_INVALID, "%s: more than %d folders inside one another", folder, FOLDER_DEPTH_MAX);
    DIR *dir = opendir(folder);
    CT_CHECK(dir, CT_IO, "cannot read the folder %s: %s", folder, strerror(errno));
    ct_status status = CT_OK;
    size_t n = strlen(folder);
    for (struct dirent *e; !status && (e = readdir(dir));) {
        if (e->d_name[0] == '.') continue;
        char *path = ct_format("%s%s%s", folder, n && folder[n - 1] == '/' ? "" : "/", e->d_name);
        if (!ct_path_is_folder(path)) {
            add(files, path);
            continue;
        }
        if (recursive) status = walk(path, recursive, depth + 1, files);
        free(path);
    }
    closedir(dir);
    return status;
}

static ct_status expand_glob(const char *pattern, int recursive, data_files *files) {
    glob_t found;
    int code = glob(pattern, GLOB_NOSORT | GLOB_BRACE | GLOB_TILDE, NULL, &found);
    if (code == GLOB_NOMATCH) CT_FAIL(CT_NOT_FOUND, "no file is called, and none matches, %s", pattern);
    CT_CHECK(!code, CT_IO, "cannot look for files that match %s", pattern);
    ct_status status = CT_OK;
    for (size_t i = 0; i < found.gl_pathc && !status; i++) {
        if (!ct_path_is_folder(found.gl_pathv[i])) add(files, ct_strdup(found.gl_pathv[i]));
        else if (recursive) status = walk(found.gl_pathv[i], 1, 0, files);
    }
    globfree(&found);
    return status;
}

static void sort(data_files *files) {
    if (files->count) qsort(files->paths, (size_t)files->count, sizeof *files->paths, by_bytes);
}

static void keep_format(data_files *files) {
    int kept = 0;
    for (int i = 0; i < files->count; i++) {
        if (is_of_format(files->paths[i], files->format)) files->paths[kept++] = files->paths[i];
        else free(files->paths[i]);
    }
    files->count = kept;
}

// ---- C4 as torchtitan names it ----
static void find_split(const char *path, const char *split, data_files *files) {
    for (int i = 0; i < 2 && !files->count; i++) {
        char *pattern = i ? ct_format("%s/c4-%s.*", path, split) : ct_format("%s/en/c4-%s.*", path, split);
        glob_t found;
        if (!glob(pattern, GLOB_NOSORT, NULL, &found)) {
            for (size_t j = 0; j < found.gl_pathc; j++) add(files, ct_strdup(found.gl_pathv[j]));
            globfree(&found);
        }
        free(pattern);
    }
}

static ct_status missing(const char *name, const char *path, const char *what) {
    char here[4096];
    int is_full = path[0] == '/' || !getcwd(here, sizeof here);
    CT_FAIL(CT_NOT_FOUND, "the data set %s: looked in %s%s%s, %s; dataset_path says where else", name, is_full ? "" : here,
            is_full ? "" : "/", path, what);
}

// split: the files' name for a part of C4; NULL: c4_test, all JSON files.
static ct_status find_named(const char *name, const char *split, const char *path, data_files *files) {
    if (!path || !*path) {
        CT_CHECK(!split, CT_INVALID, "the data set %s needs a dataset_path: a folder of its files (nothing is downloaded)", name);
        path = "tests/assets/c4_test"; // torchtitan's
    }
    files->format = FORMAT_JSONL;
    if (!ct_path_exists(path)) return missing(name, path, "which is not there");
    if (!ct_path_is_folder(path)) {
        add(files, ct_strdup(path));
        return CT_OK;
    }
    if (split) find_split(path, split, files);
    if (!files->count) CT_TRY(walk(path, 0, 0, files));
    keep_format(files);
    return files->count ? CT_OK : missing(name, path, "where no JSON file is");
}

// ---- the rest ----
static ct_status find_plain(const ct_data_source *source, data_files *files) {
    const char *path = source->path, *format = source->format;
    CT_CHECK(path && *path, CT_INVALID, "a source of the format %s needs a path", format && *format ? format : "(none)");
    int one = ct_path_exists(path) && !ct_path_is_folder(path);
    if (one) add(files, ct_strdup(path));
    else if (ct_path_is_folder(path)) CT_TRY(walk(path, source->recursive, 0, files));
    else CT_TRY(expand_glob(path, source->recursive, files));
    sort(files); // the first file's name decides where no format is given
    if (!format || !*format) files->format = files->count ? format_by_name(files->paths[0]) : FORMAT_TEXT;
    else if (!strcmp(format, "text")) files->format = FORMAT_TEXT;
    else if (!strcmp(format, "jsonl")) files->format = FORMAT_JSONL;
    else if (!strcmp(format, "corpus")) files->format = FORMAT_CORPUS;
    else
        CT_FAIL(CT_INVALID, "unknown format '%s'; known are text, jsonl, corpus, c4_test, c4_validation, c4", format);
    if (ct_path_is_folder(path)) keep_format(files);
    return CT_OK;
}

static const char *const format_names[] = {"text", "jsonl", "corpus"};

ct_status files_find(const ct_data_source *source, data_files *files) {
    *files = (data_files){0};
    const char *format = source->format ? source->format : "";
    if (source->reader.open) { // its path names no file, but stands in messages
        add(files, ct_strdup(source->path ? source->path : ""));
        return CT_OK;
    }
    if (!strcmp(format, "c4_test")) CT_TRY(find_named(format, NULL, source->path, files));
    else if (!strcmp(format, "c4_validation")) CT_TRY(find_named(format, "validation", source->path, files));
    else if (!strcmp(format, "c4")) CT_TRY(find_named(format, "train", source->path, files));
    else CT_TRY(find_plain(source, files));
    sort(files);
    CT_CHECK(files->count, CT_NOT_FOUND, "%s has no file of the format %s", source->path, format_names[files->format]);
    return CT_OK;
}

void files_deinit(data_files *files) {
    for (int i = 0; i < files->count; i++) free(files->paths[i]);
    free(files->paths);
    *files = (data_files){0};
}
