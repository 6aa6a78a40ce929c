// The parts of tokenizer.json around its model; each field may be NULL (absent). See load_json_parts.c.
#pragma once
#include "core.h"
#include "json.h"

ct_status ct_load_normalizer(ct_tokenizer *tokenizer, const cJSON *json);
ct_status ct_load_splitter(ct_tokenizer *tokenizer, const cJSON *json);
ct_status ct_load_decoder(ct_tokenizer *tokenizer, const cJSON *json);
ct_status ct_load_template(ct_tokenizer *tokenizer, const cJSON *json);

// Adds a merge of two tokens of the vocabulary; rank is its place in the list.
ct_status ct_load_merge(ct_tokenizer *tokenizer, const char *left, size_t left_length, const char *right,
                        size_t right_length, int rank);
