// The exponential moving average of the weights. It is state of the update program and lies as its parameter does, so that nothing here
// communicates; the update moves it in AdamW's pass over memory.
#include "trainer_parts.h"

#include <math.h>
#include <string.h>

double ct_average_share(const ct_trainer *t) {
    const ct_config_optimizer *c = &t->config->optimizer;
    int64_t since = t->position + 1 - c->ema_start_step;
    if (since <= 0) return 1;
    if (since % c->ema_interval) return 0;
    double count = (double)t->averaged;
    return 1 - (c->ema_warmup ? fmin(c->ema_decay, (1 + count) / (10 + count)) : c->ema_decay);
}

void ct_average_stepped(ct_trainer *t) {
    int64_t since = t->position + 1 - t->config->optimizer.ema_start_step;
    t->averaged += since > 0 && since % t->config->optimizer.ema_interval == 0;
}

typedef struct {
    float *weights, *average;
    int64_t elems;
} pair;

static void swap_part(void *context, int thread, int threads) {
    const pair *p = context;
    long long begin, end;
    ct_share(p->elems, 1024, thread, threads, &begin, &end);
    for (long long i = begin; i < end; i++) {
        float weight = p->weights[i];
        p->weights[i] = p->average[i];
        p->average[i] = weight;
    }
}

static void copy_part(void *context, int thread, int threads) {
    const pair *p = context;
    long long begin, end;
    ct_share(p->elems, 1024, thread, threads, &begin, &end);
    memcpy(p->average + begin, p->weights + begin, sizeof(float) * (size_t)(end - begin));
}

static void each_pair(ct_trainer *t, ct_task *work) {
    for (int i = 0; i < t->model.parameters_count; i++) {
        const char *name = t->model.parameters[i].name;
        int owner, dims = t->model.parameters[i].type.dims_count;
        const char *average = ct_average_name(&t->arena, name);
        if (!ct_state_is_here(&t->step, average)) continue;
        ct_region region = ct_region_of_state(&t->step, t->rank, name, &owner);
        pair p = {ct_exec_data(t->exec, name), ct_exec_data(t->exec, average), 1};
        for (int d = 0; d < dims; d++) p.elems *= region.extent[d];
        ct_team_run(t->team, work, &p);
    }
}

void ct_average_begin(ct_trainer *t) {
    t->averaged = 0;
    each_pair(t, copy_part);
}

void ct_average_swap(ct_trainer *t) { each_pair(t, swap_part); }
