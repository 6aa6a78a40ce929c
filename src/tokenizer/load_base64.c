// Base64, strictly: padding where it belongs, no other characters.
#include "load_base64.h"

static int value_of(char c) {
    if (c >= 'A' && c <= 'Z') return c - 'A';
    if (c >= 'a' && c <= 'z') return c - 'a' + 26;
    if (c >= '0' && c <= '9') return c - '0' + 52;
    return c == '+' ? 62 : c == '/' ? 63 : -1;
}

int ct_base64_decode(const char *text, size_t length, unsigned char *out, size_t *out_size) {
    if (length % 4) return 0;
    size_t size = 0;
    for (size_t i = 0; i < length; i += 4) {
        int last = i + 4 == length, padding = 0;
        if (last && text[i + 3] == '=') padding = text[i + 2] == '=' ? 2 : 1;
        unsigned bits = 0;
        for (int k = 0; k < 4; k++) {
            int value = k >= 4 - padding ? 0 : value_of(text[i + (size_t)k]);
            if (value < 0) return 0;
            bits = bits << 6 | (unsigned)value;
        }
        out[size++] = (unsigned char)(bits >> 16);
        if (padding < 2) out[size++] = (unsigned char)(bits >> 8);
        if (padding < 1) out[size++] = (unsigned char)bits;
    }
    *out_size = size;
    return 1;
}
