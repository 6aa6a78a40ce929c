// What ranks do in the tests of comm, as threads and as processes.
#pragma once
#include "comm/comm.h"

extern const ct_comm_what what;

// All ranks, at most 64; `ranks` is the group's.
ct_group everyone(ct_comm *comm, int *ranks);

ct_rank_main write_and_read; // in shared memory, a thousand rounds of fences; all ranks are near
ct_rank_main tell;           // sums, maxima, broadcast, gather and agreement
ct_rank_main send_all;       // everyone to everyone, messages of different sizes; at most 8 ranks
ct_rank_main exchanges;      // begun and ended in many ways; 2 to 8 ranks
ct_rank_main one_never_sends; // rank 1 begins an exchange and stays away, for so many seconds (a double; NULL: 60)
