// Objects and arrays as callbacks over base's token reader. What stands in a checkpoint was written by a program, so whatever is wrong
// with its JSON is damage: CT_CORRUPT.
#include "pull.h"

#include <stdio.h>
#include <string.h>

static ct_status corrupt(ct_status status) {
    return status ? ct_error_make(CT_CORRUPT, __FILE__, __LINE__, "%s", ct_error_text(status)) : CT_OK;
}

void ct_pull_init(ct_pull *pull, const char *where, const char *text, size_t length, ct_arena *arena) {
    ct_json_init(&pull->json, where, 1, text, length);
    pull->arena = arena;
}
void ct_pull_deinit(ct_pull *pull) { ct_json_deinit(&pull->json); }

ct_status ct_pull_error(const ct_pull *pull, const char *format, ...) {
    char text[512];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return corrupt(ct_json_error(&pull->json, "%s", text));
}

char ct_pull_peek(ct_pull *pull) {
    const char *p = pull->json.at;
    while (p < pull->json.end && strchr(" \n\r\t", *p)) {
        if (!*p) return 0;
        p++;
    }
    return p < pull->json.end ? *p : 0;
}

ct_status ct_pull_members(ct_pull *pull, ct_pull_member_fn *member, void *context) {
    for (;;) {
        CT_TRY(corrupt(ct_json_next(&pull->json)));
        if (pull->json.kind == CT_JSON_OBJECT_END) return CT_OK;
        size_t bytes = pull->json.length;
        char *key = ct_arena_strndup(pull->arena, pull->json.string, bytes);
        CT_TRY(member(context, pull, key, bytes));
    }
}

ct_status ct_pull_object(ct_pull *pull, ct_pull_member_fn *member, void *context) {
    CT_TRY(corrupt(ct_json_expect(&pull->json, CT_JSON_OBJECT)));
    return ct_pull_members(pull, member, context);
}

ct_status ct_pull_array(ct_pull *pull, ct_pull_element_fn *element, void *context) {
    CT_TRY(corrupt(ct_json_expect(&pull->json, CT_JSON_ARRAY)));
    for (;;) {
        CT_TRY(corrupt(ct_json_next(&pull->json)));
        if (pull->json.kind == CT_JSON_ARRAY_END) return CT_OK;
        CT_TRY(element(context, pull));
    }
}

ct_status ct_pull_string(ct_pull *pull, char **out_text) {
    CT_TRY(corrupt(ct_json_expect(&pull->json, CT_JSON_STRING)));
    if (pull->json.length && memchr(pull->json.string, 0, pull->json.length)) return ct_pull_error(pull, "a zero character in a string");
    *out_text = ct_arena_strndup(pull->arena, pull->json.string, pull->json.length);
    return CT_OK;
}

ct_status ct_pull_int(ct_pull *pull, int64_t *out_value) { return corrupt(ct_json_expect_integer(&pull->json, out_value)); }
ct_status ct_pull_number(ct_pull *pull, double *out_value) { return corrupt(ct_json_expect_double(&pull->json, out_value)); }

ct_status ct_pull_bool(ct_pull *pull, int *out_value) {
    CT_TRY(corrupt(ct_json_next(&pull->json)));
    ct_json_kind kind = pull->json.kind;
    if (kind != CT_JSON_TRUE && kind != CT_JSON_FALSE) return ct_pull_error(pull, "found %s, wanted true or false", ct_json_kind_name(kind));
    *out_value = kind == CT_JSON_TRUE;
    return CT_OK;
}

typedef struct {
    int64_t *values;
    int max_count, count;
} int_list;

static ct_status add_int(void *context, ct_pull *pull) {
    int_list *list = context;
    if (list->count >= list->max_count) return ct_pull_error(pull, "more than %d numbers in a list", list->max_count);
    if (pull->json.kind != CT_JSON_NUMBER)
        return ct_pull_error(pull, "found %s, wanted a whole number", ct_json_kind_name(pull->json.kind));
    return corrupt(ct_json_integer(&pull->json, &list->values[list->count++]));
}

ct_status ct_pull_int_array(ct_pull *pull, int64_t *out_values, int max_count, int *out_count) {
    int_list list = {out_values, max_count, 0};
    CT_TRY(ct_pull_array(pull, add_int, &list));
    *out_count = list.count;
    return CT_OK;
}

ct_status ct_pull_skip(ct_pull *pull, const char **out_begin, const char **out_end) {
    ct_pull_peek(pull);
    const char *begin = pull->json.at;
    CT_TRY(corrupt(ct_json_skip(&pull->json)));
    if (!out_begin) return CT_OK;
    while (begin < pull->json.at && strchr(" \n\r\t", *begin)) begin++;
    *out_begin = begin, *out_end = pull->json.at;
    return CT_OK;
}

ct_status ct_pull_end(ct_pull *pull) { return corrupt(ct_json_expect(&pull->json, CT_JSON_END)); }
