// config.json of a LlamaForCausalLM. Both spellings of the rotary settings are read: rope_theta with rope_scaling, and rope_parameters
// (transformers 5); the first is written, which both versions read. Other models' settings are refused by name rather than dropped.
#include "llama.h"
#include "pull.h"

#include <string.h>

typedef struct {
    ct_llama_shape shape;
    int64_t head_dim;
    char *model_type, *activation, *rope_type;
    int has_bias, is_quantized;
} reader;

static int is_null(ct_pull *pull) { return ct_pull_peek(pull) == 'n'; }

static ct_status rope_member(void *context, ct_pull *pull, const char *key, size_t key_bytes) {
    (void)key_bytes;
    reader *r = context;
    if (is_null(pull)) return ct_pull_skip(pull, NULL, NULL);
    if (!strcmp(key, "rope_type") || !strcmp(key, "type")) return ct_pull_string(pull, &r->rope_type);
    if (!strcmp(key, "rope_theta")) return ct_pull_number(pull, &r->shape.rope_theta);
    if (!strcmp(key, "factor")) return ct_pull_number(pull, &r->shape.rope_scaling_factor);
    if (!strcmp(key, "low_freq_factor")) return ct_pull_number(pull, &r->shape.rope_low_freq_factor);
    if (!strcmp(key, "high_freq_factor")) return ct_pull_number(pull, &r->shape.rope_high_freq_factor);
    if (!strcmp(key, "original_max_position_embeddings")) return ct_pull_int(pull, &r->shape.rope_original_max_seq_len);
    return ct_pull_skip(pull, NULL, NULL);
}

static ct_status bias_member(reader *r, ct_pull *pull) {
    int bias;
    CT_TRY(ct_pull_bool(pull, &bias));
    r->has_bias |= bias;
    return CT_OK;
}

static int64_t *size_of(reader *r, const char *key) {
    const struct {
        const char *key;
        int64_t *place;
    } sizes[] = {
        {"hidden_size", &r->shape.dim},
        {"intermediate_size", &r->shape.ffn_dim},
        {"num_hidden_layers", &r->shape.n_layers},
        {"num_attention_heads", &r->shape.n_heads},
        {"num_key_value_heads", &r->shape.n_kv_heads},
        {"vocab_size", &r->shape.vocab_size},
        {"max_position_embeddings", &r->shape.max_seq_len},
        {"head_dim", &r->head_dim},
    };
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        if (!strcmp(key, sizes[i].key)) return sizes[i].place;
    return NULL;
}

static ct_status member(void *context, ct_pull *pull, const char *key, size_t key_bytes) {
    (void)key_bytes;
    reader *r = context;
    if (is_null(pull)) return ct_pull_skip(pull, NULL, NULL);
    int64_t *size = size_of(r, key);
    if (size) return ct_pull_int(pull, size);
    if (!strcmp(key, "model_type")) return ct_pull_string(pull, &r->model_type);
    if (!strcmp(key, "hidden_act")) return ct_pull_string(pull, &r->activation);
    if (!strcmp(key, "rms_norm_eps")) return ct_pull_number(pull, &r->shape.norm_eps);
    if (!strcmp(key, "rope_theta")) return ct_pull_number(pull, &r->shape.rope_theta);
    if (!strcmp(key, "rope_scaling") || !strcmp(key, "rope_parameters")) return ct_pull_object(pull, rope_member, r);
    if (!strcmp(key, "tie_word_embeddings")) return ct_pull_bool(pull, &r->shape.tied);
    if (!strcmp(key, "attention_bias") || !strcmp(key, "mlp_bias")) return bias_member(r, pull);
    if (!strcmp(key, "quantization_config")) r->is_quantized = 1;
    return ct_pull_skip(pull, NULL, NULL);
}

static ct_status check_rope(const char *path, reader *r) {
    ct_llama_shape *s = &r->shape;
    if (!r->rope_type || !strcmp(r->rope_type, "default")) {
        s->rope_scaling_factor = s->rope_low_freq_factor = s->rope_high_freq_factor = 0, s->rope_original_max_seq_len = 0;
        return CT_OK;
    }
    CT_CHECK(!strcmp(r->rope_type, "llama3"), CT_UNSUPPORTED, "%s: rotary scaling '%.40s'; 'llama3' and 'default' are known here", path,
             r->rope_type);
    if (!s->rope_original_max_seq_len) s->rope_original_max_seq_len = s->max_seq_len;
    CT_CHECK(s->rope_scaling_factor > 0 && s->rope_low_freq_factor > 0 && s->rope_high_freq_factor > s->rope_low_freq_factor &&
                 s->rope_original_max_seq_len > 0,
             CT_INVALID, "%s: llama3 rotary scaling needs factor, low_freq_factor < high_freq_factor, original_max_position_embeddings", path);
    return CT_OK;
}

static ct_status check(const char *path, reader *r) {
    ct_llama_shape *s = &r->shape;
    CT_CHECK(!r->model_type || !strcmp(r->model_type, "llama"), CT_UNSUPPORTED, "%s: model_type '%.40s'; 'llama' is known here", path,
             r->model_type);
    CT_CHECK(!r->activation || !strcmp(r->activation, "silu"), CT_UNSUPPORTED, "%s: hidden_act '%.40s'; 'silu' is known here", path,
             r->activation);
    CT_CHECK(!r->has_bias, CT_UNSUPPORTED, "%s: attention_bias or mlp_bias; ctitan's Llama has no biases", path);
    CT_CHECK(!r->is_quantized, CT_UNSUPPORTED, "%s: quantised weights (quantization_config) are not read here", path);
    if (s->n_heads && !s->n_kv_heads) s->n_kv_heads = s->n_heads;
    CT_CHECK(!r->head_dim || !s->n_heads || !s->dim || r->head_dim * s->n_heads == s->dim, CT_UNSUPPORTED,
             "%s: head_dim %lld × %lld heads is not hidden_size %lld", path, (long long)r->head_dim, (long long)s->n_heads, (long long)s->dim);
    return check_rope(path, r);
}

ct_status ct_hf_config_parse(const char *path, const char *json, size_t json_bytes, ct_llama_shape *out_shape) {
    ct_arena arena = {0};
    ct_pull pull;
    ct_pull_init(&pull, path, json, json_bytes, &arena);
    reader r = {.shape = {.norm_eps = 1e-6, .rope_theta = 10000, .max_seq_len = 2048}}; // transformers' defaults
    ct_status status = ct_pull_object(&pull, member, &r);
    if (!status) status = ct_pull_end(&pull);
    if (!status) status = check(path, &r);
    if (!status) *out_shape = r.shape;
    ct_pull_deinit(&pull);
    ct_arena_deinit(&arena);
    return status;
}

// ---- writing ----
static void print_rope(const ct_llama_shape *s, ct_string *out) {
    ct_string_add(out, "  \"rope_theta\": ");
    ct_print_real(s->rope_theta, out);
    ct_string_add(out, ",\n  \"rope_scaling\": ");
    if (s->rope_scaling_factor == 0) {
        ct_string_add(out, "null,\n");
        return;
    }
    ct_string_add(out, "{\"rope_type\": \"llama3\", \"factor\": ");
    ct_print_real(s->rope_scaling_factor, out);
    ct_string_add(out, ", \"low_freq_factor\": ");
    ct_print_real(s->rope_low_freq_factor, out);
    ct_string_add(out, ", \"high_freq_factor\": ");
    ct_print_real(s->rope_high_freq_factor, out);
    ct_string_add(out, ", \"original_max_position_embeddings\": %lld},\n", (long long)s->rope_original_max_seq_len);
}

void ct_hf_config_print(const ct_llama_shape *s, const ct_hf_export_options *options, ct_string *out) {
    static const char *const dtypes[] = {"float32", "bfloat16", "float16"};
    ct_string_add(out, "{\n  \"architectures\": [\"LlamaForCausalLM\"],\n  \"model_type\": \"llama\",\n");
    ct_string_add(out, "  \"hidden_size\": %lld,\n  \"intermediate_size\": %lld,\n  \"num_hidden_layers\": %lld,\n", (long long)s->dim,
                  (long long)s->ffn_dim, (long long)s->n_layers);
    ct_string_add(out, "  \"num_attention_heads\": %lld,\n  \"num_key_value_heads\": %lld,\n  \"head_dim\": %lld,\n", (long long)s->n_heads,
                  (long long)s->n_kv_heads, (long long)(s->dim / s->n_heads));
    ct_string_add(out, "  \"vocab_size\": %lld,\n  \"max_position_embeddings\": %lld,\n", (long long)s->vocab_size,
                  (long long)(s->max_seq_len ? s->max_seq_len : 2048));
    ct_string_add(out, "  \"rms_norm_eps\": ");
    ct_print_real(s->norm_eps, out);
    ct_string_add(out, ",\n");
    print_rope(s, out);
    ct_string_add(out, "  \"hidden_act\": \"silu\",\n  \"attention_bias\": false,\n  \"mlp_bias\": false,\n");
    if (options->has_tokens)
        ct_string_add(out, "  \"bos_token_id\": %lld,\n  \"eos_token_id\": %lld,\n", (long long)options->bos_token_id,
                      (long long)options->eos_token_id);
    else ct_string_add(out, "  \"bos_token_id\": null,\n  \"eos_token_id\": null,\n");
    ct_string_add(out, "  \"tie_word_embeddings\": %s,\n  \"torch_dtype\": \"%s\",\n  \"use_cache\": true\n}\n", s->tied ? "true" : "false",
                  dtypes[options->dtype]);
}
