// The interface: what all back ends do alike. What ranks tell one another between steps is one all-gather of small records.
#include "world.h"

#include <stdlib.h>
#include <string.h>

int ct_comm_rank(const ct_comm *c) { return c->rank; }
int ct_comm_size(const ct_comm *c) { return c->size; }
int ct_comm_is_near(const ct_comm *c, int rank) { return rank >= c->near_first && rank < c->near_first + c->near_count; }
int ct_comm_near_count(const ct_comm *c) { return c->near_count; }
int ct_comm_near_index(const ct_comm *c) { return c->rank - c->near_first; }
int ct_comm_machine_count(const ct_comm *c) { return c->machine_count; }
int ct_comm_machine_index(const ct_comm *c) { return c->rank - c->machine_first; }
int ct_comm_per_node(const ct_comm *c) { return c->per_node; }
const char *ct_comm_kind(const ct_comm *c) { return c->backend->kind; }
ct_status ct_comm_share(ct_comm *c, size_t bytes, void **out_base) { return c->backend->share(c, bytes, out_base); }

void ct_comm_set_step(ct_comm *c, int64_t step) {
    c->step = step;
    c->started = 1;
}

void ct_comm_destroy(ct_comm *c) {
    if (!c) return;
    c->backend->destroy(c);
}

void ct_comm_default(ct_comm_options *o) {
    if (o->init_timeout_s <= 0) o->init_timeout_s = 300;
    if (o->train_timeout_s <= 0) o->train_timeout_s = 100;
    if (o->heartbeat_timeout_s <= 0) o->heartbeat_timeout_s = 5;
}

ct_status ct_comm_record(ct_comm *c) {
    const ct_comm_options *o = &c->options;
    if (!o->record_folder || o->record_entries < 1 || c->size == 1) return CT_OK;
    return ct_flight_open(o->record_folder, o->record_prefix ? o->record_prefix : "rank_", c->rank, c->size, o->record_entries, &c->flight);
}

static ct_flight_record *begin(ct_comm *c, const ct_group *group, const ct_comm_what *what) {
    if (!c->flight) return NULL;
    return ct_flight_begin(c->flight, &(ct_flight_operation){what->kind, what->program, group->name, what->module, group->slot, group->ranks[0],
                                                             group->count, c->step, what->bytes});
}

ct_status ct_comm_fence(ct_comm *c, const ct_group *group, const ct_comm_what *what) {
    ct_flight_record *record = begin(c, group, what);
    ct_status status = ct_fence_wait(c, group->ranks, group->count, group->slot, group->name, what);
    if (record && !status) ct_flight_end(record);
    return status;
}

ct_status ct_comm_exchange(ct_comm *c, const ct_group *group, const ct_message *sends, int sends_count, const ct_message *receives,
                           int receives_count, const ct_comm_what *what) {
    ct_flight_record *record = begin(c, group, what);
    ct_status status = c->backend->exchange(c, group, sends, sends_count, receives, receives_count, what);
    if (record && !status) ct_flight_end(record);
    return status;
}

// ---- exchanges with work in between ----
ct_status ct_exchange_make(ct_comm *c, const ct_group *group, const ct_message *sends, int sends_count, const ct_message *receives,
                           int receives_count, const ct_comm_what *what, ct_exchange **out) {
    ct_exchange *x = ct_calloc(1, sizeof *x);
    *x = (ct_exchange){c, *group, *what, sends, receives, sends_count, receives_count, NULL, NULL};
    ct_status status = c->backend->channel_make(x, &x->channel);
    if (status) free(x);
    else *out = x;
    return status;
}

void ct_exchange_destroy(ct_exchange *x) {
    if (!x) return;
    x->comm->backend->channel_destroy(x);
    free(x);
}

ct_status ct_exchange_begin(ct_exchange *x, int hold) {
    x->record = begin(x->comm, &x->group, &x->what);
    x->comm->under_way++;
    CT_TRY(x->comm->backend->channel_receives(x));
    return hold ? CT_OK : x->comm->backend->channel_send(x, -1);
}

ct_status ct_exchange_send(ct_exchange *x, int send) { return x->comm->backend->channel_send(x, send); }
ct_status ct_exchange_wait(ct_exchange *x, int receive) { return x->comm->backend->channel_wait(x, receive); }

ct_status ct_exchange_end(ct_exchange *x) {
    CT_TRY(x->comm->backend->channel_wait(x, -1));
    x->comm->under_way--;
    if (x->record) ct_flight_end(x->record);
    x->record = NULL;
    return CT_OK;
}

void ct_comm_progress(ct_comm *c) {
    if (c->under_way && c->backend->progress) c->backend->progress(c);
}

void ct_comm_fail(ct_comm *c, ct_status status) {
    int none = 0;
    if (!c->control || !atomic_compare_exchange_strong(&c->control->failing, &none, c->rank + 1)) return; // another was first
    c->control->failure_code = ct_error_code(status);
    snprintf(c->control->failure, FAILURE_TEXT, "%s", ct_error_text(status));
    atomic_store_explicit(&c->control->failed, c->rank + 1, memory_order_release);
}

int ct_comm_may_speak(ct_comm *c) {
    if (!c) return ct_comm_launched_rank() <= 0;
    return !c->control || !atomic_exchange(&c->control->spoken, 1);
}

void ct_comm_abandon(ct_comm *c) {
    if (c->backend->abandon) c->backend->abandon(c);
}

// ---- between steps ----
static ct_status all_gather(ct_comm *c, const void *mine, size_t bytes, void *out, const char *what) {
    if (c->size == 1) {
        memcpy(out, mine, bytes);
        return CT_OK;
    }
    ct_group all = {&(int){0}, c->size, WORLD_SLOT, "all ranks", 0}; // ranks from 0 on
    ct_flight_record *record = begin(c, &all, &(ct_comm_what){what, "", "between", (int64_t)bytes});
    ct_status status = c->backend->all_gather(c, mine, bytes, out, what);
    if (record && !status) ct_flight_end(record);
    return status;
}

typedef struct {
    int code; // 0: no error
    char text[1000];
} verdict;

ct_status ct_comm_agree(ct_comm *c, ct_status mine) {
    if (c->size == 1) return mine;
    verdict v = {0}, *all = ct_malloc(sizeof v * (size_t)c->size);
    if (mine) {
        v.code = (int)ct_error_code(mine);
        snprintf(v.text, sizeof v.text, "%s", ct_error_text(mine));
    }
    ct_status status = all_gather(c, &v, sizeof v, all, "agreeing");
    for (int r = 0; r < c->size && !status; r++)
        if (all[r].code) status = ct_error_make((ct_code)all[r].code, __FILE__, __LINE__, "rank %d: %s", r, all[r].text);
    free(all);
    return status;
}

ct_status ct_comm_barrier(ct_comm *c, const char *what) {
    char none = 0, *all = ct_malloc((size_t)c->size);
    ct_status status = all_gather(c, &none, 1, all, what);
    free(all);
    return status;
}

static ct_status combine_i64(ct_comm *c, int64_t *values, int count, int maximum) {
    size_t n = (size_t)count;
    int64_t *all = ct_malloc(sizeof *all * n * (size_t)c->size);
    ct_status status = all_gather(c, values, sizeof *values * n, all, maximum ? "a maximum" : "a sum");
    for (int r = 0; r < c->size && !status; r++)
        for (size_t i = 0; i < n; i++) {
            int64_t x = all[(size_t)r * n + i];
            if (r == 0) values[i] = x;
            else if (maximum) values[i] = x > values[i] ? x : values[i];
            else values[i] += x;
        }
    free(all);
    return status;
}

ct_status ct_comm_sum_i64(ct_comm *c, int64_t *values, int count) { return combine_i64(c, values, count, 0); }
ct_status ct_comm_max_i64(ct_comm *c, int64_t *values, int count) { return combine_i64(c, values, count, 1); }

// Messages among all ranks.
static ct_status exchange_all(ct_comm *c, const ct_message *sends, int sends_count, const ct_message *receives, int receives_count, const char *kind,
                              size_t bytes) {
    int *ranks = ct_malloc(sizeof *ranks * (size_t)c->size);
    for (int r = 0; r < c->size; r++) ranks[r] = r;
    ct_group all = {ranks, c->size, WORLD_SLOT, "all ranks", 0};
    ct_comm_what what = {kind, "", "between", (int64_t)bytes};
    ct_status status = ct_comm_exchange(c, &all, sends, sends_count, receives, receives_count, &what);
    free(ranks);
    return status;
}

ct_status ct_comm_broadcast(ct_comm *c, int from, void *data, size_t bytes) {
    if (c->size == 1) return CT_OK;
    ct_message in = {from, data, bytes}, *out = ct_calloc((size_t)c->size, sizeof *out);
    int n = 0;
    for (int r = 0; r < c->size && c->rank == from; r++)
        if (r != from) out[n++] = (ct_message){r, data, bytes};
    ct_status status = exchange_all(c, out, n, &in, c->rank != from, "a broadcast", bytes);
    free(out);
    return status;
}

static void free_gathered(void **data, size_t *bytes, int count) {
    for (int r = 0; data && r < count; r++) free(data[r]);
    free(data);
    free(bytes);
}

ct_status ct_comm_gather(ct_comm *c, int to, const void *data, size_t bytes, void ***out_data, size_t **out_bytes) {
    int is_target = c->rank == to, n = 0;
    ct_message out = {to, (void *)(uintptr_t)data, bytes}, *in = ct_calloc((size_t)c->size, sizeof *in);
    size_t *sizes = ct_calloc((size_t)c->size, sizeof *sizes);
    void **all = NULL;
    ct_status status = all_gather(c, &bytes, sizeof bytes, sizes, "gathering");
    if (!status && is_target) {
        all = ct_calloc((size_t)c->size, sizeof *all);
        for (int r = 0; r < c->size; r++) all[r] = ct_malloc(sizes[r] + 1);
        if (bytes) memcpy(all[to], data, bytes);
        for (int r = 0; r < c->size; r++)
            if (r != to) in[n++] = (ct_message){r, all[r], sizes[r]};
    }
    if (!status && c->size > 1) status = exchange_all(c, &out, !is_target, in, n, "gathering", bytes);
    free(in);
    *out_data = status ? NULL : all;
    *out_bytes = status || !is_target ? NULL : sizes;
    if (status) free_gathered(all, sizes, c->size);
    else if (!is_target) free(sizes);
    return status;
}
