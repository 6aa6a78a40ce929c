// Llama 3 (Grattafiori et al. 2024, arXiv 2407.21783): pre-norm decoder with grouped-query attention, rotary embedding and SwiGLU.
// Sizes, names and initialisation follow torchtitan v0.2.2 (1B, 3B and the tied head: its main branch). Left out: dropout, biases.
//
// Dims: B rows, T tokens, S keys, D model, H heads, G key-value heads, Q queries a group, d head size, N = H·d or G·d, F hidden, V vocabulary.
#include "models/model.h"
#include "ops/ops.h"

#include <math.h>
#include <stdio.h>
#include <stddef.h>
#include <string.h>

extern const ct_model_kind ct_model_llama3;

typedef struct {
    const char *flavor;
    double dim, n_layers, n_heads, n_kv_heads, vocab_size, multiple_of, ffn_dim_multiplier; // 0 kv heads or multiplier: none
    double rope_theta, tied, block_causal;
    double norm_eps, max_seq_len, depth_init, hidden_dim; // hidden_dim 0: by the formula
    double rope_scaling_factor, rope_low_freq_factor, rope_high_freq_factor, rope_original_max_seq_len;
} llama_args;

#define COMMON                                                                                                         \
    .norm_eps = 1e-5, .max_seq_len = 131072, .depth_init = 1, .rope_theta = 500000, .rope_scaling_factor = 8,          \
    .rope_low_freq_factor = 1, .rope_high_freq_factor = 4, .rope_original_max_seq_len = 8192

static const llama_args table[] = {
    {"debugmodel", 256, 6, 16, 0, 2048, 256, 0, COMMON},
    {"debugmodel_flex_attn", 256, 6, 16, 0, 2048, 256, 0, COMMON, .block_causal = 1},
    {"debugmodel_varlen_attn", 256, 6, 16, 0, 2048, 256, 0, COMMON, .block_causal = 1},
    {"1B", 2048, 16, 32, 8, 128256, 1024, 1.5, COMMON, .tied = 1},
    {"3B", 3072, 28, 24, 8, 128256, 1024, 1.0, COMMON, .tied = 1},
    {"8B", 4096, 32, 32, 8, 128256, 1024, 1.3, COMMON},
    {"8B_flex", 4096, 32, 32, 8, 128256, 1024, 1.3, COMMON, .block_causal = 1},
    {"8B_varlen", 4096, 32, 32, 8, 128256, 1024, 1.3, COMMON, .block_causal = 1},
    {"70B", 8192, 80, 64, 8, 128256, 4096, 1.3, COMMON},
    {"405B", 16384, 126, 128, 8, 128256, 4096, 1.2, COMMON},
};
enum { FLAVORS = sizeof table / sizeof *table };
static const char *const flavors[FLAVORS + 1] = {
    "debugmodel", "debugmodel_flex_attn", "debugmodel_varlen_attn", "1B", "3B", "8B", "8B_flex", "8B_varlen", "70B", "405B"};

typedef struct {
    const char *key;
    size_t offset;
    double min, max;
    int whole;
} field;
#define FIELD(name, low, high, integer) {#name, offsetof(llama_args, name), low, high, integer}
static const field fields[] = {
    FIELD(dim, 2, 1 << 20, 1),           FIELD(n_layers, 1, 4096, 1),
    FIELD(n_heads, 1, 1 << 16, 1),       FIELD(n_kv_heads, 1, 1 << 16, 1),
    FIELD(vocab_size, 2, 1 << 26, 1),    FIELD(multiple_of, 1, 1 << 20, 1),
    FIELD(ffn_dim_multiplier, 1e-3, 1e3, 0), FIELD(hidden_dim, 1, 1 << 24, 1),
    FIELD(norm_eps, 0, 1, 0),            FIELD(rope_theta, 1, 1e12, 0),
    FIELD(max_seq_len, 1, 1 << 30, 1),   FIELD(depth_init, 0, 1, 1),
    FIELD(tied, 0, 1, 1),                FIELD(rope_scaling_factor, 0, 1e6, 0),
    FIELD(rope_low_freq_factor, 1e-6, 1e6, 0), FIELD(rope_high_freq_factor, 1e-6, 1e6, 0),
    FIELD(rope_original_max_seq_len, 1, 1 << 30, 1),
};
enum { FIELDS = sizeof fields / sizeof *fields };
static const char *const keys[] = {
    "dim", "n_layers", "n_heads", "n_kv_heads", "vocab_size", "multiple_of", "ffn_dim_multiplier", "hidden_dim", "norm_eps",
    "rope_theta", "max_seq_len", "depth_init", "tied", "rope_scaling_factor", "rope_low_freq_factor", "rope_high_freq_factor",
    "rope_original_max_seq_len", "attn_mask_type", "enable_weight_tying", NULL};

static ct_status set(llama_args *args, const ct_model_override *o) {
    const char *key = !strcmp(o->key, "enable_weight_tying") ? "tied" : o->key;
    if (!strcmp(key, "attn_mask_type")) {
        CT_CHECK(o->text && (!strcmp(o->text, "causal") || !strcmp(o->text, "block_causal")), CT_INVALID,
                 "model.args.attn_mask_type = \"%s\": \"causal\" or \"block_causal\" is wanted", o->text ? o->text : "");
        args->block_causal = !strcmp(o->text, "block_causal");
        return CT_OK;
    }
    for (int i = 0; i < FIELDS; i++) {
        if (strcmp(fields[i].key, key)) continue;
        double x = o->number;
        const char *wanted = fields[i].whole ? "a whole number" : "a number";
        CT_CHECK(!o->text, CT_INVALID, "model.args.%s = \"%s\": %s from %.10g to %.10g is wanted", o->key, o->text, wanted,
                 fields[i].min, fields[i].max);
        CT_CHECK(x >= fields[i].min && x <= fields[i].max && (!fields[i].whole || x == floor(x)), CT_INVALID,
                 "model.args.%s = %.10g: %s from %.10g to %.10g is wanted", o->key, x, wanted, fields[i].min, fields[i].max);
        memcpy((char *)args + fields[i].offset, &x, sizeof x);
        return CT_OK;
    }
    CT_FAIL(CT_INVALID, "model.args.%s: llama3 has no such field", o->key);
}

static int64_t ffn_dim(const llama_args *a) {
    if (a->hidden_dim > 0) return (int64_t)a->hidden_dim;
    int64_t hidden = (int64_t)(2 * 4 * (int64_t)a->dim / 3);
    if (a->ffn_dim_multiplier > 0) hidden = (int64_t)(a->ffn_dim_multiplier * (double)hidden);
    int64_t multiple = (int64_t)a->multiple_of;
    return multiple * ((hidden + multiple - 1) / multiple);
}

static ct_status check_shape(const llama_args *a) {
    int64_t dim = (int64_t)a->dim, heads = (int64_t)a->n_heads, kv = (int64_t)a->n_kv_heads;
    CT_CHECK(dim % heads == 0, CT_INVALID, "model.args.dim = %lld is not a multiple of n_heads = %lld", (long long)dim,
             (long long)heads);
    CT_CHECK(dim / heads % 2 == 0, CT_INVALID,
             "model.args: a head has dim / n_heads = %lld elements; rotary embedding needs an even number",
             (long long)(dim / heads));
    CT_CHECK(heads % kv == 0, CT_INVALID, "model.args.n_heads = %lld is not a multiple of n_kv_heads = %lld",
             (long long)heads, (long long)kv);
    return CT_OK;
}

typedef struct {
    ct_arena *arena;
    ct_model *model;
} listing;

static void parameter(listing *l, ct_init init, const char *name, int dims_count, ct_dim first, ct_dim second) {
    ct_parameter *p = &l->model->parameters[l->model->parameters_count++];
    *p = (ct_parameter){ct_arena_strdup(l->arena, name), ct_type_make(CT_F32, dims_count, (ct_dim[]){first, second}), init};
}

static ct_init truncated(double std, double cut) { return (ct_init){CT_INIT_TRUNCATED_NORMAL, std, -cut, cut}; }

// In the order of torchtitan's module: embedding, layers (attention, feed-forward, norms), norm, head.
static void list_parameters(ct_arena *arena, ct_model *model, const llama_args *a) {
    const ct_model_shape *s = &model->shape;
    model->parameters = CT_ARENA_ARRAY(arena, ct_parameter, 9 * s->n_layers + 3);
    listing l = {arena, model};
    ct_dim D = ct_dim_make("D", s->dim), N = ct_dim_make("N", s->n_heads * s->head_dim);
    ct_dim K = ct_dim_make("N", s->n_kv_heads * s->head_dim), F = ct_dim_make("F", s->ffn_dim);
    ct_dim V = ct_dim_make("V", s->vocab_size), none = {0};
    ct_init ones = {.kind = CT_INIT_ONES}, small = truncated(0.02, 2);
    parameter(&l, (ct_init){CT_INIT_NORMAL, 1.0, 0, 0}, "tok_embeddings.weight", 2, V, D);
    for (int64_t i = 0; i < s->n_layers; i++) {
        double depth = a->depth_init > 0 ? (double)(i + 1) : (double)s->n_layers;
        ct_init deep = truncated(0.02 / sqrt(2 * depth), 2);
        struct {
            const char *name;
            ct_init init;
            int dims;
            ct_dim first, second;
        } layer[] = {{"attention.wq", small, 2, N, D},        {"attention.wk", small, 2, K, D},
                     {"attention.wv", small, 2, K, D},        {"attention.wo", deep, 2, D, N},
                     {"feed_forward.w1", small, 2, F, D},     {"feed_forward.w2", deep, 2, D, F},
                     {"feed_forward.w3", deep, 2, F, D},      {"attention_norm", ones, 1, D, none},
                     {"ffn_norm", ones, 1, D, none}};
        for (size_t k = 0; k < sizeof layer / sizeof *layer; k++) {
            char name[96];
            snprintf(name, sizeof name, "layers.%lld.%s.weight", (long long)i, layer[k].name);
            parameter(&l, layer[k].init, name, layer[k].dims, layer[k].first, layer[k].second);
        }
    }
    parameter(&l, ones, "norm.weight", 1, D, none);
    double std = 1 / sqrt((double)s->dim);
    if (!s->tied) parameter(&l, truncated(std, 3 * std), "output.weight", 2, V, D);
}

static ct_status unknown_flavor(const char *flavor) {
    char known[256] = "";
    for (int i = 0; i < FLAVORS; i++)
        snprintf(known + strlen(known), sizeof known - strlen(known), "%s%s", i ? ", " : "", flavors[i]);
    CT_FAIL(CT_INVALID, "model.flavor = \"%s\": llama3's flavours are %s", flavor, known);
}

static ct_status open_llama(const ct_model_kind *kind, ct_arena *arena, const char *flavor, const ct_model_override *overrides, int count,
                            ct_model *out) {
    (void)kind;
    int f = 0;
    while (f < FLAVORS && strcmp(table[f].flavor, flavor)) f++;
    if (f == FLAVORS) return unknown_flavor(flavor);
    llama_args *a = CT_ARENA_NEW(arena, llama_args);
    *a = table[f];
    for (int i = 0; i < count; i++) CT_TRY(set(a, &overrides[i]));
    if (a->n_kv_heads == 0) a->n_kv_heads = a->n_heads;
    CT_TRY(check_shape(a));
    *out = (ct_model){.kind = &ct_model_llama3, .flavor = table[f].flavor, .args = a};
    out->shape = (ct_model_shape){.dim = (int64_t)a->dim,
                                  .n_layers = (int64_t)a->n_layers,
                                  .n_heads = (int64_t)a->n_heads,
                                  .n_kv_heads = (int64_t)a->n_kv_heads,
                                  .head_dim = (int64_t)a->dim / (int64_t)a->n_heads,
                                  .ffn_dim = ffn_dim(a),
                                  .vocab_size = (int64_t)a->vocab_size,
                                  .max_seq_len = (int64_t)a->max_seq_len,
                                  .norm_eps = a->norm_eps,
                                  .rope_theta = a->rope_theta,
                                  .rope_factor = a->rope_scaling_factor,
                                  .rope_low = a->rope_low_freq_factor,
                                  .rope_high = a->rope_high_freq_factor,
                                  .rope_original = (int64_t)a->rope_original_max_seq_len,
                                  .tied = a->tied > 0,
                                  .block_causal = a->block_causal > 0};
    list_parameters(arena, out, a);
    return CT_OK;
}

// ---- the network ----
typedef struct {
    ct_graph *g;
    const ct_model *model;
    ct_value *weights; // by parameter index
    ct_value angles;
    ct_attention_mask mask;
    ct_value slots; // generation: where this row's keys go; -1 in training
    ct_build_options options;
} network;

enum { WQ, WK, WV, WO, W1, W2, W3, ATTENTION_NORM, FFN_NORM, PER_LAYER };

static ct_value weight(const network *n, int64_t layer, int which) { return n->weights[1 + layer * PER_LAYER + which]; }

static void at(network *n, int64_t layer, const char *module) {
    ct_graph_at(n->g, CT_FORWARD, (int)layer, "layers.%lld.%s", (long long)layer, module);
}

// Keys or values of this run, or the cache that holds them and all before.
static ct_value through_cache(network *n, int64_t layer, const char *which, ct_value x_BTGd) {
    if (n->slots.id < 0) return x_BTGd;
    char name[32];
    snprintf(name, sizeof name, "cache.%s.%lld", which, (long long)layer);
    ct_type type = *ct_value_type(n->g, x_BTGd);
    type.dims[1] = ct_dim_make("S", n->options.cache_len);
    ct_value cache = ct_build_input(n->g, CT_STATE, name, type);
    ct_value updated = ct_cache_write(n->g, cache, x_BTGd, n->slots);
    ct_build_update(n->g, cache, updated);
    return updated;
}

static ct_value attention(network *n, int64_t layer, ct_value h_BTD) {
    const ct_model_shape *s = &n->model->shape;
    ct_graph *g = n->g;
    ct_dim d = ct_dim_make("d", s->head_dim), H = ct_dim_make("H", s->n_heads), G = ct_dim_make("G", s->n_kv_heads);
    ct_dim Q = ct_dim_make("Q", s->n_heads / s->n_kv_heads);
    at(n, layer, "attention.wq");
    ct_value q = ct_split(g, ct_matmul(g, h_BTD, weight(n, layer, WQ), 0), 2, 2, (ct_dim[]){H, d});
    at(n, layer, "attention.wk");
    ct_value k = ct_split(g, ct_matmul(g, h_BTD, weight(n, layer, WK), 0), 2, 2, (ct_dim[]){G, d});
    at(n, layer, "attention.wv");
    ct_value v = ct_split(g, ct_matmul(g, h_BTD, weight(n, layer, WV), 0), 2, 2, (ct_dim[]){G, d});
    at(n, layer, "attention");
    q = ct_rope(g, q, n->angles, 0);
    k = ct_rope(g, k, n->angles, 0);
    k = through_cache(n, layer, "k", k);
    v = through_cache(n, layer, "v", v);
    ct_value q_BTGQd = ct_split(g, q, 2, 2, (ct_dim[]){G, Q});
    ct_value o = ct_attention(g, q_BTGQd, k, v, n->mask, 1 / sqrt((double)s->head_dim), NULL);
    ct_value o_BTN = ct_merge(g, o, 2, 3, "N");
    at(n, layer, "attention.wo");
    return ct_matmul(g, o_BTN, weight(n, layer, WO), 0);
}

static ct_value feed_forward(network *n, int64_t layer, ct_value h_BTD) {
    at(n, layer, "feed_forward.w1");
    ct_value a_BTF = ct_matmul(n->g, h_BTD, weight(n, layer, W1), 0);
    at(n, layer, "feed_forward.w3");
    ct_value b_BTF = ct_matmul(n->g, h_BTD, weight(n, layer, W3), 0);
    at(n, layer, "feed_forward");
    ct_value y_BTF = ct_silu_mul(n->g, a_BTF, b_BTF);
    at(n, layer, "feed_forward.w2");
    return ct_matmul(n->g, y_BTF, weight(n, layer, W2), 0);
}

static ct_value block(network *n, int64_t layer, ct_value x_BTD) {
    double eps = n->model->shape.norm_eps;
    at(n, layer, "attention_norm");
    ct_value h = ct_rmsnorm(n->g, x_BTD, weight(n, layer, ATTENTION_NORM), eps);
    ct_value attended = attention(n, layer, h);
    at(n, layer, "attention");
    x_BTD = ct_add(n->g, x_BTD, attended);
    ct_graph_hint(n->g, x_BTD, CT_HINT_RESIDUAL);
    at(n, layer, "ffn_norm");
    h = ct_rmsnorm(n->g, x_BTD, weight(n, layer, FFN_NORM), eps);
    ct_value forwarded = feed_forward(n, layer, h);
    at(n, layer, "feed_forward");
    x_BTD = ct_add(n->g, x_BTD, forwarded);
    ct_graph_hint(n->g, x_BTD, CT_HINT_RESIDUAL);
    return x_BTD;
}

static ct_value feed(ct_graph *g, const char *name, ct_dtype dtype, int dims, ct_dim B, ct_dim T) {
    return ct_build_input(g, CT_FEED, name, ct_type_make(dtype, dims, (ct_dim[]){B, T}));
}

static void declare_roles(ct_graph *g) {
    static const ct_dim_role roles[] = {
        {"B", CT_ROLE_BATCH},  {"T", CT_ROLE_SEQUENCE}, {"S", CT_ROLE_SEQUENCE}, {"H", CT_ROLE_HEADS},
        {"G", CT_ROLE_HEADS},  {"Q", CT_ROLE_NONE},     {"N", CT_ROLE_HEADS},    {"F", CT_ROLE_HIDDEN},
        {"V", CT_ROLE_VOCABULARY}, {"D", CT_ROLE_MODEL}, {"d", CT_ROLE_NONE}};
    for (size_t i = 0; i < sizeof roles / sizeof *roles; i++) ct_graph_role(g, roles[i].name, roles[i].role);
}

static void build_llama(const ct_model *model, ct_graph *g, ct_build_options options) {
    const ct_model_shape *s = &model->shape;
    declare_roles(g);
    network n = {.g = g, .model = model, .options = options, .slots = CT_NO_VALUE};
    n.weights = CT_ARENA_ARRAY(&g->arena, ct_value, model->parameters_count);
    ct_dim B = ct_dim_make("B", options.batch), T = ct_dim_make("T", options.seq_len);
    ct_value tokens = feed(g, "tokens", CT_I32, 2, B, T), positions = feed(g, "positions", CT_I32, 2, B, T);
    ct_value labels = CT_NO_VALUE, inv_count = CT_NO_VALUE, documents;
    if (options.kind == CT_BUILD_LOSS) {
        labels = feed(g, "labels", CT_I32, 2, B, T);
        documents = feed(g, "documents", CT_I32, 2, B, T);
        inv_count = feed(g, "inv_count", CT_F32, 0, B, T);
        n.mask = (ct_attention_mask){positions, positions, documents, documents};
    } else {
        ct_dim S = ct_dim_make("S", options.cache_len);
        n.slots = feed(g, "slots", CT_I32, 2, B, T);
        documents = feed(g, "documents", CT_I32, 2, B, T);
        ct_value key_positions = feed(g, "key_positions", CT_I32, 2, B, S);
        n.mask = (ct_attention_mask){positions, key_positions, documents, feed(g, "key_documents", CT_I32, 2, B, S)};
    }
    for (int i = 0; i < model->parameters_count; i++)
        n.weights[i] = ct_build_input(g, CT_PARAMETER, model->parameters[i].name, model->parameters[i].type);

    ct_graph_at(g, CT_FORWARD, -1, "rope");
    n.angles = ct_rope_angles(g, positions, s->head_dim,
                              (ct_rope_options){s->rope_theta, s->rope_factor, s->rope_low, s->rope_high,
                                                (double)s->rope_original});
    ct_graph_at(g, CT_FORWARD, -1, "tok_embeddings");
    ct_value x_BTD = ct_embed(g, n.weights[0], tokens);
    ct_graph_hint(g, x_BTD, CT_HINT_RESIDUAL);
    for (int64_t i = 0; i < s->n_layers; i++) x_BTD = block(&n, i, x_BTD);
    ct_graph_at(g, CT_FORWARD, -1, "norm");
    ct_value h_BTD = ct_rmsnorm(g, x_BTD, n.weights[1 + s->n_layers * PER_LAYER], s->norm_eps);
    ct_graph_at(g, CT_FORWARD, -1, "output");
    ct_value head_VD = n.weights[s->tied ? 0 : model->parameters_count - 1];
    if (options.kind == CT_BUILD_LOSS)
        ct_build_output(g, "token_loss", ct_lm_loss(g, h_BTD, head_VD, labels, inv_count, NULL, NULL));
    else
        ct_build_output(g, "logits", ct_matmul(g, h_BTD, head_VD, 1));
}

const ct_model_kind ct_model_llama3 = {"llama3", open_llama, build_llama, flavors, keys};
