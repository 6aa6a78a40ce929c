// A text is refused with a message that names its place, or read; a config that was read prints to TOML that reads
// back to the same. Built as a test it replays tests/config/corpus, whole, cut off and with bits changed; as a
// fuzzer, from the root:
//     clang -std=c17 -D_GNU_SOURCE -DCT_FUZZ -g -O1 -fsanitize=fuzzer,address,undefined -Isrc/base/include
//     -Isrc/config/include
//         -Isrc/config src/base/{memory,status,file}.c src/config/*.c tests/config/fuzz_toml.c -lxxhash -o fuzz
//     ./fuzz -max_len=2048 -dict=tests/config/toml.dict new_texts tests/config/corpus
#include "config/config.h"
#include "toml.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void read_again(ct_arena *arena, const ct_config *config) {
    ct_string first = {0}, second = {0};
    ct_config *again;
    ct_config_print_resolved(config, &first);
    ct_status status = ct_config_parse(arena, "fuzz", first.text, first.length, 0, NULL, &again);
    CT_ASSERT(!status, "what was printed does not read: %s\n%s", ct_error_text(status), first.text);
    ct_config_print_resolved(again, &second);
    CT_ASSERT(!strcmp(first.text, second.text), "the second print differs:\n%s\n%s", first.text, second.text);
    CT_ASSERT(ct_config_hash(config) == ct_config_hash(again), "the hash differs:\n%s", first.text);
    ct_string_deinit(&first);
    ct_string_deinit(&second);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    ct_arena arena = {0};
    ct_toml_value *root;
    ct_status status = ct_toml_parse(&arena, "fuzz", (const char *)data, size, &root);
    CT_ASSERT(!status || !strncmp(ct_error_text(status), "fuzz:", 5), "no place in '%s'", ct_error_text(status));
    if (!status) {
        ct_config *config;
        status = ct_config_parse(&arena, "fuzz", (const char *)data, size, 0, NULL, &config);
        CT_ASSERT(!status || !strncmp(ct_error_text(status), "fuzz:", 5), "no place in '%s'", ct_error_text(status));
        if (!status) read_again(&arena, config);
    }
    ct_arena_deinit(&arena);
    return 0;
}

#ifndef CT_FUZZ
#include "base/file.h"

#include <dirent.h>

static int replay(const char *path) {
    char *text;
    size_t size;
    ct_status status = ct_file_read(path, 0, &text, &size);
    if (status) return fprintf(stderr, "%s\n", ct_error_text(status)), 0;
    LLVMFuzzerTestOneInput((const uint8_t *)text, size);
    // Cut off and with a bit changed, at up to 40 places.
    for (size_t i = 0, step = size / 40 + 1; i < size; i += step) {
        LLVMFuzzerTestOneInput((const uint8_t *)text, i);
        text[i] ^= 1;
        LLVMFuzzerTestOneInput((const uint8_t *)text, size);
        text[i] ^= 1;
    }
    free(text);
    return 1;
}

int main(void) {
    static const char folder[] = CT_SOURCE_DIR "/tests/config/corpus";
    DIR *dir = opendir(folder);
    if (!dir) return fprintf(stderr, "no folder %s\n", folder), 1;
    int files = 0, failures = 0;
    for (struct dirent *entry; (entry = readdir(dir));) {
        if (entry->d_name[0] == '.') continue;
        char *path = ct_format("%s/%s", folder, entry->d_name);
        if (replay(path))
            files++;
        else
            failures++;
        free(path);
    }
    closedir(dir);
    printf("%d texts replayed\n", files);
    return failures || !files;
}
#endif
