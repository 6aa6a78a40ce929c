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
const char *ct_comm_kind(const ct_comm *c) { return c->backend->kind; }
ct_status ct_comm_share(ct_comm *c, size_t bytes, void **out_base) { return c->backend->share(c, bytes, out_base); }

void ct_comm_set_step(ct_comm *c, int64_t step) {
    c->step = step;
    c->started = 1;
}

void ct_comm_destroy(ct_comm *c) {
    if (!c) return;
    ct_flight_close(c->flight);
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

static ct_flight_record *begin(ct_comm *c, const ct_group *group, const char *kind, const ct_comm_what *what) {
    return c->flight ? ct_flight_begin(c->flight, kind, what->program, group->name, what->module, group->slot, c->step, what->bytes) : NULL;
}

ct_status ct_comm_fence(ct_comm *c, const ct_group *group, const ct_comm_what *what) {
    ct_flight_record *record = begin(c, group, what->kind, what);
    ct_status status = ct_fence_wait(c, group->ranks, group->count, group->slot, group->name, what);
    if (record && !status) ct_flight_end(record);
    return status;
}

ct_status ct_comm_exchange(ct_comm *c, const ct_group *group, const ct_message *sends, int sends_count, const ct_message *receives,
                           int receives_count, const ct_comm_what *what) {
    ct_flight_record *record = begin(c, group, what->kind, what);
    ct_status status = c->backend->exchange(c, group, sends, sends_count, receives, receives_count, what);
    if (record && !status) ct_flight_end(record);
    return status;
}

void ct_comm_fail(ct_comm *c, ct_status status) {
    int none = 0;
    if (!c->control || !atomic_compare_exchange_strong(&c->control->failing, &none, c->rank + 1)) return; // another was first
    c->control->failure_code = ct_error_code(status);
    snprintf(c->control->failure, FAILURE_TEXT, "%s", ct_error_text(status));
    atomic_store_explicit(&c->control->failed, c->rank + 1, memory_order_release);
}

int ct_comm_may_speak(ct_comm *c) { return !c->control || !atomic_exchange(&c->control->spoken, 1); }

void ct_comm_abandon(ct_comm *c) {
    if (c->backend->abandon) c->backend->abandon(c);
}

// ---- between steps ----
static ct_status all_gather(ct_comm *c, const void *mine, size_t bytes, void *out, const char *what) {
    if (c->size == 1) {
        memcpy(out, mine, bytes);
        return CT_OK;
    }
    ct_flight_record *record =
        c->flight ? ct_flight_begin(c->flight, what, "between", "all ranks", "", WORLD_SLOT, c->step, (int64_t)bytes) : NULL;
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

ct_status ct_comm_broadcast(ct_comm *c, int from, void *data, size_t bytes) {
    unsigned char *all = ct_malloc(bytes * (size_t)c->size + 1);
    ct_status status = all_gather(c, data, bytes, all, "a broadcast");
    if (!status) memcpy(data, all + bytes * (size_t)from, bytes);
    free(all);
    return status;
}

ct_status ct_comm_gather(ct_comm *c, int to, const void *data, size_t bytes, void ***out_data, size_t **out_bytes) {
    int64_t most = (int64_t)bytes;
    *out_data = NULL;
    *out_bytes = NULL;
    CT_TRY(ct_comm_max_i64(c, &most, 1));
    size_t record = (size_t)most + sizeof bytes;
    unsigned char *mine = ct_calloc(1, record), *all = ct_malloc(record * (size_t)c->size);
    memcpy(mine, &bytes, sizeof bytes);
    if (bytes) memcpy(mine + sizeof bytes, data, bytes);
    ct_status status = all_gather(c, mine, record, all, "gathering");
    if (!status && c->rank == to) {
        *out_data = ct_calloc((size_t)c->size, sizeof(void *));
        *out_bytes = ct_calloc((size_t)c->size, sizeof(size_t));
        for (int r = 0; r < c->size; r++) {
            memcpy(&(*out_bytes)[r], all + record * (size_t)r, sizeof(size_t));
            (*out_data)[r] = ct_malloc((*out_bytes)[r] + 1);
            memcpy((*out_data)[r], all + record * (size_t)r + sizeof bytes, (*out_bytes)[r]);
        }
    }
    free(mine);
    free(all);
    return status;
}
