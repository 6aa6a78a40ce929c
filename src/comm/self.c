// One rank: nothing waits, nothing is sent.
#include "world.h"

#include <stdlib.h>
#include <string.h>

static ct_status share(ct_comm *c, size_t bytes, void **out_base) {
    CT_CHECK(!c->context, CT_INVALID, "shared memory is asked for twice");
    CT_CHECK(!posix_memalign(&c->context, 2 << 20, bytes), CT_NO_MEMORY, "no %zu bytes of memory", bytes);
    memset(c->context, 0, bytes);
    *out_base = c->context;
    return CT_OK;
}

static ct_status exchange(ct_comm *c, const ct_group *group, const ct_message *sends, int sends_count, const ct_message *receives,
                          int receives_count, const ct_comm_what *what) {
    (void)c, (void)group, (void)sends, (void)receives, (void)what;
    CT_ASSERT(!sends_count && !receives_count, "one rank has nobody to send to");
    return CT_OK;
}

static ct_status no_channel(ct_exchange *x, void **out) {
    CT_ASSERT(!x->sends_count && !x->receives_count, "one rank has nobody to send to");
    *out = NULL;
    return CT_OK;
}
static void destroy_nothing(ct_exchange *x) { (void)x; }
static ct_status receive_nothing(ct_exchange *x) {
    (void)x;
    return CT_OK;
}
static ct_status do_nothing(ct_exchange *x, int message) {
    (void)x, (void)message;
    return CT_OK;
}

static ct_status all_gather(ct_comm *c, const void *mine, size_t bytes, void *out, const char *what) {
    (void)c, (void)what;
    memcpy(out, mine, bytes);
    return CT_OK;
}

static void destroy(ct_comm *c) {
    free(c->context);
    free(c->control);
    free(c);
}

static const ct_comm_backend self_backend = {
    .kind = "self", .share = share, .exchange = exchange, .channel_make = no_channel, .channel_destroy = destroy_nothing,
    .channel_receives = receive_nothing, .channel_send = do_nothing, .channel_wait = do_nothing, .all_gather = all_gather, .destroy = destroy};

ct_status ct_comm_create_self(ct_comm **out_comm) {
    ct_comm *c = ct_calloc(1, sizeof *c);
    void *control;
    CT_ASSERT(!posix_memalign(&control, 64, ct_control_bytes(1)), "no memory");
    memset(control, 0, ct_control_bytes(1));
    *c = (ct_comm){.backend = &self_backend, .size = 1, .near_count = 1, .per_node = 1, .machine_count = 1, .control = control};
    *out_comm = c;
    return CT_OK;
}
