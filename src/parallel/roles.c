// The one table that says what an axis may cut, and how sources lie.
#include "parallel/place.h"

#include <string.h>

static const struct {
    const char *axis;
    ct_role role;
    ct_may may;
} table[] = {
    {"dp_replicate", CT_ROLE_BATCH, CT_MAY}, {"dp_shard", CT_ROLE_BATCH, CT_MAY}, {"cp", CT_ROLE_SEQUENCE, CT_MAY},
    {"tp", CT_ROLE_HEADS, CT_MAY},           {"tp", CT_ROLE_HIDDEN, CT_MAY},      {"tp", CT_ROLE_VOCABULARY, CT_MAY},
    {"tp", CT_ROLE_SEQUENCE, CT_MAY_BETWEEN},
};

// Axes that cut state along its first dim as well, outermost first: all that hold the same weights.
static const char *const state_axes[] = {"dp_shard", "cp"};

ct_may ct_axis_may_cut(const ct_parallel *p, int axis, ct_role role, int weight) {
    const char *name = p->mesh.axes[axis].name;
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        if (table[i].role != role || strcmp(table[i].axis, name)) continue;
        if (table[i].may == CT_MAY_BETWEEN && !p->sequence_parallel) return CT_MAY_NOT;
        if (role == CT_ROLE_VOCABULARY && !p->loss_parallel && !weight) return CT_MAY_NOT;
        return table[i].may;
    }
    return CT_MAY_NOT;
}

static ct_layout by_roles(const ct_graph *g, const ct_parallel *p, const ct_type *type, int weight, ct_may least) {
    ct_layout layout = {.partial = CT_F32};
    for (int d = 0; d < type->dims_count; d++)
        for (int a = 0; a < p->mesh.axes_count; a++)
            if (!ct_layout_find(&layout, a) && ct_axis_may_cut(p, a, ct_graph_role_of(g, type->dims[d].name), weight) >= least)
                ct_layout_add(&layout, a, CT_CUT_SHARD, d);
    return layout;
}

ct_layout ct_layout_of_feed(const ct_graph *g, const ct_parallel *p, const ct_type *type) { return by_roles(g, p, type, 0, CT_MAY); }

ct_layout ct_layout_of_residual(const ct_graph *g, const ct_parallel *p, const ct_type *type) {
    return by_roles(g, p, type, 0, CT_MAY_BETWEEN);
}

ct_layout ct_layout_of_weight(const ct_graph *g, const ct_parallel *p, const ct_type *type) {
    ct_layout layout = by_roles(g, p, type, 1, CT_MAY);
    for (size_t i = 0; type->dims_count > 0 && i < sizeof state_axes / sizeof *state_axes; i++) {
        int axis = ct_mesh_find(&p->mesh, state_axes[i]);
        if (axis >= 0 && !ct_layout_find(&layout, axis)) ct_layout_add(&layout, axis, CT_CUT_SHARD, 0);
    }
    return layout;
}

ct_layout ct_layout_of_accumulator(const ct_parallel *p, const ct_layout *part) {
    unsigned sums = ct_layout_axes(part, CT_CUT_SUM);
    ct_layout layout = *part;
    for (int a = 0; a < p->mesh.axes_count; a++)
        if (sums >> a & 1) ct_layout_remove(&layout, a);
    for (size_t i = 0; i < sizeof state_axes / sizeof *state_axes; i++) {
        int axis = ct_mesh_find(&p->mesh, state_axes[i]);
        if (axis < 0 || !(sums >> axis & 1)) continue;
        ct_layout_add(&layout, axis, CT_CUT_SHARD, 0);
        sums &= ~(1u << axis);
    }
    for (int a = 0; a < p->mesh.axes_count; a++)
        if (sums >> a & 1) ct_layout_add(&layout, a, CT_CUT_SHARD, 0);
    return layout;
}
