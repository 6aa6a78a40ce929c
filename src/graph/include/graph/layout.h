// Layouts: how a value lies over the mesh. Per axis it is replicated (not named), cut along a dim (S), a partial sum (P) or a partial
// maximum (Pmax). `{dp_shard: S(B), cp: S(T), tp: P(f32)}`; cuts of one dim nest in the order in which they are written, outermost first.
//
// A placed graph has global types; what one rank holds of a value follows from its layout, the mesh and the rank alone. An uneven cut
// gives every shard ceil(n / k) elements while there are that many: the last ones may hold fewer, or none. Nothing is padded.
#pragma once
#include "base/dtype.h"
#include "base/memory.h"
#include "base/status.h"

#include <stdint.h>

enum { CT_MAX_AXES = 8 };

typedef struct {
    char name[16]; // "dp_shard"
    int size;
} ct_axis;

// Axes outermost first; a rank's coordinates are the digits of its number, the last axis' digit being the lowest.
typedef struct {
    int axes_count;
    ct_axis axes[CT_MAX_AXES];
} ct_mesh;

int ct_mesh_ranks(const ct_mesh *mesh);
int ct_mesh_coord(const ct_mesh *mesh, int rank, int axis);
int ct_mesh_find(const ct_mesh *mesh, const char *axis); // index, -1: none
// Ranks that differ from `rank` on these axes only, ascending, itself included. Returns their number (the product of the axes' sizes);
// out_ranks (may be NULL) has room for them.
int ct_mesh_group(const ct_mesh *mesh, int rank, unsigned axes, int *out_ranks);

typedef enum { CT_CUT_SHARD, CT_CUT_SUM, CT_CUT_MAX } ct_cut_kind;

typedef struct {
    uint8_t axis, kind, dim; // dim of shards only, else 0
} ct_cut;

// Canonical: shards by dim, those of one dim outermost first; then sums and maxima by axis. No axis twice.
typedef struct {
    uint8_t count;
    uint8_t partial; // dtype in which partial sums are stored and moved; looked at where there are any
    ct_cut cuts[CT_MAX_AXES];
} ct_layout;

// What `axis` does to the value; NULL: replicated.
const ct_cut *ct_layout_find(const ct_layout *layout, int axis);
// Adds a cut (innermost of its dim) in its canonical place. The axis must not be in the layout.
void ct_layout_add(ct_layout *layout, int axis, ct_cut_kind kind, int dim);
void ct_layout_remove(ct_layout *layout, int axis); // fine where it isn't there
int ct_layout_equal(const ct_layout *a, const ct_layout *b);
unsigned ct_layout_axes(const ct_layout *layout, ct_cut_kind kind); // bit i: axis i
unsigned ct_layout_axes_of_dim(const ct_layout *layout, int dim);

// A box of global indices.
typedef struct {
    int64_t offset[CT_MAX_DIMS], extent[CT_MAX_DIMS];
} ct_region;

// Takes part number `index` of `parts` of [*offset, *offset + *extent), where *extent is `whole`.
void ct_cut_range(int64_t whole, int parts, int index, int64_t *offset, int64_t *extent);

// What `rank` holds of a value whose dims have these global extents.
ct_region ct_layout_box(const ct_mesh *mesh, const ct_layout *layout, int dims_count, const int64_t *extents, int rank);
