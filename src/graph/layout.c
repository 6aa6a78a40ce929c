// Layouts, and what they give each rank. All is integer arithmetic on a mesh of at most eight axes.
#include "graph/layout.h"

#include <string.h>

int ct_mesh_ranks(const ct_mesh *mesh) {
    int ranks = 1;
    for (int a = 0; a < mesh->axes_count; a++) ranks *= mesh->axes[a].size;
    return ranks;
}

int ct_mesh_coord(const ct_mesh *mesh, int rank, int axis) {
    for (int a = mesh->axes_count - 1; a > axis; a--) rank /= mesh->axes[a].size;
    return rank % mesh->axes[axis].size;
}

int ct_mesh_find(const ct_mesh *mesh, const char *axis) {
    for (int a = 0; a < mesh->axes_count; a++)
        if (!strcmp(mesh->axes[a].name, axis)) return a;
    return -1;
}

int ct_mesh_group(const ct_mesh *mesh, int rank, unsigned axes, int *out_ranks) {
    int count = 1, stride = 1, base = rank;
    for (int a = mesh->axes_count - 1; a >= 0; a--) {
        if (axes >> a & 1) {
            base -= ct_mesh_coord(mesh, rank, a) * stride;
            count *= mesh->axes[a].size;
        }
        stride *= mesh->axes[a].size;
    }
    for (int i = 0; out_ranks && i < count; i++) {
        int left = i, r = base;
        stride = 1;
        for (int a = mesh->axes_count - 1; a >= 0; a--) {
            if (axes >> a & 1) {
                r += left % mesh->axes[a].size * stride;
                left /= mesh->axes[a].size;
            }
            stride *= mesh->axes[a].size;
        }
        out_ranks[i] = r;
    }
    return count;
}

const ct_cut *ct_layout_find(const ct_layout *layout, int axis) {
    for (int i = 0; i < layout->count; i++)
        if (layout->cuts[i].axis == axis) return &layout->cuts[i];
    return NULL;
}

// Does a come before b, not counting nesting?
static int comes_before(const ct_cut *a, const ct_cut *b) {
    int a_shard = a->kind == CT_CUT_SHARD, b_shard = b->kind == CT_CUT_SHARD;
    if (a_shard != b_shard) return a_shard;
    return a_shard ? a->dim < b->dim : a->axis < b->axis;
}

void ct_layout_add(ct_layout *layout, int axis, ct_cut_kind kind, int dim) {
    ct_cut cut = {(uint8_t)axis, (uint8_t)kind, (uint8_t)(kind == CT_CUT_SHARD ? dim : 0)};
    CT_ASSERT(layout->count < CT_MAX_AXES && !ct_layout_find(layout, axis), "axis %d twice", axis);
    int at = layout->count++;
    for (; at > 0 && comes_before(&cut, &layout->cuts[at - 1]); at--) layout->cuts[at] = layout->cuts[at - 1];
    layout->cuts[at] = cut;
}

void ct_layout_remove(ct_layout *layout, int axis) {
    int kept = 0;
    for (int i = 0; i < layout->count; i++)
        if (layout->cuts[i].axis != axis) layout->cuts[kept++] = layout->cuts[i];
    memset(layout->cuts + kept, 0, sizeof *layout->cuts * (size_t)(CT_MAX_AXES - kept));
    layout->count = (uint8_t)kept;
}

int ct_layout_equal(const ct_layout *a, const ct_layout *b) {
    if (a->count != b->count || memcmp(a->cuts, b->cuts, sizeof *a->cuts * a->count)) return 0;
    return !ct_layout_axes(a, CT_CUT_SUM) || a->partial == b->partial;
}

unsigned ct_layout_axes(const ct_layout *layout, ct_cut_kind kind) {
    unsigned axes = 0;
    for (int i = 0; i < layout->count; i++)
        if (layout->cuts[i].kind == kind) axes |= 1u << layout->cuts[i].axis;
    return axes;
}

unsigned ct_layout_axes_of_dim(const ct_layout *layout, int dim) {
    unsigned axes = 0;
    for (int i = 0; i < layout->count; i++)
        if (layout->cuts[i].kind == CT_CUT_SHARD && layout->cuts[i].dim == dim) axes |= 1u << layout->cuts[i].axis;
    return axes;
}

void ct_cut_range(int64_t whole, int parts, int index, int64_t *offset, int64_t *extent) {
    int64_t most = (whole + parts - 1) / parts, begin = most * index < whole ? most * index : whole;
    *offset += begin;
    *extent = whole - begin < most ? whole - begin : most;
}

ct_region ct_layout_box(const ct_mesh *mesh, const ct_layout *layout, int dims_count, const int64_t *extents, int rank) {
    ct_region box = {0};
    for (int d = 0; d < dims_count; d++) box.extent[d] = extents[d];
    for (int i = 0; i < layout->count; i++) {
        const ct_cut *cut = &layout->cuts[i];
        if (cut->kind != CT_CUT_SHARD) continue;
        ct_cut_range(box.extent[cut->dim], mesh->axes[cut->axis].size, ct_mesh_coord(mesh, rank, cut->axis), &box.offset[cut->dim],
                     &box.extent[cut->dim]);
    }
    return box;
}
