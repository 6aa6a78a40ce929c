// TOML's integers, floats and dates: each function says whether a whole token is one.
#include "toml_parse.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static bool is_digit_of(char c, int base) {
    if (base == 16 && ((c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F'))) return true;
    return c >= '0' && c < '0' + (base < 10 ? base : 10);
}

// Copies digits to out without the underscores between them and returns how many characters of the token they took; 0
// where there are none or an underscore isn't between two digits.
static size_t take_digits(const char *token, size_t bytes, int base, char *out, size_t *out_length) {
    size_t i = 0, n = *out_length;
    while (i < bytes && (is_digit_of(token[i], base) || token[i] == '_')) {
        if (token[i] == '_') {
            if (i == 0 || token[i - 1] == '_' || i + 1 == bytes || !is_digit_of(token[i + 1], base)) return 0;
        } else {
            out[n++] = token[i];
        }
        i++;
    }
    *out_length = n;
    return i;
}

static int base_of(const char *token, size_t bytes) {
    if (bytes < 3 || token[0] != '0') return 10;
    return token[1] == 'x' ? 16 : token[1] == 'o' ? 8 : token[1] == 'b' ? 2 : 10;
}

static toml_match convert_integer(const char *digits, int base, int64_t *out_integer) {
    errno = 0;
    long long value = strtoll(digits, NULL, base);
    if (errno == ERANGE) return TOML_OUT_OF_RANGE;
    *out_integer = value;
    return TOML_MATCH;
}

toml_match toml_match_integer(const char *token, size_t bytes, int64_t *out_integer) {
    int base = base_of(token, bytes);
    char *digits = ct_malloc(bytes + 1);
    size_t at = base == 10 ? 0 : 2, length = 0;
    if (base == 10 && bytes && (token[0] == '+' || token[0] == '-')) digits[length++] = token[at++];
    bool leading_zero = base == 10 && bytes - at > 1 && token[at] == '0';
    size_t taken = take_digits(token + at, bytes - at, base, digits, &length);
    digits[length] = 0;
    toml_match match = TOML_NO_MATCH;
    if (taken && at + taken == bytes && !leading_zero) match = convert_integer(digits, base, out_integer);
    free(digits);
    return match;
}

static bool match_special(const char *token, size_t bytes, double *out_number) {
    bool sign = bytes && (token[0] == '+' || token[0] == '-');
    if (bytes != (sign ? 4u : 3u)) return false;
    bool inf = !memcmp(token + sign, "inf", 3), nan = !memcmp(token + sign, "nan", 3);
    if (inf || nan) *out_number = copysign(inf ? INFINITY : NAN, token[0] == '-' ? -1 : 1);
    return inf || nan;
}

// Copies a float's characters without underscores; false where the token isn't one.
static bool take_float(const char *token, size_t bytes, char *out) {
    size_t at = 0, n = 0, taken;
    if (token[at] == '+' || token[at] == '-') out[n++] = token[at++];
    if (!(taken = take_digits(token + at, bytes - at, 10, out, &n))) return false;
    if (token[at] == '0' && taken > 1) return false;
    at += taken;
    bool fraction = at < bytes && token[at] == '.';
    if (fraction) {
        out[n++] = token[at++];
        if (!(taken = take_digits(token + at, bytes - at, 10, out, &n))) return false;
        at += taken;
    }
    bool exponent = at < bytes && (token[at] == 'e' || token[at] == 'E');
    if (exponent) {
        out[n++] = token[at++];
        if (at < bytes && (token[at] == '+' || token[at] == '-')) out[n++] = token[at++];
        if (!(taken = take_digits(token + at, bytes - at, 10, out, &n))) return false;
        at += taken;
    }
    out[n] = 0;
    return at == bytes && (fraction || exponent);
}

toml_match toml_match_float(const char *token, size_t bytes, double *out_number) {
    if (match_special(token, bytes, out_number)) return TOML_MATCH;
    if (!bytes) return TOML_NO_MATCH;
    char *text = ct_malloc(bytes + 1);
    bool is_float = take_float(token, bytes, text);
    if (is_float) *out_number = strtod(text, NULL);
    free(text);
    return is_float ? TOML_MATCH : TOML_NO_MATCH;
}

// ---- dates ----
// Two digits within [low, high] at *at, or false.
static bool take_two(const char **at, const char *end, int low, int high, int *out_value) {
    if (end - *at < 2 || !is_digit_of((*at)[0], 10) || !is_digit_of((*at)[1], 10)) return false;
    *out_value = 10 * ((*at)[0] - '0') + ((*at)[1] - '0');
    *at += 2;
    return *out_value >= low && *out_value <= high;
}

static bool take_char(const char **at, const char *end, const char *any_of) {
    if (*at == end || !**at || !strchr(any_of, **at)) return false;
    return ++*at, true;
}

static bool take_date(const char **at, const char *end) {
    static const int days[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    int century, year, month, day;
    if (!take_two(at, end, 0, 99, &century) || !take_two(at, end, 0, 99, &year) || !take_char(at, end, "-"))
        return false;
    year += 100 * century;
    if (!year || !take_two(at, end, 1, 12, &month) || !take_char(at, end, "-")) return false;
    bool leap = (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
    return take_two(at, end, 1, days[month - 1] + (month == 2 && leap), &day);
}

static bool take_time(const char **at, const char *end) {
    int unused;
    if (!take_two(at, end, 0, 23, &unused) || !take_char(at, end, ":") || !take_two(at, end, 0, 59, &unused))
        return false;
    if (!take_char(at, end, ":") || !take_two(at, end, 0, 59, &unused)) return false;
    if (!take_char(at, end, ".")) return true;
    if (*at == end || !is_digit_of(**at, 10)) return false;
    while (*at < end && is_digit_of(**at, 10)) ++*at;
    return true;
}

static bool take_offset(const char **at, const char *end) {
    int unused;
    if (*at == end || take_char(at, end, "zZ")) return true;
    return take_char(at, end, "+-") && take_two(at, end, 0, 23, &unused) && take_char(at, end, ":") &&
           take_two(at, end, 0, 59, &unused);
}

toml_match toml_match_date(const char *token, size_t bytes) {
    const char *at = token, *end = token + bytes;
    if (take_time(&at, end) && at == end) return TOML_MATCH;
    at = token;
    if (!take_date(&at, end)) return TOML_NO_MATCH;
    if (at == end) return TOML_MATCH;
    return take_char(&at, end, "tT ") && take_time(&at, end) && take_offset(&at, end) && at == end ? TOML_MATCH
                                                                                                   : TOML_NO_MATCH;
}
