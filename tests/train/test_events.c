// TensorBoard files: framing, checksums and messages against a file that TensorBoard's own writer made, and against published CRCs. The
// parser here shares nothing with the writer under test: its CRC goes bit by bit over the polynomial as RFC 3720 states it.
#include "case.h"
#include "base/file.h"
#include "trainer_parts.h"

#include <glob.h>
#include <math.h>
#include <time.h>
#include <unistd.h>

// ---- an independent reader ----
static uint32_t bits_reversed(uint32_t x) {
    uint32_t y = 0;
    for (int i = 0; i < 32; i++) y |= (x >> i & 1) << (31 - i);
    return y;
}

// CRC-32C, most significant bit first over reflected bytes: polynomial 0x1EDC6F41, all ones before and after.
static uint32_t plain_crc32c(const unsigned char *p, size_t n) {
    uint32_t r = 0xffffffffu;
    for (size_t i = 0; i < n; i++)
        for (int bit = 0; bit < 8; bit++) {
            uint32_t in = (uint32_t)(p[i] >> bit & 1), top = r >> 31;
            r <<= 1;
            if (in ^ top) r ^= 0x1edc6f41u;
        }
    return bits_reversed(r) ^ 0xffffffffu;
}

static uint32_t plain_masked(const unsigned char *p, size_t n) {
    uint32_t c = plain_crc32c(p, n);
    return (uint32_t)(((uint64_t)c >> 15 | (uint64_t)c << 17) + 0xa282ead8u);
}

static uint64_t little(const unsigned char *p, int n) {
    uint64_t x = 0;
    while (n-- > 0) x = x << 8 | p[n];
    return x;
}

typedef struct {
    const unsigned char *data;
    size_t bytes;
    double wall_time;
    uint64_t step;
    char tag[64], version[32];
    float value;
} record;

static uint64_t varint(const unsigned char **p, const unsigned char *end) {
    uint64_t x = 0;
    for (int shift = 0;; shift += 7) {
        assert_true(*p < end && shift < 64);
        x |= (uint64_t)(**p & 0x7f) << shift;
        if (!(*(*p)++ & 0x80)) return x;
    }
}

// Reads a message's fields; messages of interest inside it by recursion. level 0: Event, 1: Summary, 2: Summary.Value.
static void read_message(const unsigned char *p, const unsigned char *end, int level, record *r) {
    while (p < end) {
        uint64_t key = varint(&p, end), field = key >> 3;
        if ((key & 7) == 0) {
            uint64_t x = varint(&p, end);
            if (level == 0 && field == 2) r->step = x;
        } else if ((key & 7) == 1 || (key & 7) == 5) {
            int n = (key & 7) == 1 ? 8 : 4;
            assert_true(end - p >= n);
            if (level == 0 && field == 1) memcpy(&r->wall_time, p, 8);
            if (level == 2 && field == 2) memcpy(&r->value, p, 4);
            p += n;
        } else {
            assert_int_equal(key & 7, 2);
            uint64_t n = varint(&p, end);
            assert_true(n <= (uint64_t)(end - p));
            if (level == 0 && field == 3) memcpy(r->version, p, n);
            if (level == 2 && field == 1) memcpy(r->tag, p, n);
            if ((level == 0 && field == 5) || (level == 1 && field == 1)) read_message(p, p + n, level + 1, r);
            p += n;
        }
    }
}

// Checks every record's frame and reads its message. Returns how many there are.
static int read_records(const unsigned char *bytes, size_t size, record *out, int most) {
    int count = 0;
    for (size_t at = 0; at < size; count++) {
        assert_true(count < most && size - at >= 16);
        uint64_t n = little(bytes + at, 8);
        assert_int_equal(little(bytes + at + 8, 4), plain_masked(bytes + at, 8));
        assert_true(n <= size - at - 16);
        out[count] = (record){.data = bytes + at + 12, .bytes = n};
        assert_int_equal(little(bytes + at + 12 + n, 4), plain_masked(bytes + at + 12, n));
        read_message(out[count].data, out[count].data + n, 0, &out[count]);
        at += n + 16;
    }
    return count;
}

// ---- tests ----
static void the_readers_checksum_is_that_of_RFC_3720(void **state) {
    (void)state;
    unsigned char zeros[32] = {0}, ones[32], up[32]; // RFC 3720, B.4, and the usual check string
    memset(ones, 0xff, 32);
    for (int i = 0; i < 32; i++) up[i] = (unsigned char)i;
    assert_int_equal(plain_crc32c(zeros, 32), 0x8a9136aau);
    assert_int_equal(plain_crc32c(ones, 32), 0x62a8ab43u);
    assert_int_equal(plain_crc32c(up, 32), 0x46dd794eu);
    assert_int_equal(plain_crc32c((const unsigned char *)"123456789", 9), 0xe3069283u);
    assert_int_equal(plain_masked((const unsigned char *)"123456789", 9), 0xc78ab0e5u); // by tensorboard 2.21's masked_crc32c
}

static const struct {
    int64_t step;
    const char *tag;
    double value;
} scalars[] = {{1, "loss_metrics/global_avg_loss", 8.25}, {300, "grad_norm", 0.1}, {70000, "validation_metrics/loss", -2.5}};

static char *write_ours(char *folder) {
    ct_events *events;
    assert_non_null(mkdtemp(folder));
    assert_ok(ct_events_open(folder, &events));
    for (int i = 0; i < 3; i++) ct_events_scalar(events, scalars[i].tag, scalars[i].step, scalars[i].value);
    ct_events_close(events);
    char *pattern = ct_format("%s/events.out.tfevents.*", folder);
    glob_t found;
    assert_int_equal(glob(pattern, 0, NULL, &found), 0);
    assert_int_equal(found.gl_pathc, 1);
    char *path = ct_strdup(found.gl_pathv[0]);
    globfree(&found);
    free(pattern);
    return path;
}

static void a_file_of_ours_has_the_bytes_of_TensorBoards_own(void **state) {
    (void)state;
    char folder[] = "/tmp/ctitan-events-XXXXXX", *path = write_ours(folder), *ours, *theirs;
    size_t our_size, their_size;
    assert_ok(ct_file_read(path, 0, &ours, &our_size));
    assert_ok(ct_file_read("tests/train/fixtures/events/events.tfevents", 0, &theirs, &their_size));
    record a[4], b[4];
    assert_int_equal(read_records((unsigned char *)ours, our_size, a, 4), 4);
    assert_int_equal(read_records((unsigned char *)theirs, their_size, b, 4), 4);
    assert_string_equal(a[0].version, "brain.Event:2");
    assert_string_equal(b[0].version, a[0].version);
    for (int i = 1; i < 4; i++) { // after the time of writing, in the first nine bytes, all are equal
        assert_int_equal(a[i].bytes, b[i].bytes);
        assert_int_equal(a[i].data[0], b[i].data[0]);
        assert_memory_equal(a[i].data + 9, b[i].data + 9, a[i].bytes - 9);
        assert_true(fabs(a[i].wall_time - (double)time(NULL)) < 60);
        assert_int_equal(a[i].step, scalars[i - 1].step);
        assert_string_equal(a[i].tag, scalars[i - 1].tag);
        assert_true(a[i].value == (float)scalars[i - 1].value);
    }
    free(ours);
    free(theirs);
    free(path);
    assert_ok(ct_folder_remove(folder));
}

static void a_folder_that_cannot_be_made_is_an_error(void **state) {
    (void)state;
    ct_events *events;
    ct_status status = ct_events_open("/proc/no/such/folder", &events);
    assert_non_null(status);
    assert_int_equal(ct_error_code(status), CT_IO);
}

int main(void) {
    if (chdir(CT_SOURCE_DIR)) return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_readers_checksum_is_that_of_RFC_3720),
        cmocka_unit_test(a_file_of_ours_has_the_bytes_of_TensorBoards_own),
        cmocka_unit_test(a_folder_that_cannot_be_made_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
