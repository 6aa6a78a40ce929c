// Configuration → model and step options. Values were checked for type and range by config; what depends on the model is checked here.
#include "train/setup.h"
#include "train/pipeline.h"
#include "plugins/plugins.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <string.h>

typedef struct {
    ct_model_override items[32];
    int count;
} override_list;

static void add_int(override_list *list, const char *key, ct_opt_int value) {
    if (value.has) list->items[list->count++] = (ct_model_override){key, (double)value.value, NULL};
}
static void add_float(override_list *list, const char *key, ct_opt_float value) {
    if (value.has) list->items[list->count++] = (ct_model_override){key, value.value, NULL};
}
static void add_bool(override_list *list, const char *key, ct_opt_bool value) {
    if (value.has) list->items[list->count++] = (ct_model_override){key, value.value ? 1 : 0, NULL};
}

ct_status ct_setup_plugins(const ct_config *config) {
    const ct_string_list *paths = &config->plugins.paths;
    CT_TRY_AS(ct_plugins_load(paths->items, paths->count), "plugins.paths from %s", ct_config_origin_text(config, "plugins.paths"));
    return CT_OK;
}

ct_status ct_setup_model(ct_arena *arena, const ct_config *config, ct_model *out_model) {
    const ct_config_model_args *a = &config->model.args;
    override_list list = {.count = 0};
    add_int(&list, "dim", a->dim);
    add_int(&list, "n_layers", a->n_layers);
    add_int(&list, "n_heads", a->n_heads);
    add_int(&list, "n_kv_heads", a->n_kv_heads);
    add_int(&list, "vocab_size", a->vocab_size);
    add_int(&list, "multiple_of", a->multiple_of);
    add_float(&list, "ffn_dim_multiplier", a->ffn_dim_multiplier);
    add_int(&list, "hidden_dim", a->hidden_dim);
    add_float(&list, "norm_eps", a->norm_eps);
    add_float(&list, "rope_theta", a->rope_theta);
    add_float(&list, "rope_scaling_factor", a->rope_scaling_factor);
    add_float(&list, "rope_low_freq_factor", a->rope_low_freq_factor);
    add_float(&list, "rope_high_freq_factor", a->rope_high_freq_factor);
    add_int(&list, "rope_original_max_seq_len", a->rope_original_max_seq_len);
    add_int(&list, "max_seq_len", a->max_seq_len);
    add_bool(&list, "depth_init", a->depth_init);
    add_bool(&list, "tied", a->enable_weight_tying);
    if (a->attn_mask_type != CT_CFG_MASK_UNSET)
        list.items[list.count++] = (ct_model_override){
            "attn_mask_type", 0, a->attn_mask_type == CT_CFG_MASK_BLOCK_CAUSAL ? "block_causal" : "causal"};
    const char *where = ct_config_origin_text(config, "model.flavor");
    CT_TRY_AS(ct_model_open(arena, config->model.name, config->model.flavor, list.items, list.count, out_model),
              "model.flavor from %s", where);
    return CT_OK;
}

// Sequences of a step are counted in 32 bits, twice as many are read ahead.
enum { MOST_TOKENS = INT32_MAX, MOST_SEQUENCES = (1 << 30) - 8 };

ct_status ct_setup_micro_batches(const ct_config *config, int data_ranks, int64_t *out_count) {
    int64_t one = config->training.local_batch_size * data_ranks, global = config->training.global_batch_size;
    CT_CHECK(global < 0 || global % one == 0, CT_INVALID,
             "%s: training.global_batch_size = %lld is not a multiple of local_batch_size × data-parallel ranks = %lld",
             ct_config_origin_text(config, "training.global_batch_size"), (long long)global, (long long)one);
    CT_CHECK(global <= MOST_SEQUENCES, CT_INVALID, "%s: training.global_batch_size = %lld: at most %d sequences make a step",
             ct_config_origin_text(config, "training.global_batch_size"), (long long)global, MOST_SEQUENCES);
    *out_count = (global < 0 ? 1 : global / one) * ct_pipeline_micros(config);
    return CT_OK;
}

// ---- optimizer constants by parameter group ----
typedef struct {
    const ct_config_optimizer *optimizer;
    pcre2_code **patterns;
} group_table;

static ct_adamw_options constants_of(void *context, const char *parameter) {
    const group_table *table = context;
    const ct_config_optimizer *o = table->optimizer;
    ct_adamw_options options = {1, o->beta1, o->beta2, o->eps, o->weight_decay, o->name == CT_CFG_ADAM};
    for (int i = 0; i < o->param_group_count; i++) {
        pcre2_match_data *match = pcre2_match_data_create(1, NULL);
        int found = pcre2_match(table->patterns[i], (PCRE2_SPTR)parameter, strlen(parameter), 0, 0, match, NULL);
        pcre2_match_data_free(match);
        if (found < 0) continue;
        const ct_config_param_group *g = &o->param_groups[i];
        options.lr_scale = g->lr_scale;
        if (g->beta1.has) options.beta1 = g->beta1.value;
        if (g->beta2.has) options.beta2 = g->beta2.value;
        if (g->eps.has) options.eps = g->eps.value;
        if (g->weight_decay.has) options.weight_decay = g->weight_decay.value;
        break;
    }
    return options;
}

static void free_patterns(group_table *table) {
    for (int i = 0; i < table->optimizer->param_group_count; i++) pcre2_code_free(table->patterns[i]);
}

static ct_status compile_groups(ct_arena *arena, const ct_config_optimizer *optimizer, group_table **out_table) {
    group_table *table = CT_ARENA_NEW(arena, group_table);
    table->optimizer = optimizer;
    table->patterns = CT_ARENA_ARRAY(arena, pcre2_code *, optimizer->param_group_count + 1);
    for (int i = 0; i < optimizer->param_group_count; i++) {
        int error;
        PCRE2_SIZE at;
        const char *text = optimizer->param_groups[i].pattern;
        table->patterns[i] = pcre2_compile((PCRE2_SPTR)text, PCRE2_ZERO_TERMINATED, 0, &error, &at, NULL);
        if (!table->patterns[i]) {
            char message[128];
            pcre2_get_error_message(error, (PCRE2_UCHAR *)message, sizeof message);
            free_patterns(table);
            CT_FAIL(CT_INVALID, "optimizer.param_groups[%d].pattern = \"%s\": at character %zu: %s", i, text, (size_t)at, message);
        }
    }
    *out_table = table;
    return CT_OK;
}

// Looks every parameter's constants up once, so that no pattern outlives this file.
typedef struct {
    int count;
    const ct_parameter *parameters;
    ct_adamw_options *options;
} constant_table;

static ct_adamw_options look_up(void *context, const char *parameter) {
    const constant_table *table = context;
    for (int i = 0; i < table->count; i++)
        if (!strcmp(table->parameters[i].name, parameter)) return table->options[i];
    CT_ASSERT(0, "no parameter %s", parameter);
    return table->options[0];
}

static ct_recompute_options recompute_of(const ct_config_activation_checkpoint *ac) {
    switch (ac->mode) {
    case CT_CFG_AC_FULL: return (ct_recompute_options){.mode = CT_RECOMPUTE_FULL, .every = 1};
    case CT_CFG_AC_SELECTIVE:
        return ac->selective_every > 0 ? (ct_recompute_options){.mode = CT_RECOMPUTE_EVERY, .every = (int)ac->selective_every}
                                       : (ct_recompute_options){.mode = CT_RECOMPUTE_OP, .every = 1};
    default: return (ct_recompute_options){.mode = CT_RECOMPUTE_NONE, .every = 1};
    }
}

int ct_setup_least_ranks(const ct_config *config) {
    const ct_config_parallelism *c = &config->parallelism;
    int64_t shard = c->data_parallel_shard_degree > 0 ? c->data_parallel_shard_degree : 1;
    double ranks = (double)shard * (double)c->data_parallel_replicate_degree * (double)c->pipeline_parallel_degree *
                   (double)c->context_parallel_degree * (double)c->tensor_parallel_degree;
    return ranks < 1e6 ? (int)ranks : 1000000;
}

ct_status ct_setup_parallel(const ct_config *config, int ranks, ct_parallel *out) {
    const ct_config_parallelism *c = &config->parallelism;
    *out = (ct_parallel){.sequence_parallel = c->enable_sequence_parallel, .loss_parallel = !c->disable_loss_parallel,
                         .reduce_once = c->gradient_reduction == CT_CFG_REDUCE_STEP,
                         .ring = c->context_parallel_rotate_method == CT_CFG_ALLTOALL};
    ct_degrees degrees = {c->pipeline_parallel_degree, c->data_parallel_replicate_degree, c->data_parallel_shard_degree,
                          c->context_parallel_degree, c->tensor_parallel_degree};
    CT_TRY_AS(ct_mesh_make(degrees, ranks, &out->mesh), "the degrees of [parallelism]");
    int64_t cp = c->context_parallel_degree;
    CT_CHECK(cp == 1 || config->training.seq_len % (2 * cp) == 0, CT_INVALID,
             "%s: training.seq_len = %lld is not a multiple of 2 × context_parallel_degree = %lld", ct_config_origin_text(config, "training.seq_len"),
             (long long)config->training.seq_len, (long long)(2 * cp));
    CT_CHECK(cp == 1 || !config->validation.enable || config->validation.seq_len % (2 * cp) == 0, CT_INVALID,
             "%s: validation.seq_len = %lld is not a multiple of 2 × context_parallel_degree = %lld",
             ct_config_origin_text(config, "validation.seq_len"), (long long)config->validation.seq_len, (long long)(2 * cp));
    return CT_OK;
}

ct_status ct_setup_step_options(ct_arena *arena, const ct_config *config, const ct_model *model, const ct_parallel *parallel, int rank,
                                ct_step_options *out) {
    group_table *groups;
    CT_TRY(compile_groups(arena, &config->optimizer, &groups));
    constant_table *table = CT_ARENA_NEW(arena, constant_table);
    *table = (constant_table){model->parameters_count, model->parameters,
                              CT_ARENA_ARRAY(arena, ct_adamw_options, model->parameters_count)};
    for (int i = 0; i < table->count; i++) table->options[i] = constants_of(groups, model->parameters[i].name);
    free_patterns(groups);
    CT_CHECK(!config->validation.ema || config->optimizer.ema_decay > 0, CT_INVALID,
             "%s: validation.ema wants the average of the weights, and there is none: optimizer.ema_decay is 0",
             ct_config_origin_text(config, "validation.ema"));
    *out = (ct_step_options){
        .batch = config->parallelism.pipeline_parallel_degree > 1 ? config->parallelism.pipeline_parallel_microbatch_size
                                                                  : config->training.local_batch_size,
        .seq_len = config->training.seq_len,
        .compute = config->training.mixed_precision_param == CT_CFG_BFLOAT16 ? CT_BF16 : CT_F32,
        .recompute = recompute_of(&config->activation_checkpoint),
        .max_norm = config->training.max_norm,
        .average = config->optimizer.ema_decay > 0,
        .optimizer = look_up,
        .context = table,
        .plan = {.threads = config->training.threads > 0 ? (int)config->training.threads : ct_cores(), .no_overlap = !config->comm.overlap,
                 .in_parts = config->parallelism.enable_async_tensor_parallel},
    };
    if (parallel) out->parallel = *parallel, out->rank = rank;
    const ct_config_parallelism *c = &config->parallelism;
    out->recompute.regather = c->fsdp_reshard_after_forward == CT_CFG_RESHARD_ALWAYS ||
                              (c->fsdp_reshard_after_forward == CT_CFG_RESHARD_DEFAULT && c->pipeline_parallel_degree == 1);
    if (config->validation.enable) {
        out->eval_batch = config->validation.local_batch_size;
        out->eval_seq_len = config->validation.seq_len;
    }
    return CT_OK;
}

static ct_status check_tokens(const ct_config *config, const char *key, int64_t sequences, int64_t seq_len) {
    CT_CHECK(sequences <= MOST_TOKENS / seq_len && sequences <= MOST_SEQUENCES, CT_INVALID,
             "%s: %s = %lld of %lld tokens: at most %d tokens make a micro-batch", ct_config_origin_text(config, key), key,
             (long long)sequences, (long long)seq_len, MOST_TOKENS);
    return CT_OK;
}

ct_status ct_setup_check_sizes(const ct_config *config, const ct_model *model, int tokenizer_vocab) {
    const ct_model_shape *s = &model->shape;
    CT_CHECK(config->training.seq_len <= s->max_seq_len, CT_INVALID,
             "%s: training.seq_len = %lld is more than the model's max_seq_len = %lld",
             ct_config_origin_text(config, "training.seq_len"), (long long)config->training.seq_len, (long long)s->max_seq_len);
    CT_CHECK(!config->validation.enable || config->validation.seq_len <= s->max_seq_len, CT_INVALID,
             "%s: validation.seq_len = %lld is more than the model's max_seq_len = %lld",
             ct_config_origin_text(config, "validation.seq_len"), (long long)config->validation.seq_len,
             (long long)s->max_seq_len);
    CT_TRY(check_tokens(config, "training.local_batch_size", config->training.local_batch_size, config->training.seq_len));
    if (config->validation.enable)
        CT_TRY(check_tokens(config, "validation.local_batch_size", config->validation.local_batch_size, config->validation.seq_len));
    CT_CHECK(tokenizer_vocab <= s->vocab_size, CT_INVALID,
             "the tokenizer at %s has %d ids, the model's vocabulary is %lld (model.args.vocab_size)", config->model.hf_assets_path,
             tokenizer_vocab, (long long)s->vocab_size);
    return CT_OK;
}
