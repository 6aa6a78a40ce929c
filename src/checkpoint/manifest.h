// manifest.json in memory: which boxes of which tensors lie in which files.
#pragma once
#include "checkpoint/safetensors.h"
#include "pull.h"

typedef struct {
    int file; // index into files
    const char *key;
    ct_box box;
    ct_checksum checksum; // of its bytes
} ct_manifest_piece;

typedef struct {
    const char *name;
    ct_dtype dtype;
    int dims;
    int64_t shape[CT_TENSOR_DIMS];
    int piece_count, piece_capacity;
    ct_manifest_piece *pieces;
} ct_manifest_tensor;

typedef struct {
    const char *name; // of a file in the checkpoint's folder
    size_t bytes;
    ct_checksum checksum; // of all its bytes
} ct_manifest_file;

// Zero-initialise; deinit frees. Strings live in the arena.
typedef struct {
    ct_arena arena;
    int64_t step;
    const char *state; // JSON text
    int file_count, file_capacity, tensor_count, tensor_capacity;
    ct_manifest_file *files;
    ct_manifest_tensor *tensors; // by name, once checked
} ct_manifest;

void ct_manifest_deinit(ct_manifest *manifest);

// Reads path, checks its own checksum, its sense, and that the pieces cover every tensor once. CT_NOT_FOUND, CT_IO, CT_CORRUPT.
ct_status ct_manifest_read(const char *path, ct_manifest *out_manifest);

// The same from text without the checksum: what the fuzzer feeds.
ct_status ct_manifest_parse(const char *path, const char *json, size_t json_bytes, ct_manifest *manifest);

// Adds a part (an object of "files" and "tensors") to those already in.
ct_status ct_manifest_add_part(const char *where, const char *json, size_t json_bytes, ct_manifest *manifest);

// Sorts tensors by name and checks that their pieces cover each once.
ct_status ct_manifest_check(const char *where, ct_manifest *manifest);

void ct_manifest_print_part(const ct_manifest *manifest, ct_string *out_text); // "{…}" with "files" and "tensors"
void ct_manifest_print(const ct_manifest *manifest, ct_string *out_text);      // the whole file, its checksum included

const ct_manifest_tensor *ct_manifest_find(const ct_manifest *manifest, const char *name); // NULL: not there
size_t ct_manifest_piece_bytes(const ct_manifest_tensor *tensor, const ct_manifest_piece *piece);
