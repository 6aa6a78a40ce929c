// A profile holds every instruction of the recorded step once and in order, as JSON that parses, and its table adds up.
#include "case.h"
#include "base/file.h"
#include "ops/ops.h"
#include "trace/trace.h"

#include <cjson/cJSON.h>

static int instructions_of_step(const ct_plan *plan, int64_t micro) {
    return plan->programs[CT_PROGRAM_PROLOGUE].instructions_count + plan->programs[CT_PROGRAM_UPDATE].instructions_count +
           (int)micro * plan->programs[CT_PROGRAM_MICRO].instructions_count;
}

static void a_trace_holds_every_instruction_once(void **state) {
    (void)state;
    titan_case c;
    const char *o[] = {"--training.mixed_precision_param", "bfloat16", NULL};
    case_open(&c, "accumulate", o, NULL);
    const ct_plan *plan = ct_trainer_plan(c.trainer);
    int wanted = instructions_of_step(plan, c.micro);
    ct_recording r = {.spans = ct_malloc(sizeof(ct_span) * (size_t)wanted), .capacity = wanted};
    ct_exec_record(ct_trainer_exec(c.trainer), &r);
    ct_step_report report;
    assert_ok(ct_trainer_step(c.trainer, &report));
    ct_exec_record(ct_trainer_exec(c.trainer), NULL);
    assert_int_equal(r.count, wanted);
    for (int i = 1; i < r.count; i++) assert_true(r.spans[i - 1].end_ns <= r.spans[i].begin_ns);

    char *path = ct_format("%s/trace.json", c.dump), *text;
    assert_ok(ct_trace_write(path, plan, &r));
    assert_ok(ct_file_read(path, 0, &text, NULL));
    cJSON *json = cJSON_Parse(text), *events = cJSON_GetObjectItem(json, "traceEvents");
    assert_non_null(events);
    int seen = 0;
    for (const cJSON *e = events->child; e; e = e->next) {
        if (strcmp(cJSON_GetObjectItem(e, "ph")->valuestring, "X")) continue;
        assert_non_null(ct_op_find(cJSON_GetObjectItem(e, "name")->valuestring));
        assert_true(cJSON_GetObjectItem(e, "dur")->valuedouble >= 0);
        seen++;
    }
    assert_int_equal(seen, wanted);
    ct_string summary = {0};
    ct_trace_summary(plan, &r, 1e12, &summary);
    assert_non_null(strstr(summary.text, "matmul_dw_acc"));
    assert_non_null(strstr(summary.text, "between"));
    ct_string_deinit(&summary);
    cJSON_Delete(json);
    free(text);
    free(path);
    free(r.spans);
    case_close(&c, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_trace_holds_every_instruction_once)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
