// What the module that knows MPI offers to the rest, which does not: plain functions, found by dlopen.
#pragma once
#include <stddef.h>

enum { CT_MPI_ABI = 2 };

// Called while MPI is waited for; not 0: give up.
typedef int ct_mpi_poll(void *context);

typedef struct {
    int rank; // of the world
    void *data;
    size_t bytes;
} ct_mpi_message;

typedef struct {
    int abi;
    int (*init)(int *out_rank, int *out_size, int *out_node_first, int *out_node_count); // 0: done; ranks of a machine are consecutive
    int (*all_gather)(const void *mine, size_t bytes, void *out, ct_mpi_poll *poll, void *context); // 0: done
    int (*exchange)(int tag, const ct_mpi_message *sends, int sends_count, const ct_mpi_message *receives, int receives_count,
                    ct_mpi_poll *poll, void *context);
    // Messages that go again and again; a channel's functions give 0 where all is well, 1 where poll gave up.
    void *(*channel_make)(int tag, const ct_mpi_message *sends, int sends_count, const ct_mpi_message *receives, int receives_count);
    void (*channel_free)(void *channel); // NULL is fine
    int (*channel_receives)(void *channel);
    int (*channel_send)(void *channel, int send);                                         // -1: all
    int (*channel_wait)(void *channel, int receive, ct_mpi_poll *poll, void *context);    // -1: all, sends too
    void (*progress)(void);
    void (*abort)(int code); // ends all ranks
    void (*finalize)(void);
} ct_mpi_table;

typedef const ct_mpi_table *ct_mpi_table_fn(void); // "ctitan_mpi_table"
