// Errors in a per-thread ring: made without allocating, never freed, overwritten after 16 more.
#include "base/status.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RING = 16, TEXT = 2048 };

struct ct_error {
    ct_code code;
    int notes;
    size_t length;
    char text[TEXT];
};

static _Thread_local ct_error ring[RING];
static _Thread_local unsigned ring_next;

static ct_error *next_error(ct_code code) {
    ct_error *error = &ring[ring_next++ % RING];
    error->code = code;
    error->notes = 0;
    error->length = 0;
    error->text[0] = 0;
    return error;
}

static void append(ct_error *error, const char *format, va_list args) {
    int n = vsnprintf(error->text + error->length, TEXT - error->length, format, args);
    if (n > 0) error->length += (size_t)n;
    if (error->length >= TEXT) error->length = TEXT - 1;
}

static void append_text(ct_error *error, const char *text) {
    size_t n = strlen(text);
    if (error->length + n >= TEXT) return;
    memcpy(error->text + error->length, text, n + 1);
    error->length += n;
}

ct_status ct_error_make(ct_code code, const char *file, int line, const char *format, ...) {
    (void)file, (void)line;
    ct_error *error = next_error(code);
    va_list args;
    va_start(args, format);
    append(error, format, args);
    va_end(args);
    return error;
}

ct_status ct_error_note(ct_status status, const char *format, ...) {
    ct_error *error = (ct_error *)status;
    if (error->notes) error->text[--error->length] = 0; // drop the closing bracket
    append_text(error, error->notes++ ? "; " : " (");
    va_list args;
    va_start(args, format);
    append(error, format, args);
    va_end(args);
    append_text(error, ")");
    return error;
}

ct_code ct_error_code(ct_status error) { return error->code; }
const char *ct_error_text(ct_status error) { return error->text; }

ct_status ct_error_adopt(ct_status status) {
    if (!status) return NULL;
    ct_error *error = next_error(status->code);
    *error = *status;
    return error;
}

void ct_assert_failed(const char *condition, const char *file, int line, const char *format, ...) {
    fprintf(stderr, "ctitan: internal error at %s:%d: %s", file, line, condition);
    if (format[0]) {
        fputs(": ", stderr);
        va_list args;
        va_start(args, format);
        vfprintf(stderr, format, args);
        va_end(args);
    }
    fputc('\n', stderr);
    abort();
}
