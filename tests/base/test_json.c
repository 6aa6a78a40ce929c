// base/json: what RFC 8259 allows and nothing else, values exact, errors with their place, no bomb by nesting.
#include "base/json.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

// All tokens as text: braces, "k:" keys, strings in quotes, numbers as written; or the error.
static char *walk(const char *text, size_t length) {
    ct_json json;
    ct_string out = {0};
    ct_json_init(&json, "f.json", 1, text, length);
    for (;;) {
        ct_status status = ct_json_next(&json);
        if (status) {
            out.length = 0;
            ct_string_add(&out, "%s", ct_error_text(status));
            break;
        }
        static const char *const plain[] = {"", "{", "}", "[", "]", "", "", "", "t", "f", "n"};
        if (json.kind == CT_JSON_END) break;
        if (json.kind == CT_JSON_KEY) ct_string_add(&out, "%.*s:", (int)json.length, json.string);
        else if (json.kind == CT_JSON_STRING) ct_string_add(&out, "'%.*s'", (int)json.length, json.string);
        else if (json.kind == CT_JSON_NUMBER) ct_string_add(&out, "%.*s,", (int)json.length, json.string);
        else ct_string_add(&out, "%s", plain[json.kind]);
    }
    if (!out.text) ct_string_add(&out, "%s", "");
    ct_json_deinit(&json);
    return out.text;
}

static void assert_walk(const char *text, const char *want) {
    char *copy = malloc(strlen(text) + 1); // exactly sized: sanitizers see a read behind the end
    memcpy(copy, text, strlen(text));
    char *got = walk(copy, strlen(text));
    assert_string_equal(got, want);
    free(got);
    free(copy);
}

static void what_the_grammar_allows_is_read(void **state) {
    (void)state;
    assert_walk(" {\"a\" : [1, -0, 2.5e-3,\t{}], \"\":null}\r\n", "{a:[1,-0,2.5e-3,{}]:n}");
    assert_walk("[]", "[]");
    assert_walk("[[],[[true]],{\"x\":{\"y\":false}}]", "[[][[t]]{x:{y:f}}]");
    assert_walk("\"lone\"", "'lone'");
    assert_walk("0", "0,");
    assert_walk("[1E400,1e+2,-1.0]", "[1E400,1e+2,-1.0,]");
    assert_walk("{\"a\":1,\"a\":2}", "{a:1,a:2,}");
    assert_walk("[\"a long string that is longer than eight bytes, \xc3\xa9\xff\"]", "['a long string that is longer than eight bytes, \xc3\xa9\xff']");
}

static void strings_are_decoded_exactly(void **state) {
    (void)state;
    assert_walk("\"\\\"\\\\\\/\\b\\f\\n\\r\\t\"", "'\"\\/\b\f\n\r\t'");
    assert_walk("\"\\u0041\\u00e9\\u20AC\\uD83D\\ude42x\"", "'A\xc3\xa9\xe2\x82\xac\xf0\x9f\x99\x82x'");
    assert_walk("\"\\ud83dx\\ude42\\ud83d\\ud83d\\ude42\"", "'\xef\xbf\xbdx\xef\xbf\xbd\xef\xbf\xbd\xf0\x9f\x99\x82'");
    assert_walk("{\"k\\u0065y\":\"v\\n\"}", "{key:'v\n'}");
    ct_json json;
    ct_json_init(&json, "f", 1, "\"a\\u0000b\"", 10);
    assert_null(ct_json_expect(&json, CT_JSON_STRING));
    assert_int_equal(json.length, 3);
    assert_memory_equal(json.string, "a\0b", 3);
    ct_json_deinit(&json);
    for (int at = 0; at < 24; at++) // each place in the words that are looked at at once
        for (int c = 0; c < 256; c++) {
            char text[32], *got;
            memset(text, 'x', sizeof text);
            text[0] = text[25] = '"';
            text[1 + at] = (char)c;
            got = walk(text, 26);
            int good = c >= 0x20 && c != '"' && c != '\\';
            assert_int_equal(strstr(got, "f.json") == NULL, good);
            if (good) assert_memory_equal(got + 1, text + 1, 24);
            free(got);
        }
}

static void errors_say_place_found_and_wanted(void **state) {
    (void)state;
    assert_walk("", "f.json:1:1: the text ends here, wanted a value");
    assert_walk("{\n  \"a\": 1,\n  }", "f.json:3:3: found '}', wanted a key in quotes");
    assert_walk("[1,]", "f.json:1:4: found ']', wanted a value");
    assert_walk("[1 2]", "f.json:1:4: found '2', wanted ',' or ']'");
    assert_walk("[1", "f.json:1:3: the text ends here, wanted ',' or ']'");
    assert_walk("{\"a\" 1}", "f.json:1:6: found '1', wanted ':'");
    assert_walk("{1:2}", "f.json:1:2: found '1', wanted a key in quotes");
    assert_walk("[}", "f.json:1:2: found '}', wanted a value");
    assert_walk("{]", "f.json:1:2: found ']', wanted a key in quotes");
    assert_walk("]", "f.json:1:1: found ']', wanted an object or another value");
    assert_walk("01", "f.json:1:2: found '1', wanted no digit behind a leading 0");
    assert_walk("-", "f.json:1:2: the text ends here, wanted a digit");
    assert_walk("1.", "f.json:1:3: the text ends here, wanted a digit");
    assert_walk(".5", "f.json:1:1: found '.', wanted an object or another value");
    assert_walk("+1", "f.json:1:1: found '+', wanted an object or another value");
    assert_walk("1e", "f.json:1:3: the text ends here, wanted a digit");
    assert_walk("[NaN]", "f.json:1:2: found 'N', wanted a value");
    assert_walk("[tru]", "f.json:1:2: found 't', wanted a value");
    assert_walk("[truee]", "f.json:1:6: found 'e', wanted ',' or ']'");
    assert_walk("'a'", "f.json:1:1: found ''', wanted an object or another value");
    assert_walk("\"a", "f.json:1:3: the text ends here, wanted the string's closing '\"'");
    assert_walk("\"a\\", "f.json:1:4: the text ends here, wanted an escape: one of \"\\/bfnrtu");
    assert_walk("\"\\u12g4\"", "f.json:1:4: found '1', wanted four hexadecimal digits");
    assert_walk("\"\\u12", "f.json:1:4: found '1', wanted four hexadecimal digits");
    assert_walk("1 1", "f.json:1:3: found '1', wanted nothing behind the value");
    assert_walk("\xef\xbb\xbf{}", "f.json:1:1: found the byte 0xef, wanted an object or another value");
    assert_walk("[1,\n2,\n\n x", "f.json:4:2: found 'x', wanted a value");
}

static void nesting_is_bounded(void **state) {
    (void)state;
    size_t n = 1000000;
    char *text = malloc(n), *got;
    memset(text, '[', n);
    got = walk(text, n);
    assert_string_equal(got, "f.json:1:513: more than 512 objects and arrays inside one another");
    free(got);
    memset(text + 512, ']', 512);
    got = walk(text, 1024);
    assert_int_equal(strlen(got), 1024);
    free(got);
    free(text);
}

static void numbers_are_exact(void **state) {
    (void)state;
    static const struct {
        const char *text;
        int64_t value;
        const char *error;
    } cases[] = {
        {"0", 0, NULL},
        {"-0", 0, NULL},
        {"9223372036854775807", INT64_MAX, NULL},
        {"-9223372036854775808", INT64_MIN, NULL},
        {"9223372036854775808", 0, "does not fit 64 bits"},
        {"-9223372036854775809", 0, "does not fit 64 bits"},
        {"1e3", 0, "wanted a whole number"},
        {"1.0", 0, "wanted a whole number"},
        {"true", 0, "found 'true', wanted a number"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ct_json json;
        int64_t value = -1;
        ct_json_init(&json, "f", 1, cases[i].text, strlen(cases[i].text));
        ct_status status = ct_json_expect_integer(&json, &value);
        if (cases[i].error) assert_non_null(strstr(ct_error_text(status), cases[i].error));
        else assert_true(!status && value == cases[i].value);
        ct_json_deinit(&json);
    }
    static const char *const doubles[] = {"0.1", "-1e-320", "1.7976931348623157e308", "123456789012345678901234567890.123456789012345678901234567890123456789"};
    for (size_t i = 0; i < sizeof doubles / sizeof *doubles; i++) {
        ct_json json;
        double value;
        ct_json_init(&json, "f", 1, doubles[i], strlen(doubles[i]));
        assert_null(ct_json_expect_double(&json, &value));
        assert_true(value == strtod(doubles[i], NULL));
        ct_json_deinit(&json);
    }
}

static void values_can_be_skipped_and_held(void **state) {
    (void)state;
    const char *text = "{\"skip\": {\"a\": [1, {\"b\": \"\\n\"}]}, \"keep\": \"x\\ty\", \"other\": \"\\n\\n\\n\\n\", \"plain\": \"p\", \"n\": 5} ";
    ct_json json;
    ct_string held = {0}, held_too = {0};
    const char *keep = NULL, *plain = NULL;
    int64_t n = 0;
    ct_json_init(&json, "f", 1, text, strlen(text));
    assert_null(ct_json_expect(&json, CT_JSON_OBJECT));
    for (;;) {
        assert_null(ct_json_next(&json));
        if (json.kind == CT_JSON_OBJECT_END) break;
        if (ct_json_is(&json, "keep")) assert_null(ct_json_expect(&json, CT_JSON_STRING)), keep = ct_json_hold(&json, &held);
        else if (ct_json_is(&json, "plain")) assert_null(ct_json_expect(&json, CT_JSON_STRING)), plain = ct_json_hold(&json, &held_too);
        else if (ct_json_is(&json, "n")) assert_null(ct_json_expect_integer(&json, &n));
        else assert_null(ct_json_skip(&json));
    }
    assert_null(ct_json_expect(&json, CT_JSON_END));
    assert_memory_equal(keep, "x\ty", 3);
    assert_memory_equal(plain, "p", 1);
    assert_int_equal(n, 5);
    assert_null(ct_json_next(&json));
    assert_int_equal(json.kind, CT_JSON_END);
    ct_json_deinit(&json);
    ct_string_deinit(&held);
    ct_string_deinit(&held_too);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_the_grammar_allows_is_read), cmocka_unit_test(strings_are_decoded_exactly),
        cmocka_unit_test(errors_say_place_found_and_wanted), cmocka_unit_test(nesting_is_bounded),
        cmocka_unit_test(numbers_are_exact), cmocka_unit_test(values_can_be_skipped_and_held),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
