// The one file that knows MPI (3.1), a module of its own: who starts without mpirun never loads it. MPI moves bytes and nothing else; every
// wait is a loop of tests, so that a lost rank ends in an error of ours.
#include "mpi_table.h"

#include <mpi.h>
#include <sched.h>
#include <stdlib.h>

enum { PIECE = 1 << 30, NO_TAG = 32000 }; // bytes of one MPI message at the most; a tag that no group has

static int wait_all(MPI_Request *requests, int count, ct_mpi_poll *poll, void *context) {
    for (int done = 0, rounds = 0;; rounds++) {
        if (MPI_Testall(count, requests, &done, MPI_STATUSES_IGNORE)) return -1;
        if (done) return 0;
        if (rounds % 64 == 63) {
            sched_yield();
            if (poll(context)) return 1;
        }
    }
}

static int node_of(int *out_first, int *out_count) {
    MPI_Comm node;
    int rank, size, lowest;
    if (MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node)) return -1;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(node, &size);
    MPI_Allreduce(&rank, &lowest, 1, MPI_INT, MPI_MIN, node);
    int highest = rank;
    MPI_Allreduce(&rank, &highest, 1, MPI_INT, MPI_MAX, node);
    MPI_Comm_free(&node);
    int consecutive = highest - lowest + 1 == size;
    *out_first = consecutive ? lowest : rank; // ranks dealt out in turn share nothing
    *out_count = consecutive ? size : 1;
    return 0;
}

static int init(int *out_rank, int *out_size, int *out_first, int *out_count) {
    int provided;
    if (MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, &provided) || provided < MPI_THREAD_FUNNELED) return -1;
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN); // an error of ours says what it was for
    MPI_Comm_rank(MPI_COMM_WORLD, out_rank);
    MPI_Comm_size(MPI_COMM_WORLD, out_size);
    return node_of(out_first, out_count);
}

static int all_gather(const void *mine, size_t bytes, void *out, ct_mpi_poll *poll, void *context) {
    MPI_Request request;
    if (bytes > PIECE || MPI_Iallgather(mine, (int)bytes, MPI_BYTE, out, (int)bytes, MPI_BYTE, MPI_COMM_WORLD, &request)) return -1;
    return wait_all(&request, 1, poll, context);
}

static int pieces_of(size_t bytes) { return (int)((bytes + PIECE - 1) / PIECE); }

static int exchange(int tag, const ct_mpi_message *sends, int sends_count, const ct_mpi_message *receives, int receives_count,
                    ct_mpi_poll *poll, void *context) {
    int total = 0, n = 0, error = 0;
    for (int i = 0; i < sends_count; i++) total += pieces_of(sends[i].bytes);
    for (int i = 0; i < receives_count; i++) total += pieces_of(receives[i].bytes);
    MPI_Request few[64], *requests = total <= 64 ? few : malloc(sizeof *requests * (size_t)total);
    if (!requests) return -1;
    for (int pass = 0; pass < 2; pass++) { // receives first: nothing is buffered on the way
        const ct_mpi_message *list = pass ? sends : receives;
        for (int i = 0; i < (pass ? sends_count : receives_count) && !error; i++)
            for (size_t at = 0; at < list[i].bytes && !error; at += PIECE) {
                int size = (int)(list[i].bytes - at < PIECE ? list[i].bytes - at : PIECE);
                error = pass ? MPI_Isend((char *)list[i].data + at, size, MPI_BYTE, list[i].rank, tag, MPI_COMM_WORLD, &requests[n])
                             : MPI_Irecv((char *)list[i].data + at, size, MPI_BYTE, list[i].rank, tag, MPI_COMM_WORLD, &requests[n]);
                n += !error;
            }
    }
    int status = error ? -1 : wait_all(requests, n, poll, context);
    if (requests != few) free(requests);
    return status;
}

// ---- channels ----
typedef struct {
    int receives, sends; // messages
    int *begin;          // of each message's pieces among the requests: receives, then sends; one entry more at the end
    MPI_Request requests[];
} channel;

static int make_requests(channel *c, int tag, const ct_mpi_message *sends, const ct_mpi_message *receives) {
    int n = 0, error = 0;
    for (int i = 0; i < c->receives + c->sends; i++) {
        int out = i >= c->receives;
        const ct_mpi_message *m = out ? &sends[i - c->receives] : &receives[i];
        c->begin[i] = n;
        for (size_t at = 0; at < m->bytes && !error; at += PIECE, n++) {
            int size = (int)(m->bytes - at < PIECE ? m->bytes - at : PIECE);
            error = out ? MPI_Send_init((char *)m->data + at, size, MPI_BYTE, m->rank, tag, MPI_COMM_WORLD, &c->requests[n])
                        : MPI_Recv_init((char *)m->data + at, size, MPI_BYTE, m->rank, tag, MPI_COMM_WORLD, &c->requests[n]);
        }
    }
    c->begin[c->receives + c->sends] = n;
    return error;
}

static void channel_free(void *context) {
    channel *c = context;
    if (!c) return;
    for (int i = 0; i < c->begin[c->receives + c->sends]; i++)
        if (c->requests[i] != MPI_REQUEST_NULL) MPI_Request_free(&c->requests[i]);
    free(c->begin);
    free(c);
}

static void *channel_make(int tag, const ct_mpi_message *sends, int sends_count, const ct_mpi_message *receives, int receives_count) {
    int total = 0;
    for (int i = 0; i < sends_count; i++) total += pieces_of(sends[i].bytes);
    for (int i = 0; i < receives_count; i++) total += pieces_of(receives[i].bytes);
    channel *c = malloc(sizeof *c + sizeof(MPI_Request) * (size_t)(total + 1));
    int *begin = calloc((size_t)(sends_count + receives_count + 1), sizeof *begin);
    if (!c || !begin) {
        free(c), free(begin);
        return NULL;
    }
    c->receives = receives_count, c->sends = sends_count, c->begin = begin;
    for (int i = 0; i < total; i++) c->requests[i] = MPI_REQUEST_NULL;
    if (!make_requests(c, tag, sends, receives)) return c;
    begin[receives_count + sends_count] = total;
    channel_free(c);
    return NULL;
}

static int start(channel *c, int first, int end) {
    int from = c->begin[first], count = c->begin[end] - from;
    return count && MPI_Startall(count, c->requests + from) ? -1 : 0;
}

static int channel_receives(void *context) { return start(context, 0, ((channel *)context)->receives); }

static int channel_send(void *context, int send) {
    channel *c = context;
    return send < 0 ? start(c, c->receives, c->receives + c->sends) : start(c, c->receives + send, c->receives + send + 1);
}

static int channel_wait(void *context, int receive, ct_mpi_poll *poll, void *poll_context) {
    channel *c = context;
    int first = receive < 0 ? 0 : receive, end = receive < 0 ? c->receives + c->sends : receive + 1, from = c->begin[first];
    return wait_all(c->requests + from, c->begin[end] - from, poll, poll_context);
}

// Any call makes MPI look at its connections; this one finds nothing, as nobody uses the tag.
static void progress(void) {
    int found;
    MPI_Iprobe(MPI_ANY_SOURCE, NO_TAG, MPI_COMM_WORLD, &found, MPI_STATUS_IGNORE);
}

static void abort_all(int code) { MPI_Abort(MPI_COMM_WORLD, code); }
static void finalize(void) { MPI_Finalize(); }

static const ct_mpi_table table = {CT_MPI_ABI,       init,         all_gather,   exchange, channel_make, channel_free,
                                   channel_receives, channel_send, channel_wait, progress, abort_all,    finalize};

__attribute__((visibility("default"))) const ct_mpi_table *ctitan_mpi_table(void);
const ct_mpi_table *ctitan_mpi_table(void) { return &table; }
