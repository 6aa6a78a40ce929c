#include "ranks.h"
#include "graph/op.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static double uniform(uint64_t *random) {
    *random = *random * 6364136223846793005u + 1442695040888963407u;
    return (double)(*random >> 11) * 0x1p-52 - 1;
}

void ranks_open(all_ranks *r, const ct_graph *placed) {
    r->placed = placed;
    r->ranks = ct_mesh_ranks(&placed->mesh);
    r->local = ct_calloc((size_t)r->ranks, sizeof *r->local);
    r->values = ct_calloc((size_t)r->ranks, sizeof *r->values);
    for (int i = 0; i < r->ranks; i++) {
        ct_status status = ct_graph_localise(placed, i, &r->local[i]);
        if (status) fail_msg("%s", ct_error_text(status));
        ct_reference_init(&r->values[i], &r->local[i]);
    }
}

void ranks_close(all_ranks *r) {
    for (int i = 0; i < r->ranks; i++) {
        ct_reference_deinit(&r->values[i]);
        ct_graph_deinit(&r->local[i]);
    }
    free(r->local);
    free(r->values);
}

// ---- elements of boxes ----
static ct_region region_of(const all_ranks *r, int value, int rank) {
    const ct_value_info *v = &r->placed->values[value];
    int64_t extents[CT_MAX_DIMS];
    for (int d = 0; d < v->type.dims_count; d++) extents[d] = v->type.dims[d].extent;
    return ct_layout_box(&r->placed->mesh, &v->layout, v->type.dims_count, extents, rank);
}

static int64_t elements(const int64_t *extent, int dims) {
    int64_t n = 1;
    for (int d = 0; d < dims; d++) n *= extent[d];
    return n;
}

// Element i of a box → its place in a tensor of these extents, where the box begins at `offset`.
static int64_t place(int64_t i, const int64_t *extent, const int64_t *offset, const int64_t *whole, int dims) {
    int64_t at = 0, stride = 1;
    for (int d = dims - 1; d >= 0; d--) {
        at += (offset[d] + i % extent[d]) * stride;
        i /= extent[d];
        stride *= whole[d];
    }
    return at;
}

static void whole_extents(const all_ranks *r, int value, int64_t *out) {
    const ct_type *type = &r->placed->values[value].type;
    for (int d = 0; d < type->dims_count; d++) out[d] = type->dims[d].extent;
}

void ranks_scatter(all_ranks *r, int value, const double *whole, uint64_t *random) {
    const ct_layout *layout = &r->placed->values[value].layout;
    int dims = r->placed->values[value].type.dims_count;
    unsigned sums = ct_layout_axes(layout, CT_CUT_SUM), maxima = ct_layout_axes(layout, CT_CUT_MAX);
    int64_t extents[CT_MAX_DIMS];
    whole_extents(r, value, extents);
    for (int rank = 0; rank < r->ranks; rank++) {
        ct_region box = region_of(r, value, rank);
        double *part = r->values[rank].values[value];
        int group[64], count = ct_mesh_group(&r->placed->mesh, rank, sums | maxima, group);
        for (int64_t i = 0; i < elements(box.extent, dims); i++) {
            double x = whole[place(i, box.extent, box.offset, extents, dims)];
            if (!(sums | maxima)) {
                part[i] = x;
                continue;
            }
            // Part k of an element is a function of the element and k, so that all ranks that hold it agree.
            double parts[64], rest = x;
            uint64_t seed = *random + (uint64_t)place(i, box.extent, box.offset, extents, dims) * 977;
            int digits = r->placed->values[value].type.dtype == CT_I64; // whole numbers: the last has them all
            for (int k = 0; k + 1 < count; k++) rest -= parts[k] = digits ? 0 : uniform(&seed);
            parts[count - 1] = rest;
            int me = 0;
            while (group[me] != rank) me++;
            part[i] = maxima ? x - (me == (int)(seed % (uint64_t)count) ? 0 : fabs(parts[me])) : parts[me];
        }
    }
    uniform(random);
}

static void run_move(all_ranks *r, int n) {
    const ct_graph *g = r->placed;
    const ct_node *node = &g->nodes[n];
    int moved = node->inputs[ct_moved_operand(node)], out = node->outputs[0], dims = g->values[out].type.dims_count;
    unsigned axes = ct_move_axes(g, node);
    int is_max = (ct_layout_axes(&g->values[moved].layout, CT_CUT_MAX) & axes) != 0;
    int is_sum = (ct_layout_axes(&g->values[moved].layout, CT_CUT_SUM) & axes) != 0;
    for (int rank = 0; rank < r->ranks; rank++) {
        ct_piece pieces[64];
        int count = ct_move_pieces(g, node, rank, pieces);
        ct_region mine = region_of(r, out, rank);
        double *to = r->values[rank].values[out];
        int64_t total = elements(mine.extent, dims), covered = 0;
        for (int64_t i = 0; i < total; i++) to[i] = NAN;
        if (node->inputs_count > 1)
            memcpy(to, r->values[rank].values[node->inputs[0]], sizeof *to * (size_t)total);
        int adds = node->inputs_count > 1 && r->values[rank].values[node->inputs[2]][0] == 0;
        for (int p = 0; p < count; p++) {
            ct_region theirs = region_of(r, moved, pieces[p].rank);
            const double *from = r->values[pieces[p].rank].values[moved];
            for (int64_t i = 0; i < elements(pieces[p].extent, dims); i++, covered++) {
                double x = from[place(i, pieces[p].extent, pieces[p].from, theirs.extent, dims)];
                double *y = &to[place(i, pieces[p].extent, pieces[p].to, mine.extent, dims)];
                if ((!is_sum && !is_max) || (p == 0 && !adds)) *y = x;
                else *y = is_max ? fmax(*y, x) : *y + x;
            }
        }
        if (!is_sum && !is_max) assert_int_equal(covered, total); // pieces tile what the rank gets
    }
}

void ranks_run_node(all_ranks *r, int n) {
    if (r->placed->nodes[n].op->flags & CT_OP_MOVE) {
        run_move(r, n);
        return;
    }
    for (int rank = 0; rank < r->ranks; rank++) ct_reference_node(&r->local[rank], n, &r->values[rank], 0);
}

void ranks_gather(const all_ranks *r, int value, double *whole) {
    const ct_layout *layout = &r->placed->values[value].layout;
    int dims = r->placed->values[value].type.dims_count;
    unsigned sums = ct_layout_axes(layout, CT_CUT_SUM), maxima = ct_layout_axes(layout, CT_CUT_MAX), shards = ct_layout_axes(layout, CT_CUT_SHARD);
    int64_t extents[CT_MAX_DIMS];
    whole_extents(r, value, extents);
    int64_t n = elements(extents, dims);
    char *seen = ct_calloc((size_t)n + 1, 1);
    for (int rank = 0; rank < r->ranks; rank++) {
        int speaks = 1; // of ranks that hold the same, one
        for (int a = 0; a < r->placed->mesh.axes_count; a++)
            if (!((sums | maxima | shards) >> a & 1) && ct_mesh_coord(&r->placed->mesh, rank, a)) speaks = 0;
        ct_region box = region_of(r, value, rank);
        const double *part = r->values[rank].values[value];
        for (int64_t i = 0; i < elements(box.extent, dims); i++) {
            int64_t at = place(i, box.extent, box.offset, extents, dims);
            if (!speaks) {
                if (!sums && !maxima && memcmp(&whole[at], &part[i], sizeof *part)) fail_msg("ranks hold different copies");
                continue;
            }
            if (!seen[at]) whole[at] = part[i];
            else whole[at] = maxima ? fmax(whole[at], part[i]) : whole[at] + part[i];
            seen[at] = 1;
        }
    }
    for (int64_t i = 0; i < n; i++) assert_true(seen[i]);
    free(seen);
}
