// An observer who never saw the plan: preloaded into an MPI job (LD_PRELOAD), it stands between the program and libmpi by MPI's profiling
// interface and counts what goes by. When MPI ends, each rank writes <CT_PMPI_COUNT>.<rank>, one JSON object:
//   {"rank": 0, "size": 4, "sends": [{"peer": 1, "tag": 3, "calls": 2, "bytes": 4096}, …], "receives": […],
//    "collectives": {"calls": 7, "bytes": 7168}}
// A call is one message; bytes are those asked for (receives: room made), and a collective's are what the rank gives. Calls that ctitan's
// module never makes are not watched; were it to make one, its bytes would be missing and the sums of the test would say so.
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

enum { MOST = 4096 };

typedef struct {
    int peer, tag;
    long long calls, bytes;
} tally;

typedef struct {
    tally of[MOST];
    int count;
} tallies;

static tallies sends, receives; // a rank has one thread that calls MPI
static tally collectives;

static long long bytes_of(int count, MPI_Datatype type) {
    int size = 0;
    PMPI_Type_size(type, &size);
    return (long long)count * size;
}

static void note(tallies *t, int peer, int tag, long long bytes) {
    int i = 0;
    while (i < t->count && (t->of[i].peer != peer || t->of[i].tag != tag)) i++;
    if (i == MOST) {
        fprintf(stderr, "pmpi_count: more than %d pairs of peer and tag\n", MOST);
        PMPI_Abort(MPI_COMM_WORLD, 1);
    }
    if (i == t->count) t->of[t->count++] = (tally){peer, tag, 0, 0};
    t->of[i].calls++;
    t->of[i].bytes += bytes;
}

#define SEEN __attribute__((visibility("default")))

SEEN int MPI_Isend(const void *data, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm, MPI_Request *request) {
    note(&sends, to, tag, bytes_of(count, type));
    return PMPI_Isend(data, count, type, to, tag, comm, request);
}

SEEN int MPI_Send(const void *data, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm) {
    note(&sends, to, tag, bytes_of(count, type));
    return PMPI_Send(data, count, type, to, tag, comm);
}

SEEN int MPI_Irecv(void *data, int count, MPI_Datatype type, int from, int tag, MPI_Comm comm, MPI_Request *request) {
    note(&receives, from, tag, bytes_of(count, type));
    return PMPI_Irecv(data, count, type, from, tag, comm, request);
}

SEEN int MPI_Recv(void *data, int count, MPI_Datatype type, int from, int tag, MPI_Comm comm, MPI_Status *status) {
    note(&receives, from, tag, bytes_of(count, type));
    return PMPI_Recv(data, count, type, from, tag, comm, status);
}

SEEN int MPI_Iallgather(const void *mine, int count, MPI_Datatype type, void *all, int each, MPI_Datatype all_type, MPI_Comm comm,
                        MPI_Request *request) {
    collectives.calls++;
    collectives.bytes += bytes_of(count, type);
    return PMPI_Iallgather(mine, count, type, all, each, all_type, comm, request);
}

SEEN int MPI_Allreduce(const void *mine, void *sum, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm) {
    collectives.calls++;
    collectives.bytes += bytes_of(count, type);
    return PMPI_Allreduce(mine, sum, count, type, op, comm);
}

// ---- requests that are started again and again ----
typedef struct {
    MPI_Request request;
    int peer, tag, out;
    long long bytes;
} persistent;

static persistent *kept;
static int kept_count, kept_capacity;

static void keep(MPI_Request request, int peer, int tag, int out, long long bytes) {
    if (kept_count == kept_capacity) {
        kept_capacity = kept_capacity ? 2 * kept_capacity : 256;
        kept = realloc(kept, sizeof *kept * (size_t)kept_capacity);
        if (!kept) PMPI_Abort(MPI_COMM_WORLD, 1);
    }
    kept[kept_count++] = (persistent){request, peer, tag, out, bytes};
}

static void note_start(MPI_Request request) {
    for (int i = 0; i < kept_count; i++)
        if (kept[i].request == request) {
            note(kept[i].out ? &sends : &receives, kept[i].peer, kept[i].tag, kept[i].bytes);
            return;
        }
    fprintf(stderr, "pmpi_count: a request is started that nobody made\n");
    PMPI_Abort(MPI_COMM_WORLD, 1);
}

SEEN int MPI_Send_init(const void *data, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm, MPI_Request *request) {
    int error = PMPI_Send_init(data, count, type, to, tag, comm, request);
    if (!error) keep(*request, to, tag, 1, bytes_of(count, type));
    return error;
}

SEEN int MPI_Recv_init(void *data, int count, MPI_Datatype type, int from, int tag, MPI_Comm comm, MPI_Request *request) {
    int error = PMPI_Recv_init(data, count, type, from, tag, comm, request);
    if (!error) keep(*request, from, tag, 0, bytes_of(count, type));
    return error;
}

SEEN int MPI_Start(MPI_Request *request) {
    note_start(*request);
    return PMPI_Start(request);
}

SEEN int MPI_Startall(int count, MPI_Request *requests) {
    for (int i = 0; i < count; i++) note_start(requests[i]);
    return PMPI_Startall(count, requests);
}

SEEN int MPI_Request_free(MPI_Request *request) {
    for (int i = 0; i < kept_count; i++)
        if (kept[i].request == *request) {
            kept[i] = kept[--kept_count];
            break;
        }
    return PMPI_Request_free(request);
}

// ---- the end ----
static void print(FILE *f, const char *name, const tallies *t) {
    fprintf(f, ", \"%s\": [", name);
    for (int i = 0; i < t->count; i++)
        fprintf(f, "%s{\"peer\": %d, \"tag\": %d, \"calls\": %lld, \"bytes\": %lld}", i ? ", " : "", t->of[i].peer, t->of[i].tag, t->of[i].calls,
                t->of[i].bytes);
    fputs("]", f);
}

SEEN int MPI_Finalize(void) {
    const char *stem = getenv("CT_PMPI_COUNT");
    int rank, size;
    PMPI_Comm_rank(MPI_COMM_WORLD, &rank);
    PMPI_Comm_size(MPI_COMM_WORLD, &size);
    char path[4096];
    snprintf(path, sizeof path, "%s.%d", stem ? stem : "pmpi_count", rank);
    FILE *f = fopen(path, "w");
    if (f) {
        fprintf(f, "{\"rank\": %d, \"size\": %d", rank, size);
        print(f, "sends", &sends);
        print(f, "receives", &receives);
        fprintf(f, ", \"collectives\": {\"calls\": %lld, \"bytes\": %lld}}\n", collectives.calls, collectives.bytes);
    }
    if (!f || fclose(f)) {
        fprintf(stderr, "pmpi_count: cannot write %s\n", path);
        PMPI_Abort(MPI_COMM_WORLD, 1);
    }
    return PMPI_Finalize();
}
