// What ranks do in the tests of comm, as threads and as processes: an error says what was wrong.
#include "rank_work.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const ct_comm_what what = {"test", "layers.0", "micro", 8};

ct_group everyone(ct_comm *comm, int *ranks) {
    for (int r = 0; r < ct_comm_size(comm); r++) ranks[r] = r;
    return (ct_group){ranks, ct_comm_size(comm), 1, "all", 0};
}

// Each writes its number, meets the others, reads theirs, meets again: a thousand times.
ct_status write_and_read(void *context, ct_comm *comm) {
    (void)context;
    int ranks[64], n = ct_comm_size(comm), me = ct_comm_rank(comm);
    ct_group group = everyone(comm, ranks);
    void *base;
    CT_TRY(ct_comm_share(comm, 64 * 64, &base));
    int64_t *cell = base;
    for (int64_t i = 1; i <= 1000; i++) {
        cell[8 * me] = i * 100 + me;
        CT_TRY(ct_comm_fence(comm, &group, &what));
        for (int r = 0; r < n; r++)
            CT_CHECK(cell[8 * r] == i * 100 + r, CT_CORRUPT, "round %lld: rank %d reads %lld of rank %d", (long long)i, me, (long long)cell[8 * r], r);
        CT_TRY(ct_comm_fence(comm, &group, &what));
    }
    return CT_OK;
}

ct_status tell(void *context, ct_comm *comm) {
    (void)context;
    int n = ct_comm_size(comm), me = ct_comm_rank(comm);
    int64_t x[2] = {me, -me}, big[2] = {me, -me};
    CT_TRY(ct_comm_sum_i64(comm, x, 2));
    CT_CHECK(x[0] == n * (n - 1) / 2 && x[1] == -x[0], CT_CORRUPT, "sum %lld", (long long)x[0]);
    CT_TRY(ct_comm_max_i64(comm, big, 2));
    CT_CHECK(big[0] == n - 1 && big[1] == 0, CT_CORRUPT, "maximum %lld %lld", (long long)big[0], (long long)big[1]);
    char text[16] = "";
    if (me == n - 1) strcpy(text, "hello");
    CT_TRY(ct_comm_broadcast(comm, n - 1, text, sizeof text));
    CT_CHECK(!strcmp(text, "hello"), CT_CORRUPT, "broadcast '%s'", text);
    void **data;
    size_t *bytes;
    CT_TRY(ct_comm_gather(comm, 0, "abcdefgh", (size_t)me, &data, &bytes));
    CT_CHECK(!data == (me != 0), CT_CORRUPT, "gathered on rank %d", me);
    for (int r = 0; data && r < n; r++) {
        CT_CHECK(bytes[r] == (size_t)r && !memcmp(data[r], "abcdefgh", bytes[r]), CT_CORRUPT, "rank %d's bytes", r);
        free(data[r]);
    }
    free(data);
    free(bytes);
    CT_TRY(ct_comm_agree(comm, CT_OK));
    ct_status mine = me == n - 1 ? ct_error_make(CT_IO, __FILE__, __LINE__, "the disk is full") : CT_OK;
    ct_status all = ct_comm_agree(comm, mine);
    char wanted[64];
    snprintf(wanted, sizeof wanted, n == 1 ? "the disk is full" : "rank %d: the disk is full", n - 1);
    CT_CHECK(all && ct_error_code(all) == CT_IO && !strcmp(ct_error_text(all), wanted), CT_CORRUPT, "agreed on %s", all ? ct_error_text(all) : "nothing");
    return CT_OK;
}

// Everyone sends everyone 1000·from + to, as many numbers as from + to.
ct_status send_all(void *context, ct_comm *comm) {
    (void)context;
    int ranks[64], n = ct_comm_size(comm), me = ct_comm_rank(comm), k = 0;
    ct_group group = everyone(comm, ranks);
    int32_t out[8][16], in[8][16];
    ct_message sends[8], receives[8];
    for (int r = 0; r < n; r++) {
        if (r == me) continue;
        for (int i = 0; i < 16; i++) out[r][i] = 1000 * me + r, in[r][i] = -1;
        sends[k] = (ct_message){r, out[r], sizeof(int32_t) * (size_t)(me + r)};
        receives[k++] = (ct_message){r, in[r], sizeof(int32_t) * (size_t)(me + r)};
    }
    CT_TRY(ct_comm_exchange(comm, &group, sends, k, receives, k, &what));
    for (int r = 0; r < n; r++)
        for (int i = 0; i < 16 && r != me; i++)
            CT_CHECK(in[r][i] == (i < me + r ? 1000 * r + me : -1), CT_CORRUPT, "rank %d got %d from %d", me, in[r][i], r);
    return CT_OK;
}
