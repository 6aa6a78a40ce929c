// The arithmetic ceiling: independent chains of multiply-adds in registers, as many as hide the latency, on every
// thread at once.
#include "kernels/peak.h"
#include "base/clock.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

enum { CHAINS = 24, STEPS = 20000, LOOPS_A_ROUND = 8, ROUNDS_A_RUN = 8 };

// Runs STEPS steps of all chains and returns the FLOPs of it; the sum goes to *sink so that nothing is left out.
typedef double loop(float *sink);

static double plain_loop(float *sink) {
    float sum[CHAINS] = {0};
    for (int s = 0; s < STEPS; s++)
        for (int c = 0; c < CHAINS; c++) sum[c] += 0.5f * (sum[c] + 1);
    for (int c = 0; c < CHAINS; c++) *sink += sum[c];
    return 2.0 * STEPS * CHAINS;
}

#if defined(__x86_64__)
__attribute__((target("avx2,fma"))) static double avx2_loop(float *sink) {
    enum { HALF = CHAINS / 2 };
    __m256 sum[HALF], a = _mm256_set1_ps(0.5f), b = _mm256_set1_ps(1e-3f);
#pragma GCC unroll 12
    for (int c = 0; c < HALF; c++) sum[c] = _mm256_set1_ps((float)c);
    for (int s = 0; s < STEPS; s++) {
#pragma GCC unroll 12
        for (int c = 0; c < HALF; c++) sum[c] = _mm256_fmadd_ps(sum[c], a, b);
    }
#pragma GCC unroll 12
    for (int c = 0; c < HALF; c++) *sink += _mm256_cvtss_f32(sum[c]);
    return 2.0 * STEPS * HALF * 8;
}

__attribute__((target("avx512f"))) static double avx512_loop(float *sink) {
    __m512 sum[CHAINS], a = _mm512_set1_ps(0.5f), b = _mm512_set1_ps(1e-3f);
#pragma GCC unroll 24
    for (int c = 0; c < CHAINS; c++) sum[c] = _mm512_set1_ps((float)c);
    for (int s = 0; s < STEPS; s++) {
#pragma GCC unroll 24
        for (int c = 0; c < CHAINS; c++) sum[c] = _mm512_fmadd_ps(sum[c], a, b);
    }
#pragma GCC unroll 24
    for (int c = 0; c < CHAINS; c++) *sink += _mm512_cvtss_f32(sum[c]);
    return 2.0 * STEPS * CHAINS * 16;
}

__attribute__((target("avx512f,avx512bf16"))) static double bf16_loop(float *sink) {
    __m512 sum[CHAINS];
    __m512bh a = (__m512bh)_mm512_set1_epi16(0x3f80), b = (__m512bh)_mm512_set1_epi16(0x3c00); // 1 and 2^-7
#pragma GCC unroll 24
    for (int c = 0; c < CHAINS; c++) sum[c] = _mm512_set1_ps((float)c);
    for (int s = 0; s < STEPS; s++) {
#pragma GCC unroll 24
        for (int c = 0; c < CHAINS; c++) sum[c] = _mm512_dpbf16_ps(sum[c], a, b);
    }
#pragma GCC unroll 24
    for (int c = 0; c < CHAINS; c++) *sink += _mm512_cvtss_f32(sum[c]);
    return 4.0 * STEPS * CHAINS * 16;
}

static loop *loop_of(ct_dtype dtype) {
    __builtin_cpu_init();
    if (dtype == CT_BF16 && __builtin_cpu_supports("avx512bf16")) return bf16_loop;
    if (__builtin_cpu_supports("avx512f")) return avx512_loop;
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") ? avx2_loop : plain_loop;
}
#else
static loop *loop_of(ct_dtype dtype) {
    (void)dtype;
    return plain_loop;
}
#endif

typedef struct {
    ct_team *team;
    loop *loop;
    double best;
} measurement;

// Rounds between barriers. Thread 0 holds the watch: it looks before it lets the others start and after all have
// ended, so that a round can seem slower than it was, never faster.
static void rounds(void *context, int thread, int threads) {
    measurement *m = context;
    for (int r = 0; r < ROUNDS_A_RUN; r++) {
        volatile float sink;
        float sum = 0;
        double start = ct_now_s(), flops = 0;
        ct_team_barrier(m->team);
        for (int i = 0; i < LOOPS_A_ROUND; i++) flops += m->loop(&sum);
        sink = sum;
        (void)sink;
        ct_team_barrier(m->team);
        double rate = flops * threads / (ct_now_s() - start);
        if (thread == 0 && rate > m->best) m->best = rate;
    }
}

double ct_peak_measure(ct_dtype dtype, ct_team *team, double seconds) {
    measurement m = {team, loop_of(dtype), 0};
    double end = ct_now_s() + seconds;
    do ct_team_run(team, rounds, &m);
    while (ct_now_s() < end);
    return m.best;
}
