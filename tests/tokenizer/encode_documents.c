// encode_documents TOKENIZER: reads documents from standard input (4-byte little-endian length, bytes), writes their
// ids (4-byte count, 4-byte ids) and says on standard error how fast that went. For compare_reference.py.
#include "base/memory.h"
#include "tokenizer/tokenizer.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

int main(int argc, char **argv) {
    if (argc != 2) return fputs("usage: encode_documents TOKENIZER\n", stderr), 2;
    ct_tokenizer *tokenizer;
    ct_status status = ct_tokenizer_open(argv[1], (ct_tokenizer_options){0}, &tokenizer);
    if (status) return fprintf(stderr, "encode_documents: %s\n", ct_error_text(status)), 1;
    ct_tokenizer_context *context = ct_tokenizer_context_create(tokenizer);
    ct_ids ids = {0};
    char *text = NULL;
    uint32_t size;
    double seconds = 0, bytes = 0;
    while (!status && fread(&size, 4, 1, stdin) == 1) {
        text = ct_realloc(text, (size_t)size + 1);
        if (fread(text, 1, size, stdin) != size) break;
        ids.count = 0;
        double start = now();
        status = ct_tokenizer_encode(context, text, size, (ct_encode_options){.no_template = 1}, &ids);
        seconds += now() - start;
        bytes += size;
        uint32_t count = (uint32_t)ids.count;
        fwrite(&count, 4, 1, stdout);
        fwrite(ids.ids, 4, count, stdout);
        fflush(stdout);
    }
    if (status) fprintf(stderr, "encode_documents: %s\n", ct_error_text(status));
    fprintf(stderr, "%s: %.1f MB in %.2f s, %.1f MB/s\n", argv[1], bytes / 1e6, seconds, bytes / 1e6 / seconds);
    free(text);
    ct_ids_deinit(&ids);
    ct_tokenizer_context_destroy(context);
    ct_tokenizer_close(tokenizer);
    return status != CT_OK;
}
