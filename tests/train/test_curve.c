// The loss curve: what is read from whole, cut-off and twice-written files, and what is drawn of it.
#include "case.h"
#include "base/file.h"
#include "train/curve.h"

#include <math.h>
#include <sys/wait.h>
#include <unistd.h>

typedef struct {
    char folder[32], path[64];
    ct_curve curve;
} fixture;

static ct_status read_text(fixture *f, const char *text, size_t size) {
    strcpy(f->folder, "/tmp/ctitan-curve-XXXXXX");
    assert_non_null(mkdtemp(f->folder));
    snprintf(f->path, sizeof f->path, "%s/metrics.jsonl", f->folder);
    assert_ok(ct_file_write_atomic(f->path, text, size));
    return ct_curve_read(f->folder, &f->curve);
}

static void open_text(fixture *f, const char *text) { assert_ok(read_text(f, text, strlen(text))); }

static void close_text(fixture *f) {
    ct_curve_deinit(&f->curve);
    assert_ok(ct_folder_remove(f->folder));
}

#define STEP(s, loss) "{\"step\": " #s ", \"loss\": " #loss ", \"grad_norm\": 1, \"tokens_per_second\": 100" #s ", \"mfu\": 0.25, \"seconds\": 0.5, \"tokens_seen\": 1" #s "}\n"
#define VALID(s, loss) "{\"step\": " #s ", \"validation_loss\": " #loss ", \"validation_tokens\": 10, \"seconds\": 0.125}\n"

static void assert_points(const ct_curve_series *series, int count, const int64_t *steps, const double *losses) {
    assert_int_equal(series->count, count);
    for (int i = 0; i < count; i++) {
        assert_int_equal(series->points[i].step, steps[i]);
        assert_true(series->points[i].loss == losses[i]);
    }
}

static void steps_and_validations_are_read(void **state) {
    (void)state;
    fixture f;
    open_text(&f, STEP(1, 8.5) VALID(1, 8.25) "\n" STEP(10, 6) STEP(20, 4.5) VALID(20, 5));
    assert_points(&f.curve.training, 3, (int64_t[]){1, 10, 20}, (double[]){8.5, 6, 4.5});
    assert_points(&f.curve.validation, 2, (int64_t[]){1, 20}, (double[]){8.25, 5});
    assert_int_equal(f.curve.lines_bad, 0);
    ct_curve_deinit(&f.curve);
    assert_ok(ct_curve_read(f.path, &f.curve)); // by the file's name too
    assert_int_equal(f.curve.training.count, 3);
    close_text(&f);
}

static void every_cut_of_the_last_line_leaves_the_lines_before(void **state) {
    (void)state;
    const char whole[] = STEP(1, 8.5) STEP(10, 6) VALID(10, 5);
    size_t first = strlen(STEP(1, 8.5)), second = first + strlen(STEP(10, 6));
    for (size_t size = first; size <= strlen(whole); size++) {
        fixture f;
        assert_ok(read_text(&f, whole, size));
        assert_int_equal(f.curve.training.count, size >= second - 1 ? 2 : 1);
        assert_int_equal(f.curve.validation.count, size >= strlen(whole) - 1);
        assert_int_equal(f.curve.lines_bad, 0);
        close_text(&f);
    }
}

static void a_resumed_runs_lines_take_the_place_of_those_before(void **state) {
    (void)state;
    fixture f; // killed after step 30; went on from a checkpoint of step 15, and validated at other steps
    open_text(&f, STEP(1, 9) STEP(10, 8) VALID(10, 8.5) STEP(20, 7) VALID(20, 7.5) STEP(30, 6) VALID(30, 6.5) STEP(20, 7.125) STEP(25, 6.75) VALID(25, 7));
    assert_points(&f.curve.training, 4, (int64_t[]){1, 10, 20, 25}, (double[]){9, 8, 7.125, 6.75});
    assert_points(&f.curve.validation, 2, (int64_t[]){10, 25}, (double[]){8.5, 7});
    close_text(&f);
    open_text(&f, STEP(1, 9) STEP(10, 8) STEP(20, 7) VALID(15, 7.5) STEP(20, 7.25)); // resumed at 12, validated before it logged
    assert_points(&f.curve.training, 3, (int64_t[]){1, 10, 20}, (double[]){9, 8, 7.25});
    assert_points(&f.curve.validation, 1, (int64_t[]){15}, (double[]){7.5});
    close_text(&f);
}

static void a_run_that_went_on_in_a_cut_off_line_loses_only_that(void **state) {
    (void)state;
    fixture f;
    open_text(&f, STEP(1, 9) "{\"step\": 10, \"lo" STEP(10, 8) "what is this\n{\"step\": 11, \"loss\": \"a\"}\n" STEP(20, 7));
    assert_points(&f.curve.training, 3, (int64_t[]){1, 10, 20}, (double[]){9, 8, 7});
    assert_int_equal(f.curve.lines_bad, 2);
    close_text(&f);
}

static void files_without_a_step_are_errors_that_name_them(void **state) {
    (void)state;
    static const char *const texts[] = {"", "\n\n", "no json\n", "[1, 2]\n", "{\"step\": 1}\n", "{\"step\": -3, \"loss\": 1}\n",
                                        "{\"step\": 1, \"loss\": 1e999}\n", "{\"step\": 1, \"validation_loss\": 2}\n", "{\"step\": 1, \"lo"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        fixture f;
        ct_status status = read_text(&f, texts[i], strlen(texts[i]));
        assert_non_null(status);
        assert_non_null(strstr(ct_error_text(status), f.path));
        close_text(&f);
    }
    ct_curve curve;
    assert_non_null(ct_curve_read("/no/such/folder", &curve));
    ct_curve_deinit(&curve);
}

static void the_summary_is_what_hand_calculation_gives(void **state) {
    (void)state;
    fixture f;
    open_text(&f, STEP(1, 8.5) VALID(1, 8.25) STEP(10, 4) STEP(20, 4.5) VALID(20, 5) STEP(30, 4.25));
    ct_curve_summary s = ct_curve_summarise(&f.curve);
    assert_int_equal(s.steps, 30);
    assert_int_equal(s.logged, 4);
    assert_int_equal(s.tokens_seen, 130);
    assert_true(s.loss_last == 4.25 && s.loss_best == 4 && s.loss_best_step == 10);
    assert_true(s.validation_last == 5 && s.validation_best == 5 && s.validation_best_step == 20);
    assert_true(s.tokens_per_second == (10010 + 10020) / 2.0); // of 1001, 10010, 10020, 10030
    assert_true(s.mfu == 0.25 && s.training_s == 15 && s.validation_s == 0.25);
    close_text(&f);
}

// ---- drawings ----
static int count_char(const char *text, char what) {
    int n = 0;
    for (; *text; text++) n += *text == what;
    return n;
}

static int is_ascii(const char *text) {
    for (; *text; text++)
        if ((unsigned char)*text >= 0x80) return 0;
    return 1;
}

// Characters of the longest line, a UTF-8 sequence being one.
static int text_width(const char *text) {
    int width = 0, now = 0;
    for (; *text; text++) {
        if (*text == '\n') now = 0;
        else now += ((unsigned char)*text & 0xc0) != 0x80;
        if (now > width) width = now;
    }
    return width;
}

static void a_falling_line_falls_from_the_left_top_to_the_right_bottom(void **state) {
    (void)state;
    fixture f;
    ct_string out = {0};
    open_text(&f, STEP(0, 10) VALID(5, 10) STEP(10, 0));
    ct_curve_draw(&f.curve, (ct_curve_options){.width = 40, .height = 15, .ascii = 1}, &out);
    assert_true(is_ascii(out.text));
    assert_int_equal(count_char(out.text, '\n'), 15);
    assert_true(text_width(out.text) <= 40);
    char *line = strchr(strchr(out.text, '\n') + 1, '\n') + 1, *first = line, *last = line;
    int before = -1;
    for (int row = 0; row < 11; row++, line = strchr(line, '\n') + 1) {
        last = line;
        char *end = strchr(line, '\n'), *star = memchr(line, '*', (size_t)(end - line));
        assert_non_null(star);
        assert_true((int)(star - line) > before);
        before = (int)(star - line);
    }
    assert_int_equal(strncmp(first, "10 +*", 5), 0);
    assert_int_equal(strncmp(last, " 0 +", 4), 0);
    assert_non_null(memchr(first, 'o', (size_t)(strchr(first, '\n') - first))); // the validation of 10 is in the top row
    out.length = 0;
    ct_curve_draw(&f.curve, (ct_curve_options){0}, &out);
    assert_false(is_ascii(out.text));
    assert_int_equal(count_char(out.text, '\n'), 16);
    assert_true(text_width(out.text) <= 70);
    ct_string_deinit(&out);
    close_text(&f);
}

static void awkward_curves_are_drawn(void **state) {
    (void)state;
    static const char *const texts[] = {STEP(1, 8.5), STEP(1, 0) STEP(2, 0), STEP(1, 1e300) STEP(9223372036854775807, -1e300),
                                        STEP(5, 1e-300) STEP(6, 2e-300) VALID(6, 1), VALID(3, 2) STEP(7, 123456.789) STEP(8, 123456.788)};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        for (int size = 0; size < 6; size++) {
            fixture f;
            ct_string out = {0};
            open_text(&f, texts[i]);
            ct_curve_draw(&f.curve, (ct_curve_options){.width = 1 + 20 * size, .height = 1 + 8 * size, .ascii = size % 2}, &out);
            ct_curve_draw_svg(&f.curve, "a & <b>", &out);
            assert_null(strstr(out.text, "nan"));
            assert_non_null(strstr(out.text, "a &amp; &lt;b&gt;"));
            ct_string_deinit(&out);
            close_text(&f);
        }
}

static void the_picture_has_a_point_for_each_loss(void **state) {
    (void)state;
    fixture f;
    ct_string out = {0};
    open_text(&f, STEP(0, 10) STEP(50, 5) VALID(50, 5) STEP(100, 0) VALID(100, 2.5));
    ct_curve_draw_svg(&f.curve, "a run", &out);
    assert_non_null(strstr(out.text, "points=\"70.0,50.0 425.0,225.0 780.0,400.0\"")); // corners and middle of the drawing's field
    assert_non_null(strstr(out.text, "points=\"425.0,225.0 780.0,312.5\""));
    assert_non_null(strstr(out.text, "<circle cx=\"780.0\" cy=\"312.5\""));
    assert_non_null(strstr(out.text, ">training 0.0000<"));
    assert_non_null(strstr(out.text, ">validation 2.5000<"));
    ct_string_deinit(&out);
    close_text(&f);
}

static void the_end_of_a_run_leaves_its_picture(void **state) {
    (void)state;
    titan_case c;
    int stopped;
    const char *o[] = {"--training.steps", "3", NULL};
    case_open(&c, "base", o, NULL);
    assert_ok(ct_trainer_run(c.trainer, &stopped));
    char *path = ct_format("%s/loss.svg", c.dump), *text;
    size_t size;
    assert_ok(ct_file_read(path, 0, &text, &size));
    assert_non_null(strstr(text, "</svg>"));
    free(text);
    free(path);
    case_close(&c, 0);
}

// Runs the program with the arguments; its exit status, and the beginning of what it printed.
static int run_metrics(const char *arguments, char *out, size_t size) {
    char *command = ct_format("%s metrics %s 2>&1", getenv("CT_BINARY"), arguments);
    FILE *pipe = popen(command, "r");
    assert_non_null(pipe);
    size_t n = fread(out, 1, size - 1, pipe);
    while (fgetc(pipe) != EOF) {}
    out[n] = 0;
    free(command);
    return WEXITSTATUS(pclose(pipe));
}

static void the_command_shows_sums_up_and_says_what_is_wrong(void **state) {
    (void)state;
    if (!getenv("CT_BINARY")) skip();
    fixture f;
    char out[4096], *arguments;
    open_text(&f, STEP(1, 8.5) STEP(10, 4.5) VALID(10, 5));
    assert_int_equal(run_metrics(f.path, out, sizeof out), 0);
    assert_non_null(strstr(out, "10, 2 of them logged"));
    assert_non_null(strstr(out, "validation 5.000"));
    arguments = ct_format("%s --json --svg %s/picture.svg", f.folder, f.folder);
    assert_int_equal(run_metrics(arguments, out, sizeof out), 0);
    assert_ptr_equal(strstr(out, "{\"steps\": 10, \"logged\": 2, \"tokens_seen\": 110, \"loss\": 4.5,"), out);
    free(arguments);
    arguments = ct_format("%s/picture.svg", f.folder);
    assert_true(ct_path_exists(arguments));
    assert_int_equal(run_metrics(arguments, out, sizeof out), 1); // no metrics in it
    assert_int_equal(count_char(out, '\n'), 1);
    free(arguments);
    assert_int_equal(run_metrics("/no/such/folder", out, sizeof out), 1);
    assert_int_equal(count_char(out, '\n'), 1);
    assert_int_equal(run_metrics("a b", out, sizeof out), 2);
    close_text(&f);
}

int main(void) {
    if (chdir(CT_SOURCE_DIR)) return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(steps_and_validations_are_read),
        cmocka_unit_test(every_cut_of_the_last_line_leaves_the_lines_before),
        cmocka_unit_test(a_resumed_runs_lines_take_the_place_of_those_before),
        cmocka_unit_test(a_run_that_went_on_in_a_cut_off_line_loses_only_that),
        cmocka_unit_test(files_without_a_step_are_errors_that_name_them),
        cmocka_unit_test(the_summary_is_what_hand_calculation_gives),
        cmocka_unit_test(a_falling_line_falls_from_the_left_top_to_the_right_bottom),
        cmocka_unit_test(awkward_curves_are_drawn),
        cmocka_unit_test(the_picture_has_a_point_for_each_loss),
        cmocka_unit_test(the_end_of_a_run_leaves_its_picture),
        cmocka_unit_test(the_command_shows_sums_up_and_says_what_is_wrong),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
