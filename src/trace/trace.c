// Traces and summaries read the plan for all that they say of an instruction; the recording only holds times.
#include "trace/trace.h"
#include "base/file.h"
#include "graph/op.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const ct_node *node_of(const ct_plan *plan, const ct_span *span) {
    const ct_plan_program *program = &plan->programs[span->program];
    return &program->graph->nodes[program->instructions[span->instruction].node];
}

// Of a move in several instructions: all but the last are its beginning.
static int is_begin(const ct_plan *plan, const ct_span *span) {
    const ct_instruction *in = &plan->programs[span->program].instructions[span->instruction];
    return !in->kernel && !in->is_last;
}

static ct_cost cost_of(const ct_plan *plan, const ct_span *span) {
    return ct_instruction_cost(&plan->programs[span->program], span->instruction);
}

static void add_event(const ct_plan *plan, const ct_span *span, uint64_t start, ct_string *out) {
    const ct_node *node = node_of(plan, span);
    ct_cost cost = cost_of(plan, span);
    double ns = span->end_ns > span->begin_ns ? (double)(span->end_ns - span->begin_ns) : 1, bytes = cost.bytes_read + cost.bytes_written;
    ct_string_add(out, ",\n{\"name\": \"%s%s\", \"cat\": \"%s\", \"ph\": \"X\", \"pid\": 0, \"tid\": %d, \"ts\": %.3f, \"dur\": %.3f, \"args\": {\"module\": ",
                  node->op->name, is_begin(plan, span) ? " begins" : "", ct_phase_name(node->from.phase), span->program, (double)(span->begin_ns - start) / 1e3, ns / 1e3);
    ct_string_add_json(out, node->from.module);
    ct_string_add(out, ", \"flops\": %.0f, \"bytes\": %.0f, \"GFLOP/s\": %.1f, \"GB/s\": %.1f}}", cost.flops, bytes, cost.flops / ns, bytes / ns);
}

ct_status ct_trace_write(const char *path, const ct_plan *plan, const ct_recording *recording) {
    ct_string s = {0};
    ct_string_add(&s, "{\"traceEvents\": [{\"name\": \"process_name\", \"ph\": \"M\", \"pid\": 0, \"args\": {\"name\": \"rank 0\"}}");
    for (int w = 0; w < CT_PROGRAMS; w++)
        if (plan->programs[w].graph)
            ct_string_add(&s, ",\n{\"name\": \"thread_name\", \"ph\": \"M\", \"pid\": 0, \"tid\": %d, \"args\": {\"name\": \"%s\"}}", w,
                          ct_program_name((ct_program)w));
    for (int i = 0; i < recording->count; i++) add_event(plan, &recording->spans[i], recording->spans[0].begin_ns, &s);
    ct_string_add(&s, "\n]}\n");
    ct_status status = ct_file_write_atomic(path, s.text, s.length);
    ct_string_deinit(&s);
    return status;
}

// ---- summary ----
typedef struct {
    const ct_op *op;
    ct_phase phase;
    int begins; // the beginning of moves
    int calls;
    double ns, flops, bytes;
} row;

static int by_time(const void *a, const void *b) {
    double x = ((const row *)a)->ns, y = ((const row *)b)->ns;
    return x > y ? -1 : x < y;
}

static int collect(const ct_plan *plan, const ct_recording *recording, row **out_rows) {
    row *rows = NULL;
    int count = 0, capacity = 0;
    for (int i = 0; i < recording->count; i++) {
        const ct_span *span = &recording->spans[i];
        const ct_node *node = node_of(plan, span);
        ct_cost cost = cost_of(plan, span);
        int r = 0;
        while (r < count && (rows[r].op != node->op || rows[r].phase != node->from.phase || rows[r].begins != is_begin(plan, span))) r++;
        if (r == count) {
            CT_GROW(rows, count, capacity);
            rows[count++] = (row){.op = node->op, .phase = node->from.phase, .begins = is_begin(plan, span)};
        }
        rows[r].calls++;
        rows[r].ns += (double)(span->end_ns - span->begin_ns);
        rows[r].flops += cost.flops;
        rows[r].bytes += cost.bytes_read + cost.bytes_written;
    }
    qsort(rows, (size_t)count, sizeof *rows, by_time);
    *out_rows = rows;
    return count;
}

void ct_trace_summary(const ct_plan *plan, const ct_recording *recording, double peak_flops, ct_string *out) {
    if (recording->count == 0) return;
    row *rows;
    int count = collect(plan, recording, &rows);
    double whole = (double)(recording->spans[recording->count - 1].end_ns - recording->spans[0].begin_ns), inside = 0;
    ct_string_add(out, "%-16s %-12s %6s %10s %7s %9s %8s %8s\n", "op", "phase", "calls", "ms", "share", "GFLOP/s", "of peak", "GB/s");
    for (int r = 0; r < count; r++) {
        inside += rows[r].ns;
        char name[32];
        snprintf(name, sizeof name, "%s%s", rows[r].op->name, rows[r].begins ? " >" : "");
        ct_string_add(out, "%-16s %-12s %6d %10.3f %6.1f%%", name, ct_phase_name(rows[r].phase), rows[r].calls, rows[r].ns / 1e6,
                      100 * rows[r].ns / whole);
        if (rows[r].flops > 0) ct_string_add(out, " %9.1f", rows[r].flops / rows[r].ns);
        else ct_string_add(out, " %9s", "");
        if (rows[r].flops > 0 && peak_flops > 0) ct_string_add(out, " %7.1f%%", 100 * rows[r].flops / rows[r].ns * 1e9 / peak_flops);
        else ct_string_add(out, " %8s", "");
        ct_string_add(out, " %8.1f\n", rows[r].bytes / rows[r].ns);
    }
    ct_string_add(out, "%-16s %-12s %6s %10.3f %6.1f%%\n", "between", "", "", (whole - inside) / 1e6, 100 * (whole - inside) / whole);
    free(rows);
}
