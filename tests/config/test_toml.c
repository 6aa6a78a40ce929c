// The TOML reader: tomllib's verdicts and values on kept documents, places, messages, sizes.
#include "toml.h"
#include "toml_dump.h"

#include "base/file.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

// Reads one case and compares with tomllib's; true where they agree.
static bool agrees(const toml_case *item) {
    ct_arena arena = {0};
    ct_string found = {0};
    ct_toml_value *root;
    ct_status error = ct_toml_parse(&arena, "case", item->document, item->document_bytes, &root);
    if (!error) toml_dump(root, &found);
    bool same = item->dump
                    ? !error && found.length == item->dump_bytes && !memcmp(found.text, item->dump, found.length)
                    : error && ct_error_code(error) == CT_INVALID && !strncmp(ct_error_text(error), "case:", 5);
    if (!same)
        printf("---\n%.*s\n--- wanted %.*s\n--- found  %s\n", (int)item->document_bytes, item->document,
               (int)item->dump_bytes, item->dump ? item->dump : "a refusal",
               error ? ct_error_text(error) : found.text);
    ct_string_deinit(&found);
    ct_arena_deinit(&arena);
    return same;
}

static void it_reads_and_refuses_what_tomllib_does(void **state) {
    (void)state;
    char *text;
    size_t bytes, at = 0;
    assert_null(ct_file_read(CT_SOURCE_DIR "/tests/config/fixtures/toml_cases.txt", 0, &text, &bytes));
    toml_case item;
    long taken;
    int cases = 0, accepted = 0, wrong = 0;
    while ((taken = toml_case_parse(text + at, bytes - at, &item)) > 0) {
        cases++, accepted += item.dump != NULL, wrong += !agrees(&item);
        at += (size_t)taken;
    }
    free(text);
    assert_int_equal(taken, 0);
    assert_true(cases > 700 && accepted > 200);
    assert_int_equal(wrong, 0);
}

static void every_value_knows_its_line_and_column(void **state) {
    (void)state;
    static const char text[] =
        "# é\r\na = 1\n[s.t]\n  'é' = \"ü\"\n  x.y = [ 1,\n\t\"\"\"\nlong\"\"\", {z = 2.5}]\n[[u]]\n";
    ct_arena arena = {0};
    ct_toml_value *root;
    assert_null(ct_toml_parse(&arena, "x", text, sizeof text - 1, &root));
    const ct_toml_value *a = ct_toml_find(root, "a"), *t = ct_toml_find(ct_toml_find(root, "s"), "t");
    const ct_toml_value *e = ct_toml_find(t, "é"), *y = ct_toml_find(ct_toml_find(t, "x"), "y");
    assert_int_equal(a->line, 2), assert_int_equal(a->column, 5);
    assert_int_equal(t->line, 3), assert_int_equal(t->column, 4);
    assert_int_equal(e->line, 4), assert_int_equal(e->column, 9);
    assert_int_equal(t->entries[0].line, 4), assert_int_equal(t->entries[0].column, 3);
    assert_int_equal(y->line, 5), assert_int_equal(y->column, 9);
    assert_int_equal(y->items[0]->line, 5), assert_int_equal(y->items[0]->column, 11);
    assert_int_equal(y->items[1]->line, 6), assert_int_equal(y->items[1]->column, 2);
    const ct_toml_value *z = ct_toml_find(y->items[2], "z");
    assert_int_equal(z->line, 7), assert_int_equal(z->column, 15);
    assert_int_equal(ct_toml_find(root, "u")->items[0]->line, 8);
    ct_arena_deinit(&arena);
}

static void assert_refused(const char *text, const char *message) {
    ct_arena arena = {0};
    ct_toml_value *root;
    ct_status error = ct_toml_parse(&arena, "x.toml", text, strlen(text), &root);
    assert_non_null(error);
    assert_string_equal(ct_error_text(error), message);
    ct_arena_deinit(&arena);
}

static void each_refusal_says_what_was_found_and_wanted_and_where(void **state) {
    (void)state;
    static const char *const cases[][2] = {
        {"a = ", "x.toml:1:5: a value is wanted here, found the end of the file"},
        {"a = \n", "x.toml:1:5: a value is wanted here, found the end of the line"},
        {"a = ,", "x.toml:1:5: a value is wanted here, found ','"},
        {"a", "x.toml:1:2: '=' is wanted behind the key a, found the end of the file"},
        {"a b = 1", "x.toml:1:3: '=' is wanted behind the key a, found 'b'"},
        {"= 1", "x.toml:1:1: a key is wanted here, found '='"},
        {"a. = 1", "x.toml:1:4: a key is wanted here, found '='"},
        {"é = 1", "x.toml:1:1: a key is wanted here, found 'é'"},
        {"a = 1 b", "x.toml:1:7: the end of the line is wanted here, found 'b'"},
        {"a = x", "x.toml:1:5: 'x' is no value; a string needs quotes: \"x\""},
        {"a = True", "x.toml:1:5: 'True' is no value; a string needs quotes: \"True\""},
        {"a = 01", "x.toml:1:5: '01' is no number or date as TOML writes them"},
        {"a = 2023-02-29", "x.toml:1:5: '2023-02-29' is no number or date as TOML writes them"},
        {"a = 9223372036854775808", "x.toml:1:5: 9223372036854775808 does not fit into a signed 64-bit integer"},
        {"a = \"x", "x.toml:1:5: the string that begins here has no end"},
        {"a = \"x\n\"", "x.toml:1:5: the string that begins here has no end on its line"},
        {"\n a = \"\"\"x\n", "x.toml:2:6: the string that begins here has no end"},
        {"a = \"é\\x\"",
         "x.toml:1:7: a backslash can't be followed by 'x'; single quotes take backslashes as they are"},
        {"a = \"\\u12g4\"", "x.toml:1:10: 4 hexadecimal digits are wanted here, found 'g'"},
        {"a = \"\\ud800\"", "x.toml:1:6: U+D800 is no character"},
        {"a = '\x01'", "x.toml:1:6: a string can't hold the control character 0x01 as it is"},
        {"# \x7f", "x.toml:1:3: a comment can't hold the control character 0x7f"},
        {"a = '\xff'", "x.toml:1:6: the byte 0xff is no part of UTF-8 text"},
        {"a = [1 2]", "x.toml:1:8: ',' or ']' is wanted here, found '2'"},
        {"a = [1,\n", "x.toml:1:5: the array that begins here has no ']'"},
        {"a = {b = 1", "x.toml:1:5: the inline table that begins here has no '}'"},
        {"a = {b = 1\n}",
         "x.toml:1:11: ',' or '}' is wanted here, found the end of the line (an inline table stands on one line)"},
        {"[a", "x.toml:1:3: ']' is wanted behind the table's name, found the end of the file"},
        {"[[a]", "x.toml:1:4: ']]' is wanted behind the table's name, found ']'"},
        {"\"\"\"a\"\"\" = 1", "x.toml:1:1: a key can't be a string of several lines"},
        {"a = 1\n\na = 2", "x.toml:3:1: a is given a second time; first (line 1)"},
        {"[a]\nb.c = 1\n[a]", "x.toml:3:2: a is defined a second time; first (line 1)"},
        {"a = 1\n[a.b]", "x.toml:2:2: a is already a value and can't be a table (line 1)"},
        {"a = 1\n[a]", "x.toml:2:2: a is already a value and can't be a table (line 1)"},
        {"a = {}\na.b = 1", "x.toml:2:1: a is a table in braces and can't be added to (line 1)"},
        {"a = 1\na.b = 1", "x.toml:2:1: a is already a value and can't hold keys (line 1)"},
        {"a = {}\n[a.b]", "x.toml:2:2: a is given as a value and can't be added to (line 1)"},
        {"[a.b]\n[a]\nb.c = 1",
         "x.toml:3:1: b is defined elsewhere and can't be added to with a dotted key (line 1)"},
        {"a = []\n[[a]]", "x.toml:2:3: a is no array of tables; first defined (line 1)"},
        {"'\n' = 1", "x.toml:1:1: the string that begins here has no end on its line"},
        {"'q r'.\"\\n\" = 1\n'q r'.\"\\n\" = 1", "x.toml:2:7: \"q r\".\"?\" is given a second time; first (line 1)"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) assert_refused(cases[i][0], cases[i][1]);
}

static char *repeat(const char *before, const char *part, int times, const char *after) {
    ct_string text = {0};
    ct_string_add(&text, "%s", before);
    for (int i = 0; i < times; i++) ct_string_add(&text, "%s", part);
    ct_string_add(&text, "%s", after);
    return text.text;
}

static void nesting_and_dotting_have_a_limit(void **state) {
    (void)state;
    char *deep = repeat("a = ", "[", 100000, ""), *dotted = repeat("a", ".a", 100000, " = 1"),
         *tables = repeat("a = ", "{a=", 200, "");
    assert_refused(deep, "x.toml:1:105: values are nested more than 100 deep");
    assert_refused(dotted, "x.toml:1:201: a key has at most 100 parts");
    assert_refused(tables, "x.toml:1:305: values are nested more than 100 deep");
    free(deep), free(dotted), free(tables);
}

static void a_large_table_and_a_long_line_read_fast(void **state) {
    (void)state;
    ct_string text = {0};
    for (int i = 0; i < 200000; i++) ct_string_add(&text, "k%d = %d\n", i, i);
    ct_string_add(&text, "long = [");
    for (int i = 0; i < 200000; i++) ct_string_add(&text, "%d, ", i);
    ct_string_add(&text, "]\n");
    ct_arena arena = {0};
    ct_toml_value *root;
    assert_null(ct_toml_parse(&arena, "x", text.text, text.length, &root));
    assert_int_equal(root->entry_count, 200001);
    assert_int_equal(ct_toml_find(root, "k123456")->integer, 123456);
    assert_int_equal(ct_toml_find(root, "long")->items[199999]->integer, 199999);
    ct_string_deinit(&text);
    ct_arena_deinit(&arena);
}

static void a_byte_order_mark_is_skipped(void **state) {
    (void)state;
    ct_arena arena = {0};
    ct_toml_value *root;
    assert_null(ct_toml_parse(&arena, "x",
                              "\xef\xbb\xbf"
                              "a = 1",
                              8, &root));
    assert_int_equal(ct_toml_find(root, "a")->column, 5);
    ct_arena_deinit(&arena);
}

static void a_single_value_stands_alone(void **state) {
    (void)state;
    ct_arena arena = {0};
    ct_toml_value *value;
    assert_null(ct_toml_parse_value(&arena, "v", " [1, \"a\"] ", 10, &value));
    assert_int_equal(value->item_count, 2);
    ct_status error = ct_toml_parse_value(&arena, "v", "1 2", 3, &value);
    assert_string_equal(ct_error_text(error), "v:1:3: nothing is wanted behind the value, found '2'");
    error = ct_toml_parse_value(&arena, "v", "", 0, &value);
    assert_string_equal(ct_error_text(error), "v:1:1: a value is wanted here, found the end of the file");
    ct_arena_deinit(&arena);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_reads_and_refuses_what_tomllib_does),
        cmocka_unit_test(every_value_knows_its_line_and_column),
        cmocka_unit_test(each_refusal_says_what_was_found_and_wanted_and_where),
        cmocka_unit_test(nesting_and_dotting_have_a_limit),
        cmocka_unit_test(a_large_table_and_a_long_line_read_fast),
        cmocka_unit_test(a_byte_order_mark_is_skipped),
        cmocka_unit_test(a_single_value_stands_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
