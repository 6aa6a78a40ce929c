// An example of a data source (docs/PLUGINS.md): documents that are in no file, each a page of sums to learn, "408 + 77 = 485". A document is made
// from its number alone, so any mesh, any shuffle and any resumed run gets the same.
//
//     gcc -O2 -shared -fPIC -I include -o sums.so examples/plugins/sums.c
#include <ctitan/plugin.h>

#include <stdio.h>
#include <stdlib.h>

enum { SUMS = 8 };

typedef struct {
    char page[SUMS * 32];
} sums;

// splitmix64
static uint64_t mix(uint64_t x) {
    x += 0x9e3779b97f4a7c15;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
    x = (x ^ x >> 27) * 0x94d049bb133111eb;
    return x ^ x >> 31;
}

// The path is how many pages there are.
static const char *open_sums(const char *path, void **out_source, int64_t *out_documents, uint64_t *out_fingerprint) {
    char *end;
    long long pages = strtoll(path, &end, 10);
    if (*end || end == path || pages < 1) return "the path of sums is how many pages there are, 1 or more";
    *out_source = calloc(1, sizeof(sums));
    if (!*out_source) return "no memory";
    *out_documents = pages;
    *out_fingerprint = SUMS; // with the number of documents, which the host adds, all that decides them
    return NULL;
}

static const char *read_page(void *source, int64_t document, const char **out_text, size_t *out_bytes) {
    sums *s = source;
    size_t length = 0;
    for (uint64_t i = 0; i < SUMS; i++) {
        uint64_t r = mix((uint64_t)document * SUMS + i);
        unsigned a = (unsigned)(r % 1000), b = (unsigned)(r / 1000 % 1000);
        length += (size_t)snprintf(s->page + length, sizeof s->page - length, "%u + %u = %u\n", a, b, a + b);
    }
    *out_text = s->page;
    *out_bytes = length;
    return NULL;
}

static const ctitan_source sources[] = {{"sums", open_sums, read_page, free}, {0}};
static const ctitan_plugin_description description = {.abi = CTITAN_ABI, .name = "sums", .sources = sources};

const ctitan_plugin_description *ctitan_plugin(const ctitan_host *host);
const ctitan_plugin_description *ctitan_plugin(const ctitan_host *host) { return host->abi == CTITAN_ABI ? &description : NULL; }
