// The characters of a TOML document: places for messages, blanks and comments, the four kinds of strings, keys.
#include "toml_parse.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

// Lines and columns are counted forward from the last place asked for; a place before it starts over at its line.
void toml_place(toml_parser *p, const char *at, int *out_line, int *out_column) {
    if (at < p->seen) {
        if (at < p->line_start) p->line_start = p->text, p->line = 1;
        p->seen = p->line_start, p->column = 1;
    }
    for (; p->seen < at; p->seen++) {
        if (*p->seen == '\n')
            p->line++, p->column = 1, p->line_start = p->seen + 1;
        else if (((unsigned char)p->seen[0] & 0xc0) != 0x80)
            p->column++;
    }
    // Within a character, its own column.
    *out_line = p->line, *out_column = p->column;
}

ct_status toml_fail(toml_parser *p, const char *at, const char *format, ...) {
    char message[512];
    va_list args;
    va_start(args, format);
    vsnprintf(message, sizeof message, format, args);
    va_end(args);
    int line, column;
    toml_place(p, at, &line, &column);
    return ct_error_make(CT_INVALID, __FILE__, __LINE__, "%s:%d:%d: %s", p->name, line, column, message);
}

static int char_bytes(const char *at, const char *end) {
    unsigned char c = (unsigned char)*at;
    int n = c < 0x80 ? 1 : c < 0xe0 ? 2 : c < 0xf0 ? 3 : 4;
    return n <= end - at ? n : (int)(end - at);
}

bool toml_at_newline(const toml_parser *p) {
    return p->at < p->end && (*p->at == '\n' || (*p->at == '\r' && p->end - p->at > 1 && p->at[1] == '\n'));
}

const char *toml_shown(toml_parser *p) {
    if (p->at >= p->end) return "the end of the file";
    if (toml_at_newline(p)) return "the end of the line";
    unsigned char c = (unsigned char)*p->at;
    if (c < 0x20 || c == 0x7f) return ct_arena_format(p->arena, "the control character 0x%02x", c);
    return ct_arena_format(p->arena, "'%.*s'", char_bytes(p->at, p->end), p->at);
}

void toml_skip_blanks(toml_parser *p) {
    while (p->at < p->end && (*p->at == ' ' || *p->at == '\t')) p->at++;
}

static bool is_control(char c) { return ((unsigned char)c < 0x20 && c != '\t') || c == 0x7f; }

ct_status toml_skip_comment(toml_parser *p) {
    if (p->at == p->end || *p->at != '#') return CT_OK;
    for (; p->at < p->end && !toml_at_newline(p); p->at++)
        if (is_control(*p->at)) return toml_fail(p, p->at, "a comment can't hold %s", toml_shown(p));
    return CT_OK;
}

static void skip_newline(toml_parser *p) { p->at += *p->at == '\r' ? 2 : 1; }

ct_status toml_skip_blanks_and_lines(toml_parser *p) {
    for (;;) {
        toml_skip_blanks(p);
        CT_TRY(toml_skip_comment(p));
        if (!toml_at_newline(p)) return CT_OK;
        skip_newline(p);
    }
}

// ---- UTF-8 ----
// The bytes of the well-formed character at `at`, or 0 (Unicode 15, table 3-7).
static int well_formed(const unsigned char *at, const unsigned char *end) {
    unsigned char c = at[0], low = 0x80, high = 0xbf;
    if (c < 0x80) return 1;
    int n = c >= 0xc2 && c <= 0xdf ? 2 : (c & 0xf0) == 0xe0 ? 3 : c >= 0xf0 && c <= 0xf4 ? 4 : 0;
    if (!n || end - at < n) return 0;
    if (c == 0xe0) low = 0xa0;
    if (c == 0xed) high = 0x9f;
    if (c == 0xf0) low = 0x90;
    if (c == 0xf4) high = 0x8f;
    if (at[1] < low || at[1] > high) return 0;
    for (int i = 2; i < n; i++)
        if ((at[i] & 0xc0) != 0x80) return 0;
    return n;
}

ct_status toml_check_utf8(toml_parser *p) {
    for (const char *at = p->text; at < p->end;) {
        int n = well_formed((const unsigned char *)at, (const unsigned char *)p->end);
        if (!n) return toml_fail(p, at, "the byte 0x%02x is no part of UTF-8 text", (unsigned char)*at);
        at += n;
    }
    return CT_OK;
}

bool ct_toml_is_utf8(const char *text, size_t bytes) {
    const unsigned char *at = (const unsigned char *)text, *end = at + bytes;
    while (at < end) {
        int n = well_formed(at, end);
        if (!n) return false;
        at += n;
    }
    return true;
}

static void add_code_point(ct_string *out, uint32_t c) {
    char b[4];
    int n = 0;
    if (c < 0x80) {
        b[n++] = (char)c;
    } else if (c < 0x800) {
        b[n++] = (char)(0xc0 | c >> 6);
    } else if (c < 0x10000) {
        b[n++] = (char)(0xe0 | c >> 12);
        b[n++] = (char)(0x80 | (c >> 6 & 0x3f));
    } else {
        b[n++] = (char)(0xf0 | c >> 18);
        b[n++] = (char)(0x80 | (c >> 12 & 0x3f));
        b[n++] = (char)(0x80 | (c >> 6 & 0x3f));
    }
    if (c >= 0x80) b[n++] = (char)(0x80 | (c & 0x3f));
    ct_string_add_bytes(out, b, (size_t)n);
}

// ---- strings ----
static int hex_digit(char c) {
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
}

// The digits of \uXXXX or \UXXXXXXXX; the cursor stands behind the letter.
static ct_status read_code_point(toml_parser *p, const char *escape, int digits) {
    uint32_t c = 0;
    for (int i = 0; i < digits; i++, p->at++) {
        int digit = p->at < p->end ? hex_digit(*p->at) : -1;
        if (digit < 0)
            return toml_fail(p, p->at, "%d hexadecimal digits are wanted here, found %s", digits, toml_shown(p));
        c = c << 4 | (uint32_t)digit;
    }
    if (c > 0x10ffff || (c >= 0xd800 && c < 0xe000))
        return toml_fail(p, escape, "U+%04X is no character", (unsigned)c);
    add_code_point(&p->scratch, c);
    return CT_OK;
}

// In a """string""", a backslash at a line's end swallows the newline and all blanks and newlines behind it.
static bool skip_line_continuation(toml_parser *p) {
    const char *backslash = p->at++;
    toml_skip_blanks(p);
    if (!toml_at_newline(p)) return p->at = backslash, false;
    while (p->at < p->end && (*p->at == ' ' || *p->at == '\t' || toml_at_newline(p))) {
        if (toml_at_newline(p))
            skip_newline(p);
        else
            p->at++;
    }
    return true;
}

static ct_status read_escape(toml_parser *p, bool multiline) {
    static const char from[] = "btnfr\"\\", to[] = "\b\t\n\f\r\"\\";
    if (multiline && skip_line_continuation(p)) return CT_OK;
    const char *escape = p->at++;
    if (p->at == p->end) return toml_fail(p, p->at, "the file ends within a string");
    const char *known = *p->at ? strchr(from, *p->at) : NULL;
    if (known) return ct_string_add_bytes(&p->scratch, &to[known - from], 1), p->at++, CT_OK;
    if (*p->at == 'u') return p->at++, read_code_point(p, escape, 4);
    if (*p->at == 'U') return p->at++, read_code_point(p, escape, 8);
    ct_status error = toml_fail(
        p, escape, "a backslash can't be followed by %s; single quotes take backslashes as they are", toml_shown(p));
    return error;
}

// How many of the quote character follow one another at the cursor, at most 5 (""" and two quotes that belong to the
// text).
static int count_quotes(const toml_parser *p, char quote) {
    int n = 0;
    while (n < 5 && p->at + n < p->end && p->at[n] == quote) n++;
    return n;
}

// The cursor stands behind the opening quotes; reads up to and with the closing ones.
static ct_status read_string_body(toml_parser *p, const char *opening, char quote, bool multiline) {
    for (;;) {
        if (p->at == p->end) return toml_fail(p, opening, "the string that begins here has no end");
        int quotes = count_quotes(p, quote);
        if (quotes >= (multiline ? 3 : 1)) {
            if (multiline) ct_string_add_bytes(&p->scratch, p->at, (size_t)quotes - 3);
            p->at += multiline ? quotes : 1;
            return CT_OK;
        }
        if (*p->at == '\\' && quote == '"') {
            CT_TRY(read_escape(p, multiline));
        } else if (toml_at_newline(p)) {
            if (!multiline) return toml_fail(p, opening, "the string that begins here has no end on its line");
            ct_string_add_bytes(&p->scratch, "\n", 1);
            skip_newline(p);
        } else if (is_control(*p->at)) {
            return toml_fail(p, p->at, "a string can't hold %s as it is", toml_shown(p));
        } else {
            ct_string_add_bytes(&p->scratch, p->at++, 1);
        }
    }
}

ct_status toml_read_string(toml_parser *p, const char **out_text, size_t *out_bytes) {
    const char *opening = p->at;
    char quote = *opening;
    bool multiline = count_quotes(p, quote) >= 3;
    p->scratch.length = 0;
    p->at += multiline ? 3 : 1;
    if (multiline && toml_at_newline(p)) skip_newline(p);
    CT_TRY(read_string_body(p, opening, quote, multiline));
    *out_text = ct_arena_strndup(p->arena, p->scratch.text ? p->scratch.text : "", p->scratch.length);
    *out_bytes = p->scratch.length;
    return CT_OK;
}

// ---- keys ----
static bool is_bare(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
}

static ct_status read_key_part(toml_parser *p, toml_part *out_part) {
    toml_place(p, p->at, &out_part->line, &out_part->column);
    if (p->at < p->end && (*p->at == '"' || *p->at == '\'')) {
        if (count_quotes(p, *p->at) >= 3) return toml_fail(p, p->at, "a key can't be a string of several lines");
        return toml_read_string(p, &out_part->text, &out_part->bytes);
    }
    const char *begin = p->at;
    while (p->at < p->end && is_bare(*p->at)) p->at++;
    if (p->at == begin) return toml_fail(p, p->at, "a key is wanted here, found %s", toml_shown(p));
    out_part->bytes = (size_t)(p->at - begin);
    out_part->text = ct_arena_strndup(p->arena, begin, out_part->bytes);
    return CT_OK;
}

ct_status toml_read_key(toml_parser *p, toml_key *out_key) {
    out_key->count = 0;
    for (;;) {
        if (out_key->count == TOML_MAX_PARTS)
            return toml_fail(p, p->at, "a key has at most %d parts", TOML_MAX_PARTS);
        CT_TRY(read_key_part(p, &out_key->parts[out_key->count++]));
        toml_skip_blanks(p);
        if (p->at == p->end || *p->at != '.') return CT_OK;
        p->at++;
        toml_skip_blanks(p);
    }
}

// A part as it is shown in a message: quoted where it isn't bare, control characters as '?'.
static const char *shown_part(toml_parser *p, const toml_part *part) {
    bool bare = part->bytes > 0;
    char *text = ct_arena_strndup(p->arena, part->text, part->bytes);
    for (size_t i = 0; i < part->bytes; i++) {
        if (!is_bare(text[i])) bare = false;
        if (is_control(text[i]) || text[i] == '\t') text[i] = '?';
    }
    return bare ? text : ct_arena_format(p->arena, "\"%s\"", text);
}

const char *toml_key_text(toml_parser *p, const toml_key *key, int count) {
    const char *text = shown_part(p, &key->parts[0]);
    for (int i = 1; i < count; i++) text = ct_arena_format(p->arena, "%s.%s", text, shown_part(p, &key->parts[i]));
    return text;
}
