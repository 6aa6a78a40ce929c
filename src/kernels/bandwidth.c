// The memory ceiling after McCalpin's STREAM: read, copy and triad over arrays no cache holds, with stores that
// bypass the caches.
#include "kernels/peak.h"
#include "base/clock.h"

#include <stdint.h>
#include <sys/mman.h>
#if defined(__x86_64__)
#include <emmintrin.h>
#endif

enum { ARRAY_BYTES = 64 << 20, ELEMS = ARRAY_BYTES / 4, ARRAYS = 3, KINDS = 3 };

typedef struct {
    ct_team *team;
    float *a, *b, *c;
    int kind; // 0 read, 1 copy, 2 triad
    double seconds;
} stream;

#if defined(__x86_64__)
static float read_part(const float *b, long long n) {
    __m128 sum[8] = {_mm_setzero_ps()};
    for (int j = 1; j < 8; j++) sum[j] = sum[0];
    for (long long i = 0; i + 32 <= n; i += 32)
        for (int j = 0; j < 8; j++) sum[j] = _mm_add_ps(sum[j], _mm_load_ps(b + i + 4 * j));
    for (int j = 1; j < 8; j++) sum[0] = _mm_add_ps(sum[0], sum[j]);
    return _mm_cvtss_f32(sum[0]);
}
static void copy_part(float *a, const float *b, long long n) {
    for (long long i = 0; i + 4 <= n; i += 4) _mm_stream_ps(a + i, _mm_load_ps(b + i));
}
static void triad_part(float *a, const float *b, const float *c, long long n) {
    const __m128 s = _mm_set1_ps(3);
    for (long long i = 0; i + 4 <= n; i += 4)
        _mm_stream_ps(a + i, _mm_add_ps(_mm_load_ps(b + i), _mm_mul_ps(s, _mm_load_ps(c + i))));
}
#else
static float read_part(const float *b, long long n) {
    float sum[8] = {0};
    for (long long i = 0; i + 8 <= n; i += 8)
        for (int j = 0; j < 8; j++) sum[j] += b[i + j];
    return sum[0] + sum[1] + sum[2] + sum[3] + sum[4] + sum[5] + sum[6] + sum[7];
}
static void copy_part(float *a, const float *b, long long n) {
    for (long long i = 0; i < n; i++) a[i] = b[i];
}
static void triad_part(float *a, const float *b, const float *c, long long n) {
    for (long long i = 0; i < n; i++) a[i] = b[i] + 3 * c[i];
}
#endif

static void touch(void *context, int thread, int threads) {
    stream *s = context;
    long long begin, end;
    ct_share(ELEMS, 1024, thread, threads, &begin, &end);
    for (long long i = begin; i < end; i++) s->a[i] = s->b[i] = s->c[i] = 1;
}

static void run_stream(void *context, int thread, int threads) {
    stream *s = context;
    long long begin, end;
    ct_share(ELEMS, 1024, thread, threads, &begin, &end);
    volatile float sink = 0;
    double start = ct_now_s(); // thread 0's: before any thread starts
    ct_team_barrier(s->team);
    if (s->kind == 0) sink = read_part(s->b + begin, end - begin);
    if (s->kind == 1) copy_part(s->a + begin, s->b + begin, end - begin);
    if (s->kind == 2) triad_part(s->a + begin, s->b + begin, s->c + begin, end - begin);
    (void)sink;
    ct_team_barrier(s->team);
    if (thread == 0) s->seconds = ct_now_s() - start;
}

ct_status ct_bandwidth_measure(ct_team *team, double seconds, ct_bandwidth *out_bandwidth) {
    size_t bytes = (size_t)ARRAYS * ARRAY_BYTES;
    float *arrays = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CT_CHECK(arrays != MAP_FAILED, CT_NO_MEMORY, "no %zu MiB to measure the memory's bandwidth", bytes >> 20);
    madvise(arrays, bytes, MADV_HUGEPAGE);
    stream s = {team, arrays, arrays + ELEMS, arrays + 2 * ELEMS, 0, 0};
    ct_team_run(team, touch, &s);
    double best[KINDS] = {0}, end = ct_now_s() + seconds;
    do {
        for (s.kind = 0; s.kind < KINDS; s.kind++) {
            ct_team_run(team, run_stream, &s);
            double rate = (double)(s.kind + 1) * ARRAY_BYTES / s.seconds;
            if (rate > best[s.kind]) best[s.kind] = rate;
        }
    } while (ct_now_s() < end);
    munmap(arrays, bytes);
    *out_bandwidth = (ct_bandwidth){best[0], best[1], best[2]};
    return CT_OK;
}
