// Initial weights: element i of parameter k is a function of (seed, k, i) alone (Philox), so every mesh and every machine starts from the
// same bits: only additions, multiplications, divisions and square roots in single precision, no libm, no fused multiply-add.
// Normals are erf's inverse (Giles 2010, "Approximating the erfinv function") of a uniform number, which a truncation only narrows.
#include "train/setup.h"

#include <math.h>
#include <string.h>

enum { LANES = 16, BLOCK = 4 * LANES }; // a block: LANES counters, four numbers each

typedef struct {
    ct_init init;
    uint64_t seed;
    int number;
    int64_t first, count; // elements of the parameter, row-major, that data is
    double low, width;    // probabilities: of the lower cut, and between the cuts
    float *data;
} filling;

// ln(x) for normal x > 0: within 1 ulp (Cephes' polynomial on [√½, √2)).
static inline __attribute__((always_inline)) float log_of(float x) {
    uint32_t bits;
    memcpy(&bits, &x, 4);
    int32_t exponent = (int32_t)(bits - 0x3f3504f3u) >> 23;
    bits -= (uint32_t)exponent << 23;
    float m, e = (float)exponent;
    memcpy(&m, &bits, 4);
    m -= 1.0f;
    float z = m * m, y = 7.0376836292e-2f;
    y = y * m - 1.1514610310e-1f;
    y = y * m + 1.1676998740e-1f;
    y = y * m - 1.2420140846e-1f;
    y = y * m + 1.4249322787e-1f;
    y = y * m - 1.6668057665e-1f;
    y = y * m + 2.0000714765e-1f;
    y = y * m - 2.4999993993e-1f;
    y = y * m + 3.3333331174e-1f;
    y = y * m * z - 2.12194440e-4f * e - 0.5f * z;
    return m + y + 0.693359375f * e;
}

// The standard normal quantile of p: `tail` is min(p, 1 - p), `side` has the sign of p - ½. Relative error about 3e-7.
static inline __attribute__((always_inline)) float quantile_of(float tail, float side) {
    float t = 2.0f * tail, x = 1.0f - t, w = -log_of(t * (2.0f - t));
    float near = w - 2.5f, far = __builtin_sqrtf(w) - 3.0f;
    float a = 2.81022636e-08f, b = -0.000200214257f;
    a = a * near + 3.43273939e-07f, b = b * far + 0.000100950558f;
    a = a * near - 3.5233877e-06f, b = b * far + 0.00134934322f;
    a = a * near - 4.39150654e-06f, b = b * far - 0.00367342844f;
    a = a * near + 0.00021858087f, b = b * far + 0.00573950773f;
    a = a * near - 0.00125372503f, b = b * far - 0.0076224613f;
    a = a * near - 0.00417768164f, b = b * far + 0.00943887047f;
    a = a * near + 0.246640727f, b = b * far + 1.00167406f;
    a = a * near + 1.50140941f, b = b * far + 2.83297682f;
    return __builtin_copysignf(1.41421356f * x * (w < 5.0f ? a : b), side);
}

// Philox4x32-10 of LANES counters in a row, for one block: out[word][lane].
static inline __attribute__((always_inline)) void random_of(uint64_t group, uint32_t number, uint64_t seed, uint32_t out[4][LANES]) {
    uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);
    for (int l = 0; l < LANES; l++) {
        uint64_t counter = group + (uint64_t)l;
        out[0][l] = (uint32_t)counter, out[1][l] = (uint32_t)(counter >> 32), out[2][l] = number, out[3][l] = 1; // 1: initial weights
    }
    for (int round = 0; round < 10; round++, k0 += 0x9E3779B9u, k1 += 0xBB67AE85u) {
        uint64_t a[LANES], b[LANES];
        for (int l = 0; l < LANES; l++) a[l] = (uint64_t)out[0][l] * 0xD2511F53u;
        for (int l = 0; l < LANES; l++) b[l] = (uint64_t)out[2][l] * 0xCD9E8D57u;
        for (int l = 0; l < LANES; l++) out[0][l] = (uint32_t)(b[l] >> 32) ^ out[1][l] ^ k0;
        for (int l = 0; l < LANES; l++) out[2][l] = (uint32_t)(a[l] >> 32) ^ out[3][l] ^ k1;
        for (int l = 0; l < LANES; l++) out[1][l] = (uint32_t)b[l];
        for (int l = 0; l < LANES; l++) out[3][l] = (uint32_t)a[l];
    }
}

static inline __attribute__((always_inline)) void normal_block(const filling *f, int64_t block, float values[BLOCK]) {
    uint32_t random[4][LANES];
    random_of((uint64_t)block * LANES, (uint32_t)f->number, f->seed, random);
    float std = (float)f->init.std, tail[LANES], side[LANES], normal[4][LANES];
    double low = f->low, width = f->width * 0x1p-32, p[LANES], q[LANES];
    for (int word = 0; word < 4; word++) {
        for (int l = 0; l < LANES; l++) p[l] = low + width * ((double)random[word][l] + 0.5);
        for (int l = 0; l < LANES; l++) q[l] = p[l] < 0.5 ? p[l] : 1 - p[l];
        for (int l = 0; l < LANES; l++) tail[l] = (float)q[l];
        for (int l = 0; l < LANES; l++) side[l] = (float)(p[l] - 0.5);
        for (int l = 0; l < LANES; l++) normal[word][l] = std * quantile_of(tail[l], side[l]);
    }
    for (int i = 0; i < BLOCK; i++) values[i] = normal[i % 4][i / 4];
}

static inline __attribute__((always_inline)) void fill_blocks(const filling *f, int64_t begin, int64_t end) {
    float low = f->init.kind == CT_INIT_TRUNCATED_NORMAL ? (float)f->init.low : -INFINITY;
    float high = f->init.kind == CT_INIT_TRUNCATED_NORMAL ? (float)f->init.high : INFINITY;
    for (int64_t block = begin; block < end; block++) {
        float values[BLOCK];
        normal_block(f, block, values);
        for (int i = 0; i < BLOCK; i++) values[i] = values[i] < low ? low : values[i] > high ? high : values[i];
        int64_t from = block * BLOCK, to = from + BLOCK, last = f->first + f->count;
        int64_t skip = from < f->first ? f->first - from : 0, end_at = to > last ? last : to;
        memcpy(f->data + (from + skip - f->first), values + skip, sizeof(float) * (size_t)(end_at - from - skip));
    }
}

// The same C for each instruction set: without contraction the bits are the same.
static void fill_generic(const filling *f, int64_t begin, int64_t end) { fill_blocks(f, begin, end); }
__attribute__((target("avx2"))) static void fill_avx2(const filling *f, int64_t begin, int64_t end) { fill_blocks(f, begin, end); }
__attribute__((target("avx512f,avx512dq"))) static void fill_avx512(const filling *f, int64_t begin, int64_t end) {
    fill_blocks(f, begin, end);
}

static void fill_part(void *context, int thread, int threads) {
    const filling *f = context;
    long long begin, end;
    int64_t first_block = f->first / BLOCK, last_block = (f->first + f->count + BLOCK - 1) / BLOCK;
    ct_share(last_block - first_block, 64, thread, threads, &begin, &end);
    begin += first_block;
    end += first_block;
    const char *isa = ct_isa_best(NULL);
    if (!strncmp(isa, "avx512", 6)) fill_avx512(f, begin, end);
    else if (!strcmp(isa, "avx2")) fill_avx2(f, begin, end);
    else fill_generic(f, begin, end);
}

static void fill_ones(void *context, int thread, int threads) {
    const filling *f = context;
    long long begin, end;
    ct_share(f->count, 4096, thread, threads, &begin, &end);
    for (int64_t i = begin; i < end; i++) f->data[i] = 1;
}

// Runs of a box that lie one after another in the parameter.
static void fill_region(filling *f, const ct_type *type, const ct_region *region, ct_team *team) {
    int outer = type->dims_count;
    int64_t run = 1, stride = 1, rows = 1;
    while (outer > 0 && (run == stride)) { // dims that are whole, and one before them
        outer--;
        run *= region->extent[outer];
        stride *= type->dims[outer].extent;
    }
    for (int d = 0; d < outer; d++) rows *= region->extent[d];
    float *data = f->data;
    for (int64_t row = 0; row < rows; row++) {
        int64_t first = 0, left = row, at[CT_MAX_DIMS] = {0};
        for (int d = outer - 1; d >= 0; d--) at[d] = left % region->extent[d], left /= region->extent[d];
        for (int d = 0; d < type->dims_count; d++) first = first * type->dims[d].extent + region->offset[d] + at[d];
        f->first = first;
        f->count = run;
        f->data = data + row * run;
        if (run > 0) ct_team_run(team, f->init.kind == CT_INIT_ONES ? fill_ones : fill_part, f);
    }
}

void ct_init_parameter(const ct_parameter *parameter, int number, uint64_t seed, const ct_region *region, ct_team *team, float *data) {
    filling f = {parameter->init, seed, number, 0, 0, 0, 1, data};
    if (parameter->init.kind == CT_INIT_TRUNCATED_NORMAL) {
        f.low = 0.5 * erfc(-parameter->init.low / parameter->init.std / sqrt(2));
        f.width = 0.5 * erfc(-parameter->init.high / parameter->init.std / sqrt(2)) - f.low;
    }
    ct_region whole = {0};
    for (int d = 0; d < parameter->type.dims_count; d++) whole.extent[d] = parameter->type.dims[d].extent;
    fill_region(&f, &parameter->type, region ? region : &whole, team);
}
