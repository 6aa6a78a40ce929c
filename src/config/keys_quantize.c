// Keys of [quantize.…]: they speak only where model.converters asks for a low-precision format.
#include "keys.h"

#define AT(field) offsetof(ct_config, quantize.field)

static const config_choice recipes[] = {{"tensorwise", CT_CFG_TENSORWISE},
                                        {"rowwise", CT_CFG_ROWWISE},
                                        {"rowwise_with_gw_hp", CT_CFG_ROWWISE_GW_HP},
                                        {NULL, 0}};
static const config_choice casts[] = {
    {"triton", CT_CFG_TRITON}, {"cuda", CT_CFG_CUDA}, {"torch", CT_CFG_TORCH}, {NULL, 0}};

static const char with[] = "model.converters";

static const config_key keys[] = {
    {"quantize.linear.float8", "enable_fsdp_float8_all_gather", KEY_BOOL,
     .offset = AT(linear.float8.enable_fsdp_float8_all_gather), .default_text = "false", .numbers = true,
     .use = USE_GATED, .why = with, .help = "Gather weights in float8."},
    {"quantize.linear.float8", "precompute_float8_dynamic_scale_for_fsdp", KEY_BOOL,
     .offset = AT(linear.float8.precompute_float8_dynamic_scale_for_fsdp), .default_text = "false", .numbers = true,
     .use = USE_GATED, .why = with, .help = "Agree on all weights' scales once a step."},
    {"quantize.linear.float8", "recipe_name", KEY_ENUM, .optional = true, .unset_choice = CT_CFG_RECIPE_UNSET,
     .offset = AT(linear.float8.recipe_name), .choices = recipes, .numbers = true, .use = USE_GATED, .why = with,
     .help = "What shares a scale: a tensor, a row, or a row with weight gradients in high precision."},
    {"quantize.linear.float8", "filter_fqns", KEY_STRINGS, .offset = AT(linear.float8.filter_fqns),
     .default_text = "[]", .numbers = true, .use = USE_GATED, .why = with,
     .help = "Modules that stay in high precision."},
    {"quantize.linear.float8", "emulate", KEY_BOOL, .offset = AT(linear.float8.emulate), .default_text = "false",
     .numbers = true, .use = USE_GATED, .why = with, .help = "Round to float8 but multiply in high precision."},
    {"quantize.linear.mx", "mxfp8_dim1_cast_kernel_choice", KEY_ENUM,
     .offset = AT(linear.mx.mxfp8_dim1_cast_kernel_choice), .default_text = "\"triton\"", .choices = casts,
     .use = USE_GATED, .why = with, .help = "Which of torch's kernels casts along columns."},
    {"quantize.linear.mx", "recipe_name", KEY_STRING, .offset = AT(linear.mx.recipe_name),
     .default_text = "\"mxfp8_cublas\"", .numbers = true, .use = USE_GATED, .why = with, .help = "Which MX format."},
    {"quantize.linear.mx", "filter_fqns", KEY_STRINGS, .offset = AT(linear.mx.filter_fqns),
     .default_text = "[\"output\"]", .numbers = true, .use = USE_GATED, .why = with,
     .help = "Modules that stay in high precision."},
    {"quantize.grouped_mm.float8", "fqns", KEY_STRINGS, .or_string = true, .offset = AT(grouped_mm.float8.fqns),
     .default_text = "[]", .numbers = true, .use = USE_GATED, .why = with,
     .help = "Experts whose products are in float8."},
    {"quantize.grouped_mm.mx", "recipe_name", KEY_STRING, .offset = AT(grouped_mm.mx.recipe_name),
     .default_text = "\"mxfp8\"", .numbers = true, .use = USE_GATED, .why = with, .help = "Which MX format."},
    {"quantize.grouped_mm.mx", "fqns", KEY_STRINGS, .or_string = true, .offset = AT(grouped_mm.mx.fqns),
     .default_text = "[]", .numbers = true, .use = USE_GATED, .why = with,
     .help = "Experts whose products are in MX."},
};

const config_keys config_keys_quantize = {keys, sizeof keys / sizeof *keys};
