// Which values share memory: views, state updates, parts of a concatenation, and outputs computed in place.
#pragma once
#include "plan/plan.h"

typedef struct {
    int parent;    // value id, itself for a root
    size_t offset; // from the parent's first byte
} ct_alias;

typedef struct {
    const ct_graph *graph;
    ct_alias *of;     // by value id
    size_t *bytes;    // of roots
    int *first, *last; // lives of roots, in node indices; last = nodes_count for outputs
    unsigned char *kept; // root belongs to an input or an output
    unsigned char *shared; // root is read by peers
} ct_aliases;

// The root of a value and the value's offset from its start.
int ct_alias_root(const ct_aliases *aliases, int value, size_t *out_offset);

// Finds all sharing in a program. Memory comes from the arena.
ct_status ct_aliases_find(ct_arena *arena, const ct_graph *graph, ct_aliases *out_aliases);
