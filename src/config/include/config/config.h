// The configuration of a run: sections and keys as torchtitan v0.2.2 names them, and our extensions (marked "ext"
// below). A value comes from the command line, else from the TOML file, else from the table of keys, and knows which.
//
//   const ct_config *cfg; CT_TRY(ct_config_load(&arena, "train.toml", argc, argv, &cfg)); … cfg->training.seq_len …
//
// What is read here is checked for type and range only. Whether a model has a flavour, a head count divides or a path
// exists is for the code that uses the value to say; ct_config_origin_text gives it the place to name in its message.
#pragma once
#include "base/memory.h"
#include "base/status.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// ---- kinds of values
// -------------------------------------------------------------------------------------------------- "Unset unless
// given": has is false where neither the file nor the command line says anything (value is then 0).
typedef struct {
    bool has;
    bool value;
} ct_opt_bool;
typedef struct {
    bool has;
    int64_t value;
} ct_opt_int;
typedef struct {
    bool has;
    double value;
} ct_opt_float;
// An unset string is NULL; a given one never is.
typedef struct {
    const char **items; // NULL where count is 0
    int count;
} ct_string_list;
typedef struct {
    ct_string_list *items;
    int count;
} ct_string_lists;

typedef enum { CT_CFG_BFLOAT16, CT_CFG_FLOAT32, CT_CFG_FLOAT16 } ct_cfg_dtype;
typedef enum { CT_CFG_ADAMW, CT_CFG_ADAM, CT_CFG_DISTMUON } ct_cfg_optimizer;
typedef enum { CT_CFG_FUSED, CT_CFG_FOREACH, CT_CFG_FOR_LOOP } ct_cfg_implementation;
typedef enum { CT_CFG_LINEAR, CT_CFG_SQRT, CT_CFG_COSINE } ct_cfg_decay;
typedef enum {
    CT_CFG_C4,
    CT_CFG_C4_TEST,
    CT_CFG_C4_VALIDATION,
    CT_CFG_TEXT,   // ext: text files at dataset_path
    CT_CFG_JSONL,  // ext: JSON lines at dataset_path, key "text"
    CT_CFG_CORPUS, // ext: a corpus that `ctitan data build` made
} ct_cfg_dataset;
typedef enum {
    CT_CFG_SOURCE_AUTO,
    CT_CFG_SOURCE_TEXT,
    CT_CFG_SOURCE_JSONL,
    CT_CFG_SOURCE_CORPUS
} ct_cfg_source_format;
typedef enum { CT_CFG_RESHARD_DEFAULT, CT_CFG_RESHARD_ALWAYS, CT_CFG_RESHARD_NEVER } ct_cfg_reshard;
typedef enum {
    CT_CFG_GPIPE,
    CT_CFG_1F1B,
    CT_CFG_LOOPED_BFS,
    CT_CFG_INTERLEAVED_1F1B,
    CT_CFG_INTERLEAVED_ZERO_BUBBLE,
    CT_CFG_ZBV_ZERO_BUBBLE,
    CT_CFG_DUAL_PIPE_V,
    CT_CFG_AUTO,             // ext: searched
    CT_CFG_SCHEDULE_SINGLE,  // the schedule comes from pipeline_parallel_schedule_csv
    CT_CFG_SCHEDULE_MULTI,   // the same
    CT_CFG_SCHEDULE_RUNTIME, // the same
} ct_cfg_schedule;
typedef enum { CT_CFG_HEADTAIL, CT_CFG_PTRR, CT_CFG_BALANCER_NONE } ct_cfg_load_balancer;
typedef enum { CT_CFG_ALLGATHER, CT_CFG_ALLTOALL } ct_cfg_rotate;
typedef enum { CT_CFG_REDUCE_MICRO_BATCH, CT_CFG_REDUCE_STEP } ct_cfg_reduction;
typedef enum { CT_CFG_STANDARD, CT_CFG_DEEPEP } ct_cfg_expert_comm;
typedef enum { CT_CFG_SYNC, CT_CFG_ASYNC, CT_CFG_ASYNC_PINNED } ct_cfg_async;
typedef enum { CT_CFG_AC_SELECTIVE, CT_CFG_AC_FULL, CT_CFG_AC_MEMORY_BUDGET, CT_CFG_AC_NONE } ct_cfg_ac_mode;
typedef enum { CT_CFG_TENSORWISE, CT_CFG_ROWWISE, CT_CFG_ROWWISE_GW_HP, CT_CFG_RECIPE_UNSET } ct_cfg_float8_recipe;
typedef enum { CT_CFG_TRITON, CT_CFG_CUDA, CT_CFG_TORCH } ct_cfg_mx_cast;
typedef enum { CT_CFG_COMM_DEFAULT, CT_CFG_COMM_FAKE, CT_CFG_COMM_LOCAL_TENSOR } ct_cfg_comm_mode;
typedef enum { CT_CFG_MASK_CAUSAL, CT_CFG_MASK_BLOCK_CAUSAL, CT_CFG_MASK_UNSET } ct_cfg_mask;

// ---- sections
// ---------------------------------------------------------------------------------------------------------
typedef struct {
    const char *config_file; // unset: NULL. The file that was read, however it was named
    const char *dump_folder;
    const char *description;
    bool print_config;
    const char *save_config_file; // unset: NULL
    const char *custom_config_module;
} ct_config_job;

typedef struct {
    bool enable_profiling;
    const char *save_traces_folder;
    int64_t profile_freq, profiler_active, profiler_warmup; // steps
    bool enable_memory_snapshot;
    const char *save_memory_snapshot_folder;
} ct_config_profiling;

typedef struct {
    int64_t log_freq; // steps
    bool enable_tensorboard;
    bool disable_color_printing;
    const char *save_tb_folder;
    bool save_for_all_ranks;
    bool enable_wandb;
} ct_config_metrics;

// ext: `[model.args]` overrides a flavour's fields; each is unset unless given.
typedef struct {
    ct_opt_int dim, n_layers, n_heads, n_kv_heads, vocab_size, multiple_of;
    ct_opt_float ffn_dim_multiplier;
    ct_opt_int hidden_dim; // the FFN's exact size, instead of multiple_of and ffn_dim_multiplier
    ct_opt_float norm_eps, rope_theta;
    ct_opt_float rope_scaling_factor, rope_low_freq_factor, rope_high_freq_factor;
    ct_opt_int rope_original_max_seq_len;
    ct_opt_int max_seq_len;
    ct_cfg_mask attn_mask_type;      // CT_CFG_MASK_UNSET unless given
    ct_opt_bool depth_init;          // wo, w2, w3 scaled by their layer's number (true) or by the number of layers
    ct_opt_bool enable_weight_tying; // the head is the embedding
} ct_config_model_args;

typedef struct {
    const char *name, *flavor;
    const char *hf_assets_path; // tokenizer folder or file (tokenizer_path, where given, has replaced it)
    const char *tokenizer_path; // deprecated; unset: NULL
    ct_string_list converters;
    bool print_after_conversion;
    ct_config_model_args args;
} ct_config_model;

// ext: `[[optimizer.param_groups]]`: the first group whose pattern is found in a parameter's FQN decides for it; what
// a group leaves unset is the section's value.
typedef struct {
    const char *pattern; // regular expression (PCRE2), searched for anywhere in the FQN; never NULL
    double lr_scale;     // 1 unless given
    ct_opt_float weight_decay, beta1, beta2, eps;
} ct_config_param_group;

typedef struct {
    ct_cfg_optimizer name;
    double lr, beta1, beta2, eps, weight_decay;
    ct_cfg_implementation implementation;
    bool early_step_in_backward;
    double ema_decay; // ext: 0: no average of the weights
    bool ema_warmup;  // ext
    int64_t ema_start_step, ema_interval; // ext: steps
    ct_config_param_group *param_groups; // NULL where there are none
    int param_group_count;
} ct_config_optimizer;

typedef struct {
    int64_t warmup_steps;
    ct_opt_int total_steps;   // unset: training.steps
    ct_opt_float decay_ratio; // unset: decay begins right after the warm-up
    ct_cfg_decay decay_type;
    double min_lr_factor;
} ct_config_lr_scheduler;

typedef struct {
    int64_t num_workers;
    bool persistent_workers, pin_memory;
    ct_opt_int prefetch_factor;
} ct_config_dataloader;

// ext: `[[training.sources]]`: a weighted mixture. Where there are any, they replace dataset and dataset_path.
typedef struct {
    const char *path;            // file, folder or glob; never NULL
    ct_cfg_source_format format; // AUTO: by the file's name
    double weight;               // > 0, 1 unless given; shares of the whole, in sequences
    const char *reader;          // NULL: files; else a plugin's data source, which path is for
} ct_config_source;

typedef struct {
    ct_cfg_dataset dataset;
    const char *dataset_path;  // unset: NULL
    int64_t local_batch_size;  // sequences a rank and micro-batch
    int64_t global_batch_size; // sequences a step; -1: local_batch_size × data-parallel degree
    int64_t seq_len;           // tokens
    double max_norm;
    int64_t steps;
    bool enable_cpu_offload;
    ct_cfg_dtype dtype, mixed_precision_param, mixed_precision_reduce;
    int64_t gc_freq;
    bool gc_debug;
    ct_config_dataloader dataloader;
    bool shuffle;              // ext: sequences in an order drawn from debug.seed
    int64_t threads;           // ext: threads a rank; 0: the node's cores over its ranks
    ct_config_source *sources; // ext; NULL where there are none
    int source_count;
} ct_config_training;

typedef struct {
    int64_t data_parallel_replicate_degree;
    int64_t data_parallel_shard_degree; // -1: the ranks that are left
    ct_cfg_reshard fsdp_reshard_after_forward;
    int64_t tensor_parallel_degree;
    bool disable_loss_parallel, enable_async_tensor_parallel;
    bool enable_sequence_parallel; // torchtitan main's
    int64_t pipeline_parallel_degree;
    ct_string_lists module_fqns_per_model_part;
    int64_t pipeline_parallel_first_stage_less_layers, pipeline_parallel_last_stage_less_layers;
    ct_opt_int pipeline_parallel_layers_per_stage;
    ct_cfg_schedule pipeline_parallel_schedule;
    const char *pipeline_parallel_schedule_csv; // "": none
    const char *pipeline_parallel_costs_csv;    // ext; "": by FLOPs
    int64_t pipeline_parallel_slots;            // ext; of Auto, micro-batches that a rank's stages save; 0: the usual
    int64_t pipeline_parallel_microbatch_size;  // sequences
    bool pipeline_parallel_expert_parallel_overlap;
    int64_t context_parallel_degree;
    ct_cfg_load_balancer context_parallel_load_balancer;
    ct_cfg_rotate context_parallel_rotate_method;
    ct_cfg_reduction gradient_reduction; // ext
    int64_t expert_parallel_degree, expert_tensor_parallel_degree;
    ct_cfg_expert_comm expert_parallel_comm_backend;
} ct_config_parallelism;

typedef struct {
    bool enable, enable_ft_dataloader_checkpoints;
    const char *folder;            // below job.dump_folder
    int64_t interval;              // steps
    const char *initial_load_path; // unset: NULL
    bool initial_load_model_only, initial_load_in_hf, initial_load_in_hf_quantized;
    bool last_save_model_only, last_save_in_hf;
    ct_cfg_dtype export_dtype;
    ct_cfg_async async_mode;
    int64_t keep_latest_k; // 0: all
    int64_t load_step;     // -1: the newest
    ct_string_list exclude_from_loading;
    bool enable_first_step_checkpoint, create_seed_checkpoint, load_only;
} ct_config_checkpoint;

typedef struct {
    ct_cfg_ac_mode mode;
    const char *selective_ac_option; // "op", or a whole number ≥ 1 as text: every n-th layer is recomputed
    int64_t selective_every;         // that number; 0 for "op". Derived, not a key
    ct_string_list per_op_sac_force_recompute_mm_shapes_by_fqns;
    bool early_stop;
    double memory_budget;
    bool visualize_memory_budget_pareto, preserve_rng_state;
    const char *determinism_check;
    bool debug;
} ct_config_activation_checkpoint;

typedef struct {
    bool enable;
    ct_string_list components;
    const char *backend;
} ct_config_compile;

typedef struct {
    struct {
        struct {
            bool enable_fsdp_float8_all_gather, precompute_float8_dynamic_scale_for_fsdp;
            ct_cfg_float8_recipe recipe_name; // CT_CFG_RECIPE_UNSET unless given
            ct_string_list filter_fqns;
            bool emulate;
        } float8;
        struct {
            ct_cfg_mx_cast mxfp8_dim1_cast_kernel_choice;
            const char *recipe_name;
            ct_string_list filter_fqns;
        } mx;
    } linear;
    struct {
        struct {
            ct_string_list fqns;
        } float8;
        struct {
            const char *recipe_name;
            ct_string_list fqns;
        } mx;
    } grouped_mm;
} ct_config_quantize;

typedef struct {
    int64_t init_timeout_seconds, train_timeout_seconds;
    int64_t trace_buf_size;
    const char *save_traces_folder, *save_traces_file_prefix;
    ct_cfg_comm_mode mode;
    int64_t ranks_per_node;           // ext; 0: as the launcher says
    bool shared_memory;               // ext: false sends everything through MPI
    double heartbeat_timeout_seconds; // ext
    bool overlap;                     // ext
} ct_config_comm;

typedef struct {
    bool enable, disable_fake_mode;
} ct_config_memory_estimation;

typedef struct {
    bool enable;
    const char *process_group;
    int64_t process_group_timeout_ms;
    int64_t replica_id, group_size, min_replica_size;
    const char *semi_sync_method; // unset: NULL
} ct_config_fault_tolerance;

typedef struct {
    const char *custom_import, *custom_args_module;
} ct_config_experimental;

typedef struct {
    bool enable;
    ct_cfg_dataset dataset;
    const char *dataset_path; // unset: NULL
    int64_t local_batch_size; // sequences
    int64_t seq_len;          // tokens
    int64_t freq;             // steps
    int64_t steps;            // -1: all of the set
    bool ema;                 // ext: once more with the average of the weights
    ct_config_dataloader dataloader;
} ct_config_validation;

typedef struct {
    ct_opt_int seed; // unset: 0
    bool deterministic, deterministic_warn_only, moe_force_load_balance;
    bool poison; // ext: fill and forbid memory outside an instruction's declared buffers
} ct_config_debug;

typedef struct ct_config_origin ct_config_origin;

typedef struct {
    ct_config_job job;
    ct_config_profiling profiling;
    ct_config_metrics metrics;
    ct_config_model model;
    ct_config_optimizer optimizer;
    ct_config_lr_scheduler lr_scheduler;
    ct_config_training training;
    ct_config_parallelism parallelism;
    ct_config_checkpoint checkpoint;
    ct_config_activation_checkpoint activation_checkpoint;
    ct_config_compile compile;
    ct_config_quantize quantize;
    ct_config_comm comm;
    ct_config_memory_estimation memory_estimation;
    ct_config_fault_tolerance fault_tolerance;
    ct_config_experimental experimental;
    ct_config_validation validation;
    ct_config_debug debug;
    struct {
        ct_string_list paths; // ext
    } plugins;

    const char *path;          // the TOML file; NULL where there was none
    ct_config_origin *origins; // where each key's value came from, one a key in the table's order
} ct_config;

// ---- reading
// ---------------------------------------------------------------------------------------------------------- Reads
// path (NULL: no file, unless an argument is --job.config_file) and the overrides in argv[0..argc): `--section.key
// value`,
// `--section.key=value`, for booleans also `--section.flag` and `--section.no_flag`; lists are comma-separated;
// `none` unsets what may be unset. A hyphen in a key counts as an underscore. The config and its strings live in
// arena. Errors (CT_INVALID, CT_NOT_FOUND, CT_IO) say where, what was found and what is wanted: "train.toml:14:9: …".
ct_status ct_config_load(ct_arena *arena, const char *path, int argc, char **argv, ct_config **out_config);

// The same from text that is already in memory; name stands for the file in messages.
ct_status ct_config_parse(ct_arena *arena, const char *name, const char *text, size_t bytes, int argc, char **argv,
                          ct_config **out_config);

// Moves the overrides among a command's arguments (`--section.key …` with its value) behind all others, keeping the
// order of both, and returns how many others there are: a command reads argv[0..n) itself and hands argv[n..argc) to
// ct_config_load.
int ct_config_args_split(int argc, char **argv);

// May `train` run this? Calls note(context, line) once for each key that is set to other than its default and has no
// use here. Returns CT_UNSUPPORTED, naming every one, where values would change the numbers (or ask for a feature)
// and are not built yet, and CT_INVALID where keys contradict each other. note may be NULL.
ct_status ct_config_check_train(const ct_config *config, void (*note)(void *context, const char *line),
                                void *context);

// ---- saying
// ----------------------------------------------------------------------------------------------------------- Appends
// every key with its value as TOML; read back, it gives the same values. Unset keys are comments.
void ct_config_print_resolved(const ct_config *config, ct_string *out);

// Appends every key with its value and where that came from, for people (columns) or as one JSON object
// {"section.key": {"value": …, "from": "default" | "file" | "command line", "where": "train.toml:14:9"}}.
void ct_config_print_values(const ct_config *config, bool json, ct_string *out);

typedef enum { CT_CONFIG_TEXT, CT_CONFIG_JSON, CT_CONFIG_MARKDOWN } ct_config_format;
// Appends the reference of all keys: type, default, range or values, unit, meaning, whether it is an extension of
// ours.
void ct_config_print_keys(ct_config_format format, ct_string *out);

// Where the value of "section.key" came from: "train.toml:14:9", "--training.seq_len" or "default"; "" for a name
// that is no key. Lives as long as the config.
const char *ct_config_origin_text(const ct_config *config, const char *key);

// A hash (XXH3, 64 bits) of all values that can change a run's numbers; the same for configs that differ only in
// others.
uint64_t ct_config_hash(const ct_config *config);
