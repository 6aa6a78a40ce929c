// Makes any bytes well-formed UTF-8 by the rule that Python's errors="replace", the WHATWG and Unicode's chapter 3.9
// share: a sequence is given up at the first byte that cannot continue it, and what was read so far becomes one
// U+FFFD.
#include "utf8.h"
#include "base/memory.h"

#include <stdlib.h>
#include <string.h>

void ct_buffer_reserve(ct_buffer *buffer, size_t size) {
    if (buffer->bytes && size <= buffer->capacity) return;
    size_t capacity = buffer->capacity ? buffer->capacity : 256;
    while (capacity < size) capacity += capacity / 2 + 64;
    buffer->bytes = ct_realloc(buffer->bytes, capacity + CT_BUFFER_SLACK);
    memset(buffer->bytes + buffer->size, 0, capacity + CT_BUFFER_SLACK - buffer->size);
    buffer->capacity = capacity;
}

void ct_buffer_add(ct_buffer *buffer, const void *bytes, size_t size) {
    ct_buffer_reserve(buffer, buffer->size + size);
    if (size) memcpy(buffer->bytes + buffer->size, bytes, size);
    buffer->size += size;
}

void ct_buffer_add_point(ct_buffer *buffer, uint32_t point) {
    ct_buffer_reserve(buffer, buffer->size + 4);
    buffer->size += (size_t)ct_utf8_put(point, buffer->bytes + buffer->size);
}

void ct_buffer_deinit(ct_buffer *buffer) {
    free(buffer->bytes);
    *buffer = (ct_buffer){0};
}

int ct_utf8_put(uint32_t point, unsigned char *out) {
    if (point < 0x80) return out[0] = (unsigned char)point, 1;
    if (point < 0x800) {
        out[0] = (unsigned char)(0xc0 | point >> 6);
        out[1] = (unsigned char)(0x80 | (point & 63));
        return 2;
    }
    if (point < 0x10000) {
        out[0] = (unsigned char)(0xe0 | point >> 12);
        out[1] = (unsigned char)(0x80 | (point >> 6 & 63));
        out[2] = (unsigned char)(0x80 | (point & 63));
        return 3;
    }
    out[0] = (unsigned char)(0xf0 | point >> 18);
    out[1] = (unsigned char)(0x80 | (point >> 12 & 63));
    out[2] = (unsigned char)(0x80 | (point >> 6 & 63));
    out[3] = (unsigned char)(0x80 | (point & 63));
    return 4;
}

int ct_utf8_check(const unsigned char *p, const unsigned char *end, int *out_bad) {
    unsigned char lead = p[0];
    *out_bad = 1;
    if (lead < 0x80) return 1;
    if (lead < 0xc2 || lead > 0xf4) return 0;
    int length = lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
    unsigned char low = lead == 0xe0 ? 0xa0 : lead == 0xf0 ? 0x90 : 0x80;
    unsigned char high = lead == 0xed ? 0x9f : lead == 0xf4 ? 0x8f : 0xbf;
    for (int i = 1; i < length; i++) {
        if (p + i >= end || p[i] < low || p[i] > high) return *out_bad = i, 0;
        low = 0x80, high = 0xbf;
    }
    return length;
}

void ct_utf8_sanitise(const unsigned char *text, size_t size, ct_buffer *out) {
    out->size = 0;
    ct_buffer_reserve(out, size);
    const unsigned char *p = text, *end = text + size, *copied = text;
    while (p < end) {
        uint64_t eight;
        while (end - p >= 8 && (memcpy(&eight, p, 8), !(eight & 0x8080808080808080u))) p += 8;
        if (p >= end) break;
        int bad, length = ct_utf8_check(p, end, &bad);
        if (length) {
            p += length;
            continue;
        }
        ct_buffer_add(out, copied, (size_t)(p - copied));
        ct_buffer_add(out, "\xef\xbf\xbd", 3);
        copied = p += bad;
    }
    ct_buffer_add(out, copied, (size_t)(end - copied));
    memset(out->bytes + out->size, 0, CT_BUFFER_SLACK);
}
