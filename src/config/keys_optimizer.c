// Keys of [optimizer], [[optimizer.param_groups]] and [lr_scheduler].
#include "keys.h"
#include "ranges.h"

#define AT(field) offsetof(ct_config, field)
#define IN_GROUP(field) offsetof(ct_config_param_group, field)

static const config_choice names[] = {
    {"AdamW", CT_CFG_ADAMW}, {"Adam", CT_CFG_ADAM}, {"DistMuon", CT_CFG_DISTMUON}, {NULL, 0}};
static const config_choice implementations[] = {
    {"for-loop", CT_CFG_FOR_LOOP}, {"foreach", CT_CFG_FOREACH}, {"fused", CT_CFG_FUSED}, {NULL, 0}};
static const config_choice decays[] = {
    {"linear", CT_CFG_LINEAR}, {"sqrt", CT_CFG_SQRT}, {"cosine", CT_CFG_COSINE}, {NULL, 0}};

static const config_key group_fields[] = {
    {"optimizer.param_groups", "pattern", KEY_STRING, .offset = IN_GROUP(pattern),
     .help = "Regular expression, searched for in a parameter's name; the first group that has it decides."},
    {"optimizer.param_groups", "lr_scale", KEY_FLOAT, .offset = IN_GROUP(lr_scale), .default_text = "1.0",
     .range = &config_number_at_least_0, .help = "Factor on the learning rate."},
    {"optimizer.param_groups", "weight_decay", KEY_FLOAT, .optional = true, .offset = IN_GROUP(weight_decay),
     .range = &config_number_at_least_0, .help = "Instead of optimizer.weight_decay."},
    {"optimizer.param_groups", "beta1", KEY_FLOAT, .optional = true, .offset = IN_GROUP(beta1),
     .range = &config_0_to_below_1, .help = "Instead of optimizer.beta1."},
    {"optimizer.param_groups", "beta2", KEY_FLOAT, .optional = true, .offset = IN_GROUP(beta2),
     .range = &config_0_to_below_1, .help = "Instead of optimizer.beta2."},
    {"optimizer.param_groups", "eps", KEY_FLOAT, .optional = true, .offset = IN_GROUP(eps),
     .range = &config_number_at_least_0, .help = "Instead of optimizer.eps."},
};

static const config_key keys[] = {
    {"optimizer", "name", KEY_ENUM, .offset = AT(optimizer.name), .default_text = "\"AdamW\"", .choices = names,
     .numbers = true, .built = "AdamW Adam",
     .help = "Adam adds the weight decay to the gradient, AdamW takes it off the weight."},
    {"optimizer", "lr", KEY_FLOAT, .offset = AT(optimizer.lr), .default_text = "8e-4",
     .range = &config_number_at_least_0, .numbers = true, .help = "Learning rate after the warm-up."},
    {"optimizer", "beta1", KEY_FLOAT, .offset = AT(optimizer.beta1), .default_text = "0.9",
     .range = &config_0_to_below_1, .numbers = true, .help = "Decay of the gradient's running mean."},
    {"optimizer", "beta2", KEY_FLOAT, .offset = AT(optimizer.beta2), .default_text = "0.95",
     .range = &config_0_to_below_1, .numbers = true, .help = "Decay of the squared gradient's running mean."},
    {"optimizer", "eps", KEY_FLOAT, .offset = AT(optimizer.eps), .default_text = "1e-8",
     .range = &config_number_at_least_0, .numbers = true,
     .help = "What is added to the square root in the denominator."},
    {"optimizer", "weight_decay", KEY_FLOAT, .offset = AT(optimizer.weight_decay), .default_text = "0.1",
     .range = &config_number_at_least_0, .numbers = true,
     .help = "Weight decay, on every parameter unless a group says otherwise."},
    {"optimizer", "implementation", KEY_ENUM, .offset = AT(optimizer.implementation), .default_text = "\"fused\"",
     .choices = implementations, .use = USE_NONE, .why = "there is one implementation here, and it is fused",
     .help = "Which of torch's implementations to use."},
    {"optimizer", "early_step_in_backward", KEY_BOOL, .offset = AT(optimizer.early_step_in_backward),
     .default_text = "false", .numbers = true, .built = "false",
     .help = "Update each parameter within the backward pass, so without clipping."},
    {"optimizer", "ema_decay", KEY_FLOAT, .offset = AT(optimizer.ema_decay), .default_text = "0.0", .source = FROM_US,
     .range = &config_0_to_below_1, .numbers = true,
     .help = "Keep an exponential moving average of the weights, average = decay · average + (1 - decay) · weights; 0: none."},
    {"optimizer", "ema_warmup", KEY_BOOL, .offset = AT(optimizer.ema_warmup), .default_text = "false", .source = FROM_US,
     .numbers = true, .help = "The average's t-th change, from 0, has the decay min(ema_decay, (1 + t) / (10 + t))."},
    {"optimizer", "ema_start_step", KEY_INT, .offset = AT(optimizer.ema_start_step), .default_text = "0", .source = FROM_US,
     .range = &config_at_least_0, .unit = "steps", .numbers = true,
     .help = "Up to this step the average is the weights themselves."},
    {"optimizer", "ema_interval", KEY_INT, .offset = AT(optimizer.ema_interval), .default_text = "1", .source = FROM_US,
     .range = &config_at_least_1, .unit = "steps", .numbers = true,
     .help = "Change the average every so many steps; in between, it costs nothing."},
    {"optimizer", "param_groups", KEY_GROUPS, .offset = AT(optimizer.param_groups), .numbers = true,
     .source = FROM_US, .help = "Groups of parameters with hyperparameters of their own.", .fields = group_fields,
     .field_count = sizeof group_fields / sizeof *group_fields, .element_bytes = sizeof(ct_config_param_group),
     .count_offset = AT(optimizer.param_group_count)},

    {"lr_scheduler", "warmup_steps", KEY_INT, .offset = AT(lr_scheduler.warmup_steps), .default_text = "200",
     .range = &config_at_least_0, .unit = "steps", .numbers = true,
     .help = "The learning rate rises linearly over these; at most the steps there are."},
    {"lr_scheduler", "total_steps", KEY_INT, .optional = true, .offset = AT(lr_scheduler.total_steps),
     .range = &config_at_least_1, .unit = "steps", .numbers = true,
     .help = "The schedule's length; unset: training.steps."},
    {"lr_scheduler", "decay_ratio", KEY_FLOAT, .optional = true, .offset = AT(lr_scheduler.decay_ratio),
     .range = &config_0_to_1, .numbers = true,
     .help = "Share of all steps, at the end, over which the rate decays; unset: all after the warm-up."},
    {"lr_scheduler", "decay_type", KEY_ENUM, .offset = AT(lr_scheduler.decay_type), .default_text = "\"linear\"",
     .choices = decays, .numbers = true, .help = "The decay's curve: 1 - p, 1 - sqrt(p) or (1 + cos(pi p)) / 2."},
    {"lr_scheduler", "min_lr_factor", KEY_FLOAT, .offset = AT(lr_scheduler.min_lr_factor), .default_text = "0.0",
     .range = &config_0_to_1, .numbers = true, .help = "The decay ends at this share of optimizer.lr."},
};

const config_keys config_keys_optimizer = {keys, sizeof keys / sizeof *keys};
