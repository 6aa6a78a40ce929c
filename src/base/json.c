// A JSON pull reader: a state, a byte a level of nesting, and a scan of strings eight bytes at a time. A string without escapes
// is given as a piece of the text itself. Left out: building trees, checking UTF-8 (the tokenizer replaces what is invalid).
#include "base/json.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WANT_VALUE, WANT_FIRST_VALUE, WANT_FIRST_KEY, AFTER_VALUE, AT_END }; // FIRST: or the closing bracket

void ct_json_reset(ct_json *json, long line, const char *text, size_t length) {
    json->text = json->at = json->token = text;
    json->end = text + length;
    json->line = line;
    json->state = WANT_VALUE;
    json->depth = 0;
    json->kind = CT_JSON_END;
    json->string = NULL;
    json->length = 0;
}

void ct_json_init(ct_json *json, const char *name, long line, const char *text, size_t length) {
    json->name = name;
    json->decoded = (ct_string){0};
    ct_json_reset(json, line, text, length);
}

void ct_json_deinit(ct_json *json) { ct_string_deinit(&json->decoded); }

// ---- errors ----
const char *ct_json_kind_name(ct_json_kind kind) {
    static const char *const names[] = {"the end of the text", "an object", "'}'",    "an array", "']'",   "a key",
                                        "a string",            "a number",  "'true'", "'false'",  "'null'"};
    return names[kind];
}

ct_status ct_json_error(const ct_json *json, const char *format, ...) {
    char message[512];
    va_list args;
    va_start(args, format);
    vsnprintf(message, sizeof message, format, args);
    va_end(args);
    long line = json->line;
    const char *start = json->text;
    for (const char *p; start < json->token && (p = memchr(start, '\n', (size_t)(json->token - start))); line++)
        start = p + 1;
    return ct_error_make(CT_INVALID, __FILE__, __LINE__, "%s:%ld:%td: %s", json->name, line, json->token - start + 1,
                         message);
}

// The error that something else than `wanted` stands at `at`.
static ct_status unexpected(ct_json *json, const char *at, const char *wanted) {
    json->token = at;
    if (at >= json->end) return ct_json_error(json, "the text ends here, wanted %s", wanted);
    unsigned char c = (unsigned char)*at;
    if (c > 0x20 && c < 0x7f) return ct_json_error(json, "found '%c', wanted %s", c, wanted);
    return ct_json_error(json, "found the byte 0x%02x, wanted %s", c, wanted);
}

// ---- strings ----
// The first byte from p on that is a quote, a backslash or a control character, or end.
static const char *string_run(const char *p, const char *end) {
    const uint64_t ones = 0x0101010101010101u, high = 0x8080808080808080u;
    for (; end - p >= 8; p += 8) {
        uint64_t w;
        memcpy(&w, p, 8);
        uint64_t quote = w ^ (ones * '"'), slash = w ^ (ones * '\\');
        uint64_t hit = ((quote - ones) & ~quote) | ((slash - ones) & ~slash) | ((w - ones * 0x20) & ~w);
        hit &= high; // its lowest set bit is exact; those above may be borrowed
        if (hit) return p + (__builtin_ctzll(hit) >> 3);
    }
    while (p < end && *p != '"' && *p != '\\' && (unsigned char)*p >= 0x20) p++;
    return p;
}

static int hex4(const char *p, const char *end, unsigned *out) {
    if (end - p < 4) return 0;
    unsigned value = 0;
    for (int i = 0; i < 4; i++) {
        unsigned c = (unsigned char)p[i], low = c | 0x20;
        if (c - '0' < 10) value = value * 16 + (c - '0');
        else if (low - 'a' < 6) value = value * 16 + (low - 'a' + 10);
        else return 0;
    }
    *out = value;
    return 1;
}

static void add_utf8(ct_string *out, unsigned c) {
    char b[4];
    size_t n = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    static const unsigned char lead[5] = {0, 0, 0xc0, 0xe0, 0xf0};
    for (size_t i = n; i-- > 1; c >>= 6) b[i] = (char)(0x80 | (c & 0x3f));
    b[0] = (char)(lead[n] | c);
    ct_string_add_bytes(out, b, n);
}

// *p stands behind "\u"; moves behind the digits, and behind those of the second half of a pair.
static ct_status unicode_escape(ct_json *json, const char **p) {
    unsigned c, low;
    if (!hex4(*p, json->end, &c)) return unexpected(json, *p, "four hexadecimal digits");
    *p += 4;
    if (c >= 0xd800 && c < 0xdc00 && json->end - *p >= 6 && (*p)[0] == '\\' && (*p)[1] == 'u' &&
        hex4(*p + 2, json->end, &low) && low >= 0xdc00 && low < 0xe000) {
        c = 0x10000 + ((c - 0xd800) << 10) + (low - 0xdc00);
        *p += 6;
    } else if (c >= 0xd800 && c < 0xe000) {
        c = 0xfffd;
    }
    add_utf8(&json->decoded, c);
    return CT_OK;
}

// *p stands at a backslash; moves behind the escape.
static ct_status escape(ct_json *json, const char **p) {
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    const char *which = *p + 1 < json->end && (*p)[1] ? strchr(from, (*p)[1]) : NULL;
    if (which) {
        ct_string_add_bytes(&json->decoded, to + (which - from), 1);
        *p += 2;
        return CT_OK;
    }
    if (*p + 1 >= json->end || (*p)[1] != 'u') return unexpected(json, *p + 1, "an escape: one of \"\\/bfnrtu");
    *p += 2;
    return unicode_escape(json, p);
}

static ct_status read_string(ct_json *json, ct_json_kind kind) {
    const char *start = json->at + 1, *p = string_run(start, json->end);
    json->kind = kind;
    if (p < json->end && *p == '"') {
        json->string = start;
        json->length = (size_t)(p - start);
        json->at = p + 1;
        return CT_OK;
    }
    json->decoded.length = 0;
    for (;;) {
        ct_string_add_bytes(&json->decoded, start, (size_t)(p - start));
        if (p >= json->end || (unsigned char)*p < 0x20) return unexpected(json, p, "the string's closing '\"'");
        if (*p == '"') break;
        CT_TRY(escape(json, &p));
        start = p;
        p = string_run(p, json->end);
    }
    json->string = json->decoded.text;
    json->length = json->decoded.length;
    json->at = p + 1;
    return CT_OK;
}

// ---- numbers and words ----
static const char *digits(const char *p, const char *end) {
    while (p < end && *p >= '0' && *p <= '9') p++;
    return p;
}

static ct_status read_number(ct_json *json) {
    const char *p = json->at, *end = json->end, *q;
    if (*p == '-') p++;
    q = digits(p, end);
    if (q == p) return unexpected(json, p, "a digit");
    if (*p == '0' && q > p + 1) return unexpected(json, p + 1, "no digit behind a leading 0");
    p = q;
    if (p < end && *p == '.') {
        q = digits(p + 1, end);
        if (q == p + 1) return unexpected(json, q, "a digit");
        p = q;
    }
    if (p < end && (*p | 0x20) == 'e') {
        p++;
        if (p < end && (*p == '+' || *p == '-')) p++;
        q = digits(p, end);
        if (q == p) return unexpected(json, p, "a digit");
        p = q;
    }
    json->kind = CT_JSON_NUMBER;
    json->string = json->at;
    json->length = (size_t)(p - json->at);
    json->at = p;
    return CT_OK;
}

static ct_status read_word(ct_json *json, const char *word, ct_json_kind kind) {
    size_t n = strlen(word);
    if ((size_t)(json->end - json->at) < n || memcmp(json->at, word, n)) return unexpected(json, json->at, "a value");
    json->kind = kind;
    json->at += n;
    return CT_OK;
}

// ---- the grammar ----
static const char *skip_space(const char *p, const char *end) {
    while (p < end && (*p == ' ' || *p == '\n' || *p == '\r' || *p == '\t')) p++;
    return p;
}

static ct_status open_level(ct_json *json, ct_json_kind kind) {
    if (json->depth >= CT_JSON_DEPTH_MAX)
        return ct_json_error(json, "more than %d objects and arrays inside one another", CT_JSON_DEPTH_MAX);
    json->open[json->depth++] = (unsigned char)kind;
    json->kind = kind;
    json->at++;
    json->state = kind == CT_JSON_OBJECT ? WANT_FIRST_KEY : WANT_FIRST_VALUE;
    return CT_OK;
}

static ct_status close_level(ct_json *json, ct_json_kind kind) {
    json->depth--;
    json->kind = kind;
    json->at++;
    json->state = AFTER_VALUE;
    return CT_OK;
}

static ct_status read_value(ct_json *json) {
    if (json->at >= json->end) return unexpected(json, json->at, "a value");
    switch (*json->at) {
    case '{': return open_level(json, CT_JSON_OBJECT);
    case '[': return open_level(json, CT_JSON_ARRAY);
    default: break;
    }
    json->state = AFTER_VALUE;
    switch (*json->at) {
    case '"': return read_string(json, CT_JSON_STRING);
    case 't': return read_word(json, "true", CT_JSON_TRUE);
    case 'f': return read_word(json, "false", CT_JSON_FALSE);
    case 'n': return read_word(json, "null", CT_JSON_NULL);
    case '-': return read_number(json);
    default: break;
    }
    if (*json->at >= '0' && *json->at <= '9') return read_number(json);
    return unexpected(json, json->at, json->depth ? "a value" : "an object or another value");
}

static ct_status read_key(ct_json *json) {
    if (json->at >= json->end || *json->at != '"') return unexpected(json, json->at, "a key in quotes");
    CT_TRY(read_string(json, CT_JSON_KEY));
    json->at = skip_space(json->at, json->end);
    if (json->at >= json->end || *json->at != ':') return unexpected(json, json->at, "':'");
    json->at++;
    json->state = WANT_VALUE;
    return CT_OK;
}

// Behind a value: a comma and what follows it, a closing bracket, or the end.
static ct_status read_after_value(ct_json *json) {
    if (!json->depth) {
        if (json->at < json->end) return unexpected(json, json->at, "nothing behind the value");
        json->kind = CT_JSON_END;
        json->state = AT_END;
        return CT_OK;
    }
    int object = json->open[json->depth - 1] == CT_JSON_OBJECT;
    char c = json->at < json->end ? *json->at : 0;
    if (c == (object ? '}' : ']')) return close_level(json, object ? CT_JSON_OBJECT_END : CT_JSON_ARRAY_END);
    if (c != ',') return unexpected(json, json->at, object ? "',' or '}'" : "',' or ']'");
    json->at = json->token = skip_space(json->at + 1, json->end);
    return object ? read_key(json) : read_value(json);
}

ct_status ct_json_next(ct_json *json) {
    json->at = json->token = skip_space(json->at, json->end);
    switch (json->state) {
    case WANT_FIRST_VALUE:
        if (json->at < json->end && *json->at == ']') return close_level(json, CT_JSON_ARRAY_END);
        return read_value(json);
    case WANT_VALUE: return read_value(json);
    case WANT_FIRST_KEY:
        if (json->at < json->end && *json->at == '}') return close_level(json, CT_JSON_OBJECT_END);
        return read_key(json);
    case AFTER_VALUE: return read_after_value(json);
    default: json->kind = CT_JSON_END; return CT_OK;
    }
}

// ---- conveniences ----
ct_status ct_json_expect(ct_json *json, ct_json_kind kind) {
    CT_TRY(ct_json_next(json));
    if (json->kind == kind) return CT_OK;
    return ct_json_error(json, "found %s, wanted %s", ct_json_kind_name(json->kind), ct_json_kind_name(kind));
}

ct_status ct_json_expect_integer(ct_json *json, int64_t *out_value) {
    CT_TRY(ct_json_expect(json, CT_JSON_NUMBER));
    return ct_json_integer(json, out_value);
}

ct_status ct_json_expect_double(ct_json *json, double *out_value) {
    CT_TRY(ct_json_expect(json, CT_JSON_NUMBER));
    *out_value = ct_json_double(json);
    return CT_OK;
}

ct_status ct_json_expect_string(ct_json *json, char **out_string) {
    CT_TRY(ct_json_expect(json, CT_JSON_STRING));
    char *copy = ct_malloc(json->length + 1);
    memcpy(copy, json->string, json->length);
    copy[json->length] = 0;
    *out_string = copy;
    return CT_OK;
}

ct_status ct_json_skip(ct_json *json) {
    int depth = json->depth;
    do CT_TRY(ct_json_next(json));
    while (json->depth > depth);
    return CT_OK;
}

const char *ct_json_hold(ct_json *json, ct_string *held) {
    if (json->string != json->decoded.text) return json->string;
    ct_string decoded = json->decoded;
    json->decoded = *held;
    *held = decoded;
    return json->string;
}

int ct_json_is(const ct_json *json, const char *text) {
    return (json->kind == CT_JSON_KEY || json->kind == CT_JSON_STRING) && strlen(text) == json->length &&
           !memcmp(json->string, text, json->length);
}

ct_status ct_json_integer(const ct_json *json, int64_t *out_value) {
    const char *p = json->string, *end = p + json->length;
    int negative = *p == '-';
    int64_t value = 0;
    for (p += negative; p < end; p++) {
        int digit = *p - '0';
        if (digit < 0 || digit > 9) return ct_json_error(json, "found %.*s, wanted a whole number",
                                                         json->length > 40 ? 40 : (int)json->length, json->string);
        if (__builtin_mul_overflow(value, 10, &value) ||
            (negative ? __builtin_sub_overflow(value, digit, &value) : __builtin_add_overflow(value, digit, &value)))
            return ct_json_error(json, "the number %.*s does not fit 64 bits",
                                 json->length > 40 ? 40 : (int)json->length, json->string);
    }
    *out_value = value;
    return CT_OK;
}

double ct_json_double(const ct_json *json) {
    char small[64], *copy = json->length < sizeof small ? small : ct_malloc(json->length + 1);
    memcpy(copy, json->string, json->length);
    copy[json->length] = 0;
    double value = strtod(copy, NULL);
    if (copy != small) free(copy);
    return value;
}
