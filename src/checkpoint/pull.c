// One recursive descent over text in memory: values are pulled by whoever knows what should stand there, so nothing is built that is not
// kept. RFC 8259 without leniency. Left out: comments, NaN, duplicate names (who keeps members checks for those).
#include "pull.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DEPTH = 64, NUMBER = 64 };

ct_status ct_pull_error(const ct_pull *pull, const char *format, ...) {
    char text[512];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return ct_error_make(CT_CORRUPT, __FILE__, __LINE__, "%s: byte %zu of the JSON: %s", pull->where,
                         (size_t)(pull->at - pull->begin), text);
}

char ct_pull_peek(ct_pull *pull) {
    while (pull->at < pull->end && (*pull->at == ' ' || *pull->at == '\n' || *pull->at == '\r' || *pull->at == '\t')) pull->at++;
    return pull->at < pull->end ? *pull->at : 0;
}

static ct_status found_instead(ct_pull *pull, const char *wanted) {
    unsigned char c = (unsigned char)ct_pull_peek(pull);
    if (pull->at >= pull->end) return ct_pull_error(pull, "%s was expected, the text ends", wanted);
    if (c < 0x20 || c > 0x7e) return ct_pull_error(pull, "%s was expected, not byte 0x%02x", wanted, c);
    return ct_pull_error(pull, "%s was expected, not '%c'", wanted, c);
}

static ct_status expect(ct_pull *pull, char c) {
    if (ct_pull_peek(pull) != c || pull->at >= pull->end) return found_instead(pull, (char[]){'\'', c, '\'', 0});
    pull->at++;
    return CT_OK;
}

// ---- containers ----
static ct_status enter(ct_pull *pull, char open) {
    CT_TRY(expect(pull, open));
    if (++pull->depth > DEPTH) return ct_pull_error(pull, "nested more than %d deep", DEPTH);
    return CT_OK;
}

// Before each member: 1 where there is one, 0 where the container ended.
static ct_status more(ct_pull *pull, char close, int first, int *out_more) {
    char c = ct_pull_peek(pull);
    if (c == close) {
        pull->at++;
        pull->depth--;
        *out_more = 0;
        return CT_OK;
    }
    if (!first) {
        if (c != ',') return found_instead(pull, close == '}' ? "',' or '}'" : "',' or ']'");
        pull->at++;
    }
    *out_more = 1;
    return CT_OK;
}

ct_status ct_pull_object(ct_pull *pull, ct_pull_member_fn *member, void *context) {
    CT_TRY(enter(pull, '{'));
    for (int first = 1, go;; first = 0) {
        CT_TRY(more(pull, '}', first, &go));
        if (!go) return CT_OK;
        char *key;
        size_t bytes;
        CT_TRY(ct_pull_string(pull, &key, &bytes));
        CT_TRY(expect(pull, ':'));
        CT_TRY(member(context, pull, key, bytes));
    }
}

ct_status ct_pull_array(ct_pull *pull, ct_pull_element_fn *element, void *context) {
    CT_TRY(enter(pull, '['));
    for (int first = 1, go;; first = 0) {
        CT_TRY(more(pull, ']', first, &go));
        if (!go) return CT_OK;
        CT_TRY(element(context, pull));
    }
}

// ---- strings ----
static int hex_digit(char c) {
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

static ct_status hex4(ct_pull *pull, unsigned *out_value) {
    unsigned value = 0;
    if (pull->end - pull->at < 4) return ct_pull_error(pull, "a \\u escape is cut off");
    for (int i = 0; i < 4; i++) {
        int digit = hex_digit(pull->at[i]);
        if (digit < 0) return ct_pull_error(pull, "a \\u escape needs four hexadecimal digits");
        value = value << 4 | (unsigned)digit;
    }
    pull->at += 4;
    *out_value = value;
    return CT_OK;
}

static size_t put_utf8(char *out, unsigned c) {
    if (c < 0x80) return out[0] = (char)c, 1;
    if (c < 0x800) return out[0] = (char)(0xc0 | c >> 6), out[1] = (char)(0x80 | (c & 63)), 2;
    if (c < 0x10000)
        return out[0] = (char)(0xe0 | c >> 12), out[1] = (char)(0x80 | (c >> 6 & 63)), out[2] = (char)(0x80 | (c & 63)), 3;
    out[0] = (char)(0xf0 | c >> 18), out[1] = (char)(0x80 | (c >> 12 & 63));
    out[2] = (char)(0x80 | (c >> 6 & 63)), out[3] = (char)(0x80 | (c & 63));
    return 4;
}

// Behind "\u": a code point, or a pair of surrogates.
static ct_status unicode(ct_pull *pull, char *out, size_t *out_length) {
    unsigned high, low;
    CT_TRY(hex4(pull, &high));
    if (high >= 0xd800 && high < 0xe000) {
        if (high >= 0xdc00 || pull->end - pull->at < 2 || pull->at[0] != '\\' || pull->at[1] != 'u')
            return ct_pull_error(pull, "half a surrogate pair");
        pull->at += 2;
        CT_TRY(hex4(pull, &low));
        if (low < 0xdc00 || low >= 0xe000) return ct_pull_error(pull, "half a surrogate pair");
        high = 0x10000 + ((high - 0xd800) << 10) + (low - 0xdc00);
    }
    *out_length += put_utf8(out + *out_length, high);
    return CT_OK;
}

static ct_status escape(ct_pull *pull, char *out, size_t *out_length) {
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    if (pull->at >= pull->end) return ct_pull_error(pull, "a string is cut off");
    char c = *pull->at++;
    if (c == 'u') return unicode(pull, out, out_length);
    const char *known = c ? strchr(from, c) : NULL;
    if (!known) return ct_pull_error(pull, "an unknown escape in a string");
    out[(*out_length)++] = to[known - from];
    return CT_OK;
}

ct_status ct_pull_string(ct_pull *pull, char **out_text, size_t *out_bytes) {
    CT_TRY(expect(pull, '"'));
    const char *close = pull->at;
    while (close < pull->end && *close != '"') close += *close == '\\' && pull->end - close > 1 ? 2 : 1;
    if (close >= pull->end) return ct_pull_error(pull, "a string is cut off");
    char *text = ct_arena_alloc(pull->arena, (size_t)(close - pull->at) + 1);
    size_t length = 0;
    while (pull->at < close) {
        char c = *pull->at++;
        if (c == '\\') CT_TRY(escape(pull, text, &length));
        else if ((unsigned char)c < 0x20) return ct_pull_error(pull, "a control character in a string");
        else text[length++] = c;
    }
    pull->at = close + 1;
    text[length] = 0;
    if (!out_bytes && strlen(text) != length) return ct_pull_error(pull, "a zero character in a string");
    *out_text = text;
    if (out_bytes) *out_bytes = length;
    return CT_OK;
}

// ---- numbers and the rest ----
static size_t digits(const char *text) {
    size_t n = 0;
    while (text[n] >= '0' && text[n] <= '9') n++;
    return n;
}

// Copies the number at hand, checked against the grammar.
static ct_status number_text(ct_pull *pull, char out[NUMBER], int *out_is_int) {
    ct_pull_peek(pull);
    size_t n = 0;
    while (n < NUMBER - 1 && pull->at + n < pull->end && pull->at[n] && strchr("+-0123456789.eE", pull->at[n])) out[n] = pull->at[n], n++;
    out[n] = 0;
    const char *p = out + (out[0] == '-');
    size_t whole = digits(p), part;
    int ok = whole > 0 && (whole == 1 || p[0] != '0');
    p += whole;
    *out_is_int = !*p;
    if (ok && *p == '.') part = digits(p + 1), ok = part > 0, p += part + 1;
    if (ok && (*p == 'e' || *p == 'E')) {
        p += p[1] == '+' || p[1] == '-' ? 2 : 1;
        part = digits(p), ok = part > 0, p += part;
    }
    if (!ok || *p) return found_instead(pull, "a number");
    pull->at += n;
    return CT_OK;
}

ct_status ct_pull_int(ct_pull *pull, int64_t *out_value) {
    char text[NUMBER];
    int is_int;
    CT_TRY(number_text(pull, text, &is_int));
    errno = 0;
    long long value = strtoll(text, NULL, 10);
    if (!is_int || errno) return ct_pull_error(pull, "a whole number of 64 bits was expected, not %s", text);
    *out_value = value;
    return CT_OK;
}

ct_status ct_pull_number(ct_pull *pull, double *out_value) {
    char text[NUMBER];
    int is_int;
    CT_TRY(number_text(pull, text, &is_int));
    *out_value = strtod(text, NULL);
    return CT_OK;
}

static int take_word(ct_pull *pull, const char *word) {
    size_t n = strlen(word);
    if ((size_t)(pull->end - pull->at) < n || memcmp(pull->at, word, n)) return 0;
    pull->at += n;
    return 1;
}

ct_status ct_pull_bool(ct_pull *pull, int *out_value) {
    ct_pull_peek(pull);
    if (take_word(pull, "true")) return *out_value = 1, CT_OK;
    if (take_word(pull, "false")) return *out_value = 0, CT_OK;
    return found_instead(pull, "true or false");
}

typedef struct {
    int64_t *values;
    int max_count, count;
} int_list;

static ct_status add_int(void *context, ct_pull *pull) {
    int_list *list = context;
    if (list->count >= list->max_count) return ct_pull_error(pull, "more than %d numbers in a list", list->max_count);
    return ct_pull_int(pull, &list->values[list->count++]);
}

ct_status ct_pull_int_array(ct_pull *pull, int64_t *out_values, int max_count, int *out_count) {
    int_list list = {out_values, max_count, 0};
    CT_TRY(ct_pull_array(pull, add_int, &list));
    *out_count = list.count;
    return CT_OK;
}

static ct_status skip_member(void *context, ct_pull *pull, const char *key, size_t key_bytes) {
    (void)context, (void)key, (void)key_bytes;
    return ct_pull_skip(pull);
}
static ct_status skip_element(void *context, ct_pull *pull) { return (void)context, ct_pull_skip(pull); }

ct_status ct_pull_skip(ct_pull *pull) {
    char *text, c = ct_pull_peek(pull);
    size_t bytes;
    double number;
    if (c == '{') return ct_pull_object(pull, skip_member, NULL);
    if (c == '[') return ct_pull_array(pull, skip_element, NULL);
    if (c == '"') return ct_pull_string(pull, &text, &bytes);
    if (c == '-' || (c >= '0' && c <= '9')) return ct_pull_number(pull, &number);
    if (take_word(pull, "true") || take_word(pull, "false") || take_word(pull, "null")) return CT_OK;
    return found_instead(pull, "a value");
}

ct_status ct_pull_end(ct_pull *pull) {
    ct_pull_peek(pull);
    if (pull->at < pull->end) return found_instead(pull, "the end");
    return CT_OK;
}
