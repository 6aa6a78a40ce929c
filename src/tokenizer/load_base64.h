// Base64 with padding, as tiktoken's rank files and precompiled maps have it.
#pragma once
#include <stddef.h>

// Decodes text[0, length) into out (room for length bytes); 1 where it is well formed.
int ct_base64_decode(const char *text, size_t length, unsigned char *out, size_t *out_size);
