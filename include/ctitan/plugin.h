// The plugin ABI of ctitan: a user's own ops, models and data sources in a shared object.
//
//     gcc -O3 -shared -fPIC -I include -o my.so my.c          [plugins] paths = ["my.so"]
//
// This header is all that a plugin needs. A shared object exports one function, ctitan_plugin, which gets the host's functions and gives a
// description of what it adds. An op says its shapes and its sharding in one index rule, its gradient in terms of other ops, its cost, a
// reference loop in double, and at least one kernel: then it works under every parallelism, recomputation and precision, with no code more.
//
// The ABI has a number. A plugin is refused where its number is another, so build it against the header of the ctitan that loads it; numbers
// change only when a struct or the meaning of a field does. Nothing here throws, longjmps or frees the other side's memory. What a plugin
// describes must live as long as the process; it is read once, before ranks start. A mistake in a plugin (a value that is none, a node whose
// operands do not fit, a rule that does not parse) is one error message of the host's, not a crash; a wild pointer is the plugin's own.
#pragma once
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define CTITAN_ABI 1

typedef enum { CTITAN_F32, CTITAN_BF16, CTITAN_F64, CTITAN_I32, CTITAN_I64 } ctitan_dtype;

// What a dim means, which is what a mesh axis may cut: dp the batch, cp the sequence, tp heads, hidden and vocabulary.
typedef enum {
    CTITAN_ROLE_NONE, CTITAN_ROLE_BATCH, CTITAN_ROLE_SEQUENCE, CTITAN_ROLE_HEADS, CTITAN_ROLE_HIDDEN, CTITAN_ROLE_VOCABULARY,
    CTITAN_ROLE_EXPERT, CTITAN_ROLE_MODEL
} ctitan_role;

typedef struct {
    char name[8]; // "B", "T", "D"
    int64_t extent;
} ctitan_dim;

typedef struct {
    int dtype; // ctitan_dtype
    int dims_count;
    ctitan_dim dims[6];
} ctitan_type;

typedef struct ctitan_graph ctitan_graph;
typedef struct ctitan_team ctitan_team;
typedef int ctitan_value; // a value's number in its graph; -1: none

typedef enum { CTITAN_FORWARD = 0, CTITAN_INPUT_GRAD = 2, CTITAN_WEIGHT_GRAD = 3 } ctitan_phase;

// ---- what the host offers ----
typedef struct {
    int abi; // the host's CTITAN_ABI
    // ---- for gradients and models: after the first error these do nothing and give -1 ----
    // Adds a node of any op of the table (`ctitan graph --ops` lists them) but views, attributes in the op's order (NULL: zeros). Gives its first
    // output, -1 after an error, which sticks to the graph and is reported by the host.
    ctitan_value (*node)(ctitan_graph *graph, const char *op, int inputs_count, const ctitan_value *inputs, const double *attrs);
    ctitan_value (*output)(ctitan_graph *graph, ctitan_value first, int number); // another output of the node that made `first`
    ctitan_value (*split)(ctitan_graph *graph, ctitan_value x, int dim, int parts, const ctitan_dim *into); // one dim as adjacent ones
    ctitan_value (*merge)(ctitan_graph *graph, ctitan_value x, int dim, int count, const char *name);       // adjacent dims as one
    const ctitan_type *(*type)(const ctitan_graph *graph, ctitan_value value); // borrowed until the next node; of -1: f32[]
    void (*phase)(ctitan_graph *graph, ctitan_phase phase); // of the nodes that follow, from CTITAN_INPUT_GRAD at a gradient's start
    // ---- for models ----
    void (*role)(ctitan_graph *graph, const char *dim, ctitan_role role);
    void (*at)(ctitan_graph *graph, int layer, const char *module); // provenance: "layers.3.mlp"; layer -1: none
    ctitan_value (*feed)(ctitan_graph *graph, const char *name, ctitan_type type); // tokens, labels, positions, documents i32[B T]; inv_count f32[]
    ctitan_value (*parameter)(ctitan_graph *graph, const char *name);              // of those that the model listed
    void (*residual)(ctitan_graph *graph, ctitan_value value); // the stream between layers: never a partial sum, cut as much as may be
    void (*token_loss)(ctitan_graph *graph, ctitan_value value); // what the program yields: f32[B T]
    // ---- for kernels: runs task(context, thread, threads) on every thread of the rank's team, and waits ----
    void (*run)(ctitan_team *team, void (*task)(void *context, int thread, int threads), void *context);
} ctitan_host;

// ---- ops ----
// A kernel's call. `in` and `out` are dense and row-major; any extent may be 0 (a shard can be empty); origin[d] is the global index of a
// shard's first element along d. Promise: the bits of an output depend on the operands alone, not on the number of threads, and a part of an
// index that may be cut gives the bits that the whole has there.
typedef struct {
    void *data;
    int dtype;
    int dims_count;
    int64_t dims[6];
    int64_t origin[6];
} ctitan_tensor;

typedef struct {
    int inputs, outputs;
    ctitan_tensor in[12], out[4];
    double attrs[8];
    void *scratch; // 64-byte aligned, as large as the kernel asked for
} ctitan_call;

typedef struct {
    const char *dtypes; // operands' dtypes it serves, inputs then outputs: f b d i l, "." for f or b: "ff>f"
    void (*run)(const ctitan_call *call, ctitan_team *team);
    size_t (*scratch)(const ctitan_call *call, int threads); // NULL: none
} ctitan_kernel;

// The op in double; integers stand as doubles. Inputs are read, outputs written; the host rounds.
typedef struct {
    int inputs, outputs;
    const ctitan_type *in_types[12], *out_types[4];
    const double *in[12];
    double *out[4];
    const double *attrs;
    const int64_t *in_origin[12], *out_origin[4]; // NULL: zeros
} ctitan_reference;

// A gradient to be built: set d_in[i], a value of in[i]'s shape, for the inputs that get one. The nodes of a weight's gradient are built after
// host->phase(graph, CTITAN_WEIGHT_GRAD).
typedef struct {
    ctitan_graph *graph;
    int inputs, outputs;
    ctitan_value in[12], out[4];
    ctitan_value d_out[4]; // -1: nothing depends on that output
    ctitan_value d_in[12]; // -1 at first
    const double *attrs;
} ctitan_grad;

enum {
    CTITAN_OP_SUM = 2,        // a sum over the indices that its outputs lack: cutting one makes the outputs partial sums
    CTITAN_OP_MAX = 4,        // a maximum over them
    CTITAN_OP_LINEAR0 = 256,  // linear in input 0, LINEAR0 << i in input i < 8: a partial sum there makes the outputs partial sums
    CTITAN_OP_LOWP0 = 1 << 16, // input 0 is read in the compute dtype: a weight there is cast to bf16, LOWP0 << i
};

typedef struct {
    const char *name;    // new: no op of the table may have it
    const char *formula; // for `ctitan graph --ops`
    // An index expression, words parted by blanks: "B T K, N K -> B T N". Letters bind to the operands' dims, outputs have the dims of
    // their letters. "!" behind a letter: may not be cut. "*": any dims, the same wherever it stands. Every other letter may be cut by any mesh
    // axis that its dim's role allows.
    const char *rule;
    const char *dtypes;  // "cc>c": c f32 or bf16, all alike; f b i l d fixed
    int inputs, outputs;
    const char *attrs[8];
    unsigned flags;
    unsigned may_alias[4]; // bit i: output o may take input i's memory where that is its last use
    double (*flops)(const ctitan_type *const *in, const ctitan_type *const *out, const double *attrs); // NULL: 0
    void (*reference)(const ctitan_reference *call);
    void (*grad)(const ctitan_host *host, ctitan_grad *grad); // NULL: not differentiable
    const ctitan_kernel *kernels; // best first; ends with one whose dtypes are NULL
} ctitan_op;

// ---- models ----
typedef struct {
    int64_t dim, n_layers, n_heads, n_kv_heads, head_dim, ffn_dim, vocab_size, max_seq_len; // for reports and FLOPs; 0 where there is none
} ctitan_shape;

typedef enum { CTITAN_INIT_ONES, CTITAN_INIT_NORMAL, CTITAN_INIT_TRUNCATED_NORMAL } ctitan_init;

typedef struct ctitan_listing ctitan_listing; // of parameters
typedef struct {
    const char *key; // "dim", "n_layers", "vocab_size", … of [model.args]
    double number;
} ctitan_override;

typedef struct {
    const char *name;           // [model] name
    const char *const *flavors; // NULL-terminated
    // The sizes of a flavour with the overrides applied, and the parameters: add(listing, name, dims, count, init, std, cut), f32, in the order
    // in which checkpoints list them. Gives NULL, or what is wrong with an override, in words.
    const char *(*describe)(const char *flavor, const ctitan_override *overrides, int count, ctitan_shape *out_shape, ctitan_listing *listing,
                            void (*add)(ctitan_listing *listing, const char *name, const ctitan_dim *dims, int dims_count, ctitan_init init,
                                        double std, double cut));
    // Builds the loss program for one device: roles, feeds, parameters, nodes, token_loss.
    void (*build)(const ctitan_host *host, ctitan_graph *graph, const ctitan_shape *shape, int64_t batch, int64_t seq_len);
} ctitan_model;

// ---- data sources ----
// A row of documents that can be gone to by number, which is all that shuffling, resuming and other meshes need. [[training.sources]] names it
// by `reader`. Every rank opens it for itself, perhaps at the same time as others; what was opened is used by one thread at a time.
typedef struct {
    const char *name;
    // Opens what the source's `path` names, in the plugin's own terms. *out_documents ≥ 1: how many there are; *out_fingerprint: a number that
    // is another where the documents are (a run does not resume on others). NULL, or what is wrong, in words that stay until the next call.
    const char *(*open)(const char *path, void **out_source, int64_t *out_documents, uint64_t *out_fingerprint);
    // The bytes of document 0 … documents - 1, the same each time, borrowed until the next read or close. NULL, or what is wrong.
    const char *(*read)(void *source, int64_t document, const char **out_text, size_t *out_bytes);
    void (*close)(void *source); // NULL: nothing to close
} ctitan_source;

// ---- what a shared object exports ----
typedef struct {
    int abi;                    // CTITAN_ABI
    const char *name;           // for messages
    const ctitan_op *ops;       // ends with one whose name is NULL; NULL: none
    const ctitan_model *models; // likewise
    const ctitan_source *sources; // likewise
} ctitan_plugin_description;

// extern "C" const ctitan_plugin_description *ctitan_plugin(const ctitan_host *host); called once, before anything runs. NULL: it can't serve.
typedef const ctitan_plugin_description *ctitan_plugin_fn(const ctitan_host *host);

#ifdef __cplusplus
}
#endif
