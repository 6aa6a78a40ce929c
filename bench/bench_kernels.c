// How near every kernel but the products comes to this machine's ceilings: bench_kernels [threads] [rounds] [text a
// line must contain]. Rounds are interleaved: each measures the peak or the memory's speed and then every kernel, so
// that a slow phase hits both alike. Beside the median and the best stands the floor: bytes over bandwidth (a copy's
// for what writes, else a read's), FLOPs over the peak.
#include "base/memory.h"
#include "kernels/kernel.h"
#include "kernels/peak.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

enum { MAX_CASES = 128, MAX_ROUNDS = 64 };
static const double min_seconds = 0.004;

// Operands in order: a letter, then dims. x: the compute dtype, f: f32, i: positions (index in the last dim), t:
// token numbers below 32000, z: i32 zeros, l: i64, d: f64 {1e-3, 10}. "=2" is the memory of input 2. A '-' before:
// not counted as traffic.
typedef struct {
    const char *op, *in, *out;
    double attrs[CT_MAX_ATTRS], flops;
    int dtypes; // 1: f32, 2: bf16, 3: both
} bench_op;

#define CAUSAL(B, T, H, d) (2.0 * (B) * (T) * (T) * (H) * (d)) // both products of half the square
static const bench_op ops[] = {
    {"add", "x4,512,768 x4,512,768", "=0", {0}, 0, 3},
    {"add", "x16777216 x16777216", "=0", {0}, 0, 3},
    {"cast", "f25165824", "x25165824", {0}, 0, 2},
    {"accumulate", "f25165824 f25165824 z", "=0", {0}, 0, 1},
    {"silu_mul", "x2048,2048 x2048,2048", "x2048,2048", {0}, 0, 3},
    {"silu_mul_grad", "x2048,2048 x2048,2048 x2048,2048", "=1 =2", {0}, 0, 3},
    {"rmsnorm", "x4,512,768 f768", "x4,512,768 f4,512", {1e-5}, 0, 3},
    {"rmsnorm_grad", "x4,512,768 x4,512,768 f768 f4,512", "x4,512,768 f768", {0}, 0, 3},
    {"rmsnorm_grad", "x4,512,4096 x4,512,4096 f4096 f4,512", "x4,512,4096 f4096", {0}, 0, 3},
    {"rope_angles", "i4,512", "f4,512,64", {64, 500000, 8, 1, 4, 8192}, 0, 1},
    {"rope", "x4,512,12,64 f4,512,64", "=0", {0}, 0, 3},
    {"embed", "-x32000,768 t4,512", "x4,512,768", {0}, 0, 3},
    {"embed_dw", "x4,512,768 t4,512", "f32000,768", {0}, 0, 3},
    {"embed_dw_acc", "-f32000,768 x4,512,768 t4,512 z", "-=0", {0}, 0, 3},
    {"vocab_max", "f1,512,32000", "f1,512", {0}, 0, 1},
    {"vocab_sumexp", "f1,512,32000 f1,512", "f1,512", {0}, 0, 1},
    {"vocab_grad", "f1,512,32000 f1,512 f1,512 t1,512 f", "=0", {0}, 0, 1},
    {"vocab_grad", "f1,512,32000 f1,512 f1,512 t1,512 f", "x1,512,32000", {0}, 0, 2},
    {"wide_sum", "f25165824 l21 z", "=1", {1}, 0, 1},
    {"wide_sum", "f1048576 l21 z", "=1", {1}, 0, 1},
    {"adamw", "f8388608 f8388608 f8388608 f8388608 f d2", "=0 =1 =2", {1, 0.9, 0.95, 1e-8, 0.1}, 0, 1},
    {"adamw_ema", "f8388608 f8388608 f8388608 f8388608 f d3 f8388608", "=0 =1 =2 =6", {1, 0.9, 0.95, 1e-8, 0.1}, 0, 1},
    {"attention",
     "x4,512,4,3,64 x4,512,4,64 x4,512,4,64 i4,512 i4,512 z4,512 z4,512",
     "x4,512,4,3,64 f4,512,4,3",
     {0.125},
     CAUSAL(4, 512, 12, 64),
     3},
    {"attention",
     "x4,512,4,2,32 x4,512,4,32 x4,512,4,32 i4,512 i4,512 z4,512 z4,512",
     "x4,512,4,2,32 f4,512,4,2",
     {0.177},
     CAUSAL(4, 512, 8, 32),
     3},
    {"attention",
     "x1,2048,4,3,64 x1,2048,4,64 x1,2048,4,64 i1,2048 i1,2048 z1,2048 z1,2048",
     "x1,2048,4,3,64 f1,2048,4,3",
     {0.125},
     CAUSAL(1, 2048, 12, 64),
     3},
    {"attention",
     "x1,2048,2,4,128 x1,2048,2,128 x1,2048,2,128 i1,2048 i1,2048 z1,2048 z1,2048",
     "x1,2048,2,4,128 f1,2048,2,4",
     {0.088},
     CAUSAL(1, 2048, 8, 128),
     3},
    {"attention",
     "x4,1,4,3,64 x4,2048,4,64 x4,2048,4,64 i4,1 z4,2048 z4,1 z4,2048",
     "x4,1,4,3,64 f4,1,4,3",
     {0.125},
     0,
     3},
    {"attention_grad",
     "x4,512,4,3,64 x4,512,4,3,64 x4,512,4,64 x4,512,4,64 x4,512,4,3,64 f4,512,4,3 i4,512 i4,512 z4,512 z4,512",
     "x4,512,4,3,64 x4,512,4,64 x4,512,4,64",
     {0.125},
     2.5 * CAUSAL(4, 512, 12, 64),
     3},
    {"attention_grad",
     "x4,512,4,2,32 x4,512,4,2,32 x4,512,4,32 x4,512,4,32 x4,512,4,2,32 f4,512,4,2 i4,512 i4,512 z4,512 z4,512",
     "x4,512,4,2,32 x4,512,4,32 x4,512,4,32",
     {0.177},
     2.5 * CAUSAL(4, 512, 8, 32),
     3},
    {"attention_grad",
     "x1,2048,4,3,64 x1,2048,4,3,64 x1,2048,4,64 x1,2048,4,64 x1,2048,4,3,64 f1,2048,4,3 i1,2048 i1,2048 z1,2048 "
     "z1,2048",
     "x1,2048,4,3,64 x1,2048,4,64 x1,2048,4,64",
     {0.125},
     2.5 * CAUSAL(1, 2048, 12, 64),
     3},
    {"attention_grad",
     "x1,2048,2,4,128 x1,2048,2,4,128 x1,2048,2,128 x1,2048,2,128 x1,2048,2,4,128 f1,2048,2,4 i1,2048 i1,2048 "
     "z1,2048 z1,2048",
     "x1,2048,2,4,128 x1,2048,2,128 x1,2048,2,128",
     {0.088},
     2.5 * CAUSAL(1, 2048, 8, 128),
     3},
};

typedef struct {
    const bench_op *op;
    ct_dtype dtype;
    ct_call call;
    const ct_kernel *kernel;
    double bytes, seconds[MAX_ROUNDS], shares[MAX_ROUNDS];
    int writes;
} bench_case;

// With one thread the thread's own time, so that other programs on the core do not count; else the wall's, or the
// process's where $BENCH_CPU is set.
static double now_s(int threads) {
    struct timespec t;
    clock_gettime(threads == 1          ? CLOCK_THREAD_CPUTIME_ID
                  : getenv("BENCH_CPU") ? CLOCK_PROCESS_CPUTIME_ID
                                        : CLOCK_MONOTONIC,
                  &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void *pages(size_t bytes) {
    void *p = mmap(NULL, bytes + (4 << 20), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) {
        fprintf(stderr, "no memory for %zu bytes\n", bytes);
        exit(1);
    }
    p = (void *)(((uintptr_t)p + (2 << 20) - 1) & ~(uintptr_t)((2 << 20) - 1));
    madvise(p, bytes, MADV_HUGEPAGE);
    return p;
}

static void fill(ct_tensor *t, char letter) {
    int64_t n = ct_tensor_elems(t), last = t->dims_count ? t->dims[t->dims_count - 1] : 1;
    uint32_t seed = 1;
    for (int64_t i = 0; i < n; i++) {
        seed = seed * 1664525 + 1013904223;
        float v = (float)((seed >> 8) + 1) * 0x1p-24f;
        if (t->dtype == CT_BF16) ((uint16_t *)t->data)[i] = ct_bf16_from_f32(v);
        if (t->dtype == CT_F32) ((float *)t->data)[i] = n == 1 ? 1 : v;
        if (letter == 'i') ((int32_t *)t->data)[i] = last == 1 ? 1 << 20 : (int32_t)(i % last);
        if (letter == 't') ((int32_t *)t->data)[i] = (int32_t)(seed >> 8) % 32000;
    }
    if (letter == 'd') memcpy(t->data, (double[]){1e-3, 10, 1e-3}, sizeof(double) * (size_t)t->dims[0]);
}

// Reads the next operand of *text; counts its bytes.
static ct_tensor operand(bench_case *c, const char **text, char *out_letter, int *out_same) {
    ct_tensor t = {0};
    int counted = **text != '-';
    *text += !counted;
    *out_letter = *(*text)++;
    *out_same = *out_letter == '=' ? (int)strtol(*text, (char **)text, 10) : -1;
    if (*out_same >= 0) t = c->call.in[*out_same];
    t.dtype = *out_same >= 0       ? t.dtype
              : *out_letter == 'x' ? c->dtype
              : *out_letter == 'f' ? CT_F32
              : *out_letter == 'l' ? CT_I64
              : *out_letter == 'd' ? CT_F64
                                   : CT_I32;
    while (**text && **text != ' ') {
        t.dims[t.dims_count++] = strtol(*text, (char **)text, 10);
        *text += **text == ',';
    }
    *text += **text == ' ';
    if (counted) c->bytes += (double)ct_tensor_elems(&t) * (double)ct_dtype_bytes(t.dtype);
    return t;
}

static void prepare(bench_case *c, int threads) {
    char letter;
    int same;
    for (const char *text = c->op->in; *text; c->call.inputs++) {
        ct_tensor *t = &c->call.in[c->call.inputs];
        *t = operand(c, &text, &letter, &same);
        t->data = pages((size_t)ct_tensor_elems(t) * ct_dtype_bytes(t->dtype));
        fill(t, letter);
    }
    for (const char *text = c->op->out; *text; c->call.outputs++) {
        double before = c->bytes;
        ct_tensor *t = &c->call.out[c->call.outputs];
        *t = operand(c, &text, &letter, &same);
        if (same < 0) t->data = pages((size_t)ct_tensor_elems(t) * ct_dtype_bytes(t->dtype));
        c->writes |= c->bytes - before > before / 8;
    }
    memcpy(c->call.attrs, c->op->attrs, sizeof c->call.attrs);
    if (!strncmp(c->op->op, "embed", 5) && c->op->op[5] == 0) c->bytes *= 2; // the rows that are read
    if (!strcmp(c->op->op, "embed_dw_acc")) c->bytes *= 1 + 8.0 / (double)ct_dtype_bytes(c->dtype);
    c->kernel = ct_kernel_find(c->op->op, &c->call, getenv("CT_ISA"));
    c->call.scratch = pages(c->kernel && c->kernel->scratch ? c->kernel->scratch(&c->call, threads) : 64);
}

static void release(bench_case *c) {
    for (int i = 0; i < c->call.inputs; i++)
        munmap(c->call.in[i].data, (size_t)ct_tensor_elems(&c->call.in[i]) * ct_dtype_bytes(c->call.in[i].dtype));
    for (int i = 0; i < c->call.outputs; i++)
        munmap(c->call.out[i].data, (size_t)ct_tensor_elems(&c->call.out[i]) * ct_dtype_bytes(c->call.out[i].dtype));
}

static double run_seconds(const bench_case *c, ct_team *team) {
    int threads = ct_team_size(team), calls = 0;
    double start = now_s(threads), used;
    do {
        c->kernel->run(&c->call, team);
        calls++;
        used = now_s(threads) - start;
    } while (used < min_seconds);
    return used / calls / (threads > 1 && getenv("BENCH_CPU") ? threads : 1);
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

// What the machine gives at most just now, in the case's unit.
static double ceiling(const bench_case *c, ct_team *team) {
    if (c->op->flops > 0) return ct_peak_measure(c->dtype, team, 0);
    ct_bandwidth now;
    if (ct_bandwidth_get(team, &now)) exit(1); // the best seen: this is the wall's time, and other programs run
    return c->writes ? now.copy > now.triad ? now.copy : now.triad : now.read;
}

static void bench(const bench_op *op, ct_dtype dtype, int threads, int rounds, const char *only) {
    char name[96];
    const char *first = op->in + (op->in[0] == '-');
    snprintf(name, sizeof name, "%s %s %.*s", ct_dtype_name(dtype), op->op, (int)strcspn(first, " "), first);
    if (!(op->dtypes >> (dtype == CT_BF16) & 1) || !strstr(name, only)) return;
    bench_case c = {.op = op, .dtype = dtype};
    ct_team *team;
    if (ct_team_create((ct_team_options){.threads = threads}, &team)) exit(1);
    prepare(&c, threads);
    if (!c.kernel) {
        printf("%-40s no kernel\n", name);
    } else {
        double unit = op->flops > 0 ? op->flops : c.bytes, best_ceiling = 0;
        run_seconds(&c, team);
        for (int r = 0; r < rounds; r++) {
            double top = ceiling(&c, team);
            c.seconds[r] = run_seconds(&c, team);
            c.shares[r] = unit / c.seconds[r] / top;
            best_ceiling = top > best_ceiling ? top : best_ceiling;
        }
        qsort(c.seconds, (size_t)rounds, sizeof(double), by_value);
        qsort(c.shares, (size_t)rounds, sizeof(double), by_value);
        printf("%-40s %-10s %9.1f %s %6.1f%% %9.1f %6.1f%% %9.3f %9.3f\n", name, c.kernel->isa,
               unit / c.seconds[rounds / 2] / 1e9, op->flops > 0 ? "GFLOP/s" : "GB/s   ", 100 * c.shares[rounds / 2],
               unit / c.seconds[0] / 1e9, 100 * unit / c.seconds[0] / best_ceiling, 1e3 * c.seconds[0],
               1e3 * unit / best_ceiling);
    }
    fflush(stdout);
    release(&c);
    ct_team_destroy(team);
}

int main(int argc, char **argv) {
    int threads = argc > 1 ? atoi(argv[1]) : 1, rounds = argc > 2 ? atoi(argv[2]) : 5;
    if (rounds < 1 || rounds > MAX_ROUNDS || threads < 1 || threads > 1024) return 2;
    printf("%d thread%s, %d rounds; %%: of what the machine gave in the same round, and best of best\n", threads,
           threads == 1 ? "" : "s", rounds);
    printf("%-40s %-10s %9s %14s %17s %9s %9s\n", "", "", "median", "%", "best       %", "best ms", "floor ms");
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++)
        for (int dtype = CT_F32; dtype <= CT_BF16; dtype++)
            bench(&ops[i], (ct_dtype)dtype, threads, rounds, argc > 3 ? argv[3] : "");
    return 0;
}
