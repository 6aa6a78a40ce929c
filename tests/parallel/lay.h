// Random legal layouts: every operand of every node is cut, kept partial or whole as its op's rule allows and a seed says, whatever an axis is
// called, and what lies otherwise is moved there. And a record of what was hit, to be held against the op table.
#pragma once
#include "graph/graph.h"
#include "graph/op.h"

enum { LAY_AXES = 4, LAY_KINDS = 5, LAY_OPS = 64, LAY_LETTERS = 16 };
extern const char *const lay_axes[LAY_AXES]; // the mesh axes of dense parallelism, outermost first

// What an axis does to a value, before and after a move of it.
typedef enum { LAY_WHOLE, LAY_SAME_DIM, LAY_OTHER_DIM, LAY_SUM, LAY_MAX } lay_kind;

typedef struct {
    struct {
        char letter[LAY_LETTERS][8];          // as rules have them, "*" for any; of views: "outer" (the dim that is split, or the first
        int cut[LAY_LETTERS][LAY_AXES];       // of those merged) and "other"
        int letters, nodes, partial[LAY_AXES]; // partial: nodes with an operand that is a partial sum on the axis
    } of[LAY_OPS];                             // by index in the op table
    int moves[LAY_KINDS][LAY_KINDS][LAY_AXES]; // from, to; of a value that is not cut before, a cut after is of the "same" dim
    int accumulating;                          // of those from sums: into an accumulator
} lay_seen;

// Adds what a placed program has.
void lay_note(const ct_graph *placed, lay_seen *seen);

// The report, a line an op, then the moves. Returns how many legal (op, index, axis), and moves, were never hit; each has a line that says so.
int lay_report(const lay_seen *seen);

// Lays out a program of global types, without moves or macros, over a mesh. Draws by draw_below (draw.h). Caller deinits.
ct_status lay_out(const ct_graph *graph, const ct_mesh *mesh, ct_graph *out_placed);
