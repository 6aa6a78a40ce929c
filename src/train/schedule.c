// Warm-up, stable, decay (WSD) as torchtitan's lr_scheduler has it, the virtual extra step included that keeps the last rate above 0.
#include "train/setup.h"

#include <math.h>

typedef struct {
    double warmup, stable, decay;
} spans;

static spans spans_of(const ct_config *config) {
    const ct_config_lr_scheduler *s = &config->lr_scheduler;
    double total = (double)(s->total_steps.has ? s->total_steps.value : config->training.steps);
    double warmup = fmin((double)s->warmup_steps, total), decay = total - warmup;
    if (s->decay_ratio.has) decay = fmin(nearbyint(total * s->decay_ratio.value), total - warmup);
    return (spans){warmup, total + 1 - warmup - decay, decay};
}

static double decayed(ct_cfg_decay type, double progress) {
    switch (type) {
    case CT_CFG_SQRT: return 1 - sqrt(progress);
    case CT_CFG_COSINE: return 0.5 * (1 + cos(3.14159265358979323846 * progress));
    default: return 1 - progress;
    }
}

double ct_schedule_lr(const ct_config *config, int64_t step) {
    const ct_config_lr_scheduler *s = &config->lr_scheduler;
    spans w = spans_of(config);
    double now = (double)(step - 1), factor = 1; // torch's schedulers count from 0
    if (now < w.warmup) {
        factor = (now + 1) / w.warmup;
    } else if (now >= w.warmup + w.stable && w.decay > 0) {
        double progress = fmin(1, (now + 1 - w.warmup - w.stable) / w.decay);
        factor = s->min_lr_factor + (1 - s->min_lr_factor) * decayed(s->decay_type, progress);
    }
    return config->optimizer.lr * factor;
}
