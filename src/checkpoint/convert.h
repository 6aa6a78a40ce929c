// Element types of files to element types in memory and back.
#pragma once
#include "checkpoint/safetensors.h"

// 1 where ct_convert_in can: floats to floats, integers to themselves.
int ct_convert_is_possible(ct_stored_type from, ct_dtype to);
void ct_convert_in(ct_dtype to, void *out, ct_stored_type from, const void *in, int64_t elems);

uint16_t ct_f16_from_f32(float x); // nearest even; beyond the range: infinite
float ct_f32_from_f16(uint16_t h);
