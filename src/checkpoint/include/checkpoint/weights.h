// Llama weights of other programs in and out: Hugging Face folders and llama2.c's .bin, as tensors with torchtitan's names and its row
// order (rotary pairs interleaved; Hugging Face keeps the two halves of a head apart, so wq and wk change their rows' order).
#pragma once
#include "base/memory.h"
#include "checkpoint/checkpoint.h"

// Zero: not known.
typedef struct {
    int64_t dim, n_layers, n_heads, n_kv_heads, ffn_dim, vocab_size, max_seq_len;
    double norm_eps, rope_theta;
    double rope_scaling_factor; // 0: no scaling; else Llama 3.1's with the three below
    double rope_low_freq_factor, rope_high_freq_factor;
    int64_t rope_original_max_seq_len;
    int tied; // the head is the embedding: no output.weight
} ct_llama_shape;

// The fields as a JSON object ({"dim": …}), and back: unknown members are passed over. In a checkpoint's state this object stands under
// "model". Errors of parsing name `where`.
void ct_llama_shape_print(const ct_llama_shape *shape, ct_string *out_text);
ct_status ct_llama_shape_parse(const char *where, const char *json, ct_llama_shape *out_shape);
ct_status ct_llama_shape_from_state(const ct_checkpoint *checkpoint, ct_llama_shape *out_shape); // CT_NOT_FOUND: no "model"

// `[model]` and `[model.args]` in TOML for this shape.
void ct_llama_shape_print_toml(const ct_llama_shape *shape, ct_string *out_text);

// The names and shapes of a model's tensors, in torchtitan's order; names live in arena, data is NULL.
int ct_llama_tensors(ct_arena *arena, const ct_llama_shape *shape, ct_named_tensor **out_tensors);

// ---- in ---------------------------------------------------------------------------------------------------------------
typedef struct ct_weights ct_weights;

// Opens a Hugging Face folder (model.safetensors.index.json, or model.safetensors, or all *.safetensors; config.json may be missing), one
// .safetensors file, or a llama2.c .bin. `known` (may be NULL) is the shape that the caller's config says: what it leaves 0 comes from
// config.json and from the tensors; where both speak of a size, they must agree (CT_INVALID), and a difference in norm_eps, rope_theta or
// scaling is a warning. All tensors are checked for name and shape. Caller closes.
ct_status ct_weights_open(const char *path, const ct_llama_shape *known, ct_warn_fn *warn, void *context, ct_weights **out_weights);
void ct_weights_close(ct_weights *weights);
const ct_llama_shape *ct_weights_shape(const ct_weights *weights);
int ct_weights_count(const ct_weights *weights);
ct_named_tensor ct_weights_tensor(const ct_weights *weights, int index); // dtype as stored (f16: f32); data NULL; name borrowed

// As ct_checkpoint_load; there are no checksums.
ct_status ct_weights_load(const ct_weights *weights, const ct_load_options *options, const ct_named_tensor *tensors, int count);

// ---- out --------------------------------------------------------------------------------------------------------------
typedef enum { CT_EXPORT_F32 = 0, CT_EXPORT_BF16, CT_EXPORT_F16 } ct_export_dtype;

typedef struct {
    const char *folder; // must not be there, or be empty
    ct_export_dtype dtype;
    size_t max_file_bytes;          // 0: 5 GB
    int64_t bos_token_id, eos_token_id; // with has_tokens also written to config.json and generation_config.json
    int has_tokens;
    ct_fetch_fn *fetch; // for tensors whose data is NULL
    ct_progress_fn *progress;
    void *context; // of both
} ct_hf_export_options;

// Writes config.json and model.safetensors, or numbered files and an index above max_file_bytes. tensors are the model's, f32 or bf16,
// whole, in any order; others ("optimizer.…") must be left out. The folder appears only when all of it is on the disk.
// f16: a value beyond its range is CT_INVALID and names the tensor.
ct_status ct_hf_export(const ct_hf_export_options *options, const ct_llama_shape *shape, const ct_named_tensor *tensors, int count);
