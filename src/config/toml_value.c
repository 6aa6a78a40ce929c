// TOML's values: strings, arrays, inline tables, and the tokens that are numbers, booleans and dates.
#include "toml_parse.h"

#include <string.h>

static bool is_token_char(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || (c && strchr("_+-.:", c));
}

static bool is_digit(char c) { return c >= '0' && c <= '9'; }

// The token at `at`; a date and a time may be parted by one space.
static size_t token_bytes(const char *at, const char *end) {
    const char *stop = at;
    while (stop < end && is_token_char(*stop)) stop++;
    bool date = stop - at == 10 && at[4] == '-' && at[7] == '-';
    if (date && end - stop > 3 && stop[0] == ' ' && is_digit(stop[1]) && is_digit(stop[2]) && stop[3] == ':')
        for (stop++; stop < end && is_token_char(*stop);) stop++;
    return (size_t)(stop - at);
}

static ct_status refuse_token(toml_parser *p, const char *token, size_t bytes) {
    int shown = bytes > 60 ? 60 : (int)bytes;
    if (is_digit(*token) || *token == '+' || *token == '-' || *token == '.')
        return toml_fail(p, token, "'%.*s' is no number or date as TOML writes them", shown, token);
    return toml_fail(p, token, "'%.*s' is no value; a string needs quotes: \"%.*s\"", shown, token, shown, token);
}

static ct_status read_token(toml_parser *p, ct_toml_value **out_value) {
    const char *token = p->at;
    size_t bytes = token_bytes(token, p->end);
    if (!bytes) return toml_fail(p, p->at, "a value is wanted here, found %s", toml_shown(p));
    ct_toml_value *value = toml_new_value(p, CT_TOML_BOOL, token);
    p->at += bytes;
    *out_value = value;
    if (bytes == 4 && !memcmp(token, "true", 4)) return value->boolean = true, CT_OK;
    if (bytes == 5 && !memcmp(token, "false", 5)) return CT_OK;
    value->kind = CT_TOML_INT;
    toml_match integer = toml_match_integer(token, bytes, &value->integer);
    if (integer == TOML_OUT_OF_RANGE)
        return toml_fail(p, token, "%.*s does not fit into a signed 64-bit integer", bytes > 60 ? 60 : (int)bytes,
                         token);
    if (integer == TOML_MATCH) return CT_OK;
    value->kind = CT_TOML_FLOAT;
    if (toml_match_float(token, bytes, &value->number) == TOML_MATCH) return CT_OK;
    if (toml_match_date(token, bytes) != TOML_MATCH) return refuse_token(p, token, bytes);
    value->kind = CT_TOML_DATE;
    value->text = ct_arena_strndup(p->arena, token, bytes);
    value->bytes = bytes;
    return CT_OK;
}

static ct_status read_array(toml_parser *p, ct_toml_value *array) {
    const char *opening = p->at++;
    for (bool first = true;; first = false) {
        CT_TRY(toml_skip_blanks_and_lines(p));
        if (!first && p->at < p->end && *p->at == ',') {
            p->at++;
            CT_TRY(toml_skip_blanks_and_lines(p));
        } else if (!first && p->at < p->end && *p->at != ']') {
            return toml_fail(p, p->at, "',' or ']' is wanted here, found %s", toml_shown(p));
        }
        if (p->at == p->end) return toml_fail(p, opening, "the array that begins here has no ']'");
        if (*p->at == ']') return p->at++, CT_OK;
        ct_toml_value *item;
        CT_TRY(toml_read_value(p, &item));
        toml_array_add(p, array, item);
    }
}

static ct_status read_inline_table(toml_parser *p, ct_toml_value *table) {
    const char *opening = p->at++;
    toml_skip_blanks(p);
    if (p->at < p->end && *p->at == '}') return p->at++, CT_OK;
    for (;;) {
        toml_key key;
        ct_toml_value *value;
        CT_TRY(toml_read_pair(p, &key, &value));
        CT_TRY(toml_insert(p, table, &key, value));
        toml_skip_blanks(p);
        if (p->at == p->end) return toml_fail(p, opening, "the inline table that begins here has no '}'");
        if (*p->at == '}') return p->at++, CT_OK;
        if (*p->at != ',')
            return toml_fail(p, p->at, "',' or '}' is wanted here, found %s (an inline table stands on one line)",
                             toml_shown(p));
        p->at++;
        toml_skip_blanks(p);
    }
}

static ct_status read_compound(toml_parser *p, ct_toml_value **out_value) {
    if (p->depth == TOML_MAX_DEPTH) return toml_fail(p, p->at, "values are nested more than %d deep", TOML_MAX_DEPTH);
    p->depth++;
    bool array = *p->at == '[';
    ct_toml_value *value = toml_new_value(p, array ? CT_TOML_ARRAY : CT_TOML_TABLE, p->at);
    CT_TRY(array ? read_array(p, value) : read_inline_table(p, value));
    value->frozen = true;
    p->depth--;
    *out_value = value;
    return CT_OK;
}

ct_status toml_read_value(toml_parser *p, ct_toml_value **out_value) {
    char c = p->at < p->end ? *p->at : 0;
    if (c == '[' || c == '{') return read_compound(p, out_value);
    if (c != '"' && c != '\'') return read_token(p, out_value);
    ct_toml_value *value = toml_new_value(p, CT_TOML_STRING, p->at);
    CT_TRY(toml_read_string(p, &value->text, &value->bytes));
    *out_value = value;
    return CT_OK;
}

ct_status toml_read_pair(toml_parser *p, toml_key *out_key, ct_toml_value **out_value) {
    CT_TRY(toml_read_key(p, out_key));
    if (p->at == p->end || *p->at != '=')
        return toml_fail(p, p->at, "'=' is wanted behind the key %s, found %s",
                         toml_key_text(p, out_key, out_key->count), toml_shown(p));
    p->at++;
    toml_skip_blanks(p);
    return toml_read_value(p, out_value);
}
