// All keys in one order, found by name, and what is near to a name that is none.
#include "keys.h"

#include <stdlib.h>
#include <string.h>

static const config_keys *const pieces[] = {&config_keys_job,      &config_keys_model,       &config_keys_optimizer,
                                            &config_keys_training, &config_keys_parallelism, &config_keys_checkpoint,
                                            &config_keys_memory,   &config_keys_quantize,    &config_keys_rest};
enum { PIECES = sizeof pieces / sizeof *pieces };

static const config_section sections[] = {
    {"job", "The run as a whole."},
    {"profiling", "Traces of steps and of memory."},
    {"metrics", "Progress lines, metrics.jsonl, TensorBoard events."},
    {"model", "What is trained."},
    {"model.args", "Fields of the model that override the flavour's; each is the flavour's where unset."},
    {"model.args.rope_scaling_args", "Llama 3.1's stretching of rotary wavelengths, by torchtitan's names."},
    {"optimizer", "How a gradient becomes a step."},
    {"lr_scheduler", "The learning rate over the steps: warm-up, constant, decay."},
    {"training", "Data, batches, precision, length."},
    {"training.dataloader", "Settings of torch's data loader."},
    {"validation", "Loss on text that is not trained on."},
    {"validation.dataloader", "Settings of torch's data loader."},
    {"parallelism", "The mesh of ranks."},
    {"checkpoint", "Saving, resuming, beginning from given weights."},
    {"activation_checkpoint", "Recomputing activations instead of keeping them."},
    {"compile", "torch.compile."},
    {"memory_estimation", "torchtitan's memory estimate."},
    {"quantize.linear.float8", "float8 products."},
    {"quantize.linear.mx", "MX products."},
    {"quantize.grouped_mm.float8", "float8 products of experts."},
    {"quantize.grouped_mm.mx", "MX products of experts."},
    {"comm", "Communication between ranks."},
    {"fault_tolerance", "Replicas that may come and go."},
    {"experimental", "torchtitan's hooks for Python modules."},
    {"plugins", "Ops, models and data sources of your own."},
    {"debug", "Seed and checks."},
    {NULL, NULL},
};

const config_section *config_sections(void) { return sections; }

int config_key_count(void) {
    int count = 0;
    for (int i = 0; i < PIECES; i++) count += pieces[i]->count;
    return count;
}

const config_key *config_key_at(int index) {
    int piece = 0;
    while (index >= pieces[piece]->count) index -= pieces[piece++]->count;
    return &pieces[piece]->keys[index];
}

static bool equals(const char *name, const char *text, size_t bytes) {
    return strlen(name) == bytes && !memcmp(name, text, bytes);
}

int config_key_find(const char *section, size_t section_bytes, const char *name, size_t name_bytes) {
    for (int i = 0, count = config_key_count(); i < count; i++) {
        const config_key *key = config_key_at(i);
        if (equals(key->name, name, name_bytes) && equals(key->section, section, section_bytes)) return i;
    }
    return -1;
}

bool config_is_section(const char *name, size_t bytes) {
    for (const config_section *s = sections; s->name; s++)
        if (!strncmp(s->name, name, bytes) && (s->name[bytes] == 0 || s->name[bytes] == '.')) return true;
    return false;
}

// ---- what is near ----
enum { NAME_MAX_BYTES = 64, NEAREST = 3 };

// Edits (a character added, dropped, changed, or two swapped) that make a into b (Damerau–Levenshtein, adjacent
// swaps).
static int edit_distance(const char *a, const char *b) {
    int n = (int)strlen(a), m = (int)strlen(b);
    if (n > NAME_MAX_BYTES || m > NAME_MAX_BYTES) return NAME_MAX_BYTES;
    int d[NAME_MAX_BYTES + 1][NAME_MAX_BYTES + 1];
    for (int i = 0; i <= n; i++) {
        for (int j = 0; j <= m; j++) {
            if (i == 0 || j == 0) {
                d[i][j] = i + j;
                continue;
            }
            int change = d[i - 1][j - 1] + (a[i - 1] != b[j - 1]), drop = d[i - 1][j] + 1, add = d[i][j - 1] + 1;
            d[i][j] = change < drop ? change : drop;
            if (add < d[i][j]) d[i][j] = add;
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] && d[i - 2][j - 2] + 1 < d[i][j])
                d[i][j] = d[i - 2][j - 2] + 1;
        }
    }
    return d[n][m];
}

// Are the letters of `part` all in `whole`, in order, the first one first?
static bool is_abbreviation(const char *part, const char *whole) {
    if (*part != *whole) return false;
    for (; *part; part++, whole++) {
        while (*whole && *whole != *part) whole++;
        if (!*whole) return false;
    }
    return true;
}

// How far a known name is from a given one; NAME_MAX_BYTES where they have nothing to do with each other. Up to a
// third of the letters may be wrong; part of a longer name ("batch_size"), an abbreviation ("seq_len") and another
// ending ("profiler") are near too.
static int name_distance(const char *given, const char *known) {
    int distance = edit_distance(given, known), letters = (int)strlen(given);
    if (distance <= (letters < 6 ? 2 : letters / 3)) return distance;
    if (letters >= 4 && (strstr(known, given) || is_abbreviation(given, known))) return 8 + distance;
    if (strlen(known) >= 4 && is_abbreviation(known, given)) return 8 + distance;
    int same = 0;
    while (given[same] && given[same] == known[same]) same++;
    if (same >= 5 && 2 * same >= letters && 2 * same >= (int)strlen(known)) return 8 + distance;
    return NAME_MAX_BYTES;
}

typedef struct {
    int distance;
    const char *section, *name;
} candidate;

static void keep_nearest(candidate nearest[NEAREST], candidate c) {
    if (c.distance >= NAME_MAX_BYTES) return;
    for (int i = 0; i < NEAREST; i++) {
        if (nearest[i].distance <= c.distance) continue;
        candidate moved = nearest[i];
        nearest[i] = c, c = moved;
    }
}

// The same name in another section counts as one edit, so that it comes first where nothing is nearer; one that is
// nearly the same as four or more.
static void find_nearest_keys(const char *section, const char *name, candidate nearest[NEAREST]) {
    for (int i = 0, count = config_key_count(); i < count; i++) {
        const config_key *key = config_key_at(i);
        int distance = name_distance(name, key->name);
        bool elsewhere = strcmp(section, key->section) != 0;
        if (elsewhere && distance > 1) continue;
        if (elsewhere) distance += distance ? 3 : 1;
        keep_nearest(nearest, (candidate){distance, key->section, key->name});
    }
}

static void find_nearest_sections(const char *section, candidate nearest[NEAREST]) {
    for (const config_section *s = sections; s->name; s++)
        keep_nearest(nearest, (candidate){name_distance(section, s->name), s->name, NULL});
}

void config_add_nearest(const char *section, const char *name, ct_string *out) {
    candidate nearest[NEAREST];
    for (int i = 0; i < NEAREST; i++) nearest[i] = (candidate){NAME_MAX_BYTES, NULL, NULL};
    if (name)
        find_nearest_keys(section, name, nearest);
    else
        find_nearest_sections(section, nearest);
    for (int i = 0; i < NEAREST && nearest[i].section && nearest[i].distance <= nearest[0].distance + 2; i++) {
        ct_string_add(out, i ? " or " : "; is it ");
        if (name)
            ct_string_add(out, "%s.%s", nearest[i].section, nearest[i].name);
        else
            ct_string_add(out, "[%s]", nearest[i].section);
    }
    ct_string_add(out, nearest[0].section ? "?" : "; `ctitan config` lists all");
}
