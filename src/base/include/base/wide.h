// A wide fixed-point integer that sums numbers exactly: neither the order of the addends nor how they are split
// matters.
//
// Digits of 32 value bits stand in int64 with room for carries (digit i weighs 2^(32 i - 320)); one more digit is a
// flag. It holds squares of any f32 (2^-298 to 2^256) and sums of 2^60 of them. What is not finite, or too large
// (2^340), sets the flag, and a flagged sum is NaN for good. Two numbers may be added digit by digit (ct_wide_merge,
// or any integer all-reduce of up to 2^29 normalised ones). Equal sums are equal digits after ct_wide_normalise.
#pragma once
#include <stdint.h>
#include <stddef.h>

enum { CT_WIDE_VALUE_DIGITS = 20, CT_WIDE_FLAG = CT_WIDE_VALUE_DIGITS, CT_WIDE_DIGITS = CT_WIDE_VALUE_DIGITS + 1 };

// All are functions of the caller's int64_t[CT_WIDE_DIGITS].
void ct_wide_clear(int64_t *digits);

// Adds x; bits of x below 2^-320 are dropped.
void ct_wide_add(int64_t *digits, double x);

// Adds every x[i], or every x[i]² (exact), i < n. Cost: two passes over blocks of 4096 in L1, 12 operations for 8
// elements, where a block's smallest x is above 2^-26 of its largest; about ten times that for a block where it
// isn't.
void ct_wide_add_f32_array(int64_t *digits, const float *x, size_t n, int square);

// digits += other.
void ct_wide_merge(int64_t *digits, const int64_t *other);

// Carries: digits 0 … 18 in [0, 2^32), the top one signed, the flag 0 or 1 (then all others 0). The value is
// unchanged.
void ct_wide_normalise(int64_t *digits);

// The sum, rounded once to nearest even; NaN where the flag is set. The digits need not be normalised.
double ct_wide_to_double(const int64_t *digits);
