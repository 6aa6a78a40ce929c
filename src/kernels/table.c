// Which kernel serves an op with given dtypes on this machine: the first fitting entry of the tables below.
#include "kernels/kernel.h"

#include <string.h>

extern const ct_kernel ct_kernels_matmul[];
// simd/ and tiled/: a table for each file and instruction set
extern const ct_kernel ct_kernels_attention_avx512bf16[], ct_kernels_attention_avx512[], ct_kernels_attention_grad_avx512bf16[],
    ct_kernels_attention_grad_avx512[];
extern const ct_kernel ct_kernels_attention_plain_avx512[], ct_kernels_attention_merge_avx512[], ct_kernels_embed_avx512[], ct_kernels_norm_avx512[],
    ct_kernels_optimizer_avx512[], ct_kernels_pointwise_avx512[], ct_kernels_rope_avx512[], ct_kernels_vocab_avx512[];
extern const ct_kernel ct_kernels_attention_plain_avx2[], ct_kernels_attention_merge_avx2[], ct_kernels_embed_avx2[], ct_kernels_norm_avx2[],
    ct_kernels_optimizer_avx2[], ct_kernels_pointwise_avx2[], ct_kernels_rope_avx2[], ct_kernels_vocab_avx2[];
extern const ct_kernel ct_kernels_attention_plain_generic[], ct_kernels_attention_merge_generic[], ct_kernels_embed_generic[], ct_kernels_norm_generic[],
    ct_kernels_optimizer_generic[], ct_kernels_pointwise_generic[], ct_kernels_rope_generic[], ct_kernels_vocab_generic[];

const ct_kernel *const ct_kernel_tables[] = {
    ct_kernels_matmul,
    ct_kernels_attention_avx512bf16, ct_kernels_attention_grad_avx512bf16, ct_kernels_attention_avx512,
    ct_kernels_attention_grad_avx512,
    ct_kernels_attention_plain_avx512, ct_kernels_attention_merge_avx512, ct_kernels_embed_avx512, ct_kernels_norm_avx512, ct_kernels_optimizer_avx512,
    ct_kernels_pointwise_avx512, ct_kernels_rope_avx512, ct_kernels_vocab_avx512,
    ct_kernels_attention_plain_avx2, ct_kernels_attention_merge_avx2, ct_kernels_embed_avx2, ct_kernels_norm_avx2, ct_kernels_optimizer_avx2,
    ct_kernels_pointwise_avx2, ct_kernels_rope_avx2, ct_kernels_vocab_avx2,
    ct_kernels_attention_plain_generic, ct_kernels_attention_merge_generic, ct_kernels_embed_generic, ct_kernels_norm_generic, ct_kernels_optimizer_generic,
    ct_kernels_pointwise_generic, ct_kernels_rope_generic, ct_kernels_vocab_generic,
    NULL,
};

static const char *const isas[] = {"generic", "avx2", "avx512", "avx512bf16"};
enum { ISAS = sizeof isas / sizeof *isas };

static int isa_rank(const char *name) {
    for (int i = 0; i < ISAS; i++)
        if (!strcmp(name, isas[i])) return i;
    return -1;
}

static int isa_of_machine(void) {
    __builtin_cpu_init();
    int avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    int avx512 = avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                 __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
    return avx512 && __builtin_cpu_supports("avx512bf16") ? 3 : avx512 ? 2 : avx2 ? 1 : 0;
}

const char *ct_isa_best(const char *isa_limit) {
    int best = isa_of_machine(), limit = isa_limit ? isa_rank(isa_limit) : -1;
    return isas[limit >= 0 && limit < best ? limit : best];
}

static int letter_fits(char letter, ct_dtype dtype) {
    static const char of[CT_DTYPES] = {'f', 'b', 'd', 'i', 'l'};
    return letter == of[dtype] || (letter == '.' && (dtype == CT_F32 || dtype == CT_BF16));
}

static int fits(const char *pattern, const ct_call *call) {
    const char *p = pattern;
    for (int i = 0; i < call->inputs; i++, p++)
        if (!*p || *p == '>' || !letter_fits(*p, call->in[i].dtype)) return 0;
    if (*p++ != '>') return 0;
    for (int i = 0; i < call->outputs; i++, p++)
        if (!*p || !letter_fits(*p, call->out[i].dtype)) return 0;
    return !*p;
}

// Tables of plugins.
enum { MOST_ADDED = 256 };
static const ct_kernel *added[MOST_ADDED];
static int added_count;

void ct_kernels_add(const ct_kernel *table) {
    CT_ASSERT(added_count < MOST_ADDED, "more than %d plugins' ops", MOST_ADDED);
    added[added_count++] = table;
}

const ct_kernel *ct_kernel_find(const char *op, const ct_call *call, const char *isa_limit) {
    int isa = isa_rank(ct_isa_best(isa_limit));
    for (int t = 0; ct_kernel_tables[t]; t++)
        for (const ct_kernel *k = ct_kernel_tables[t]; k->op; k++)
            if (!strcmp(k->op, op) && isa_rank(k->isa) <= isa && fits(k->dtypes, call)) return k;
    for (int t = 0; t < added_count; t++)
        for (const ct_kernel *k = added[t]; k->op; k++)
            if (!strcmp(k->op, op) && fits(k->dtypes, call)) return k;
    return NULL;
}
