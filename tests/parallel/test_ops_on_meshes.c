// Every op under random legal layouts, on meshes of 2, 3 and 6 ranks, uneven extents: its parts together are what one rank computes. Operands
// are cut, partial or whole, outputs as the inference says. What was legal for an (op, index, axis) is listed; nothing legal may be left out.
// And every kind of move between random layouts of random tensors.
#include "../ops/example.h"
#include "ranks.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static uint64_t random_state = 12345;
static int below(int n) {
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (int)((random_state >> 33) % (uint64_t)n);
}

static const ct_mesh meshes[] = {{1, {{"a", 2}}}, {1, {{"b", 3}}}, {2, {{"a", 2}, {"b", 3}}}};
enum { MESHES = 3, TRIES = 400 };

// A random layout of a type: each axis cuts a dim, or makes it partial, or does nothing.
static ct_layout random_layout(const ct_mesh *mesh, const ct_type *type, int may_be_sum) {
    ct_layout layout = {.partial = (uint8_t)(type->dtype == CT_I64 ? CT_I64 : CT_F32)};
    int first = below(2); // axes in either order: cuts of one dim nest
    for (int i = 0; i < mesh->axes_count; i++) {
        int axis = mesh->axes_count == 2 && first ? 1 - i : i, choice = below(type->dims_count + 2);
        if (choice < type->dims_count) ct_layout_add(&layout, axis, CT_CUT_SHARD, choice);
        else if (choice == type->dims_count && may_be_sum) ct_layout_add(&layout, axis, CT_CUT_SUM, 0);
    }
    return layout;
}

// ---- ops ----
typedef struct {
    int hits, letters;
    char what[400];
} record;

static void note(record *r, const char *word) {
    if (!strstr(r->what, word) && strlen(r->what) + strlen(word) < sizeof r->what) strcat(r->what, word), r->letters++;
}

static void note_layouts(record *r, const example *e, const ct_graph *g, const ct_node *node) {
    char word[40];
    for (int i = 0; i < e->inputs; i++) {
        const ct_layout *layout = &g->values[node->inputs[i]].layout;
        for (int k = 0; k < layout->count; k++) {
            const ct_cut *cut = &layout->cuts[k];
            const ct_rule_operand *operand = &e->rule.in[i];
            if (cut->kind != CT_CUT_SHARD) snprintf(word, sizeof word, "P%d/%s ", i, g->mesh.axes[cut->axis].name);
            else snprintf(word, sizeof word, "%s/%s ", example_is_star(operand) ? "*" : operand->index[cut->dim].letter, g->mesh.axes[cut->axis].name);
            note(r, word);
        }
    }
}

static double error_of(const example *e, int o, const double *got) {
    double worst = 0, largest = 1e-3;
    for (int64_t i = 0; i < ct_type_elems(&e->out[o]); i++)
        if (isfinite(e->result[o][i])) largest = fmax(largest, fabs(e->result[o][i]));
    for (int64_t i = 0; i < ct_type_elems(&e->out[o]); i++) {
        double want = e->result[o][i], error = want == got[i] || (want != want && got[i] != got[i]) ? 0 : fabs(want - got[i]) / largest;
        worst = error <= worst ? worst : error;
    }
    return worst;
}

// Each axis cuts one index wherever it stands, or makes one operand partial (every one, of an addition), or does nothing.
static void draw_by_index(const example *e, const ct_mesh *mesh, ct_graph *g, const ct_node *node) {
    int first = below(2);
    for (int i = 0; i < e->inputs; i++) g->values[node->inputs[i]].layout = (ct_layout){.partial = (uint8_t)(e->in[i].dtype == CT_I64 ? CT_I64 : CT_F32)};
    for (int k = 0; k < mesh->axes_count; k++) {
        int axis = mesh->axes_count == 2 && first ? 1 - k : k, one = below(e->inputs), choice = below(8);
        if (choice == 0) continue;
        if (choice == 1) {
            int all = e->op->flags & CT_OP_ADDITIVE && !e->op->must_alias[0];
            for (int i = 0; i < e->inputs; i++)
                if (i == one || all) ct_layout_add(&g->values[node->inputs[i]].layout, axis, CT_CUT_SUM, 0);
            continue;
        }
        if (!e->in[one].dims_count) continue;
        int dim = below(e->in[one].dims_count), star = example_is_star(&e->rule.in[one]);
        const char *letter = star ? "*" : e->rule.in[one].index[dim].letter;
        for (int i = 0; i < e->inputs; i++) {
            int at = example_dim(&e->rule.in[i], letter, dim);
            if (at >= 0 && at < e->in[i].dims_count) ct_layout_add(&g->values[node->inputs[i]].layout, axis, CT_CUT_SHARD, at);
        }
    }
}

// Anything at all; operands with the same indices lie alike more often than chance has it.
static void draw_any(const example *e, const ct_mesh *mesh, ct_graph *g, const ct_node *node) {
    int may_be_sum = below(3) == 0;
    for (int i = 0; i < e->inputs; i++) {
        ct_layout *layout = &g->values[node->inputs[i]].layout;
        int integer = e->in[i].dtype == CT_I32 || e->in[i].dtype == CT_F64;
        *layout = random_layout(mesh, &e->in[i], may_be_sum && !integer);
        for (int j = 0; j < i; j++)
            if (below(4) && e->in[j].dims_count == e->in[i].dims_count && ct_layout_axes(&g->values[node->inputs[j]].layout, CT_CUT_SUM) == 0)
                *layout = g->values[node->inputs[j]].layout;
    }
}

// A sum over ranks of parts that do not depend on one another: an operand that is added to in place is partial where the output is.
static void check_once(const example *e, const ct_mesh *mesh, record *r) {
    ct_graph g;
    int n = example_build(e, &g);
    g.mesh = *mesh;
    const ct_node *node = &g.nodes[n];
    if (below(4)) draw_by_index(e, mesh, &g, node);
    else draw_any(e, mesh, &g, node);
    ct_layout out[CT_MAX_OUTPUTS];
    // In place: as the output will lie, which is found by asking twice.
    for (int pass = 0; pass < 2; pass++) {
        ct_status status = ct_op_infer_layouts(&g, node, out);
        if (!status) break;
        for (int o = 0; o < e->outputs && pass == 0; o++)
            if (e->op->must_alias[o]) {
                out[o].partial = (uint8_t)(e->out[o].dtype == CT_I64 ? CT_I64 : CT_F32);
                g.values[node->inputs[e->op->must_alias[o] - 1]].layout = out[o];
            }
        if (pass || !e->op->must_alias[0]) {
            ct_graph_deinit(&g);
            return;
        }
    }
    for (int o = 0; o < e->outputs; o++) g.values[node->outputs[o]].layout = out[o];
    all_ranks ranks;
    ranks_open(&ranks, &g);
    for (int i = 0; i < e->inputs; i++) ranks_scatter(&ranks, node->inputs[i], e->data[i], &random_state);
    ranks_run_node(&ranks, n);
    double *together[CT_MAX_OUTPUTS];
    for (int o = 0; o < e->outputs; o++) {
        together[o] = ct_calloc((size_t)ct_type_elems(&e->out[o]) + 1, sizeof(double));
        ranks_gather(&ranks, node->outputs[o], together[o]);
    }
    const example_hook *hook = example_hook_of(e->op->name);
    if (hook && hook->canonical) hook->canonical(e, together);
    for (int o = 0; o < e->outputs; o++) {
        double error = error_of(e, o, together[o]);
        if (!(error <= 1e-11)) {
            ct_string text = {0};
            ct_graph_print(&g, &text);
            fail_msg("%s on %d ranks, output %d: off by %.2e\n%s", e->op->name, ranks.ranks, o, error, text.text);
        }
        free(together[o]);
    }
    note_layouts(r, e, &g, node);
    r->hits++;
    ranks_close(&ranks);
    ct_graph_deinit(&g);
}

static int is_fixed(const example *e, const char *letter) {
    for (int i = 0; i < e->rule.inputs + e->rule.outputs; i++) {
        const ct_rule_operand *operand = i < e->rule.inputs ? &e->rule.in[i] : &e->rule.out[i - e->rule.inputs];
        for (int d = 0; d < operand->count; d++)
            if (!strcmp(operand->index[d].letter, letter) && operand->index[d].fixed) return 1;
    }
    return 0;
}

// Every index of an input that may be cut was, by every axis; every input that the op is linear in was partial.
static void check_complete(const example *e, const record *r) {
    char word[40];
    static const char *const axes[] = {"a", "b"};
    for (int i = 0; i < e->inputs; i++)
        for (int k = 0; k < 2; k++) {
            for (int d = 0; d < e->in[i].dims_count; d++) {
                const ct_rule_operand *operand = &e->rule.in[i];
                const char *letter = example_is_star(operand) ? "*" : operand->index[d].letter;
                snprintf(word, sizeof word, "%s/%s ", letter, axes[k]);
                if (!is_fixed(e, letter) && !strstr(r->what, word)) fail_msg("%s: %s by axis %s was never drawn (%s)", e->op->name, letter, axes[k], r->what);
            }
            snprintf(word, sizeof word, "P%d/%s ", i, axes[k]);
            int bilinear = i < CT_LINEAR_INPUTS && e->op->flags & CT_OP_LINEAR0 << i && !(e->op->flags & CT_OP_ADDITIVE);
            if (bilinear && !strstr(r->what, word)) fail_msg("%s: operand %d partial on %s was never drawn", e->op->name, i, axes[k]);
        }
}

static void ops_on_meshes_agree_with_one_rank(void **state) {
    (void)state;
    int total = 0;
    for (int k = 0; ct_ops[k]; k++) {
        const ct_op *op = ct_ops[k];
        if (op->check || op->flags & (CT_OP_VIEW | CT_OP_MOVE | CT_OP_MACRO | CT_OP_BLOCKS)) continue;
        record r = {0};
        example e;
        for (int m = 0; m < MESHES; m++)
            for (int seed = 0; seed < 2; seed++) {
                example_init(&e, op, CT_F32, SMALL, (unsigned)seed + 1); // the third seed's sums are not finite, on purpose
                example_run(&e);
                for (int i = 0; i < TRIES; i++) check_once(&e, &meshes[m], &r);
                if (m == MESHES - 1 && seed == 1) check_complete(&e, &r);
                example_deinit(&e);
            }
        printf("%-16s %5d layouts: %s\n", op->name, r.hits, r.what);
        total += r.hits;
    }
    printf("%d in all\n", total);
}

// ---- moves ----
static const char *kind_of(const ct_graph *g, const ct_layout *from, const ct_layout *to) {
    static char text[64];
    text[0] = 0;
    for (int a = 0; a < g->mesh.axes_count; a++) {
        const ct_cut *x = ct_layout_find(from, a), *y = ct_layout_find(to, a);
        const char *f = !x ? "R" : x->kind == CT_CUT_SHARD ? "S" : x->kind == CT_CUT_SUM ? "P" : "Pmax";
        const char *t = !y ? "R" : y->kind == CT_CUT_SHARD ? x && x->kind == CT_CUT_SHARD && x->dim != y->dim ? "S'" : "S" : y->kind == CT_CUT_SUM ? "P" : "Pmax";
        sprintf(text + strlen(text), "%s%s>%s", a ? "," : "", f, t);
    }
    return text;
}

static void moves_between_any_layouts_keep_the_value(void **state) {
    (void)state;
    static const ct_mesh grids[] = {{1, {{"a", 2}}}, {1, {{"b", 3}}}, {2, {{"a", 2}, {"b", 3}}}, {2, {{"a", 4}, {"b", 2}}}};
    char seen[6000] = "";
    int kinds = 0;
    for (int i = 0; i < 6000; i++) {
        const ct_mesh *mesh = &grids[below(4)];
        ct_type type = {.dtype = CT_F32, .dims_count = 1 + below(3)};
        for (int d = 0; d < type.dims_count; d++) type.dims[d] = ct_dim_make((char[]){(char)('x' + d), 0}, 1 + below(9)); // smaller than the cut as well
        ct_graph g;
        ct_graph_init(&g, "moves");
        g.mesh = *mesh;
        for (int d = 0; d < type.dims_count; d++) ct_graph_role(&g, type.dims[d].name, CT_ROLE_NONE);
        ct_value x = ct_build_input(&g, CT_FEED, "x", type);
        g.values[x.id].layout = random_layout(mesh, &type, 1);
        if (below(4) == 0) // a maximum instead
            for (int k = 0; k < g.values[x.id].layout.count; k++)
                if (g.values[x.id].layout.cuts[k].kind == CT_CUT_SUM) g.values[x.id].layout.cuts[k].kind = CT_CUT_MAX;
        ct_layout target = random_layout(mesh, &type, 0);
        // One kind of change on all axes that sum, as placement's moves are: what stays partial stays so.
        int node = ct_build_node(&g, ct_op_find("reshard"), 1, &x, NULL, NULL);
        ct_value y = ct_node_output(&g, node, 0);
        g.values[y.id].layout = target;
        unsigned sums = ct_layout_axes(&g.values[x.id].layout, CT_CUT_SUM) | ct_layout_axes(&g.values[x.id].layout, CT_CUT_MAX);
        unsigned moved = ct_move_axes(&g, &g.nodes[node]);
        if (!sums || (moved & ~sums) == 0) { // exec adds whole parts: sums go alone
            all_ranks ranks;
            double whole[800], got[800];
            for (int k = 0; k < ct_type_elems(&type); k++) whole[k] = below(1000) / 8.0;
            ranks_open(&ranks, &g);
            ranks_scatter(&ranks, x.id, whole, &random_state);
            ranks_run_node(&ranks, node);
            ranks_gather(&ranks, y.id, got);
            for (int k = 0; k < ct_type_elems(&type); k++)
                if (!(fabs(got[k] - whole[k]) <= 1e-9)) fail_msg("a move on %d ranks: element %d is %g, was %g", ranks.ranks, k, got[k], whole[k]);
            ranks_close(&ranks);
            char word[80];
            snprintf(word, sizeof word, " %s ", kind_of(&g, &g.values[x.id].layout, &target));
            if (!strstr(seen, word) && strlen(seen) + 80 < sizeof seen) strcat(seen, word), kinds++;
        }
        ct_graph_deinit(&g);
    }
    printf("%d kinds of moves: %s\n", kinds, seen);
    static const char *const wanted[] = {" S>R ", " R>S ", " P>R ", " P>S ", " S>S' ", " Pmax>R ", " S>S,S>R ", " P>S,P>S ", " S>R,S>R "};
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++)
        if (!strstr(seen, wanted[i])) fail_msg("the move%swas never drawn", wanted[i]);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ops_on_meshes_agree_with_one_rank),
        cmocka_unit_test(moves_between_any_layouts_keep_the_value),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
