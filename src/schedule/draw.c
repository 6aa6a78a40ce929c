// Pictures of schedules: boxes over time. Colours say the stage's place on its rank, brightness the kind.
#include "schedule/schedule.h"
#include "base/file.h"

#include <stdio.h>
#include <string.h>

static int is_compute(ct_act act) { return act == CT_ACT_F || act == CT_ACT_I || act == CT_ACT_W || act == CT_ACT_B; }

// ---- text ----
void ct_schedule_print(const ct_schedule *s, const ct_schedule_times *t, int columns, int color, ct_string *out) {
    static const char *const colors[] = {"\033[44m", "\033[42m", "\033[43m", "\033[46m"}; // F, I, W, B
    for (int r = 0; r < s->ranks; r++) {
        ct_string_add(out, "  rank %-3d ", r);
        int column = 0;
        for (int i = 0; i < s->of[r].count; i++) {
            ct_action a = s->of[r].list[i];
            if (!is_compute(a.act)) continue;
            int begin = (int)(t->of[r][i].begin_s / t->step_s * columns + 0.5), end = (int)(t->of[r][i].end_s / t->step_s * columns + 0.5);
            for (; column < begin; column++) ct_string_add(out, color ? " " : ".");
            if (end <= column) continue;
            if (color) ct_string_add(out, "%s", colors[a.act]);
            for (; column < end; column++) {
                if (color) ct_string_add(out, "%d", a.micro % 10);
                else ct_string_add(out, "%c", "FIWB"[a.act]);
            }
            if (color) ct_string_add(out, "\033[0m");
        }
        for (; column < columns; column++) ct_string_add(out, color ? " " : ".");
        ct_string_add(out, "  busy %.0f %%\n", 100 * t->busy_s[r] / t->step_s);
    }
}

// ---- SVG ----
enum { LEFT = 64, WIDTH = 1180, ROW = 30, MEMORY = 22, TOP = 44 };

typedef struct {
    const ct_schedule *s;
    ct_string *out;
    double scale; // pixels a second
} picture;

static void box_color(const ct_schedule *s, ct_action a, char out[40]) {
    static const int hues[] = {214, 150, 30, 285, 190, 60, 340, 110};
    static const int light[] = {62, 47, 74, 40}; // F, I, W, B
    int before = 0;
    for (int k = 0; k < a.stage; k++) before += s->rank_of[k] == s->rank_of[a.stage];
    snprintf(out, 40, "hsl(%d,62%%,%d%%)", hues[before % 8], light[a.act]);
}

static void draw_box(picture *p, ct_action a, ct_action_time time, double y) {
    char color[40], text[48];
    double x = LEFT + time.begin_s * p->scale, w = (time.end_s - time.begin_s) * p->scale;
    box_color(p->s, a, color);
    ct_action_print(a, text, sizeof text);
    ct_string_add(p->out, "<g><title>%s: %.3g ms from %.3g ms</title><rect x=\"%.2f\" y=\"%.1f\" width=\"%.2f\" height=\"%d\" fill=\"%s\" stroke=\"#fff\" stroke-width=\"0.5\"/>",
                  text, 1e3 * (time.end_s - time.begin_s), 1e3 * time.begin_s, x, y, w, ROW - 4, color);
    if (w > 11)
        ct_string_add(p->out, "<text x=\"%.2f\" y=\"%.1f\" text-anchor=\"middle\" fill=\"%s\">%d</text>", x + w / 2, y + ROW / 2 + 2,
                      a.act == CT_ACT_W || a.act == CT_ACT_F ? "#111" : "#fff", a.micro);
    ct_string_add(p->out, "</g>\n");
}

// How many micro-batches a rank has something of, over time, as steps.
static void draw_memory(picture *p, int rank, const ct_schedule_times *t, double y) {
    const ct_actions *list = &p->s->of[rank];
    int most = 1, now = 0;
    for (int i = 0; i < list->count; i++) {
        now += (list->list[i].act == CT_ACT_F) - (list->list[i].act == CT_ACT_W || list->list[i].act == CT_ACT_B);
        if (now > most) most = now;
    }
    double bottom = y + MEMORY - 4, unit = (MEMORY - 6) / (double)most;
    ct_string_add(p->out, "<path d=\"M%d %.1f", LEFT, bottom);
    now = 0;
    for (int i = 0; i < list->count; i++) {
        int change = (list->list[i].act == CT_ACT_F) - (list->list[i].act == CT_ACT_W || list->list[i].act == CT_ACT_B);
        if (!change) continue;
        double x = LEFT + (change > 0 ? t->of[rank][i].begin_s : t->of[rank][i].end_s) * p->scale;
        ct_string_add(p->out, " H%.1f V%.1f", x, bottom - (now + change) * unit);
        now += change;
    }
    ct_string_add(p->out, " H%.1f V%.1f Z\" fill=\"#c9ced6\"/><text x=\"%d\" y=\"%.1f\" text-anchor=\"end\" fill=\"#667\">%d saved</text>\n",
                  LEFT + t->step_s * p->scale, bottom, LEFT - 6, bottom, most);
}

static double draw_ranks(picture *p, const ct_schedule_times *t, const char *title, double y) {
    ct_string_add(p->out, "<text x=\"%d\" y=\"%.1f\" font-weight=\"bold\">%s: %.4g ms, bubble %.1f %%</text>\n", LEFT, y, title, 1e3 * t->step_s,
                  100 * ct_schedule_bubble(t));
    y += 10;
    for (int r = 0; r < p->s->ranks; r++) {
        ct_string_add(p->out, "<rect x=\"%d\" y=\"%.1f\" width=\"%.1f\" height=\"%d\" fill=\"#f3f4f6\"/><text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">rank %d</text>\n", LEFT,
                      y, t->step_s * p->scale, ROW - 4, LEFT - 6, y + ROW / 2 + 2, r);
        for (int i = 0; i < p->s->of[r].count; i++)
            if (is_compute(p->s->of[r].list[i].act)) draw_box(p, p->s->of[r].list[i], t->of[r][i], y);
        draw_memory(p, r, t, y + ROW - 2);
        y += ROW + MEMORY;
    }
    return y + 16;
}

void ct_schedule_draw_svg(const ct_schedule *s, const ct_schedule_times *t, const ct_schedule_times *measured, ct_string *out) {
    double longest = measured && measured->step_s > t->step_s ? measured->step_s : t->step_s;
    int height = TOP + (s->ranks * (ROW + MEMORY) + 26) * (measured ? 2 : 1) + 24;
    picture p = {s, out, (WIDTH - LEFT - 16) / longest};
    ct_string_add(out, "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" font-family=\"sans-serif\" font-size=\"11\">\n"
                       "<rect width=\"%d\" height=\"%d\" fill=\"#fff\"/>\n<text x=\"%d\" y=\"18\" font-size=\"15\" font-weight=\"bold\">%s: %d stages on %d ranks, %d micro-batches</text>\n",
                  WIDTH, height, WIDTH, height, LEFT, s->name, s->stages, s->ranks, s->micros);
    double y = draw_ranks(&p, t, "predicted", TOP);
    if (measured) y = draw_ranks(&p, measured, "measured", y);
    ct_string_add(out, "<text x=\"%d\" y=\"%.1f\" fill=\"#667\">light: forward; dark: input gradient, and whole backward; pale: weight gradients; a hue for each of a rank's stages; numbers are micro-batches</text>\n</svg>\n",
                  LEFT, y);
}

// ---- traces ----
static void trace_process(const ct_schedule *s, const ct_schedule_times *t, int process, const char *name, ct_string *out) {
    ct_string_add(out, ",\n{\"name\": \"process_name\", \"ph\": \"M\", \"pid\": %d, \"args\": {\"name\": \"%s\"}}", process, name);
    for (int r = 0; r < s->ranks; r++) {
        ct_string_add(out, ",\n{\"name\": \"thread_name\", \"ph\": \"M\", \"pid\": %d, \"tid\": %d, \"args\": {\"name\": \"rank %d\"}}", process, r, r);
        for (int i = 0; i < s->of[r].count; i++) {
            ct_action a = s->of[r].list[i];
            char text[48];
            if (!is_compute(a.act)) continue;
            ct_action_print(a, text, sizeof text);
            ct_string_add(out, ",\n{\"name\": \"%s\", \"ph\": \"X\", \"pid\": %d, \"tid\": %d, \"ts\": %.3f, \"dur\": %.3f, \"args\": {\"stage\": %d, \"micro\": %d}}", text, process, r,
                          1e6 * t->of[r][i].begin_s, 1e6 * (t->of[r][i].end_s - t->of[r][i].begin_s), a.stage, a.micro);
        }
    }
}

void ct_schedule_draw_trace(const ct_schedule *s, const ct_schedule_times *t, const ct_schedule_times *measured, ct_string *out) {
    ct_string_add(out, "{\"traceEvents\": [{\"name\": \"schedule\", \"ph\": \"M\", \"pid\": 0, \"args\": {\"name\": \"%s\"}}", s->name);
    trace_process(s, t, 1, "predicted", out);
    if (measured) trace_process(s, measured, 2, "measured", out);
    ct_string_add(out, "\n]}\n");
}

ct_status ct_schedule_draw_file(const char *path, ct_schedule_draw *draw, const ct_schedule *s, const ct_schedule_times *t, const ct_schedule_times *measured) {
    ct_string text = {0};
    if (!path) return CT_OK;
    draw(s, t, measured, &text);
    ct_status status = ct_file_write_atomic(path, text.text, text.length);
    ct_string_deinit(&text);
    return status;
}
