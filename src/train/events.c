// TensorBoard event files: TFRecord framing (length, masked CRC-32C, data, masked CRC-32C) around protobuf Event messages. Only what a
// scalar needs is written: wall_time = 1, step = 2, file_version = 3, summary = 5 {value = 1 {tag = 1, simple_value = 2}}.
#include "trainer_parts.h"
#include "base/file.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

struct ct_events {
    FILE *file;
};

static uint32_t crc32c(const unsigned char *p, size_t n) {
    uint32_t crc = 0xffffffffu;
    for (size_t i = 0; i < n; i++) {
        crc ^= p[i];
        for (int k = 0; k < 8; k++) crc = (crc >> 1) ^ (0x82f63b78u & (0u - (crc & 1)));
    }
    return ~crc;
}

static uint32_t masked(const unsigned char *p, size_t n) {
    uint32_t crc = crc32c(p, n);
    return ((crc >> 15) | (crc << 17)) + 0xa282ead8u;
}

static void write_record(ct_events *e, const unsigned char *data, size_t n) {
    uint64_t length = n;
    unsigned char head[8];
    memcpy(head, &length, 8);
    uint32_t head_crc = masked(head, 8), data_crc = masked(data, n);
    fwrite(head, 1, 8, e->file);
    fwrite(&head_crc, 1, 4, e->file);
    fwrite(data, 1, n, e->file);
    fwrite(&data_crc, 1, 4, e->file);
}

static size_t put_varint(unsigned char *out, uint64_t x) {
    size_t n = 0;
    while (x >= 0x80) out[n++] = (unsigned char)(x | 0x80), x >>= 7;
    out[n++] = (unsigned char)x;
    return n;
}

static size_t put_time(unsigned char *out) {
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    double seconds = (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
    out[0] = 0x09;
    memcpy(out + 1, &seconds, 8);
    return 9;
}

static size_t put_bytes(unsigned char *out, int field, const void *bytes, size_t n) {
    size_t k = put_varint(out, (uint64_t)(field << 3 | 2));
    k += put_varint(out + k, n);
    memcpy(out + k, bytes, n);
    return k + n;
}

ct_status ct_events_open(const char *folder, ct_events **out_events) {
    CT_TRY(ct_folder_make(folder));
    char host[64] = "localhost";
    gethostname(host, sizeof host - 1);
    char *path = ct_format("%s/events.out.tfevents.%lld.%s.%d.0", folder, (long long)time(NULL), host, (int)getpid());
    FILE *file = fopen(path, "wb");
    ct_status status = file ? CT_OK : ct_error_make(CT_IO, __FILE__, __LINE__, "cannot create %s: %s", path, strerror(errno));
    free(path);
    if (status) return status;
    ct_events *e = ct_calloc(1, sizeof *e);
    e->file = file;
    unsigned char event[64];
    size_t n = put_time(event);
    n += put_bytes(event + n, 3, "brain.Event:2", 13);
    write_record(e, event, n);
    *out_events = e;
    return CT_OK;
}

void ct_events_scalar(ct_events *e, const char *tag, int64_t step, double value) {
    unsigned char scalar[192], summary[224], event[288];
    float x = (float)value;
    size_t n = put_bytes(scalar, 1, tag, strnlen(tag, 128));
    scalar[n++] = 0x15;
    memcpy(scalar + n, &x, 4);
    n += 4;
    size_t s = put_bytes(summary, 1, scalar, n), k = put_time(event);
    event[k++] = 0x10;
    k += put_varint(event + k, (uint64_t)step);
    k += put_bytes(event + k, 5, summary, s);
    write_record(e, event, k);
}

void ct_events_flush(ct_events *e) { fflush(e->file); }

void ct_events_close(ct_events *e) {
    if (!e) return;
    fclose(e->file);
    free(e);
}
