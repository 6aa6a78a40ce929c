// The executor: one mapping, one list of resolved calls. Poisoning makes a debug run show reads of dead memory (NaN) and, under
// AddressSanitizer, any touch outside the operands. Left out: asynchronous streams (one rank has nothing to wait for).
#include "exec/exec.h"
#include "graph/op.h"
#include "move.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#if defined(__has_feature) && !defined(__SANITIZE_ADDRESS__)
#if __has_feature(address_sanitizer) // as clang says it
#define __SANITIZE_ADDRESS__ 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#define FORBID(p, n) __asan_poison_memory_region((p), (n))
#define ALLOW(p, n) __asan_unpoison_memory_region((p), (n))
#else
#define FORBID(p, n) ((void)(p), (void)(n))
#define ALLOW(p, n) ((void)(p), (void)(n))
#endif

enum { HUGE_PAGE = 2 << 20 };

typedef struct {
    int *dying; // buffer indices whose last reader is a node, grouped by node
    int *begin; // by node, count + 1 entries
    int *done;  // by instruction: nodes below this one have run by its end
} program_deaths;

struct ct_exec {
    const ct_plan *plan;
    ct_team *team;
    ct_exec_options options;
    unsigned char *mapping, *space;
    size_t mapping_bytes, space_bytes;
    unsigned char *shared;    // this rank's part of the node's segment
    size_t shared_stride;     // from one rank's part to the next
    ct_call *calls[CT_PROGRAMS];
    struct slotted_move *moves[CT_PROGRAMS]; // by node; empty where it is none
    struct slotted *slotted[CT_PROGRAMS];    // operands of calls that lie in slots
    int slotted_count[CT_PROGRAMS], slotted_capacity[CT_PROGRAMS];
    int slots[CT_LIVES]; // of the micro-batch that runs
    ct_move_meeting meetings[CT_PROGRAMS];
    program_deaths deaths[CT_PROGRAMS];
    ct_recording *recording;
};

// The most that this process's control group and those above it may hold (containers set such limits, Slurm a job's and a step's).
static size_t group_bytes(void) {
    char group[256] = "", line[512], *slash = group;
    size_t least = SIZE_MAX;
    FILE *f = fopen("/proc/self/cgroup", "r");
    while (f && !group[0] && fgets(line, sizeof line, f))
        if (sscanf(line, "0::%255s", group) == 1) break;
    if (f) fclose(f);
    while (slash) {
        unsigned long long limit;
        snprintf(line, sizeof line, "/sys/fs/cgroup%s/memory.max", group);
        if ((f = fopen(line, "r"))) {
            if (fscanf(f, "%llu", &limit) == 1 && limit < least) least = (size_t)limit; // "max": none
            fclose(f);
        }
        slash = strrchr(group, '/');
        if (slash) *slash = 0;
    }
    return least;
}

static size_t machine_bytes(void) {
    size_t kilobytes = 0;
    FILE *f = fopen("/proc/meminfo", "r");
    if (!f) return SIZE_MAX;
    char line[256];
    while (fgets(line, sizeof line, f))
        if (sscanf(line, "MemAvailable: %zu kB", &kilobytes) == 1) break;
    fclose(f);
    return kilobytes ? kilobytes << 10 : SIZE_MAX;
}

ct_status ct_exec_check_memory(const ct_plan *plan, size_t other_bytes) {
    size_t machine = machine_bytes(), group = group_bytes(), available = machine < group ? machine : group;
    CT_CHECK(plan->peak_bytes <= SIZE_MAX - other_bytes && plan->peak_bytes + other_bytes <= available, CT_NO_MEMORY,
             "the plan needs %.2f GB of memory for this rank, %s %.2f GB%s", ((double)plan->peak_bytes + (double)other_bytes) / 1e9,
             machine <= group ? "the machine has" : "this process may use", (double)available / 1e9, machine <= group ? " available" : "");
    return CT_OK;
}

static ct_status reserve(ct_exec *exec) {
    exec->space_bytes = exec->plan->private_bytes ? exec->plan->private_bytes : 64;
    exec->mapping_bytes = (exec->space_bytes + 2 * (size_t)HUGE_PAGE - 1) & ~(size_t)(HUGE_PAGE - 1);
    CT_TRY(ct_exec_check_memory(exec->plan, 0));
    void *p = mmap(NULL, exec->mapping_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    CT_CHECK(p != MAP_FAILED, CT_NO_MEMORY, "cannot reserve %.2f GB of memory: %s", (double)exec->mapping_bytes / 1e9,
             strerror(errno));
    exec->mapping = p;
    exec->space = (unsigned char *)(((uintptr_t)p + HUGE_PAGE - 1) & ~(uintptr_t)(HUGE_PAGE - 1));
    madvise(exec->space, exec->space_bytes, exec->options.lazy ? MADV_NOHUGEPAGE : MADV_HUGEPAGE);
    return CT_OK;
}

static ct_status share(ct_exec *exec) {
    ct_comm *comm = exec->options.comm;
    CT_CHECK(comm || !exec->plan->shared_bytes, CT_INVALID, "a plan that moves data between ranks needs to be told how they speak");
    int64_t most = (int64_t)exec->plan->shared_bytes; // of all ranks: those of another pipeline stage have other programs
    if (comm && ct_comm_size(comm) > 1) CT_TRY(ct_comm_max_i64(comm, &most, 1));
    if (!most) return CT_OK;
    exec->shared_stride = ((size_t)most + (size_t)HUGE_PAGE - 1) & ~(size_t)(HUGE_PAGE - 1);
    void *base;
    CT_TRY(ct_comm_share(comm, exec->shared_stride * (size_t)ct_comm_near_count(comm), &base));
    exec->shared = (unsigned char *)base + exec->shared_stride * (size_t)ct_comm_near_index(comm);
    if (exec->options.lazy) madvise(exec->shared, exec->shared_stride, MADV_NOHUGEPAGE);
    return CT_OK;
}

// Where another rank's shared space begins.
static void *shared_space(void *context, int rank) {
    ct_exec *exec = context;
    ct_comm *comm = exec->options.comm;
    if (!ct_comm_is_near(comm, rank)) return NULL;
    return exec->shared + (ptrdiff_t)exec->shared_stride * (rank - ct_comm_rank(comm));
}

static int is_own(void *context, const void *address) {
    const ct_exec *exec = context;
    const unsigned char *p = address;
    return (p >= exec->space && p < exec->space + exec->space_bytes) || (exec->shared && p >= exec->shared && p < exec->shared + exec->shared_stride);
}

static void touch_part(void *context, int thread, int threads) {
    ct_exec *exec = context;
    long long begin, end;
    ct_share((long long)exec->space_bytes, HUGE_PAGE, thread, threads, &begin, &end);
    for (long long i = begin; i < end; i += 4096) exec->space[i] = 0;
}

static unsigned char *space_of(const ct_exec *exec, int shared) { return shared ? exec->shared : exec->space; }

// ---- slots ----
static const ct_buffer *kept_of(const ct_exec *exec, int which, int value) {
    int buffer = exec->plan->programs[which].value_buffer[value];
    return buffer < 0 ? &exec->plan->kept[-1 - buffer] : NULL;
}

// The pool that a value's slots belong to; -1: it has one place.
static int pool_of(const ct_exec *exec, int which, int value) {
    const ct_buffer *b = kept_of(exec, which, value);
    return b && b->slots > 1 ? (int)ct_life_of(b->name) : -1;
}

static int slots_of(const ct_exec *exec, int which, int value) { return pool_of(exec, which, value) < 0 ? 1 : kept_of(exec, which, value)->slots; }

// How far behind slot 0 a value lies in another slot.
static size_t slot_bytes(const ct_exec *exec, int which, int value, int slot) {
    return pool_of(exec, which, value) < 0 ? 0 : kept_of(exec, which, value)->bytes * (size_t)slot;
}

// A move's operand and result may lie in slots: one ct_move for each pair, [slot of the operand · slots of the result + slot of the result].
typedef struct slotted_move {
    int in_pool, out_pool, out_slots, count;
    ct_move **moves;
} slotted_move;

static int moved_value(const ct_plan_program *program, int node) {
    return program->graph->nodes[node].inputs[ct_moved_operand(&program->graph->nodes[node])];
}

static ct_status resolve_move(ct_exec *exec, int which, int i, const ct_inner *inner, slotted_move *out) {
    const ct_plan_program *program = &exec->plan->programs[which];
    const ct_node *node = &program->graph->nodes[program->instructions[i].node];
    int in_value = moved_value(program, program->instructions[i].node), moved = ct_moved_operand(node), in_slots = slots_of(exec, which, in_value);
    *out = (slotted_move){.in_pool = pool_of(exec, which, in_value), .out_pool = pool_of(exec, which, node->outputs[0]),
                          .out_slots = slots_of(exec, which, node->outputs[0])};
    out->count = in_slots * out->out_slots;
    out->moves = ct_calloc((size_t)out->count, sizeof *out->moves);
    for (int a = 0; a < in_slots; a++)
        for (int b = 0; b < out->out_slots; b++) {
            if (out->in_pool >= 0 && out->in_pool == out->out_pool && a != b) continue; // a micro-batch has one slot of a pool
            ct_instruction in = program->instructions[i];
            ct_call call = exec->calls[which][i];
            size_t in_bytes = slot_bytes(exec, which, in_value, a), out_bytes = slot_bytes(exec, which, node->outputs[0], b);
            in.in_offset[moved] += in_bytes; // where peers have it
            call.in[moved].data = (char *)call.in[moved].data + in_bytes;
            call.out[0].data = (char *)call.out[0].data + out_bytes;
            CT_TRY(ct_move_create(exec->options.comm, program, inner, &in, &call, (ct_move_memory){shared_space, is_own, exec}, &out->moves[a * out->out_slots + b]));
        }
    return CT_OK;
}

static ct_move *move_at(const ct_exec *exec, int which, int node) {
    const slotted_move *m = &exec->moves[which][node];
    int a = m->in_pool < 0 ? 0 : exec->slots[m->in_pool], b = m->out_pool < 0 ? 0 : exec->slots[m->out_pool];
    return m->moves[a * m->out_slots + b];
}

static ct_status resolve_moves(ct_exec *exec, int which) {
    const ct_plan_program *program = &exec->plan->programs[which];
    exec->moves[which] = ct_calloc((size_t)program->graph->nodes_count + 1, sizeof(slotted_move));
    if (!program->graph->global) return CT_OK; // a program that was not placed has no moves
    ct_inner inner;
    ct_inner_find(program->graph->global, &inner);
    ct_status status = CT_OK;
    for (int i = 0; i < program->instructions_count && !status; i++)
        if (!program->instructions[i].kernel && !exec->moves[which][program->instructions[i].node].moves)
            status = resolve_move(exec, which, i, &inner, &exec->moves[which][program->instructions[i].node]);
    ct_inner_deinit(&inner);
    if (!status && program->move_axes) ct_move_meeting_make(exec->options.comm, program, &exec->meetings[which]);
    return status;
}

// An operand that lies in a slot of a pool.
typedef struct slotted {
    void **data;
    unsigned char *slot0;
    size_t bytes;
    int pool;
} slotted;

static void note_slotted(ct_exec *exec, int which, int value, ct_tensor *t) {
    int pool = pool_of(exec, which, value);
    if (pool < 0) return;
    CT_GROW(exec->slotted[which], exec->slotted_count[which], exec->slotted_capacity[which]);
    exec->slotted[which][exec->slotted_count[which]++] = (slotted){&t->data, t->data, kept_of(exec, which, value)->bytes, pool};
}

static void take_slots(ct_exec *exec, int which, const int slots[CT_LIVES]) {
    memcpy(exec->slots, slots, sizeof exec->slots);
    for (int i = 0; i < exec->slotted_count[which]; i++) {
        const slotted *s = &exec->slotted[which][i];
        *s->data = s->slot0 + s->bytes * (size_t)slots[s->pool];
    }
}

static void resolve_program(ct_exec *exec, int which) {
    const ct_plan_program *program = &exec->plan->programs[which];
    exec->calls[which] = ct_malloc(sizeof(ct_call) * (size_t)(program->instructions_count + 1));
    for (int i = 0; i < program->instructions_count; i++) {
        const ct_instruction *in = &program->instructions[i];
        const ct_node *node = &program->graph->nodes[in->node];
        ct_call *call = &exec->calls[which][i];
        *call = in->call;
        for (int k = 0; k < call->inputs; k++) call->in[k].data = space_of(exec, in->in_shared >> k & 1) + in->in_offset[k];
        for (int k = 0; k < call->outputs; k++) call->out[k].data = space_of(exec, in->out_shared >> k & 1) + in->out_offset[k];
        if (in->scratch_bytes) call->scratch = space_of(exec, program->move_axes != 0) + in->scratch_offset;
        for (int k = 0; k < call->inputs; k++) note_slotted(exec, which, node->inputs[k], &call->in[k]);
        for (int k = 0; k < call->outputs; k++) note_slotted(exec, which, node->outputs[k], &call->out[k]);
    }
}

static ct_status run_instruction(ct_exec *exec, int which, int i) {
    const ct_instruction *in = &exec->plan->programs[which].instructions[i];
    if (in->kernel) {
        in->kernel->run(&exec->calls[which][i], exec->team);
        if (exec->options.comm) ct_comm_progress(exec->options.comm);
        return CT_OK;
    }
    ct_move *move = move_at(exec, which, in->node);
    switch (in->doing) {
    case CT_DO_BEGIN: return ct_move_begin(move, exec->team);
    case CT_DO_END: return ct_move_end(move, exec->team);
    case CT_DO_OPEN: return ct_move_open(move);
    case CT_DO_SEND: return ct_move_send(move, in->peer, exec->team);
    case CT_DO_NEAR: return ct_move_near(move, exec->team);
    case CT_DO_PIECE: return ct_move_piece(move, in->peer, exec->team);
    case CT_DO_CLOSE: return ct_move_close(move);
    default: CT_TRY(ct_move_begin(move, exec->team)); return ct_move_end(move, exec->team);
    }
}

// ---- poison ----
static void find_deaths(ct_exec *exec, int which) {
    const ct_plan_program *program = &exec->plan->programs[which];
    program_deaths *d = &exec->deaths[which];
    int nodes = program->graph->nodes_count;
    d->begin = ct_calloc((size_t)nodes + 2, sizeof(int));
    d->dying = ct_malloc(sizeof(int) * (size_t)(program->buffers_count + 1));
    for (int b = 0; b < program->buffers_count; b++)
        if (program->buffers[b].last < nodes) d->begin[program->buffers[b].last + 1]++;
    for (int n = 0; n < nodes; n++) d->begin[n + 1] += d->begin[n];
    int *next = ct_malloc(sizeof(int) * (size_t)(nodes + 1));
    memcpy(next, d->begin, sizeof(int) * (size_t)(nodes + 1));
    for (int b = 0; b < program->buffers_count; b++)
        if (program->buffers[b].last < nodes) d->dying[next[program->buffers[b].last]++] = b;
    free(next);
    d->done = ct_malloc(sizeof(int) * (size_t)(program->instructions_count + 1));
    for (int i = program->instructions_count - 1, least = nodes; i >= 0; i--) {
        d->done[i] = least;
        if (program->instructions[i].node < least) least = program->instructions[i].node;
    }
}

// What stages save for one another may be on its way from or to a neighbour while anything runs.
static int may_be_on_its_way(const ct_exec *exec, const void *data) {
    const ct_plan *plan = exec->plan;
    for (int k = 0; k < plan->kept_count; k++) {
        const ct_buffer *b = &plan->kept[k];
        const unsigned char *at = space_of(exec, b->shared) + b->offset;
        if (b->name[0] == '%' && (const unsigned char *)data >= at && (const unsigned char *)data < at + b->bytes * (size_t)b->slots) return 1;
    }
    return 0;
}

static void each_operand(ct_exec *exec, int which, int i, int allow) {
    const ct_instruction *in = &exec->plan->programs[which].instructions[i];
    ct_call *call = &exec->calls[which][i];
    for (int k = 0; k < call->inputs + call->outputs; k++) {
        const ct_tensor *t = k < call->inputs ? &call->in[k] : &call->out[k - call->inputs];
        if (k < call->inputs ? in->in_shared >> k & 1 : in->out_shared >> (k - call->inputs) & 1) continue; // peers may be reading
        size_t bytes = (size_t)ct_tensor_elems(t) * ct_dtype_bytes(t->dtype);
        if (allow) ALLOW(t->data, bytes);
        else if (which < CT_PROGRAM_STAGES || !may_be_on_its_way(exec, t->data)) FORBID(t->data, bytes);
    }
    if (!in->scratch_bytes || exec->plan->programs[which].move_axes) return;
    if (allow) ALLOW(call->scratch, in->scratch_bytes);
    else FORBID(call->scratch, in->scratch_bytes);
}

// Outputs that take over no input's memory, and scratch, start as NaN.
static void poison_outputs(ct_exec *exec, int which, int i) {
    const ct_instruction *in = &exec->plan->programs[which].instructions[i];
    if (!in->kernel && in->doing != CT_DO_RUN && in->doing != CT_DO_BEGIN && in->doing != CT_DO_OPEN) return; // its messages lie there
    ct_call *call = &exec->calls[which][i];
    for (int k = 0; k < call->outputs; k++) {
        int shared = 0;
        for (int j = 0; j < call->inputs; j++) shared |= call->in[j].data == call->out[k].data;
        if (!shared) memset(call->out[k].data, 0xff, (size_t)ct_tensor_elems(&call->out[k]) * ct_dtype_bytes(call->out[k].dtype));
    }
    if (in->scratch_bytes) memset(call->scratch, 0xff, in->scratch_bytes);
}

static void poison_dead(ct_exec *exec, int which, int node) {
    const program_deaths *d = &exec->deaths[which];
    for (int i = d->begin[node]; i < d->begin[node + 1]; i++) {
        const ct_buffer *b = &exec->plan->programs[which].buffers[d->dying[i]];
        unsigned char *at = space_of(exec, b->shared) + b->offset;
        if (!b->shared) ALLOW(at, b->bytes);
        memset(at, 0xff, b->bytes);
        if (!b->shared) FORBID(at, b->bytes);
    }
}

// All but what may be on its way between stages.
static void forbid_space(ct_exec *exec) {
    const ct_plan *plan = exec->plan;
    size_t kept = 0;
    for (int k = 0; k < plan->kept_count; k++) {
        const ct_buffer *b = &plan->kept[k];
        size_t bytes = b->bytes * (size_t)b->slots;
        if (b->shared) continue;
        if (b->name[0] != '%') FORBID(exec->space + b->offset, bytes); // what is on its way may not be forbidden for a moment
        if (b->offset + bytes > kept) kept = b->offset + bytes;
    }
    FORBID(exec->space + kept, exec->space_bytes - kept);
}

// Moves that have begun and not ended.
static int under_way_behind(const ct_instruction *in, int under_way) {
    if (in->kernel || in->doing == CT_DO_RUN) return under_way;
    return in->doing == CT_DO_BEGIN || in->doing == CT_DO_OPEN ? under_way + 1 : under_way - in->is_last;
}

static ct_status run_poisoned(ct_exec *exec, int which) {
    const ct_plan_program *program = &exec->plan->programs[which];
    ct_status status = CT_OK;
    forbid_space(exec);
    int node = 0, under_way = 0;
    for (int i = 0; i < program->instructions_count && !status; i++) {
        int before = under_way;
        each_operand(exec, which, i, 1);
        poison_outputs(exec, which, i);
        status = run_instruction(exec, which, i);
        under_way = under_way_behind(&program->instructions[i], under_way);
        if (before && !under_way) forbid_space(exec);
        else if (!under_way) each_operand(exec, which, i, 0); // else a peer's thread may be copying from or to them
        for (; node < exec->deaths[which].done[i] && !status; node++) poison_dead(exec, which, node);
    }
    ALLOW(exec->space, exec->space_bytes);
    return status;
}

// ---- recording ----
static uint64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static ct_status run_recorded(ct_exec *exec, int which) {
    const ct_plan_program *program = &exec->plan->programs[which];
    ct_recording *r = exec->recording;
    for (int i = 0; i < program->instructions_count; i++) {
        const ct_move *move = program->instructions[i].kernel ? NULL : move_at(exec, which, program->instructions[i].node);
        int64_t before = move ? ct_move_peer_bytes(move) : 0;
        uint64_t begin = now_ns();
        CT_TRY(run_instruction(exec, which, i));
        uint64_t end = now_ns();
        if (r->count < r->capacity) r->spans[r->count++] = (ct_span){which, i, begin, end, move ? ct_move_peer_bytes(move) - before : 0};
    }
    return CT_OK;
}

// ---- public ----
ct_status ct_exec_create(const ct_plan *plan, ct_team *team, ct_exec_options options, ct_exec **out_exec) {
    CT_CHECK(ct_team_size(team) <= plan->threads, CT_INVALID, "a team of %d threads for a plan of %d", ct_team_size(team),
             plan->threads);
    ct_exec *exec = ct_calloc(1, sizeof *exec);
    exec->plan = plan;
    exec->team = team;
    exec->options = options;
    ct_status status = reserve(exec);
    if (!status) status = share(exec);
    if (!status && !options.lazy) ct_team_run(team, touch_part, exec);
    for (int w = 0; w < CT_PROGRAMS && !status; w++) {
        if (!plan->programs[w].graph) continue;
        resolve_program(exec, w);
        status = resolve_moves(exec, w);
        if (options.poison) find_deaths(exec, w);
    }
    if (status) ct_exec_destroy(exec);
    else *out_exec = exec;
    return status;
}

void ct_exec_destroy(ct_exec *exec) {
    if (!exec) return;
    for (int w = 0; w < CT_PROGRAMS; w++) {
        for (int n = 0; exec->moves[w] && n < exec->plan->programs[w].graph->nodes_count; n++) {
            for (int i = 0; i < exec->moves[w][n].count; i++) ct_move_destroy(exec->moves[w][n].moves[i]);
            free(exec->moves[w][n].moves);
        }
        free(exec->slotted[w]);
        free(exec->moves[w]);
        ct_move_meeting_deinit(&exec->meetings[w]);
        free(exec->calls[w]);
        free(exec->deaths[w].begin);
        free(exec->deaths[w].dying);
        free(exec->deaths[w].done);
    }
    if (exec->mapping) {
        ALLOW(exec->space, exec->space_bytes);
        munmap(exec->mapping, exec->mapping_bytes);
    }
    free(exec);
}

// Where an output is, which may be part of another value, a state, or named twice.
static void *output_data(ct_exec *exec, const char *name) {
    const ct_plan *plan = exec->plan;
    for (int w = 0; w < CT_PROGRAMS; w++) {
        const ct_graph *g = plan->programs[w].graph;
        size_t length = g ? strlen(g->name) : 0;
        if (!g || strncmp(name, g->name, length) || name[length] != ':') continue;
        int output = ct_graph_find_output(g, name + length + 1);
        if (output < 0) continue;
        int value = g->outputs[output].value;
        return space_of(exec, ct_plan_is_shared(plan, (ct_program)w, value)) + plan->programs[w].value_offset[value];
    }
    return NULL;
}

void *ct_exec_data(ct_exec *exec, const char *name) {
    void *output = output_data(exec, name);
    int kept = ct_plan_find_kept(exec->plan, name);
    if (output || kept < 0) return output;
    return space_of(exec, exec->plan->kept[kept].shared) + exec->plan->kept[kept].offset;
}

void *ct_exec_slot(ct_exec *exec, const char *name, int slot) {
    const ct_buffer *b = &exec->plan->kept[ct_plan_find_kept(exec->plan, name)];
    CT_ASSERT(b >= exec->plan->kept && slot >= 0 && slot < b->slots, "%s has no slot %d", name, slot);
    return space_of(exec, b->shared) + b->offset + b->bytes * (size_t)slot;
}

void ct_exec_record(ct_exec *exec, ct_recording *recording) { exec->recording = recording; }

void *ct_exec_space(ct_exec *exec, size_t *out_bytes) {
    *out_bytes = exec->space_bytes;
    return exec->space;
}

void *ct_exec_shared_space(ct_exec *exec, size_t *out_bytes) {
    *out_bytes = exec->shared ? exec->shared_stride : 0;
    return exec->shared;
}

static ct_status run_plain(ct_exec *exec, int which) {
    for (int i = 0; i < exec->plan->programs[which].instructions_count; i++) CT_TRY(run_instruction(exec, which, i));
    return CT_OK;
}

ct_status ct_exec_run(ct_exec *exec, ct_program which) {
    if (exec->options.poison) CT_TRY(run_poisoned(exec, (int)which));
    else if (exec->recording) CT_TRY(run_recorded(exec, (int)which));
    else CT_TRY(run_plain(exec, (int)which));
    return ct_move_meet(&exec->meetings[which]);
}

ct_status ct_exec_run_slots(ct_exec *exec, ct_program which, const int slots[CT_LIVES]) {
    take_slots(exec, (int)which, slots);
    return ct_exec_run(exec, which);
}

static int has_nonfinite(const ct_tensor *t) {
    int64_t n = ct_tensor_elems(t);
    if (t->dtype == CT_F32) {
        const float *x = t->data;
        for (int64_t i = 0; i < n; i++)
            if (!isfinite(x[i])) return 1;
    } else if (t->dtype == CT_BF16) {
        const uint16_t *x = t->data;
        for (int64_t i = 0; i < n; i++)
            if ((x[i] & 0x7f80) == 0x7f80) return 1;
    }
    return 0;
}

ct_status ct_exec_find_nonfinite(ct_exec *exec, ct_program which, const int slots[CT_LIVES], char *out_text, size_t size) {
    const ct_plan_program *program = &exec->plan->programs[which];
    out_text[0] = 0;
    if (slots) take_slots(exec, (int)which, slots);
    for (int i = 0; i < program->instructions_count; i++) {
        const ct_call *call = &exec->calls[which][i];
        CT_TRY(run_instruction(exec, (int)which, i));
        const ct_node *node = &program->graph->nodes[program->instructions[i].node];
        for (int o = 0; o < call->outputs && (program->instructions[i].kernel || program->instructions[i].is_last); o++) {
            if (!strcmp(node->op->name, "attention") && o == 1) continue;
            if (out_text[0] || !has_nonfinite(&call->out[o])) continue;
            snprintf(out_text, size, "%s (%s, %s)", node->from.module[0] ? node->from.module : "the model", node->op->name,
                     ct_phase_name(node->from.phase));
        }
        if (out_text[0] && !slots && !program->move_axes) return CT_OK;
    }
    return ct_move_meet(&exec->meetings[which]);
}
