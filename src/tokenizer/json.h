// Reading JSON objects field by field, with an error that names the field.
#pragma once
#include "base/status.h"
#include <cjson/cJSON.h>

// Reads and parses a file. Caller deletes. As cJSON's texts end at a NUL, \u0000 in the file is read as U+FFFF;
// *out_nuls (may be NULL) says whether there was one, and ct_json_restore_nuls turns them back: in place, returning
// the new length.
ct_status ct_json_read(const char *path, cJSON **out_json, int *out_nuls);
size_t ct_json_restore_nuls(char *text, int nuls);
// A field that is there and not null, or NULL.
const cJSON *ct_json_field(const cJSON *object, const char *name);
// A text field: NULL where it is absent or null. Errors: another type.
ct_status ct_json_text(const cJSON *object, const char *name, const char **out_text);
// A truth value: the default where it is absent or null. Errors: another type.
ct_status ct_json_flag(const cJSON *object, const char *name, int otherwise, int *out_flag);
// A whole number from 0: the default where it is absent or null.
ct_status ct_json_count(const cJSON *object, const char *name, int otherwise, int *out_count);
