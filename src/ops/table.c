// The op table: one line an op. A new op is a file of this folder and a line here.
#include "ops/ops.h"

#include <string.h>

extern const ct_op ct_op_matmul, ct_op_matmul_dx, ct_op_matmul_dw, ct_op_matmul_dw_acc, ct_op_add, ct_op_cast,
    ct_op_accumulate, ct_op_silu_mul, ct_op_silu_mul_grad, ct_op_silu_mul_grad_y, ct_op_embed, ct_op_embed_dw, ct_op_embed_dw_acc,
    ct_op_rmsnorm, ct_op_rmsnorm_grad, ct_op_rmsnorm_grad_y, ct_op_rope_angles, ct_op_rope, ct_op_attention, ct_op_attention_grad,
    ct_op_lm_loss, ct_op_vocab_max, ct_op_vocab_sumexp, ct_op_vocab_pick, ct_op_token_loss, ct_op_vocab_grad,
    ct_op_wide_sum, ct_op_wide_of, ct_op_wide_total, ct_op_wide_norm, ct_op_clip_factor, ct_op_adamw, ct_op_adamw_ema, ct_op_cache_write, ct_op_split, ct_op_merge,
    ct_op_slice, ct_op_concat, ct_op_all_gather, ct_op_reduce_scatter, ct_op_all_reduce, ct_op_all_to_all, ct_op_local_slice,
    ct_op_reshard, ct_op_stage_part, ct_op_reduce_accumulate, ct_op_rotate, ct_op_attention_block, ct_op_attention_block_grad,
    ct_op_attention_merge;

const ct_op *const ct_ops[] = {
    &ct_op_matmul, &ct_op_matmul_dx, &ct_op_matmul_dw, &ct_op_matmul_dw_acc,
    &ct_op_add, &ct_op_cast, &ct_op_accumulate,
    &ct_op_silu_mul, &ct_op_silu_mul_grad, &ct_op_silu_mul_grad_y,
    &ct_op_embed, &ct_op_embed_dw, &ct_op_embed_dw_acc,
    &ct_op_rmsnorm, &ct_op_rmsnorm_grad, &ct_op_rmsnorm_grad_y,
    &ct_op_rope_angles, &ct_op_rope,
    &ct_op_attention, &ct_op_attention_grad, &ct_op_attention_block, &ct_op_attention_block_grad, &ct_op_attention_merge,
    &ct_op_lm_loss, &ct_op_vocab_max, &ct_op_vocab_sumexp, &ct_op_vocab_pick, &ct_op_token_loss, &ct_op_vocab_grad,
    &ct_op_wide_sum, &ct_op_wide_of, &ct_op_wide_total, &ct_op_wide_norm, &ct_op_clip_factor, &ct_op_adamw, &ct_op_adamw_ema,
    &ct_op_cache_write,
    &ct_op_split, &ct_op_merge, &ct_op_slice, &ct_op_concat,
    &ct_op_all_gather, &ct_op_reduce_scatter, &ct_op_all_reduce, &ct_op_all_to_all, &ct_op_local_slice, &ct_op_reshard,
    &ct_op_stage_part,
    &ct_op_reduce_accumulate, &ct_op_rotate,
    NULL,
};

// What plugins added, in the order in which they did.
enum { MOST_ADDED = 256 };
static const ct_op *added[MOST_ADDED];
static int added_count;

ct_status ct_ops_add(const ct_op *op) {
    CT_CHECK(added_count < MOST_ADDED, CT_INVALID, "more than %d ops of plugins", MOST_ADDED);
    CT_CHECK(!ct_op_find(op->name), CT_INVALID, "there is an op %s already", op->name);
    added[added_count++] = op;
    return CT_OK;
}

// A few dozen names, compared by first letter before anything else: no index is worth its code.
const ct_op *ct_op_find(const char *name) {
    for (int i = 0; ct_ops[i]; i++)
        if (ct_ops[i]->name[0] == name[0] && !strcmp(ct_ops[i]->name, name)) return ct_ops[i];
    for (int i = 0; i < added_count; i++)
        if (!strcmp(added[i]->name, name)) return added[i];
    return NULL;
}
