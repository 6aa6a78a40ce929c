// Copying a graph with a map from old to new value ids. Passes call it for all that they leave as it is.
#include "graph/rewrite.h"
#include "graph/op.h"

#include <stdlib.h>

void ct_rewrite_begin(ct_rewrite *rewrite, const ct_graph *from, ct_graph *to, int copy_inputs) {
    ct_graph_init(to, from->name);
    for (int i = 0; i < from->roles_count; i++) ct_graph_role(to, from->roles[i].name, from->roles[i].role);
    to->mesh = from->mesh;
    *rewrite = (ct_rewrite){from, to, ct_malloc(sizeof(int) * (size_t)(from->values_count + 1))};
    for (int i = 0; i < from->values_count; i++) rewrite->map[i] = -1;
    for (int i = 0; copy_inputs && i < from->inputs_count; i++) ct_rewrite_input(rewrite, i);
}

ct_value ct_rewrite_value(const ct_rewrite *rewrite, int old_value) {
    CT_ASSERT(rewrite->map[old_value] >= 0, "value %%%d of program %s has no copy yet", old_value, rewrite->from->name);
    return (ct_value){rewrite->map[old_value]};
}

// The copy of a value lies as it did, and is what it was.
static void to_value(ct_rewrite *rewrite, int old_value) {
    const ct_value_info *old = &rewrite->from->values[old_value];
    ct_value_info *copy = &rewrite->to->values[rewrite->map[old_value]];
    copy->layout = old->layout;
    copy->hint = old->hint;
    copy->placed = old->placed;
}

ct_value ct_rewrite_input(ct_rewrite *rewrite, int input) {
    const ct_input *in = &rewrite->from->inputs[input];
    ct_value value = ct_build_input(rewrite->to, in->kind, in->name, rewrite->from->values[in->value].type);
    rewrite->map[in->value] = value.id;
    to_value(rewrite, in->value);
    return value;
}

void ct_rewrite_at(ct_rewrite *rewrite, ct_provenance from) {
    ct_graph_at(rewrite->to, from.phase, from.layer, "%s", from.module);
    rewrite->to->at.stage = from.stage;
}

int ct_rewrite_node(ct_rewrite *rewrite, int node) {
    const ct_node *old = &rewrite->from->nodes[node];
    ct_graph *to = rewrite->to;
    if (ct_graph_status(to)) return -1; // a node before did not infer; ct_rewrite_end says so
    ct_value few[CT_MAX_INPUTS], *inputs = few;
    if (old->inputs_count > CT_MAX_INPUTS) inputs = CT_ARENA_ARRAY(&to->arena, ct_value, old->inputs_count);
    for (int i = 0; i < old->inputs_count; i++) inputs[i] = ct_rewrite_value(rewrite, old->inputs[i]);
    ct_type declared[CT_MAX_OUTPUTS];
    for (int i = 0; i < old->outputs_count; i++) declared[i] = rewrite->from->values[old->outputs[i]].type;
    ct_provenance saved = to->at;
    ct_rewrite_at(rewrite, old->from);
    int index = ct_build_node(to, old->op, old->inputs_count, inputs, old->attrs, declared);
    to->at = saved;
    for (int i = 0; index >= 0 && i < old->outputs_count; i++) {
        rewrite->map[old->outputs[i]] = to->nodes[index].outputs[i];
        to_value(rewrite, old->outputs[i]);
    }
    return index;
}

ct_status ct_rewrite_end(ct_rewrite *rewrite) {
    ct_status status = ct_graph_status(rewrite->to);
    for (int i = 0; !status && i < rewrite->from->inputs_count; i++) {
        const ct_input *in = &rewrite->from->inputs[i];
        if (in->update < 0 || rewrite->map[in->value] < 0) continue;
        if (rewrite->to->values[rewrite->map[in->value]].node < 0) // else what was an input is a value of the program's own by now
            ct_build_update(rewrite->to, ct_rewrite_value(rewrite, in->value), ct_rewrite_value(rewrite, in->update));
    }
    for (int i = 0; !status && i < rewrite->from->outputs_count; i++)
        ct_build_output(rewrite->to, rewrite->from->outputs[i].name,
                        ct_rewrite_value(rewrite, rewrite->from->outputs[i].value));
    free(rewrite->map);
    rewrite->map = NULL;
    return status;
}

void ct_rewrite_abandon(ct_rewrite *rewrite) {
    free(rewrite->map);
    rewrite->map = NULL;
}
