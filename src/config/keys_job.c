// Keys of [job], [profiling] and [metrics].
#include "keys.h"
#include "ranges.h"

#define AT(field) offsetof(ct_config, field)

static const config_key keys[] = {
    {"job", "config_file", KEY_STRING, .optional = true, .offset = AT(job.config_file),
     .help = "The TOML file to read; only on the command line."},
    {"job", "dump_folder", KEY_STRING, .offset = AT(job.dump_folder), .default_text = "\"./outputs\"",
     .help = "Folder under which a run writes everything."},
    {"job", "description", KEY_STRING, .offset = AT(job.description), .default_text = "\"default job\"",
     .help = "What this run is, for people; shown at its start."},
    {"job", "print_config", KEY_BOOL, .offset = AT(job.print_config), .default_text = "false",
     .help = "Print the resolved config at the start."},
    {"job", "save_config_file", KEY_STRING, .optional = true, .offset = AT(job.save_config_file),
     .help = "Also write the resolved config to this file below dump_folder."},
    {"job", "custom_config_module", KEY_STRING, .offset = AT(job.custom_config_module), .default_text = "\"\"",
     .built = "", .help = "Python module that extends the config."},

    {"profiling", "enable_profiling", KEY_BOOL, .offset = AT(profiling.enable_profiling), .default_text = "false",
     .help = "Write a trace of steps (Chrome's format, for Perfetto) and print where their time went."},
    {"profiling", "save_traces_folder", KEY_STRING, .offset = AT(profiling.save_traces_folder),
     .default_text = "\"profile_traces\"", .use = USE_GATED, .why = "profiling.enable_profiling",
     .help = "Folder of the traces, below dump_folder."},
    {"profiling", "profile_freq", KEY_INT, .offset = AT(profiling.profile_freq), .default_text = "10",
     .range = &config_at_least_1, .unit = "steps", .use = USE_GATED, .why = "profiling.enable_profiling",
     .help = "A trace is taken every so many steps."},
    {"profiling", "profiler_active", KEY_INT, .offset = AT(profiling.profiler_active), .default_text = "1",
     .range = &config_at_least_1, .unit = "steps", .use = USE_GATED, .why = "profiling.enable_profiling",
     .help = "Steps that a trace covers."},
    {"profiling", "profiler_warmup", KEY_INT, .offset = AT(profiling.profiler_warmup), .default_text = "3",
     .range = &config_at_least_0, .unit = "steps", .use = USE_NONE, .why = "recording needs no warm-up",
     .help = "Steps watched but not written before each trace."},
    {"profiling", "enable_memory_snapshot", KEY_BOOL, .offset = AT(profiling.enable_memory_snapshot),
     .default_text = "false", .use = USE_NONE, .why = "the plan already says what memory holds at every instruction",
     .help = "Write snapshots of what memory holds."},
    {"profiling", "save_memory_snapshot_folder", KEY_STRING, .offset = AT(profiling.save_memory_snapshot_folder),
     .default_text = "\"memory_snapshot\"", .use = USE_GATED, .why = "profiling.enable_memory_snapshot",
     .help = "Folder of the snapshots, below dump_folder."},

    {"metrics", "log_freq", KEY_INT, .offset = AT(metrics.log_freq), .default_text = "10",
     .range = &config_at_least_1, .unit = "steps",
     .help = "A progress line and metrics every so many steps (and at the first)."},
    {"metrics", "enable_tensorboard", KEY_BOOL, .offset = AT(metrics.enable_tensorboard), .default_text = "false",
     .help = "Write TensorBoard events."},
    {"metrics", "disable_color_printing", KEY_BOOL, .offset = AT(metrics.disable_color_printing),
     .default_text = "false", .help = "Progress lines without colours."},
    {"metrics", "save_tb_folder", KEY_STRING, .offset = AT(metrics.save_tb_folder), .default_text = "\"tb\"",
     .help = "Folder of the TensorBoard events, below dump_folder."},
    {"metrics", "save_for_all_ranks", KEY_BOOL, .offset = AT(metrics.save_for_all_ranks), .default_text = "false",
     .use = USE_NONE, .why = "metrics are the whole job's and written once",
     .help = "Every rank writes metrics, not only the one that knows the loss."},
    {"metrics", "enable_wandb", KEY_BOOL, .offset = AT(metrics.enable_wandb), .default_text = "false",
     .use = USE_NONE,
     .why = "nothing is sent to Weights & Biases; metrics.jsonl and TensorBoard events hold the same",
     .help = "Send metrics to Weights & Biases."},
};

const config_keys config_keys_job = {keys, sizeof keys / sizeof *keys};
