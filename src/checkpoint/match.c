// Both lists by name; every misfit is counted and the first few are named.
#include "match.h"
#include "base/memory.h"
#include "safetensors_header.h"

#include <stdlib.h>
#include <string.h>

enum { NAMED = 5 };

typedef struct {
    ct_string text;
    int count;
} misfits;

typedef struct {
    const char *name;
    int index;
} by_name_entry;

static int name_order(const void *a, const void *b) {
    return strcmp(((const by_name_entry *)a)->name, ((const by_name_entry *)b)->name);
}

static void add(misfits *list, const char *name) {
    if (list->count++ < NAMED) ct_string_add(&list->text, "%s%.120s", list->count > 1 ? ", " : "", name);
}

static void report(ct_string *out, misfits *list, const char *what) {
    if (!list->count) return;
    ct_string_add(out, "%s %d %s (%s", out->length ? ";" : "", list->count, what, list->text.text);
    if (list->count > NAMED) ct_string_add(out, ", …");
    ct_string_add(out, ")");
}

static int is_ignored(const char *name, const ct_load_options *options) {
    if (options->allow_unexpected) return 1;
    if (options->is_elsewhere && options->is_elsewhere(options->elsewhere, name)) return 1;
    for (int i = 0; i < options->ignored_count; i++)
        if (!strncmp(name, options->ignored_prefixes[i], strlen(options->ignored_prefixes[i]))) return 1;
    return 0;
}

// May the tensor be missing? `stored` is sorted by name.
static int may_be_missing(const char *name, const by_name_entry *stored, int count, const ct_load_options *options) {
    const char *prefix = NULL;
    if (options->allow_missing) return 1;
    for (int i = 0; i < options->optional_count && !prefix; i++)
        if (!strncmp(name, options->optional_prefixes[i], strlen(options->optional_prefixes[i]))) prefix = options->optional_prefixes[i];
    if (!prefix) return 0;
    for (int i = 0; i < count; i++)
        if (!strncmp(stored[i].name, prefix, strlen(prefix))) return 0;
    return 1;
}

static int has_shape(const ct_named_tensor *stored, const ct_named_tensor *wanted) {
    return stored->dims == wanted->dims && !memcmp(stored->shape, wanted->shape, sizeof(int64_t) * (size_t)wanted->dims);
}

static void add_shape(misfits *list, const ct_named_tensor *stored, const ct_named_tensor *wanted) {
    char a[CT_SHAPE_TEXT], b[CT_SHAPE_TEXT];
    char *text = ct_format("%.120s: %s stored, %s wanted", wanted->name, ct_shape_text(stored->shape, stored->dims, a),
                           ct_shape_text(wanted->shape, wanted->dims, b));
    if (list->count++ < NAMED) ct_string_add(&list->text, "%s%s", list->count > 1 ? ", " : "", text);
    free(text);
}

ct_status ct_tensors_match(const char *where, const ct_named_tensor *stored, int stored_count, const ct_named_tensor *wanted,
                           int wanted_count, const ct_load_options *options, int *out_stored) {
    by_name_entry *order = ct_calloc((size_t)stored_count, sizeof *order);
    char *asked = ct_calloc((size_t)stored_count, 1);
    misfits missing = {0}, unexpected = {0}, shapes = {0};
    ct_string text = {0};
    for (int i = 0; i < stored_count; i++) order[i] = (by_name_entry){stored[i].name, i};
    qsort(order, (size_t)stored_count, sizeof *order, name_order);
    for (int i = 0; i < wanted_count; i++) {
        by_name_entry key = {wanted[i].name, 0}, *found = bsearch(&key, order, (size_t)stored_count, sizeof *order, name_order);
        out_stored[i] = found ? found->index : -1;
        if (found) asked[found->index] = 1;
        if (!found && !may_be_missing(wanted[i].name, order, stored_count, options)) add(&missing, wanted[i].name);
        if (found && !has_shape(&stored[found->index], &wanted[i])) add_shape(&shapes, &stored[found->index], &wanted[i]);
    }
    for (int i = 0; i < stored_count; i++)
        if (!asked[i] && !is_ignored(stored[i].name, options)) add(&unexpected, stored[i].name);
    report(&text, &missing, "missing");
    report(&text, &unexpected, "not asked for");
    report(&text, &shapes, "of another shape");
    ct_status status = CT_OK;
    if (text.length) status = ct_error_make(CT_INVALID, __FILE__, __LINE__, "%s does not fit:%s", where, text.text);
    ct_string_deinit(&text), ct_string_deinit(&missing.text), ct_string_deinit(&unexpected.text), ct_string_deinit(&shapes.text);
    free(order), free(asked);
    return status;
}
