// A status is a pointer: NULL is success, anything else an error with a code, a message and the path it took.
// Errors live in a small fixed ring of the calling thread, so nothing is freed and reporting "out of memory" needs none.
#pragma once

typedef enum {
    CT_INVALID = 1, // the user's input is wrong: config, arguments, a graph, a tokenizer that does not fit
    CT_NOT_FOUND,   // a file or a name is not there
    CT_IO,          // the system refused: full disk, permission, broken pipe
    CT_CORRUPT,     // data that was whole once is not: checksum, cut-off file, bad header
    CT_NO_MEMORY,   // memory could not be had
    CT_UNSUPPORTED, // legal, known, and not built yet
    CT_NONFINITE,   // a loss or gradient is NaN or infinite
    CT_INTERRUPTED, // asked to stop (SIGTERM, SIGUSR1)
} ct_code;

typedef struct ct_error ct_error;
typedef const ct_error *ct_status;

#define CT_OK ((ct_status)0)

// Makes an error; the message is formatted at once. Never returns NULL.
ct_status ct_error_make(ct_code code, const char *file, int line, const char *format, ...)
    __attribute__((format(printf, 4, 5), returns_nonnull));

// Adds a note ("while …") to an error as it climbs, and returns it.
ct_status ct_error_note(ct_status error, const char *format, ...) __attribute__((format(printf, 2, 3), returns_nonnull));

// The code of an error (error must not be NULL).
ct_code ct_error_code(ct_status error);

// The message followed by its notes, innermost first: "message (noted; noted)". Valid until 16 later errors of this thread.
const char *ct_error_text(ct_status error);

// Copies an error that another thread made into this thread's ring.
ct_status ct_error_adopt(ct_status error);

#define CT_FAIL(code, ...) return ct_error_make((code), __FILE__, __LINE__, __VA_ARGS__)
#define CT_CHECK(condition, code, ...)                                                                                 \
    do {                                                                                                               \
        if (!(condition)) CT_FAIL((code), __VA_ARGS__);                                                                \
    } while (0)
#define CT_TRY(expression)                                                                                             \
    do {                                                                                                               \
        ct_status ct_try_status_ = (expression);                                                                       \
        if (ct_try_status_) return ct_try_status_;                                                                     \
    } while (0)
#define CT_TRY_AS(expression, ...)                                                                                     \
    do {                                                                                                               \
        ct_status ct_try_status_ = (expression);                                                                       \
        if (ct_try_status_) return ct_error_note(ct_try_status_, __VA_ARGS__);                                         \
    } while (0)

// Our own bug: prints where and what, and ends the process. Stays on in release; keep it out of inner loops.
#define CT_ASSERT(condition, ...)                                                                                      \
    do {                                                                                                               \
        if (__builtin_expect(!(condition), 0)) ct_assert_failed(#condition, __FILE__, __LINE__, "" __VA_ARGS__);       \
    } while (0)
_Noreturn void ct_assert_failed(const char *condition, const char *file, int line, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
