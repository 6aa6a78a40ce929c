// The table of models, and what is the same for all: counting parameters and FLOPs.
#include "models/model.h"

#include <string.h>

extern const ct_model_kind ct_model_llama3;
const ct_model_kind *const ct_model_kinds[] = {&ct_model_llama3, NULL};

// Plugins' kinds.
enum { MOST_ADDED = 64 };
static const ct_model_kind *added[MOST_ADDED];
static int added_count;

static const ct_model_kind *kind_at(int i) {
    int built_in = (int)(sizeof ct_model_kinds / sizeof *ct_model_kinds) - 1;
    return i < built_in ? ct_model_kinds[i] : i < built_in + added_count ? added[i - built_in] : NULL;
}

ct_status ct_model_kinds_add(const ct_model_kind *kind) {
    CT_CHECK(added_count < MOST_ADDED, CT_INVALID, "more than %d models of plugins", MOST_ADDED);
    for (int i = 0; kind_at(i); i++) CT_CHECK(strcmp(kind_at(i)->name, kind->name), CT_INVALID, "there is a model %s already", kind->name);
    added[added_count++] = kind;
    return CT_OK;
}

ct_status ct_model_open(ct_arena *arena, const char *name, const char *flavor, const ct_model_override *overrides, int count,
                        ct_model *out_model) {
    ct_string known = {0};
    for (int i = 0; kind_at(i); i++) {
        if (!strcmp(kind_at(i)->name, name)) {
            ct_string_deinit(&known);
            return kind_at(i)->open(kind_at(i), arena, flavor, overrides, count, out_model);
        }
        ct_string_add(&known, "%s%s", i ? ", " : "", kind_at(i)->name);
    }
    ct_status status = ct_error_make(CT_UNSUPPORTED, __FILE__, __LINE__, "model.name = \"%s\": the models there are: %s",
                                     name, known.text);
    ct_string_deinit(&known);
    return status;
}

int64_t ct_model_parameters(const ct_model *model) {
    int64_t n = 0;
    for (int i = 0; i < model->parameters_count; i++) n += ct_type_elems(&model->parameters[i].type);
    return n;
}

double ct_model_step_flops(const ct_model *model, double tokens, double seq_len) {
    const ct_model_shape *s = &model->shape;
    double looked_up = s->tied ? 0 : (double)s->vocab_size * (double)s->dim;
    double multiplied = (double)ct_model_parameters(model) - looked_up;
    double attention = 6.0 * (double)s->n_layers * (double)s->n_heads * (double)s->head_dim * seq_len;
    return (6.0 * multiplied + attention) * tokens;
}

ct_status ct_model_build(const ct_model *model, ct_graph *graph, ct_build_options options) {
    model->kind->build(model, graph, options);
    return ct_graph_status(graph);
}
