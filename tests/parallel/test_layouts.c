// Layouts by hand: meshes and their groups, what uneven and nested cuts give each rank, and what a move brings to whom. Boxes and pieces are
// also compared with a second answer that goes element by element, over random layouts on meshes of up to four axes.
#include "graph/local.h"
#include "ops/ops.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static uint64_t random_state = 2024;
static int below(int n) {
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (int)((random_state >> 33) % (uint64_t)n);
}

// ---- meshes ----
static const ct_mesh mesh_232 = {3, {{"dp_shard", 2}, {"cp", 3}, {"tp", 2}}};

static void the_last_axis_is_the_lowest_digit_of_a_rank(void **state) {
    (void)state;
    assert_int_equal(ct_mesh_ranks(&mesh_232), 12);
    assert_int_equal(ct_mesh_ranks(&(ct_mesh){0}), 1);
    static const int coords[12][3] = {{0, 0, 0}, {0, 0, 1}, {0, 1, 0}, {0, 1, 1}, {0, 2, 0}, {0, 2, 1},
                                      {1, 0, 0}, {1, 0, 1}, {1, 1, 0}, {1, 1, 1}, {1, 2, 0}, {1, 2, 1}};
    for (int r = 0; r < 12; r++)
        for (int a = 0; a < 3; a++) assert_int_equal(ct_mesh_coord(&mesh_232, r, a), coords[r][a]);
    assert_int_equal(ct_mesh_find(&mesh_232, "cp"), 1);
    assert_int_equal(ct_mesh_find(&mesh_232, "dp"), -1);
}

static void a_group_is_the_ranks_that_differ_on_its_axes_alone(void **state) {
    (void)state;
    enum { DP = 1, CP = 2, TP = 4 };
    static const struct {
        int rank;
        unsigned axes;
        int count, ranks[12];
    } cases[] = {{7, 0, 1, {7}},         {7, DP, 2, {1, 7}},         {7, CP, 3, {7, 9, 11}},
                 {7, TP, 2, {6, 7}},     {7, DP | TP, 4, {0, 1, 6, 7}}, {4, CP | TP, 6, {0, 1, 2, 3, 4, 5}},
                 {4, DP | CP, 6, {0, 2, 4, 6, 8, 10}}, {5, DP | CP | TP, 12, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int got[12];
        assert_int_equal(ct_mesh_group(&mesh_232, cases[i].rank, cases[i].axes, NULL), cases[i].count);
        assert_int_equal(ct_mesh_group(&mesh_232, cases[i].rank, cases[i].axes, got), cases[i].count);
        assert_memory_equal(got, cases[i].ranks, sizeof(int) * (size_t)cases[i].count);
    }
}

// ---- cuts ----
static void uneven_cuts_leave_the_last_ranks_fewer_or_nothing(void **state) {
    (void)state;
    static const struct {
        int64_t whole;
        int parts;
        int64_t extents[6];
    } cases[] = {{10, 4, {3, 3, 3, 1}}, {5, 4, {2, 2, 1, 0}}, {2, 4, {1, 1, 0, 0}}, {0, 3, {0, 0, 0}},
                 {7, 3, {3, 3, 1}},     {12, 6, {2, 2, 2, 2, 2, 2}}, {7, 6, {2, 2, 2, 1, 0, 0}}, {9, 1, {9}}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int64_t next = 100;
        for (int k = 0; k < cases[i].parts; k++) {
            int64_t offset = 100, extent = cases[i].whole;
            ct_cut_range(cases[i].whole, cases[i].parts, k, &offset, &extent);
            assert_int_equal(extent, cases[i].extents[k]);
            assert_int_equal(offset, next);
            next += extent;
        }
    }
}

static void cuts_of_one_dim_nest_outermost_first(void **state) {
    (void)state;
    const ct_mesh mesh = {2, {{"a", 2}, {"b", 3}}};
    const int64_t ten = 10;
    // rank 3a + b. a outside: halves of 5 in 2, 2, 1. b outside: 4, 4, 2, each in halves.
    static const int64_t begin[2][6] = {{0, 2, 4, 5, 7, 9}, {0, 4, 8, 2, 6, 9}}, extent[2][6] = {{2, 2, 1, 2, 2, 1}, {2, 2, 1, 2, 2, 1}};
    for (int order = 0; order < 2; order++) {
        ct_layout layout = {0};
        ct_layout_add(&layout, order, CT_CUT_SHARD, 0);
        ct_layout_add(&layout, 1 - order, CT_CUT_SHARD, 0);
        for (int r = 0; r < 6; r++) {
            ct_region box = ct_layout_box(&mesh, &layout, 1, &ten, r);
            assert_int_equal(box.offset[0], begin[order][r]);
            assert_int_equal(box.extent[0], extent[order][r]);
        }
    }
}

static void a_layout_has_one_form_but_for_the_order_of_nesting(void **state) {
    (void)state;
    ct_layout a = {.partial = CT_F32}, b = {.partial = CT_BF16};
    ct_layout_add(&a, 3, CT_CUT_SUM, 7); // a sum has no dim
    ct_layout_add(&a, 0, CT_CUT_SHARD, 1);
    ct_layout_add(&a, 2, CT_CUT_SHARD, 0);
    ct_layout_add(&b, 2, CT_CUT_SHARD, 0);
    ct_layout_add(&b, 0, CT_CUT_SHARD, 1);
    assert_false(ct_layout_equal(&a, &b));
    ct_layout_add(&b, 3, CT_CUT_SUM, 0);
    assert_false(ct_layout_equal(&a, &b)); // sums in another dtype
    b.partial = CT_F32;
    assert_true(ct_layout_equal(&a, &b));
    assert_int_equal(ct_layout_axes(&a, CT_CUT_SHARD), 5);
    assert_int_equal(ct_layout_axes(&a, CT_CUT_SUM), 8);
    assert_int_equal(ct_layout_axes(&a, CT_CUT_MAX), 0);
    assert_int_equal(ct_layout_axes_of_dim(&a, 1), 1);
    ct_layout_remove(&a, 3);
    ct_layout_remove(&a, 5);
    ct_layout_remove(&b, 3);
    b.partial = CT_I64;
    assert_true(ct_layout_equal(&a, &b)); // nothing is partial: the dtype says nothing
    ct_layout_add(&a, 4, CT_CUT_SHARD, 0);
    ct_layout_remove(&b, 2);
    ct_layout_add(&b, 4, CT_CUT_SHARD, 0);
    ct_layout_add(&b, 2, CT_CUT_SHARD, 0);
    assert_int_equal(ct_layout_axes_of_dim(&a, 0), ct_layout_axes_of_dim(&b, 0));
    assert_false(ct_layout_equal(&a, &b)); // 2 outside 4, and 4 outside 2
}

// ---- a second answer ----
// Does a rank hold this element? Cut by cut: the part that an element is in, and its place there.
static int holds(const ct_mesh *mesh, const ct_layout *layout, int dims, const int64_t *extents, const int64_t *index, int rank) {
    for (int d = 0; d < dims; d++) {
        int64_t n = extents[d], i = index[d];
        for (int k = 0; k < layout->count; k++) {
            const ct_cut *cut = &layout->cuts[k];
            if (cut->kind != CT_CUT_SHARD || cut->dim != d) continue;
            int64_t size = mesh->axes[cut->axis].size, most = n / size + (n % size > 0), part = i / most;
            if (part != ct_mesh_coord(mesh, rank, cut->axis)) return 0;
            i -= part * most;
            n = n - part * most < most ? n - part * most : most;
        }
    }
    return 1;
}

static ct_mesh random_mesh(void) {
    ct_mesh mesh = {.axes_count = 1 + below(4)};
    for (int a = 0; a < mesh.axes_count; a++) mesh.axes[a] = (ct_axis){{(char)('a' + a)}, mesh.axes_count > 2 ? 2 + below(2) : 2 + below(5)};
    return mesh;
}

// partial: this kind may be among the cuts.
static ct_layout random_layout(const ct_mesh *mesh, int dims, ct_cut_kind partial) {
    ct_layout layout = {.partial = CT_F32};
    int first = below(mesh->axes_count);
    for (int i = 0; i < mesh->axes_count; i++) {
        int choice = below(dims + 2), axis = (first + i) % mesh->axes_count;
        if (choice < dims) ct_layout_add(&layout, axis, CT_CUT_SHARD, choice);
        else if (choice == dims && partial != CT_CUT_SHARD) ct_layout_add(&layout, axis, partial, 0);
    }
    return layout;
}

// Element number i of a box of these extents.
static void index_of(int64_t i, int dims, const int64_t *extents, int64_t *out) {
    for (int d = dims - 1; d >= 0; d--) {
        out[d] = i % extents[d];
        i /= extents[d];
    }
}

static int is_inside(const int64_t *at, const int64_t *begin, const int64_t *extent, int dims) {
    for (int d = 0; d < dims; d++)
        if (at[d] < begin[d] || at[d] >= begin[d] + extent[d]) return 0;
    return 1;
}

static void boxes_hold_the_elements_that_cuts_give(void **state) {
    (void)state;
    for (int tries = 0; tries < 2000; tries++) {
        ct_mesh mesh = random_mesh();
        int dims = 1 + below(3);
        ct_layout layout = random_layout(&mesh, dims, CT_CUT_SUM);
        int64_t extents[3], total = 1;
        for (int d = 0; d < dims; d++) total *= extents[d] = 1 + below(9);
        for (int rank = 0; rank < ct_mesh_ranks(&mesh); rank++) {
            ct_region box = ct_layout_box(&mesh, &layout, dims, extents, rank);
            for (int64_t i = 0; i < total; i++) {
                int64_t at[3];
                index_of(i, dims, extents, at);
                assert_int_equal(is_inside(at, box.offset, box.extent, dims), holds(&mesh, &layout, dims, extents, at, rank));
            }
        }
    }
}

// ---- moves ----
typedef struct {
    ct_graph g;
    int dims;
    int64_t extents[3];
    ct_layout from, to;
    int node;
} one_move;

static void make_move(one_move *m, const ct_mesh *mesh, const char *op, ct_dtype dtype) {
    ct_dim named[3];
    for (int d = 0; d < m->dims; d++) named[d] = ct_dim_make((const char *[]){"X", "Y", "Z"}[d], m->extents[d]);
    ct_graph_init(&m->g, "one");
    for (int d = 0; d < m->dims; d++) ct_graph_role(&m->g, named[d].name, CT_ROLE_NONE);
    m->g.mesh = *mesh;
    ct_graph_at(&m->g, CT_FORWARD, -1, "moved");
    ct_value x = ct_build_input(&m->g, CT_FEED, "x", ct_type_make(dtype, m->dims, named));
    m->g.values[x.id].layout = m->from;
    m->node = ct_build_node(&m->g, ct_op_find(op), 1, &x, NULL, NULL);
    m->g.values[ct_node_output(&m->g, m->node, 0).id].layout = m->to;
    ct_status status = ct_graph_verify(&m->g);
    if (status) fail_msg("%s", ct_error_text(status));
}

// A piece shows the same global elements on both sides, and lies in both boxes.
static void check_piece(const one_move *m, const ct_piece *piece, const ct_region *want) {
    ct_region have = ct_layout_box(&m->g.mesh, &m->from, m->dims, m->extents, piece->rank);
    for (int d = 0; d < m->dims; d++) {
        assert_int_equal(have.offset[d] + piece->from[d], want->offset[d] + piece->to[d]);
        assert_true(piece->extent[d] > 0 && piece->from[d] >= 0 && piece->to[d] >= 0);
        assert_true(piece->from[d] + piece->extent[d] <= have.extent[d] && piece->to[d] + piece->extent[d] <= want->extent[d]);
    }
}

// Every element that a rank wants comes once, or once from each of those whose parts of a sum it is.
static void check_reader(const one_move *m, int rank, int times) {
    ct_piece pieces[300];
    const ct_node *move = &m->g.nodes[m->node];
    int count = ct_move_pieces(&m->g, move, rank, pieces), group = ct_mesh_group(&m->g.mesh, rank, ct_move_axes(&m->g, move), NULL);
    ct_region want = ct_layout_box(&m->g.mesh, &m->to, m->dims, m->extents, rank);
    assert_true(count <= group);
    int64_t total = 1;
    for (int d = 0; d < m->dims; d++) total *= want.extent[d];
    for (int p = 0; p < count; p++) {
        assert_true(p == 0 || pieces[p - 1].rank < pieces[p].rank);
        check_piece(m, &pieces[p], &want);
    }
    for (int64_t i = 0; i < total; i++) {
        int64_t at[3];
        int covered = 0;
        index_of(i, m->dims, want.extent, at);
        for (int p = 0; p < count; p++) covered += is_inside(at, pieces[p].to, pieces[p].extent, m->dims);
        assert_int_equal(covered, times);
    }
}

// Sums go alone: other axes cut as they did, and outside of what `to` makes of the partial ones.
static ct_layout spread(const ct_layout *from, const ct_layout *to, unsigned partial) {
    ct_layout layout = {.partial = CT_F32};
    for (int k = 0; k < from->count; k++)
        if (from->cuts[k].kind == CT_CUT_SHARD) ct_layout_add(&layout, from->cuts[k].axis, CT_CUT_SHARD, from->cuts[k].dim);
    for (int k = 0; k < to->count; k++)
        if (partial >> to->cuts[k].axis & 1) ct_layout_add(&layout, to->cuts[k].axis, CT_CUT_SHARD, to->cuts[k].dim);
    return layout;
}

static void pieces_tile_what_a_reader_gets_once(void **state) {
    (void)state;
    int moves = 0, sums = 0;
    for (int tries = 0; tries < 20000; tries++) {
        ct_mesh mesh = random_mesh();
        one_move m = {.dims = 1 + below(3)};
        int sum = below(3) == 0, times = 1;
        for (int d = 0; d < m.dims; d++) m.extents[d] = 1 + below(9);
        m.from = random_layout(&mesh, m.dims, sum ? below(2) ? CT_CUT_SUM : CT_CUT_MAX : CT_CUT_SHARD);
        m.to = random_layout(&mesh, m.dims, CT_CUT_SHARD);
        unsigned partial = ct_layout_axes(&m.from, CT_CUT_SUM) | ct_layout_axes(&m.from, CT_CUT_MAX);
        if (partial) m.to = spread(&m.from, &m.to, partial);
        for (int a = 0; a < mesh.axes_count; a++) times *= partial >> a & 1 ? mesh.axes[a].size : 1;
        make_move(&m, &mesh, "reshard", CT_F32);
        if (partial) assert_int_equal(ct_move_axes(&m.g, &m.g.nodes[m.node]), partial);
        for (int rank = 0; rank < ct_mesh_ranks(&mesh); rank++) check_reader(&m, rank, times);
        moves += !partial, sums += partial != 0;
        ct_graph_deinit(&m.g);
    }
    printf("%d moves, %d sums\n", moves, sums);
}

static void bytes_are_those_that_come_from_others(void **state) {
    (void)state;
    const ct_mesh four = {1, {{"a", 4}}};
    one_move m = {.dims = 1, .extents = {10}}; // 3, 3, 3, 1
    ct_layout_add(&m.from, 0, CT_CUT_SHARD, 0);
    make_move(&m, &four, "all_gather", CT_F32);
    static const double gathered[] = {28, 28, 28, 36};
    for (int r = 0; r < 4; r++) assert_true(ct_move_bytes(&m.g, &m.g.nodes[m.node], r) == gathered[r]);
    ct_graph_deinit(&m.g);
    // Sums of bf16 are kept and moved in f32: 3 others' parts of 3 elements, or of the last one.
    m.to = m.from;
    m.from = (ct_layout){.partial = CT_F32};
    ct_layout_add(&m.from, 0, CT_CUT_SUM, 0);
    make_move(&m, &four, "reduce_scatter", CT_BF16);
    static const double scattered[] = {36, 36, 36, 12};
    for (int r = 0; r < 4; r++) assert_true(ct_move_bytes(&m.g, &m.g.nodes[m.node], r) == scattered[r]);
    ct_graph_deinit(&m.g);
    // A slice comes from nobody.
    m.from = (ct_layout){0};
    make_move(&m, &four, "local_slice", CT_F32);
    assert_int_equal(ct_move_axes(&m.g, &m.g.nodes[m.node]), 0);
    for (int r = 0; r < 4; r++) assert_true(ct_move_bytes(&m.g, &m.g.nodes[m.node], r) == 0);
    ct_graph_deinit(&m.g);
}

static void a_rotation_brings_what_a_rank_before_has(void **state) {
    (void)state;
    ct_graph g;
    ct_dim T = ct_dim_make("T", 7); // 3, 3, 1 over cp
    ct_graph_init(&g, "ring");
    ct_graph_role(&g, "T", CT_ROLE_SEQUENCE);
    g.mesh = mesh_232;
    ct_graph_at(&g, CT_FORWARD, -1, "ring");
    ct_value x = ct_build_input(&g, CT_FEED, "x", ct_type_make(CT_F32, 1, &T));
    ct_layout_add(&g.values[x.id].layout, 1, CT_CUT_SHARD, 0);
    ct_rotate(&g, x, 1, 1);
    ct_status status = ct_graph_verify(&g);
    if (status) fail_msg("%s", ct_error_text(status));
    static const int from[12] = {4, 5, 0, 1, 2, 3, 10, 11, 6, 7, 8, 9};
    static const int64_t extent[12] = {1, 1, 3, 3, 3, 3, 1, 1, 3, 3, 3, 3};
    for (int r = 0; r < 12; r++) {
        ct_piece piece;
        assert_int_equal(ct_move_pieces(&g, &g.nodes[0], r, &piece), 1);
        assert_int_equal(piece.rank, from[r]);
        assert_int_equal(piece.from[0], 0);
        assert_int_equal(piece.to[0], 0);
        assert_int_equal(piece.extent[0], extent[r]);
    }
    ct_graph_deinit(&g);
}

// ---- one rank's program ----
static void a_rank_knows_where_its_part_begins_and_how_large_parts_are(void **state) {
    (void)state;
    ct_graph g, local;
    static const char text[] = "program p {\n axis a 2\n axis b 3\n dim X none\n dim Y none\n"
                               " %0 = feed \"x\" : bf16[X=5, Y=4] {a: S(X), b: S(Y)}\n"
                               " %1 = feed \"y\" : bf16[X=5, Y=4] {b: S(X), a: P(f32)}\n output \"x\" = %0\n}";
    ct_status status = ct_graph_parse(&g, text, "text", ct_op_find);
    if (!status) status = ct_graph_localise(&g, 4, &local); // a 1, b 1
    if (status) fail_msg("%s", ct_error_text(status));
    const ct_value_info *x = &local.values[0], *y = &local.values[1];
    assert_true(x->type.dtype == CT_BF16 && x->type.dims[0].extent == 2 && x->type.dims[1].extent == 2);
    assert_true(x->origin[0] == 3 && x->origin[1] == 2 && x->room[0] == 3 && x->room[1] == 2);
    assert_int_equal(ct_value_room_bytes(&local, 0), 3 * 2 * 2);
    assert_true(y->type.dtype == CT_F32 && y->type.dims[0].extent == 2 && y->type.dims[1].extent == 4 && y->origin[0] == 2);
    assert_int_equal(ct_value_room_bytes(&local, 1), 2 * 4 * 4);
    assert_int_equal(ct_value_room_bytes(&g, 1), 5 * 4 * 2);
    ct_graph_deinit(&local);
    status = ct_graph_localise(&g, 2, &local); // a 0, b 2: nothing of Y=4 in 2, 2, 0
    if (status) fail_msg("%s", ct_error_text(status));
    assert_true(local.values[0].type.dims[1].extent == 0 && local.values[0].origin[1] == 0);
    assert_int_equal(ct_value_room_bytes(&local, 0), 3 * 2 * 2);
    ct_graph_deinit(&local);
    ct_graph_deinit(&g);
}

// ---- nodes of ranks ----
static void groups_are_far_where_nodes_part_them(void **state) {
    (void)state;
    const ct_mesh mesh = {2, {{"a", 2}, {"b", 4}}};
    static const struct {
        ct_near near;
        unsigned axes;
        int far;
    } cases[] = {{{0, 0, 0}, 3, 0}, {{0, 4, 4}, 1, 1}, {{0, 4, 4}, 2, 0}, {{0, 4, 4}, 3, 1}, {{0, 4, 4}, 0, 0}, {{0, 2, 2}, 2, 1},
                 {{0, 8, 8}, 3, 0}, {{4, 3, 1}, 2, 1}}; // nodes of unequal sizes: all groups are far, wherever this one's ranks are
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_int_equal(ct_axes_are_far(&mesh, cases[i].axes, cases[i].near), cases[i].far);
    assert_true(ct_is_near((ct_near){4, 4, 4}, 7) && !ct_is_near((ct_near){4, 4, 4}, 8) && !ct_is_near((ct_near){4, 4, 4}, 3));
    assert_true(ct_is_near((ct_near){0}, 1000));
}

static void a_box_is_a_run_where_only_its_first_long_dim_is_a_part(void **state) {
    (void)state;
    assert_true(ct_box_is_run((int64_t[]){2, 4}, (int64_t[]){6, 4}, 2));
    assert_false(ct_box_is_run((int64_t[]){2, 3}, (int64_t[]){6, 4}, 2));
    assert_true(ct_box_is_run((int64_t[]){1, 3}, (int64_t[]){6, 4}, 2));
    assert_true(ct_box_is_run((int64_t[]){1, 1, 2, 5}, (int64_t[]){9, 9, 9, 5}, 4));
    assert_false(ct_box_is_run((int64_t[]){1, 2, 1, 5}, (int64_t[]){9, 9, 9, 5}, 4));
    assert_true(ct_box_is_run(NULL, NULL, 0));
}

static void messages_take_room_where_boxes_are_no_runs(void **state) {
    (void)state;
    const ct_mesh two = {1, {{"a", 2}}};
    const ct_near apart = {0, 1, 1}, together = {0, 2, 2};
    one_move m = {.dims = 2, .extents = {4, 6}};
    ct_layout_add(&m.from, 0, CT_CUT_SHARD, 0);
    make_move(&m, &two, "all_gather", CT_F32); // rows: sent from and received where they lie
    assert_int_equal(ct_move_message_bytes(&m.g, &m.g.nodes[m.node], 0, apart), 0);
    ct_graph_deinit(&m.g);
    m.from = (ct_layout){0};
    ct_layout_add(&m.from, 0, CT_CUT_SHARD, 1);
    make_move(&m, &two, "all_gather", CT_F32); // columns: sent from where they lie, 48 bytes received apart from them
    assert_int_equal(ct_move_message_bytes(&m.g, &m.g.nodes[m.node], 0, apart), 64);
    assert_int_equal(ct_move_message_bytes(&m.g, &m.g.nodes[m.node], 0, together), 0);
    ct_graph_deinit(&m.g);
    m.to = m.from;
    m.from = (ct_layout){.partial = CT_F32};
    ct_layout_add(&m.from, 0, CT_CUT_SUM, 0);
    make_move(&m, &two, "reduce_scatter", CT_F32); // columns sent: packed; received: added afterwards
    assert_int_equal(ct_move_message_bytes(&m.g, &m.g.nodes[m.node], 0, apart), 128);
    ct_graph_deinit(&m.g);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_last_axis_is_the_lowest_digit_of_a_rank),
        cmocka_unit_test(a_group_is_the_ranks_that_differ_on_its_axes_alone),
        cmocka_unit_test(uneven_cuts_leave_the_last_ranks_fewer_or_nothing),
        cmocka_unit_test(cuts_of_one_dim_nest_outermost_first),
        cmocka_unit_test(a_layout_has_one_form_but_for_the_order_of_nesting),
        cmocka_unit_test(boxes_hold_the_elements_that_cuts_give),
        cmocka_unit_test(pieces_tile_what_a_reader_gets_once),
        cmocka_unit_test(bytes_are_those_that_come_from_others),
        cmocka_unit_test(a_rotation_brings_what_a_rank_before_has),
        cmocka_unit_test(a_rank_knows_where_its_part_begins_and_how_large_parts_are),
        cmocka_unit_test(groups_are_far_where_nodes_part_them),
        cmocka_unit_test(a_box_is_a_run_where_only_its_first_long_dim_is_a_part),
        cmocka_unit_test(messages_take_room_where_boxes_are_no_runs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
