// Views over a mesh: which cuts pass, and that what a rank's view shows is its part of the whole one. Along a dim that is itself cut, a
// slice is one of each rank's own part, so slices joined again are what was sliced.
#include "graph/local.h"
#include "ops/interpret.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

// A program of x[B T N D] on axes a and b.
typedef struct {
    ct_graph g;
    ct_value x;
} program;

static program program_of(int a, int b, int64_t B, int64_t T, int64_t N) {
    program p;
    ct_graph_init(&p.g, "p");
    p.g.mesh = (ct_mesh){.axes_count = 2, .axes = {{"a", a}, {"b", b}}};
    const ct_dim dims[] = {ct_dim_make("B", B), ct_dim_make("T", T), ct_dim_make("N", N), ct_dim_make("D", 3)};
    p.x = ct_build_input(&p.g, CT_FEED, "x", ct_type_make(CT_F32, 4, dims));
    return p;
}

// dim_a, dim_b: what the axes cut of x, -1 nothing.
static void cut(program *p, int dim_a, int dim_b) {
    ct_layout *layout = &p->g.values[p->x.id].layout;
    *layout = (ct_layout){0};
    if (dim_a >= 0) ct_layout_add(layout, 0, CT_CUT_SHARD, dim_a);
    if (dim_b >= 0) ct_layout_add(layout, 1, CT_CUT_SHARD, dim_b);
}

static ct_status infer(program *p) {
    CT_TRY(ct_graph_status(&p->g));
    for (int n = 0; n < p->g.nodes_count; n++) {
        ct_layout layouts[CT_MAX_OUTPUTS];
        CT_TRY(ct_op_infer_layouts(&p->g, &p->g.nodes[n], layouts));
        p->g.values[p->g.nodes[n].outputs[0]].layout = layouts[0];
    }
    return CT_OK;
}

// Copies between a whole value and what a rank has of it, `to_whole` or from it.
static void copy_box(const ct_graph *placed, int value, int rank, double *whole, double *part, int to_whole) {
    const ct_value_info *v = &placed->values[value];
    int64_t extents[CT_MAX_DIMS] = {0}, n = 1;
    int dims = v->type.dims_count;
    for (int d = 0; d < dims; d++) extents[d] = v->type.dims[d].extent;
    ct_region box = ct_layout_box(&placed->mesh, &v->layout, dims, extents, rank);
    for (int d = 0; d < dims; d++) n *= box.extent[d];
    for (int64_t i = 0; i < n; i++) {
        int64_t rest = i, at = 0, stride = 1;
        for (int d = dims - 1; d >= 0; d--) {
            at += (box.offset[d] + rest % box.extent[d]) * stride;
            rest /= box.extent[d];
            stride *= extents[d];
        }
        *(to_whole ? &whole[at] : &part[i]) = to_whole ? part[i] : whole[at];
    }
}

// Runs the program on all ranks from x = 0, 1, 2, … and puts y together.
static double *run_ranks(const program *p, ct_value y) {
    int64_t n = ct_type_elems(ct_value_type(&p->g, p->x)), m = ct_type_elems(ct_value_type(&p->g, y));
    double *x = ct_malloc((size_t)n * sizeof *x), *whole = ct_calloc((size_t)m + 1, sizeof *whole);
    for (int64_t i = 0; i < n; i++) x[i] = (double)i;
    for (int rank = 0; rank < ct_mesh_ranks(&p->g.mesh); rank++) {
        ct_graph local;
        ct_reference_values values;
        assert_null(ct_graph_localise(&p->g, rank, &local));
        ct_reference_init(&values, &local);
        copy_box(&p->g, p->x.id, rank, x, values.values[p->x.id], 0);
        ct_reference_run(&local, &values, 0);
        copy_box(&p->g, y.id, rank, whole, values.values[y.id], 1);
        ct_reference_deinit(&values);
        ct_graph_deinit(&local);
    }
    free(x);
    return whole;
}

// With nothing cut: one rank's.
static void assert_as_one_rank(program *p, ct_value y, int dim_a, int dim_b) {
    cut(p, -1, -1);
    assert_null(infer(p));
    double *want = run_ranks(p, y);
    cut(p, dim_a, dim_b);
    ct_status status = infer(p);
    if (status) fail_msg("%s", ct_error_text(status));
    double *got = run_ranks(p, y);
    assert_memory_equal(got, want, sizeof *got * (size_t)ct_type_elems(ct_value_type(&p->g, y)));
    free(want), free(got);
}

static void assert_refused(program *p, int dim_a, int dim_b, const char *why) {
    cut(p, dim_a, dim_b);
    ct_status status = infer(p);
    assert_non_null(status);
    if (!strstr(ct_error_text(status), why)) fail_msg("%s", ct_error_text(status));
}

static unsigned axes_of(const program *p, ct_value y, int dim) { return ct_layout_axes_of_dim(&p->g.values[y.id].layout, dim); }

static void a_dim_that_is_split_is_cut_in_its_outermost_factor(void **state) {
    (void)state;
    for (int size = 2; size <= 3; size++) {
        program p = program_of(size, 2, 5, 7, 12);
        const ct_dim into[] = {ct_dim_make("G", 6), ct_dim_make("Q", 2)};
        ct_value y = ct_split(&p.g, p.x, 2, 2, into);
        assert_as_one_rank(&p, y, 2, -1);
        assert_int_equal(axes_of(&p, y, 2), 1);
        assert_as_one_rank(&p, y, 0, 3); // uneven, beside it
        assert_int_equal(axes_of(&p, y, 0), 1);
        assert_int_equal(axes_of(&p, y, 4), 2);
        assert_as_one_rank(&p, y, 1, 2);
        if (size == 3) assert_as_one_rank(&p, y, 2, 2); // both, nested
        else assert_refused(&p, 2, 2, "G=6");           // into 4
        ct_graph_deinit(&p.g);
    }
}

static void only_the_outermost_of_merged_dims_may_be_cut(void **state) {
    (void)state;
    program p = program_of(2, 3, 4, 6, 5);
    ct_value y = ct_merge(&p.g, p.x, 1, 2, "M");
    assert_as_one_rank(&p, y, 1, -1);
    assert_int_equal(axes_of(&p, y, 1), 1);
    assert_as_one_rank(&p, y, 1, 1);
    assert_as_one_rank(&p, y, 0, 3);
    assert_int_equal(axes_of(&p, y, 2), 2);
    assert_refused(&p, 2, -1, "N");
    assert_refused(&p, 1, 2, "N");
    ct_graph_deinit(&p.g);
    p = program_of(2, 3, 4, 7, 6); // 7 rows are 4 and 3, of 42 it would be 21 and 21
    y = ct_merge(&p.g, p.x, 1, 2, "M");
    assert_refused(&p, 1, -1, "T=7");
    ct_graph_deinit(&p.g);
}

static void slices_and_joins_of_other_dims_than_the_cut_one_are_those_of_one_rank(void **state) {
    (void)state;
    program p = program_of(2, 3, 5, 8, 4);
    const ct_value parts[] = {ct_slice(&p.g, p.x, 1, 5, 3, "T"), ct_slice(&p.g, p.x, 1, 0, 5, "T")};
    ct_value y = ct_concat(&p.g, 2, parts, 1, "T");
    assert_as_one_rank(&p, y, 0, -1);
    assert_as_one_rank(&p, y, 2, 0);
    assert_as_one_rank(&p, parts[0], 3, 0);
    ct_graph_deinit(&p.g);
}

static void slices_of_a_cut_dim_are_of_each_ranks_own_part(void **state) {
    (void)state;
    program p = program_of(2, 3, 2, 12, 4);
    const ct_value parts[] = {ct_slice(&p.g, p.x, 1, 0, 6, "T"), ct_slice(&p.g, p.x, 1, 6, 6, "T")};
    ct_value y = ct_concat(&p.g, 2, parts, 1, "T");
    assert_as_one_rank(&p, y, 1, -1); // joined: all of x
    assert_as_one_rank(&p, y, 0, 1);
    assert_as_one_rank(&p, y, 1, 1);
    cut(&p, 1, -1);
    assert_null(infer(&p));
    double *got = run_ranks(&p, parts[1]); // of rank 0 tokens 3, 4, 5, of rank 1 tokens 9, 10, 11
    for (int64_t t = 0; t < 6; t++) assert_true(got[t * 12] == (double)((t < 3 ? 3 + t : 6 + t) * 12));
    free(got);
    ct_graph_deinit(&p.g);
    p = program_of(2, 3, 2, 12, 4);
    ct_slice(&p.g, p.x, 1, 3, 6, "T");
    assert_refused(&p, 1, -1, "T"); // the start would be 1 1/2
    ct_graph_deinit(&p.g);
}

static void a_part_must_be_one_run_in_each_ranks_memory(void **state) {
    (void)state;
    program p = program_of(2, 3, 2, 12, 4);
    ct_slice(&p.g, p.x, 1, 4, 4, "T");
    assert_null(ct_graph_status(&p.g)); // a whole program may say so
    ct_status status = ct_view_check_memory(&p.g, &p.g.nodes[0]);
    assert_non_null(status);
    assert_non_null(strstr(ct_error_text(status), "B=2"));
    cut(&p, 0, -1);
    assert_null(infer(&p));
    ct_graph local;
    assert_null(ct_graph_localise(&p.g, 1, &local));
    assert_null(ct_view_check_memory(&local, &local.nodes[0]));
    ct_graph_deinit(&local);
    ct_graph_deinit(&p.g);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_dim_that_is_split_is_cut_in_its_outermost_factor),
        cmocka_unit_test(only_the_outermost_of_merged_dims_may_be_cut),
        cmocka_unit_test(slices_and_joins_of_other_dims_than_the_cut_one_are_those_of_one_rank),
        cmocka_unit_test(slices_of_a_cut_dim_are_of_each_ranks_own_part),
        cmocka_unit_test(a_part_must_be_one_run_in_each_ranks_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
