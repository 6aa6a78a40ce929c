// The files that a source's path stands for.
#pragma once
#include "base/status.h"
#include "data/data.h"

typedef enum { FORMAT_TEXT, FORMAT_JSONL, FORMAT_CORPUS } data_format;

typedef struct {
    char **paths; // in the order in which they are read
    int count, capacity;
    data_format format;
} data_files;

// Finds the files of a source and its format. Caller calls files_deinit, also after an error.
ct_status files_find(const ct_data_source *source, data_files *files);
void files_deinit(data_files *files);

// 1 where the name ends in .gz or .zst.
int files_is_compressed(const char *path);
