// Ranks as threads of one process, and one rank alone: memory is shared as it is, messages are copied from where they lie.
#include "world.h"
#include "base/team.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { HUGE_PAGE = 2 << 20, STACK_BYTES = 16 << 20 };

// Messages of one tag from one rank to another, in the order in which they were sent. Whoever of the two comes second to a message copies it.
enum { UNDER_WAY = 64, SENT = 1, OPENED = 2 }; // at most so many
typedef struct link {
    struct {
        ct_arrival taken;
        _Atomic int state;
        const void *data;
        void *to;
        size_t bytes, to_bytes;
    } entries[UNDER_WAY];
    uint32_t next_send;    // the sender's
    uint32_t next_receive; // the receiver's
    int from, to, tag;
    struct link *next;
} link;

// What the threads of a world have in common.
typedef struct {
    ct_rank_main *main;
    void *context;
    pthread_mutex_t lock;
    void *segments[64]; // by node of near ranks: the shared segment, made by whoever comes first
    size_t segment_bytes[64];
    link *links;
} world;

typedef struct {
    ct_comm comm;
    world *world;
    pthread_t thread;
    int code; // of its error, 0: none
    char text[1000];
} thread_rank;

static ct_status map_segment(size_t bytes, void **out) {
    bytes = (bytes + HUGE_PAGE - 1) & ~(size_t)(HUGE_PAGE - 1);
    unsigned char *p = mmap(NULL, bytes + HUGE_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    CT_CHECK(p != MAP_FAILED, CT_NO_MEMORY, "cannot reserve %.2f GB of shared memory: %s", (double)bytes / 1e9, strerror(errno));
    *out = (unsigned char *)(((uintptr_t)p + HUGE_PAGE - 1) & ~(uintptr_t)(HUGE_PAGE - 1));
    madvise(*out, bytes, MADV_HUGEPAGE);
    return CT_OK;
}

static void unmap_segment(void *base, size_t bytes) {
    bytes = (bytes + HUGE_PAGE - 1) & ~(size_t)(HUGE_PAGE - 1);
    if (base) munmap(base, bytes); // the ends that aligning left over go with the process
}

static ct_status share(ct_comm *c, size_t bytes, void **out_base) {
    world *w = c->context;
    int node = c->near_first / (c->near_count > 0 ? c->near_count : 1);
    pthread_mutex_lock(&w->lock);
    ct_status status = CT_OK;
    if (!w->segments[node]) {
        status = ct_check_room(bytes, c->near_count);
        if (!status) status = map_segment(bytes, &w->segments[node]);
        w->segment_bytes[node] = bytes;
    }
    *out_base = w->segments[node];
    if (!status && w->segment_bytes[node] != bytes)
        status = ct_error_make(CT_INVALID, __FILE__, __LINE__, "ranks of a node ask for %zu and %zu bytes of shared memory", w->segment_bytes[node], bytes);
    pthread_mutex_unlock(&w->lock);
    return status;
}

// A fence that far ranks join as well: they are threads of this process.
static ct_status meet(ct_comm *c, const int *ranks, int count, int slot, const char *name, const ct_comm_what *what) {
    ct_comm all = *c;
    all.near_first = 0;
    all.near_count = c->size;
    return ct_fence_wait(&all, ranks, count, slot, name, what);
}

typedef struct {
    const ct_message *sends;
    int count;
} outbox;

static ct_status exchange(ct_comm *c, const ct_group *group, const ct_message *sends, int sends_count, const ct_message *receives,
                          int receives_count, const ct_comm_what *what) {
    outbox mine = {sends, sends_count};
    atomic_store_explicit(&c->control->ranks[c->rank].mail, &mine, memory_order_release);
    CT_TRY(meet(c, group->ranks, group->count, group->slot, group->name, what));
    for (int i = 0; i < receives_count; i++) {
        const outbox *theirs = atomic_load_explicit(&c->control->ranks[receives[i].rank].mail, memory_order_acquire);
        const ct_message *found = NULL;
        for (int k = 0; k < theirs->count; k++)
            if (theirs->sends[k].rank == c->rank) found = &theirs->sends[k];
        CT_ASSERT(found && found->bytes == receives[i].bytes, "rank %d sends rank %d another message", receives[i].rank, c->rank);
        if (found->bytes) memcpy(receives[i].data, found->data, found->bytes);
    }
    return meet(c, group->ranks, group->count, group->slot, group->name, what);
}

// ---- exchanges with work in between ----
typedef struct {
    link **out, **in;
    uint32_t *sent, *opened; // numbers of the present round's messages on their links
} channel;

// Whoever of the two comes first makes it.
static link *link_between(world *w, int from, int to, int tag) {
    pthread_mutex_lock(&w->lock);
    link *l = w->links;
    while (l && (l->from != from || l->to != to || l->tag != tag)) l = l->next;
    if (!l) {
        void *room;
        CT_ASSERT(!posix_memalign(&room, _Alignof(link), sizeof *l), "no memory");
        l = room;
        memset(l, 0, sizeof *l);
        l->from = from, l->to = to, l->tag = tag, l->next = w->links;
        w->links = l;
    }
    pthread_mutex_unlock(&w->lock);
    return l;
}

static ct_status channel_make(ct_exchange *x, void **out) {
    world *w = x->comm->context;
    channel *ch = ct_calloc(1, sizeof *ch);
    size_t sends = (size_t)x->sends_count + 1, receives = (size_t)x->receives_count + 1;
    *ch = (channel){ct_calloc(sends, sizeof(link *)), ct_calloc(receives, sizeof(link *)), ct_calloc(sends, sizeof(uint32_t)),
                    ct_calloc(receives, sizeof(uint32_t))};
    for (int i = 0; i < x->sends_count; i++) ch->out[i] = link_between(w, x->comm->rank, x->sends[i].rank, ct_tag_of(&x->group));
    for (int i = 0; i < x->receives_count; i++) ch->in[i] = link_between(w, x->receives[i].rank, x->comm->rank, ct_tag_of(&x->group));
    *out = ch;
    return CT_OK;
}

static void channel_destroy(ct_exchange *x) {
    channel *ch = x->channel;
    free(ch->out);
    free(ch->in);
    free(ch->sent);
    free(ch->opened);
    free(ch);
}

static ct_status wait_until_taken(ct_exchange *x, link *l, uint32_t number, int peer) {
    return ct_arrival_wait(x->comm, &l->entries[number % UNDER_WAY].taken, peer, number / UNDER_WAY + 1, x->group.name, &x->what);
}

static void meet_at(link *l, uint32_t number, int state) {
    int e = (int)(number % UNDER_WAY);
    if (!atomic_exchange(&l->entries[e].state, state)) return; // the other one will
    CT_ASSERT(l->entries[e].bytes == l->entries[e].to_bytes, "rank %d sends rank %d another message", l->from, l->to);
    if (l->entries[e].bytes) memcpy(l->entries[e].to, l->entries[e].data, l->entries[e].bytes);
    atomic_store(&l->entries[e].state, 0);
    ct_arrival_raise(&l->entries[e].taken);
}

static ct_status channel_receives(ct_exchange *x) {
    channel *ch = x->channel;
    for (int i = 0; i < x->receives_count; i++) {
        link *l = ch->in[i];
        uint32_t number = ch->opened[i] = l->next_receive++;
        if (number >= UNDER_WAY) CT_TRY(wait_until_taken(x, l, number - UNDER_WAY, l->from));
        l->entries[number % UNDER_WAY].to = x->receives[i].data;
        l->entries[number % UNDER_WAY].to_bytes = x->receives[i].bytes;
        meet_at(l, number, OPENED);
    }
    return CT_OK;
}

static ct_status channel_send(ct_exchange *x, int send) {
    channel *ch = x->channel;
    for (int i = send < 0 ? 0 : send; i < (send < 0 ? x->sends_count : send + 1); i++) {
        link *l = ch->out[i];
        uint32_t number = ch->sent[i] = l->next_send++;
        if (number >= UNDER_WAY) CT_TRY(wait_until_taken(x, l, number - UNDER_WAY, l->to));
        l->entries[number % UNDER_WAY].data = x->sends[i].data;
        l->entries[number % UNDER_WAY].bytes = x->sends[i].bytes;
        meet_at(l, number, SENT);
    }
    return CT_OK;
}

static ct_status channel_wait(ct_exchange *x, int receive) {
    channel *ch = x->channel;
    if (receive >= 0) return wait_until_taken(x, ch->in[receive], ch->opened[receive], ch->in[receive]->from);
    for (int i = 0; i < x->receives_count; i++) CT_TRY(wait_until_taken(x, ch->in[i], ch->opened[i], ch->in[i]->from));
    for (int i = 0; i < x->sends_count; i++) CT_TRY(wait_until_taken(x, ch->out[i], ch->sent[i], ch->out[i]->to));
    return CT_OK;
}

static ct_status all_gather(ct_comm *c, const void *mine, size_t bytes, void *out, const char *text) {
    ct_comm_what what = {text, "", "between steps", (int64_t)bytes};
    int *ranks = ct_malloc(sizeof(int) * (size_t)c->size);
    for (int r = 0; r < c->size; r++) ranks[r] = r;
    atomic_store_explicit(&c->control->ranks[c->rank].mail, (void *)(uintptr_t)mine, memory_order_release);
    ct_status status = meet(c, ranks, c->size, WORLD_SLOT, "all ranks", &what);
    for (int r = 0; r < c->size && !status; r++)
        memcpy((unsigned char *)out + bytes * (size_t)r, atomic_load_explicit(&c->control->ranks[r].mail, memory_order_acquire), bytes);
    if (!status) status = meet(c, ranks, c->size, WORLD_SLOT, "all ranks", &what);
    free(ranks);
    return status;
}

static void destroy_nothing(ct_comm *c) { (void)c; } // the world's

static const ct_comm_backend threads_backend = {
    .kind = "threads", .share = share, .exchange = exchange, .channel_make = channel_make, .channel_destroy = channel_destroy,
    .channel_receives = channel_receives, .channel_send = channel_send, .channel_wait = channel_wait, .all_gather = all_gather,
    .destroy = destroy_nothing};

// ---- a world of threads ----
static void *run_rank(void *argument) {
    thread_rank *r = argument;
    ct_status status = ct_comm_record(&r->comm);
    if (!status) status = r->world->main(r->world->context, &r->comm);
    ct_flight_close(r->comm.flight);
    if (status) {
        int let_down = ct_failure_status(&r->comm) != CT_OK;
        r->code = (int)ct_error_code(status);
        snprintf(r->text, sizeof r->text, "%s", ct_error_text(status));
        if (!let_down) ct_comm_fail(&r->comm, status);
    }
    return NULL;
}

static ct_status start_ranks(thread_rank *all, int ranks, int *out_started) {
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, STACK_BYTES);
    int error = 0;
    for (*out_started = 0; *out_started < ranks && !error; *out_started += !error)
        error = pthread_create(&all[*out_started].thread, &attributes, run_rank, &all[*out_started]);
    pthread_attr_destroy(&attributes);
    CT_CHECK(!error, CT_NO_MEMORY, "cannot start rank %d of %d as a thread: %s", *out_started, ranks, strerror(error));
    return CT_OK;
}

// The error of the rank that failed first, noted with its number.
static ct_status error_of(const thread_rank *all, const ct_control *control, int ranks) {
    int first = atomic_load(&control->failed) - 1;
    for (int r = 0; r < ranks && first < 0; r++)
        if (all[r].code) first = r;
    if (first < 0) return CT_OK;
    if (!strncmp(all[first].text, "rank ", 5)) CT_FAIL((ct_code)all[first].code, "%s", all[first].text); // agreed on, or quoted
    CT_FAIL((ct_code)all[first].code, "rank %d: %s", first, all[first].text);
}

ct_status ct_comm_run_threads(int ranks, const ct_comm_options *options, ct_rank_main *rank_main, void *context) {
    enum { MOST = 1024 };
    CT_CHECK(ranks >= 1 && ranks <= MOST, CT_INVALID, "%d ranks as threads: 1 to %d are possible", ranks, MOST);
    world w = {.main = rank_main, .context = context, .lock = PTHREAD_MUTEX_INITIALIZER};
    ct_comm_options o = options ? *options : (ct_comm_options){0};
    ct_comm_default(&o);
    int per_node = o.no_shared_memory ? 1 : o.ranks_per_node > 0 && o.ranks_per_node < ranks ? o.ranks_per_node : ranks;
    CT_CHECK((ranks + per_node - 1) / per_node <= 64, CT_INVALID, "%d ranks on nodes of %d: at most 64 nodes in one process", ranks, per_node);
    void *control;
    CT_CHECK(!posix_memalign(&control, 64, ct_control_bytes(ranks)), CT_NO_MEMORY, "no memory for %d ranks", ranks);
    memset(control, 0, ct_control_bytes(ranks));
    thread_rank *all = ct_calloc((size_t)ranks, sizeof *all);
    for (int r = 0; r < ranks; r++) {
        int first = r / per_node * per_node;
        all[r].world = &w;
        all[r].comm = (ct_comm){.backend = &threads_backend, .options = o, .rank = r, .size = ranks, .near_first = first,
                                .near_count = first + per_node <= ranks ? per_node : ranks - first, .per_node = per_node,
                                .machine_count = ranks, .may_spin = ranks <= ct_cores(), .control = control, .context = &w};
    }
    int started;
    ct_status status = start_ranks(all, ranks, &started);
    if (status) ct_comm_fail(&all[0].comm, status);
    for (int r = 0; r < started; r++) pthread_join(all[r].thread, NULL);
    if (!status) status = error_of(all, control, ranks);
    for (int i = 0; i < 64; i++) unmap_segment(w.segments[i], w.segment_bytes[i]);
    while (w.links) {
        link *next = w.links->next;
        free(w.links);
        w.links = next;
    }
    free(all);
    free(control);
    return status;
}
