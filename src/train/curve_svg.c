// The curve as a picture that browsers, README files and papers take.
#include "curve_parts.h"

#include <math.h>

enum { WIDTH = 800, HEIGHT = 450, LEFT = 70, RIGHT = 20, TOP = 50, BOTTOM = 50 };

static const char training_color[] = "#1f6fb4", validation_color[] = "#d9730d";

static double x_of(const ct_curve_axis *steps, double step) {
    return LEFT + (step - steps->low) / (steps->high - steps->low) * (WIDTH - LEFT - RIGHT);
}
static double y_of(const ct_curve_axis *loss, double value) {
    return HEIGHT - BOTTOM - (value - loss->low) / (loss->high - loss->low) * (HEIGHT - TOP - BOTTOM);
}

static void add_escaped(ct_string *out, const char *text) {
    for (; *text; text++) switch (*text) {
        case '<': ct_string_add(out, "&lt;"); break;
        case '>': ct_string_add(out, "&gt;"); break;
        case '&': ct_string_add(out, "&amp;"); break;
        default: ct_string_add_bytes(out, (unsigned char)*text < 0x20 ? " " : text, 1);
        }
}

static void add_axes(const ct_curve_axis *steps, const ct_curve_axis *loss, ct_string *out) {
    for (double tick = ct_curve_first_tick(loss); tick <= loss->high + 1e-9 * loss->tick; tick += loss->tick) {
        double y = y_of(loss, tick);
        ct_string_add(out, "<line x1=\"%d\" y1=\"%.1f\" x2=\"%d\" y2=\"%.1f\" stroke=\"#dddddd\"/>\n", LEFT, y, WIDTH - RIGHT, y);
        ct_string_add(out, "<text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%.*f</text>\n", LEFT - 8, y + 4, loss->decimals, tick);
    }
    for (double tick = ct_curve_first_tick(steps); tick <= steps->high; tick += steps->tick) {
        double x = x_of(steps, tick);
        ct_string_add(out, "<line x1=\"%.1f\" y1=\"%d\" x2=\"%.1f\" y2=\"%d\" stroke=\"#333333\"/>\n", x, HEIGHT - BOTTOM, x, HEIGHT - BOTTOM + 5);
        ct_string_add(out, "<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%.0f</text>\n", x, HEIGHT - BOTTOM + 20, tick);
    }
    ct_string_add(out, "<path d=\"M%d %dV%dH%d\" fill=\"none\" stroke=\"#333333\"/>\n", LEFT, TOP, HEIGHT - BOTTOM, WIDTH - RIGHT);
    ct_string_add(out, "<text x=\"%d\" y=\"%d\" text-anchor=\"middle\">step</text>\n", (LEFT + WIDTH - RIGHT) / 2, HEIGHT - 10);
    ct_string_add(out, "<text transform=\"translate(18 %d) rotate(-90)\" text-anchor=\"middle\">loss</text>\n", (TOP + HEIGHT - BOTTOM) / 2);
}

static void add_line(const ct_curve_series *series, const char *color, const ct_curve_axis *steps, const ct_curve_axis *loss, ct_string *out) {
    ct_string_add(out, "<polyline fill=\"none\" stroke=\"%s\" stroke-width=\"1.5\" points=\"", color);
    for (int64_t i = 0; i < series->count; i++)
        ct_string_add(out, "%s%.1f,%.1f", i ? " " : "", x_of(steps, (double)series->points[i].step), y_of(loss, series->points[i].loss));
    ct_string_add(out, "\"/>\n");
}

static void add_dots(const ct_curve_series *series, const char *color, const ct_curve_axis *steps, const ct_curve_axis *loss, ct_string *out) {
    for (int64_t i = 0; i < series->count; i++)
        ct_string_add(out, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"3.5\" fill=\"%s\"/>\n", x_of(steps, (double)series->points[i].step),
                      y_of(loss, series->points[i].loss), color);
}

static void add_legend(const char *name, const ct_curve_series *series, const char *color, int row, ct_string *out) {
    int x = WIDTH - RIGHT - 190, y = TOP + 16 + 20 * row;
    ct_string_add(out, "<line x1=\"%d\" y1=\"%d\" x2=\"%d\" y2=\"%d\" stroke=\"%s\" stroke-width=\"3\"/>\n", x, y - 4, x + 24, y - 4, color);
    ct_string_add(out, "<text x=\"%d\" y=\"%d\">%s %.4f</text>\n", x + 32, y, name, series->points[series->count - 1].loss);
}

void ct_curve_draw_svg(const ct_curve *curve, const char *title, ct_string *out) {
    ct_curve_axis steps = ct_curve_axis_of_steps(curve, 8), loss = ct_curve_axis_of_loss(curve, 7);
    ct_string_add(out, "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" viewBox=\"0 0 %d %d\" font-family=\"sans-serif\" "
                       "font-size=\"13\" fill=\"#222222\">\n<title>",
                  WIDTH, HEIGHT, WIDTH, HEIGHT);
    add_escaped(out, title);
    ct_string_add(out, "</title>\n<rect width=\"%d\" height=\"%d\" fill=\"white\"/>\n<text x=\"%d\" y=\"28\" font-size=\"17\">", WIDTH, HEIGHT, LEFT);
    add_escaped(out, title);
    ct_string_add(out, "</text>\n");
    add_axes(&steps, &loss, out);
    add_line(&curve->training, training_color, &steps, &loss, out);
    add_legend("training", &curve->training, training_color, 0, out);
    if (curve->validation.count) {
        add_line(&curve->validation, validation_color, &steps, &loss, out);
        add_dots(&curve->validation, validation_color, &steps, &loss, out);
        add_legend("validation", &curve->validation, validation_color, 1, out);
    }
    ct_string_add(out, "</svg>\n");
}
