// cJSON with errors that say where. Its texts end at a NUL, yet vocabularies do hold that character: it travels as
// U+FFFF.
#include "json.h"
#include "base/file.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static int line_of(const char *text, const char *where) {
    int line = 1;
    for (const char *p = text; p < where; p++) line += *p == '\n';
    return line;
}

// Writes \uffff over every \u0000.
static int hide_nuls(char *text, size_t size) {
    int found = 0;
    for (char *p = text, *end = text + size; (p = memchr(p, '\\', (size_t)(end - p))); p += 2) {
        if (end - p < 6) break;
        if (memcmp(p, "\\u0000", 6)) continue;
        memcpy(p + 2, "ffff", 4);
        found = 1;
    }
    return found;
}

size_t ct_json_restore_nuls(char *text, int nuls) {
    size_t length = strlen(text);
    char *hit = text;
    while (nuls && (hit = memmem(hit, length - (size_t)(hit - text), "\xef\xbf\xbf", 3))) {
        *hit++ = 0;
        memmove(hit, hit + 2, length - (size_t)(hit - text) - 1);
        length -= 2;
    }
    return length;
}

ct_status ct_json_read(const char *path, cJSON **out_json, int *out_nuls) {
    char *text;
    size_t size;
    CT_TRY(ct_file_read(path, (size_t)1 << 30, &text, &size));
    int nuls = hide_nuls(text, size);
    if (out_nuls) *out_nuls = nuls;
    const char *end = NULL;
    cJSON *json = cJSON_ParseWithLengthOpts(text, size + 1, &end, 1);
    ct_status status = CT_OK;
    if (!json)
        status = ct_error_make(CT_CORRUPT, __FILE__, __LINE__, "%s:%d: not valid JSON (at byte %zu of %zu)", path,
                               line_of(text, end ? end : text), end ? (size_t)(end - text) : 0, size);
    else
        *out_json = json;
    free(text);
    return status;
}

const cJSON *ct_json_field(const cJSON *object, const char *name) {
    const cJSON *field = cJSON_GetObjectItemCaseSensitive(object, name);
    return field && !cJSON_IsNull(field) ? field : NULL;
}

ct_status ct_json_text(const cJSON *object, const char *name, const char **out_text) {
    const cJSON *field = ct_json_field(object, name);
    CT_CHECK(!field || cJSON_IsString(field), CT_INVALID, "\"%s\" is not a text", name);
    *out_text = field ? field->valuestring : NULL;
    return CT_OK;
}

ct_status ct_json_flag(const cJSON *object, const char *name, int otherwise, int *out_flag) {
    const cJSON *field = ct_json_field(object, name);
    CT_CHECK(!field || cJSON_IsBool(field), CT_INVALID, "\"%s\" is neither true nor false", name);
    *out_flag = field ? cJSON_IsTrue(field) : otherwise;
    return CT_OK;
}

ct_status ct_json_count(const cJSON *object, const char *name, int otherwise, int *out_count) {
    const cJSON *field = ct_json_field(object, name);
    CT_CHECK(!field || (cJSON_IsNumber(field) && field->valuedouble >= 0 && field->valuedouble < 1 << 30 &&
                        floor(field->valuedouble) == field->valuedouble),
             CT_INVALID, "\"%s\" is not a whole number from 0", name);
    *out_count = field ? (int)field->valuedouble : otherwise;
    return CT_OK;
}
