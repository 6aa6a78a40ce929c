// The update program: uses of a parameter are added in order of use, every gradient is summed exactly, one norm clips all, AdamW
// (Loshchilov & Hutter 2019, arXiv 1711.05101) changes masters and moments in place, and with them the average of the weights where there is one.
#include "train/step.h"
#include "autodiff/autodiff.h"
#include "base/wide.h"
#include "checkpoint/tensor.h"

#include <math.h>

const char *ct_moment_name(ct_arena *arena, const char *parameter, int second) {
    return ct_arena_format(arena, "optimizer.%s.%s", parameter, second ? "exp_avg_sq" : "exp_avg");
}

const char *ct_average_name(ct_arena *arena, const char *parameter) { return ct_arena_format(arena, CT_AVERAGE_PREFIX "%s", parameter); }

typedef struct {
    ct_graph *g;
    const ct_model *model;
    const ct_graph *whole;         // piles all gradients up,
    const ct_graph *const *micros; // and these do on this rank
    int micros_count;
    const ct_step_options *options;
    ct_value no, scalars;
    ct_value *gradients; // by parameter
    unsigned char *is_guest; // by parameter: another rank has its first use
} update;

static ct_value scalar_feed(ct_graph *g, const char *name, ct_dtype dtype) {
    return ct_build_input(g, CT_FEED, name, ct_type_make(dtype, 0, NULL));
}

// The state that holds the gradient of a parameter's use, summed where that is done; NULL: there is no such use.
static const char *name_of_use(const update *u, const ct_parameter *parameter, int use) {
    const char *name = ct_gradient_name(&u->g->arena, parameter->name, use), *sum = ct_arena_format(&u->g->arena, "%s%s", name, CT_SUM_SUFFIX);
    if (ct_graph_find_input(u->whole, sum) >= 0) return sum;
    return ct_graph_find_input(u->whole, name) >= 0 ? name : NULL;
}

static int is_here(const update *u, const char *gradient) {
    int found = 0;
    for (int i = 0; i < u->micros_count && !found; i++) found = ct_graph_find_input(u->micros[i], gradient) >= 0;
    return found;
}

static int is_used_here(const update *u, const ct_parameter *parameter) {
    const char *name;
    for (int use = 0; (name = name_of_use(u, parameter, use)); use++)
        if (is_here(u, name)) return 1;
    return 0;
}

// The gradient of a parameter: its uses' accumulators added in order, or none where nothing here depends on it.
static ct_value whole_gradient(update *u, const ct_parameter *parameter) {
    ct_value sum = CT_NO_VALUE, first = CT_NO_VALUE;
    if (!is_used_here(u, parameter)) return sum;
    const char *name;
    for (int use = 0; (name = name_of_use(u, parameter, use)); use++) {
        if (use == 0) u->is_guest[parameter - u->model->parameters] = !is_here(u, name);
        ct_value part = ct_build_input(u->g, CT_GRADIENT, name, parameter->type);
        if (use == 0) first = sum = part;
        else sum = ct_accumulate(u->g, sum, part, u->no);
    }
    if (sum.id != first.id) ct_build_update(u->g, first, sum);
    return sum;
}

// The norm of all gradients: each one's squares are summed exactly where it lies, the sums are added.
static ct_value norm_of_all(update *u) {
    ct_graph *g = u->g;
    ct_value *squares = CT_ARENA_ARRAY(&g->arena, ct_value, u->model->parameters_count + 1);
    int count = 0;
    for (int i = 0; i < u->model->parameters_count; i++) {
        if (u->gradients[i].id < 0 || u->is_guest[i]) continue;
        ct_graph_at(g, CT_OPTIMIZER, -1, "%s", u->model->parameters[i].name);
        squares[count++] = ct_wide_of(g, u->gradients[i], 1);
    }
    ct_graph_at(g, CT_OPTIMIZER, -1, "clip");
    ct_value total = ct_wide_total(g, count, squares);
    ct_graph_hint(g, total, CT_HINT_STAGES);
    return ct_wide_norm(g, total);
}

static ct_adamw_options constants_of(const update *u, const char *name) {
    if (u->options->optimizer) return u->options->optimizer(u->options->context, name);
    return (ct_adamw_options){.lr_scale = 1, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = 0.1};
}

static void step_parameter(update *u, int i, ct_value clip) {
    ct_graph *g = u->g;
    const ct_parameter *parameter = &u->model->parameters[i];
    if (u->gradients[i].id < 0) return;
    ct_graph_at(g, CT_OPTIMIZER, -1, "%s", parameter->name);
    int states = u->options->average ? 4 : 3;
    ct_value old[4], new[4];
    ct_adamw_options constants = constants_of(u, parameter->name);
    old[0] = ct_build_input(g, CT_PARAMETER, parameter->name, parameter->type);
    for (int second = 0; second < 2; second++)
        old[1 + second] = ct_build_input(g, CT_MOMENT, ct_moment_name(&g->arena, parameter->name, second), parameter->type);
    if (states == 4) old[3] = ct_build_input(g, CT_MOMENT, ct_average_name(&g->arena, parameter->name), parameter->type);
    for (int k = 0; k < states && u->is_guest[i]; k++) ct_graph_hint(g, old[k], CT_HINT_GUEST);
    if (states == 4) ct_adamw_ema(g, old, u->gradients[i], clip, u->scalars, constants, new);
    else ct_adamw(g, old[0], old[1], old[2], u->gradients[i], clip, u->scalars, constants, &new[0], &new[1], &new[2]);
    for (int k = 0; k < states; k++) ct_build_update(g, old[k], new[k]);
}

ct_status ct_step_build_update(const ct_model *model, const ct_graph *whole, const ct_graph *const *micros, int count, const ct_step_options *options,
                               ct_graph *g) {
    ct_graph_init(g, "update");
    for (int i = 0; i < whole->roles_count; i++) ct_graph_role(g, whole->roles[i].name, whole->roles[i].role);
    ct_graph_role(g, "W", CT_ROLE_NONE);
    ct_graph_role(g, "s", CT_ROLE_NONE);
    ct_dim fed = ct_dim_make("s", options->average ? 3 : 2);
    update u = {.g = g, .model = model, .whole = whole, .micros = micros, .micros_count = count, .options = options};
    u.no = scalar_feed(g, "false", CT_I32);
    u.scalars = ct_build_input(g, CT_FEED, "scalars", ct_type_make(CT_F64, 1, &fed));
    u.gradients = CT_ARENA_ARRAY(&g->arena, ct_value, model->parameters_count);
    u.is_guest = CT_ARENA_ARRAY(&g->arena, unsigned char, model->parameters_count);
    ct_graph_at(g, CT_OPTIMIZER, -1, "gradients");
    for (int i = 0; i < model->parameters_count; i++) u.gradients[i] = whole_gradient(&u, &model->parameters[i]);
    ct_value norm = norm_of_all(&u);
    ct_build_output(g, "grad_norm", norm);
    ct_value clip = ct_clip_factor(g, norm, options->max_norm > 0 ? fmin(options->max_norm, 3e38) : 3e38);
    for (int i = 0; i < model->parameters_count; i++) step_parameter(&u, i, clip);
    return ct_graph_status(g);
}
