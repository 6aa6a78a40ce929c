// A Llama's sizes as a struct, as JSON, as TOML, and as the list of tensors that they imply. One table serves printing and parsing.
#include "checkpoint/weights.h"
#include "llama.h"
#include "pull.h"

#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef enum { INTEGER, REAL, FLAG } kind;

// Names are those of [model.args].
static const struct {
    const char *name;
    kind kind;
    size_t offset;
} fields[] = {
    {"dim", INTEGER, offsetof(ct_llama_shape, dim)},
    {"n_layers", INTEGER, offsetof(ct_llama_shape, n_layers)},
    {"n_heads", INTEGER, offsetof(ct_llama_shape, n_heads)},
    {"n_kv_heads", INTEGER, offsetof(ct_llama_shape, n_kv_heads)},
    {"hidden_dim", INTEGER, offsetof(ct_llama_shape, ffn_dim)},
    {"vocab_size", INTEGER, offsetof(ct_llama_shape, vocab_size)},
    {"max_seq_len", INTEGER, offsetof(ct_llama_shape, max_seq_len)},
    {"norm_eps", REAL, offsetof(ct_llama_shape, norm_eps)},
    {"rope_theta", REAL, offsetof(ct_llama_shape, rope_theta)},
    {"rope_scaling_factor", REAL, offsetof(ct_llama_shape, rope_scaling_factor)},
    {"rope_low_freq_factor", REAL, offsetof(ct_llama_shape, rope_low_freq_factor)},
    {"rope_high_freq_factor", REAL, offsetof(ct_llama_shape, rope_high_freq_factor)},
    {"rope_original_max_seq_len", INTEGER, offsetof(ct_llama_shape, rope_original_max_seq_len)},
    {"enable_weight_tying", FLAG, offsetof(ct_llama_shape, tied)},
};
enum { FIELDS = sizeof fields / sizeof *fields };

static const void *place(const ct_llama_shape *shape, int field) { return (const char *)shape + fields[field].offset; }

void ct_print_real(double value, ct_string *out_text) {
    char text[40];
    for (int digits = 6; digits <= 17; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, value);
        if (strtod(text, NULL) == value) break;
    }
    ct_string_add(out_text, "%s%s", text, strpbrk(text, ".en") ? "" : ".0");
}

static void print_value(const ct_llama_shape *shape, int field, ct_string *out) {
    const void *value = place(shape, field);
    if (fields[field].kind == INTEGER) ct_string_add(out, "%lld", (long long)*(const int64_t *)value);
    else if (fields[field].kind == REAL) ct_print_real(*(const double *)value, out);
    else ct_string_add(out, "%s", *(const int *)value ? "true" : "false");
}

void ct_llama_shape_print(const ct_llama_shape *shape, ct_string *out_text) {
    for (int i = 0; i < FIELDS; i++) {
        ct_string_add(out_text, "%s\"%s\": ", i ? ", " : "{", fields[i].name);
        print_value(shape, i, out_text);
    }
    ct_string_add(out_text, "}");
}

static int is_set(const ct_llama_shape *shape, int field) {
    if (fields[field].kind == INTEGER) return *(const int64_t *)place(shape, field) != 0;
    if (fields[field].kind == REAL) return *(const double *)place(shape, field) != 0;
    return *(const int *)place(shape, field) != 0;
}

// The name of a field that torchtitan keeps in rope_scaling_args; NULL for all others.
static const char *in_scaling(int field) {
    static const char *const names[][2] = {{"rope_scaling_factor", "scaling_factor"},
                                           {"rope_low_freq_factor", "low_freq_factor"},
                                           {"rope_high_freq_factor", "high_freq_factor"},
                                           {"rope_original_max_seq_len", "original_max_position_embeddings"}};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (!strcmp(fields[field].name, names[i][0])) return names[i][1];
    return NULL;
}

static void print_toml_line(const ct_llama_shape *shape, int field, const char *name, ct_string *out) {
    ct_string_add(out, "%s = ", name);
    print_value(shape, field, out);
    ct_string_add(out, "\n");
}

void ct_llama_shape_print_toml(const ct_llama_shape *shape, ct_string *out_text) {
    ct_string_add(out_text, "[model]\nname = \"llama3\"\nflavor = \"debugmodel\"  # every size is given below\n\n[model.args]\n");
    for (int i = 0; i < FIELDS; i++)
        if (is_set(shape, i) && !in_scaling(i)) print_toml_line(shape, i, fields[i].name, out_text);
    ct_string_add(out_text, "\n[model.args.rope_scaling_args]\n");
    if (shape->rope_scaling_factor == 0) ct_string_add(out_text, "scaling_factor = 1.0  # none\n");
    for (int i = 0; i < FIELDS; i++)
        if (is_set(shape, i) && in_scaling(i)) print_toml_line(shape, i, in_scaling(i), out_text);
}

// ---- parsing ----
static ct_status shape_member(void *context, ct_pull *pull, const char *key, size_t key_bytes) {
    (void)key_bytes;
    for (int i = 0; i < FIELDS; i++) {
        if (strcmp(key, fields[i].name)) continue;
        void *value = (char *)context + fields[i].offset;
        return fields[i].kind == INTEGER ? ct_pull_int(pull, value)
               : fields[i].kind == REAL  ? ct_pull_number(pull, value)
                                         : ct_pull_bool(pull, value);
    }
    return ct_pull_skip(pull, NULL, NULL);
}

ct_status ct_llama_shape_parse(const char *where, const char *json, ct_llama_shape *out_shape) {
    ct_arena arena = {0};
    ct_pull pull;
    ct_pull_init(&pull, where, json, strlen(json), &arena);
    ct_llama_shape shape = {0};
    ct_status status = ct_pull_object(&pull, shape_member, &shape);
    if (!status) status = ct_pull_end(&pull);
    if (!status) status = ct_llama_shape_check(where, &shape);
    if (!status) *out_shape = shape;
    ct_pull_deinit(&pull);
    ct_arena_deinit(&arena);
    return status;
}

typedef struct {
    ct_llama_shape shape;
    int found;
} state_reader;

static ct_status state_member(void *context, ct_pull *pull, const char *key, size_t key_bytes) {
    (void)key_bytes;
    state_reader *r = context;
    if (strcmp(key, "model") || ct_pull_peek(pull) != '{') return ct_pull_skip(pull, NULL, NULL);
    r->found = 1;
    return ct_pull_object(pull, shape_member, &r->shape);
}

ct_status ct_llama_shape_from_state(const ct_checkpoint *checkpoint, ct_llama_shape *out_shape) {
    const char *json = ct_checkpoint_state(checkpoint), *path = ct_checkpoint_path(checkpoint);
    ct_arena arena = {0};
    ct_pull pull;
    ct_pull_init(&pull, path, json, strlen(json), &arena);
    state_reader r = {0};
    ct_status status = ct_pull_object(&pull, state_member, &r);
    ct_pull_deinit(&pull);
    ct_arena_deinit(&arena);
    CT_TRY_AS(status, "reading the state of %s", path);
    CT_CHECK(r.found, CT_NOT_FOUND, "%s does not say the model's shape: its state has no \"model\"", path);
    CT_TRY(ct_llama_shape_check(path, &r.shape));
    *out_shape = r.shape;
    return CT_OK;
}

// ---- sense ----
ct_status ct_llama_shape_check(const char *where, const ct_llama_shape *s) {
    const int64_t most = INT64_C(1) << 31;
    CT_CHECK(s->dim > 0 && s->dim < most && s->n_layers > 0 && s->n_layers <= 100000 && s->ffn_dim > 0 && s->ffn_dim < most &&
                 s->vocab_size > 0 && s->vocab_size < most && s->n_heads > 0 && s->n_kv_heads > 0,
             CT_INVALID, "%s: not the sizes of a Llama: dim %lld, layers %lld, heads %lld, KV heads %lld, FFN %lld, vocabulary %lld", where,
             (long long)s->dim, (long long)s->n_layers, (long long)s->n_heads, (long long)s->n_kv_heads, (long long)s->ffn_dim,
             (long long)s->vocab_size);
    CT_CHECK(s->dim % s->n_heads == 0 && s->dim / s->n_heads % 2 == 0 && s->n_heads % s->n_kv_heads == 0, CT_INVALID,
             "%s: %lld heads and %lld KV heads do not divide dim %lld into even parts", where, (long long)s->n_heads,
             (long long)s->n_kv_heads, (long long)s->dim);
    return CT_OK;
}

// ---- tensors ----
static const struct {
    const char *name, *hf_name; // %d: the layer
    char rows, columns;         // see extent_of; columns 0: a vector
    int is_rotary;
} table[] = {
    {"tok_embeddings.weight", "model.embed_tokens.weight", 'v', 'd', 0},
    {"layers.%d.attention.wq.weight", "model.layers.%d.self_attn.q_proj.weight", 'd', 'd', 1},
    {"layers.%d.attention.wk.weight", "model.layers.%d.self_attn.k_proj.weight", 'k', 'd', 1},
    {"layers.%d.attention.wv.weight", "model.layers.%d.self_attn.v_proj.weight", 'k', 'd', 0},
    {"layers.%d.attention.wo.weight", "model.layers.%d.self_attn.o_proj.weight", 'd', 'd', 0},
    {"layers.%d.feed_forward.w1.weight", "model.layers.%d.mlp.gate_proj.weight", 'f', 'd', 0},
    {"layers.%d.feed_forward.w2.weight", "model.layers.%d.mlp.down_proj.weight", 'd', 'f', 0},
    {"layers.%d.feed_forward.w3.weight", "model.layers.%d.mlp.up_proj.weight", 'f', 'd', 0},
    {"layers.%d.attention_norm.weight", "model.layers.%d.input_layernorm.weight", 'd', 0, 0},
    {"layers.%d.ffn_norm.weight", "model.layers.%d.post_attention_layernorm.weight", 'd', 0, 0},
    {"norm.weight", "model.norm.weight", 'd', 0, 0},
    {"output.weight", "lm_head.weight", 'v', 'd', 0},
};
enum { TABLE = sizeof table / sizeof *table, FIRST_OF_LAYER = 1, PER_LAYER = 9 };

static int64_t extent_of(const ct_llama_shape *s, char which) {
    return which == 'v' ? s->vocab_size : which == 'f' ? s->ffn_dim : which == 'k' ? s->n_kv_heads * (s->dim / s->n_heads) : s->dim;
}

// "%d" in a name of the table, replaced.
static char *with_layer(ct_arena *arena, const char *name, int64_t layer) {
    const char *hole = strstr(name, "%d");
    if (!hole) return ct_arena_strdup(arena, name);
    return ct_arena_format(arena, "%.*s%lld%s", (int)(hole - name), name, (long long)layer, hole + 2);
}

static ct_llama_tensor make_tensor(ct_arena *arena, const ct_llama_shape *s, int row, int64_t layer) {
    ct_llama_tensor t = {.tensor = {.name = with_layer(arena, table[row].name, layer), .dims = table[row].columns ? 2 : 1}};
    t.hf_name = with_layer(arena, table[row].hf_name, layer);
    t.tensor.shape[0] = extent_of(s, table[row].rows);
    if (table[row].columns) t.tensor.shape[1] = extent_of(s, table[row].columns);
    t.head_rows = table[row].is_rotary ? s->dim / s->n_heads : 0;
    return t;
}

int ct_llama_hf_tensors(ct_arena *arena, const ct_llama_shape *shape, ct_llama_tensor **out_tensors) {
    int count = 0;
    ct_llama_tensor *all = CT_ARENA_ARRAY(arena, ct_llama_tensor, PER_LAYER * shape->n_layers + TABLE - PER_LAYER);
    all[count++] = make_tensor(arena, shape, 0, 0);
    for (int64_t layer = 0; layer < shape->n_layers; layer++)
        for (int row = 0; row < PER_LAYER; row++) all[count++] = make_tensor(arena, shape, FIRST_OF_LAYER + row, layer);
    for (int row = FIRST_OF_LAYER + PER_LAYER; row < TABLE - shape->tied; row++) all[count++] = make_tensor(arena, shape, row, 0);
    *out_tensors = all;
    return count;
}

int ct_llama_tensors(ct_arena *arena, const ct_llama_shape *shape, ct_named_tensor **out_tensors) {
    ct_llama_tensor *all;
    int count = ct_llama_hf_tensors(arena, shape, &all);
    ct_named_tensor *tensors = CT_ARENA_ARRAY(arena, ct_named_tensor, count);
    for (int i = 0; i < count; i++) tensors[i] = all[i].tensor;
    *out_tensors = tensors;
    return count;
}
