// UTF-8 that is known to be well formed, and the step that makes it so.
#pragma once
#include <stddef.h>
#include <stdint.h>

// A growing byte buffer that can be read 64 bytes past its end. Zero-initialise; ct_buffer_deinit frees.
typedef struct {
    unsigned char *bytes;
    size_t size, capacity;
} ct_buffer;
#define CT_BUFFER_SLACK 64
void ct_buffer_reserve(ct_buffer *buffer, size_t size); // room for size bytes in all
void ct_buffer_add(ct_buffer *buffer, const void *bytes, size_t size);
void ct_buffer_add_point(ct_buffer *buffer, uint32_t point);
void ct_buffer_deinit(ct_buffer *buffer);

// Copies text into a buffer (replacing what it held), each maximal part of an ill-formed sequence becoming one
// U+FFFD.
void ct_utf8_sanitise(const unsigned char *text, size_t size, ct_buffer *out);

// Bytes of the character that begins with this byte (1 for a continuation byte).
static inline int ct_utf8_length(unsigned char lead) {
    return lead < 0xc0 ? 1 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
}

// The character at p, and its length.
static inline uint32_t ct_utf8_point(const unsigned char *p, int *out_length) {
    if (p[0] < 0x80) return *out_length = 1, p[0];
    if (p[0] < 0xe0) return *out_length = 2, (uint32_t)(p[0] & 31) << 6 | (p[1] & 63);
    if (p[0] < 0xf0) return *out_length = 3, (uint32_t)(p[0] & 15) << 12 | (uint32_t)(p[1] & 63) << 6 | (p[2] & 63);
    *out_length = 4;
    return (uint32_t)(p[0] & 7) << 18 | (uint32_t)(p[1] & 63) << 12 | (uint32_t)(p[2] & 63) << 6 | (p[3] & 63);
}

// The beginning of the character before p (p > start).
static inline const unsigned char *ct_utf8_back(const unsigned char *p, const unsigned char *start) {
    do p--;
    while (p > start && (*p & 0xc0) == 0x80);
    return p;
}

// Writes a code point, returns its length (1 to 4).
int ct_utf8_put(uint32_t point, unsigned char *out);

// Length of the well-formed character at p, or 0 with *out_bad the length of the maximal ill-formed part (at least
// 1).
int ct_utf8_check(const unsigned char *p, const unsigned char *end, int *out_bad);
