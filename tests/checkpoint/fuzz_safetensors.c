// Feeds bytes to every reader of untrusted text here: safetensors headers, manifests, config.json, shapes in a checkpoint's state. What is let
// through must keep its promises, and a manifest must survive being printed. Built as a test it replays tests/checkpoint/corpus, each
// file also cut off; as a fuzzer, from the root:
//     clang -std=c17 -D_GNU_SOURCE -DCT_FUZZ -g -O1 -fsanitize=fuzzer,address,undefined -Isrc/base/include -Isrc/checkpoint/include
//         -Isrc/checkpoint src/base/*.c src/checkpoint/*.c tests/checkpoint/fuzz_safetensors.c -lxxhash -lm -o fuzz
//     ./fuzz -max_len=4096 new_texts tests/checkpoint/corpus
#include "checkpoint/weights.h"
#include "llama.h"
#include "manifest.h"
#include "safetensors_header.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

// The first two bytes choose the size of the data section, so that headers with tensors can be whole.
static void try_header(const char *text, size_t size) {
    if (size < 2) return;
    size_t data_bytes = (size_t)(unsigned char)text[0] | (size_t)(unsigned char)text[1] << 8, at = 0;
    ct_arena arena = {0};
    ct_safetensors_entry *entries;
    int count;
    if (!ct_safetensors_header_parse(&arena, "fuzz", text + 2, size - 2, data_bytes, &entries, &count)) {
        for (int i = 0; i < count; i++) {
            at += entries[i].end - entries[i].begin;
            if (entries[i].end > data_bytes || entries[i].dims > CT_TENSOR_DIMS) abort();
            if (i && strcmp(entries[i - 1].name, entries[i].name) >= 0) abort();
        }
        if (at != data_bytes) abort();
    }
    ct_arena_deinit(&arena);
}

static void try_manifest(const char *text, size_t size) {
    ct_manifest manifest = {0}, again = {0};
    if (!ct_manifest_parse("fuzz", text, size, &manifest)) {
        ct_string printed = {0};
        ct_manifest_print(&manifest, &printed);
        ct_status status = ct_manifest_parse("printed", printed.text, printed.length, &again);
        if (status) fprintf(stderr, "%s\n%s\n", ct_error_text(status), printed.text), abort();
        if (again.tensor_count != manifest.tensor_count || strcmp(again.state, manifest.state)) abort();
        ct_string_deinit(&printed);
    }
    ct_manifest_deinit(&manifest);
    ct_manifest_deinit(&again);
}

static void try_shapes(const char *text, size_t size) {
    ct_llama_shape shape;
    ct_status status = ct_hf_config_parse("fuzz", text, size, &shape);
    (void)status;
    char *terminated = ct_malloc(size + 1);
    memcpy(terminated, text, size);
    terminated[size] = 0;
    if (!ct_llama_shape_parse("fuzz", terminated, &shape) && (shape.dim <= 0 || shape.dim % shape.n_heads)) abort();
    free(terminated);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size) {
    char *text = ct_malloc(size); // of exactly this size, so that a sanitizer sees a byte read too far
    if (size) memcpy(text, bytes, size);
    try_header(text, size);
    try_manifest(text, size);
    try_shapes(text, size);
    free(text);
    return 0;
}

#ifndef CT_FUZZ
static int replay_file(const char *path) {
    FILE *file = fopen(path, "rb");
    if (!file) return fprintf(stderr, "cannot open %s\n", path), 1;
    static uint8_t bytes[1 << 20];
    size_t size = fread(bytes, 1, sizeof bytes, file);
    fclose(file);
    LLVMFuzzerTestOneInput(bytes, size);
    for (size_t n = 0; n < size && size < 3000; n += 1 + size / 200) LLVMFuzzerTestOneInput(bytes, n); // cut off, too
    return 0;
}

static int replay(const char *path, int *count) {
    DIR *dir = opendir(path);
    if (!dir) return ++*count, replay_file(path);
    int failed = 0;
    for (struct dirent *entry; (entry = readdir(dir));) {
        char name[4096];
        if (entry->d_name[0] == '.') continue;
        snprintf(name, sizeof name, "%s/%s", path, entry->d_name);
        failed |= replay(name, count);
    }
    closedir(dir);
    return failed;
}

int main(void) {
    int count = 0, failed = replay(CT_SOURCE_DIR "/tests/checkpoint/corpus", &count);
    printf("%d inputs replayed\n", count);
    return failed || !count;
}
#endif
