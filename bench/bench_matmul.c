// How near the matrix products come to this machine's peak: bench_matmul [f32|bf16|both] [threads] [rounds] [text a
// line must contain]. Rounds are interleaved: each measures the peak and then every product once, so that a slow
// phase hits both alike. Printed are the median over rounds of a round's own ratio, the best rate, and the floor:
// what the call would take at the peak, or at the memory's speed.
#include "base/memory.h"
#include "kernels/kernel.h"
#include "kernels/peak.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

enum { MAX_CASES = 128, MAX_ROUNDS = 64 };
static const double min_seconds = 0.004;

typedef struct {
    int64_t m, n, k;
    const char *what;
} shape;
static const shape shapes[] = {
    {1, 2048, 2048, "generation"},       {4, 2048, 2048, "generation"}, {16, 2048, 2048, "generation"},
    {64, 2048, 2048, "generation"},      {2048, 256, 256, "25 M wo"},   {2048, 768, 256, "25 M w1"},
    {2048, 256, 768, "25 M w2"},         {2048, 768, 768, "110 M wo"},  {2048, 256, 768, "110 M wk"},
    {2048, 2048, 768, "110 M w1"},       {2048, 768, 2048, "110 M w2"}, {512, 32000, 768, "110 M head"},
    {512, 4096, 4096, "square"},         {2048, 2048, 2048, "square"},  {4096, 1024, 1024, "square"},
    {256, 128256, 1024, "Llama 3 head"},
};
static const char *const forms[] = {"matmul", "matmul_dx", "matmul_dw", "matmul_dw_acc"};

typedef struct {
    const shape *s;
    int form;
    ct_dtype dtype;
    ct_call call;
    const ct_kernel *kernel;
    double rates[MAX_ROUNDS], shares[MAX_ROUNDS];
} bench_case;

// With one thread the thread's own time, so that other programs on the core do not count; else the wall's, or, where
// $BENCH_CPU is set, the process's: what a call costs on a machine that others use too, without the time that its
// threads wait.
static double now_s(int threads) {
    struct timespec t;
    clock_gettime(threads == 1          ? CLOCK_THREAD_CPUTIME_ID
                  : getenv("BENCH_CPU") ? CLOCK_PROCESS_CPUTIME_ID
                                        : CLOCK_MONOTONIC,
                  &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void *pages(size_t bytes) {
    void *p = mmap(NULL, bytes + (2 << 20), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) {
        fprintf(stderr, "no memory for %zu bytes\n", bytes);
        exit(1);
    }
    p = (void *)(((uintptr_t)p + (2 << 20) - 1) & ~(uintptr_t)((2 << 20) - 1));
    madvise(p, bytes, MADV_HUGEPAGE);
    return p;
}

// Memory that all cases share: they run one after another, and each finds its operands as cold as the last left them.
typedef struct {
    void *x, *w, *y, *dw, *scratch;
    size_t x_bytes, w_bytes, y_bytes, dw_bytes, scratch_bytes;
} buffers;

static void fill(void *data, size_t bytes, ct_dtype dtype) {
    uint32_t seed = 1;
    for (size_t i = 0; i < bytes / ct_dtype_bytes(dtype); i++) {
        seed = seed * 1664525 + 1013904223;
        float v = (float)(int32_t)seed * 0x1p-31f;
        if (dtype == CT_BF16)
            ((uint16_t *)data)[i] = ct_bf16_from_f32(v);
        else
            ((float *)data)[i] = v;
    }
}

static size_t max_size(size_t a, size_t b) { return a > b ? a : b; }

static void grow(buffers *b, const bench_case *c, int threads) {
    size_t e = ct_dtype_bytes(c->dtype), m = (size_t)c->s->m, n = (size_t)c->s->n, k = (size_t)c->s->k;
    b->x_bytes = max_size(b->x_bytes, m * k * e);
    b->w_bytes = max_size(b->w_bytes, n * k * e);
    b->y_bytes = max_size(b->y_bytes, m * n * e);
    b->dw_bytes = max_size(b->dw_bytes, n * k * 4);
    b->scratch_bytes = max_size(b->scratch_bytes, c->kernel->scratch(&c->call, threads));
}

static ct_tensor matrix(void *data, ct_dtype dtype, int64_t rows, int64_t columns) {
    return (ct_tensor){.data = data, .dtype = dtype, .dims_count = 2, .dims = {rows, columns}};
}

static void set_call(bench_case *c, const buffers *b) {
    static int32_t zero = 0;
    const shape *s = c->s;
    ct_tensor x = matrix(b->x, c->dtype, s->m, s->k), w = matrix(b->w, c->dtype, s->n, s->k), y = matrix(b->y, c->dtype, s->m, s->n);
    ct_tensor dw = matrix(b->dw, CT_F32, s->n, s->k), first = {.data = &zero, .dtype = CT_I32};
    c->call = (ct_call){.inputs = 2, .outputs = 1, .scratch = b->scratch};
    if (c->form == 0) c->call.in[0] = x, c->call.in[1] = w, c->call.out[0] = y;
    if (c->form == 1) c->call.in[0] = y, c->call.in[1] = w, c->call.out[0] = x;
    if (c->form == 2) c->call.in[0] = y, c->call.in[1] = x, c->call.out[0] = dw;
    if (c->form == 3) {
        c->call.inputs = 4;
        c->call.in[0] = dw, c->call.in[1] = y, c->call.in[2] = x, c->call.in[3] = first, c->call.out[0] = dw;
    }
    c->kernel = ct_kernel_find(forms[c->form], &c->call, getenv("CT_ISA"));
}

static double run_rate(const bench_case *c, ct_team *team) {
    double flops = 2.0 * (double)c->s->m * (double)c->s->n * (double)c->s->k, start, used;
    int threads = ct_team_size(team);
    start = now_s(threads);
    int calls = 0;
    do {
        c->kernel->run(&c->call, team);
        calls++;
        used = now_s(threads) - start;
    } while (used < min_seconds);
    return flops * calls / used * (threads > 1 && getenv("BENCH_CPU") ? threads : 1);
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double case_bytes(const bench_case *c) {
    double e = (double)ct_dtype_bytes(c->dtype), m = (double)c->s->m, n = (double)c->s->n, k = (double)c->s->k;
    return (c->form < 2 ? e * (m * k + n * k + m * n) : e * (m * k + m * n) + (c->form == 3 ? 8 : 4) * n * k);
}

static void print_case(bench_case *c, int rounds, double peak, double read) {
    qsort(c->rates, (size_t)rounds, sizeof(double), by_value);
    qsort(c->shares, (size_t)rounds, sizeof(double), by_value);
    double flops = 2.0 * (double)c->s->m * (double)c->s->n * (double)c->s->k, best = c->rates[rounds - 1];
    double floor_compute = flops / peak, floor_memory = case_bytes(c) / read;
    printf("%-4s %-13s %5ld %6ld %5ld %-13s %8.1f %6.1f%% %8.1f %6.1f%% %9.3f %8.3f %s\n", ct_dtype_name(c->dtype),
           forms[c->form], (long)c->s->m, (long)c->s->n, (long)c->s->k, c->s->what, c->rates[rounds / 2] / 1e9,
           100 * c->shares[rounds / 2], best / 1e9, 100 * best / peak, 1e3 * flops / best,
           1e3 * (floor_compute > floor_memory ? floor_compute : floor_memory),
           floor_compute > floor_memory ? "" : "memory");
}

static void bench(ct_dtype dtype, int threads, int rounds, const char *only) {
    static bench_case cases[MAX_CASES];
    int count = 0;
    buffers b = {0};
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
        for (int form = 0; form < 4; form++) {
            char name[128];
            snprintf(name, sizeof name, "%s %ld %ld %ld %s", forms[form], (long)shapes[s].m, (long)shapes[s].n,
                     (long)shapes[s].k, shapes[s].what);
            if (!strstr(name, only) || (form && shapes[s].m <= 64)) continue;
            cases[count] = (bench_case){.s = &shapes[s], .form = form, .dtype = dtype};
            set_call(&cases[count], &b);
            grow(&b, &cases[count++], threads);
        }
    b.x = pages(b.x_bytes), b.w = pages(b.w_bytes), b.y = pages(b.y_bytes), b.dw = pages(b.dw_bytes);
    b.scratch = pages(b.scratch_bytes);
    ct_team *team;
    ct_bandwidth bandwidth;
    cpu_set_t cores; // a team pins its caller, and the next team is to have all cores again
    sched_getaffinity(0, sizeof cores, &cores);
    if (ct_team_create((ct_team_options){.threads = threads}, &team) || ct_bandwidth_measure(team, 0.1, &bandwidth))
        exit(1);
    fill(b.x, b.x_bytes, dtype), fill(b.w, b.w_bytes, dtype), fill(b.y, b.y_bytes, dtype);
    double peak = 0;
    for (int r = 0; r < rounds; r++)
        for (int i = 0; i < count; i++) {
            if (r == 0) set_call(&cases[i], &b), cases[i].kernel->run(&cases[i].call, team);
            double now = ct_peak_measure(dtype, team, 0);
            peak = now > peak ? now : peak;
            cases[i].rates[r] = run_rate(&cases[i], team);
            cases[i].shares[r] = cases[i].rates[r] / now;
            // What one product wrote is the next one's input: keep it in range.
            if (cases[i].form == 0) fill(b.y, (size_t)(cases[i].s->m * cases[i].s->n) * ct_dtype_bytes(dtype), dtype);
            if (cases[i].form == 1) fill(b.x, (size_t)(cases[i].s->m * cases[i].s->k) * ct_dtype_bytes(dtype), dtype);
        }
    ct_peak_keep(dtype, threads, peak);
    printf("\n%s, %d thread%s, peak %.1f GFLOP/s, read %.1f copy %.1f triad %.1f GB/s, scratch %.1f MB, %d rounds\n",
           ct_dtype_name(dtype), threads, threads == 1 ? "" : "s", peak / 1e9, bandwidth.read / 1e9,
           bandwidth.copy / 1e9, bandwidth.triad / 1e9, (double)b.scratch_bytes / 1e6, rounds);
    printf("                       M      N     K                 median        %%     best        %%   best ms "
           "floor ms\n");
    for (int i = 0; i < count; i++) print_case(&cases[i], rounds, peak, bandwidth.read);
    ct_team_destroy(team);
    sched_setaffinity(0, sizeof cores, &cores);
}

int main(int argc, char **argv) {
    const char *type = argc > 1 ? argv[1] : "both", *only = argc > 4 ? argv[4] : "";
    int threads = argc > 2 ? atoi(argv[2]) : 0, rounds = argc > 3 ? atoi(argv[3]) : 5;
    if (rounds < 1 || rounds > MAX_ROUNDS || threads < 0 || threads > 1024) return 2;
    for (int dtype = CT_F32; dtype <= CT_BF16; dtype++) {
        if (strcmp(type, "both") && strcmp(type, ct_dtype_name((ct_dtype)dtype))) continue;
        if (threads) bench((ct_dtype)dtype, threads, rounds, only);
        for (int t = 1; !threads && t <= 2 && t <= ct_cores(); t++) bench((ct_dtype)dtype, t, rounds, only);
    }
    return 0;
}
