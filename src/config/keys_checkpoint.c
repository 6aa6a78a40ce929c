// Keys of [checkpoint].
#include "keys.h"
#include "ranges.h"

#define AT(field) offsetof(ct_config, checkpoint.field)

static const config_choice dtypes[] = {
    {"float16", CT_CFG_FLOAT16}, {"bfloat16", CT_CFG_BFLOAT16}, {"float32", CT_CFG_FLOAT32}, {NULL, 0}};
static const config_choice async_modes[] = {
    {"disabled", CT_CFG_SYNC}, {"async", CT_CFG_ASYNC}, {"async_with_pinned_mem", CT_CFG_ASYNC_PINNED}, {NULL, 0}};

static const config_key keys[] = {
    {"checkpoint", "enable", KEY_BOOL, .offset = AT(enable), .default_text = "false",
     .help = "Save checkpoints, and resume from the newest whole one."},
    {"checkpoint", "enable_ft_dataloader_checkpoints", KEY_BOOL, .offset = AT(enable_ft_dataloader_checkpoints),
     .default_text = "true", .use = USE_GATED, .why = "fault_tolerance.enable",
     .help = "Keep each replica's data position, so that none reads the same data twice."},
    {"checkpoint", "folder", KEY_STRING, .offset = AT(folder), .default_text = "\"checkpoint\"",
     .help = "Folder of the checkpoints, below job.dump_folder."},
    {"checkpoint", "interval", KEY_INT, .offset = AT(interval), .default_text = "500", .range = &config_at_least_1,
     .unit = "steps", .help = "Save every so many steps, and at the end."},
    {"checkpoint", "initial_load_path", KEY_STRING, .optional = true, .offset = AT(initial_load_path),
     .numbers = true, .help = "Checkpoint or Hugging Face folder to begin from where this run has none of its own."},
    {"checkpoint", "initial_load_model_only", KEY_BOOL, .offset = AT(initial_load_model_only), .default_text = "true",
     .numbers = true, .help = "Of initial_load_path, take the model only, not optimizer, step and data position."},
    {"checkpoint", "initial_load_in_hf", KEY_BOOL, .offset = AT(initial_load_in_hf), .default_text = "false",
     .numbers = true, .help = "initial_load_path has Hugging Face's names and safetensors files."},
    {"checkpoint", "initial_load_in_hf_quantized", KEY_BOOL, .offset = AT(initial_load_in_hf_quantized),
     .default_text = "false", .numbers = true, .built = "false",
     .help = "Its weights are quantised, with scales beside them."},
    {"checkpoint", "last_save_model_only", KEY_BOOL, .offset = AT(last_save_model_only), .default_text = "true",
     .help = "The save after the last step holds the model only."},
    {"checkpoint", "last_save_in_hf", KEY_BOOL, .offset = AT(last_save_in_hf), .default_text = "false",
     .help = "The save after the last step is a Hugging Face folder; needs last_save_model_only."},
    {"checkpoint", "export_dtype", KEY_ENUM, .offset = AT(export_dtype), .default_text = "\"float32\"",
     .choices = dtypes, .help = "Type of the weights in a last save that holds the model only."},
    {"checkpoint", "async_mode", KEY_ENUM, .offset = AT(async_mode), .default_text = "\"disabled\"",
     .choices = async_modes, .help = "Write checkpoints while training goes on; both ways of it are one here."},
    {"checkpoint", "keep_latest_k", KEY_INT, .offset = AT(keep_latest_k), .default_text = "10",
     .range = &config_0_or_at_least_2, .unit = "checkpoints", .help = "Older ones are removed; 0: none is."},
    {"checkpoint", "load_step", KEY_INT, .offset = AT(load_step), .default_text = "-1",
     .range = &config_at_least_minus_1, .unit = "steps", .numbers = true,
     .help = "Resume from the checkpoint of this step; -1: from the newest."},
    {"checkpoint", "exclude_from_loading", KEY_STRINGS, .offset = AT(exclude_from_loading), .default_text = "[]",
     .numbers = true, .help = "Parts not to load: optimizer, lr_scheduler, dataloader, train_state."},
    {"checkpoint", "enable_first_step_checkpoint", KEY_BOOL, .offset = AT(enable_first_step_checkpoint),
     .default_text = "false", .help = "Also save after the first step, to see early that it works."},
    {"checkpoint", "create_seed_checkpoint", KEY_BOOL, .offset = AT(create_seed_checkpoint), .default_text = "false",
     .help = "Only initialise the model, save it as step 0, and end."},
    {"checkpoint", "load_only", KEY_BOOL, .offset = AT(load_only), .default_text = "false",
     .help = "Load, but never save."},
};

const config_keys config_keys_checkpoint = {keys, sizeof keys / sizeof *keys};
