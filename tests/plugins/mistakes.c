// A plugin that loads, and whose models and gradient each make one mistake. The flavour of model "mistaken" says which.
#include <ctitan/plugin.h>

#include <string.h>

static const char *wanted = "";

static ctitan_dim dim(const char *name, int64_t extent) {
    ctitan_dim d = {.extent = extent};
    for (size_t i = 0; i < sizeof d.name && name[i]; i++) d.name[i] = name[i]; // a long one does not end
    return d;
}

static const char *describe(const char *flavor, const ctitan_override *overrides, int count, ctitan_shape *shape, ctitan_listing *listing,
                            void (*add)(ctitan_listing *, const char *, const ctitan_dim *, int, ctitan_init, double, double)) {
    (void)overrides, (void)count;
    wanted = flavor;
    *shape = (ctitan_shape){.dim = 4, .vocab_size = 8, .max_seq_len = 64};
    ctitan_dim dims[7] = {dim("V", 8), dim("D", 4)};
    if (!strcmp(flavor, "words")) return "it is said in words";
    if (!strcmp(flavor, "no-parameters")) return NULL;
    add(listing, "w", dims, !strcmp(flavor, "many-dims") ? 7 : 2, CTITAN_INIT_ONES, 0, 0);
    if (!strcmp(flavor, "twice")) add(listing, "w", dims, 2, CTITAN_INIT_ONES, 0, 0);
    return NULL;
}

static int is(const char *flavor) { return !strcmp(wanted, flavor); }

static void build(const ctitan_host *h, ctitan_graph *g, const ctitan_shape *shape, int64_t batch, int64_t seq_len) {
    (void)shape;
    h->at(g, 3, "layers.3.wrong");
    h->role(g, "B", CTITAN_ROLE_BATCH);
    h->role(g, "T", CTITAN_ROLE_SEQUENCE);
    if (is("role")) h->role(g, "T", CTITAN_ROLE_BATCH);
    if (is("role-number")) h->role(g, "D", (ctitan_role)99);
    ctitan_type ids = {CTITAN_I32, 2, {dim("B", batch), dim("T", seq_len)}};
    if (is("type")) ids.dims_count = 9;
    if (is("dim-name")) ids.dims[0] = dim("far too long", 2);
    ctitan_value tokens = h->feed(g, "tokens", ids), w = h->parameter(g, is("parameter") ? "v" : "w");
    if (is("feed-twice")) h->feed(g, "tokens", ids);
    ctitan_value x = h->node(g, "embed", 2, (ctitan_value[]){w, is("value") ? 1234 : tokens}, NULL);
    if (is("operands")) h->node(g, "add", 1, &x, NULL);
    if (is("many-operands")) h->node(g, "add", 99, &x, NULL);
    if (is("op")) h->node(g, "nothing", 1, &x, NULL);
    if (is("view")) h->node(g, "merge", 1, &x, NULL);
    if (is("shapes")) h->node(g, "add", 2, (ctitan_value[]){x, w}, NULL);
    if (is("split")) h->split(g, x, 2, 2, (ctitan_dim[]){dim("H", 3), dim("h", 2)});
    if (is("split-dim")) h->split(g, x, 5, 2, (ctitan_dim[]){dim("H", 2), dim("h", 2)});
    if (is("merge")) h->merge(g, x, 2, 4, "X");
    if (is("output")) h->output(g, x, 1);
    if (is("output-of-feed")) h->output(g, tokens, 0);
    if (is("residual")) h->residual(g, -1);
    if (is("loss")) h->token_loss(g, x);
    if (h->type(g, -1)->dims_count || h->type(g, 1 << 30)->dims_count) h->node(g, "types", 0, NULL, NULL);
}

static void run(const ctitan_call *call, ctitan_team *team) { (void)call, (void)team; }
static void reference(const ctitan_reference *call) { (void)call; }
static void wild(const ctitan_host *host, ctitan_grad *grad) {
    (void)host;
    grad->d_in[0] = 1 << 20;
}

static const ctitan_kernel kernels[] = {{"f>f", run, NULL}, {0}};
static const ctitan_op ops[] = {{.name = "wild", .formula = "x", .rule = "* -> *", .dtypes = "f>f", .inputs = 1, .outputs = 1, .reference = reference,
                                 .grad = wild, .kernels = kernels}, {0}};
static const char *const flavors[] = {"words", "no-parameters", "many-dims", "twice", "role", "role-number", "type", "dim-name", "parameter", "feed-twice",
                                      "value", "operands", "many-operands", "op", "view", "shapes", "split", "split-dim", "merge", "output",
                                      "output-of-feed", "residual", "loss", "none", NULL};
static const ctitan_model models[] = {{"mistaken", flavors, describe, build}, {0}};
static const ctitan_plugin_description description = {CTITAN_ABI, "mistakes", ops, models, NULL};
const ctitan_plugin_description *ctitan_plugin(const ctitan_host *host);
const ctitan_plugin_description *ctitan_plugin(const ctitan_host *host) { return host->abi == CTITAN_ABI ? &description : NULL; }
