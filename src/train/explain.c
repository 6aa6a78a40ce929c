// The explainer reads the plan that will be run; it computes nothing of its own but sums.
#include "explain_parts.h"
#include "graph/op.h"

#include <stdio.h>

void ct_bytes_text(double bytes, char *out, size_t size) {
    const char *unit = "B";
    double x = bytes;
    if (bytes >= 1e9) x = bytes / 1e9, unit = "GB";
    else if (bytes >= 1e6) x = bytes / 1e6, unit = "MB";
    else if (bytes >= 1e3) x = bytes / 1e3, unit = "kB";
    snprintf(out, size, "%.*f %s", unit[0] == 'B' ? 0 : 2, x, unit);
}

static double phase_flops(const ct_plan *plan, ct_phase phase) {
    double flops = 0;
    for (int w = 0; w < CT_PROGRAMS; w++) {
        const ct_plan_program *program = &plan->programs[w];
        int counts = ct_program_is_micro((ct_program)w);
        for (int i = 0; counts && i < program->instructions_count; i++)
            if (program->graph->nodes[program->instructions[i].node].from.phase == phase) flops += ct_instruction_cost(program, i).flops;
    }
    return flops;
}

static double executed_flops(const ct_step *step, int64_t micro_batches) {
    const ct_mesh *mesh = ct_step_mesh(step);
    double ranks = ct_mesh_ranks(mesh);
    if (!step->stages) return ct_step_flops(step, micro_batches) * ranks;
    return ct_step_flops(step, 0) * ranks + ct_pipeline_flops(step) * (double)micro_batches * ranks / mesh->axes[ct_mesh_find(mesh, "pp")].size;
}

// Bytes that a micro-batch's forward leaves for its backward: live temporaries at the first backward node.
static size_t saved_bytes(const ct_plan_program *program) {
    int n = 0;
    while (n < program->graph->nodes_count && program->graph->nodes[n].from.phase == CT_FORWARD) n++;
    size_t bytes = 0;
    for (int i = 0; i < program->buffers_count; i++)
        if (program->buffers[i].first < n && program->buffers[i].last >= n) bytes += program->buffers[i].bytes;
    return bytes;
}

static const char *recompute_text(ct_recompute_options r, char *buffer, size_t size) {
    switch (r.mode) {
    case CT_RECOMPUTE_FULL: return "every layer";
    case CT_RECOMPUTE_OP: return "by op (attention and every other matmul kept)";
    case CT_RECOMPUTE_EVERY: snprintf(buffer, size, "every %d. layer", r.every); return buffer;
    default: return "none";
    }
}

static const ct_node *peak_node(const ct_plan *plan) {
    const ct_plan_program *program = &plan->programs[plan->peak_program];
    return &program->graph->nodes[program->peak_node];
}

static void print_memory(const ct_plan *plan, ct_string *out) {
    const ct_plan_program *peak = &plan->programs[plan->peak_program];
    char text[32];
    ct_bytes_text((double)plan->peak_bytes, text, sizeof text);
    ct_string_add(out, "\nmemory of this rank: %s (%zu bytes; live bytes at the peak × %.4f)\n", text, plan->peak_bytes,
                  (double)plan->peak_bytes / (double)ct_plan_live_bytes(plan));
    for (int k = 0; k < CT_BYTES_KINDS; k++) {
        if (!peak->peak_kinds[k]) continue;
        ct_bytes_text((double)peak->peak_kinds[k], text, sizeof text);
        ct_string_add(out, "  %-14s %12s\n", ct_bytes_kind_name((ct_bytes_kind)k), text);
    }
    const ct_node *node = peak_node(plan);
    ct_string_add(out, "  at the peak: program %s, %s in %s (%s)\n", ct_program_name((ct_program)plan->peak_program), node->op->name,
                  node->from.module, ct_phase_name(node->from.phase));
}

static void print_programs(const ct_plan *plan, ct_string *out) {
    ct_string_add(out, "\n%-10s %13s %14s %14s\n", "program", "instructions", "FLOPs a run", "temporaries");
    for (int w = 0; w < CT_PROGRAMS; w++) {
        const ct_plan_program *p = &plan->programs[w];
        if (!p->graph) continue;
        char text[32];
        ct_bytes_text((double)(p->extent_bytes + p->shared_extent_bytes), text, sizeof text);
        ct_string_add(out, "%-10s %13d %14.4g %14s\n", ct_program_name((ct_program)w), p->instructions_count,
                      ct_plan_program_flops(plan, (ct_program)w), text);
    }
}

static void print_flops(const ct_model *model, const ct_step_options *so, const ct_step *step, ct_explain_options o, ct_string *out) {
    double formula = ct_model_step_flops(model, (double)o.tokens_per_step, (double)so->seq_len);
    double executed = executed_flops(step, o.micro_batches);
    ct_string_add(out, "\nFLOPs a step: %.4g by the formula, %.4g executed (recomputation: ", formula, executed);
    char buffer[64];
    ct_string_add(out, "%s)\n", recompute_text(so->recompute, buffer, sizeof buffer));
    static const ct_phase phases[] = {CT_FORWARD, CT_RECOMPUTE, CT_INPUT_GRAD, CT_WEIGHT_GRAD};
    for (int i = 0; i < 4; i++)
        ct_string_add(out, "  %-12s %.4g a micro-batch\n", ct_phase_name(phases[i]), phase_flops(&step->plan, phases[i]));
    if (o.peak_flops > 0)
        ct_string_add(out, "  floor: %.4g s a step at this machine's measured %.0f GFLOP/s (%s)\n", formula / o.peak_flops,
                      o.peak_flops / 1e9, so->compute == CT_BF16 ? "bf16" : "fp32");
}

void ct_explain_print(const ct_model *model, const ct_step_options *so, const ct_step *step, ct_explain_options o, ct_string *out) {
    ct_string_add(out, "model %s %s: %lld parameters, %lld layers, dim %lld, %lld heads, %lld key-value heads, ffn %lld, vocabulary %lld%s\n",
                  model->kind->name, model->flavor, (long long)ct_model_parameters(model), (long long)model->shape.n_layers,
                  (long long)model->shape.dim, (long long)model->shape.n_heads, (long long)model->shape.n_kv_heads,
                  (long long)model->shape.ffn_dim, (long long)model->shape.vocab_size, model->shape.tied ? ", tied head" : "");
    int ranks = ct_mesh_ranks(&so->parallel.mesh);
    ct_string mesh = {0};
    for (int a = 0; a < so->parallel.mesh.axes_count; a++)
        ct_string_add(&mesh, "%s%s %d", a ? " × " : ": ", so->parallel.mesh.axes[a].name, so->parallel.mesh.axes[a].size);
    ct_string_add(out, "step: %lld micro-batch%s of %lld × %lld tokens%s, %s; %d rank%s%s, %d threads each, %s kernels; plan %016llx\n",
                  (long long)o.micro_batches, o.micro_batches == 1 ? "" : "es", (long long)so->batch, (long long)so->seq_len,
                  ct_mesh_data_ranks(&so->parallel.mesh) > 1 ? " a data rank" : "",
                  so->compute == CT_BF16 ? "bf16 compute with f32 masters" : "f32 throughout", ranks, ranks == 1 ? "" : "s",
                  mesh.text ? mesh.text : "", step->plan.threads, step->plan.isa, (unsigned long long)step->plan.hash);
    ct_string_deinit(&mesh);
    print_flops(model, so, step, o, out);
    print_memory(&step->plan, out);
    if (step->has[CT_PROGRAM_MICRO]) {
        char text[32];
        ct_bytes_text((double)saved_bytes(&step->plan.programs[CT_PROGRAM_MICRO]), text, sizeof text);
        ct_string_add(out, "  kept from forward for backward: %s a micro-batch\n", text);
    }
    print_programs(&step->plan, out);
    if (step->stages && o.schedule) ct_pipeline_print(step, o.schedule, o.peak_flops, out);
    ct_collectives_print(step, so, o.micro_batches, out);
    if (so->parallel.choices) ct_choices_print(so->parallel.choices, &so->parallel.mesh, o.all_choices, out);
}

static void json_stages(const ct_model *model, const ct_step *step, ct_string *out) {
    const ct_plan *plan = &step->plan;
    if (step->stages) {
        ct_string_add(out, "[");
        ct_stages_json(step, out);
        ct_string_add(out, "]");
    } else ct_string_add(out, "[{\"stage\": 0, \"layers\": %lld, \"forward_flops\": %.17g, \"input_grad_flops\": %.17g, \"weight_grad_flops\": %.17g, "
                       "\"saved_bytes\": %zu}]",
                  (long long)model->shape.n_layers, phase_flops(plan, CT_FORWARD),
                  phase_flops(plan, CT_INPUT_GRAD) + phase_flops(plan, CT_RECOMPUTE), phase_flops(plan, CT_WEIGHT_GRAD),
                  saved_bytes(&plan->programs[CT_PROGRAM_MICRO]));
}

void ct_explain_json(const ct_model *model, const ct_step_options *so, const ct_step *step, ct_explain_options o, ct_string *out) {
    const ct_plan *plan = &step->plan;
    const ct_plan_program *peak = &plan->programs[plan->peak_program];
    ct_string_add(out, "{\"parameters\": %lld, \"flops_per_step\": %.17g, \"flops_executed_per_step\": %.17g, \"peak_bytes\": %zu, "
                       "\"live_bytes\": %zu, \"bytes\": {",
                  (long long)ct_model_parameters(model),
                  ct_model_step_flops(model, (double)o.tokens_per_step, (double)so->seq_len),
                  executed_flops(step, o.micro_batches), plan->peak_bytes, ct_plan_live_bytes(plan));
    for (int k = 0; k < CT_BYTES_KINDS; k++)
        ct_string_add(out, "%s\"%s\": %zu", k ? ", " : "", ct_bytes_kind_name((ct_bytes_kind)k), peak->peak_kinds[k]);
    const ct_node *node = peak_node(plan);
    ct_string_add(out, "}, \"peak_at\": {\"program\": \"%s\", \"op\": \"%s\", \"module\": ", ct_program_name((ct_program)plan->peak_program),
                  node->op->name);
    ct_string_add_json(out, node->from.module);
    ct_string_add(out, ", \"phase\": \"%s\"}, \"ranks\": %d, \"threads\": %d, \"isa\": \"%s\", \"micro_batches\": %lld, \"tokens_per_step\": %lld, "
                       "\"plan_hash\": \"%016llx\", \"stages\": ",
                  ct_phase_name(node->from.phase), ct_mesh_ranks(&so->parallel.mesh), plan->threads, plan->isa, (long long)o.micro_batches, (long long)o.tokens_per_step,
                  (unsigned long long)plan->hash);
    json_stages(model, step, out);
    if (step->stages && o.schedule) {
        ct_string_add(out, ", \"pipeline\": ");
        ct_pipeline_json(step, o.schedule, out);
    }
    ct_string_add(out, ", \"mesh\": {");
    for (int a = 0; a < so->parallel.mesh.axes_count; a++)
        ct_string_add(out, "%s\"%s\": %d", a ? ", " : "", so->parallel.mesh.axes[a].name, so->parallel.mesh.axes[a].size);
    ct_string_add(out, "}, \"collectives\": ");
    ct_collectives_json(step, so, o.micro_batches, out);
    if (so->parallel.choices && o.all_choices) {
        ct_string_add(out, ", \"choices\": ");
        ct_choices_json(so->parallel.choices, &so->parallel.mesh, out);
    }
    ct_string_add(out, "}\n");
}
