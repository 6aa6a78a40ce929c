// The loader: a thread packs sequences into a ring, readers copy them out. The thread is alone with packer, sources and files; the lock
// guards only counters, as a slot is written before it is counted and not written again before it is released.
#include "loader.h"
#include "base/clock.h"
#include "base/team.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

enum { AHEAD = 64, SEQ_LEN_MAX = 1 << 26 };

int32_t *ct_data_ids_reserve(ct_data_ids *ids, int64_t more) {
    if (ids->count + more > ids->capacity) {
        ids->capacity = ids->count + more > 2 * ids->capacity ? ids->count + more : 2 * ids->capacity;
        ids->ids = ct_realloc(ids->ids, (size_t)ids->capacity * sizeof *ids->ids);
    }
    return ids->ids + ids->count;
}

// ---- making ----
static ct_status check_options(const ct_data_options *options) {
    CT_CHECK(options->source_count >= 1 && options->source_count <= 4096, CT_INVALID,
             "%d data sources; 1 to 4096 can be mixed", options->source_count);
    CT_CHECK(options->seq_len >= 1 && options->seq_len <= SEQ_LEN_MAX, CT_INVALID, "seq_len = %d is not in 1 … %d",
             options->seq_len, SEQ_LEN_MAX);
    CT_CHECK(options->encoder.vocab_size >= 1, CT_INVALID, "a vocabulary of %d entries", options->encoder.vocab_size);
    CT_CHECK(options->encoder.bos < options->encoder.vocab_size && options->encoder.eos < options->encoder.vocab_size,
             CT_INVALID, "BOS %d or EOS %d is not in the vocabulary of %d entries", options->encoder.bos,
             options->encoder.eos, options->encoder.vocab_size);
    for (int i = 0; i < options->source_count; i++) {
        double weight = options->sources[i].weight;
        CT_CHECK(weight >= 0 && weight <= 1e12, CT_INVALID, "data source %d has the weight %g; wanted is a positive number",
                 i + 1, weight);
    }
    return CT_OK;
}

static ct_status make_ring(ct_data *data) {
    size_t slots = (size_t)data->ahead, sources = (size_t)data->options.source_count;
    size_t bytes = slots * ((size_t)data->options.seq_len + 1) * sizeof *data->ids;
    data->ids = malloc(bytes);
    data->places = calloc(slots, sizeof *data->places);
    data->cursors = calloc(slots * sources, sizeof *data->cursors);
    data->place_cursors = ct_calloc(sources, sizeof *data->place_cursors);
    CT_CHECK(data->ids && data->places && data->cursors, CT_NO_MEMORY, "no memory for %lld sequences read ahead (%zu bytes)",
             (long long)data->ahead, bytes);
    return CT_OK;
}

static void note_cursors(const ct_data *data, data_cursor *to) {
    memcpy(to, data->pack.before, (size_t)data->options.source_count * sizeof *to);
}

static ct_status fill(ct_data *data, const ct_data_options *options) {
    data->sources = ct_calloc((size_t)options->source_count, sizeof *data->sources);
    for (int i = 0; i < options->source_count; i++) {
        data->options.source_count = i + 1;
        CT_TRY(source_open(&data->sources[i], &options->sources[i], i, options));
    }
    packer_init(&data->pack, &data->options, data->sources);
    CT_TRY(make_ring(data));
    data->place = data->pack.place;
    note_cursors(data, data->place_cursors);
    return CT_OK;
}

ct_status ct_data_create(const ct_data_options *options, ct_data **out_data) {
    CT_TRY(check_options(options));
    ct_data *data = ct_calloc(1, sizeof *data);
    data->options = *options;
    data->options.sources = NULL;
    data->options.source_count = 0;
    data->ahead = options->ahead > 0 ? options->ahead : AHEAD;
    pthread_mutex_init(&data->lock, NULL);
    pthread_cond_init(&data->ready, NULL);
    pthread_cond_init(&data->room, NULL);
    ct_status status = fill(data, options);
    if (status) return ct_data_destroy(data), status;
    *out_data = data;
    return CT_OK;
}

void ct_data_destroy(ct_data *data) {
    if (!data) return;
    loader_stop(data);
    packer_deinit(&data->pack);
    for (int i = 0; i < data->options.source_count; i++) source_close(&data->sources[i]);
    pthread_mutex_destroy(&data->lock);
    pthread_cond_destroy(&data->ready);
    pthread_cond_destroy(&data->room);
    free(data->sources);
    free(data->ids);
    free(data->places);
    free(data->cursors);
    free(data->place_cursors);
    free(data);
}

// ---- the thread ----
// Makes the next sequence into its slot; 0 at the end or after an error, which are noted.
static int produce(ct_data *data) {
    int64_t slot = data->pack.place.sequence % data->ahead;
    int end = 0;
    ct_status status = packer_next(&data->pack, data->ids + slot * (data->options.seq_len + 1), &end);
    if (!status && !end) {
        data->places[slot] = data->pack.place;
        note_cursors(data, data->cursors + slot * data->options.source_count);
    }
    pthread_mutex_lock(&data->lock);
    if (status) {
        data->failed = ct_error_code(status);
        strncpy(data->failure, ct_error_text(status), sizeof data->failure - 1);
    } else if (end) {
        data->ended = 1;
    } else {
        data->produced++;
    }
    pthread_cond_broadcast(&data->ready);
    pthread_mutex_unlock(&data->lock);
    return !status && !end;
}

static void *thread_main(void *argument) {
    ct_data *data = argument;
    ct_thread_unpin(); // whoever started it may be pinned
    do {
        pthread_mutex_lock(&data->lock);
        while (!data->stop && data->produced - data->released >= data->ahead) pthread_cond_wait(&data->room, &data->lock);
        int stop = data->stop;
        pthread_mutex_unlock(&data->lock);
        if (stop) break;
    } while (produce(data));
    return NULL;
}

// With the lock held.
static ct_status start(ct_data *data) {
    if (data->started) return CT_OK;
    sigset_t all, old; // signals are the main thread's
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &old);
    int error = pthread_create(&data->thread, NULL, thread_main, data);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    CT_CHECK(!error, CT_NO_MEMORY, "the thread that reads data could not be started: %s", strerror(error));
    pthread_setname_np(data->thread, "ctitan-data");
    data->started = 1;
    return CT_OK;
}

ct_status ct_data_start(ct_data *data) {
    pthread_mutex_lock(&data->lock);
    ct_status status = start(data);
    pthread_mutex_unlock(&data->lock);
    return status;
}

void loader_stop(ct_data *data) {
    if (!data->started) return;
    pthread_mutex_lock(&data->lock);
    data->stop = 1;
    pthread_cond_broadcast(&data->room);
    pthread_mutex_unlock(&data->lock);
    pthread_join(data->thread, NULL);
    data->started = data->stop = 0;
}

// ---- reading ----
static int is_settled(const ct_data *data, int64_t end) { return data->produced >= end || data->ended || data->failed; }

// With the lock held: waits until sequences up to `end` are there or won't come.
static void wait_for(ct_data *data, int64_t end) {
    if (is_settled(data, end)) return;
    double since = ct_now_s();
    while (!is_settled(data, end)) pthread_cond_wait(&data->ready, &data->lock);
    data->waited_s += ct_now_s() - since;
}

static ct_status claim(ct_data *data, int64_t first, int32_t count, int32_t *out_count) {
    CT_CHECK(count >= 0 && first >= data->released && first + count <= data->released + data->ahead, CT_INVALID,
             "sequences [%lld, %lld) were asked for; those at hand are [%lld, %lld)", (long long)first,
             (long long)first + count, (long long)data->released, (long long)(data->released + data->ahead));
    CT_TRY(start(data));
    wait_for(data, first + count);
    int64_t there = data->produced - first;
    if (there >= count) {
        *out_count = count;
        return CT_OK;
    }
    if (data->failed) CT_FAIL(data->failed, "%s", data->failure);
    *out_count = there > 0 ? (int32_t)there : 0;
    return CT_OK;
}

static void copy_tokens(const ct_data *data, const int32_t *ids, int64_t row, ct_data_batch batch) {
    int64_t length = data->options.seq_len;
    size_t bytes = (size_t)length * sizeof *ids;
    if (batch.tokens) memcpy(batch.tokens + row * length, ids, bytes);
    if (!batch.labels) return;
    int32_t *labels = batch.labels + row * length, eos = data->options.encoder.eos, bos = data->options.encoder.bos;
    memcpy(labels, ids + 1, bytes);
    if (!data->options.mask_boundaries) return;
    for (int64_t t = 0; t < length; t++)
        if (eos >= 0 ? ids[t] == eos : bos >= 0 && ids[t + 1] == bos) labels[t] = -100;
}

static void fill_places(const ct_data *data, const int32_t *ids, int64_t row, ct_data_batch batch) {
    int32_t length = data->options.seq_len, eos = data->options.encoder.eos, bos = data->options.encoder.bos;
    int32_t document = 0, position = 0;
    for (int32_t t = 0; t < length; t++, position++) {
        int starts = eos >= 0 ? t && ids[t - 1] == eos : t && bos >= 0 && ids[t] == bos;
        if (starts && data->options.documents_apart) document++, position = 0;
        if (batch.positions) batch.positions[row * length + t] = position;
        if (batch.documents) batch.documents[row * length + t] = document;
    }
}

ct_status ct_data_read(ct_data *data, int64_t first, int32_t count, ct_data_batch batch, int32_t *out_count) {
    int32_t there = 0;
    pthread_mutex_lock(&data->lock);
    ct_status status = claim(data, first, count, &there);
    pthread_mutex_unlock(&data->lock);
    if (status) return status;
    for (int64_t row = 0; row < there; row++) {
        const int32_t *ids = data->ids + (first + row) % data->ahead * (data->options.seq_len + 1);
        copy_tokens(data, ids, row, batch);
        if (batch.positions || batch.documents) fill_places(data, ids, row, batch);
    }
    *out_count = there;
    return CT_OK;
}

void ct_data_release(ct_data *data, int64_t next) {
    pthread_mutex_lock(&data->lock);
    CT_ASSERT(next >= data->released && next <= data->produced, "release of %lld", (long long)next);
    if (next > data->released) {
        int64_t slot = (next - 1) % data->ahead;
        data->place = data->places[slot];
        memcpy(data->place_cursors, data->cursors + slot * data->options.source_count,
               (size_t)data->options.source_count * sizeof *data->cursors);
        data->released = next;
        pthread_cond_signal(&data->room);
    }
    pthread_mutex_unlock(&data->lock);
}

ct_status ct_data_next(ct_data *data, int32_t count, ct_data_batch batch, int32_t *out_count) {
    int64_t first = data->released;
    CT_TRY(ct_data_read(data, first, count, batch, out_count));
    ct_data_release(data, first + *out_count);
    return CT_OK;
}

// ---- figures ----
int64_t ct_data_position(const ct_data *data) { return data->released; }

int64_t ct_data_epoch(const ct_data *data) {
    int64_t epoch = 0;
    for (int i = 0; i < data->options.source_count; i++)
        if (data->place_cursors[i].epoch > epoch) epoch = data->place_cursors[i].epoch;
    return epoch;
}

double ct_data_waited_s(const ct_data *data) {
    ct_data *unlocked = (ct_data *)data;
    pthread_mutex_lock(&unlocked->lock);
    double waited = data->waited_s;
    pthread_mutex_unlock(&unlocked->lock);
    return waited;
}
