// When moves between nodes begin.
#pragma once
#include "graph/local.h"

// For every node the one before which its messages begin, at most itself; -1 for all that is no move between nodes. A move begins when its operand
// stands, but no earlier than where the layer before its own begins: what it fetches needs room from then on.
void ct_find_begins(const ct_graph *graph, ct_near near, int *out_begins);
