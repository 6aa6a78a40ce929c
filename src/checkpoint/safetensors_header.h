// The JSON header of a safetensors file, apart from the file: what the fuzzer feeds.
#pragma once
#include "checkpoint/safetensors.h"

// Checks and reads a header whose data section has data_bytes bytes. Entries come sorted by name and live in arena.
ct_status ct_safetensors_header_parse(ct_arena *arena, const char *path, const char *json, size_t json_bytes, size_t data_bytes,
                                      ct_safetensors_entry **out_entries, int *out_count);

// Product of the extents; -1 where one is negative or the product passes 2^62.
int64_t ct_extents_product(const int64_t *extents, int dims);

// "[2, 3]", in a buffer of CT_SHAPE_TEXT bytes.
enum { CT_SHAPE_TEXT = 200 };
const char *ct_shape_text(const int64_t *extents, int dims, char *buffer);
