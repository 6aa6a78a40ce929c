// From degrees to a mesh. Axes of size 1 are left out: what they would cut is whole, what they would move stays.
#include "parallel/place.h"

#include <stdio.h>
#include <string.h>

static void add_axis(ct_mesh *mesh, const char *name, int64_t size) {
    if (size <= 1) return;
    ct_axis *axis = &mesh->axes[mesh->axes_count++];
    *axis = (ct_axis){.size = (int)size};
    snprintf(axis->name, sizeof axis->name, "%s", name);
}

ct_status ct_mesh_make(ct_degrees d, int ranks, ct_mesh *out_mesh) {
    int64_t others = d.pp * d.dp_replicate * d.cp * d.tp;
    CT_CHECK(others >= 1 && others <= ranks && ranks % others == 0, CT_INVALID,
             "%d rank%s for pp %lld × dp_replicate %lld × cp %lld × tp %lld = %lld: a multiple of that is wanted", ranks, ranks == 1 ? "" : "s",
             (long long)d.pp, (long long)d.dp_replicate, (long long)d.cp, (long long)d.tp, (long long)others);
    int64_t shard = d.dp_shard < 0 ? ranks / others : d.dp_shard;
    CT_CHECK(shard * others == ranks, CT_INVALID, "%d rank%s for pp %lld × dp_replicate %lld × dp_shard %lld × cp %lld × tp %lld = %lld",
             ranks, ranks == 1 ? "" : "s", (long long)d.pp, (long long)d.dp_replicate, (long long)shard, (long long)d.cp, (long long)d.tp,
             (long long)(shard * others));
    *out_mesh = (ct_mesh){0};
    add_axis(out_mesh, "pp", d.pp);
    add_axis(out_mesh, "dp_replicate", d.dp_replicate);
    add_axis(out_mesh, "dp_shard", shard);
    add_axis(out_mesh, "cp", d.cp);
    add_axis(out_mesh, "tp", d.tp);
    return CT_OK;
}

static unsigned data_axes(const ct_mesh *mesh) {
    unsigned axes = 0;
    for (int a = 0; a < mesh->axes_count; a++)
        if (!strncmp(mesh->axes[a].name, "dp_", 3)) axes |= 1u << a;
    return axes;
}

int ct_mesh_data_ranks(const ct_mesh *mesh) { return ct_mesh_group(mesh, 0, data_axes(mesh), NULL); }

int ct_mesh_data_rank(const ct_mesh *mesh, int rank) {
    int number = 0;
    for (int a = 0; a < mesh->axes_count; a++)
        if (data_axes(mesh) >> a & 1) number = number * mesh->axes[a].size + ct_mesh_coord(mesh, rank, a);
    return number;
}
