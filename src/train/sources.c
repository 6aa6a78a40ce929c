// Text for training: the tokenizer as the loader's encoder, and [training], [[training.sources]], [validation] as its sources.
#include "train/setup.h"
#include "base/file.h"

#include <stdlib.h>
#include <string.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

struct ct_encoder {
    ct_tokenizer *tokenizer;
    ct_tokenizer_context **contexts; // one a thread
    ct_ids *ids;
    int threads;
    uint64_t fingerprint;
};

static ct_status fingerprint_of(const ct_tokenizer_info *info, uint64_t *out) {
    ct_file_map map;
    CT_TRY(ct_file_map_open(info->path, &map));
    int32_t ends[2] = {info->bos_id, info->eos_id};
    *out = XXH3_64bits_withSeed(map.bytes, map.size, XXH3_64bits(ends, sizeof ends));
    ct_file_map_close(&map);
    return CT_OK;
}

ct_status ct_encoder_create(const char *path, int threads, ct_encoder **out_encoder) {
    ct_tokenizer *tokenizer;
    CT_TRY(ct_tokenizer_open(path, (ct_tokenizer_options){0}, &tokenizer));
    uint64_t fingerprint;
    ct_status status = fingerprint_of(ct_tokenizer_describe(tokenizer), &fingerprint);
    if (status) {
        ct_tokenizer_close(tokenizer);
        return status;
    }
    ct_encoder *e = ct_calloc(1, sizeof *e);
    *e = (ct_encoder){tokenizer, ct_calloc((size_t)threads, sizeof *e->contexts), ct_calloc((size_t)threads, sizeof *e->ids),
                      threads, fingerprint};
    for (int i = 0; i < threads; i++) e->contexts[i] = ct_tokenizer_context_create(tokenizer);
    *out_encoder = e;
    return CT_OK;
}

void ct_encoder_destroy(ct_encoder *e) {
    if (!e) return;
    for (int i = 0; i < e->threads; i++) {
        ct_tokenizer_context_destroy(e->contexts[i]);
        ct_ids_deinit(&e->ids[i]);
    }
    free(e->contexts);
    free(e->ids);
    ct_tokenizer_close(e->tokenizer);
    free(e);
}

const ct_tokenizer *ct_encoder_tokenizer(const ct_encoder *e) { return e->tokenizer; }

static ct_status encode(void *context, int thread, const char *text, size_t length, ct_data_ids *ids) {
    ct_encoder *e = context;
    ct_ids *list = &e->ids[thread];
    list->count = 0;
    ct_encode_options options = {.no_template = 1};
    CT_TRY(ct_tokenizer_encode(e->contexts[thread], text, length, options, list));
    int32_t *place = ct_data_ids_reserve(ids, (int64_t)list->count);
    if (list->count) memcpy(place, list->ids, list->count * sizeof *place);
    ids->count += (int64_t)list->count;
    return CT_OK;
}

ct_data_encoder ct_encoder_for_data(ct_encoder *e) {
    const ct_tokenizer_info *info = ct_tokenizer_describe(e->tokenizer);
    int bytes = !strcmp(info->kind, "byte-level BPE") || !strcmp(info->kind, "tiktoken");
    return (ct_data_encoder){.context = e,
                             .encode = encode,
                             .bos = info->bos_id,
                             .eos = info->eos_id,
                             .vocab_size = info->vocab_size,
                             .fingerprint = e->fingerprint,
                             .may_cut = bytes && strcmp(info->splitter, "general") != 0};
}

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

static uint64_t seed_of(const ct_config *config) { return config->debug.seed.has ? (uint64_t)config->debug.seed.value : 0; }

ct_status ct_setup_training_data(const ct_config *config, const ct_model *model, ct_data_encoder encoder, int64_t sequences_a_step,
                                 ct_data **out_data) {
    const ct_config_training *t = &config->training;
    ct_data_source one = {.path = t->dataset_path, .format = dataset_format(t->dataset)}, *sources = &one;
    int count = 1;
    if (t->source_count > 0) {
        count = t->source_count;
        sources = ct_calloc((size_t)count, sizeof *sources);
        for (int i = 0; i < count; i++)
            sources[i] = (ct_data_source){.path = t->sources[i].path,
                                          .format = source_format(t->sources[i].format),
                                          .weight = t->sources[i].weight};
    }
    ct_data_options options = {.encoder = encoder,
                               .sources = sources,
                               .source_count = count,
                               .seq_len = (int32_t)t->seq_len,
                               .shuffle = t->shuffle,
                               .seed = seed_of(config),
                               .documents_apart = model->shape.block_causal,
                               .ahead = (int32_t)(2 * sequences_a_step + 16)};
    ct_status status = ct_data_create(&options, out_data);
    if (sources != &one) free(sources);
    if (status) return ct_error_note(status, "training data, %s", ct_config_origin_text(config, "training.dataset"));
    return CT_OK;
}

ct_status ct_setup_validation_data(const ct_config *config, const ct_model *model, ct_data_encoder encoder, ct_data **out_data) {
    const ct_config_validation *v = &config->validation;
    ct_data_source source = {.path = v->dataset_path, .format = dataset_format(v->dataset)};
    ct_data_options options = {.encoder = encoder,
                               .sources = &source,
                               .source_count = 1,
                               .seq_len = (int32_t)v->seq_len,
                               .once = v->steps < 0,
                               .documents_apart = model->shape.block_causal,
                               .ahead = (int32_t)(2 * v->local_batch_size + 8),
                               .encoder_thread = 1};
    ct_status status = ct_data_create(&options, out_data);
    if (status) return ct_error_note(status, "validation data, %s", ct_config_origin_text(config, "validation.dataset"));
    return CT_OK;
}
