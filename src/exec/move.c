// Moving: every rank reads what it needs where its peers wrote it, all at once, and nobody waits for more than the others' arrival. What lies
// on other nodes comes as messages. Sums are taken by who gets them, part by part in the order of the ranks, and rounded once.
#include "move.h"
#include "graph/local.h"
#include "graph/op.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CHUNK = 4096 }; // elements that a thread takes at a time: the running sum stays in L1

typedef enum { COPY, SUM, MAXIMUM } move_mode;

// A box within a row-major tensor, and its elements in order of rows.
typedef struct {
    const unsigned char *data; // of its first element
    int64_t stride[CT_MAX_DIMS]; // in bytes
} source;

typedef struct {
    source from;
    ct_piece piece;
    int is_far;
    int is_own;    // its source is memory of this rank: its operand, or what messages brought
    int is_direct; // sent from where it lies, received where it belongs: nothing is copied
} part;

struct ct_move {
    ct_comm *comm;
    ct_group group;
    ct_comm_what what;
    int *ranks;
    char name[64]; // of the group
    unsigned axes;
    move_mode mode;
    ct_dtype from_dtype, to_dtype;
    int dims_count;
    part *parts;
    int parts_count;
    unsigned char *to;
    int64_t to_stride[CT_MAX_DIMS];
    const int32_t *first; // of reduce_accumulate, else NULL
    int accumulates;
    int only; // the one part that is copied or packed now; -1: all
    _Atomic int64_t peer_bytes;
    // between nodes
    part *sends; // boxes of this rank's operand, and who gets them
    int sends_count;
    ct_message *send_messages, *receive_messages;
    int receives_count;
    ct_exchange *exchange; // of a move that has begin and end; NULL: its group is of one node
};

static void strides_of(const int64_t *extents, int dims, size_t size, int64_t *out) {
    int64_t stride = (int64_t)size;
    for (int d = dims - 1; d >= 0; d--) {
        out[d] = stride;
        stride *= extents[d];
    }
}

static int64_t elems_of(const ct_piece *piece, int dims) {
    int64_t n = 1;
    for (int d = 0; d < dims; d++) n *= piece->extent[d];
    return n;
}

static int64_t offset_of(const int64_t *at, const int64_t *stride, int dims) {
    int64_t offset = 0;
    for (int d = 0; d < dims; d++) offset += at[d] * stride[d];
    return offset;
}

// ---- walking boxes ----

// A box in several tensors: dims that are contiguous in all of them form one run.
typedef struct {
    int outer; // dims before the run
    int64_t rows, run;
    const int64_t *extent;
} walk;

static void shorten(walk *w, int dims, size_t size, const int64_t *stride) {
    int64_t run = 1;
    int outer = dims;
    while (outer > 0 && stride[outer - 1] == run * (int64_t)size) run *= w->extent[--outer];
    if (outer > w->outer) w->outer = outer;
}

static void count_rows(walk *w, int dims) {
    w->rows = w->run = 1;
    for (int d = 0; d < dims; d++) *(d < w->outer ? &w->rows : &w->run) *= w->extent[d];
}

static int64_t row_offset(const walk *w, int64_t row, const int64_t *stride) {
    int64_t offset = 0;
    for (int d = w->outer - 1; d >= 0; d--) {
        offset += row % w->extent[d] * stride[d];
        row /= w->extent[d];
    }
    return offset;
}

// At most CHUNK elements of a row.
typedef struct {
    int64_t row, at, count;
} stretch;

static int64_t stretches(const walk *w) { return w->rows * ((w->run + CHUNK - 1) / CHUNK); }

static stretch stretch_of(const walk *w, int64_t i) {
    int64_t chunks = (w->run + CHUNK - 1) / CHUNK, at = i % chunks * CHUNK;
    return (stretch){i / chunks, at, w->run - at < CHUNK ? w->run - at : CHUNK};
}

// Copies a box from one tensor to another: this thread's share of it. Returns the bytes that it read.
static int64_t copy_box(const source *from, unsigned char *to, const int64_t *to_stride, const int64_t *extent, int dims, size_t size, int thread,
                     int threads) {
    walk w = {.extent = extent};
    shorten(&w, dims, size, from->stride);
    shorten(&w, dims, size, to_stride);
    count_rows(&w, dims);
    long long begin, end;
    int64_t read = 0;
    ct_share(stretches(&w), 1, thread, threads, &begin, &end);
    for (int64_t i = begin; i < end; i++) {
        stretch s = stretch_of(&w, i);
        memcpy(to + row_offset(&w, s.row, to_stride) + s.at * (int64_t)size,
               from->data + row_offset(&w, s.row, from->stride) + s.at * (int64_t)size, (size_t)s.count * size);
        read += s.count * (int64_t)size;
    }
    return read;
}

// ---- adding ----
static void add_f32(float *restrict sum, const float *restrict x, int64_t n) {
    for (int64_t i = 0; i < n; i++) sum[i] += x[i];
}
static void max_f32(float *restrict sum, const float *restrict x, int64_t n) {
    for (int64_t i = 0; i < n; i++) sum[i] = x[i] > sum[i] || x[i] != x[i] ? x[i] : sum[i];
}
static void add_i64(int64_t *restrict sum, const int64_t *restrict x, int64_t n) {
    for (int64_t i = 0; i < n; i++) sum[i] += x[i];
}

static void store_f32(const ct_move *m, unsigned char *to, const float *sum, int64_t n) {
    if (m->to_dtype == CT_F32) {
        memcpy(to, sum, (size_t)n * sizeof *sum);
        return;
    }
    uint16_t *low = (uint16_t *)(void *)to;
    for (int64_t i = 0; i < n; i++) low[i] = ct_bf16_from_f32(sum[i]);
}

// Where a stretch of part i is; what is read there of a peer counts.
static const void *part_at(const ct_move *m, int i, const walk *w, stretch s, int64_t *peer_bytes) {
    const source *from = &m->parts[i].from;
    if (!m->parts[i].is_own) *peer_bytes += s.count * (int64_t)ct_dtype_bytes(m->from_dtype);
    return from->data + row_offset(w, s.row, from->stride) + s.at * (int64_t)ct_dtype_bytes(m->from_dtype);
}

static void sum_i64(const ct_move *m, const walk *w, stretch s, unsigned char *to, int64_t *peer_bytes) {
    int64_t sum[CHUNK];
    memcpy(sum, part_at(m, 0, w, s, peer_bytes), (size_t)s.count * sizeof *sum);
    for (int i = 1; i < m->parts_count; i++) add_i64(sum, part_at(m, i, w, s, peer_bytes), s.count);
    memcpy(to, sum, (size_t)s.count * sizeof *sum);
}

static void sum_f32(const ct_move *m, const walk *w, stretch s, unsigned char *to, int64_t *peer_bytes) {
    float sum[CHUNK];
    int next = m->accumulates && !*m->first ? 0 : 1;
    memcpy(sum, next ? part_at(m, 0, w, s, peer_bytes) : to, (size_t)s.count * sizeof *sum);
    for (int i = next; i < m->parts_count; i++) {
        if (m->mode == MAXIMUM) max_f32(sum, part_at(m, i, w, s, peer_bytes), s.count);
        else add_f32(sum, part_at(m, i, w, s, peer_bytes), s.count);
    }
    store_f32(m, to, sum, s.count);
}

// Every part is the whole of what this rank gets. Returns the bytes that it read of peers.
static int64_t sum_box(const ct_move *m, int thread, int threads) {
    size_t to_size = ct_dtype_bytes(m->to_dtype);
    walk w = {.extent = m->parts[0].piece.extent};
    shorten(&w, m->dims_count, to_size, m->to_stride);
    for (int i = 0; i < m->parts_count; i++) shorten(&w, m->dims_count, ct_dtype_bytes(m->from_dtype), m->parts[i].from.stride);
    count_rows(&w, m->dims_count);
    int64_t peer_bytes = 0;
    long long begin, end;
    ct_share(stretches(&w), 1, thread, threads, &begin, &end);
    for (int64_t i = begin; i < end; i++) {
        stretch s = stretch_of(&w, i);
        unsigned char *to = m->to + row_offset(&w, s.row, m->to_stride) + s.at * (int64_t)to_size;
        if (m->from_dtype == CT_I64) sum_i64(m, &w, s, to, &peer_bytes);
        else sum_f32(m, &w, s, to, &peer_bytes);
    }
    return peer_bytes;
}

static void run_part(void *context, int thread, int threads) {
    ct_move *m = context;
    int64_t peer_bytes = 0;
    if (m->mode != COPY && m->parts_count) peer_bytes = sum_box(m, thread, threads);
    for (int i = 0; m->mode == COPY && i < m->parts_count; i++) {
        const part *p = &m->parts[i];
        if (p->is_direct || (m->only >= 0 && i != m->only)) continue;
        int64_t read = copy_box(&p->from, m->to + offset_of(p->piece.to, m->to_stride, m->dims_count), m->to_stride, p->piece.extent,
                                m->dims_count, ct_dtype_bytes(m->from_dtype), thread, threads);
        if (!p->is_own) peer_bytes += read;
    }
    atomic_fetch_add_explicit(&m->peer_bytes, peer_bytes, memory_order_relaxed);
}

int64_t ct_move_peer_bytes(const ct_move *m) { return atomic_load_explicit(&m->peer_bytes, memory_order_relaxed); }

// ---- messages ----
static void pack_part(void *context, int thread, int threads) {
    const ct_move *m = context;
    size_t size = ct_dtype_bytes(m->from_dtype);
    for (int i = 0; i < m->sends_count; i++) {
        if (m->sends[i].is_direct || (m->only >= 0 && i != m->only)) continue;
        int64_t packed[CT_MAX_DIMS];
        strides_of(m->sends[i].piece.extent, m->dims_count, size, packed);
        copy_box(&m->sends[i].from, m->send_messages[i].data, packed, m->sends[i].piece.extent, m->dims_count, size, thread, threads);
    }
}

ct_status ct_move_begin(ct_move *m, ct_team *team) {
    if (!m->exchange) return CT_OK;
    ct_team_run(team, pack_part, m);
    return ct_exchange_begin(m->exchange, 0);
}

static ct_status meet_near(const ct_move *m) { return m->axes && m->group.count > 1 ? ct_comm_fence(m->comm, &m->group, &m->what) : CT_OK; }

ct_status ct_move_end(ct_move *m, ct_team *team) {
    if (m->exchange) CT_TRY(ct_exchange_end(m->exchange));
    CT_TRY(meet_near(m));
    ct_team_run(team, run_part, m);
    return CT_OK;
}

// ---- piece by piece ----
ct_status ct_move_open(ct_move *m) { return m->exchange ? ct_exchange_begin(m->exchange, 1) : CT_OK; }

ct_status ct_move_send(ct_move *m, int peer, ct_team *team) {
    int i = 0;
    while (m->sends[i].piece.rank != peer) i++;
    m->only = i;
    ct_team_run(team, pack_part, m);
    m->only = -1;
    return ct_exchange_send(m->exchange, i);
}

ct_status ct_move_near(ct_move *m, ct_team *team) {
    CT_TRY(meet_near(m));
    for (int i = 0; i < m->parts_count; i++) {
        if (m->parts[i].is_far) continue;
        m->only = i;
        ct_team_run(team, run_part, m);
    }
    m->only = -1;
    return CT_OK;
}

ct_status ct_move_piece(ct_move *m, int peer, ct_team *team) {
    int i = 0, receive = 0;
    for (; m->parts[i].piece.rank != peer; i++) receive += m->parts[i].is_far;
    CT_TRY(ct_exchange_wait(m->exchange, receive));
    m->only = i;
    ct_team_run(team, run_part, m);
    m->only = -1;
    return CT_OK;
}

ct_status ct_move_close(ct_move *m) { return m->exchange ? ct_exchange_end(m->exchange) : CT_OK; }

// "dp_shard x tp".
static void name_group(const ct_mesh *mesh, unsigned axes, char *out, size_t size) {
    size_t n = 0;
    out[0] = 0;
    for (int a = 0; a < mesh->axes_count && n < size; a++)
        if (axes >> a & 1) n += (size_t)snprintf(out + n, size - n, "%s%s", n ? " x " : "", mesh->axes[a].name);
}

// ---- resolving ----
typedef struct {
    ct_move *move;
    const ct_graph *local;
    const ct_instruction *instruction;
    int moved;             // operand
    const ct_graph *global;
    const ct_node *node;
    const ct_value_info *in; // global
    const ct_mesh *mesh;
    const ct_inner *inner;
} resolving;

static void box_strides(const resolving *r, int rank, int64_t *out_stride) {
    int64_t extents[CT_MAX_DIMS];
    for (int d = 0; d < r->in->type.dims_count; d++) extents[d] = r->in->type.dims[d].extent;
    ct_region box = ct_layout_box(r->mesh, &r->in->layout, r->in->type.dims_count, extents, rank);
    strides_of(box.extent, r->in->type.dims_count, ct_dtype_bytes(r->move->from_dtype), out_stride);
}

static void place_source(const resolving *r, part *p, int rank, const unsigned char *tensor) {
    box_strides(r, rank, p->from.stride);
    p->from.data = tensor + offset_of(p->piece.from, p->from.stride, r->move->dims_count);
}

// Where a peer has the operand in its shared space, which this rank has at the instruction's offset.
static size_t offset_at(const resolving *r, int rank, int peer) {
    int value = r->node->inputs[r->moved];
    return r->instruction->in_offset[r->moved] - ct_inner_bytes(r->inner, value, rank) + ct_inner_bytes(r->inner, value, peer);
}

static void find_parts(const resolving *r, int rank, const ct_call *call, ct_move_memory memory) {
    ct_move *m = r->move;
    ct_piece *pieces = ct_malloc(sizeof *pieces * (size_t)m->group.count);
    m->parts_count = ct_move_pieces(r->global, r->node, rank, pieces);
    m->parts = ct_calloc((size_t)m->parts_count + 1, sizeof *m->parts);
    for (int i = 0; i < m->parts_count; i++) {
        part *p = &m->parts[i];
        p->piece = pieces[i];
        if (p->piece.rank == rank) {
            place_source(r, p, rank, call->in[r->moved].data);
            continue;
        }
        unsigned char *base = memory.shared_space(memory.context, p->piece.rank);
        p->is_far = !base;
        m->receives_count += p->is_far;
        if (base) place_source(r, p, p->piece.rank, base + offset_at(r, rank, p->piece.rank));
    }
    free(pieces);
}

// What far ranks read of this rank's operand.
static void find_sends(const resolving *r, int rank, const ct_call *call, ct_move_memory memory) {
    ct_move *m = r->move;
    ct_piece *pieces = ct_malloc(sizeof *pieces * (size_t)m->group.count);
    m->sends = ct_calloc((size_t)m->group.count + 1, sizeof *m->sends);
    for (int g = 0; g < m->group.count; g++) {
        int peer = m->group.ranks[g];
        if (peer == rank || memory.shared_space(memory.context, peer)) continue;
        int count = ct_move_pieces(r->global, r->node, peer, pieces);
        for (int i = 0; i < count; i++) {
            if (pieces[i].rank != rank) continue;
            part *p = &m->sends[m->sends_count++];
            p->piece = pieces[i];
            place_source(r, p, rank, call->in[r->moved].data);
            p->is_direct = ct_box_is_run(p->piece.extent, call->in[r->moved].dims, m->dims_count);
            p->piece.rank = peer;
        }
    }
    free(pieces);
}

// Room for what is sent and received, and messages over it. Received parts lie packed.
static ct_status make_messages(ct_move *m, const ct_instruction *instruction, const ct_call *call) {
    size_t size = ct_dtype_bytes(m->from_dtype);
    m->send_messages = ct_calloc((size_t)m->sends_count + 1, sizeof *m->send_messages);
    m->receive_messages = ct_calloc((size_t)m->receives_count + 1, sizeof *m->receive_messages);
    unsigned char *begin = call->scratch, *at = begin;
    for (int i = 0; i < m->sends_count; i++) {
        size_t n = (size_t)elems_of(&m->sends[i].piece, m->dims_count) * size;
        int direct = m->sends[i].is_direct;
        m->send_messages[i] = (ct_message){m->sends[i].piece.rank, direct ? (void *)(uintptr_t)m->sends[i].from.data : at, n};
        at += direct ? 0 : (n + 63) & ~(size_t)63;
    }
    for (int i = 0, k = 0; i < m->parts_count; i++) {
        part *p = &m->parts[i];
        if (!p->is_far) continue;
        size_t n = (size_t)elems_of(&p->piece, m->dims_count) * size;
        p->is_direct = m->mode == COPY && ct_box_is_run(p->piece.extent, call->out[0].dims, m->dims_count);
        if (p->is_direct) {
            m->receive_messages[k++] = (ct_message){p->piece.rank, m->to + offset_of(p->piece.to, m->to_stride, m->dims_count), n};
            continue;
        }
        m->receive_messages[k++] = (ct_message){p->piece.rank, at, n};
        p->from.data = at;
        strides_of(p->piece.extent, m->dims_count, size, p->from.stride);
        at += (n + 63) & ~(size_t)63;
    }
    CT_CHECK((size_t)(at - begin) <= instruction->scratch_bytes, CT_INVALID, "%s in %s: %zu bytes of messages, the plan has %zu: it was made for other nodes",
             m->what.kind, m->what.module, (size_t)(at - begin), instruction->scratch_bytes);
    return CT_OK;
}

static ct_status check_sum(const ct_move *m) {
    CT_CHECK(m->mode == COPY || m->from_dtype == CT_F32 || m->from_dtype == CT_I64, CT_UNSUPPORTED, "%s in %s: partial sums in %s",
             m->what.kind, m->what.module, ct_dtype_name(m->from_dtype));
    for (int i = 1; m->mode != COPY && i < m->parts_count; i++)
        CT_CHECK(!memcmp(m->parts[i].piece.extent, m->parts[0].piece.extent, sizeof(int64_t) * (size_t)m->dims_count), CT_UNSUPPORTED,
                 "%s in %s: parts of a sum that are cut differently", m->what.kind, m->what.module);
    return CT_OK;
}

ct_status ct_move_create(ct_comm *comm, const ct_plan_program *program, const ct_inner *inner, const ct_instruction *instruction, const ct_call *call,
                         ct_move_memory memory, ct_move **out_move) {
    const ct_graph *local = program->graph, *global = local->global;
    const ct_node *node = &local->nodes[instruction->node];
    int moved = node->inputs_count > 1, rank = local->rank;
    resolving r = {.local = local, .instruction = instruction, .moved = moved, .global = global, .node = node, .mesh = &global->mesh, .inner = inner};
    r.in = &global->values[node->inputs[moved]];
    ct_move *m = r.move = ct_calloc(1, sizeof *m);
    m->comm = comm;
    m->only = -1;
    m->axes = ct_move_axes(global, node);
    m->mode = ct_layout_axes(&r.in->layout, CT_CUT_MAX) & m->axes ? MAXIMUM : ct_layout_axes(&r.in->layout, CT_CUT_SUM) & m->axes ? SUM : COPY;
    m->from_dtype = call->in[moved].dtype;
    m->to_dtype = call->out[0].dtype;
    m->dims_count = r.in->type.dims_count;
    m->to = call->out[0].data;
    strides_of(call->out[0].dims, m->dims_count, ct_dtype_bytes(m->to_dtype), m->to_stride);
    m->accumulates = moved;
    m->first = moved ? call->in[2].data : NULL;
    m->group.count = ct_mesh_group(r.mesh, rank, m->axes, NULL);
    m->ranks = ct_malloc(sizeof(int) * (size_t)m->group.count);
    ct_mesh_group(r.mesh, rank, m->axes, m->ranks);
    m->group.ranks = m->ranks;
    m->group.slot = (int)m->axes;
    name_group(r.mesh, m->axes, m->name, sizeof m->name);
    m->group.name = m->name;
    m->what = (ct_comm_what){node->op->name, node->from.module, local->name, (int64_t)(ct_type_bytes(&r.in->type))};
    find_parts(&r, rank, call, memory);
    find_sends(&r, rank, call, memory);
    ct_status status = make_messages(m, instruction, call);
    for (int i = 0; i < m->parts_count; i++) m->parts[i].is_own = m->parts[i].is_direct || memory.is_own(memory.context, m->parts[i].from.data);
    if (!status) status = check_sum(m);
    if (!status && m->sends_count + m->receives_count)
        status = ct_exchange_make(comm, &m->group, m->send_messages, m->sends_count, m->receive_messages, m->receives_count, &m->what, &m->exchange);
    if (status) ct_move_destroy(m);
    else *out_move = m;
    return status;
}

void ct_move_destroy(ct_move *m) {
    if (!m) return;
    ct_exchange_destroy(m->exchange);
    free(m->ranks);
    free(m->parts);
    free(m->sends);
    free(m->send_messages);
    free(m->receive_messages);
    free(m);
}

// ---- the end of a program ----
void ct_move_meeting_make(ct_comm *comm, const ct_plan_program *program, ct_move_meeting *out) {
    const ct_mesh *mesh = &program->graph->mesh;
    int rank = program->graph->rank;
    *out = (ct_move_meeting){.comm = comm};
    out->group.count = ct_mesh_group(mesh, rank, program->move_axes, NULL);
    out->group.ranks = out->ranks = ct_malloc(sizeof(int) * (size_t)out->group.count);
    ct_mesh_group(mesh, rank, program->move_axes, out->ranks);
    out->group.slot = (int)program->move_axes;
    name_group(mesh, program->move_axes, out->name, sizeof out->name);
    out->group.name = out->name;
    out->what = (ct_comm_what){"end", "", program->graph->name, 0};
}

void ct_move_meeting_deinit(ct_move_meeting *meeting) { free(meeting->ranks); }

ct_status ct_move_meet(const ct_move_meeting *meeting) {
    return meeting->comm ? ct_comm_fence(meeting->comm, &meeting->group, &meeting->what) : CT_OK;
}
