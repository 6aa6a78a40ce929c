// XXH3-128 as text.
#pragma once
#include "checkpoint/safetensors.h"
#include <xxhash.h>

static inline ct_checksum ct_checksum_text(XXH128_hash_t hash) {
    XXH128_canonical_t bytes;
    XXH128_canonicalFromHash(&bytes, hash);
    ct_checksum sum;
    for (int i = 0; i < 16; i++) {
        sum.hex[2 * i] = "0123456789abcdef"[bytes.digest[i] >> 4];
        sum.hex[2 * i + 1] = "0123456789abcdef"[bytes.digest[i] & 15];
    }
    sum.hex[32] = 0;
    return sum;
}
static inline ct_checksum ct_checksum_of(const void *bytes, size_t size) { return ct_checksum_text(XXH3_128bits(bytes, size)); }
