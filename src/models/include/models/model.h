// A model: single-device code that builds graphs, and the parameters it reads. It knows no ranks, and no pass knows it.
#pragma once
#include "graph/graph.h"

// One override of a flavour's field by its torchtitan name ("dim", "n_layers", …): a number, or text where text is not NULL.
typedef struct {
    const char *key;
    double number;
    const char *text;
} ct_model_override;

typedef enum { CT_INIT_ONES, CT_INIT_NORMAL, CT_INIT_TRUNCATED_NORMAL } ct_init_kind;
typedef struct {
    ct_init_kind kind;
    double std;
    double low, high; // cut of the truncated normal, absolute
} ct_init;

// A parameter by its fully qualified name, in the order in which torchtitan's model has it.
typedef struct {
    const char *name;
    ct_type type; // f32
    ct_init init;
} ct_parameter;

// What a built program is for.
typedef enum {
    CT_BUILD_LOSS,     // tokens, labels → per-token loss (training and validation)
    CT_BUILD_GENERATE, // tokens and a key-value cache → logits of each row
} ct_build_kind;

typedef struct {
    int64_t batch, seq_len; // rows and tokens a row of one run
    int64_t cache_len;      // CT_BUILD_GENERATE: keys that the cache holds
    ct_build_kind kind;
} ct_build_options;

// The shape in plain numbers, for file formats and reports.
typedef struct {
    int64_t dim, n_layers, n_heads, n_kv_heads, head_dim, ffn_dim, vocab_size, max_seq_len;
    double norm_eps, rope_theta, rope_factor, rope_low, rope_high;
    int64_t rope_original;
    int tied;         // the head is the embedding
    int block_causal; // attention stays inside documents
} ct_model_shape;

typedef struct ct_model ct_model;
typedef struct ct_model_kind {
    const char *name; // [model] name
    // Fills the arena-owned args from flavour and overrides. Errors name the key and the legal values.
    ct_status (*open)(const struct ct_model_kind *kind, ct_arena *arena, const char *flavor, const ct_model_override *overrides, int count, ct_model *out);
    void (*build)(const ct_model *model, ct_graph *graph, ct_build_options options);
    const char *const *flavors; // NULL-terminated
    const char *const *keys;    // names that overrides may use, NULL-terminated
} ct_model_kind;

struct ct_model {
    const ct_model_kind *kind;
    const char *flavor;
    ct_model_shape shape;
    ct_parameter *parameters;
    int parameters_count;
    const void *args; // the kind's own
};

extern const ct_model_kind *const ct_model_kinds[]; // NULL-terminated

// Adds a plugin's model, which lives as long as the process. Before other threads open models.
ct_status ct_model_kinds_add(const ct_model_kind *kind);

// Opens a model by name and flavour. Everything lives in the arena.
ct_status ct_model_open(ct_arena *arena, const char *name, const char *flavor, const ct_model_override *overrides, int count,
                        ct_model *out_model);

// Parameters of a model; FLOPs of a step on `tokens` tokens of sequences of seq_len: 6 × multiplied parameters × tokens plus
// attention's causal half (3 × 2·2·H·d·T/2 a token and layer), no recomputation (DECISIONS.md, "Names and units").
int64_t ct_model_parameters(const ct_model *model);
double ct_model_step_flops(const ct_model *model, double tokens, double seq_len);

// Runs the kind's build into a fresh graph. Inputs are named "tokens", "labels", "positions", "documents", "inv_count" (loss), or
// "tokens", "positions", "key_positions", "slots", "cache.k.<layer>", "cache.v.<layer>" (generate), and the parameters by their names.
// Outputs: "token_loss" f32[B T], or "logits" f32[B T V].
ct_status ct_model_build(const ct_model *model, ct_graph *graph, ct_build_options options);
