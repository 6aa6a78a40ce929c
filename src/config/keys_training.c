// Keys of [training], [training.dataloader], [[training.sources]], [validation] and [validation.dataloader].
#include "keys.h"
#include "ranges.h"

#define AT(field) offsetof(ct_config, field)
#define IN_SOURCE(field) offsetof(ct_config_source, field)

static const config_choice datasets[] = {{"c4", CT_CFG_C4},
                                         {"c4_test", CT_CFG_C4_TEST},
                                         {"c4_validation", CT_CFG_C4_VALIDATION},
                                         {"text", CT_CFG_TEXT},
                                         {"jsonl", CT_CFG_JSONL},
                                         {"corpus", CT_CFG_CORPUS},
                                         {NULL, 0}};
static const config_choice formats[] = {{"auto", CT_CFG_SOURCE_AUTO},
                                        {"text", CT_CFG_SOURCE_TEXT},
                                        {"jsonl", CT_CFG_SOURCE_JSONL},
                                        {"corpus", CT_CFG_SOURCE_CORPUS},
                                        {NULL, 0}};
static const config_choice two_dtypes[] = {{"bfloat16", CT_CFG_BFLOAT16}, {"float32", CT_CFG_FLOAT32}, {NULL, 0}};
static const config_choice reduce_dtypes[] = {{"float32", CT_CFG_FLOAT32}, {NULL, 0}};

static const char datasets_built[] = "c4_test c4_validation text jsonl corpus";
static const char one_worker[] = "text is always encoded ahead, by a thread of its own";

static bool has_sources(const ct_config *config) { return config->training.source_count > 0; }
static bool has_no_validation(const ct_config *config) { return !config->validation.enable; }

static const config_key source_fields[] = {
    {"training.sources", "path", KEY_STRING, .offset = IN_SOURCE(path),
     .help = "File, folder or glob; .gz and .zst too."},
    {"training.sources", "format", KEY_ENUM, .offset = IN_SOURCE(format), .default_text = "\"auto\"",
     .choices = formats, .help = "What the files hold; auto: by their names."},
    {"training.sources", "weight", KEY_FLOAT, .offset = IN_SOURCE(weight), .default_text = "1.0",
     .range = &config_above_0, .help = "Share of the mixture, relative to the other sources' weights."},
    {"training.sources", "reader", KEY_STRING, .optional = true, .offset = IN_SOURCE(reader),
     .help = "A data source of a plugin, which path is given to; unset: files (docs/PLUGINS.md)."},
};

static const config_key keys[] = {
    {"training", "dataset", KEY_ENUM, .offset = AT(training.dataset), .default_text = "\"c4_test\"",
     .choices = datasets, .numbers = true, .built = datasets_built, .is_unread = has_sources,
     .help = "c4_test, c4_validation: torchtitan's, JSON lines. Ours: text, jsonl, corpus (of `ctitan data build`)."},
    {"training", "dataset_path", KEY_STRING, .optional = true, .offset = AT(training.dataset_path), .numbers = true,
     .help = "File, folder or glob that the dataset is read from; unset: torchtitan's own place for it."},
    {"training", "local_batch_size", KEY_INT, .offset = AT(training.local_batch_size), .default_text = "8",
     .range = &config_at_least_1, .unit = "sequences", .numbers = true,
     .help = "Sequences of one rank and micro-batch."},
    {"training", "global_batch_size", KEY_INT, .offset = AT(training.global_batch_size), .default_text = "-1",
     .range = &config_at_least_1_or_minus_1, .unit = "sequences", .numbers = true,
     .help =
         "Sequences of one step, accumulated where need be; -1: local_batch_size times the data-parallel degree."},
    {"training", "seq_len", KEY_INT, .offset = AT(training.seq_len), .default_text = "2048",
     .range = &config_at_least_1, .unit = "tokens", .numbers = true, .help = "Length of a sequence."},
    {"training", "max_norm", KEY_FLOAT, .offset = AT(training.max_norm), .default_text = "1.0",
     .range = &config_above_0_or_inf, .numbers = true,
     .help = "Gradients are scaled down to this global 2-norm; inf: never."},
    {"training", "steps", KEY_INT, .offset = AT(training.steps), .default_text = "10000", .range = &config_at_least_1,
     .unit = "steps", .numbers = true, .help = "Optimizer steps to run."},
    {"training", "enable_cpu_offload", KEY_BOOL, .offset = AT(training.enable_cpu_offload), .default_text = "false",
     .use = USE_NONE, .why = "everything is in the CPU's memory already",
     .help = "Keep parameters, gradients and optimizer state in the CPU's memory."},
    {"training", "dtype", KEY_ENUM, .offset = AT(training.dtype), .default_text = "\"float32\"",
     .choices = two_dtypes, .numbers = true, .built = "float32",
     .help = "Type of parameters, gradients and optimizer state."},
    {"training", "mixed_precision_param", KEY_ENUM, .offset = AT(training.mixed_precision_param),
     .default_text = "\"bfloat16\"", .choices = two_dtypes, .numbers = true,
     .help = "Type that weights are cast to for computing; sums stay in float32."},
    {"training", "mixed_precision_reduce", KEY_ENUM, .offset = AT(training.mixed_precision_reduce),
     .default_text = "\"float32\"", .choices = reduce_dtypes, .numbers = true,
     .help = "Type in which ranks add their gradients."},
    {"training", "gc_freq", KEY_INT, .offset = AT(training.gc_freq), .default_text = "50",
     .range = &config_at_least_1, .unit = "steps", .use = USE_NONE, .why = "there is no garbage to collect",
     .help = "Python's garbage is collected every so many steps."},
    {"training", "gc_debug", KEY_BOOL, .offset = AT(training.gc_debug), .default_text = "false", .use = USE_NONE,
     .why = "there is no garbage to collect", .help = "Look for reference cycles at every step."},
    {"training", "shuffle", KEY_BOOL, .offset = AT(training.shuffle), .default_text = "false", .numbers = true,
     .source = FROM_US, .help = "Read the data in an order drawn from debug.seed, another one each epoch."},
    {"training", "threads", KEY_INT, .offset = AT(training.threads), .default_text = "0", .range = &config_0_to_1024,
     .unit = "threads", .source = FROM_US,
     .help = "Threads a rank; 0: the node's cores over its ranks. Never changes a bit."},
    {"training", "sources", KEY_GROUPS, .offset = AT(training.sources), .numbers = true, .source = FROM_US,
     .help = "A weighted mixture, read instead of dataset and dataset_path.", .fields = source_fields,
     .field_count = sizeof source_fields / sizeof *source_fields, .element_bytes = sizeof(ct_config_source),
     .count_offset = AT(training.source_count)},

    {"training.dataloader", "num_workers", KEY_INT, .offset = AT(training.dataloader.num_workers),
     .default_text = "0", .range = &config_at_least_0, .use = USE_NONE, .why = one_worker,
     .help = "Processes that read data."},
    {"training.dataloader", "persistent_workers", KEY_BOOL, .offset = AT(training.dataloader.persistent_workers),
     .default_text = "false", .use = USE_NONE, .why = one_worker, .help = "Keep those processes between epochs."},
    {"training.dataloader", "pin_memory", KEY_BOOL, .offset = AT(training.dataloader.pin_memory),
     .default_text = "false", .use = USE_NONE, .why = "there is no device to copy to",
     .help = "Put batches into pinned memory."},
    {"training.dataloader", "prefetch_factor", KEY_INT, .optional = true,
     .offset = AT(training.dataloader.prefetch_factor), .range = &config_at_least_1, .unit = "batches",
     .use = USE_NONE, .why = one_worker, .help = "Batches that each process reads ahead."},

    {"validation", "enable", KEY_BOOL, .offset = AT(validation.enable), .default_text = "false",
     .help = "Measure the loss on a validation set during training."},
    {"validation", "dataset", KEY_ENUM, .offset = AT(validation.dataset), .default_text = "\"c4_validation\"",
     .choices = datasets, .built = datasets_built, .is_unread = has_no_validation, .help = "As training.dataset."},
    {"validation", "dataset_path", KEY_STRING, .optional = true, .offset = AT(validation.dataset_path),
     .help = "As training.dataset_path."},
    {"validation", "local_batch_size", KEY_INT, .offset = AT(validation.local_batch_size), .default_text = "8",
     .range = &config_at_least_1, .unit = "sequences", .help = "Sequences of one rank and validation step."},
    {"validation", "seq_len", KEY_INT, .offset = AT(validation.seq_len), .default_text = "2048",
     .range = &config_at_least_1, .unit = "tokens", .help = "Length of a sequence."},
    {"validation", "freq", KEY_INT, .offset = AT(validation.freq), .default_text = "10", .range = &config_at_least_1,
     .unit = "steps", .help = "Validate every so many training steps (and at the first)."},
    {"validation", "steps", KEY_INT, .offset = AT(validation.steps), .default_text = "-1",
     .range = &config_at_least_1_or_minus_1, .unit = "steps",
     .help = "Batches of one validation; -1: the whole set."},
    {"validation", "ema", KEY_BOOL, .offset = AT(validation.ema), .default_text = "false", .source = FROM_US,
     .help = "Measure the loss of the averaged weights (optimizer.ema_decay) too."},
    {"validation.dataloader", "num_workers", KEY_INT, .offset = AT(validation.dataloader.num_workers),
     .default_text = "0", .range = &config_at_least_0, .use = USE_NONE, .why = one_worker,
     .help = "Processes that read data."},
    {"validation.dataloader", "persistent_workers", KEY_BOOL, .offset = AT(validation.dataloader.persistent_workers),
     .default_text = "false", .use = USE_NONE, .why = one_worker, .help = "Keep those processes between epochs."},
    {"validation.dataloader", "pin_memory", KEY_BOOL, .offset = AT(validation.dataloader.pin_memory),
     .default_text = "false", .use = USE_NONE, .why = "there is no device to copy to",
     .help = "Put batches into pinned memory."},
    {"validation.dataloader", "prefetch_factor", KEY_INT, .optional = true,
     .offset = AT(validation.dataloader.prefetch_factor), .range = &config_at_least_1, .unit = "batches",
     .use = USE_NONE, .why = one_worker, .help = "Batches that each process reads ahead."},
};

const config_keys config_keys_training = {keys, sizeof keys / sizeof *keys};
