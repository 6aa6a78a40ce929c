// Scanning for the graph's parser.
#include "scan.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// ---- errors ----

ct_status ct_scan_fail(const ct_scan *scan, const char *at, const char *wanted) {
    int line = 1;
    const char *start = scan->text;
    for (const char *c = scan->text; c < at; c++)
        if (*c == '\n') line++, start = c + 1;
    size_t length = strcspn(at, " \t\r\n,()[]{}:=@\"");
    if (!length && *at) length = 1;
    CT_FAIL(CT_INVALID, "%s:%d:%d: found %s%.*s%s, wanted %s", scan->file, line, (int)(at - start) + 1, *at ? "'" : "",
            length > 40 ? 40 : (int)(*at ? length : 3), *at ? at : "end", *at ? "'" : "", wanted);
}

// ---- tokens ----

const char *ct_scan_skip(ct_scan *scan) {
    for (;;) {
        scan->at += strspn(scan->at, " \t\r\n");
        if (*scan->at != '#') return scan->at;
        scan->at += strcspn(scan->at, "\n");
    }
}

int ct_scan_accept(ct_scan *scan, const char *token) {
    ct_scan_skip(scan);
    size_t n = strlen(token);
    if (strncmp(scan->at, token, n)) return 0;
    scan->at += n;
    return 1;
}

ct_status ct_scan_expect(ct_scan *scan, const char *token) {
    if (ct_scan_accept(scan, token)) return CT_OK;
    char wanted[32];
    snprintf(wanted, sizeof wanted, "'%s'", token);
    return ct_scan_fail(scan, scan->at, wanted);
}

static int is_word_char(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || (c && strchr("_.+-/", c));
}

static ct_status read_escape(ct_scan *scan) {
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    const char *at = scan->at++; // the backslash
    const char *found = *scan->at ? strchr(from, *scan->at) : NULL;
    if (found) {
        ct_string_add_bytes(&scan->word, &to[found - from], 1);
        scan->at++;
        return CT_OK;
    }
    unsigned code = 0;
    if (*scan->at != 'u' || strspn(scan->at + 1, "0123456789abcdefABCDEF") < 4 ||
        sscanf(scan->at + 1, "%4x", &code) != 1 || code == 0 || code >= 0x80)
        return ct_scan_fail(scan, at, "an escape of a character below 128");
    ct_string_add_bytes(&scan->word, &(char){(char)code}, 1);
    scan->at += 5;
    return CT_OK;
}

static ct_status read_string(ct_scan *scan) {
    const char *start = scan->at++;
    while (*scan->at != '"') {
        if (!*scan->at || *scan->at == '\n') return ct_scan_fail(scan, start, "a string that ends on its line");
        if (*scan->at == '\\') CT_TRY(read_escape(scan));
        else ct_string_add_bytes(&scan->word, scan->at++, 1);
    }
    scan->at++;
    return CT_OK;
}

ct_status ct_scan_word(ct_scan *scan, const char *wanted) {
    ct_scan_skip(scan);
    scan->word.length = 0;
    ct_string_add_bytes(&scan->word, "", 0);
    if (*scan->at == '"') return read_string(scan);
    const char *start = scan->at;
    while (is_word_char(*scan->at)) scan->at++;
    if (scan->at == start) return ct_scan_fail(scan, start, wanted);
    ct_string_add_bytes(&scan->word, start, (size_t)(scan->at - start));
    return CT_OK;
}

int ct_scan_accept_word(ct_scan *scan, const char *word) {
    ct_scan_skip(scan);
    size_t n = strlen(word);
    if (strncmp(scan->at, word, n) || is_word_char(scan->at[n])) return 0;
    scan->at += n;
    return 1;
}

ct_status ct_scan_integer(ct_scan *scan, int64_t least, int64_t most, const char *wanted, int64_t *out) {
    const char *start = ct_scan_skip(scan);
    if (*start != '-' && (*start < '0' || *start > '9')) return ct_scan_fail(scan, start, wanted);
    char *end;
    errno = 0;
    long long n = strtoll(start, &end, 10);
    if (end == start || errno || n < least || n > most) return ct_scan_fail(scan, start, wanted);
    scan->at = end;
    *out = n;
    return CT_OK;
}

ct_status ct_scan_number(ct_scan *scan, double *out) {
    ct_scan_skip(scan);
    if (*scan->at == '\0' || !strchr("+-.0123456789in", *scan->at)) return ct_scan_fail(scan, scan->at, "a number");
    char *end;
    double x = strtod(scan->at, &end);
    if (end == scan->at || is_word_char(*end)) return ct_scan_fail(scan, scan->at, "a number");
    scan->at = end;
    *out = x;
    return CT_OK;
}

ct_status ct_scan_name(ct_scan *scan, int count, const char *(*name)(int), const char *wanted, int *out) {
    const char *start = ct_scan_skip(scan);
    CT_TRY(ct_scan_word(scan, wanted));
    for (int i = 0; i < count; i++)
        if (!strcmp(name(i), scan->word.text)) {
            *out = i;
            return CT_OK;
        }
    return ct_scan_fail(scan, start, wanted);
}
