// A JSON pull reader (RFC 8259) over text in memory: each ct_json_next reads one token, nothing is built. For JSON lines,
// safetensors headers, saved states. Errors say name:line:column, what was found and what was wanted.
//
//     ct_json json;
//     ct_json_init(&json, path, 1, text, length);
//     CT_TRY(ct_json_expect(&json, CT_JSON_OBJECT));
//     for (;;) {
//         CT_TRY(ct_json_next(&json));
//         if (json.kind == CT_JSON_OBJECT_END) break;                      // else it is a key
//         if (ct_json_is(&json, "step")) CT_TRY(ct_json_expect_integer(&json, &step));
//         else CT_TRY(ct_json_skip(&json));
//     }
//     CT_TRY(ct_json_expect(&json, CT_JSON_END));
//     ct_json_deinit(&json);                                               // on the error paths too
#pragma once
#include "base/memory.h"
#include "base/status.h"
#include <stddef.h>
#include <stdint.h>

enum { CT_JSON_DEPTH_MAX = 512 }; // objects and arrays inside one another; more is an error

typedef enum {
    CT_JSON_END = 0, // the text is over (white space may follow the value)
    CT_JSON_OBJECT,
    CT_JSON_OBJECT_END,
    CT_JSON_ARRAY,
    CT_JSON_ARRAY_END,
    CT_JSON_KEY, // in an object; its value comes next
    CT_JSON_STRING,
    CT_JSON_NUMBER,
    CT_JSON_TRUE,
    CT_JSON_FALSE,
    CT_JSON_NULL,
} ct_json_kind;

typedef struct {
    ct_json_kind kind;  // of the token last read
    const char *string; // KEY, STRING: its bytes, escapes decoded; NUMBER: as written. Valid until the next call; not NUL-terminated
    size_t length;
    int depth; // objects and arrays now open

    // the reader's own
    const char *name, *text, *end, *at, *token;
    long line;
    int state;
    ct_string decoded;
    unsigned char open[CT_JSON_DEPTH_MAX];
} ct_json;

// Borrows name and text until deinit. line: the number of the text's first line, for messages.
void ct_json_init(ct_json *json, const char *name, long line, const char *text, size_t length);
void ct_json_deinit(ct_json *json);

// Starts over with another text; keeps the memory (JSON lines).
void ct_json_reset(ct_json *json, long line, const char *text, size_t length);

// Reads the next token. Bytes from 0x80 up pass unchecked; \u escapes become UTF-8, surrogate pairs one character, a lone surrogate
// U+FFFD. After END it stays END. CT_INVALID: not JSON.
ct_status ct_json_next(ct_json *json);

// Reads the next token and checks its kind.
ct_status ct_json_expect(ct_json *json, ct_json_kind kind);

// Reads the next token, which must be a number that fits / a number.
ct_status ct_json_expect_integer(ct_json *json, int64_t *out_value);
ct_status ct_json_expect_double(ct_json *json, double *out_value);

// Reads the next token, a string, and copies it; caller frees.
ct_status ct_json_expect_string(ct_json *json, char **out_string);

// Passes over the value that comes next, checking it.
ct_status ct_json_skip(ct_json *json);

// The string last read, valid for as long as the text and `held`, whose memory may be swapped with the reader's. Its length
// is json->length.
const char *ct_json_hold(ct_json *json, ct_string *held);

// 1 where the token last read is a key or string that equals text.
int ct_json_is(const ct_json *json, const char *text);

// The number last read. CT_INVALID: not whole, or beyond int64.
ct_status ct_json_integer(const ct_json *json, int64_t *out_value);

// The number last read, rounded to nearest; beyond a double's range infinite.
double ct_json_double(const ct_json *json);

// An error at the token last read: "name:line:column: message".
ct_status ct_json_error(const ct_json *json, const char *format, ...) __attribute__((format(printf, 2, 3)));

// "an object", "a string", … for messages.
const char *ct_json_kind_name(ct_json_kind kind);
