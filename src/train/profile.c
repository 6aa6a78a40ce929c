// [profiling]: the last profiler_active steps of every profile_freq are recorded, written as iteration_<step>/rank<N>_trace.json below
// save_traces_folder (torchtitan's names) and, of the first rank, summed up on the console.
#include "trainer_parts.h"
#include "base/file.h"
#include "kernels/peak.h"
#include "trace/trace.h"

#include <stdlib.h>

static int64_t spans_of_step(const ct_trainer *t) {
    const ct_plan *plan = &t->step.plan;
    int64_t spans = 0;
    for (int w = 0; w < CT_PROGRAMS; w++)
        if (t->step.has[w]) spans += ct_program_runs((ct_program)w, t->micro_batches) * plan->programs[w].instructions_count;
    return spans;
}

void ct_profile_before(ct_trainer *t) {
    const ct_config_profiling *c = &t->config->profiling;
    if (!c->enable_profiling) return;
    int64_t active = c->profiler_active < c->profile_freq ? c->profiler_active : c->profile_freq;
    int on = t->position % c->profile_freq >= c->profile_freq - active;
    if (on && !t->recording.spans) {
        t->recording.capacity = (int)(spans_of_step(t) * active);
        t->recording.spans = ct_malloc(sizeof(ct_span) * (size_t)t->recording.capacity);
    }
    ct_exec_record(t->exec, on ? &t->recording : NULL);
    if (!t->pipeline) return;
    if (on && !t->moments) {
        const ct_mesh *mesh = &t->options.parallel.mesh;
        t->moments = ct_calloc((size_t)t->schedule.of[ct_mesh_coord(mesh, t->rank, ct_mesh_find(mesh, "pp"))].count + 1, sizeof *t->moments);
    }
    ct_pipeline_record(t->pipeline, on ? t->moments : NULL);
}

static char *trace_folder(const ct_trainer *t) {
    return ct_format("%s/%s/iteration_%lld", t->config->job.dump_folder, t->config->profiling.save_traces_folder, (long long)t->position);
}

static ct_status write_trace(const ct_trainer *t) {
    char *folder = trace_folder(t);
    char *path = ct_format("%s/rank%d_trace.json", folder, t->rank);
    ct_status status = ct_folder_make(folder);
    if (!status) status = ct_trace_write(path, &t->step.plan, &t->recording);
    if (!status && t->rank == 0) printf("\nprofile to step %lld (%s)\n", (long long)t->position, path);
    free(folder);
    free(path);
    return status;
}

static ct_status write_pipeline(ct_trainer *t) {
    char *folder = trace_folder(t);
    ct_status status = ct_trainer_agree(t, ct_pipeline_times_write(t, folder));
    free(folder);
    return status;
}

ct_status ct_profile_after(ct_trainer *t) {
    const ct_config *c = t->config;
    ct_exec_record(t->exec, NULL);
    if (!c->profiling.enable_profiling || t->position % c->profiling.profile_freq != 0 || t->recording.count == 0) return CT_OK;
    CT_TRY(ct_trainer_agree(t, write_trace(t)));
    if (t->pipeline) CT_TRY(write_pipeline(t));
    if (t->rank) {
        t->recording.count = 0;
        return CT_OK;
    }
    double peak = 0;
    ct_status unknown = ct_peak_get(c->training.mixed_precision_param == CT_CFG_BFLOAT16 ? CT_BF16 : CT_F32, t->team, &peak);
    ct_string summary = {0};
    ct_trace_summary(&t->step.plan, &t->recording, unknown ? 0 : peak, &summary);
    printf("%s\n", summary.text);
    fflush(stdout);
    ct_string_deinit(&summary);
    t->recording.count = 0;
    return CT_OK;
}
