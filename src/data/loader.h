// The loader's insides, shared by reading (data.c) and states (state.c).
#pragma once
#include "pack.h"

#include <pthread.h>

struct ct_data {
    ct_data_options options; // its sources are not kept
    data_source *sources;
    packer pack; // the thread's while it runs
    // the ring: sequence n lies in slot n % ahead
    int64_t ahead;
    int32_t *ids;         // [ahead][seq_len + 1]
    pack_place *places;   // [ahead] behind the sequence
    data_cursor *cursors; // [ahead][sources]
    // the released place, which a state saves
    pack_place place;
    data_cursor *place_cursors; // [sources]

    pthread_t thread;
    int started;
    pthread_mutex_t lock; // what follows
    pthread_cond_t ready, room;
    int64_t produced, released; // sequences [released, produced) lie in the ring
    int stop, ended;
    ct_code failed; // 0: not
    char failure[2048];
    double waited_s;
};

// Stops the thread and waits for it; what lies in the ring is lost.
void loader_stop(ct_data *data);
