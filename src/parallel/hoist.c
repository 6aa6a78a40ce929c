// Weights that are gathered once a step: every gather of a weight becomes a state that the prologue fills.
#include "parallel/place.h"
#include "graph/local.h"
#include "graph/op.h"
#include "graph/rewrite.h"

#include <string.h>

// Is it a gather of what the program is given?
static int is_gather(const ct_graph *g, const ct_node *node) {
    if (strcmp(node->op->name, "all_gather") || g->values[node->inputs[0]].node >= 0) return 0;
    ct_input_kind kind = g->inputs[g->values[node->inputs[0]].output].kind;
    return kind == CT_PARAMETER || kind == CT_WEIGHT_LOWP;
}

ct_status ct_place_hoist(const ct_graph *from, ct_graph *to) {
    ct_rewrite r;
    ct_rewrite_begin(&r, from, to, 1);
    for (int n = 0; n < from->nodes_count; n++) {
        const ct_node *node = &from->nodes[n];
        if (!is_gather(from, node)) {
            ct_rewrite_node(&r, n);
            continue;
        }
        const ct_value_info *whole = &from->values[node->outputs[0]];
        const char *name = ct_arena_format(&to->arena, "%s%s", from->inputs[from->values[node->inputs[0]].output].name, CT_WHOLE_SUFFIX);
        int known = ct_graph_find_input(to, name);
        if (known >= 0 && !ct_layout_equal(&to->values[to->inputs[known].value].layout, &whole->layout)) { // another reader wants it cut otherwise
            ct_rewrite_node(&r, n);
            continue;
        }
        ct_value value = known >= 0 ? (ct_value){to->inputs[known].value} : ct_build_input(to, CT_WEIGHT_LOWP, name, whole->type);
        r.map[node->outputs[0]] = value.id;
        if (value.id < 0 || known >= 0) continue;
        to->values[value.id].layout = whole->layout;
        to->values[value.id].hint = whole->hint;
        to->values[value.id].placed = 1;
    }
    return ct_rewrite_end(&r);
}
