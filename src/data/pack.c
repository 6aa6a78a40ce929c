// torchtitan's packing (hf_datasets/text_datasets.py, v0.2.2). Before a piece is added the buffer is shorter than a sequence, so behind
// any sequence it holds nothing but the end of the piece added last: the place of a sequence is the place of that piece and the number
// of its ids that are gone.
#include "pack.h"

#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

void packer_init(packer *pack, const ct_data_options *options, data_source *sources) {
    *pack = (packer){.options = options, .sources = sources, .count = options->source_count};
    pack->before = ct_calloc((size_t)pack->count, sizeof *pack->before);
    pack->pass_tokens = ct_calloc((size_t)pack->count, sizeof *pack->pass_tokens);
    pack->place.current = -1;
    for (int i = 0; i < pack->count; i++) pack->before[i] = sources[i].at;
}

void packer_deinit(packer *pack) {
    free(pack->buffer.ids);
    free(pack->before);
    free(pack->pass_tokens);
    *pack = (packer){0};
}

static int is_spent(const packer *pack, int i) { return pack->options->once && pack->sources[i].at.epoch > 0; }

static double weight_of(const data_source *source) { return source->spec.weight > 0 ? source->spec.weight : 1; }

// The source that has given least for its weight; -1 where all are spent.
static int choose(const packer *pack) {
    int best = -1;
    double least = 0;
    for (int i = 0; i < pack->count; i++) {
        if (is_spent(pack, i)) continue;
        double share = (double)pack->sources[i].at.tokens / weight_of(&pack->sources[i]);
        if (best < 0 || share < least) best = i, least = share;
    }
    return best;
}

// ---- a piece into the buffer ----
static void drop_used(packer *pack) {
    int64_t left = pack->buffer.count - pack->begin;
    if (pack->begin && left) memmove(pack->buffer.ids, pack->buffer.ids + pack->begin, (size_t)left * sizeof(int32_t));
    pack->buffer.count = left;
    pack->begin = 0;
}

static void add_id(packer *pack, int32_t id) {
    *ct_data_ids_reserve(&pack->buffer, 1) = id;
    pack->buffer.count++;
}

static void add_ids(packer *pack, const data_piece *piece) {
    int32_t *to = ct_data_ids_reserve(&pack->buffer, piece->count);
    for (int64_t i = 0; i < piece->count; i++)
        to[i] = piece->id_bytes == 2 ? ((const uint16_t *)piece->ids)[i] : (int32_t)((const uint32_t *)piece->ids)[i];
    pack->buffer.count += piece->count;
}

static ct_status check_ids(const packer *pack, const data_piece *piece, int64_t from) {
    uint32_t vocab = (uint32_t)pack->options->encoder.vocab_size;
    for (int64_t i = from; i < pack->buffer.count; i++) {
        if ((uint32_t)pack->buffer.ids[i] < vocab) continue;
        CT_FAIL(CT_INVALID, "%s:%lld: the id %d came; the vocabulary has %u entries", piece->path, (long long)piece->line,
                pack->buffer.ids[i], vocab);
    }
    return CT_OK;
}

static ct_status append(packer *pack, const data_piece *piece) {
    const ct_data_encoder *encoder = &pack->options->encoder;
    drop_used(pack);
    pack->piece_begin = pack->buffer.count;
    if (piece->first && encoder->bos >= 0) add_id(pack, encoder->bos);
    if (piece->ids) add_ids(pack, piece);
    else
        CT_TRY_AS(encoder->encode(encoder->context, pack->options->encoder_thread, piece->text, piece->length, &pack->buffer),
                  "encoding %s:%lld", piece->path, (long long)piece->line);
    if (piece->last && encoder->eos >= 0) add_id(pack, encoder->eos);
    CT_TRY(check_ids(pack, piece, pack->piece_begin));
    pack->inside = !piece->last;
    pack->place.piece_hash = XXH3_64bits(pack->buffer.ids + pack->piece_begin,
                                         (size_t)(pack->buffer.count - pack->piece_begin) * sizeof(int32_t));
    return CT_OK;
}

// ---- the next piece of the mixture ----
static ct_status end_of_pass(packer *pack, int i) {
    data_source *source = &pack->sources[i];
    CT_CHECK(pack->pass_tokens[i] != source->at.tokens, CT_INVALID, "%s: all of its documents are empty",
             source->files.paths[0]);
    pack->pass_tokens[i] = source->at.tokens;
    return CT_OK;
}

static void note_before(packer *pack) {
    for (int i = 0; i < pack->count; i++) pack->before[i] = pack->sources[i].at;
}

static ct_status add_piece(packer *pack, int *out_end) {
    for (;;) {
        int i = pack->inside ? pack->place.current : choose(pack);
        *out_end = i < 0;
        if (*out_end) return CT_OK;
        data_piece piece;
        int end;
        note_before(pack);
        CT_TRY(source_read(&pack->sources[i], &piece, &end));
        if (end) {
            CT_TRY(end_of_pass(pack, i));
            continue;
        }
        pack->place.current = i;
        CT_TRY(append(pack, &piece));
        pack->sources[i].at.tokens += pack->buffer.count - pack->piece_begin;
        return CT_OK;
    }
}

ct_status packer_next(packer *pack, int32_t *ids, int *out_end) {
    int64_t need = (int64_t)pack->options->seq_len + 1;
    while (pack->buffer.count - pack->begin < need) {
        CT_TRY(add_piece(pack, out_end));
        if (!*out_end) continue;
        CT_CHECK(pack->place.sequence, CT_INVALID, "%s: the data ends after %lld tokens; one sequence needs %lld (seq_len + 1)",
                 pack->sources[0].files.paths[0], (long long)(pack->buffer.count - pack->begin), (long long)need);
        return CT_OK;
    }
    memcpy(ids, pack->buffer.ids + pack->begin, (size_t)need * sizeof *ids);
    pack->begin += need;
    pack->place.sequence++;
    pack->place.taken = pack->begin - pack->piece_begin;
    *out_end = 0;
    return CT_OK;
}

// ---- going to a place ----
static ct_status read_again(packer *pack, const pack_place *place) {
    data_source *source = &pack->sources[place->current];
    data_piece piece;
    int end;
    CT_TRY(source_read(source, &piece, &end));
    CT_CHECK(!end, CT_INVALID, "%s ends before the saved place", source->files.paths[0]);
    CT_TRY(append(pack, &piece));
    int64_t size = pack->buffer.count - pack->piece_begin;
    source->at.tokens += size;
    CT_CHECK(pack->place.piece_hash == place->piece_hash && place->taken >= 0 && place->taken <= size, CT_INVALID,
             "%s:%lld: the document at the saved place is not the one that was there, or its ids are others", piece.path,
             (long long)piece.line);
    pack->begin = place->taken;
    return CT_OK;
}

ct_status packer_seek(packer *pack, const pack_place *place, const data_cursor *cursors) {
    CT_CHECK(place->sequence >= 0 && place->current >= -1 && place->current < pack->count, CT_CORRUPT,
             "a saved place in the data makes no sense");
    for (int i = 0; i < pack->count; i++) {
        CT_TRY(source_seek(&pack->sources[i], &cursors[i]));
        pack->before[i] = cursors[i];
        pack->pass_tokens[i] = cursors[i].epoch || cursors[i].document || cursors[i].part ? -1 : cursors[i].tokens;
    }
    pack->buffer.count = pack->begin = pack->piece_begin = 0;
    pack->inside = 0;
    if (place->current >= 0) CT_TRY(read_again(pack, place));
    pack->place = *place;
    return CT_OK;
}
