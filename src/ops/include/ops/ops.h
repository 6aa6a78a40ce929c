// The op table, and one build function an op, so that models and passes read like formulas.
//
// Out-parameters may be NULL where a second output is not wanted. Build functions append one node at the graph's current provenance and return its (first) output; errors stick to the graph.
// Shapes are in the design's notation; c is the compute dtype (f32 or bf16), the same for all operands marked c.
#pragma once
#include "graph/op.h"

extern const ct_op *const ct_ops[]; // NULL-terminated; ops/table.c
const ct_op *ct_op_find(const char *name);
// Adds an op of a plugin, which lives as long as the process, to those that are found by name. Before other threads read the table.
ct_status ct_ops_add(const ct_op *op);

// ---- products: y[B T N] = x[B T K] w[N K]ᵀ; f32 accumulation; out_f32: y is f32 whatever c is ----
ct_value ct_matmul(ct_graph *g, ct_value x_BTK, ct_value w_NK, int out_f32);
ct_value ct_matmul_dx(ct_graph *g, ct_value dy_BTN, ct_value w_NK);
ct_value ct_matmul_dw(ct_graph *g, ct_value dy_BTN, ct_value x_BTK); // f32[N K]
ct_value ct_matmul_dw_acc(ct_graph *g, ct_value acc_NK, ct_value dy_BTN, ct_value x_BTK, ct_value first);

// ---- elementwise ----
ct_value ct_add(ct_graph *g, ct_value a, ct_value b);
ct_value ct_cast(ct_graph *g, ct_value x, ct_dtype to);
ct_value ct_accumulate(ct_graph *g, ct_value acc, ct_value part, ct_value first); // first ≠ 0: acc' = part, else acc + part
ct_value ct_silu_mul(ct_graph *g, ct_value a, ct_value b);
void ct_silu_mul_grad(ct_graph *g, ct_value dy, ct_value a, ct_value b, ct_value *out_da, ct_value *out_db);

// ---- embedding ----
ct_value ct_embed(ct_graph *g, ct_value table_VD, ct_value tokens_BT);
ct_value ct_embed_dw(ct_graph *g, ct_value dy_BTD, ct_value tokens_BT, int64_t rows); // f32[V D]
ct_value ct_embed_dw_acc(ct_graph *g, ct_value acc_VD, ct_value dy_BTD, ct_value tokens_BT, ct_value first);

// ---- RMSNorm (Zhang & Sennrich 2019, arXiv 1910.07467) ----
ct_value ct_rmsnorm(ct_graph *g, ct_value x_BTD, ct_value w_D, double eps); // second output: rstd f32[B T]
void ct_rmsnorm_grad(ct_graph *g, ct_value dy, ct_value x, ct_value w, ct_value rstd, ct_value *out_dx, ct_value *out_dw);

// ---- rotary embedding (Su et al. 2021, arXiv 2104.09864), interleaved pairs, Llama 3.1 frequency scaling ----
typedef struct {
    double theta, factor, low, high, original; // factor 0 or 1: no scaling
} ct_rope_options;
ct_value ct_rope_angles(ct_graph *g, ct_value positions_BT, int64_t head_dim, ct_rope_options options); // f32[B T d]
ct_value ct_rope(ct_graph *g, ct_value x_BTHd, ct_value angles_BTd, int inverse);

// ---- attention: grouped queries, masked by position and document (Dao 2023, arXiv 2307.08691) ----
typedef struct {
    ct_value q_pos_BT, k_pos_BS, q_doc_BT, k_doc_BS; // allowed: k_pos ≤ q_pos and k_doc == q_doc
} ct_attention_mask;
ct_value ct_attention(ct_graph *g, ct_value q_BTGQd, ct_value k_BSGd, ct_value v_BSGe, ct_attention_mask mask, double scale,
                      ct_value *out_lse_BTGQ);
void ct_attention_grad(ct_graph *g, ct_value d_o, ct_value q, ct_value k, ct_value v, ct_value o, ct_value lse,
                       ct_attention_mask mask, double scale, ct_value *out_dq, ct_value *out_dk, ct_value *out_dv);

// Of one block of keys, as many as queries, in f32: where T is cut, each rank's queries see its block of keys only. Parts over several blocks
// are merged by their log-sum-exp; the gradient of a block is its part of the whole one's.
ct_value ct_attention_block(ct_graph *g, ct_value q, ct_value k_BTGd, ct_value v_BTGe, ct_attention_mask mask, double scale,
                            ct_value *out_lse_BTGQ);
void ct_attention_block_grad(ct_graph *g, ct_value d_o, ct_value q, ct_value k, ct_value v, ct_value o, ct_value lse, ct_attention_mask mask,
                             double scale, ct_value *out_dq, ct_value *out_dk, ct_value *out_dv);
ct_value ct_attention_merge(ct_graph *g, ct_value o_a, ct_value lse_a, ct_value o_b, ct_value lse_b, ct_value *out_lse);

// ---- moves (placement builds the others) ----
ct_value ct_rotate(ct_graph *g, ct_value x, int axis, int by); // lies as x does

// ---- language-model head and loss: a macro op that a pass expands into chunks; yields the gradients of
// inv_count · Σ loss in the same visit: dh c[B T D], dw f32[V D]. Labels of -100 are ignored. ----
ct_value ct_lm_loss(ct_graph *g, ct_value h_BTD, ct_value w_VD, ct_value labels_BT, ct_value inv_count, ct_value *out_dh,
                    ct_value *out_dw);
ct_value ct_vocab_max(ct_graph *g, ct_value logits_BTV);
ct_value ct_vocab_sumexp(ct_graph *g, ct_value logits_BTV, ct_value max_BT);
ct_value ct_vocab_pick(ct_graph *g, ct_value logits_BTV, ct_value labels_BT);
ct_value ct_token_loss(ct_graph *g, ct_value max_BT, ct_value sumexp_BT, ct_value picked_BT, ct_value labels_BT);
ct_value ct_vocab_grad(ct_graph *g, ct_value logits_BTV, ct_value max_BT, ct_value sumexp_BT, ct_value labels_BT,
                       ct_value inv_count, ct_dtype out); // out: the dtype of dlogits

// ---- exact sums, clipping, optimizer ----
ct_value ct_wide_sum(ct_graph *g, ct_value x, ct_value acc_W, ct_value first, int square);
ct_value ct_wide_of(ct_graph *g, ct_value x, int square); // i64[W]: digits of Σ x, or Σ x², alone
ct_value ct_wide_total(ct_graph *g, int count, const ct_value *digits_W); // i64[W]: of all of them together
ct_value ct_wide_norm(ct_graph *g, ct_value acc_W);              // f32[]
ct_value ct_clip_factor(ct_graph *g, ct_value norm, double max_norm); // f32[]
typedef struct {
    double lr_scale, beta1, beta2, eps, weight_decay;
    int l2; // 1: Adam: the decay is added to the gradient; 0: AdamW: it is taken off the weight
} ct_adamw_options;
void ct_adamw(ct_graph *g, ct_value p, ct_value m, ct_value v, ct_value grad, ct_value clip, ct_value scalars,
              ct_adamw_options options, ct_value *out_p, ct_value *out_m, ct_value *out_v);
// The same with an average of the weights: state {p, m, v, average} → out; scalars f64[3] = {lr, step, the new weights' share in the average}.
void ct_adamw_ema(ct_graph *g, const ct_value state[4], ct_value grad, ct_value clip, ct_value scalars, ct_adamw_options options, ct_value out[4]);

// ---- generation ----
ct_value ct_cache_write(ct_graph *g, ct_value cache_BSGd, ct_value x_BTGd, ct_value slot_BT);

// ---- views ----
ct_value ct_split(ct_graph *g, ct_value x, int dim, int parts, const ct_dim *into);       // dim → parts adjacent dims
ct_value ct_merge(ct_graph *g, ct_value x, int dim, int count, const char *name);          // count adjacent dims → one
ct_value ct_slice(ct_graph *g, ct_value x, int dim, int64_t start, int64_t extent, const char *name); // contiguous part
// Slices and concatenations of a local program: is each part one run in memory? CT_UNSUPPORTED names the dim that is in the way.
ct_status ct_view_check_memory(const ct_graph *graph, const ct_node *node);
ct_value ct_concat(ct_graph *g, int count, const ct_value *x, int dim, const char *name);  // contiguous parts, in order
