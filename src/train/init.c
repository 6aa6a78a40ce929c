// Initial weights: element i of parameter k is a function of (seed, k, i) alone (Philox), so every mesh starts from the same bits.
// Normals come from the inverse distribution function, which a truncation only narrows; computed in double, rounded once.
#include "train/setup.h"
#include "base/philox.h"

#include <math.h>

// Inverse of the standard normal distribution function (Acklam's rational approximation, relative error below 1.2e-9).
static double normal_quantile(double p) {
    static const double a[] = {-3.969683028665376e+01, 2.209460984245205e+02,  -2.759285104469687e+02,
                               1.383577518672690e+02,  -3.066479806614716e+01, 2.506628277459239e+00};
    static const double b[] = {-5.447609879822406e+01, 1.615858368580409e+02, -1.556989798598866e+02,
                               6.680131188771972e+01,  -1.328068155288572e+01};
    static const double c[] = {-7.784894002430293e-03, -3.223964580411365e-01, -2.400758277161838e+00,
                               -2.549732539343734e+00, 4.374664141464968e+00,  2.938163982698783e+00};
    static const double d[] = {7.784695709041462e-03, 3.224671290700398e-01, 2.445134137142996e+00, 3.754408661907416e+00};
    if (p < 0.02425) {
        double q = sqrt(-2 * log(p));
        return (((((c[0] * q + c[1]) * q + c[2]) * q + c[3]) * q + c[4]) * q + c[5]) /
               ((((d[0] * q + d[1]) * q + d[2]) * q + d[3]) * q + 1);
    }
    if (p > 1 - 0.02425) return -normal_quantile(1 - p);
    double q = p - 0.5, r = q * q;
    return (((((a[0] * r + a[1]) * r + a[2]) * r + a[3]) * r + a[4]) * r + a[5]) * q /
           (((((b[0] * r + b[1]) * r + b[2]) * r + b[3]) * r + b[4]) * r + 1);
}

typedef struct {
    ct_init init;
    uint64_t seed;
    int number;
    int64_t count;
    double low, width; // probabilities of the cuts
    float *data;
} filling;

static void fill_four(const filling *f, int64_t group) {
    uint32_t counter[4] = {(uint32_t)group, (uint32_t)(group >> 32), (uint32_t)f->number, 1}; // 1: the stream of initial weights
    uint32_t key[2] = {(uint32_t)f->seed, (uint32_t)(f->seed >> 32)}, random[4];
    ct_philox(counter, key, random);
    for (int k = 0; k < 4 && 4 * group + k < f->count; k++) {
        double uniform = ((double)random[k] + 0.5) * 0x1p-32;
        double x = f->init.std * normal_quantile(f->low + f->width * uniform);
        if (f->init.kind == CT_INIT_TRUNCATED_NORMAL) x = fmin(fmax(x, f->init.low), f->init.high);
        f->data[4 * group + k] = (float)x;
    }
}

static void fill_part(void *context, int thread, int threads) {
    const filling *f = context;
    long long begin, end;
    ct_share((f->count + 3) / 4, 64, thread, threads, &begin, &end);
    for (long long group = begin; group < end; group++) {
        if (f->init.kind == CT_INIT_ONES)
            for (int k = 0; k < 4 && 4 * group + k < f->count; k++) f->data[4 * group + k] = 1;
        else
            fill_four(f, group);
    }
}

void ct_init_parameter(const ct_parameter *parameter, int number, uint64_t seed, ct_team *team, float *data) {
    filling f = {parameter->init, seed, number, ct_type_elems(&parameter->type), 0, 1, data};
    if (parameter->init.kind == CT_INIT_TRUNCATED_NORMAL) {
        f.low = 0.5 * erfc(-parameter->init.low / parameter->init.std / sqrt(2));
        f.width = 0.5 * erfc(-parameter->init.high / parameter->init.std / sqrt(2)) - f.low;
    }
    ct_team_run(team, fill_part, &f);
}
