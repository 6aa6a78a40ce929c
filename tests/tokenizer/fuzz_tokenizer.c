// Fuzzes the loaders, encoding and decoding. `make test` replays the files of tests/tokenizer/corpus; to look for
// more:
//   clang -std=c17 -D_GNU_SOURCE -DCT_FUZZ -g -O1 -fsanitize=fuzzer,address,undefined -Isrc/base/include
//   -Isrc/tokenizer/include
//     tests/tokenizer/fuzz_tokenizer.c src/tokenizer/*.c src/base/{memory,status,file}.c -lpcre2-8 -lutf8proc -lcjson
//     -lm -o fuzz_tokenizer
//   ./fuzz_tokenizer tests/tokenizer/corpus
// An input is a letter (j tokenizer.json, c the same with a tokenizer_config.json of its own text, t tiktoken, s
// SentencePiece, b llama2.c), a byte with the length of a text, the text, and the tokenizer's file. Of a file that
// opens it wants: the text is encoded and decoded without harm, twice alike, all ids within the vocabulary.
#include "base/file.h"
#include "base/memory.h"
#include "tokenizer/tokenizer.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define WANT(condition)                                                                                              \
    do {                                                                                                             \
        if (!(condition)) fprintf(stderr, "fuzz_tokenizer: not so: %s\n", #condition), abort();                      \
    } while (0)

static void put_file(const char *path, const void *bytes, size_t size) {
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    WANT(fd >= 0 && write(fd, bytes, size) == (ssize_t)size);
    close(fd);
}

static void use(const ct_tokenizer *tokenizer, const unsigned char *text, size_t size) {
    const ct_tokenizer_info *info = ct_tokenizer_describe(tokenizer);
    ct_tokenizer_context *context = ct_tokenizer_context_create(tokenizer);
    ct_ids a = {0}, b = {0};
    ct_encode_options options = {.add_bos = 1, .add_eos = 1, .no_template = 1};
    ct_status status = ct_tokenizer_encode(context, text, size, options, &a);
    if (!status) {
        WANT(!ct_tokenizer_encode(context, text, size, options, &b));
        WANT(a.count == b.count && (!a.count || !memcmp(a.ids, b.ids, a.count * sizeof *a.ids)));
        for (size_t i = 0; i < a.count; i++) WANT(a.ids[i] >= 0 && a.ids[i] < info->vocab_size);
        char *back;
        size_t back_size;
        ct_tokenizer_decode(tokenizer, a.ids, a.count, 1, &back, &back_size);
        free(back);
    }
    ct_ids_deinit(&a);
    ct_ids_deinit(&b);
    ct_tokenizer_context_destroy(context);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const char kinds[] = "jctsb", *const names[] = {"tokenizer.json", "tokenizer.json", "x.tiktoken",
                                                           "tokenizer.model", "tokenizer.bin"};
    const char *kind = size > 2 && data[0] ? strchr(kinds, data[0]) : NULL;
    if (!kind || data[1] > size - 2) return 0;
    const uint8_t *text = data + 2, *file = text + data[1];
    char *folder = ct_format("/dev/shm/ct_fuzz_%d", (int)getpid());
    char *path = ct_format("%s/%s", folder, names[kind - kinds]),
         *config = ct_format("%s/tokenizer_config.json", folder);
    mkdir(folder, 0700);
    put_file(path, file, size - (size_t)(file - data));
    if (*kind == 'c') put_file(config, text, data[1]);
    ct_tokenizer *tokenizer = NULL;
    ct_tokenizer_options options = {.pattern = *kind == 't' ? "llama3" : NULL, .ignore_config = *kind != 'c'};
    if (!ct_tokenizer_open(path, options, &tokenizer)) use(tokenizer, text, data[1]);
    ct_tokenizer_close(tokenizer);
    unlink(path);
    unlink(config);
    rmdir(folder);
    free(folder);
    free(path);
    free(config);
    return 0;
}

#ifndef CT_FUZZ
int main(void) {
    static const char folder[] = CT_SOURCE_DIR "/tests/tokenizer/corpus";
    DIR *files = opendir(folder);
    WANT(files);
    int count = 0;
    for (struct dirent *entry; (entry = readdir(files));) {
        if (entry->d_name[0] == '.') continue;
        char *path = ct_format("%s/%s", folder, entry->d_name), *text;
        size_t size;
        WANT(!ct_file_read(path, 0, &text, &size));
        LLVMFuzzerTestOneInput((const uint8_t *)text, size);
        count++;
        free(text);
        free(path);
    }
    closedir(files);
    printf("%d inputs replayed\n", count);
    return count ? 0 : 1;
}
#endif
