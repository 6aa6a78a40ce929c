// Text for training: the tokenizer as the loader's encoder, and [training], [[training.sources]], [validation] as its sources.
#include "train/setup.h"
#include "data/tokens.h"
#include "plugins/plugins.h"

#include <stdlib.h>

struct ct_encoder {
    ct_tokenizer *tokenizer;
    ct_data_tokens *tokens;
};

ct_status ct_encoder_create(const char *path, int threads, ct_encoder **out_encoder) {
    ct_encoder *e = ct_calloc(1, sizeof *e);
    ct_status status = ct_tokenizer_open(path, (ct_tokenizer_options){0}, &e->tokenizer);
    if (!status) status = ct_data_tokens_create(e->tokenizer, threads, &e->tokens);
    if (status) ct_encoder_destroy(e);
    else *out_encoder = e;
    return status;
}

void ct_encoder_destroy(ct_encoder *e) {
    if (!e) return;
    ct_data_tokens_destroy(e->tokens);
    ct_tokenizer_close(e->tokenizer);
    free(e);
}

const ct_tokenizer *ct_encoder_tokenizer(const ct_encoder *e) { return e->tokenizer; }
ct_data_encoder ct_encoder_for_data(ct_encoder *e) { return ct_data_tokens_encoder(e->tokens, 0); }

// ---- sources ----
static const char *dataset_format(ct_cfg_dataset dataset) {
    switch (dataset) {
    case CT_CFG_C4: return "c4";
    case CT_CFG_C4_TEST: return "c4_test";
    case CT_CFG_C4_VALIDATION: return "c4_validation";
    case CT_CFG_TEXT: return "text";
    case CT_CFG_JSONL: return "jsonl";
    default: return "corpus";
    }
}

static const char *source_format(ct_cfg_source_format format) {
    switch (format) {
    case CT_CFG_SOURCE_TEXT: return "text";
    case CT_CFG_SOURCE_JSONL: return "jsonl";
    case CT_CFG_SOURCE_CORPUS: return "corpus";
    default: return NULL;
    }
}

// A plugin's data source as the loader sees it.
static ct_status find_reader(const ct_config_source *source, ct_data_reader *out_reader) {
    *out_reader = (ct_data_reader){0};
    if (!source->reader) return CT_OK;
    const ctitan_source *theirs = ct_plugins_source(source->reader);
    CT_CHECK(theirs, CT_INVALID, "training.sources reader = \"%s\": no plugin of plugins.paths has such a data source", source->reader);
    *out_reader = (ct_data_reader){theirs->name, theirs->open, theirs->read, theirs->close};
    return CT_OK;
}

static ct_status find_sources(const ct_config_training *t, ct_data_source *sources) {
    for (int i = 0; i < t->source_count; i++) {
        const ct_config_source *s = &t->sources[i];
        sources[i] = (ct_data_source){.path = s->path, .format = source_format(s->format), .weight = s->weight};
        CT_TRY(find_reader(s, &sources[i].reader));
    }
    return CT_OK;
}

static uint64_t seed_of(const ct_config *config) { return config->debug.seed.has ? (uint64_t)config->debug.seed.value : 0; }

ct_status ct_setup_training_data(const ct_config *config, const ct_model *model, ct_data_encoder encoder, int64_t sequences_a_step,
                                 ct_data **out_data) {
    const ct_config_training *t = &config->training;
    ct_data_source one = {.path = t->dataset_path, .format = dataset_format(t->dataset)}, *sources = &one;
    int count = 1;
    if (t->source_count > 0) {
        count = t->source_count;
        sources = ct_calloc((size_t)count, sizeof *sources);
    }
    ct_data_options options = {.encoder = encoder,
                               .sources = sources,
                               .source_count = count,
                               .seq_len = (int32_t)t->seq_len,
                               .shuffle = t->shuffle,
                               .seed = seed_of(config),
                               .documents_apart = model->shape.block_causal,
                               .ahead = (int32_t)(2 * sequences_a_step + 15)}; // at most INT32_MAX, see MOST_SEQUENCES
    ct_status status = sources != &one ? find_sources(t, sources) : CT_OK;
    if (!status) status = ct_data_create(&options, out_data);
    if (sources != &one) free(sources);
    if (status) return ct_error_note(status, "training data, %s", ct_config_origin_text(config, t->source_count > 0 ? "training.sources" : "training.dataset"));
    return CT_OK;
}

ct_status ct_setup_validation_data(const ct_config *config, const ct_model *model, ct_data_encoder encoder, int64_t sequences_a_batch,
                                   ct_data **out_data) {
    const ct_config_validation *v = &config->validation;
    ct_data_source source = {.path = v->dataset_path, .format = dataset_format(v->dataset)};
    ct_data_options options = {.encoder = encoder,
                               .sources = &source,
                               .source_count = 1,
                               .seq_len = (int32_t)v->seq_len,
                               .once = v->steps < 0,
                               .documents_apart = model->shape.block_causal,
                               .ahead = (int32_t)(2 * sequences_a_batch + 8),
                               .encoder_thread = 1};
    ct_status status = ct_data_create(&options, out_data);
    if (status) return ct_error_note(status, "validation data, %s", ct_config_origin_text(config, "validation.dataset"));
    return CT_OK;
}
