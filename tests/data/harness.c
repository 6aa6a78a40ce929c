// The tests' tokenizer, files and readers.
#include "harness.h"

#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

static ct_status encode_bytes(void *context, int thread, const char *text, size_t length, ct_data_ids *ids) {
    (void)context, (void)thread;
    int32_t *to = ct_data_ids_reserve(ids, (int64_t)length);
    for (size_t i = 0; i < length; i++) to[i] = (unsigned char)text[i];
    ids->count += (int64_t)length;
    return CT_OK;
}

ct_data_encoder byte_encoder(void) {
    return (ct_data_encoder){.encode = encode_bytes, .bos = 256, .eos = 257, .vocab_size = 258, .fingerprint = 0xb17e5, .may_cut = 1};
}

static const char *path_of(const char *folder, const char *name) {
    static char paths[16][512];
    static int next;
    char *path = paths[next++ % 16];
    snprintf(path, sizeof paths[0], "%s/%s", folder, name);
    return path;
}

const char *fixture(const char *name) { return path_of(CT_SOURCE_DIR "/tests/data/fixtures", name); }

static char scratch_folder[64];

void scratch_make(void) {
    strcpy(scratch_folder, "/tmp/ctitan-data-XXXXXX");
    assert_non_null(mkdtemp(scratch_folder));
}
void scratch_remove(void) { assert_ok(ct_folder_remove(scratch_folder)); }
const char *scratch(const char *name) { return path_of(scratch_folder, name); }

void write_bytes(const char *path, const void *bytes, size_t size) { // by a new file, so that an open one keeps what it had
    unlink(path);
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, size, file), size);
    assert_int_equal(fclose(file), 0);
}
void write_text(const char *path, const char *text) { write_bytes(path, text, strlen(text)); }

void write_gzip(const char *path, const char *text, size_t size, int members) {
    remove(path);
    for (int m = 0; m < members; m++) {
        size_t begin = size * (size_t)m / (size_t)members, end = size * ((size_t)m + 1) / (size_t)members;
        gzFile file = gzopen(path, "ab");
        assert_non_null(file);
        assert_int_equal(gzwrite(file, text + begin, (unsigned)(end - begin)), end - begin);
        gzclose(file);
    }
}

void write_zstd(const char *path, const char *text, size_t size, int frames) {
    size_t room = ZSTD_compressBound(size) + 64 * (size_t)frames, used = 0;
    char *out = malloc(room);
    for (int f = 0; f < frames; f++) {
        size_t begin = size * (size_t)f / (size_t)frames, end = size * ((size_t)f + 1) / (size_t)frames;
        used += ZSTD_compress(out + used, room - used, text + begin, end - begin, 3);
    }
    write_bytes(path, out, used);
    free(out);
}

char *numbered_documents(int count, int most) {
    ct_string out = {0};
    unsigned random = 12345;
    for (int i = 0; i < count; i++) {
        random = random * 1103515245u + 12345u;
        ct_string_add(&out, "{\"id\": %d, \"text\": \"%d:", i, i);
        for (int n = (int)(random >> 8) % (most + 1); n > 0; n--) ct_string_add(&out, "%c", 'a' + n % 26);
        ct_string_add(&out, "\"}\n");
    }
    return out.text;
}

void assert_error(ct_status status, ct_code code, const char *part) {
    if (!status) fail_msg("no error; wanted one with \"%s\"", part);
    if (ct_error_code(status) != code || !strstr(ct_error_text(status), part))
        fail_msg("error %d \"%s\"; wanted %d with \"%s\"", ct_error_code(status), ct_error_text(status), code, part);
}

int64_t read_ids(ct_data *data, int32_t seq_len, int64_t count, int32_t *ids) {
    int32_t *tokens = malloc(sizeof(int32_t) * (size_t)seq_len), *labels = malloc(sizeof(int32_t) * (size_t)seq_len), got = 1;
    int64_t n = 0;
    for (; n < count; n++) {
        assert_ok(ct_data_next(data, 1, (ct_data_batch){.tokens = tokens, .labels = labels}, &got));
        if (!got) break;
        int32_t *row = ids + n * (seq_len + 1);
        memcpy(row, tokens, sizeof(int32_t) * (size_t)seq_len);
        for (int t = 0; t + 1 < seq_len; t++) assert_int_equal(labels[t], tokens[t + 1]);
        row[seq_len] = labels[seq_len - 1];
    }
    free(tokens);
    free(labels);
    return n;
}
