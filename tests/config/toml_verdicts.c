// For compare_toml.py: reads cases (toml_dump.h) on standard input and writes one line each: its dump, or "error "
// and the message.
#include "toml_dump.h"

#include <stdio.h>
#include <stdlib.h>

static char *read_all(size_t *out_bytes) {
    ct_string text = {0};
    char chunk[65536];
    for (size_t n; (n = fread(chunk, 1, sizeof chunk, stdin));) ct_string_add_bytes(&text, chunk, n);
    *out_bytes = text.length;
    return text.text;
}

static void print_verdict(const toml_case *item) {
    ct_arena arena = {0};
    ct_string out = {0};
    ct_toml_value *root;
    ct_status error = ct_toml_parse(&arena, "x", item->document, item->document_bytes, &root);
    if (error)
        ct_string_add(&out, "error %s", ct_error_text(error));
    else
        toml_dump(root, &out);
    fwrite(out.text, 1, out.length, stdout);
    putchar('\n');
    ct_string_deinit(&out);
    ct_arena_deinit(&arena);
}

int main(void) {
    size_t bytes, at = 0;
    char *text = read_all(&bytes);
    toml_case item;
    long taken;
    while ((taken = toml_case_parse(text + at, bytes - at, &item)) > 0) {
        print_verdict(&item);
        at += (size_t)taken;
    }
    free(text);
    return taken < 0;
}
