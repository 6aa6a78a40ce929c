// One rank's view of a placed program. All follows from boxes of global indices: a piece is where what one rank has meets what another wants.
#include "graph/local.h"
#include "graph/op.h"

#include <stdlib.h>
#include <string.h>

static void global_extents(const ct_type *type, int64_t *extents) {
    for (int d = 0; d < type->dims_count; d++) extents[d] = type->dims[d].extent;
}

static void localise_value(const ct_mesh *mesh, int rank, ct_value_info *v) {
    int64_t extents[CT_MAX_DIMS];
    global_extents(&v->type, extents);
    ct_region mine = ct_layout_box(mesh, &v->layout, v->type.dims_count, extents, rank);
    ct_region largest = ct_layout_box(mesh, &v->layout, v->type.dims_count, extents, 0);
    for (int d = 0; d < v->type.dims_count; d++) {
        v->type.dims[d].extent = mine.extent[d];
        v->origin[d] = mine.extent[d] ? mine.offset[d] : 0;
        v->room[d] = largest.extent[d];
    }
    if (ct_layout_axes(&v->layout, CT_CUT_SUM)) v->type.dtype = (ct_dtype)v->layout.partial;
}

static void *copy_of(const void *items, size_t count, size_t size) {
    void *copy = ct_malloc(count * size + 1);
    if (count) memcpy(copy, items, count * size);
    return copy;
}

ct_status ct_graph_localise(const ct_graph *placed, int rank, ct_graph *out) {
    CT_TRY(ct_graph_status(placed));
    ct_graph local = *placed;
    local.arena = (ct_arena){0};
    local.rank = rank;
    local.global = placed;
    local.values = copy_of(placed->values, (size_t)placed->values_count, sizeof *placed->values);
    local.nodes = copy_of(placed->nodes, (size_t)placed->nodes_count, sizeof *placed->nodes);
    local.inputs = copy_of(placed->inputs, (size_t)placed->inputs_count, sizeof *placed->inputs);
    local.outputs = copy_of(placed->outputs, (size_t)placed->outputs_count, sizeof *placed->outputs);
    local.values_capacity = local.values_count;
    local.nodes_capacity = local.nodes_count;
    local.inputs_capacity = local.inputs_count;
    local.outputs_capacity = local.outputs_count;
    for (int v = 0; v < local.values_count; v++) localise_value(&placed->mesh, rank, &local.values[v]);
    for (int n = 0; n < local.nodes_count; n++)
        if (local.nodes[n].op->localise) local.nodes[n].op->localise(placed, &local, &local.nodes[n]);
    *out = local;
    return CT_OK;
}

size_t ct_value_room_bytes(const ct_graph *local, int value) {
    const ct_value_info *v = &local->values[value];
    if (local->rank < 0) return ct_type_bytes(&v->type);
    size_t bytes = ct_dtype_bytes(v->type.dtype);
    for (int d = 0; d < v->type.dims_count; d++) bytes *= (size_t)v->room[d];
    return bytes;
}

// ---- moves ----

// Is the axis' cut in both, with the same cuts around it?
static int is_same(const ct_layout *from, const ct_layout *to, int axis) {
    const ct_cut *a = ct_layout_find(from, axis), *b = ct_layout_find(to, axis);
    if (!a || !b || a->kind != b->kind || a->dim != b->dim) return 0;
    if (a->kind != CT_CUT_SHARD) return 1;
    const ct_cut *x = from->cuts, *y = to->cuts;
    for (;; x++, y++) { // the cuts of this dim from the outermost to this one
        while (x->dim != a->dim || x->kind != CT_CUT_SHARD) x++;
        while (y->dim != a->dim || y->kind != CT_CUT_SHARD) y++;
        if (x->axis != y->axis) return 0;
        if (x == a) return 1;
    }
}

static const ct_value_info *moved_value(const ct_graph *g, const ct_node *move) { return &g->values[move->inputs[ct_moved_operand(move)]]; }

unsigned ct_move_axes(const ct_graph *g, const ct_node *move) {
    if (move->op->flags & CT_OP_ROTATE) return 1u << (int)move->attrs[0];
    const ct_layout *from = &moved_value(g, move)->layout, *to = &g->values[move->outputs[0]].layout;
    unsigned axes = 0;
    for (int i = 0; i < from->count; i++)
        if (!is_same(from, to, from->cuts[i].axis)) axes |= 1u << from->cuts[i].axis;
    return axes;
}

// The rank that is `by` places before on an axis.
static int rank_before(const ct_mesh *mesh, int rank, int axis, int by) {
    int size = mesh->axes[axis].size, stride = 1, coord = ct_mesh_coord(mesh, rank, axis);
    for (int a = mesh->axes_count - 1; a > axis; a--) stride *= mesh->axes[a].size;
    return rank + (((coord - by) % size + size) % size - coord) * stride;
}

static int meet(const ct_region *have, const ct_region *want, int dims, ct_piece *piece) {
    for (int d = 0; d < dims; d++) {
        int64_t begin = have->offset[d] > want->offset[d] ? have->offset[d] : want->offset[d];
        int64_t have_end = have->offset[d] + have->extent[d], want_end = want->offset[d] + want->extent[d];
        int64_t end = have_end < want_end ? have_end : want_end;
        if (end <= begin) return 0;
        piece->from[d] = begin - have->offset[d];
        piece->to[d] = begin - want->offset[d];
        piece->extent[d] = end - begin;
    }
    return 1;
}

int ct_move_pieces(const ct_graph *g, const ct_node *move, int rank, ct_piece *out) {
    const ct_value_info *v = moved_value(g, move);
    const ct_layout *to = &g->values[move->outputs[0]].layout;
    int64_t extents[CT_MAX_DIMS];
    global_extents(&v->type, extents);
    int dims = v->type.dims_count, rotates = (move->op->flags & CT_OP_ROTATE) != 0, count = 0;
    unsigned axes = rotates ? 0 : ct_move_axes(g, move);
    int ranks = ct_mesh_group(&g->mesh, rank, axes, NULL), *group = ct_malloc(sizeof(int) * (size_t)ranks);
    ct_mesh_group(&g->mesh, rank, axes, group);
    if (rotates) group[0] = rank_before(&g->mesh, rank, (int)move->attrs[0], (int)move->attrs[1]);
    ct_region want = ct_layout_box(&g->mesh, to, dims, extents, rotates ? group[0] : rank);
    for (int i = 0; i < ranks; i++) {
        ct_region have = ct_layout_box(&g->mesh, &v->layout, dims, extents, group[i]);
        ct_piece piece = {.rank = group[i]};
        if (meet(&have, &want, dims, &piece)) out[count++] = piece;
    }
    free(group);
    return count;
}

double ct_move_bytes(const ct_graph *g, const ct_node *move, int rank) {
    const ct_value_info *v = moved_value(g, move);
    ct_piece *pieces = ct_malloc(sizeof *pieces * (size_t)ct_mesh_group(&g->mesh, rank, ct_move_axes(g, move), NULL));
    int count = ct_move_pieces(g, move, rank, pieces);
    double size = (double)ct_dtype_bytes(ct_layout_axes(&v->layout, CT_CUT_SUM) ? (ct_dtype)v->layout.partial : v->type.dtype), bytes = 0;
    for (int i = 0; i < count; i++) {
        double elems = pieces[i].rank == rank ? 0 : 1;
        for (int d = 0; d < v->type.dims_count; d++) elems *= (double)pieces[i].extent[d];
        bytes += elems * size;
    }
    free(pieces);
    return bytes;
}

static size_t packed_bytes(const ct_graph *g, const ct_node *move, const ct_piece *piece) {
    const ct_value_info *v = moved_value(g, move);
    size_t bytes = ct_dtype_bytes(ct_layout_axes(&v->layout, CT_CUT_SUM) ? (ct_dtype)v->layout.partial : v->type.dtype);
    for (int d = 0; d < v->type.dims_count; d++) bytes *= (size_t)piece->extent[d];
    return (bytes + 63) & ~(size_t)63;
}

int ct_axes_are_far(const ct_mesh *mesh, unsigned axes, ct_near near) {
    int ranks = ct_mesh_ranks(mesh), per_node = near.per_node > 0 ? near.per_node : 1, far = 0;
    if (!near.count || !axes) return 0;
    int *group = ct_malloc(sizeof(int) * (size_t)ranks);
    for (int r = 0; r < ranks && !far; r++) {
        int count = ct_mesh_group(mesh, r, axes, group);
        far = group[0] / per_node != group[count - 1] / per_node; // ascending
    }
    free(group);
    return far;
}

int ct_box_is_run(const int64_t *extent, const int64_t *tensor, int dims) {
    int d = 0;
    while (d < dims && extent[d] == 1) d++; // then one dim that may be a part, and whole ones
    for (d++; d < dims; d++)
        if (extent[d] != tensor[d]) return 0;
    return 1;
}

size_t ct_move_message_bytes(const ct_graph *g, const ct_node *move, int rank, ct_near near) {
    int count = ct_mesh_group(&g->mesh, rank, ct_move_axes(g, move), NULL), far = 0;
    int *group = ct_malloc(sizeof(int) * (size_t)count);
    ct_mesh_group(&g->mesh, rank, ct_move_axes(g, move), group);
    for (int i = 0; i < count; i++) far += !ct_is_near(near, group[i]);
    ct_piece *pieces = ct_malloc(sizeof *pieces * (size_t)count);
    const ct_value_info *v = moved_value(g, move);
    int64_t extents[CT_MAX_DIMS];
    global_extents(&v->type, extents);
    ct_region operand = ct_layout_box(&g->mesh, &v->layout, v->type.dims_count, extents, rank);
    ct_region result = ct_layout_box(&g->mesh, &g->values[move->outputs[0]].layout, v->type.dims_count, extents, rank);
    unsigned sums = (ct_layout_axes(&v->layout, CT_CUT_SUM) | ct_layout_axes(&v->layout, CT_CUT_MAX)) & ct_move_axes(g, move);
    size_t bytes = 0;
    for (int i = 0; far && i < count; i++) { // readers: this rank, and those it sends to
        if (group[i] != rank && ct_is_near(near, group[i])) continue;
        int n = ct_move_pieces(g, move, group[i], pieces);
        for (int k = 0; k < n; k++) {
            int receives = group[i] == rank, concerned = receives ? !ct_is_near(near, pieces[k].rank) : pieces[k].rank == rank;
            int direct = receives ? !sums && ct_box_is_run(pieces[k].extent, result.extent, v->type.dims_count)
                                  : ct_box_is_run(pieces[k].extent, operand.extent, v->type.dims_count);
            if (concerned && !direct) bytes += packed_bytes(g, move, &pieces[k]);
        }
    }
    free(group);
    free(pieces);
    return bytes;
}
