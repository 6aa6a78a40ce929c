// The files of a Hugging Face folder: those that the index names, or model.safetensors, or whatever .safetensors there are.
#include "base/file.h"
#include "llama.h"
#include "pull.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

void ct_safetensors_list_close(ct_safetensors_list *list) {
    for (int i = 0; i < list->count; i++) ct_safetensors_close(&list->items[i]);
    free(list->items);
    *list = (ct_safetensors_list){0};
}

static ct_status add_file(ct_safetensors_list *files, const char *path) {
    CT_GROW(files->items, files->count, files->capacity);
    CT_TRY(ct_safetensors_open(path, &files->items[files->count]));
    files->count++;
    return CT_OK;
}

typedef struct {
    ct_arena *arena;
    ct_safetensors_list *files;
    const char *folder;
    const char **names;
    int count, capacity;
} name_list;

static int by_text(const void *a, const void *b) { return strcmp(*(const char *const *)a, *(const char *const *)b); }

static ct_status add_files(name_list *list) {
    if (list->count) qsort(list->names, (size_t)list->count, sizeof *list->names, by_text);
    for (int i = 0; i < list->count; i++)
        if (!i || strcmp(list->names[i - 1], list->names[i]))
            CT_TRY(add_file(list->files, ct_arena_format(list->arena, "%s/%s", list->folder, list->names[i])));
    return CT_OK;
}

static ct_status map_member(void *context, ct_pull *pull, const char *key, size_t key_bytes) {
    (void)key, (void)key_bytes;
    name_list *list = context;
    char *name;
    CT_TRY(ct_pull_string(pull, &name));
    if (!*name || *name == '.' || strchr(name, '/')) return ct_pull_error(pull, "'%.64s' is no name of a file in the folder", name);
    if (list->count && !strcmp(list->names[list->count - 1], name)) return CT_OK;
    CT_GROW(list->names, list->count, list->capacity);
    list->names[list->count++] = name;
    return CT_OK;
}

static ct_status index_member(void *context, ct_pull *pull, const char *key, size_t key_bytes) {
    (void)key_bytes;
    return strcmp(key, "weight_map") ? ct_pull_skip(pull, NULL, NULL) : ct_pull_object(pull, map_member, context);
}

static ct_status list_from_index(name_list *list, const char *path) {
    char *json;
    size_t size;
    CT_TRY(ct_file_read(path, 1u << 28, &json, &size));
    ct_pull pull;
    ct_pull_init(&pull, path, json, size, list->arena);
    ct_status status = ct_pull_object(&pull, index_member, list);
    if (!status) status = ct_pull_end(&pull);
    if (!status && !list->count) status = ct_error_make(CT_CORRUPT, __FILE__, __LINE__, "%s names no file in its weight_map", path);
    ct_pull_deinit(&pull);
    free(json);
    return status;
}

static ct_status list_folder(name_list *list) {
    DIR *dir = opendir(list->folder);
    CT_CHECK(dir, CT_IO, "cannot open the folder %s: %s", list->folder, strerror(errno));
    for (struct dirent *entry; (entry = readdir(dir));) {
        size_t n = strlen(entry->d_name);
        if (entry->d_name[0] == '.' || n < 12 || strcmp(entry->d_name + n - 12, ".safetensors")) continue;
        CT_GROW(list->names, list->count, list->capacity);
        list->names[list->count++] = ct_arena_strdup(list->arena, entry->d_name);
    }
    closedir(dir);
    CT_CHECK(list->count, CT_NOT_FOUND, "%s has no .safetensors file", list->folder);
    return CT_OK;
}

ct_status ct_hf_files_open(ct_arena *arena, const char *path, ct_safetensors_list *files) {
    if (!ct_path_is_folder(path)) return add_file(files, path);
    name_list list = {.arena = arena, .files = files, .folder = path};
    const char *index = ct_arena_format(arena, "%s/model.safetensors.index.json", path);
    const char *single = ct_arena_format(arena, "%s/model.safetensors", path);
    ct_status status;
    if (ct_path_exists(index)) status = list_from_index(&list, index);
    else if (ct_path_exists(single)) status = add_file(files, single);
    else status = list_folder(&list);
    if (!status) status = add_files(&list);
    free(list.names);
    return status;
}
