// Exact sums in a fixed-point superaccumulator (Kulisch), fed by exact pre-sums: a block's doubles are cut at fixed bit positions
// into windows of 40 bits, each window's sum over 4096 values fits a double's 53 bits, and only the window sums go to the digits
// (after Demmel and Nguyen's binned sums, but kept up until nothing is left over, so nothing is rounded). Left out: other roundings.
#include "base/wide.h"

#include <math.h>
#include <string.h>

enum { TOP = CT_WIDE_VALUE_DIGITS - 1, BITS = 32, LOWEST = -320, BLOCK = 4096, WINDOW_BITS = 40, WINDOWS_MAX = 24 };
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

void ct_wide_add(int64_t *digits, double x) {
    uint64_t u, mantissa;
    memcpy(&u, &x, sizeof u);
    int exponent = (int)(u >> 52 & 0x7ff);
    mantissa = (u & 0xfffffffffffff) | (exponent ? (uint64_t)1 << 52 : 0);
    int at = (exponent ? exponent : 1) - 1075 - LOWEST; // the mantissa's lowest bit, from the lowest digit's
    if (exponent == 0x7ff || at / BITS >= TOP) {
        digits[CT_WIDE_FLAG] = 1;
        return;
    }
    if (at < 0) {
        mantissa = -at > 63 ? 0 : mantissa >> -at;
        at = 0;
    }
    int i = at / BITS, shift = at % BITS;
    uint64_t low = (mantissa & 0xffffffff) << shift, high = ((mantissa >> BITS) << shift) + (low >> BITS);
    int64_t sign = u >> 63 ? -1 : 1, middle = (int64_t)(i + 2 <= TOP ? high & 0xffffffff : high);
    digits[i] += sign * (int64_t)(low & 0xffffffff);
    digits[i + 1] += sign * middle;
    if (i + 2 <= TOP) digits[i + 2] += sign * (int64_t)(high >> BITS);
    if (near_limit(digits[i]) || near_limit(digits[i + 1]) || (i + 2 <= TOP && near_limit(digits[i + 2])))
        ct_wide_normalise(digits);
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

typedef double v8d __attribute__((vector_size(64)));
typedef float v8f __attribute__((vector_size(32)));
typedef int32_t v8i __attribute__((vector_size(32)));
typedef float v8f_any __attribute__((vector_size(32), aligned(4), may_alias));
typedef int32_t v8i_any __attribute__((vector_size(32), aligned(4), may_alias));
#if defined __x86_64__ && !defined __clang__
#define CT_CLONES __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define CT_CLONES
#endif

// The largest bits of |x[i]|; n a multiple of 8.
CT_CLONES static int32_t block_max(const float *x, size_t n) {
    v8i max = {0};
    for (size_t i = 0; i < n; i += 8) {
        v8i bits = *(const v8i_any *)(x + i) & 0x7fffffff, more = bits > max;
        max = (bits & more) | (max & ~more);
    }
    int32_t m = 0;
    for (int k = 0; k < 8; k++) m = max[k] > m ? max[k] : m;
    return m;
}

// Adding and taking away a magic number, 1.5·2^(52 + e), leaves the bits from 2^e up. Skips the first windows, sums the
// three after them, and says whether any bit is left below. n ≤ BLOCK, a multiple of 8.
CT_CLONES static int block_windows(const float *x, size_t n, int square, const double *magic, int skip, double *out_sums) {
    const v8d none = {0};
    v8d a = none, b = none, c = none;
    v8d ma = magic[skip] + none, mb = magic[skip + 1] + none, mc = magic[skip + 2] + none;
    v8i left = {0};
    for (size_t i = 0; i < n; i += 8) {
        v8d v = __builtin_convertvector(*(const v8f_any *)(x + i), v8d);
        if (square) v *= v;
        for (int w = 0; w < skip; w++) v -= (v + magic[w]) - magic[w];
        v8d part = (v + ma) - ma;
        a += part;
        v -= part;
        part = (v + mb) - mb;
        b += part;
        v -= part;
        part = (v + mc) - mc;
        c += part;
        v -= part;
        left |= __builtin_convertvector(v != 0, v8i);
    }
    double sums[3] = {0};
    int any = 0;
    for (int k = 0; k < 8; k++) {
        sums[0] += a[k];
        sums[1] += b[k];
        sums[2] += c[k];
        any |= left[k];
    }
    memcpy(out_sums, sums, sizeof sums);
    return any;
}

static void add_block(int64_t *digits, const float *x, size_t n, int square) {
    int32_t max = block_max(x, n);
    if (max >= 0x7f800000) digits[CT_WIDE_FLAG] = 1;
    if (max == 0 || max >= 0x7f800000) return;
    int bound = (max >> 23) - 126; // every |x| < 2^bound
    if (square) bound *= 2;
    double magic[WINDOWS_MAX], sums[3];
    for (int w = 0; w < WINDOWS_MAX; w++) magic[w] = ldexp(1.5, 52 + bound - WINDOW_BITS * (w + 1));
    int left = 1;
    for (int skip = 0; left; skip += 3) {
        left = block_windows(x, n, square, magic, skip, sums);
        for (int w = 0; w < 3; w++) ct_wide_add(digits, sums[w]);
    }
}

void ct_wide_add_f32_array(int64_t *digits, const float *x, size_t n, int square) {
    size_t i = 0;
    for (; i + BLOCK <= n; i += BLOCK) add_block(digits, x + i, BLOCK, square);
    float rest[BLOCK];
    if (i == n) return;
    memset(rest, 0, sizeof rest);
    memcpy(rest, x + i, (n - i) * sizeof *x);
    add_block(digits, rest, (n - i + 7) / 8 * 8, square);
}
