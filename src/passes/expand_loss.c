// The loss visit in chunks of tokens: logits live for one chunk only, and because the count of valid tokens is known beforehand the
// same visit yields dh and the head's dW, recomputing nothing. Chunks are views of h, so cutting costs no copy. In a placed program a chunk is
// one of every rank's own part; what its pieces then need of other ranks is placement's business.
#include "passes/passes.h"
#include "graph/op.h"
#include "graph/rewrite.h"
#include "ops/ops.h"

#include <string.h>

typedef struct {
    ct_graph *g;
    ct_value h_BTD, w_VD, labels_BT, inv_count, never;
    int want_gradient;
    ct_value dw_VD; // running sum over the chunks
} visit;

// Rows and tokens that one rank has of it.
typedef struct {
    int64_t row, rows, token, tokens;
} chunk;

// In how many parts the mesh cuts a dim.
static int64_t parts_of(const ct_graph *g, ct_value x, int dim) {
    const ct_layout *layout = &g->values[x.id].layout;
    unsigned axes = ct_layout_axes_of_dim(layout, dim);
    int64_t parts = 1;
    for (int a = 0; a < g->mesh.axes_count; a++)
        if (axes >> a & 1) parts *= g->mesh.axes[a].size;
    return parts;
}

typedef struct {
    ct_value loss, dh;
} chunk_result;

static ct_value part_of(ct_graph *g, ct_value x, chunk c) {
    int64_t row_parts = parts_of(g, x, 0), token_parts = parts_of(g, x, 1);
    if (c.rows * row_parts < ct_value_type(g, x)->dims[0].extent) x = ct_slice(g, x, 0, c.row * row_parts, c.rows * row_parts, "B");
    if (c.tokens * token_parts < ct_value_type(g, x)->dims[1].extent)
        x = ct_slice(g, x, 1, c.token * token_parts, c.tokens * token_parts, "T");
    return x;
}

static chunk_result visit_chunk(visit *v, chunk c) {
    ct_graph *g = v->g;
    ct_value h = part_of(g, v->h_BTD, c), labels = part_of(g, v->labels_BT, c);
    ct_value logits_BTV = ct_matmul(g, h, v->w_VD, 1);
    ct_value max = ct_vocab_max(g, logits_BTV), sumexp = ct_vocab_sumexp(g, logits_BTV, max);
    ct_value picked = ct_vocab_pick(g, logits_BTV, labels);
    chunk_result result = {ct_token_loss(g, max, sumexp, picked, labels), CT_NO_VALUE};
    if (!v->want_gradient || result.loss.id < 0) return result;
    ct_value dlogits = ct_vocab_grad(g, logits_BTV, max, sumexp, labels, v->inv_count, ct_value_type(g, h)->dtype);
    result.dh = ct_matmul_dx(g, dlogits, v->w_VD);
    v->dw_VD = v->dw_VD.id < 0 ? ct_matmul_dw(g, dlogits, h) : ct_matmul_dw_acc(g, v->dw_VD, dlogits, h, v->never);
    return result;
}

static ct_value joined(ct_graph *g, int count, const ct_value *parts, int dim, const char *name) {
    return count == 1 ? parts[0] : ct_concat(g, count, parts, dim, name);
}

// Visits all chunks in order and joins their losses and dh.
static chunk_result visit_all(visit *v, int64_t chunk_tokens) {
    ct_graph *g = v->g;
    int64_t rows = ct_value_type(g, v->h_BTD)->dims[0].extent / parts_of(g, v->h_BTD, 0);
    int64_t tokens = ct_value_type(g, v->h_BTD)->dims[1].extent / parts_of(g, v->h_BTD, 1);
    int64_t row_step = chunk_tokens / tokens > 0 ? chunk_tokens / tokens : 1;
    int row_parts = (int)((rows + row_step - 1) / row_step), parts = (int)((tokens + chunk_tokens - 1) / chunk_tokens);
    ct_value *losses = CT_ARENA_ARRAY(&g->arena, ct_value, row_parts + parts);
    ct_value *dhs = CT_ARENA_ARRAY(&g->arena, ct_value, row_parts + parts);
    ct_value *row_losses = losses + parts, *row_dhs = dhs + parts;
    for (int r = 0; r < row_parts; r++) {
        chunk c = {.row = r * row_step, .rows = row_step};
        if (c.row + c.rows > rows) c.rows = rows - c.row;
        for (int i = 0; i < parts; i++) {
            c.token = i * chunk_tokens;
            c.tokens = c.token + chunk_tokens > tokens ? tokens - c.token : chunk_tokens;
            chunk_result result = visit_chunk(v, c);
            if (result.loss.id < 0) return result;
            losses[i] = result.loss, dhs[i] = result.dh;
        }
        row_losses[r] = joined(g, parts, losses, 1, "T");
        if (v->want_gradient) row_dhs[r] = joined(g, parts, dhs, 1, "T");
    }
    chunk_result all = {joined(g, row_parts, row_losses, 0, "B"), CT_NO_VALUE};
    if (v->want_gradient) all.dh = joined(g, row_parts, row_dhs, 0, "B");
    return all;
}

static int is_read(const ct_graph *g, int value) {
    for (int n = 0; n < g->nodes_count; n++)
        for (int i = 0; i < g->nodes[n].inputs_count; i++)
            if (g->nodes[n].inputs[i] == value) return 1;
    return 0;
}

ct_status ct_pass_expand_loss(const ct_graph *from, int64_t chunk_tokens, ct_graph *to) {
    ct_rewrite r;
    ct_rewrite_begin(&r, from, to, 1);
    for (int n = 0; n < from->nodes_count; n++) {
        const ct_node *node = &from->nodes[n];
        if (strcmp(node->op->name, "lm_loss")) {
            ct_rewrite_node(&r, n);
            continue;
        }
        ct_rewrite_at(&r, node->from);
        visit v = {.g = to, .dw_VD = CT_NO_VALUE, .never = CT_NO_VALUE};
        ct_value *operands[] = {&v.h_BTD, &v.w_VD, &v.labels_BT, &v.inv_count};
        for (int i = 0; i < 4; i++) *operands[i] = ct_rewrite_value(&r, node->inputs[i]);
        v.want_gradient = is_read(from, node->outputs[1]) || is_read(from, node->outputs[2]);
        if (v.want_gradient) v.never = ct_build_input(to, CT_FEED, "false", ct_type_make(CT_I32, 0, NULL));
        chunk_result all = visit_all(&v, chunk_tokens);
        r.map[node->outputs[0]] = all.loss.id;
        r.map[node->outputs[1]] = all.dh.id;
        r.map[node->outputs[2]] = v.dw_VD.id;
    }
    return ct_rewrite_end(&r);
}
