// `ctitan checkpoint list|verify|import|export`: what lies in a folder, whether it is sound, and weights from and for other programs. Tensors
// pass through one at a time, so that a model larger than memory can be converted.
#include "commands.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/memory.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/weights.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static const char help[] =
    "usage: ctitan checkpoint list FOLDER [--json]\n"
    "       ctitan checkpoint verify FOLDER [--json]\n"
    "       ctitan checkpoint import SOURCE OUT [--dtype f32|bf16] [--heads N] [--json]\n"
    "       ctitan checkpoint export CHECKPOINT OUT [--step N] [--dtype f32|bf16|f16] [--ema] [--json]\n"
    "\n"
    "list shows the checkpoints (step-N) in a folder: step, bytes, age, and whether each is whole. verify reads all of one, or of all in a\n"
    "folder, and compares every checksum; the first bad tensor is named and the exit status is 1.\n"
    "\n"
    "import makes OUT/step-0 from a Hugging Face Llama folder, a .safetensors file or llama2.c's .bin, and OUT/model.toml with its\n"
    "[model] section. export writes the model of a checkpoint (a step-N folder, or the newest whole one in a folder) as a new Hugging Face\n"
    "folder OUT: config.json and model.safetensors.\n"
    "\n"
    "  --dtype T      element type to store (import: as it is; export: f32)\n"
    "  --heads N      import without config.json: the number of attention heads\n"
    "  --step N       export: this step instead of the newest\n"
    "  --ema          export: the average of the weights (optimizer.ema_decay) instead of them\n"
    "  --progress, --no-progress   show how far it is (default: on a terminal)\n"
    "  --json         print the result as JSON\n";

typedef struct {
    const char *paths[2];
    int count, json, progress, ema;
    const char *dtype;
    int64_t heads, step;
} arguments;

// ---- arguments ----
static ct_status parse_number(const char *name, const char *text, int64_t *out) {
    char *end;
    *out = strtoll(text, &end, 10);
    CT_CHECK(*text && !*end && *out >= 0, CT_INVALID, "%s %s: wanted is a whole number", name, text);
    return CT_OK;
}

static ct_status parse_option(int argc, char **argv, int *i, arguments *a) {
    const char *name = argv[*i];
    if (!strcmp(name, "--ema")) return a->ema = 1, CT_OK;
    if (!strcmp(name, "--json")) return a->json = 1, CT_OK;
    if (!strcmp(name, "--progress")) return a->progress = 1, CT_OK;
    if (!strcmp(name, "--no-progress")) return a->progress = 0, CT_OK;
    CT_CHECK(!strcmp(name, "--dtype") || !strcmp(name, "--heads") || !strcmp(name, "--step"), CT_INVALID,
             "there is no option %s; see `ctitan checkpoint --help`", name);
    CT_CHECK(*i + 1 < argc, CT_INVALID, "%s needs a value", name);
    const char *value = argv[++*i];
    if (!strcmp(name, "--heads")) return parse_number(name, value, &a->heads);
    if (!strcmp(name, "--step")) return parse_number(name, value, &a->step);
    a->dtype = value;
    return CT_OK;
}

static ct_status parse(int argc, char **argv, arguments *a) {
    int only_paths = 0;
    for (int i = 2; i < argc; i++) {
        if (!only_paths && !strcmp(argv[i], "--")) only_paths = 1;
        else if (!only_paths && !strncmp(argv[i], "--", 2)) CT_TRY(parse_option(argc, argv, &i, a));
        else {
            CT_CHECK(a->count < 2, CT_INVALID, "%s is one path too many; see `ctitan checkpoint --help`", argv[i]);
            a->paths[a->count++] = argv[i];
        }
    }
    return CT_OK;
}

static ct_status need_paths(const arguments *a, int count, const char *what) {
    CT_CHECK(a->count == count, CT_INVALID, "checkpoint %s needs %s; see `ctitan checkpoint --help`", what,
             count == 1 ? "one folder" : "what to read and where to write");
    return CT_OK;
}

// ---- progress and warnings ----
typedef struct {
    const char *what;
    double last; // seconds
    int is_on, is_shown;
} meter;

static meter meter_of(const arguments *a, const char *what) {
    return (meter){.what = what, .is_on = a->progress > 0 || (a->progress < 0 && isatty(STDERR_FILENO))};
}

static void show_progress(void *context, size_t done, size_t total) {
    meter *m = context;
    double now = ct_now_s();
    if (!m->is_on || (m->is_shown && now - m->last < 0.2 && done < total)) return;
    m->last = now, m->is_shown = 1;
    fprintf(stderr, "\r%s: %.1f of %.1f MB", m->what, (double)done / 1e6, (double)total / 1e6);
}

static void end_progress(const meter *m) {
    if (m->is_shown) fputc('\n', stderr);
}

static void print_warning(void *context, const char *text) {
    (void)context;
    fprintf(stderr, "ctitan: warning: %s\n", text);
}

// ---- list ----
static int is_checkpoint(const char *path) {
    char *manifest = ct_format("%s/manifest.json", path);
    int is = ct_path_exists(manifest);
    free(manifest);
    return is;
}

static void print_age(double seconds, char out[32]) {
    static const struct {
        const char *unit;
        double seconds;
    } units[] = {{"d", 86400}, {"h", 3600}, {"min", 60}, {"s", 1}};
    int u = 0;
    while (u < 3 && seconds < 2 * units[u].seconds) u++;
    snprintf(out, 32, "%.0f %s", seconds / units[u].seconds, units[u].unit);
}

static void print_infos(const ct_checkpoint_info *infos, int count) {
    printf("%12s %16s %9s  %s\n", "step", "bytes", "age", "");
    for (int i = 0; i < count; i++) {
        char age[32] = "";
        if (infos[i].time_s) print_age((double)(time(NULL) - infos[i].time_s), age);
        printf("%12lld %16zu %9s  %s%s\n", (long long)infos[i].step, infos[i].bytes, age, infos[i].whole ? "whole" : "not whole: ",
               infos[i].whole ? "" : infos[i].why);
    }
}

static void dump_infos(const ct_checkpoint_info *infos, int count) {
    ct_string out = {0};
    ct_string_add(&out, "[");
    for (int i = 0; i < count; i++) {
        ct_string_add(&out, "%s{\"step\":%lld,\"path\":", i ? "," : "", (long long)infos[i].step);
        ct_string_add_json(&out, infos[i].path);
        ct_string_add(&out, ",\"bytes\":%zu,\"time\":%lld,\"age_seconds\":%lld,\"whole\":%s,\"why\":", infos[i].bytes,
                      (long long)infos[i].time_s, infos[i].time_s ? (long long)(time(NULL) - infos[i].time_s) : 0,
                      infos[i].whole ? "true" : "false");
        if (infos[i].why) ct_string_add_json(&out, infos[i].why);
        else ct_string_add(&out, "null");
        ct_string_add(&out, "}");
    }
    ct_string_add(&out, "]");
    puts(out.text);
    ct_string_deinit(&out);
}

static ct_status list(const arguments *a) {
    CT_CHECK(ct_path_is_folder(a->paths[0]), CT_NOT_FOUND, "there is no folder %s", a->paths[0]);
    ct_checkpoint_info *infos;
    int count;
    CT_TRY(ct_checkpoint_list(a->paths[0], &infos, &count));
    if (a->json) dump_infos(infos, count);
    else if (count) print_infos(infos, count);
    else printf("no checkpoint (step-N) in %s\n", a->paths[0]);
    ct_checkpoint_list_free(infos, count);
    return CT_OK;
}

// ---- verify ----
static ct_status verify_one(const arguments *a, const char *path) {
    meter m = meter_of(a, path);
    ct_status status = ct_checkpoint_verify(path, show_progress, &m);
    end_progress(&m);
    CT_TRY(status);
    if (!a->json) printf("%s: sound\n", path);
    return CT_OK;
}

// Says what is wrong with each; returns the first.
static ct_status verify_all(const arguments *a, const char *root) {
    ct_checkpoint_info *infos;
    int count, bad = 0;
    CT_TRY(ct_checkpoint_list(root, &infos, &count));
    for (int i = 0; i < count; i++) {
        ct_status status = verify_one(a, infos[i].path);
        if (status) fprintf(stderr, "ctitan checkpoint: %s\n", ct_error_text(status)), bad++;
    }
    ct_checkpoint_list_free(infos, count);
    CT_CHECK(count, CT_NOT_FOUND, "no checkpoint (step-N) in %s", root);
    CT_CHECK(!bad, CT_CORRUPT, "%d of %d checkpoints in %s are damaged", bad, count, root);
    return CT_OK;
}

static ct_status verify(const arguments *a) {
    const char *path = a->paths[0];
    CT_CHECK(ct_path_is_folder(path), CT_NOT_FOUND, "there is no folder %s", path);
    ct_status status = is_checkpoint(path) ? verify_one(a, path) : verify_all(a, path);
    if (!a->json) return status;
    ct_string out = {0};
    ct_string_add(&out, "{\"path\":");
    ct_string_add_json(&out, path);
    ct_string_add(&out, ",\"sound\":%s,\"why\":", status ? "false" : "true");
    if (status) ct_string_add_json(&out, ct_error_text(status));
    else ct_string_add(&out, "null");
    ct_string_add(&out, "}");
    puts(out.text);
    ct_string_deinit(&out);
    return status;
}

// ---- import ----
typedef struct {
    const ct_weights *weights;
    const ct_checkpoint *checkpoint; // one of the two
    const char *prefix; // of a name in the checkpoint; NULL: none
    void *buffer;
    size_t bytes;
    meter meter;
} transfer;

static ct_status fetch(void *context, const ct_named_tensor *tensor, const void **out_data) {
    transfer *t = context;
    size_t bytes = ct_named_tensor_bytes(tensor);
    if (bytes > t->bytes) {
        free(t->buffer);
        t->bytes = 0;
        t->buffer = malloc(bytes);
        CT_CHECK(t->buffer, CT_NO_MEMORY, "no memory for %s (%zu bytes)", tensor->name, bytes);
        t->bytes = bytes;
    }
    ct_named_tensor target = *tensor;
    target.data = t->buffer;
    const ct_load_options options = {.allow_unexpected = 1};
    char *name = ct_format("%s%s", t->prefix ? t->prefix : "", tensor->name);
    target.name = name;
    ct_status status = t->weights ? ct_weights_load(t->weights, &options, &target, 1) : ct_checkpoint_load(t->checkpoint, &options, &target, 1);
    free(name);
    CT_TRY(status);
    *out_data = t->buffer;
    return CT_OK;
}

static void show_transfer(void *context, size_t done, size_t total) { show_progress(&((transfer *)context)->meter, done, total); }

static ct_status write_toml(const char *root, const ct_llama_shape *shape) {
    ct_string text = {0};
    ct_llama_shape_print_toml(shape, &text);
    char *path = ct_format("%s/model.toml", root);
    ct_status status = ct_file_write_atomic(path, text.text, text.length);
    free(path);
    ct_string_deinit(&text);
    return status;
}

static char *import_state(const char *source, const ct_llama_shape *shape) {
    ct_string state = {0};
    ct_string_add(&state, "{\"source\": ");
    ct_string_add_json(&state, source);
    ct_string_add(&state, ", \"model\": ");
    ct_llama_shape_print(shape, &state);
    ct_string_add(&state, "}");
    return state.text;
}

static ct_status import_weights(const arguments *a, const ct_weights *weights, int dtype) {
    int count = ct_weights_count(weights);
    ct_named_tensor *tensors = ct_calloc((size_t)count, sizeof *tensors);
    for (int i = 0; i < count; i++) {
        tensors[i] = ct_weights_tensor(weights, i);
        if (dtype >= 0) tensors[i].dtype = (ct_dtype)dtype;
    }
    transfer t = {.weights = weights, .meter = meter_of(a, "import")};
    char *state = import_state(a->paths[0], ct_weights_shape(weights));
    ct_status status = ct_checkpoint_save(
        &(ct_save_options){.root = a->paths[1], .state_json = state, .fetch = fetch, .progress = show_transfer, .context = &t}, tensors, count);
    end_progress(&t.meter);
    free(t.buffer), free(state), free(tensors);
    if (!status) status = write_toml(a->paths[1], ct_weights_shape(weights));
    return status;
}

static void print_result(const arguments *a, const char *path, const ct_llama_shape *shape) {
    ct_string model = {0}, out = {0};
    ct_llama_shape_print(shape, &model);
    if (a->json) {
        ct_string_add(&out, "{\"path\":");
        ct_string_add_json(&out, path);
        ct_string_add(&out, ",\"model\":%s}", model.text);
    } else {
        ct_string_add(&out, "%s: %lld layers, dim %lld, %lld heads (%lld for keys and values), FFN %lld, vocabulary %lld%s", path,
                      (long long)shape->n_layers, (long long)shape->dim, (long long)shape->n_heads, (long long)shape->n_kv_heads,
                      (long long)shape->ffn_dim, (long long)shape->vocab_size, shape->tied ? ", tied head" : "");
    }
    puts(out.text);
    ct_string_deinit(&model), ct_string_deinit(&out);
}

static ct_status import(const arguments *a) {
    CT_CHECK(!a->dtype || !strcmp(a->dtype, "f32") || !strcmp(a->dtype, "bf16"), CT_INVALID, "--dtype %s: f32 or bf16", a->dtype);
    ct_llama_shape known = {.n_heads = a->heads};
    ct_weights *weights;
    CT_TRY(ct_weights_open(a->paths[0], &known, print_warning, NULL, &weights));
    ct_status status = import_weights(a, weights, !a->dtype ? -1 : !strcmp(a->dtype, "f32") ? (int)CT_F32 : (int)CT_BF16);
    if (!status) {
        char *path = ct_format("%s/step-0", a->paths[1]);
        print_result(a, path, ct_weights_shape(weights));
        if (!a->json) printf("%s/model.toml: [model] and [model.args] for it\n", a->paths[1]);
        free(path);
    }
    ct_weights_close(weights);
    return status;
}

// ---- export ----
static ct_status find_checkpoint(const arguments *a, char **out_path) {
    const char *path = a->paths[0];
    CT_CHECK(ct_path_is_folder(path), CT_NOT_FOUND, "there is no folder %s", path);
    if (is_checkpoint(path)) return *out_path = ct_strdup(path), CT_OK;
    CT_TRY(ct_checkpoint_find(path, a->step, print_warning, NULL, out_path));
    CT_CHECK(*out_path, CT_NOT_FOUND, "no whole checkpoint (step-N) in %s", path);
    return CT_OK;
}

static ct_status parse_export_dtype(const char *text, ct_export_dtype *out) {
    static const char *const names[] = {"f32", "bf16", "f16"};
    for (int i = 0; i < 3; i++)
        if (!text || !strcmp(text, names[i])) return *out = (ct_export_dtype)i, CT_OK;
    CT_FAIL(CT_INVALID, "--dtype %s: f32, bf16 or f16", text);
}

// The dtype in which a stored tensor is fetched: its own where export takes it.
static ct_dtype fetched_dtype(const ct_checkpoint *checkpoint, const char *name) {
    for (int i = 0; i < ct_checkpoint_count(checkpoint); i++)
        if (!strcmp(ct_checkpoint_tensor(checkpoint, i).name, name))
            return ct_checkpoint_tensor(checkpoint, i).dtype == CT_BF16 ? CT_BF16 : CT_F32;
    return CT_F32;
}

static int has_average(const ct_checkpoint *checkpoint) {
    for (int i = 0; i < ct_checkpoint_count(checkpoint); i++)
        if (!strncmp(ct_checkpoint_tensor(checkpoint, i).name, CT_AVERAGE_PREFIX, strlen(CT_AVERAGE_PREFIX))) return 1;
    return 0;
}

static ct_status export_checkpoint(const arguments *a, const ct_checkpoint *checkpoint) {
    ct_hf_export_options options = {.folder = a->paths[1], .fetch = fetch, .progress = show_transfer};
    ct_llama_shape shape;
    CT_TRY(parse_export_dtype(a->dtype, &options.dtype));
    CT_TRY(ct_llama_shape_from_state(checkpoint, &shape));
    CT_CHECK(!a->ema || has_average(checkpoint), CT_NOT_FOUND, "--ema: %s holds no average of the weights (optimizer.ema_decay)",
             ct_checkpoint_path(checkpoint));
    ct_arena arena = {0};
    ct_named_tensor *tensors;
    int count = ct_llama_tensors(&arena, &shape, &tensors);
    for (int i = 0; i < count; i++) tensors[i].dtype = fetched_dtype(checkpoint, tensors[i].name);
    transfer t = {.checkpoint = checkpoint, .prefix = a->ema ? CT_AVERAGE_PREFIX : NULL, .meter = meter_of(a, "export")};
    options.context = &t;
    ct_status status = ct_hf_export(&options, &shape, tensors, count);
    end_progress(&t.meter);
    free(t.buffer);
    ct_arena_deinit(&arena);
    if (!status) print_result(a, a->paths[1], &shape);
    return status;
}

static ct_status export(const arguments *a) {
    char *path;
    CT_TRY(find_checkpoint(a, &path));
    ct_checkpoint *checkpoint;
    ct_status status = ct_checkpoint_open(path, &checkpoint);
    free(path);
    CT_TRY(status);
    status = export_checkpoint(a, checkpoint);
    ct_checkpoint_close(checkpoint);
    return status;
}

int ct_cmd_checkpoint(int argc, char **argv) {
    static const struct {
        const char *name;
        ct_status (*run)(const arguments *a);
        int paths;
    } verbs[] = {{"list", list, 1}, {"verify", verify, 1}, {"import", import, 2}, {"export", export, 2}};
    for (int i = 1; i < argc; i++)
        if (!strcmp(argv[i], "--help") || !strcmp(argv[i], "-h")) return fputs(help, stdout), 0;
    if (argc < 2) return fputs(help, stderr), 2;
    arguments a = {.progress = -1, .step = -1};
    ct_status status = parse(argc, argv, &a);
    int verb = 0, is_usage = status != CT_OK;
    while (verb < 4 && strcmp(argv[1], verbs[verb].name)) verb++;
    if (!status && verb == 4) {
        status = ct_error_make(CT_INVALID, __FILE__, __LINE__, "there is no `ctitan checkpoint %s`; see `ctitan checkpoint --help`", argv[1]);
        is_usage = 1;
    }
    if (!status) status = need_paths(&a, verbs[verb].paths, argv[1]), is_usage = status != CT_OK;
    if (!status) status = verbs[verb].run(&a);
    if (!status) return ct_finish_output("checkpoint");
    fprintf(stderr, "ctitan checkpoint: %s\n", ct_error_text(status));
    return is_usage ? 2 : 1;
}
