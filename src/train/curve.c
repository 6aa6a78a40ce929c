// A run's losses read back from the lines that it wrote. Lines are judged one by one, for a file may end in the middle of one, hold
// several runs, and be written to while it is read. Left out: curves of several runs side by side.
#include "curve_parts.h"
#include "base/file.h"
#include "base/json.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

// ---- reading ----
typedef struct {
    int64_t step, tokens_seen;
    double loss, validation_loss, seconds, tokens_per_second, mfu;
} line_values;

static ct_status read_member(ct_json *json, line_values *v) {
    static const struct {
        const char *name;
        size_t offset;
    } numbers[] = {{"loss", offsetof(line_values, loss)},
                   {"validation_loss", offsetof(line_values, validation_loss)},
                   {"seconds", offsetof(line_values, seconds)},
                   {"tokens_per_second", offsetof(line_values, tokens_per_second)},
                   {"mfu", offsetof(line_values, mfu)}};
    if (ct_json_is(json, "step")) return ct_json_expect_integer(json, &v->step);
    if (ct_json_is(json, "tokens_seen")) return ct_json_expect_integer(json, &v->tokens_seen);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        if (ct_json_is(json, numbers[i].name)) return ct_json_expect_double(json, (double *)((char *)v + numbers[i].offset));
    return ct_json_skip(json);
}

static ct_status read_object(ct_json *json, line_values *v) {
    CT_TRY(ct_json_expect(json, CT_JSON_OBJECT));
    for (;;) {
        CT_TRY(ct_json_next(json));
        if (json->kind == CT_JSON_OBJECT_END) return ct_json_expect(json, CT_JSON_END);
        CT_TRY(read_member(json, v));
    }
}

// 1 where the line says a loss of a step.
static int read_line(ct_json *json, const char *text, size_t length, line_values *v) {
    *v = (line_values){.step = -1, .loss = NAN, .validation_loss = NAN};
    ct_json_reset(json, 1, text, length);
    return !read_object(json, v) && v->step >= 0 && (isfinite(v->loss) || isfinite(v->validation_loss));
}

// A line whose beginning a killed run left there, and which the next run went on with: what counts is its last object.
static int read_line_end(ct_json *json, const char *text, size_t length, line_values *v) {
    for (size_t i = length; i-- > 1;)
        if (text[i] == '{') return read_line(json, text + i, length - i, v);
    return 0;
}

static void drop_from(ct_curve_series *series, int64_t step) {
    while (series->count && series->points[series->count - 1].step >= step) series->count--;
}

static void add_line(ct_curve *curve, const line_values *v) {
    ct_curve_point point = {v->step, v->loss, v->seconds, v->tokens_per_second, v->mfu, v->tokens_seen};
    int is_validation = isfinite(v->validation_loss);
    if (is_validation) point.loss = v->validation_loss;
    ct_curve_series *series = is_validation ? &curve->validation : &curve->training;
    drop_from(&curve->validation, v->step);
    drop_from(&curve->training, is_validation ? v->step + 1 : v->step); // a validation follows the line of its step
    CT_GROW(series->points, series->count, series->capacity);
    series->points[series->count++] = point;
}

static void read_lines(ct_json *json, const char *text, size_t size, ct_curve *curve) {
    for (size_t at = 0, length; at < size; at += length + 1) {
        const char *line = text + at, *end = memchr(line, '\n', size - at);
        length = end ? (size_t)(end - line) : size - at;
        line_values v;
        if (length == 0) continue;
        if (read_line(json, line, length, &v) || (end && read_line_end(json, line, length, &v))) add_line(curve, &v);
        else curve->lines_bad += end != NULL;
    }
}

ct_status ct_curve_read(const char *path, ct_curve *out_curve) {
    *out_curve = (ct_curve){0};
    char *file = ct_path_is_folder(path) ? ct_format("%s/metrics.jsonl", path) : ct_strdup(path), *text = NULL;
    size_t size = 0;
    ct_status status = ct_file_read(file, 0, &text, &size);
    if (!status) {
        ct_json json;
        ct_json_init(&json, file, 1, text, size);
        read_lines(&json, text, size, out_curve);
        ct_json_deinit(&json);
        if (!out_curve->training.count)
            status = ct_error_make(CT_INVALID, __FILE__, __LINE__, "%s: %zu bytes without one whole line of a training step", file, size);
    }
    free(text);
    free(file);
    return status;
}

void ct_curve_deinit(ct_curve *curve) {
    free(curve->training.points);
    free(curve->validation.points);
    *curve = (ct_curve){0};
}

// ---- axes ----
static void widen(const ct_curve_series *series, double *low, double *high) {
    for (int64_t i = 0; i < series->count; i++) {
        *low = fmin(*low, series->points[i].loss);
        *high = fmax(*high, series->points[i].loss);
    }
}

static ct_curve_axis axis_of(double low, double high, int ticks, double least) {
    ct_curve_axis axis = {.low = low, .high = high};
    double rough = fmax((high - low) / (ticks > 1 ? ticks : 1), least), power = pow(10, floor(log10(rough)));
    axis.tick = 10 * power;
    if (5 * power >= rough) axis.tick = 5 * power;
    if (2 * power >= rough) axis.tick = 2 * power;
    if (power >= rough) axis.tick = power;
    axis.decimals = (int)fmin(9, fmax(0, -floor(log10(axis.tick) + 1e-9)));
    return axis;
}

ct_curve_axis ct_curve_axis_of_loss(const ct_curve *curve, int ticks) {
    double low = INFINITY, high = -INFINITY;
    widen(&curve->training, &low, &high);
    widen(&curve->validation, &low, &high);
    double least = 1e-6 * fmax(1, fabs(high)); // what a float's rounding might be is no slope
    if (high - low < least) low -= least, high += least;
    return axis_of(low, high, ticks, least / 1000);
}

ct_curve_axis ct_curve_axis_of_steps(const ct_curve *curve, int ticks) {
    const ct_curve_series *t = &curve->training, *v = &curve->validation;
    double low = (double)t->points[0].step, high = (double)t->points[t->count - 1].step;
    if (v->count) low = fmin(low, (double)v->points[0].step), high = fmax(high, (double)v->points[v->count - 1].step);
    return axis_of(low, fmax(high, low + 1), ticks, 1);
}

double ct_curve_first_tick(const ct_curve_axis *axis) { return ceil(axis->low / axis->tick - 1e-9) * axis->tick + 0.0; } // no -0

// ---- summary ----
static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return x > y ? 1 : x < y ? -1 : 0;
}

static double median(double *values, int64_t n) {
    qsort(values, (size_t)n, sizeof *values, ascending);
    return n % 2 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}

static const ct_curve_point *best(const ct_curve_series *series) {
    const ct_curve_point *least = series->points;
    for (int64_t i = 1; i < series->count; i++)
        if (series->points[i].loss < least->loss) least = &series->points[i];
    return least;
}

ct_curve_summary ct_curve_summarise(const ct_curve *curve) {
    const ct_curve_series *t = &curve->training, *v = &curve->validation;
    const ct_curve_point *last = &t->points[t->count - 1];
    ct_curve_summary s = {.steps = last->step, .logged = t->count, .tokens_seen = last->tokens_seen, .loss_last = last->loss,
                          .loss_best = best(t)->loss, .loss_best_step = best(t)->step, .validation_last = NAN, .validation_best = NAN};
    double *speeds = ct_malloc(sizeof(double) * (size_t)t->count), *mfus = ct_malloc(sizeof(double) * (size_t)t->count);
    for (int64_t i = 0; i < t->count; i++) {
        speeds[i] = t->points[i].tokens_per_second, mfus[i] = t->points[i].mfu;
        s.training_s += t->points[i].seconds * (double)(t->points[i].step - (i ? t->points[i - 1].step : 0));
    }
    s.tokens_per_second = median(speeds, t->count), s.mfu = median(mfus, t->count);
    free(speeds);
    free(mfus);
    for (int64_t i = 0; i < v->count; i++) s.validation_s += v->points[i].seconds;
    if (v->count) {
        s.validation_last = v->points[v->count - 1].loss;
        s.validation_best = best(v)->loss, s.validation_best_step = best(v)->step;
    }
    return s;
}

static void add_duration(ct_string *out, double s) {
    if (s < 60) ct_string_add(out, "%.1f s", s);
    else if (s < 3600) ct_string_add(out, "%d min %02d s", (int)s / 60, (int)s % 60);
    else ct_string_add(out, "%.0f h %02d min", floor(s / 3600), (int)fmod(s / 60, 60));
}

void ct_curve_print_summary(const ct_curve *curve, ct_string *out) {
    ct_curve_summary s = ct_curve_summarise(curve);
    ct_string_add(out, "steps        %lld, %lld of them logged; %lld tokens\n", (long long)s.steps, (long long)s.logged, (long long)s.tokens_seen);
    ct_string_add(out, "loss         %.5f at the end, %.5f at best (step %lld)\n", s.loss_last, s.loss_best, (long long)s.loss_best_step);
    if (curve->validation.count)
        ct_string_add(out, "validation   %.5f at the end, %.5f at best (step %lld), perplexity %.2f\n", s.validation_last, s.validation_best,
                      (long long)s.validation_best_step, exp(s.validation_best));
    ct_string_add(out, "speed        %.0f tokens/s, MFU %.1f%% (medians)\ntime         ", s.tokens_per_second, 100 * s.mfu);
    add_duration(out, s.training_s);
    if (curve->validation.count) ct_string_add(out, ", validation "), add_duration(out, s.validation_s);
    ct_string_add(out, "\n");
    if (curve->lines_bad) ct_string_add(out, "not readable %lld lines\n", (long long)curve->lines_bad);
}

void ct_curve_dump_summary(const ct_curve *curve, ct_string *out) {
    ct_curve_summary s = ct_curve_summarise(curve);
    ct_string_add(out, "{\"steps\": %lld, \"logged\": %lld, \"tokens_seen\": %lld, \"loss\": %.9g, \"loss_best\": %.9g, \"loss_best_step\": %lld",
                  (long long)s.steps, (long long)s.logged, (long long)s.tokens_seen, s.loss_last, s.loss_best, (long long)s.loss_best_step);
    if (curve->validation.count)
        ct_string_add(out, ", \"validation_loss\": %.9g, \"validation_loss_best\": %.9g, \"validation_loss_best_step\": %lld", s.validation_last,
                      s.validation_best, (long long)s.validation_best_step);
    ct_string_add(out, ", \"tokens_per_second\": %.6g, \"mfu\": %.6g, \"training_seconds\": %.6g, \"validation_seconds\": %.6g, \"lines_bad\": %lld}\n",
                  s.tokens_per_second, s.mfu, s.training_s, s.validation_s, (long long)curve->lines_bad);
}
