// Files: mapped for reading, read whole, written atomically. Every error names the path and what the system said.
#pragma once
#include "base/status.h"
#include <stddef.h>

typedef struct {
    const unsigned char *bytes; // NULL where size is 0
    size_t size;
} ct_file_map;

// Maps a regular file read-only. An empty file gives size 0. Caller unmaps.
ct_status ct_file_map_open(const char *path, ct_file_map *out_map);
void ct_file_map_close(ct_file_map *map);

// Reads a file of at most max_bytes (0: any) into a NUL-terminated heap buffer; caller frees.
ct_status ct_file_read(const char *path, size_t max_bytes, char **out_text, size_t *out_size);

// Writes path.tmp, fsyncs it, renames it to path and fsyncs the folder: path holds either what it held or all of the new bytes.
ct_status ct_file_write_atomic(const char *path, const void *bytes, size_t size);

// Makes a folder and its parents.
ct_status ct_folder_make(const char *path);

// Removes a folder and all in it; one that is not there is success.
ct_status ct_folder_remove(const char *path);

int ct_path_exists(const char *path);
int ct_path_is_folder(const char *path);
