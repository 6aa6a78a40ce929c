// What a rank holds of a state, and the few numbers that ranks tell one another between programs.
#include "trainer_parts.h"
#include "base/wide.h"
#include "graph/layout.h"

#include <string.h>

static const ct_value_info *find_state(const ct_step *step, const char *name) {
    static const ct_program first[] = {CT_PROGRAM_UPDATE, CT_PROGRAM_MICRO, CT_PROGRAM_PROLOGUE, CT_PROGRAM_GENERATE, CT_PROGRAM_EVAL};
    for (int i = 0; i < CT_PROGRAMS; i++) {
        int w = i < 5 ? (int)first[i] : i;
        const ct_graph *g = &step->programs[w];
        int input = step->has[w] ? ct_graph_find_input(g, name) : -1;
        if (input >= 0) return &g->values[g->inputs[input].value];
    }
    return NULL;
}

int ct_state_is_here(const ct_step *step, const char *name) { return find_state(step, name) != NULL; }

// Of the ranks that hold the same of a value, is this the one that speaks for it? Those of other pipeline stages hold others.
static int speaks_for(const ct_mesh *mesh, int rank, const ct_value_info *v) {
    if (v->hint == CT_HINT_GUEST) return 0;
    for (int a = 0; a < mesh->axes_count; a++)
        if (strcmp(mesh->axes[a].name, "pp") && !ct_layout_find(&v->layout, a) && ct_mesh_coord(mesh, rank, a)) return 0;
    return 1;
}

ct_region ct_region_of_state(const ct_step *step, int rank, const char *name, int *out_owner) {
    const ct_value_info *v = find_state(step, name);
    CT_ASSERT(v, "no program has the state %s", name);
    const ct_mesh *mesh = ct_step_mesh(step);
    int64_t extents[CT_MAX_DIMS];
    for (int d = 0; d < v->type.dims_count; d++) extents[d] = v->type.dims[d].extent;
    *out_owner = speaks_for(mesh, rank, v);
    return ct_layout_box(mesh, &v->layout, v->type.dims_count, extents, rank);
}

ct_status ct_trainer_agree(ct_trainer *t, ct_status mine) { return t->comm ? ct_comm_agree(t->comm, mine) : mine; }

ct_status ct_loss_of_all(ct_trainer *t, double *out_sum) {
    int64_t digits[CT_WIDE_DIGITS] = {0};
    const void *mine = ct_exec_data(t->exec, "loss_sum");
    if (mine) memcpy(digits, mine, sizeof digits);
    if (t->comm) {
        if (mine && !speaks_for(&t->options.parallel.mesh, t->rank, find_state(&t->step, "loss_sum"))) memset(digits, 0, sizeof digits);
        CT_TRY(ct_comm_sum_i64(t->comm, digits, CT_WIDE_DIGITS));
    }
    *out_sum = ct_wide_to_double(digits);
    return CT_OK;
}

ct_status ct_count_of_all(ct_trainer *t, int64_t *count) {
    if (!t->comm) return CT_OK;
    CT_TRY(ct_comm_sum_i64(t->comm, count, 1));
    *count /= ct_comm_size(t->comm) / t->share.data_ranks; // ranks of one data rank have the same sequences
    return CT_OK;
}
