// Every kernel that serves an op against the op's reference, for each dtype of 'c' and each instruction set of this machine: odd and even
// extents, 1 to 3 threads, outputs in an input's memory where the op allows it, and one part of an index after the other where all
// outputs have it; but for the comparison with the reference, all must give the same bits. Then what a rank of many may have: a part of
// any index that may be cut, or nothing of it; and outputs that are stored wider because they are partial sums.
#include "example.h"
#include "kernels/kernel.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

enum { SEEDS = 10, SEEDS_CUT = 4, THREADS = 3 };

typedef struct {
    const ct_kernel *kernel;
    const example *e;
    ct_team *teams[THREADS + 1];
} runner;

// ---- operands in memory ----

// No more than what is asked for: a sanitizer sees what lies beyond.
static void *allocate(size_t bytes) {
    void *p;
    if (posix_memalign(&p, 64, bytes ? bytes : 1)) fail_msg("no memory");
    memset(p, 0x7f, bytes); // NaN or large where a kernel forgets to write
    return p;
}

static ct_tensor tensor_of(const ct_type *type, const int64_t *origin) {
    ct_tensor t = {.dtype = type->dtype, .dims_count = type->dims_count};
    for (int i = 0; i < type->dims_count; i++) t.dims[i] = type->dims[i].extent, t.origin[i] = origin[i];
    return t;
}

static void store(void *to, ct_dtype dtype, int64_t i, double x) {
    switch (dtype) {
    case CT_F32: ((float *)to)[i] = (float)x; break;
    case CT_BF16: ((uint16_t *)to)[i] = ct_bf16_from_f32((float)x); break;
    case CT_F64: ((double *)to)[i] = x; break;
    case CT_I32: ((int32_t *)to)[i] = (int32_t)x; break;
    default: ((int64_t *)to)[i] = (int64_t)x; break;
    }
}

static double load(const void *from, ct_dtype dtype, int64_t i) {
    switch (dtype) {
    case CT_F32: return (double)((const float *)from)[i];
    case CT_BF16: return (double)ct_f32_from_bf16(((const uint16_t *)from)[i]);
    case CT_F64: return ((const double *)from)[i];
    case CT_I32: return ((const int32_t *)from)[i];
    default: return (double)((const int64_t *)from)[i];
    }
}

static size_t bytes_of(const ct_type *type) { return ct_type_bytes(type); }

// The call of an example; alias[o]: 1 + the input whose memory output o takes, 0: its own.
static ct_call call_of(const example *e, const int *alias) {
    ct_call call = {.inputs = e->inputs, .outputs = e->outputs};
    memcpy(call.attrs, e->attrs, sizeof call.attrs);
    for (int i = 0; i < e->inputs; i++) {
        call.in[i] = tensor_of(&e->in[i], e->in_origin[i]);
        call.in[i].data = allocate(bytes_of(&e->in[i]));
        for (int64_t j = 0; j < ct_type_elems(&e->in[i]); j++) store(call.in[i].data, e->in[i].dtype, j, e->data[i][j]);
    }
    for (int o = 0; o < e->outputs; o++) {
        call.out[o] = tensor_of(&e->out[o], e->out_origin[o]);
        call.out[o].data = alias[o] ? call.in[alias[o] - 1].data : allocate(bytes_of(&e->out[o]));
    }
    return call;
}

static void free_call(ct_call *call, const int *alias) {
    for (int i = 0; i < call->inputs; i++) free(call->in[i].data);
    for (int o = 0; o < call->outputs; o++)
        if (!alias[o]) free(call->out[o].data);
}

// Runs the kernel; the outputs' bytes go to out[] (caller frees).
static void run(const runner *r, const example *e, int threads, const int *alias, void **out) {
    ct_call call = call_of(e, alias);
    size_t scratch = r->kernel->scratch ? r->kernel->scratch(&call, threads) : 0;
    call.scratch = allocate(scratch);
    r->kernel->run(&call, r->teams[threads]);
    free(call.scratch);
    for (int o = 0; o < e->outputs; o++) {
        out[o] = ct_malloc(bytes_of(&e->out[o]) + 1);
        memcpy(out[o], call.out[o].data, bytes_of(&e->out[o]));
    }
    free_call(&call, alias);
}

static void free_outputs(const example *e, void **out) {
    for (int o = 0; o < e->outputs; o++) free(out[o]);
}

// ---- comparisons ----

static void compare_bits(const runner *r, void **want, void **got, const char *what) {
    for (int o = 0; o < r->e->outputs; o++)
        if (memcmp(want[o], got[o], bytes_of(&r->e->out[o])))
            fail_msg("%s, kernel %s (%s), seed %u: output %d has other bits %s", r->e->op->name, r->kernel->dtypes, r->kernel->isa,
                     r->e->seed, o, what);
}

static double limit_of(const ct_type *type) { return type->dtype == CT_BF16 ? 8e-3 : type->dtype == CT_F32 ? 1e-5 : 0; }

static double largest_of(const example *e, int output) {
    double largest = 1e-2;
    for (int64_t i = 0; i < ct_type_elems(&e->out[output]); i++)
        if (isfinite(e->result[output][i])) largest = fmax(largest, fabs(e->result[output][i]));
    return largest;
}

// The tiled kernels round weights to bf16 inside, so a wider output gains less.
static int rounds_inside(const runner *r) { return !strcmp(r->kernel->isa, "avx512bf16") && !strncmp(r->kernel->op, "attention", 9); }

static void compare_values(const runner *r, void **out, finding *found) {
    const example *e = r->e;
    const example_hook *hook = example_hook_of(e->op->name);
    double *got[CT_MAX_OUTPUTS], all_largest = 0;
    for (int o = 0; o < e->outputs; o++) {
        int64_t n = ct_type_elems(&e->out[o]);
        all_largest = fmax(all_largest, largest_of(e, o));
        got[o] = ct_malloc(sizeof(double) * (size_t)(n + 1));
        for (int64_t i = 0; i < n; i++) got[o][i] = load(out[o], e->out[o].dtype, i);
    }
    if (hook && hook->canonical) hook->canonical(e, got);
    for (int o = 0; o < e->outputs; o++) {
        int64_t n = ct_type_elems(&e->out[o]);
        double largest = fmax(largest_of(e, o), 0.1 * all_largest); // an output that cancels is measured by the others
        for (int64_t i = 0; i < n; i++) {
            double want = e->result[o][i], x = got[o][i];
            double error = want == x || (want != want && x != x) ? 0 : fabs(want - x) / largest;
            double *worst = &found->kernel_error[e->out[o].dtype];
            *worst = error <= *worst ? *worst : error;
            if (!(error <= (rounds_inside(r) ? 8e-3 : limit_of(&e->out[o]))))
                fail_msg("%s, kernel %s (%s), seed %u%s: output %d, element %lld is %.9g, the reference gives %.9g", e->op->name,
                         r->kernel->dtypes, r->kernel->isa, e->seed, e->is_part ? ", a part" : "", o, (long long)i, x, want);
        }
        free(got[o]);
    }
}

// ---- other ways to the same bits ----

static int may_share(const example *e, int output, int input) {
    return e->op->may_alias[output] >> input & 1 && e->in[input].dtype == e->out[output].dtype;
}

static void check_alias(const runner *r, const int *alias, void **want) {
    void *got[CT_MAX_OUTPUTS];
    run(r, r->e, 2, alias, got);
    compare_bits(r, want, got, "in an input's memory");
    free_outputs(r->e, got);
}

// Each allowed pair alone, and all outputs at once in different inputs' memory, from the first input on and from the last.
static void check_aliases(const runner *r, const int *alias, void **want) {
    const example *e = r->e;
    int other[CT_MAX_OUTPUTS], up[CT_MAX_OUTPUTS], down[CT_MAX_OUTPUTS];
    unsigned taken_up = 0, taken_down = 0;
    memcpy(up, alias, sizeof up);
    memcpy(down, alias, sizeof down);
    for (int o = 0; o < e->outputs; o++)
        for (int i = 0; i < e->inputs; i++) {
            if (!may_share(e, o, i)) continue;
            memcpy(other, alias, sizeof other);
            other[o] = 1 + i;
            check_alias(r, other, want);
            if (!up[o] && !(taken_up >> i & 1)) up[o] = 1 + i, taken_up |= 1u << i;
        }
    for (int o = 0; o < e->outputs; o++)
        for (int i = e->inputs - 1; i >= 0; i--)
            if (may_share(e, o, i) && !down[o] && !(taken_down >> i & 1)) down[o] = 1 + i, taken_down |= 1u << i;
    check_alias(r, up, want);
    check_alias(r, down, want);
}

// Lays a part's output into the whole's.
static void paste(const ct_type *whole, char *to, const ct_type *part, const char *from, int dim, int64_t begin) {
    size_t inner = ct_dtype_bytes(whole->dtype);
    int64_t outer = 1;
    for (int i = 0; i < dim; i++) outer *= whole->dims[i].extent;
    for (int i = dim + 1; i < whole->dims_count; i++) inner *= (size_t)whole->dims[i].extent;
    size_t run_bytes = (size_t)part->dims[dim].extent * inner, stride = (size_t)whole->dims[dim].extent * inner;
    for (int64_t o = 0; o < outer; o++)
        memcpy(to + (size_t)o * stride + (size_t)begin * inner, from + (size_t)o * run_bytes, run_bytes);
}

static void check_pieces(const runner *r, const char *letter, int star, int64_t extent, const int *alias, void **want) {
    const example *e = r->e;
    void *whole[CT_MAX_OUTPUTS];
    const int64_t bounds[] = {0, (extent + 2) / 3, extent};
    for (int o = 0; o < e->outputs; o++) whole[o] = ct_malloc(bytes_of(&e->out[o]) + 1);
    for (int p = 0; p < 2; p++) {
        example part;
        void *got[CT_MAX_OUTPUTS];
        example_cut(e, letter, star, bounds[p], bounds[p + 1], &part);
        run(r, &part, 1 + p, alias, got);
        for (int o = 0; o < e->outputs; o++)
            paste(&e->out[o], whole[o], &part.out[o], got[o], example_dim(&e->rule.out[o], letter, star), bounds[p]);
        free_outputs(&part, got);
        example_deinit(&part);
    }
    char what[40];
    snprintf(what, sizeof what, "in two pieces of %s", letter);
    compare_bits(r, want, whole, what);
    free_outputs(e, whole);
}

static int in_all_outputs(const example *e, const char *letter, int star) {
    for (int o = 0; o < e->outputs; o++) {
        int dim = example_dim(&e->rule.out[o], letter, star);
        if (dim < 0 || e->rule.out[o].index[example_is_star(&e->rule.out[o]) ? 0 : dim].fixed) return 0;
    }
    return 1;
}

static void check_all_pieces(const runner *r, const int *alias, void **want) {
    example_letter letters[LETTERS_MAX];
    int count = example_letters(r->e, letters);
    for (int i = 0; i < count; i++)
        if (letters[i].extent >= 2 && in_all_outputs(r->e, letters[i].letter, letters[i].star))
            check_pieces(r, letters[i].letter, letters[i].star, letters[i].extent, alias, want);
}

// ---- what a rank may have ----

static void check_part(const runner *r, const example_letter *l, int64_t begin, int64_t end, finding *found) {
    example part;
    example_cut(r->e, l->letter, l->star, begin, end, &part);
    example_run(&part);
    runner of_part = *r;
    of_part.e = &part;
    for (int threads = 1; threads <= THREADS; threads++) {
        void *got[CT_MAX_OUTPUTS];
        run(r, &part, threads, part.op->must_alias, got);
        compare_values(&of_part, got, found);
        free_outputs(&part, got);
    }
    example_deinit(&part);
}

// Nothing of an index at its beginning, within and at its end, and where an output is a sum over it the two halves.
static void check_all_parts(const runner *r, finding *found) {
    example_letter letters[LETTERS_MAX];
    int count = example_letters(r->e, letters);
    for (int i = 0; i < count; i++) {
        int64_t n = letters[i].extent, half = (n + 2) / 3;
        if (letters[i].fixed && !(r->e->op->flags & CT_OP_BLOCKS)) continue;
        check_part(r, &letters[i], 0, 0, found);
        check_part(r, &letters[i], half, half, found);
        check_part(r, &letters[i], n, n, found);
        if (letters[i].fixed || in_all_outputs(r->e, letters[i].letter, letters[i].star)) continue;
        check_part(r, &letters[i], 0, half, found);
        check_part(r, &letters[i], half, n, found);
    }
}

// May output o be a partial sum, and so be stored in f32?
static int may_be_partial(const example *e, int o) {
    const example_hook *hook = example_hook_of(e->op->name);
    example_letter letters[LETTERS_MAX];
    int count = example_letters(e, letters), found = hook && hook->wide_outputs;
    for (int i = 0; i < count && e->op->flags & CT_OP_SUM; i++)
        found |= !letters[i].fixed && letters[i].in_inputs && example_dim(&e->rule.out[o], letters[i].letter, letters[i].star) < 0;
    return found;
}

// A wider output is what the narrow one is rounded from; the other outputs are as ever.
static void compare_rounded(const runner *r, const example *wide, void **want, void **got) {
    for (int o = 0; o < wide->outputs; o++)
        for (int64_t i = 0; i < ct_type_elems(&wide->out[o]); i++) {
            double x = ct_reference_round(load(got[o], wide->out[o].dtype, i), r->e->out[o].dtype), y = load(want[o], r->e->out[o].dtype, i);
            if (x != y) fail_msg("%s on %s, seed %u: output %d, element %lld rounds to %.9g in f32, is %.9g otherwise", wide->op->name,
                                 r->kernel->isa, wide->seed, o, (long long)i, x, y);
        }
}

static void check_wide(const runner *r, unsigned outputs, void **want, finding *found) {
    static const int alone[CT_MAX_OUTPUTS];
    example wide = *r->e;
    for (int o = 0; o < wide.outputs; o++)
        if (outputs >> o & 1) wide.out[o].dtype = CT_F32;
    runner other = *r;
    other.e = &wide;
    ct_call call = call_of(&wide, alone);
    other.kernel = ct_kernel_find(r->kernel->op, &call, r->kernel->isa);
    free_call(&call, alone);
    if (!other.kernel) fail_msg("%s has no kernel on %s with outputs %x in f32", wide.op->name, r->kernel->isa, outputs);
    for (int threads = 1; threads <= THREADS; threads++) {
        void *got[CT_MAX_OUTPUTS];
        run(&other, &wide, threads, alone, got);
        compare_values(&other, got, found);
        compare_rounded(r, &wide, want, got);
        free_outputs(&wide, got);
    }
}

static void check_all_wide(const runner *r, void **want, finding *found) {
    unsigned narrow = 0;
    for (int o = 0; o < r->e->outputs; o++)
        if (r->e->out[o].dtype == CT_BF16 && may_be_partial(r->e, o)) narrow |= 1u << o;
    for (unsigned outputs = narrow; outputs; outputs = (outputs - 1) & narrow) check_wide(r, outputs, want, found);
}

// ---- all kernels of an op ----

static void check_kernel(runner *r, finding *found) {
    void *want[CT_MAX_OUTPUTS];
    const int *alias = r->e->op->must_alias;
    run(r, r->e, 1, alias, want);
    compare_values(r, want, found);
    for (int threads = 2; threads <= THREADS; threads++) {
        void *got[CT_MAX_OUTPUTS];
        run(r, r->e, threads, alias, got);
        compare_bits(r, want, got, "with more threads");
        free_outputs(r->e, got);
    }
    check_aliases(r, alias, want);
    check_all_pieces(r, alias, want);
    check_all_wide(r, want, found);
    if (r->e->seed < SEEDS_CUT) check_all_parts(r, found);
    free_outputs(r->e, want);
}

static void note(char *list, size_t size, const char *format, const char *a, const char *b) {
    char word[64];
    snprintf(word, sizeof word, format, a, b);
    if (!strstr(list, word) && strlen(list) + strlen(word) < size) strcat(list, word);
}

static void check_example(runner *r, finding *found) {
    static const char *const isas[] = {"generic", "avx2", "avx512", "avx512bf16"};
    static const int alone[CT_MAX_OUTPUTS];
    ct_call call = call_of(r->e, alone);
    const ct_kernel *last = NULL;
    for (size_t i = 0; i < sizeof isas / sizeof *isas; i++) {
        r->kernel = ct_kernel_find(r->e->op->kernel ? r->e->op->kernel : r->e->op->name, &call, isas[i]);
        if (!r->kernel)
            note(found->missing, sizeof found->missing, "%s %s; ", ct_dtype_name(r->e->in[0].dtype),
                 ct_dtype_name(r->e->out[0].dtype));
        else if (r->kernel != last) {
            check_kernel(r, found);
            note(found->kernels, sizeof found->kernels, "%s %s; ", r->kernel->dtypes, r->kernel->isa);
        }
        last = r->kernel;
    }
    free_call(&call, alone);
}

void check_kernels(const ct_op *op, finding *found) {
    if (op->flags & (CT_OP_VIEW | CT_OP_MOVE | CT_OP_MACRO)) return;
    runner r = {0};
    for (int t = 1; t <= THREADS; t++) {
        ct_status status = ct_team_create((ct_team_options){.threads = t, .first_core = -1, .never_spin = 1}, &r.teams[t]);
        if (status) fail_msg("%s", ct_error_text(status));
    }
    int dtypes = op->dtypes[strcspn(op->dtypes, "c?")] ? 2 : 1;
    for (int d = 0; d < dtypes; d++)
        for (unsigned seed = 0; seed < SEEDS; seed++) {
            example e;
            example_init(&e, op, d ? CT_BF16 : CT_F32, LARGE, seed);
            example_run(&e);
            r.e = &e;
            check_example(&r, found);
            example_deinit(&e);
        }
    for (int t = 1; t <= THREADS; t++) ct_team_destroy(r.teams[t]);
}
