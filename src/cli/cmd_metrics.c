// `ctitan metrics`: a run's summary and loss curve, from the metrics.jsonl that it wrote (or is writing).
#include "commands.h"
#include "base/file.h"
#include "train/curve.h"

#include <stdio.h>
#include <string.h>

static const char help[] =
    "usage: ctitan metrics FOLDER|FILE [--json] [--svg FILE] [--ascii]\n\n"
    "Sums a run up (steps, losses, speed, time) and draws its loss curve. FOLDER is a run's job.dump_folder, FILE a metrics.jsonl.\n"
    "Where a resumed run did steps again, its lines count. May be called while the run goes on.\n\n"
    "  --json       the summary as JSON, no chart\n"
    "  --svg FILE   also draw the curve as a picture\n"
    "  --ascii      draw with ASCII characters, whatever the locale\n";

typedef struct {
    const char *path, *svg;
    int json, ascii;
} arguments;

// 0: wrong usage, said.
static int parse(int argc, char **argv, arguments *a) {
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--json")) a->json = 1;
        else if (!strcmp(argv[i], "--ascii")) a->ascii = 1;
        else if (!strcmp(argv[i], "--svg") && i + 1 < argc) a->svg = argv[++i];
        else if (strncmp(argv[i], "--", 2) && !a->path) a->path = argv[i];
        else return fprintf(stderr, "ctitan metrics: what is %s? See `ctitan metrics --help`\n", argv[i]), 0;
    }
    return a->path ? 1 : (fputs(help, stderr), 0);
}

static ct_status write_svg(const ct_curve *curve, const arguments *a) {
    ct_string picture = {0};
    ct_curve_draw_svg(curve, a->path, &picture);
    ct_status status = ct_file_write_atomic(a->svg, picture.text, picture.length);
    ct_string_deinit(&picture);
    return status;
}

static void show(const ct_curve *curve, const arguments *a) {
    ct_string text = {0};
    ct_curve_options options = ct_curve_options_for_stdout();
    options.ascii |= a->ascii;
    if (a->json) {
        ct_curve_dump_summary(curve, &text);
    } else {
        ct_curve_print_summary(curve, &text);
        ct_string_add(&text, "\n");
        ct_curve_draw(curve, options, &text);
    }
    fputs(text.text, stdout);
    ct_string_deinit(&text);
}

int ct_cmd_metrics(int argc, char **argv) {
    for (int i = 1; i < argc; i++)
        if (!strcmp(argv[i], "--help") || !strcmp(argv[i], "-h")) return fputs(help, stdout), 0;
    arguments a = {0};
    if (!parse(argc, argv, &a)) return 2;
    ct_curve curve;
    ct_status status = ct_curve_read(a.path, &curve);
    if (!status && a.svg) status = write_svg(&curve, &a);
    if (!status) show(&curve, &a);
    ct_curve_deinit(&curve);
    if (status) return fprintf(stderr, "ctitan metrics: %s\n", ct_error_text(status)), 1;
    return ct_finish_output("metrics");
}
