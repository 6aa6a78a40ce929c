// The curve in characters: braille letters give a cell two by four dots; where the locale has none, a cell is one asterisk. Validations are
// marks that stand in front of the line.
#include "curve_parts.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/ioctl.h>
#include <unistd.h>

typedef struct {
    int cols, rows, dots_x, dots_y; // cells, and dots in a cell
    unsigned char *bits;            // [rows][cols] braille dots, or 1 in ASCII
    char *marks;                    // [rows][cols] 1: a validation
} canvas;

static void set_dot(canvas *c, int x, int y) {
    static const unsigned char braille[4][2] = {{0x01, 0x08}, {0x02, 0x10}, {0x04, 0x20}, {0x40, 0x80}};
    int cell = y / c->dots_y * c->cols + x / c->dots_x;
    c->bits[cell] |= c->dots_x == 1 ? 1 : braille[y % 4][x % 2];
}

static int dot_at(double value, double low, double high, int dots) {
    int dot = (int)((value - low) / (high - low) * (dots - 1) + 0.5);
    return dot < 0 ? 0 : dot >= dots ? dots - 1 : dot;
}

static int dot_x(const canvas *c, const ct_curve_axis *a, double step) { return dot_at(step, a->low, a->high, c->cols * c->dots_x); }
static int dot_y(const canvas *c, const ct_curve_axis *a, double loss) {
    return c->rows * c->dots_y - 1 - dot_at(loss, a->low, a->high, c->rows * c->dots_y);
}

static void set_line(canvas *c, int x0, int y0, int x1, int y1) {
    int n = abs(x1 - x0) > abs(y1 - y0) ? abs(x1 - x0) : abs(y1 - y0);
    for (int i = 0; i <= n; i++) {
        double t = n ? (double)i / n : 0;
        set_dot(c, (int)(x0 + t * (x1 - x0) + 0.5), (int)(y0 + t * (y1 - y0) + 0.5));
    }
}

static void plot(canvas *c, const ct_curve *curve, const ct_curve_axis *steps, const ct_curve_axis *loss) {
    const ct_curve_series *t = &curve->training, *v = &curve->validation;
    int x0 = 0, y0 = 0;
    for (int64_t i = 0; i < t->count; i++) {
        int x = dot_x(c, steps, (double)t->points[i].step), y = dot_y(c, loss, t->points[i].loss);
        set_line(c, i ? x0 : x, i ? y0 : y, x, y);
        x0 = x, y0 = y;
    }
    for (int64_t i = 0; i < v->count; i++) {
        int x = dot_x(c, steps, (double)v->points[i].step), y = dot_y(c, loss, v->points[i].loss);
        c->marks[y / c->dots_y * c->cols + x / c->dots_x] = 1;
    }
}

// ---- text ----
typedef struct {
    const char *train_on, *mark_on, *off, *mark, *sample, *side, *side_tick, *corner, *bottom, *bottom_tick;
} style;

static style style_of(ct_curve_options o) {
    style s = {"", "", "", "o", "***", "|", "+", "+", "-", "+"};
    if (!o.ascii) s.mark = "●", s.sample = "⠤⠤⠤", s.side = "│", s.side_tick = "┤", s.corner = "└", s.bottom = "─", s.bottom_tick = "┬";
    if (o.color) s.train_on = "\033[32m", s.mark_on = "\033[33m", s.off = "\033[0m";
    return s;
}

static void add_cell(const canvas *c, const style *s, int cell, ct_string *out) {
    unsigned char bits = c->bits[cell];
    char letter[4] = {(char)0xe2, (char)(0xa0 | bits >> 6), (char)(0x80 | (bits & 0x3f)), 0};
    if (c->marks[cell]) ct_string_add(out, "%s%s%s", s->mark_on, s->mark, s->off);
    else if (!bits) ct_string_add(out, " ");
    else ct_string_add(out, "%s%s%s", s->train_on, c->dots_x == 1 ? "*" : letter, s->off);
}

static void add_head(const ct_curve *curve, const style *s, int width, ct_string *out) {
    const ct_curve_series *t = &curve->training, *v = &curve->validation;
    const char *gap = width < 50 ? "\n" : "   ";
    ct_string_add(out, "loss   %s%s%s training %.3f", s->train_on, s->sample, s->off, t->points[t->count - 1].loss);
    if (v->count) ct_string_add(out, "%s%s%s%s validation %.3f", gap, s->mark_on, s->mark, s->off, v->points[v->count - 1].loss);
    ct_string_add(out, "\n");
}

static void add_rows(const canvas *c, const ct_curve_axis *loss, int label, const style *s, ct_string *out) {
    for (int row = 0; row < c->rows; row++) {
        char text[32] = "";
        for (double tick = ct_curve_first_tick(loss); tick <= loss->high + 1e-9 * loss->tick; tick += loss->tick)
            if (dot_y(c, loss, tick) / c->dots_y == row) snprintf(text, sizeof text, "%.*f", loss->decimals, tick);
        ct_string_add(out, "%*s %s", label, text, text[0] ? s->side_tick : s->side);
        int end = c->cols;
        while (end > 0 && !c->bits[row * c->cols + end - 1] && !c->marks[row * c->cols + end - 1]) end--;
        for (int col = 0; col < end; col++) add_cell(c, s, row * c->cols + col, out);
        ct_string_add(out, "\n");
    }
}

// The line of the steps' ticks, and their numbers below it, each where it doesn't run into the one before.
static void add_bottom(const canvas *c, const ct_curve_axis *steps, int label, const style *s, ct_string *out) {
    char *numbers = ct_malloc((size_t)c->cols + 32), *ticks = ct_calloc((size_t)c->cols, 1);
    memset(numbers, ' ', (size_t)c->cols + 32);
    int free_from = 0;
    for (double tick = ct_curve_first_tick(steps); tick <= steps->high; tick += steps->tick) {
        char text[32];
        int n = snprintf(text, sizeof text, "%.0f", tick), col = dot_x(c, steps, tick) / c->dots_x, at = col - (n - 1) / 2;
        if (at < 0) at = 0;
        if (at < free_from || at + n > c->cols + 1) continue;
        memcpy(numbers + at, text, (size_t)n);
        ticks[col] = 1;
        free_from = at + n + 1;
    }
    ct_string_add(out, "%*s %s", label, "", s->corner);
    for (int col = 0; col < c->cols; col++) ct_string_add(out, "%s", ticks[col] ? s->bottom_tick : s->bottom);
    ct_string_add(out, "\n%*s  %.*s step\n", label, "", free_from > 0 ? free_from - 1 : 0, numbers);
    free(numbers);
    free(ticks);
}

static int label_width(const ct_curve_axis *loss) {
    int high = snprintf(NULL, 0, "%.*f", loss->decimals, loss->high), low = snprintf(NULL, 0, "%.*f", loss->decimals, loss->low);
    return high > low ? high : low;
}

void ct_curve_draw(const ct_curve *curve, ct_curve_options o, ct_string *out) {
    int width = o.width > 0 ? o.width : 70, height = o.height > 0 ? o.height : 16;
    int head = curve->validation.count && width < 50 ? 2 : 1;
    canvas c = {.rows = height > head + 5 ? height - head - 2 : 3, .dots_x = o.ascii ? 1 : 2, .dots_y = o.ascii ? 1 : 4};
    ct_curve_axis loss = ct_curve_axis_of_loss(curve, c.rows / 2 < 6 ? c.rows / 2 : 6);
    int label = label_width(&loss);
    c.cols = width - label - 8 > 10 ? width - label - 8 : 10; // 8: around the axis, and " step" behind the last number
    ct_curve_axis steps = ct_curve_axis_of_steps(curve, c.cols / 10);
    c.bits = ct_calloc((size_t)(c.rows * c.cols), 1);
    c.marks = ct_calloc((size_t)(c.rows * c.cols), 1);
    plot(&c, curve, &steps, &loss);
    style s = style_of(o);
    add_head(curve, &s, width, out);
    add_rows(&c, &loss, label, &s, out);
    add_bottom(&c, &steps, label, &s, out);
    free(c.bits);
    free(c.marks);
}

// ---- what fits standard output ----
static int locale_is_utf8(void) {
    static const char *const names[] = {"LC_ALL", "LC_CTYPE", "LANG"};
    for (int i = 0; i < 3; i++) {
        const char *value = getenv(names[i]);
        if (!value || !*value) continue;
        const char *set = strchr(value, '.');
        return set && (!strncasecmp(set + 1, "utf-8", 5) || !strncasecmp(set + 1, "utf8", 4));
    }
    return 0;
}

ct_curve_options ct_curve_options_for_stdout(void) {
    struct winsize size = {0};
    ct_curve_options o = {.width = 70, .height = 16, .ascii = !locale_is_utf8(), .color = isatty(STDOUT_FILENO)};
    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col >= 20) o.width = size.ws_col < 100 ? size.ws_col : 100;
    return o;
}
