// Exact sums in a fixed-point superaccumulator (Kulisch), fed by exact pre-sums: a block's doubles are cut at fixed
// bit positions into windows of 50 bits, each window's sum over 4096 values fits an int64, and only the window sums
// go to the digits (after Demmel and Nguyen's binned sums, but kept up until nothing is left over, so nothing is
// rounded). Left out: other roundings.
#include "base/wide.h"

#include <math.h>
#include <string.h>
#ifdef __x86_64__
#include <immintrin.h>
#endif

enum { TOP = CT_WIDE_VALUE_DIGITS - 1, BITS = 32, LOWEST = -320, BLOCK = 4096, WINDOW_BITS = 50, WINDOWS_MAX = 16 };
static const int64_t CARRY_LIMIT = (int64_t)1 << 61, TOP_LIMIT = (int64_t)1 << 60;

void ct_wide_clear(int64_t *digits) { memset(digits, 0, CT_WIDE_DIGITS * sizeof *digits); }

void ct_wide_normalise(int64_t *digits) {
    for (int i = 0; i < TOP; i++) {
        int64_t low = digits[i] & 0xffffffff;
        digits[i + 1] += (digits[i] - low) / ((int64_t)1 << BITS);
        digits[i] = low;
    }
    if (digits[TOP] > TOP_LIMIT || digits[TOP] < -TOP_LIMIT) digits[CT_WIDE_FLAG] = 1;
    if (!digits[CT_WIDE_FLAG]) return;
    ct_wide_clear(digits);
    digits[CT_WIDE_FLAG] = 1;
}

static int near_limit(int64_t digit) { return digit > CARRY_LIMIT || digit < -CARRY_LIMIT; }

// digits += sign · magnitude · 2^(exponent); bits below the lowest digit are dropped.
static void add_integer(int64_t *digits, int64_t sign, uint64_t magnitude, int exponent) {
    int at = exponent - LOWEST;
    if (at < 0) {
        magnitude = -at > 63 ? 0 : magnitude >> -at;
        at = 0;
    }
    int i = at / BITS, shift = at % BITS, three = i + 2 <= TOP;
    if (i >= TOP) {
        digits[CT_WIDE_FLAG] = 1;
        return;
    }
    uint64_t low = (magnitude & 0xffffffff) << shift, high = ((magnitude >> BITS) << shift) + (low >> BITS);
    digits[i] += sign * (int64_t)(low & 0xffffffff);
    digits[i + 1] += sign * (int64_t)(three ? high & 0xffffffff : high);
    if (three) digits[i + 2] += sign * (int64_t)(high >> BITS);
    if (near_limit(digits[i]) || near_limit(digits[i + 1]) || (three && near_limit(digits[i + 2])))
        ct_wide_normalise(digits);
}

void ct_wide_add(int64_t *digits, double x) {
    uint64_t u, mantissa;
    memcpy(&u, &x, sizeof u);
    int exponent = (int)(u >> 52 & 0x7ff);
    mantissa = (u & 0xfffffffffffff) | (exponent ? (uint64_t)1 << 52 : 0);
    if (exponent == 0x7ff)
        digits[CT_WIDE_FLAG] = 1;
    else
        add_integer(digits, u >> 63 ? -1 : 1, mantissa, (exponent ? exponent : 1) - 1075);
}

void ct_wide_merge(int64_t *digits, const int64_t *other) {
    int full = 0;
    for (int i = 0; i < CT_WIDE_DIGITS; i++) {
        digits[i] += other[i];
        full |= near_limit(digits[i]);
    }
    if (full) ct_wide_normalise(digits);
}

// The magnitude's 32-bit digits, least first; the sign comes back.
static int magnitude(const int64_t *digits, uint32_t *out_digits) {
    int64_t d[CT_WIDE_DIGITS];
    memcpy(d, digits, sizeof d);
    ct_wide_normalise(d);
    int negative = d[TOP] < 0;
    if (negative) {
        for (int i = 0; i <= TOP; i++) d[i] = -d[i];
        ct_wide_normalise(d);
    }
    for (int i = 0; i <= TOP; i++) out_digits[i] = (uint32_t)d[i];
    out_digits[TOP + 1] = (uint32_t)((uint64_t)d[TOP] >> BITS);
    return negative;
}

double ct_wide_to_double(const int64_t *digits) {
    int64_t whole[CT_WIDE_DIGITS];
    memcpy(whole, digits, sizeof whole);
    ct_wide_normalise(whole);
    if (whole[CT_WIDE_FLAG]) return NAN;
    uint32_t padded[CT_WIDE_VALUE_DIGITS + 3] = {0}, *d = padded + 2; // two zero digits below
    int negative = magnitude(whole, d), h = CT_WIDE_VALUE_DIGITS;
    while (h >= 0 && !d[h]) h--;
    if (h < 0) return 0;
    int shift = __builtin_clz(d[h]);
    uint64_t top = ((uint64_t)d[h] << 32 | d[h - 1]) << shift | (uint64_t)d[h - 2] << shift >> 32;
    int sticky = (uint32_t)(d[h - 2] << shift) != 0;
    for (int i = 0; i < h - 2; i++) sticky |= d[i] != 0;
    uint64_t kept = top >> 11, rest = top & 0x7ff;
    if (rest > 0x400 || (rest == 0x400 && (sticky || (kept & 1)))) kept++;
    double value = ldexp((double)kept, BITS * h + LOWEST + 31 - shift - 52);
    return negative ? -value : value;
}

// ---- arrays ------------------------------------------------------------------------------------------------

// A block's work: adding a magic number, 1.5·2^(52 + e), leaves a value's bits from 2^e up, and then the sum's bits
// are those of an integer, so that integer additions sum the windows. n ≤ BLOCK, a multiple of 16.
typedef struct {
    const float *x;
    size_t n;
    int square;
    double magic[WINDOWS_MAX];
    double *rest; // BLOCK doubles: what a pass leaves
} block;

// Sums two windows of the block's values (first) or of its rest into out_sums as integers, and says whether a bit is
// left below.
typedef int window_pass(const block *b, int window, uint64_t *out_sums);

static int32_t block_max(const float *x, size_t n) {
    int32_t max = 0;
    for (size_t i = 0; i < n; i++) {
        int32_t bits;
        memcpy(&bits, x + i, sizeof bits);
        bits &= 0x7fffffff;
        max = bits > max ? bits : max;
    }
    return max;
}

static int pass_plain(const block *b, int window, uint64_t *out_sums) {
    double high = b->magic[window], low = b->magic[window + 1];
    uint64_t sums[2] = {0}, bits, any = 0;
    for (size_t i = 0; i < b->n; i++) {
        double v = window      ? b->rest[i]
                   : b->square ? (double)b->x[i] * (double)b->x[i]
                               : (double)b->x[i],
               t = v + high;
        memcpy(&bits, &t, sizeof bits);
        sums[0] += bits;
        v -= t - high;
        t = v + low;
        memcpy(&bits, &t, sizeof bits);
        sums[1] += bits;
        b->rest[i] = v - (t - low);
        memcpy(&bits, &b->rest[i], sizeof bits);
        any |= bits << 1; // what is left of -0 is -0
    }
    memcpy(out_sums, sums, sizeof sums);
    return any != 0;
}

#ifdef __x86_64__
#define CT_AVX512 __attribute__((target("avx512f")))

CT_AVX512 static int32_t block_max_avx512(const float *x, size_t n) {
    __m512i max[2] = {_mm512_setzero_si512(), _mm512_setzero_si512()}, sign = _mm512_set1_epi32(0x7fffffff);
    size_t i = 0;
    for (; i + 32 <= n; i += 32)
        for (int k = 0; k < 2; k++)
            max[k] = _mm512_max_epi32(max[k], _mm512_and_si512(sign, _mm512_loadu_si512(x + i + 16 * k)));
    if (i < n) max[0] = _mm512_max_epi32(max[0], _mm512_and_si512(sign, _mm512_loadu_si512(x + i)));
    return _mm512_reduce_max_epi32(_mm512_max_epi32(max[0], max[1]));
}

// The same as pass_plain, 8 values at a time; the next block is fetched meanwhile.
CT_AVX512 static int pass_avx512(const block *b, int window, uint64_t *out_sums) {
    __m512d high = _mm512_set1_pd(b->magic[window]), low = _mm512_set1_pd(b->magic[window + 1]);
    __m512i sum_high = _mm512_setzero_si512(), sum_low = sum_high, any = sum_high;
    __mmask8 square = b->square ? 0xff : 0;
    for (size_t i = 0; i < b->n; i += 8) {
        __m512d v;
        if (window) {
            v = _mm512_loadu_pd(b->rest + i);
        } else {
            v = _mm512_cvtps_pd(_mm256_loadu_ps(b->x + i));
            v = _mm512_mask_mul_pd(v, square, v, v);
            _mm_prefetch((const char *)(b->x + i + BLOCK), _MM_HINT_T0);
        }
        __m512d t = _mm512_add_pd(v, high);
        sum_high = _mm512_add_epi64(sum_high, _mm512_castpd_si512(t));
        v = _mm512_sub_pd(v, _mm512_sub_pd(t, high));
        t = _mm512_add_pd(v, low);
        sum_low = _mm512_add_epi64(sum_low, _mm512_castpd_si512(t));
        v = _mm512_sub_pd(v, _mm512_sub_pd(t, low));
        any = _mm512_or_si512(any, _mm512_castpd_si512(v));
        if (window) _mm512_storeu_pd(b->rest + i, v);
    }
    uint64_t lanes[2][8]; // their sum wraps around
    _mm512_storeu_si512(lanes[0], sum_high);
    _mm512_storeu_si512(lanes[1], sum_low);
    out_sums[0] = out_sums[1] = 0;
    for (int k = 0; k < 8; k++) out_sums[0] += lanes[0][k], out_sums[1] += lanes[1][k];
    int left = (_mm512_reduce_or_epi64(any) & INT64_MAX) != 0;   // what is left of -0 is -0
    if (left && !window) return pass_plain(b, window, out_sums); // rare: once more, keeping the rest
    return left;
}
#endif

typedef struct {
    int32_t (*max)(const float *x, size_t n);
    window_pass *pass;
} block_functions;

static void add_block(int64_t *digits, block *b, block_functions with) {
    int32_t max = with.max(b->x, b->n);
    if (max >= 0x7f800000) digits[CT_WIDE_FLAG] = 1;
    if (max == 0 || max >= 0x7f800000) return;
    int bound = (max >> 23) - 126; // every |x| < 2^bound
    if (b->square) bound *= 2;
    int left = 1;
    for (int w = 0; left; w += 2) {
        uint64_t sums[2], bits;
        for (int k = 0; k < 2; k++) b->magic[w + k] = ldexp(1.5, 52 + bound - WINDOW_BITS * (w + k + 1));
        left = with.pass(b, w, sums);
        for (int k = 0; k < 2; k++) {
            memcpy(&bits, &b->magic[w + k], sizeof bits);
            int64_t sum = (int64_t)(sums[k] - bits * b->n);
            add_integer(digits, sum < 0 ? -1 : 1, sum < 0 ? -(uint64_t)sum : (uint64_t)sum,
                        bound - WINDOW_BITS * (w + k + 1));
        }
    }
}

void ct_wide_add_f32_array(int64_t *digits, const float *x, size_t n, int square) {
    block_functions with = {block_max, pass_plain};
#ifdef __x86_64__
    if (__builtin_cpu_supports("avx512f")) with = (block_functions){block_max_avx512, pass_avx512};
#endif
    double rest[BLOCK];
    block b = {.n = BLOCK, .square = square, .rest = rest};
    for (; n >= BLOCK; n -= BLOCK, x += BLOCK) {
        b.x = x;
        add_block(digits, &b, with);
    }
    float tail[BLOCK];
    if (!n) return;
    b.n = (n + 15) / 16 * 16;
    memset(tail, 0, sizeof tail);
    memcpy(tail, x, n * sizeof *x);
    b.x = tail;
    add_block(digits, &b, with);
}
