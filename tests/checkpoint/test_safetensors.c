// Safetensors: files of the format's own library are read, ours are laid out as it wants them, and headers that do not hold together are
// refused. (fixtures/make_fixtures.py made what is read here.)
#include "support.h"

#include "convert.h"
#include "safetensors_header.h"

#include <math.h>

#define FIXTURES CT_SOURCE_DIR "/tests/checkpoint/fixtures/"

// ---- reading ----
static void read_as(const ct_safetensors *file, const char *name, ct_dtype dtype, void *out) {
    const ct_safetensors_entry *entry = ct_safetensors_find(file, name);
    assert_non_null(entry);
    ct_named_tensor target = {.name = name, .dtype = dtype, .dims = entry->dims, .data = out};
    memcpy(target.shape, entry->shape, sizeof target.shape);
    void *buffer = malloc(CT_READ_BUFFER_BYTES);
    OK(ct_safetensors_read(file, entry, NULL, &target, &(ct_read_options){.buffer = buffer}, NULL));
    free(buffer);
}

static void a_file_of_the_python_package_is_read(void **state) {
    (void)state;
    ct_safetensors file;
    OK(ct_safetensors_open(FIXTURES "types.safetensors", &file));
    assert_int_equal(file.count, 9);
    float f[6];
    double d[2];
    int64_t l[2];
    int32_t i;
    uint16_t b[2];
    read_as(&file, "half", CT_F32, f);
    assert_true(f[0] == 1 && f[1] == -2.5f && f[2] == 65504 && f[3] == 0x1p-24f && isinf(f[4]) && f[5] == 0.0999755859375f);
    read_as(&file, "brain", CT_F32, f);
    assert_true(f[0] == 1 && f[1] == -3.140625f && fabsf(f[2] / 1e30f - 1) < 0x1p-8f && fabsf(f[3] / 1e-30f - 1) < 0x1p-8f);
    read_as(&file, "single", CT_F32, f);
    for (int k = 0; k < 6; k++) assert_true(f[k] == (float)(k - 3) / 7);
    read_as(&file, "double", CT_F64, d);
    assert_true(d[0] == 1.0 / 3 && d[1] == 1 + 0x1p-8 + 0x1p-40);
    read_as(&file, "double", CT_BF16, b); // rounded once: through float the second would be a tie and give 1
    assert_true(ct_f32_from_bf16(b[1]) == 1.0078125f && ct_f32_from_bf16(b[0]) == 0.333984375f);
    read_as(&file, "long", CT_I64, l);
    assert_true(l[0] == -(INT64_C(1) << 62) && l[1] == 5);
    read_as(&file, "int", CT_I32, &i);
    assert_int_equal(i, -7);
    assert_int_equal(ct_safetensors_find(&file, "empty")->shape[1], 3);
    assert_int_equal(ct_safetensors_find(&file, "flag")->type, CT_ST_BOOL);
    assert_null(ct_safetensors_find(&file, "fla"));
    ct_safetensors_close(&file);
}

static void f16_is_converted_exactly(void **state) {
    (void)state;
    for (unsigned h = 0; h < 0x10000; h++) {
        float x = ct_f32_from_f16((uint16_t)h);
        int exponent = (int)(h >> 10 & 31), mantissa = (int)(h & 1023);
        if (exponent == 31 && mantissa) {
            assert_true(isnan(x) && (ct_f16_from_f32(x) & 0x7e00) == 0x7e00);
            continue;
        }
        double magnitude = exponent == 31 ? INFINITY : exponent ? ldexp(1024 + mantissa, exponent - 25) : ldexp(mantissa, -24);
        assert_true(fabs((double)x) == magnitude && !signbit(x) == !(h & 0x8000));
        assert_int_equal(ct_f16_from_f32(x), h);
        if (exponent == 31 || (h & 0x7fff) == 0x7bff) continue;
        float up = ct_f32_from_f16((uint16_t)(h + 1)), middle = (float)(((double)x + (double)up) / 2); // a tie: to even
        assert_int_equal(ct_f16_from_f32(middle), h & 1 ? h + 1 : h);
        assert_int_equal(ct_f16_from_f32(nextafterf(middle, up)), h + 1);
        assert_int_equal(ct_f16_from_f32(nextafterf(middle, x)), h);
    }
    assert_int_equal(ct_f16_from_f32(65519.99f), 0x7bff);
    assert_int_equal(ct_f16_from_f32(65520.0f), 0x7c00);
}

// ---- writing ----
static ct_status give(void *context, int item, const void **out_bytes) { return *out_bytes = ((const void **)context)[item], CT_OK; }

static void a_written_file_is_aligned_and_read_back(void **state) {
    const char *path = ct_format("%s/a.safetensors", (char *)*state);
    uint16_t brain[3] = {0x3f80, 0x4000, 0x4040};
    double wide[2] = {1, 2};
    float f[5] = {1, 2, 3, 4, 5}, back[5];
    const void *data[] = {brain, wide, f};
    ct_safetensors_item items[] = {{.name = "b\"\\\n\xc3\xa9", .type = CT_ST_BF16, .dims = 1, .shape = {3}},
                                   {.name = "w", .type = CT_ST_F64, .dims = 2, .shape = {1, 2}},
                                   {.name = "f", .type = CT_ST_F32, .dims = 1, .shape = {5}}};
    items[0].name = "b\"\\\xc3\xa9";
    size_t bytes, size;
    ct_checksum sum;
    OK(ct_safetensors_write(&(ct_safetensors_write_options){.path = path, .metadata = "{\"a\":\"b\"}", .produce = give, .context = data}, items,
                            3, &bytes, &sum));
    ct_safetensors file;
    OK(ct_safetensors_open(path, &file));
    assert_true(file.data_begin % 8 == 0 && file.file_bytes == bytes && file.count == 3);
    for (int i = 0; i < 3; i++)
        assert_int_equal(file.entries[i].begin % (size_t)(ct_stored_type_bits(file.entries[i].type) / 8), 0);
    assert_non_null(ct_safetensors_find(&file, items[0].name));
    read_as(&file, "f", CT_F32, back);
    assert_memory_equal(back, f, sizeof f);
    ct_safetensors_close(&file);
    char *text = read_all(path, &size);
    assert_int_equal(size, bytes);
    free(text);
    free((void *)(uintptr_t)path);
}

static void checksums_are_those_of_xxhsum(void **state) {
    char *path = ct_format("%s/x.safetensors", (char *)*state);
    ct_safetensors_item item = {.name = "x", .type = CT_ST_U8, .dims = 1, .shape = {3}};
    const void *data[] = {"abc"};
    size_t bytes;
    ct_checksum sum;
    OK(ct_safetensors_write(&(ct_safetensors_write_options){.path = path, .produce = give, .context = data}, &item, 1, &bytes, &sum));
    assert_string_equal(item.checksum.hex, "06b05ab6733a618578af5f94892f3950"); // xxhash.xxh3_128_hexdigest(b"abc")
    free(path);
}

// ---- headers that are refused ----
static ct_status parse(const char *json, size_t data_bytes) {
    ct_arena arena = {0};
    ct_safetensors_entry *entries;
    int count;
    ct_status status = ct_safetensors_header_parse(&arena, "f.safetensors", json, strlen(json), data_bytes, &entries, &count);
    ct_arena_deinit(&arena);
    return status;
}

#define T(name, dtype, shape, begin, end) \
    "\"" name "\":{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":[" #begin "," #end "]}"

static void headers_that_do_not_hold_together_are_refused(void **state) {
    (void)state;
    static const struct {
        const char *json;
        size_t data_bytes;
        const char *word; // NULL: it is good
    } cases[] = {
        {"{}", 0, NULL},
        {"{} ", 4, "4 bytes of data"},
        {"{" T("a", "F32", "[2]", 0, 8) "}", 8, NULL},
        {"{" T("a", "F32", "[2]", 0, 8) "," T("b", "F4", "[2,3]", 8, 11) "}   ", 11, NULL},
        {"{\"__metadata__\":{\"format\":\"pt\"}," T("a", "F32", "[]", 0, 4) "}", 4, NULL},
        {"{" T("a", "F32", "[2]", 0, 8) "}", 12, "12 bytes of data"},
        {"{" T("a", "F32", "[2]", 0, 8) "}", 7, "a ends at byte 8"},
        {"{" T("a", "F32", "[2]", 0, 8) "," T("b", "F32", "[2]", 4, 12) "}", 12, "overlaps"},
        {"{" T("a", "F32", "[2]", 0, 8) "," T("b", "F32", "[2]", 12, 20) "}", 20, "hole"},
        {"{" T("a", "F32", "[2]", 0, 8) "," T("a", "F32", "[2]", 8, 16) "}", 16, "a stands twice"},
        {"{" T("a", "F32", "[3]", 0, 8) "}", 8, "12 bytes by its shape and 8"},
        {"{" T("a", "F32", "[-2]", 0, 8) "}", 8, "impossible shape"},
        {"{" T("a", "F32", "[4611686018427387904,4]", 0, 0) "}", 0, "impossible shape"},
        {"{" T("a", "F32", "[4611686018427387904]", 0, 0) "}", 0, "impossible shape"},
        {"{" T("a", "F4", "[3]", 0, 1) "}", 1, "impossible shape"},
        {"{" T("a", "F32", "[1,1,1,1,1,1,1,1,1]", 0, 4) "}", 4, "more than 8"},
        {"{" T("a", "F33", "[2]", 0, 8) "}", 8, "'F33' is not known"},
        {"{" T("", "F32", "[2]", 0, 8) "}", 8, "name"},
        {"{" T("a\\u0000b", "F32", "[2]", 0, 8) "}", 8, "name"},
        {"{" T("a\\nb", "F32", "[2]", 0, 8) "}", 8, "name"},
        {"{" T("a", "F32", "[2]", 8, 0) "}", 8, "begin ≤ end"},
        {"{" T("a", "F32", "[2]", -8, 0) "}", 8, "begin ≤ end"},
        {"{" T("a", "F32", "[2.5]", 0, 8) "}", 8, "whole number"},
        {"{" T("a", "F32", "[2]", 0, 99999999999999999999) "}", 8, "64 bits"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2]}}", 8, "needs dtype, shape and data_offsets"},
        {"{\"a\":{\"dtype\":\"F32\",\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}", 8, "'dtype' stands twice"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0]}}", 8, "begin ≤ end"},
        {"{\"a\":3}", 0, "wanted an object"},
        {"[]", 0, "wanted an object"},
        {"", 0, "the text ends"},
        {"{\"a", 0, "the text ends"},
        {"{\"a\\u12\":{}}", 0, "hexadecimal"},
        {"{\"a\\ud800\":{}}", 0, "needs dtype"},
        {"{\"__metadata__\":[]}", 0, "__metadata__"},
        {"{\"__metadata__\":{},\"__metadata__\":{}}", 0, "twice"},
        {"{" T("a", "F32", "[2]", 0, 8) ",}", 8, "wanted a key"},
        {"{" T("a", "F32", "[2]", 0, 8) "}x", 8, "behind the value"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ct_status status = parse(cases[i].json, cases[i].data_bytes);
        if (!cases[i].word && status) fail_msg("case %zu: %s", i, ct_error_text(status));
        if (cases[i].word && !status) fail_msg("case %zu was taken: %s", i, cases[i].json);
        if (cases[i].word) expect_error(status, CT_CORRUPT, "f.safetensors", cases[i].word, NULL);
    }
}

static void deep_nesting_is_refused(void **state) {
    (void)state;
    char json[3000] = "{\"a\":{\"x\":";
    size_t at = strlen(json);
    memset(json + at, '[', 2500);
    json[at + 2500] = 0;
    expect_error(parse(json, 0), CT_CORRUPT, "more than 512", NULL);
}

static void every_cut_off_file_is_refused(void **state) {
    char *path = ct_format("%s/cut.safetensors", (char *)*state);
    size_t size;
    char *bytes = read_all(FIXTURES "types.safetensors", &size);
    ct_safetensors file;
    for (size_t n = 0; n < size; n++) {
        write_all(path, bytes, n);
        expect_error(ct_safetensors_open(path, &file), CT_CORRUPT, "cut.safetensors", NULL);
    }
    memset(bytes, 0xff, 8); // a header of 2^64 - 1 bytes
    write_all(path, bytes, size);
    expect_error(ct_safetensors_open(path, &file), CT_CORRUPT, "header of 18446744073709551615 bytes", NULL);
    free(bytes);
    expect_error(ct_safetensors_open("/nowhere/x.safetensors", &file), CT_NOT_FOUND, "/nowhere/x.safetensors", NULL);
    expect_error(ct_safetensors_open(*state, &file), CT_INVALID, "regular file", NULL);
    free(path);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_file_of_the_python_package_is_read),
        cmocka_unit_test(f16_is_converted_exactly),
        cmocka_unit_test_setup_teardown(a_written_file_is_aligned_and_read_back, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(checksums_are_those_of_xxhsum, make_folder, remove_folder),
        cmocka_unit_test(headers_that_do_not_hold_together_are_refused),
        cmocka_unit_test(deep_nesting_is_refused),
        cmocka_unit_test_setup_teardown(every_cut_off_file_is_refused, make_folder, remove_folder),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
