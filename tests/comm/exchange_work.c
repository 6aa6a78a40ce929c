// Exchanges that are begun and ended, as threads and as processes do them: what was sent is what arrives, of the same tag in the order in which it
// was sent, whoever of the two comes first, with several under way. An error says what was wrong.
#include "rank_work.h"

#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>

enum { SEVERAL = 5, MANY = 100 };

// What number i of a message is.
static int32_t number(int from, int to, int message, int round, size_t i) {
    return (int32_t)(((from * 31 + to) * 31 + message) * 31 + round) * 1009 + (int32_t)i;
}

// A rank's messages with one other rank at a time, each way one.
typedef struct {
    ct_exchange *exchange;
    ct_message to, from;
    size_t numbers;
} pair;

static ct_status open_pair(ct_comm *comm, int to, int from, int tag, size_t numbers, pair *out) {
    int ranks[64];
    ct_group group = everyone(comm, ranks);
    group.tag = tag;
    *out = (pair){.numbers = numbers, .to = {to, calloc(numbers + 1, sizeof(int32_t)), numbers * sizeof(int32_t)},
                  .from = {from, calloc(numbers + 1, sizeof(int32_t)), numbers * sizeof(int32_t)}};
    return ct_exchange_make(comm, &group, &out->to, 1, &out->from, 1, &what, &out->exchange);
}

static void close_pair(pair *p) {
    ct_exchange_destroy(p->exchange);
    free(p->to.data);
    free(p->from.data);
}

static void fill(const pair *p, int me, int message, int round) {
    for (size_t i = 0; i < p->numbers; i++) {
        ((int32_t *)p->to.data)[i] = number(me, p->to.rank, message, round, i);
        ((int32_t *)p->from.data)[i] = -1;
    }
}

static ct_status look(const pair *p, int me, int message, int round) {
    for (size_t i = 0; i < p->numbers; i++) {
        int32_t got = ((int32_t *)p->from.data)[i], wanted = number(p->from.rank, me, message, round, i);
        CT_CHECK(got == wanted, CT_CORRUPT, "rank %d, message %d of rank %d, round %d: number %zu is %d, not %d", me, message, p->from.rank, round, i, got, wanted);
    }
    return CT_OK;
}

// Three of one tag and two of others are under way to the next rank. Every other rank begins those of different tags in another order, and all are
// ended in another order than they were begun.
static ct_status keep_their_order(ct_comm *comm) {
    static const int tags[SEVERAL] = {70, 70, 71, 70, 72}, even[SEVERAL] = {2, 4, 0, 1, 3}, ended[SEVERAL] = {3, 4, 0, 2, 1};
    static const size_t sizes[SEVERAL] = {1000, 1000, 300, 70000, 1};
    int n = ct_comm_size(comm), me = ct_comm_rank(comm);
    pair p[SEVERAL];
    for (int i = 0; i < SEVERAL; i++) CT_TRY(open_pair(comm, (me + 1) % n, (me + n - 1) % n, tags[i], sizes[i], &p[i]));
    for (int round = 0; round < 20; round++) {
        for (int i = 0; i < SEVERAL; i++) fill(&p[i], me, i, round);
        for (int i = 0; i < SEVERAL; i++) CT_TRY(ct_exchange_begin(p[me % 2 ? i : even[i]].exchange, 0));
        ct_comm_progress(comm);
        for (int i = 0; i < SEVERAL; i++) {
            CT_TRY(ct_exchange_end(p[ended[i]].exchange));
            CT_TRY(look(&p[ended[i]], me, ended[i], round));
        }
    }
    for (int i = 0; i < SEVERAL; i++) close_pair(&p[i]);
    return CT_OK;
}

// Two ranks send each other four megabytes at once, again and again; now the one comes later, now the other, and each sends by its own call.
static ct_status meet_both_ways(ct_comm *comm) {
    int n = ct_comm_size(comm), me = ct_comm_rank(comm), partner = me ^ 1;
    pair p;
    if (partner >= n) return CT_OK;
    CT_TRY(open_pair(comm, partner, partner, 73, 1 << 20, &p));
    for (int round = 0; round < 6; round++) {
        fill(&p, me, 0, round);
        if (round % 3 == me % 2) usleep(20000);
        CT_TRY(ct_exchange_begin(p.exchange, 1));
        if (round % 2 == me % 2) usleep(5000);
        CT_TRY(ct_exchange_send(p.exchange, 0));
        CT_TRY(ct_exchange_wait(p.exchange, 0));
        CT_TRY(look(&p, me, 0, round)); // is here before the end
        CT_TRY(ct_exchange_end(p.exchange));
    }
    close_pair(&p);
    return CT_OK;
}

// Everyone to everyone, one number less than the ranks' sum (ranks 0 and 1: none), one message sent after the other from the last on, and waited
// for one by one.
static ct_status all_to_all(ct_comm *comm) {
    enum { MOST = 8 };
    int ranks[64], n = ct_comm_size(comm), me = ct_comm_rank(comm), k = 0;
    static _Thread_local int32_t out[MOST][2 * MOST], in[MOST][2 * MOST];
    ct_group group = everyone(comm, ranks);
    ct_message sends[MOST], receives[MOST];
    ct_exchange *x;
    for (int r = 0; r < n; r++) {
        if (r == me) continue;
        size_t numbers = (size_t)(me + r - 1);
        sends[k] = (ct_message){r, out[r], numbers * sizeof(int32_t)};
        receives[k++] = (ct_message){r, in[r], numbers * sizeof(int32_t)};
    }
    group.tag = 74;
    CT_TRY(ct_exchange_make(comm, &group, sends, k, receives, k, &what, &x));
    for (int round = 0; round < MANY; round++) {
        for (int r = 0; r < n; r++)
            for (size_t i = 0; i < 2 * MOST; i++) out[r][i] = number(me, r, 0, round, i), in[r][i] = -1;
        CT_TRY(ct_exchange_begin(x, 1));
        for (int i = k - 1; i >= 0; i--) CT_TRY(ct_exchange_send(x, i));
        for (int i = 0; i < k; i++) {
            int r = receives[i].rank;
            CT_TRY(ct_exchange_wait(x, i));
            for (int e = 0; e < 2 * MOST; e++) {
                int wanted = e < me + r - 1 ? number(r, me, 0, round, (size_t)e) : -1;
                CT_CHECK(in[r][e] == wanted, CT_CORRUPT, "rank %d, of rank %d, round %d: number %d is %d", me, r, round, e, in[r][e]);
            }
        }
        CT_TRY(ct_exchange_end(x));
    }
    ct_exchange_destroy(x);
    return CT_OK;
}

ct_status exchanges(void *context, ct_comm *comm) {
    (void)context;
    CT_TRY(keep_their_order(comm));
    CT_TRY(meet_both_ways(comm));
    CT_TRY(all_to_all(comm));
    return ct_comm_barrier(comm, "the end");
}

ct_status one_never_sends(void *context, ct_comm *comm) {
    const double *seconds = context;
    int n = ct_comm_size(comm), me = ct_comm_rank(comm);
    pair p;
    CT_TRY(open_pair(comm, (me + 1) % n, (me + n - 1) % n, 75, 10, &p));
    ct_comm_set_step(comm, 4);
    ct_status status = ct_exchange_begin(p.exchange, me == 1);
    if (!status && me == 1) usleep(seconds ? (useconds_t)(*seconds * 1e6) : 60000000);
    if (!status) status = ct_exchange_end(p.exchange);
    if (!status && me != 2) usleep(1000000); // who waits in vain is the first to say so
    if (ct_comm_kind(comm)[0] == 't') close_pair(&p); // MPI still has the memory
    return status;
}
