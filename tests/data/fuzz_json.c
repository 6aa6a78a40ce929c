// Fuzzes the JSON reader and, through it, saved data positions. `make test` replays fuzz_corpus/json; to look for more:
//   clang -std=gnu17 -g -O1 -DCT_FUZZ -fsanitize=fuzzer,address,undefined -Isrc/base/include tests/data/fuzz_json.c
//     src/base/json.c src/base/memory.c src/base/status.c -o fuzz_json && ./fuzz_json tests/data/fuzz_corpus/json
// Of each text it wants: no crash, an end; that skipping agrees with reading; that what was read, written and read again is the same.
#include "base/json.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WANT(condition)                                                                                                \
    do {                                                                                                               \
        if (!(condition)) fprintf(stderr, "fuzz_json: not so: %s\n", #condition), abort();                             \
    } while (0)

static void add_string(ct_string *out, const char *text, size_t length) {
    ct_string_add(out, "\"");
    for (size_t i = 0; i < length; i++) {
        unsigned char c = (unsigned char)text[i];
        if (c < 0x20 || c == '"' || c == '\\') ct_string_add(out, "\\u%04x", c);
        else ct_string_add_bytes(out, text + i, 1);
    }
    ct_string_add(out, "\"");
}

// Reads a text whole and writes it again; 1 where it is JSON.
static int rewrite(const char *text, size_t length, ct_string *out) {
    ct_json json;
    ct_json_init(&json, "fuzz", 1, text, length);
    int good = 0, comma = 0;
    while (!ct_json_next(&json)) {
        WANT(json.depth >= 0 && json.depth <= CT_JSON_DEPTH_MAX);
        if ((good = json.kind == CT_JSON_END)) break;
        int closes = json.kind == CT_JSON_OBJECT_END || json.kind == CT_JSON_ARRAY_END;
        if (comma && !closes) ct_string_add(out, ",");
        comma = !(json.kind == CT_JSON_OBJECT || json.kind == CT_JSON_ARRAY || json.kind == CT_JSON_KEY);
        switch (json.kind) {
        case CT_JSON_OBJECT: ct_string_add(out, "{"); break;
        case CT_JSON_OBJECT_END: ct_string_add(out, "}"); break;
        case CT_JSON_ARRAY: ct_string_add(out, "["); break;
        case CT_JSON_ARRAY_END: ct_string_add(out, "]"); break;
        case CT_JSON_KEY: add_string(out, json.string, json.length), ct_string_add(out, ":"); break;
        case CT_JSON_STRING: add_string(out, json.string, json.length); break;
        case CT_JSON_NUMBER: {
            int64_t whole;
            ct_status status = ct_json_integer(&json, &whole);
            double real = ct_json_double(&json);
            WANT(status || (double)whole == real);
            ct_string_add_bytes(out, json.string, json.length);
            break;
        }
        default: ct_string_add(out, "%s", json.kind == CT_JSON_TRUE ? "true" : json.kind == CT_JSON_FALSE ? "false" : "null");
        }
    }
    ct_json_deinit(&json);
    return good;
}

static int skips(const char *text, size_t length) {
    ct_json json;
    ct_json_init(&json, "fuzz", 1, text, length);
    int good = !ct_json_skip(&json) && !ct_json_expect(&json, CT_JSON_END);
    ct_json_deinit(&json);
    return good;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size) {
    const char *text = (const char *)bytes;
    ct_string once = {0}, twice = {0};
    int good = rewrite(text, size, &once);
    WANT(good == skips(text, size));
    if (good) {
        WANT(rewrite(once.text, once.length, &twice));
        WANT(once.length == twice.length && !memcmp(once.text, twice.text, once.length));
    }
    ct_string_deinit(&once);
    ct_string_deinit(&twice);
    return 0;
}

#ifndef CT_FUZZ
#include "base/file.h"

int main(int argc, char **argv) {
    const char *folder = argc > 1 ? argv[1] : CT_SOURCE_DIR "/tests/data/fuzz_corpus/json";
    DIR *dir = opendir(folder);
    int count = 0;
    WANT(dir);
    for (struct dirent *e; (e = readdir(dir));) {
        if (e->d_name[0] == '.') continue;
        char *path = ct_format("%s/%s", folder, e->d_name), *text;
        size_t size;
        WANT(!ct_file_read(path, 0, &text, &size));
        uint8_t *exact = malloc(size ? size : 1); // no byte behind the end
        memcpy(exact, text, size);
        LLVMFuzzerTestOneInput(exact, size);
        free(exact);
        free(text);
        free(path);
        count++;
    }
    closedir(dir);
    printf("fuzz_json: %d texts replayed\n", count);
    return count ? 0 : 1;
}
#endif
