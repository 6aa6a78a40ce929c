// Ceilings kept between runs: one flat JSON object of "CPU, threads, what and unit": figure. Each write rereads the
// file, so that two programs lose at most each other's newest figure, and any fault of the file only costs a
// measurement.
#include "base/file.h"
#include "base/json.h"
#include "base/memory.h"
#include "kernels/peak.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_FILE_BYTES = 1 << 20 };

typedef struct {
    char *key;
    double value;
} figure;
typedef struct {
    figure *figures;
    int count, capacity;
} figures;

// NULL where no folder can be named.
static char *cache_path(void) {
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    if (cache && cache[0] == '/') return ct_format("%s/ctitan/peak.json", cache);
    return home && *home ? ct_format("%s/.cache/ctitan/peak.json", home) : NULL;
}

// "AMD EPYC, 26, 2": model name, family and model as the system lists them (a name alone stands for several
// generations).
static char *cpu_model(void) {
    static const char *const fields[] = {"model name", "cpu family", "model"};
    char found[3][96] = {"unknown CPU", "", ""}, line[256];
    FILE *file = fopen("/proc/cpuinfo", "r");
    while (file && fgets(line, sizeof line, file) && *line != '\n') {
        char *colon = strchr(line, ':');
        if (!colon) continue;
        size_t name = strcspn(line, "\t:");
        for (int i = 0; i < 3; i++)
            if (strlen(fields[i]) == name && !strncmp(line, fields[i], name))
                snprintf(found[i], sizeof found[i], "%.*s", (int)strcspn(colon + 1, "\n") - 1, colon + 2);
    }
    if (file) fclose(file);
    return ct_format("%s, %s, %s", found[0], found[1], found[2]);
}

static ct_status parse(ct_json *json, figures *f) {
    CT_TRY(ct_json_expect(json, CT_JSON_OBJECT));
    for (;;) {
        CT_TRY(ct_json_next(json));
        if (json->kind == CT_JSON_OBJECT_END) return CT_OK;
        char *key = ct_format("%.*s", (int)json->length, json->string);
        CT_GROW(f->figures, f->count, f->capacity);
        f->figures[f->count++] = (figure){key, 0};
        CT_TRY(ct_json_expect_double(json, &f->figures[f->count - 1].value));
    }
}

static void drop(figures *f) {
    for (int i = 0; i < f->count; i++) free(f->figures[i].key);
    free(f->figures);
    *f = (figures){0};
}

// What the file holds; nothing where it is not there or not ours.
static figures load(const char *path) {
    figures f = {0};
    char *text;
    size_t size;
    if (!path || ct_file_read(path, MAX_FILE_BYTES, &text, &size)) return f;
    ct_json json;
    ct_json_init(&json, path, 1, text, size);
    if (parse(&json, &f)) drop(&f);
    ct_json_deinit(&json);
    free(text);
    return f;
}

static void save(const char *path, const figures *f) {
    ct_string s = {0};
    for (int i = 0; i < f->count; i++) {
        ct_string_add(&s, i ? ",\n " : "{");
        ct_string_add_json(&s, f->figures[i].key);
        ct_string_add(&s, ": %.6g", f->figures[i].value);
    }
    ct_string_add(&s, "}\n");
    char *folder = ct_strdup(path);
    *strrchr(folder, '/') = 0;
    if (!ct_folder_make(folder)) (void)ct_file_write_atomic(path, s.text, s.length);
    free(folder);
    ct_string_deinit(&s);
}

static char *key_of(const char *what, int threads) {
    const char *unit = !strcmp(what, "f32") || !strcmp(what, "bf16") ? "FLOP/s" : "B/s";
    char *model = cpu_model(),
         *key = ct_format("%s, %d thread%s, %s %s", model, threads, threads == 1 ? "" : "s", what, unit);
    free(model);
    return key;
}

static double kept(const char *what, int threads) {
    char *path = cache_path(), *key = key_of(what, threads);
    figures f = load(path);
    double value = 0;
    for (int i = 0; i < f.count; i++)
        if (!strcmp(f.figures[i].key, key)) value = f.figures[i].value;
    drop(&f);
    free(key), free(path);
    return value > 0 && value < 1e18 ? value : 0;
}

static void keep(const char *what, int threads, double value) {
    char *path = cache_path(), *key = key_of(what, threads);
    figures f = load(path);
    int at = 0;
    while (at < f.count && strcmp(f.figures[at].key, key)) at++;
    if (at == f.count) {
        CT_GROW(f.figures, f.count, f.capacity);
        f.figures[f.count++] = (figure){ct_strdup(key), 0};
    }
    if (path && value > f.figures[at].value) {
        f.figures[at].value = value;
        save(path, &f);
    }
    drop(&f);
    free(key), free(path);
}

void ct_peak_keep(ct_dtype dtype, int threads, double flops_per_s) {
    keep(ct_dtype_name(dtype), threads, flops_per_s);
}

ct_status ct_peak_get(ct_dtype dtype, ct_team *team, double *out_flops_per_s) {
    CT_CHECK(dtype == CT_F32 || dtype == CT_BF16, CT_INVALID, "peaks are measured for f32 and bf16, not %s",
             ct_dtype_name(dtype));
    double value = kept(ct_dtype_name(dtype), ct_team_size(team));
    if (value == 0) {
        value = ct_peak_measure(dtype, team, 0.2);
        ct_peak_keep(dtype, ct_team_size(team), value);
    }
    *out_flops_per_s = value;
    return CT_OK;
}

ct_status ct_bandwidth_get(ct_team *team, ct_bandwidth *out_bandwidth) {
    int threads = ct_team_size(team);
    ct_bandwidth b = {kept("read", threads), kept("copy", threads), kept("triad", threads)};
    if (b.read == 0 || b.copy == 0 || b.triad == 0) {
        CT_TRY(ct_bandwidth_measure(team, 0.3, &b));
        keep("read", threads, b.read);
        keep("copy", threads, b.copy);
        keep("triad", threads, b.triad);
    }
    *out_bandwidth = b;
    return CT_OK;
}
