// Keys of [model], [model.args] and [model.args.rope_scaling_args].
#include "keys.h"
#include "ranges.h"

#define AT(field) offsetof(ct_config, field)
#define ARGS "model.args"
#define ROPE "model.args.rope_scaling_args"

static const config_choice masks[] = {
    {"causal", CT_CFG_MASK_CAUSAL}, {"block_causal", CT_CFG_MASK_BLOCK_CAUSAL}, {NULL, 0}};

static const config_key keys[] = {
    {"model", "name", KEY_STRING, .offset = AT(model.name), .default_text = "\"llama3\"", .numbers = true,
     .help = "Which model to train."},
    {"model", "flavor", KEY_STRING, .offset = AT(model.flavor), .default_text = "\"debugmodel\"", .numbers = true,
     .help = "Which of the model's sizes; [model.args] overrides its fields one by one."},
    {"model", "hf_assets_path", KEY_STRING, .offset = AT(model.hf_assets_path),
     .default_text = "\"./tests/assets/tokenizer\"", .numbers = true,
     .help = "The tokenizer: a file, or the folder that holds it (tokenizer.json, tokenizer.model, *.tiktoken)."},
    {"model", "tokenizer_path", KEY_STRING, .optional = true, .offset = AT(model.tokenizer_path), .numbers = true,
     .help = "Old name of hf_assets_path, which it replaces where given."},
    {"model", "converters", KEY_STRINGS, .offset = AT(model.converters), .default_text = "[]", .numbers = true,
     .built = "[]", .help = "Rewrites of the model before training, such as \"float8\"."},
    {"model", "print_after_conversion", KEY_BOOL, .offset = AT(model.print_after_conversion), .default_text = "false",
     .use = USE_GATED, .why = "model.converters", .help = "Print the model after its converters have run."},

    {ARGS, "dim", KEY_INT, .optional = true, .offset = AT(model.args.dim), .range = &config_at_least_1,
     .numbers = true, .source = FROM_US, .help = "Width of the residual stream."},
    {ARGS, "n_layers", KEY_INT, .optional = true, .offset = AT(model.args.n_layers), .range = &config_at_least_1,
     .unit = "layers", .numbers = true, .source = FROM_US, .help = "Transformer blocks."},
    {ARGS, "n_heads", KEY_INT, .optional = true, .offset = AT(model.args.n_heads), .range = &config_at_least_1,
     .unit = "heads", .numbers = true, .source = FROM_US, .help = "Query heads; dim / n_heads is a head's size."},
    {ARGS, "n_kv_heads", KEY_INT, .optional = true, .offset = AT(model.args.n_kv_heads), .range = &config_at_least_1,
     .unit = "heads", .numbers = true, .source = FROM_US,
     .help = "Key and value heads, each shared by n_heads / n_kv_heads queries."},
    {ARGS, "vocab_size", KEY_INT, .optional = true, .offset = AT(model.args.vocab_size), .range = &config_at_least_1,
     .unit = "tokens", .numbers = true, .source = FROM_US, .help = "Rows of the embedding and of the head."},
    {ARGS, "multiple_of", KEY_INT, .optional = true, .offset = AT(model.args.multiple_of),
     .range = &config_at_least_1, .numbers = true, .source = FROM_US,
     .help = "The feed-forward's inner size is rounded up to a multiple of this."},
    {ARGS, "ffn_dim_multiplier", KEY_FLOAT, .optional = true, .offset = AT(model.args.ffn_dim_multiplier),
     .range = &config_above_0, .numbers = true, .source = FROM_US,
     .help = "Factor on the feed-forward's inner size, 8/3 dim, before it is rounded up."},
    {ARGS, "hidden_dim", KEY_INT, .optional = true, .offset = AT(model.args.hidden_dim), .range = &config_at_least_1,
     .numbers = true, .source = FROM_US,
     .help = "The feed-forward's inner size itself, instead of multiple_of and ffn_dim_multiplier."},
    {ARGS, "norm_eps", KEY_FLOAT, .optional = true, .offset = AT(model.args.norm_eps),
     .range = &config_number_at_least_0, .numbers = true, .source = FROM_US,
     .help = "What RMSNorm adds to the mean square."},
    {ARGS, "rope_theta", KEY_FLOAT, .optional = true, .offset = AT(model.args.rope_theta), .range = &config_above_0,
     .numbers = true, .source = FROM_US, .help = "Base of the rotary frequencies."},
    {ARGS, "max_seq_len", KEY_INT, .optional = true, .offset = AT(model.args.max_seq_len),
     .range = &config_at_least_1, .unit = "tokens", .numbers = true, .source = FROM_US,
     .help = "The longest context the model is meant for."},
    {ARGS, "attn_mask_type", KEY_ENUM, .optional = true, .unset_choice = CT_CFG_MASK_UNSET,
     .offset = AT(model.args.attn_mask_type), .choices = masks, .numbers = true, .source = FROM_US,
     .help = "Attend to all earlier tokens, or (block_causal) only to those of the same document; positions then "
             "restart."},
    {ARGS, "depth_init", KEY_BOOL, .optional = true, .offset = AT(model.args.depth_init), .numbers = true,
     .source = FROM_US,
     .help = "Initialise a block's output weights by its own depth (true) or by the number of blocks."},
    {ARGS, "enable_weight_tying", KEY_BOOL, .optional = true, .offset = AT(model.args.enable_weight_tying),
     .numbers = true, .source = FROM_US, .help = "The head is the embedding."},

    {ROPE, "scaling_factor", KEY_FLOAT, .optional = true, .offset = AT(model.args.rope_scaling_factor),
     .range = &config_above_0, .numbers = true, .source = FROM_US,
     .help = "Llama 3.1's scaling: long wavelengths are stretched by this (1: no scaling)."},
    {ROPE, "low_freq_factor", KEY_FLOAT, .optional = true, .offset = AT(model.args.rope_low_freq_factor),
     .range = &config_above_0, .numbers = true, .source = FROM_US,
     .help = "Wavelengths above original_max_position_embeddings / this are stretched in full."},
    {ROPE, "high_freq_factor", KEY_FLOAT, .optional = true, .offset = AT(model.args.rope_high_freq_factor),
     .range = &config_above_0, .numbers = true, .source = FROM_US,
     .help = "Wavelengths below original_max_position_embeddings / this stay as they are."},
    {ROPE, "original_max_position_embeddings", KEY_INT, .optional = true, .offset = AT(model.args.rope_original_max_seq_len),
     .range = &config_at_least_1, .unit = "tokens", .numbers = true, .source = FROM_US,
     .help = "The context length that the scaling starts from."},
};

const config_keys config_keys_model = {keys, sizeof keys / sizeof *keys};
