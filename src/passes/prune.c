// Dead-code elimination: backwards from outputs and state updates, keep what is needed.
#include "passes/passes.h"
#include "graph/rewrite.h"

ct_status ct_pass_prune(const ct_graph *from, ct_graph *to) {
    ct_rewrite r;
    ct_rewrite_begin(&r, from, to, 0);
    unsigned char *needed = CT_ARENA_ARRAY(&to->arena, unsigned char, from->values_count + 1);
    for (int i = 0; i < from->outputs_count; i++) needed[from->outputs[i].value] = 1;
    for (int i = 0; i < from->inputs_count; i++)
        if (from->inputs[i].update >= 0) needed[from->inputs[i].value] = needed[from->inputs[i].update] = 1;
    for (int n = from->nodes_count - 1; n >= 0; n--) {
        const ct_node *node = &from->nodes[n];
        int used = 0;
        for (int i = 0; i < node->outputs_count; i++) used |= needed[node->outputs[i]];
        for (int i = 0; used && i < node->inputs_count; i++) needed[node->inputs[i]] = 1;
    }
    for (int i = 0; i < from->inputs_count; i++)
        if (needed[from->inputs[i].value]) ct_rewrite_input(&r, i);
    for (int n = 0; n < from->nodes_count; n++) {
        int used = 0;
        for (int i = 0; i < from->nodes[n].outputs_count; i++) used |= needed[from->nodes[n].outputs[i]];
        if (used) ct_rewrite_node(&r, n);
    }
    return ct_rewrite_end(&r);
}
