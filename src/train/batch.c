// A step's sequences and this rank's part of them. Micro-batch g = round · n + data rank holds sequences [g·b, (g+1)·b) of the step, so that n
// ranks that run one round each read what one rank reads in n rounds. Along a sequence, context parallelism takes chunks r and 2·cp − 1 − r
// (head and tail: all ranks attend to equally much), or chunk r of cp.
#include "trainer_parts.h"

#include <stdlib.h>
#include <string.h>

ct_data_batch ct_batch_make(int64_t sequences, int64_t seq_len) {
    size_t n = (size_t)(sequences * seq_len);
    return (ct_data_batch){ct_calloc(n, 4), ct_calloc(n, 4), ct_calloc(n, 4), ct_calloc(n, 4)};
}

void ct_batch_free(ct_data_batch *b) {
    free(b->tokens);
    free(b->labels);
    free(b->positions);
    free(b->documents);
}

static ct_data_batch from_sequence(ct_data_batch b, int64_t sequence, int64_t seq_len) {
    size_t skip = (size_t)(sequence * seq_len);
    return (ct_data_batch){b.tokens + skip, b.labels + skip, b.positions + skip, b.documents + skip};
}

ct_share_of_batch ct_share_of(const ct_step_options *options, const ct_config *config) {
    const ct_mesh *mesh = &options->parallel.mesh;
    int cp = ct_mesh_find(mesh, "cp");
    return (ct_share_of_batch){
        .data_rank = ct_mesh_data_rank(mesh, options->rank),
        .data_ranks = ct_mesh_data_ranks(mesh),
        .cp_rank = cp < 0 ? 0 : ct_mesh_coord(mesh, options->rank, cp),
        .cp = cp < 0 ? 1 : mesh->axes[cp].size,
        .head_tail = config->parallelism.context_parallel_load_balancer == CT_CFG_HEADTAIL,
    };
}

ct_status ct_batch_read(ct_data *data, const ct_share_of_batch *share, int64_t start, int64_t micro_batches, int64_t b, int64_t seq_len,
                        ct_data_batch batch, int64_t *out_sequences) {
    *out_sequences = 0;
    for (int64_t m = 0; m < micro_batches; m++) {
        int32_t got = 0;
        int64_t first = start + (m * share->data_ranks + share->data_rank) * b;
        CT_TRY(ct_data_read(data, first, (int32_t)b, from_sequence(batch, m * b, seq_len), &got));
        *out_sequences += got;
        if (got < b) break;
    }
    int32_t last = 0; // the others' sequences are passed over together with this rank's
    return ct_data_read(data, start + micro_batches * share->data_ranks * b - 1, 1, (ct_data_batch){0}, &last);
}

// One sequence's tokens of this rank.
static void take_tokens(const ct_share_of_batch *share, const int32_t *from, int64_t seq_len, int32_t *to) {
    if (share->cp == 1 || !share->head_tail) {
        int64_t part = seq_len / share->cp;
        memcpy(to, from + part * share->cp_rank, sizeof *to * (size_t)part);
        return;
    }
    int64_t chunk = seq_len / (2 * share->cp), tail = 2 * share->cp - 1 - share->cp_rank;
    memcpy(to, from + chunk * share->cp_rank, sizeof *to * (size_t)chunk);
    memcpy(to + chunk, from + chunk * tail, sizeof *to * (size_t)chunk);
}

void ct_batch_feed(ct_exec *exec, const char *program, const ct_share_of_batch *share, const ct_data_batch *b, int64_t first, int64_t sequences,
                   int64_t seq_len) {
    const struct {
        const char *name;
        const int32_t *from;
    } feeds[] = {{"tokens", b->tokens}, {"labels", b->labels}, {"positions", b->positions}, {"documents", b->documents}};
    for (int i = 0; i < 4; i++) {
        char name[32];
        snprintf(name, sizeof name, "%s:%s", program, feeds[i].name);
        int32_t *to = ct_exec_data(exec, name);
        for (int64_t s = 0; to && s < sequences; s++)
            take_tokens(share, feeds[i].from + (first + s) * seq_len, seq_len, to + s * (seq_len / share->cp));
    }
}
