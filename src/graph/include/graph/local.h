// A placed program as one rank runs it, and what a move brings to that rank.
#pragma once
#include "graph/graph.h"

// The program of one rank: the same nodes and values, in which types are what the rank holds (partial sums in their own dtype) and values
// know their origin and the room of the largest shard. It borrows names, lists and provenance from `placed`, which must outlive it. A graph
// without a mesh gives itself. Caller deinits.
ct_status ct_graph_localise(const ct_graph *placed, int rank, ct_graph *out_local);

// Bytes that a local value's memory takes on the rank with the largest shard.
size_t ct_value_room_bytes(const ct_graph *local, int value);

// A box that a rank reads in a move.
typedef struct {
    int rank;                                       // whose local tensor it lies in
    int64_t from[CT_MAX_DIMS], to[CT_MAX_DIMS];     // its first element there, and in the reader's tensor
    int64_t extent[CT_MAX_DIMS];
} ct_piece;

// The operand of a move that goes to other ranks: the only one, or the part that is added to the first.
static inline int ct_moved_operand(const ct_node *move) { return move->inputs_count > 1; }

// Axes over which the ranks of a move read one another; 0: none does. The graph may be placed or local.
unsigned ct_move_axes(const ct_graph *graph, const ct_node *move);

// The pieces that `rank` reads in a move of a placed graph, ascending in the rank they come from, empty ones left out. Where the move sums,
// each is the whole of what the rank gets. Returns their number, at most the size of the group; out_pieces has room for that.
int ct_move_pieces(const ct_graph *placed, const ct_node *move, int rank, ct_piece *out_pieces);

// Bytes that the rank gets from others.
double ct_move_bytes(const ct_graph *placed, const ct_node *move, int rank);

// Where the values of a placed program lie within memory that they share with others: views in what they look at, what is changed in place where it
// was, operands of a concatenation one behind another. Caller deinits.
typedef struct {
    const ct_graph *placed; // borrowed
    int *parent, *node, *operand; // by value: what it lies in (-1: nothing), the node that says so, and its operand where that joins operands
} ct_inner;
void ct_inner_find(const ct_graph *placed, ct_inner *out_inner);
void ct_inner_deinit(ct_inner *inner);

// Bytes from the beginning of that memory to the value, on a rank: the memory begins at the same place on all ranks, what lies in it need not.
size_t ct_inner_bytes(const ct_inner *inner, int value, int rank);

// Ranks whose memory a rank can read: [first, first + count), itself among them; count 0: all. per_node tells every rank the same: nodes hold so
// many consecutive ranks, from rank 0 on; 1 where they don't all, and every group then counts as one of several nodes.
typedef struct {
    int first, count, per_node;
} ct_near;
static inline int ct_is_near(ct_near near, int rank) { return !near.count || (rank >= near.first && rank < near.first + near.count); }

// Does any group of ranks over these axes lie on several nodes? The same answer on every rank.
int ct_axes_are_far(const ct_mesh *mesh, unsigned axes, ct_near near);

// Is a box of `extent` one run in memory, in a row-major tensor of these extents?
int ct_box_is_run(const int64_t *extent, const int64_t *tensor, int dims);

// Room that a move's messages take on a rank, each rounded up to 64 bytes: what it packs for ranks that are not near (a box that is one run in the
// operand is sent from where it lies), and what it gets from them (which is received where it belongs if that is one run and nothing is added).
// 0 where all are near. The pieces are those of ct_move_pieces, in its order; sends ascend in the reader.
size_t ct_move_message_bytes(const ct_graph *placed, const ct_node *move, int rank, ct_near near);
