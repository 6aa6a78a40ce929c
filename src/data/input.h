// The bytes of one file, decompressed where its name ends in .gz or .zst, and lines and pieces of them.
#pragma once
#include "base/status.h"
#include <stddef.h>
#include <stdint.h>
#include <zlib.h>
#include <zstd.h>

typedef enum { INPUT_PLAIN, INPUT_GZIP, INPUT_ZSTD } input_kind;

typedef struct {
    const char *path; // borrowed
    input_kind kind;
    int fd;
    // compressed bytes
    unsigned char *packed;
    size_t packed_size, packed_at;
    int packed_end, in_member; // the file is read; inside a gzip member or a zstd frame
    int64_t members;           // whole ones behind us
    z_stream gzip;
    ZSTD_DStream *zstd;
    // decompressed bytes: buffer[at, size) come next, buffer[0] is byte `base` of the file
    char *buffer;
    size_t at, size, capacity;
    int64_t base;
    int64_t disk_bytes; // read from the file since it was opened
    int end;            // no more bytes behind the buffer
} input;

// Zero-initialise; opens path, which is borrowed until input_close. An open one is closed first.
ct_status input_open(input *in, const char *path);
void input_close(input *in);  // keeps the buffers for the next file
void input_deinit(input *in); // frees them

// Where the next byte stands in the (decompressed) file.
static inline int64_t input_offset(const input *in) { return in->base + (int64_t)in->at; }

// Goes to an offset. Plain files seek; compressed ones decompress up to it, from the start where it lies behind.
// CT_CORRUPT where the file ends before it.
ct_status input_seek(input *in, int64_t offset);

// Has at least `want` bytes in the buffer from `at` on, fewer only at the end of the file.
ct_status input_fill(input *in, size_t want);

// The next line, without its "\n", in the buffer until the next call. *out_line is NULL at the end.
ct_status input_line(input *in, const char **out_line, size_t *out_length);
