// What import and export of Llama weights share: names in both worlds, and the order of rows.
#pragma once
#include "checkpoint/safetensors.h"
#include "checkpoint/weights.h"

typedef struct {
    ct_named_tensor tensor; // torchtitan's name; data NULL
    const char *hf_name;
    int64_t head_rows; // rows a head, where rows are in rotary order; else 0
} ct_llama_tensor;

int ct_llama_hf_tensors(ct_arena *arena, const ct_llama_shape *shape, ct_llama_tensor **out_tensors);

// The row of a Hugging Face q or k projection that is torchtitan's row: within a head, pair j is rows 2j, 2j + 1 here, and rows j, j + half
// there.
static inline int64_t ct_llama_hf_row(int64_t row, int64_t head_rows) {
    int64_t in_head = row % head_rows;
    return row - in_head + in_head % 2 * (head_rows / 2) + in_head / 2;
}

ct_status ct_llama_shape_check(const char *where, const ct_llama_shape *shape);

// config.json to a shape (what it does not say stays 0; what ctitan's Llama has not is CT_UNSUPPORTED), and back.
ct_status ct_hf_config_parse(const char *path, const char *json, size_t json_bytes, ct_llama_shape *out_shape);
void ct_hf_config_print(const ct_llama_shape *shape, const ct_hf_export_options *options, ct_string *out_text);

typedef struct {
    ct_safetensors *items;
    int count, capacity;
} ct_safetensors_list;

// Opens the files of a Hugging Face folder, or one file, into a zeroed list. Caller closes the list, also after an error. Names live in
// arena.
ct_status ct_hf_files_open(ct_arena *arena, const char *path, ct_safetensors_list *files);
void ct_safetensors_list_close(ct_safetensors_list *list);

// A llama2.c file seen as a safetensors one: entries with torchtitan's names over its arrays. Caller closes it as one.
ct_status ct_llama2c_open(const char *path, ct_safetensors *out_file, ct_llama_shape *out_shape);

void ct_print_real(double value, ct_string *out_text); // the shortest digits that give it back, with a point or exponent
