// An example of a plugin (docs/PLUGINS.md): a grouped matrix product, y[b t g n] = Σ_k x[b t g k] w[g n k], with its gradient, and a small language
// model whose feed-forward is mixed group by group with it. Nothing here knows ranks: the index rules say what may be cut.
//
//     gcc -O3 -shared -fPIC -I include -o grouped_matmul.so examples/plugins/grouped_matmul.c -lm
#include <ctitan/plugin.h>

#include <math.h>
#include <stdio.h>
#include <string.h>

static const ctitan_host *host;

// ---- numbers ----
static float load(const ctitan_tensor *t, int64_t i) {
    if (t->dtype == CTITAN_F32) return ((const float *)t->data)[i];
    uint32_t bits = (uint32_t)((const uint16_t *)t->data)[i] << 16;
    float x;
    memcpy(&x, &bits, 4);
    return x;
}

static void store(const ctitan_tensor *t, int64_t i, float x) {
    if (t->dtype == CTITAN_F32) {
        ((float *)t->data)[i] = x;
        return;
    }
    uint32_t bits;
    memcpy(&bits, &x, 4);
    ((uint16_t *)t->data)[i] = (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

// ---- y = x w, dx = dy wᵀ: a row of the output a turn, summed over its own index ascending ----
typedef struct {
    const ctitan_call *call;
    int to_x; // dx: sums over n; else over k
} product;

static void product_rows(void *context, int thread, int threads) {
    const product *p = context;
    const ctitan_tensor *x = &p->call->in[0], *w = &p->call->in[1], *y = &p->call->out[0];
    int64_t G = w->dims[0], N = w->dims[1], K = w->dims[2], rows = x->dims[0] * x->dims[1] * G;
    for (int64_t r = rows * thread / threads; r < rows * (thread + 1) / threads; r++) {
        int64_t g = r % G, out = p->to_x ? K : N, in = p->to_x ? N : K;
        for (int64_t o = 0; o < out; o++) {
            float sum = 0;
            for (int64_t i = 0; i < in; i++) sum += load(x, r * in + i) * load(w, (g * N + (p->to_x ? i : o)) * K + (p->to_x ? o : i));
            store(y, r * out + o, sum);
        }
    }
}

static void run_y(const ctitan_call *call, ctitan_team *team) { host->run(team, product_rows, &(product){call, 0}); }
static void run_dx(const ctitan_call *call, ctitan_team *team) { host->run(team, product_rows, &(product){call, 1}); }

// ---- dw: an element a turn, summed over the tokens ascending ----
static void dw_rows(void *context, int thread, int threads) {
    const ctitan_call *call = context;
    const ctitan_tensor *dy = &call->in[0], *x = &call->in[1], *dw = &call->out[0];
    int64_t G = dw->dims[0], N = dw->dims[1], K = dw->dims[2], tokens = x->dims[0] * x->dims[1], rows = G * N;
    for (int64_t r = rows * thread / threads; r < rows * (thread + 1) / threads; r++)
        for (int64_t k = 0; k < K; k++) {
            float sum = 0;
            for (int64_t t = 0; t < tokens; t++) sum += load(dy, t * rows + r) * load(x, (t * G + r / N) * K + k);
            store(dw, r * K + k, sum);
        }
}
static void run_dw(const ctitan_call *call, ctitan_team *team) { host->run(team, dw_rows, (void *)call); }

// ---- the same in double ----
typedef struct {
    int64_t tokens, G, N, K;
} sizes;

static sizes sizes_of(const ctitan_type *x, const ctitan_type *w) {
    return (sizes){x->dims[0].extent * x->dims[1].extent, w->dims[0].extent, w->dims[1].extent, w->dims[2].extent};
}

static void reference_y(const ctitan_reference *c) {
    sizes z = sizes_of(c->in_types[0], c->in_types[1]);
    for (int64_t r = 0; r < z.tokens * z.G; r++)
        for (int64_t n = 0; n < z.N; n++) {
            double sum = 0;
            for (int64_t k = 0; k < z.K; k++) sum += c->in[0][r * z.K + k] * c->in[1][(r % z.G * z.N + n) * z.K + k];
            c->out[0][r * z.N + n] = sum;
        }
}

static void reference_dx(const ctitan_reference *c) {
    sizes z = sizes_of(c->in_types[0], c->in_types[1]);
    for (int64_t r = 0; r < z.tokens * z.G; r++)
        for (int64_t k = 0; k < z.K; k++) {
            double sum = 0;
            for (int64_t n = 0; n < z.N; n++) sum += c->in[0][r * z.N + n] * c->in[1][(r % z.G * z.N + n) * z.K + k];
            c->out[0][r * z.K + k] = sum;
        }
}

static void reference_dw(const ctitan_reference *c) {
    sizes z = sizes_of(c->in_types[0], c->out_types[0]);
    for (int64_t r = 0; r < z.G * z.N; r++)
        for (int64_t k = 0; k < z.K; k++) {
            double sum = 0;
            for (int64_t t = 0; t < z.tokens; t++) sum += c->in[0][t * z.G * z.N + r] * c->in[1][(t * z.G + r / z.N) * z.K + k];
            c->out[0][r * z.K + k] = sum;
        }
}

// ---- cost and gradient ----
static double elements(const ctitan_type *type) {
    double n = 1;
    for (int d = 0; d < type->dims_count; d++) n *= (double)type->dims[d].extent;
    return n;
}
static double flops(const ctitan_type *const *in, const ctitan_type *const *out, const double *attrs) {
    (void)attrs; // y and dx sum over the last or the middle dim of w, which in[1] has; dw over the tokens
    if (out[0]->dims_count == 3) return 2 * elements(out[0]) * (double)(in[0]->dims[0].extent * in[0]->dims[1].extent);
    return 2 * elements(in[0]) * (double)out[0]->dims[3].extent;
}

static void gradient(const ctitan_host *h, ctitan_grad *g) {
    g->d_in[0] = h->node(g->graph, "grouped_matmul_dx", 2, (ctitan_value[]){g->d_out[0], g->in[1]}, NULL);
    h->phase(g->graph, CTITAN_WEIGHT_GRAD);
    g->d_in[1] = h->node(g->graph, "grouped_matmul_dw", 2, (ctitan_value[]){g->d_out[0], g->in[0]}, NULL);
}

enum { BILINEAR = CTITAN_OP_SUM | CTITAN_OP_LINEAR0 | CTITAN_OP_LINEAR0 << 1 | CTITAN_OP_LOWP0 | CTITAN_OP_LOWP0 << 1 };
static const ctitan_kernel y_kernels[] = {{"ff>f", run_y, NULL}, {"bb>.", run_y, NULL}, {0}};
static const ctitan_kernel dx_kernels[] = {{"ff>f", run_dx, NULL}, {"bb>.", run_dx, NULL}, {0}};
static const ctitan_kernel dw_kernels[] = {{"ff>f", run_dw, NULL}, {"bb>f", run_dw, NULL}, {0}};
static const ctitan_op ops[] = {
    {.name = "grouped_matmul", .formula = "y[b t g n] = Σ_k x[b t g k] w[g n k]", .rule = "B T G K, G N K -> B T G N", .dtypes = "cc>c",
     .inputs = 2, .outputs = 1, .flags = BILINEAR, .flops = flops, .reference = reference_y, .grad = gradient, .kernels = y_kernels},
    {.name = "grouped_matmul_dx", .formula = "dx[b t g k] = Σ_n dy[b t g n] w[g n k]", .rule = "B T G N, G N K -> B T G K", .dtypes = "cc>c",
     .inputs = 2, .outputs = 1, .flags = BILINEAR, .flops = flops, .reference = reference_dx, .kernels = dx_kernels},
    {.name = "grouped_matmul_dw", .formula = "dw[g n k] = Σ_bt dy[b t g n] x[b t g k]", .rule = "B T G N, B T G K -> G N K", .dtypes = "cc>f",
     .inputs = 2, .outputs = 1, .flags = BILINEAR, .flops = flops, .reference = reference_dw, .kernels = dw_kernels},
    {0},
};

// ---- a model: embedding, layers of norm → up → mixed by groups → gate → down, norm, head ----
enum { GROUPS = 6 };

static ctitan_dim dim(const char *name, int64_t extent) {
    ctitan_dim d = {.extent = extent};
    snprintf(d.name, sizeof d.name, "%s", name);
    return d;
}

static const char *describe(const char *flavor, const ctitan_override *overrides, int count, ctitan_shape *shape, ctitan_listing *listing,
                            void (*add)(ctitan_listing *, const char *, const ctitan_dim *, int, ctitan_init, double, double)) {
    (void)flavor;
    *shape = (ctitan_shape){.dim = 48, .n_layers = 2, .ffn_dim = 96, .vocab_size = 512, .max_seq_len = 1 << 20};
    for (int i = 0; i < count; i++) {
        if (!strcmp(overrides[i].key, "dim")) shape->dim = (int64_t)overrides[i].number;
        else if (!strcmp(overrides[i].key, "n_layers")) shape->n_layers = (int64_t)overrides[i].number;
        else if (!strcmp(overrides[i].key, "vocab_size")) shape->vocab_size = (int64_t)overrides[i].number;
        else if (!strcmp(overrides[i].key, "hidden_dim")) shape->ffn_dim = (int64_t)overrides[i].number;
        else return "model.args may be dim, n_layers, vocab_size and hidden_dim";
    }
    if (shape->ffn_dim % GROUPS) return "model.args.hidden_dim is not a multiple of its 6 groups";
    ctitan_dim D = dim("D", shape->dim), F = dim("F", shape->ffn_dim), G = dim("G", GROUPS), V = dim("V", shape->vocab_size);
    ctitan_dim n = dim("n", shape->ffn_dim / GROUPS), k = dim("k", shape->ffn_dim / GROUPS);
    char name[64];
    add(listing, "tok_embeddings.weight", (ctitan_dim[]){V, D}, 2, CTITAN_INIT_NORMAL, 1, 0);
    for (int l = 0; l < shape->n_layers; l++) {
        snprintf(name, sizeof name, "layers.%d.up.weight", l);
        add(listing, name, (ctitan_dim[]){F, D}, 2, CTITAN_INIT_TRUNCATED_NORMAL, 0.02, 2);
        snprintf(name, sizeof name, "layers.%d.mix.weight", l);
        add(listing, name, (ctitan_dim[]){G, n, k}, 3, CTITAN_INIT_TRUNCATED_NORMAL, 0.1, 2);
        snprintf(name, sizeof name, "layers.%d.down.weight", l);
        add(listing, name, (ctitan_dim[]){D, F}, 2, CTITAN_INIT_TRUNCATED_NORMAL, 0.02, 2);
        snprintf(name, sizeof name, "layers.%d.norm.weight", l);
        add(listing, name, &D, 1, CTITAN_INIT_ONES, 0, 0);
    }
    add(listing, "norm.weight", &D, 1, CTITAN_INIT_ONES, 0, 0);
    add(listing, "output.weight", (ctitan_dim[]){V, D}, 2, CTITAN_INIT_TRUNCATED_NORMAL, 1 / sqrt((double)shape->dim), 1);
    return NULL;
}

typedef struct {
    const ctitan_host *h;
    ctitan_graph *g;
    const ctitan_shape *shape;
} builder;

static ctitan_value weight(const builder *b, int layer, const char *which) {
    char name[64];
    if (layer < 0) snprintf(name, sizeof name, "%s.weight", which);
    else snprintf(name, sizeof name, "layers.%d.%s.weight", layer, which);
    return b->h->parameter(b->g, name);
}

static ctitan_value node(const builder *b, const char *op, ctitan_value x, ctitan_value y, double attr) {
    return b->h->node(b->g, op, 2, (ctitan_value[]){x, y}, (double[8]){attr});
}

static ctitan_value layer(const builder *b, int l, ctitan_value x) {
    char module[32];
    snprintf(module, sizeof module, "layers.%d.mix", l);
    b->h->at(b->g, l, module);
    ctitan_value h = node(b, "rmsnorm", x, weight(b, l, "norm"), 1e-5), up = node(b, "matmul", h, weight(b, l, "up"), 0);
    ctitan_dim groups[] = {dim("G", GROUPS), dim("k", b->shape->ffn_dim / GROUPS)};
    ctitan_value mixed = node(b, "grouped_matmul", b->h->split(b->g, up, 2, 2, groups), weight(b, l, "mix"), 0);
    ctitan_value gated = node(b, "silu_mul", b->h->merge(b->g, mixed, 2, 2, "F"), up, 0);
    ctitan_value y = node(b, "add", x, node(b, "matmul", gated, weight(b, l, "down"), 0), 0);
    b->h->residual(b->g, y);
    return y;
}

static void build(const ctitan_host *h, ctitan_graph *g, const ctitan_shape *shape, int64_t batch, int64_t seq_len) {
    builder b = {h, g, shape};
    static const struct {
        const char *dim;
        ctitan_role role;
    } roles[] = {{"B", CTITAN_ROLE_BATCH}, {"T", CTITAN_ROLE_SEQUENCE}, {"D", CTITAN_ROLE_MODEL}, {"F", CTITAN_ROLE_HIDDEN},
                 {"G", CTITAN_ROLE_HIDDEN}, {"V", CTITAN_ROLE_VOCABULARY}, {"n", CTITAN_ROLE_NONE}, {"k", CTITAN_ROLE_NONE}};
    for (size_t i = 0; i < sizeof roles / sizeof *roles; i++) h->role(g, roles[i].dim, roles[i].role);
    ctitan_type ids = {CTITAN_I32, 2, {dim("B", batch), dim("T", seq_len)}}, scalar = {CTITAN_F32, 0, {{{0}, 0}}};
    ctitan_value tokens = h->feed(g, "tokens", ids), labels = h->feed(g, "labels", ids), inv_count = h->feed(g, "inv_count", scalar);
    h->at(g, -1, "tok_embeddings");
    ctitan_value x = node(&b, "embed", weight(&b, -1, "tok_embeddings"), tokens, 0);
    h->residual(g, x);
    for (int l = 0; l < shape->n_layers; l++) x = layer(&b, l, x);
    h->at(g, -1, "output");
    ctitan_value last = node(&b, "rmsnorm", x, weight(&b, -1, "norm"), 1e-5);
    h->token_loss(g, h->node(g, "lm_loss", 4, (ctitan_value[]){last, weight(&b, -1, "output"), labels, inv_count}, NULL));
}

static const char *const flavors[] = {"small", NULL};
static const ctitan_model models[] = {{"grouped", flavors, describe, build}, {0}};
static const ctitan_plugin_description description = {CTITAN_ABI, "grouped matmul", ops, models, NULL};

const ctitan_plugin_description *ctitan_plugin(const ctitan_host *h);
const ctitan_plugin_description *ctitan_plugin(const ctitan_host *h) {
    host = h;
    return h->abi == CTITAN_ABI ? &description : NULL;
}
