// `ctitan plan FILE` and `ctitan graph FILE`: what a step will do, without doing it.
#include "commands.h"
#include "base/file.h"
#include "kernels/peak.h"
#include "train/explain.h"
#include "train/pipeline.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char plan_help[] =
    "usage: ctitan plan FILE.toml [--ranks N] [--rank R] [--ranks-per-node N] [--choices] [--json] [--svg FILE] [--trace FILE] [--section.key value …]\n\n"
    "Says what one step of this run will do, without touching the memory it needs: parameters, FLOPs, bytes by kind, the peak and the\n"
    "instruction at it. --ranks N: on N ranks (else on the fewest that the degrees of [parallelism] allow); none is started. --rank R: as rank R\n"
    "runs it (0). --ranks-per-node N: on nodes of N (else comm.ranks_per_node; 0: one node). --choices: all that placement chose, with\n"
    "prices, not only the dearest. --json: for machines. --svg, --trace: a pipeline's schedule as a picture, and as a trace for Perfetto, its\n"
    "times by FLOPs at this machine's peak.\n";

static const char graph_help[] =
    "usage: ctitan graph FILE.toml [--program NAME] [--ranks N] [--rank R] [--section.key value …]\n"
    "       ctitan graph --check FILE.graph\n"
    "       ctitan graph --ops [--json]\n\n"
    "Prints a program's graph as text, after all passes: prologue, micro, update, eval (with validation.enable), and of a pipeline's stages unshard,\n"
    "forward, input-grad, weight-grad, reduce; micro or forward by default. --check reads such a text back, verifies it and prints it\n"
    "again. --ops lists the op table: name, attributes, formula, index rule, dtypes.\n";

typedef struct {
    int ranks, ranks_per_node; // 0: the fewest that the degrees allow; one node
    int rank;                  // whose plan
    const char *svg, *trace;
    ct_arena arena;
    ct_config *config;
    ct_model model;
    ct_step_options options;
    ct_step step;
    ct_choices choices;
    ct_schedule schedule; // of a pipeline
    int64_t micro_batches;
} planned;

static ct_status load(planned *p, const char *path, int argc, char **argv) {
    CT_TRY(ct_config_load(&p->arena, path, argc, argv, &p->config));
    CT_TRY(ct_setup_plugins(p->config));
    CT_TRY(ct_setup_model(&p->arena, p->config, &p->model));
    CT_TRY(ct_setup_check_sizes(p->config, &p->model, 0));
    ct_parallel parallel;
    CT_TRY(ct_setup_parallel(p->config, p->ranks ? p->ranks : ct_setup_least_ranks(p->config), &parallel));
    int count = ct_mesh_ranks(&parallel.mesh);
    CT_CHECK(p->rank < count, CT_INVALID, "--rank %d: there %s %d rank%s", p->rank, count == 1 ? "is" : "are", count, count == 1 ? "" : "s");
    CT_TRY(ct_setup_micro_batches(p->config, ct_mesh_data_ranks(&parallel.mesh), &p->micro_batches));
    CT_TRY(ct_setup_step_options(&p->arena, p->config, &p->model, &parallel, p->rank, &p->options));
    p->options.parallel.choices = &p->choices;
    CT_TRY(ct_setup_pipeline(&p->arena, p->config, &p->model, &p->options, &p->schedule));
    int together = p->ranks_per_node ? p->ranks_per_node : (int)p->config->comm.ranks_per_node;
    if (!p->config->comm.shared_memory) together = 1;
    p->options.plan.near = (ct_near){together ? p->rank / together * together : 0, together, together};
    return ct_step_make(&p->model, &p->options, &p->step);
}

static int finish(planned *p, const char *command, ct_status status) {
    if (status) fprintf(stderr, "ctitan %s: %s\n", command, ct_error_text(status));
    ct_step_deinit(&p->step);
    ct_choices_deinit(&p->choices);
    ct_schedule_deinit(&p->schedule);
    ct_arena_deinit(&p->arena);
    return status ? 1 : ct_finish_output(command);
}

// Removes `--ranks N`, `--rank R` and `--ranks-per-node N`; 1 after saying what is wrong with them.
static int take_cluster(planned *p, const char *command, int *argc, char **argv) {
    const char *rank = ct_take_value(argc, argv, "--rank");
    char rest;
    if (rank && (sscanf(rank, "%d%c", &p->rank, &rest) != 1 || p->rank < 0)) return ct_misuse(command, "--rank %s: a number from 0 on is wanted", rank);
    p->ranks = ct_take_count(argc, argv, "--ranks");
    p->ranks_per_node = ct_take_count(argc, argv, "--ranks-per-node");
    if (p->ranks >= 0 && p->ranks_per_node >= 0) return 0;
    ct_misuse(command, "--ranks and --ranks-per-node: a number from 1 to 1000000 is wanted");
    return 1;
}

static int wants_help(int argc, char **argv) {
    for (int i = 1; i < argc; i++)
        if (!strcmp(argv[i], "--help") || !strcmp(argv[i], "-h")) return 1;
    return 0;
}

static void print_note(void *context, const char *line) {
    (void)context;
    fprintf(stderr, "ctitan: %s\n", line);
}

// The kept (or now measured) peak of this machine, for the floor; 0 where it can't be had.
static double peak_of(const planned *p) {
    ct_team *team;
    double flops = 0;
    int threads = p->options.plan.threads;
    if (ct_team_create((ct_team_options){.threads = threads, .first_core = -1, .never_spin = threads > ct_cores()}, &team)) return 0;
    if (ct_peak_get(p->options.compute, team, &flops)) flops = 0;
    ct_team_destroy(team);
    return flops;
}

static ct_status draw_pipeline(const planned *p, double peak_flops) {
    if (!p->svg && !p->trace) return CT_OK;
    CT_CHECK(p->step.stages, CT_INVALID, "--svg and --trace draw a pipeline: this run has none (parallelism.pipeline_parallel_degree)");
    ct_stage_cost *costs = ct_explain_stage_costs(&p->step, peak_flops > 0 ? peak_flops : 1e12);
    ct_schedule_times times;
    ct_schedule_simulate(&p->schedule, costs, 0, &times);
    ct_status status = ct_schedule_draw_file(p->svg, ct_schedule_draw_svg, &p->schedule, &times, NULL);
    if (!status) status = ct_schedule_draw_file(p->trace, ct_schedule_draw_trace, &p->schedule, &times, NULL);
    ct_schedule_times_deinit(&times);
    free(costs);
    return status;
}

int ct_cmd_plan(int argc, char **argv) {
    if (wants_help(argc, argv)) return fputs(plan_help, stdout), 0;
    planned p = {.svg = ct_take_value(&argc, argv, "--svg"), .trace = ct_take_value(&argc, argv, "--trace")};
    int json = ct_take_flag(&argc, argv, "--json"), choices = ct_take_flag(&argc, argv, "--choices"), bad = take_cluster(&p, "plan", &argc, argv);
    int own = ct_config_args_split(argc, argv);
    if (bad) return 2;
    if (ct_check_file_argument("plan", own, argv)) return 2;
    if (own != 2) return fputs(plan_help, stderr), 2;
    ct_status status = load(&p, argv[1], argc - own, argv + own);
    if (!status) {
        ct_status unbuilt = ct_config_check_train(p.config, json ? NULL : print_note, NULL);
        if (unbuilt) fprintf(stderr, "ctitan plan: planned without it: %s\n", ct_error_text(unbuilt));
        ct_string out = {0};
        ct_explain_options options = {.schedule = &p.schedule,
                                      .micro_batches = p.micro_batches,
                                      .tokens_per_step = p.micro_batches * ct_mesh_data_ranks(&p.options.parallel.mesh) * p.options.batch *
                                                         p.options.seq_len,
                                      .all_choices = choices,
                                      .peak_flops = json ? 0 : peak_of(&p)};
        (json ? ct_explain_json : ct_explain_print)(&p.model, &p.options, &p.step, options, &out);
        fputs(out.text, stdout);
        ct_string_deinit(&out);
        status = draw_pipeline(&p, options.peak_flops);
    }
    return finish(&p, "plan", status);
}

// ---- graph ----
static int list_ops(int json) {
    ct_string out = {0};
    if (json) ct_string_add(&out, "[");
    for (int i = 0; ct_ops[i]; i++) {
        const ct_op *op = ct_ops[i];
        if (!json) {
            ct_op_print(op, &out);
            continue;
        }
        ct_string_add(&out, "%s{\"name\": \"%s\", \"rule\": ", i ? ",\n " : "", op->name);
        ct_string_add_json(&out, op->rule ? op->rule : "");
        ct_string_add(&out, ", \"formula\": ");
        ct_string_add_json(&out, op->formula ? op->formula : "");
        ct_string_add(&out, "}");
    }
    if (json) ct_string_add(&out, "]\n");
    fputs(out.text, stdout);
    ct_string_deinit(&out);
    return ct_finish_output("graph");
}

static ct_status check_file(const char *path) {
    char *text;
    CT_TRY(ct_file_read(path, 1u << 30, &text, NULL));
    ct_graph graph = {0}; // the parser starts it
    ct_status status = ct_graph_parse(&graph, text, path, ct_op_find);
    if (!status) status = ct_graph_verify(&graph);
    if (!status) {
        ct_string out = {0};
        ct_graph_print(&graph, &out);
        fputs(out.text, stdout);
        ct_string_deinit(&out);
    }
    ct_graph_deinit(&graph);
    free(text);
    return status;
}

// Of a pipeline rank's stages, all that have this name.
static ct_status print_program(planned *p, const char *name) {
    int printed = 0;
    for (int w = 0; w < CT_PROGRAMS; w++) {
        if (strcmp(ct_program_name((ct_program)w), name) || !p->step.has[w]) continue;
        ct_string out = {0};
        ct_graph_print(&p->step.programs[w], &out);
        fputs(out.text, stdout);
        ct_string_deinit(&out);
        printed = 1;
    }
    if (printed) return CT_OK;
    char known[160] = "";
    for (int w = 0; w < CT_PROGRAMS; w++)
        if (p->step.has[w] && !strstr(known, ct_program_name((ct_program)w)) && strlen(known) < 120)
            snprintf(known + strlen(known), sizeof known - strlen(known), "%s%s", known[0] ? ", " : "", ct_program_name((ct_program)w));
    CT_FAIL(CT_INVALID, "--program %s: this run has %s", name, known);
}

int ct_cmd_graph(int argc, char **argv) {
    if (wants_help(argc, argv)) return fputs(graph_help, stdout), 0;
    int ops = ct_take_flag(&argc, argv, "--ops"), json = ct_take_flag(&argc, argv, "--json");
    if (ops) return argc == 1 ? list_ops(json) : (fputs(graph_help, stderr), 2);
    const char *file = ct_take_value(&argc, argv, "--check"), *program = ct_take_value(&argc, argv, "--program");
    planned p = {0};
    if (file) return finish(&p, "graph", check_file(file));
    int bad = take_cluster(&p, "graph", &argc, argv), own = ct_config_args_split(argc, argv);
    if (bad) return 2;
    if (ct_check_file_argument("graph", own, argv)) return 2;
    if (own != 2) return fputs(graph_help, stderr), 2;
    ct_status status = load(&p, argv[1], argc - own, argv + own);
    if (!status) status = print_program(&p, program ? program : p.step.stages ? "forward" : "micro");
    return finish(&p, "graph", status);
}
