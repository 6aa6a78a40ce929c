// The loss curve of a run, for people: read back from metrics.jsonl, drawn with characters or as an SVG picture.
#pragma once
#include "base/memory.h"
#include "base/status.h"

typedef struct {
    int64_t step;
    double loss;
    double seconds;           // training: mean time of a step since the point before; validation: time of the whole
    double tokens_per_second; // training only, as the rest; 0 where the line has none
    double mfu;
    int64_t tokens_seen;
} ct_curve_point;

typedef struct {
    ct_curve_point *points; // ascending in step
    int64_t count, capacity;
} ct_curve_series;

typedef struct {
    ct_curve_series training, validation;
    int64_t lines_bad; // neither a step nor a validation, and not an end cut off
} ct_curve;

// Reads a metrics.jsonl, or the one in a dump folder. Runs may follow one another in the file: a line of step s takes the place of all
// that was said before about s and later steps. A last line that is cut off is passed over, so is a line that can't be read, which is
// counted. Caller deinits, also after an error. CT_INVALID: no line of a step in the file.
ct_status ct_curve_read(const char *path, ct_curve *out_curve);
void ct_curve_deinit(ct_curve *curve);

// What a curve comes to. Medians and time are over its logged steps.
typedef struct {
    int64_t steps, logged;   // the last step; how many lines there are
    int64_t tokens_seen;
    double loss_last, loss_best;
    int64_t loss_best_step;
    double validation_last, validation_best; // NAN where there was no validation
    int64_t validation_best_step;
    double tokens_per_second, mfu; // medians
    double training_s, validation_s;
} ct_curve_summary;
ct_curve_summary ct_curve_summarise(const ct_curve *curve);
void ct_curve_print_summary(const ct_curve *curve, ct_string *out);
void ct_curve_dump_summary(const ct_curve *curve, ct_string *out); // JSON

typedef struct {
    int width, height; // characters, all included; 0: 70 and 16
    int ascii;         // 1: no character beyond ASCII; else braille dots
    int color;         // 1: with terminal colours
} ct_curve_options;

// The options that fit standard output: its width (70 where it is no terminal, 100 at the most), ASCII unless the locale says UTF-8.
ct_curve_options ct_curve_options_for_stdout(void);

// Draws the chart: the training loss as a line, validations as marks on it. Ends with a line feed.
void ct_curve_draw(const ct_curve *curve, ct_curve_options options, ct_string *out);

// Draws the picture: an SVG document of 800 × 450.
void ct_curve_draw_svg(const ct_curve *curve, const char *title, ct_string *out);
