// Keys of [activation_checkpoint], [compile] and [memory_estimation].
#include "keys.h"
#include "ranges.h"

#define AT(field) offsetof(ct_config, field)

static const config_choice modes[] = {{"selective", CT_CFG_AC_SELECTIVE},
                                      {"full", CT_CFG_AC_FULL},
                                      {"memory_budget", CT_CFG_AC_MEMORY_BUDGET},
                                      {"none", CT_CFG_AC_NONE},
                                      {NULL, 0}};

static const config_key keys[] = {
    {"activation_checkpoint", "mode", KEY_ENUM, .offset = AT(activation_checkpoint.mode),
     .default_text = "\"selective\"", .choices = modes, .built = "selective full none",
     .help = "Which activations are recomputed in the backward pass: some, all of each layer, by budget, none."},
    {"activation_checkpoint", "selective_ac_option", KEY_STRING,
     .offset = AT(activation_checkpoint.selective_ac_option), .default_text = "\"2\"",
     .help = "selective: \"n\" recomputes every n-th layer, \"op\" the cheap operations of all."},
    {"activation_checkpoint", "per_op_sac_force_recompute_mm_shapes_by_fqns", KEY_STRINGS,
     .offset = AT(activation_checkpoint.per_op_sac_force_recompute_mm_shapes_by_fqns),
     .default_text = "[\"moe.router.gate\"]", .use = USE_GATED, .why = "activation_checkpoint.selective_ac_option",
     .help = "With \"op\": products of these modules' shapes are always recomputed."},
    {"activation_checkpoint", "early_stop", KEY_BOOL, .offset = AT(activation_checkpoint.early_stop),
     .default_text = "false", .use = USE_NONE, .why = "the plan recomputes only what is read",
     .help = "End recomputation when all that is needed is there."},
    {"activation_checkpoint", "memory_budget", KEY_FLOAT, .offset = AT(activation_checkpoint.memory_budget),
     .default_text = "0.5", .range = &config_0_to_1, .use = USE_GATED, .why = "activation_checkpoint.mode",
     .help = "With memory_budget: share of the activation bytes to keep, between full (0) and none (1)."},
    {"activation_checkpoint", "visualize_memory_budget_pareto", KEY_BOOL,
     .offset = AT(activation_checkpoint.visualize_memory_budget_pareto), .default_text = "false", .use = USE_GATED,
     .why = "activation_checkpoint.mode", .help = "With memory_budget: draw time against memory for all budgets."},
    {"activation_checkpoint", "preserve_rng_state", KEY_BOOL, .offset = AT(activation_checkpoint.preserve_rng_state),
     .default_text = "true", .use = USE_NONE,
     .why = "random numbers are keyed by element, so recomputation draws the same",
     .help = "Keep the random state for recomputation."},
    {"activation_checkpoint", "determinism_check", KEY_STRING, .offset = AT(activation_checkpoint.determinism_check),
     .default_text = "\"default\"", .use = USE_NONE, .why = "recomputation gives the same bits by construction",
     .help = "How recomputed values are compared with the first ones."},
    {"activation_checkpoint", "debug", KEY_BOOL, .offset = AT(activation_checkpoint.debug), .default_text = "false",
     .use = USE_NONE, .why = "`ctitan plan` shows what is recomputed", .help = "Report on recomputation."},

    {"compile", "enable", KEY_BOOL, .offset = AT(compile.enable), .default_text = "false", .use = USE_NONE,
     .why = "a step is always planned ahead as a whole", .help = "Compile the model."},
    {"compile", "components", KEY_STRINGS, .offset = AT(compile.components), .default_text = "[\"model\", \"loss\"]",
     .use = USE_GATED, .why = "compile.enable", .help = "What to compile."},
    {"compile", "backend", KEY_STRING, .offset = AT(compile.backend), .default_text = "\"inductor\"",
     .use = USE_GATED, .why = "compile.enable", .help = "Compiler to use."},

    {"memory_estimation", "enable", KEY_BOOL, .offset = AT(memory_estimation.enable), .default_text = "false",
     .use = USE_NONE, .why = "`ctitan plan` gives the exact peak", .help = "Estimate memory instead of training."},
    {"memory_estimation", "disable_fake_mode", KEY_BOOL, .offset = AT(memory_estimation.disable_fake_mode),
     .default_text = "false", .use = USE_GATED, .why = "memory_estimation.enable",
     .help = "Estimate with real tensors."},
};

const config_keys config_keys_memory = {keys, sizeof keys / sizeof *keys};
