// SentencePiece's .model: a protocol buffer (sentencepiece_model.proto), of which the pieces, the trainer's model
// type and fall-back, and the normaliser count. Models: BPE and unigram. Leaves out word and character models, and
// unused pieces of a BPE.
#include "core.h"
#include "base/file.h"

#include <stdlib.h>
#include <string.h>

// ---- the wire format -----------------------------------------------------------------------------

typedef struct {
    const unsigned char *p, *end;
} wire;
typedef struct {
    uint32_t number;
    uint64_t value; // varint and fixed
    wire bytes;     // length-delimited
} field;

static int read_varint(wire *w, uint64_t *out) {
    *out = 0;
    for (int shift = 0; shift < 64 && w->p < w->end; shift += 7) {
        unsigned char c = *w->p++;
        *out |= (uint64_t)(c & 127) << shift;
        if (c < 128) return 1;
    }
    return 0;
}

static int read_fixed(wire *w, int size, uint64_t *out) {
    if (w->end - w->p < size) return 0;
    *out = 0;
    for (int i = 0; i < size; i++) *out |= (uint64_t)*w->p++ << 8 * i;
    return 1;
}

// 1: a field, 0: the end, −1: malformed.
static int next_field(wire *w, field *out) {
    if (w->p >= w->end) return 0;
    uint64_t tag, length;
    if (!read_varint(w, &tag)) return -1;
    *out = (field){.number = (uint32_t)(tag >> 3)};
    switch (tag & 7) {
    case 0:
        return read_varint(w, &out->value) ? 1 : -1;
    case 1:
        return read_fixed(w, 8, &out->value) ? 1 : -1;
    case 5:
        return read_fixed(w, 4, &out->value) ? 1 : -1;
    case 2:
        if (!read_varint(w, &length) || length > (uint64_t)(w->end - w->p)) return -1;
        out->bytes = (wire){w->p, w->p + length};
        w->p += length;
        return 1;
    default:
        return -1;
    }
}

#define MALFORMED "not a SentencePiece model: malformed or cut off at byte %zu"

// ---- the model -----------------------------------------------------------------------------------

enum { NORMAL = 1, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE };
enum { UNIGRAM = 1, BPE };

typedef struct {
    ct_tokenizer *tokenizer;
    const unsigned char *start;
    double *scores;
    unsigned char *types;
    int count, capacity;
    int model_type, byte_fallback;
    char *bos, *eos, *unk_surface;
    wire charsmap;
    ct_sentencepiece_rules rules;
} model;

static char *copy(model *m, wire bytes) {
    return ct_arena_strndup(&m->tokenizer->arena, (const char *)bytes.p, (size_t)(bytes.end - bytes.p));
}

static void add_room(model *m) {
    if (m->count < m->capacity) return;
    m->capacity = m->capacity ? 2 * m->capacity : 1024;
    m->scores = ct_realloc(m->scores, (size_t)m->capacity * sizeof *m->scores);
    m->types = ct_realloc(m->types, (size_t)m->capacity);
}

static ct_status read_piece(model *m, wire w) {
    field f;
    int more;
    wire text = {0};
    float score = 0;
    uint64_t type = NORMAL;
    while ((more = next_field(&w, &f)) > 0) {
        uint32_t bits = (uint32_t)f.value;
        if (f.number == 1) text = f.bytes;
        if (f.number == 2) memcpy(&score, &bits, 4);
        if (f.number == 3) type = f.value;
    }
    CT_CHECK(more == 0 && text.p && text.end > text.p, CT_CORRUPT, MALFORMED, (size_t)(w.p - m->start));
    CT_CHECK(type >= NORMAL && type <= BYTE, CT_UNSUPPORTED, "a piece of type %llu", (unsigned long long)type);
    CT_CHECK(score == score, CT_CORRUPT, "a piece's score is not a number");
    size_t length = (size_t)(text.end - text.p);
    int bad;
    for (const unsigned char *p = text.p; p < text.end;) {
        int step = ct_utf8_check(p, text.end, &bad);
        CT_CHECK(step, CT_CORRUPT, "piece %d is not valid UTF-8", m->count);
        p += step;
    }
    CT_CHECK(ct_vocab_find(&m->tokenizer->vocab, text.p, length) < 0, CT_CORRUPT, "the piece '%.*s' occurs twice",
             length > 60 ? 60 : (int)length, (const char *)text.p);
    CT_TRY(ct_vocab_add(&m->tokenizer->vocab, &m->tokenizer->arena, (const char *)text.p, length, m->count));
    add_room(m);
    m->scores[m->count] = score;
    m->types[m->count++] = (unsigned char)type;
    return CT_OK;
}

static ct_status read_trainer(model *m, wire w) {
    field f;
    int more;
    while ((more = next_field(&w, &f)) > 0) {
        if (f.number == 3) m->model_type = (int)f.value;
        if (f.number == 24) m->rules.treat_whitespace_as_suffix = f.value != 0;
        if (f.number == 35) m->byte_fallback = f.value != 0;
        if (f.number == 44 && f.bytes.p) m->unk_surface = copy(m, f.bytes);
        if (f.number == 46 && f.bytes.p) m->bos = copy(m, f.bytes);
        if (f.number == 47 && f.bytes.p) m->eos = copy(m, f.bytes);
    }
    CT_CHECK(more == 0, CT_CORRUPT, MALFORMED, (size_t)(w.p - m->start));
    return CT_OK;
}

static ct_status read_normalizer(model *m, wire w) {
    field f;
    int more;
    while ((more = next_field(&w, &f)) > 0) {
        if (f.number == 2) m->charsmap = f.bytes;
        if (f.number == 3) m->rules.add_dummy_prefix = f.value != 0;
        if (f.number == 4) m->rules.remove_extra_whitespaces = f.value != 0;
        if (f.number == 5) m->rules.escape_whitespaces = f.value != 0;
    }
    CT_CHECK(more == 0, CT_CORRUPT, MALFORMED, (size_t)(w.p - m->start));
    return CT_OK;
}

static ct_status read_model(model *m, wire w) {
    field f;
    int more;
    while ((more = next_field(&w, &f)) > 0) {
        if (f.number == 1 && f.bytes.p) CT_TRY(read_piece(m, f.bytes));
        if (f.number == 2 && f.bytes.p) CT_TRY(read_trainer(m, f.bytes));
        if (f.number == 3 && f.bytes.p) CT_TRY(read_normalizer(m, f.bytes));
    }
    CT_CHECK(more == 0, CT_CORRUPT, MALFORMED, (size_t)(w.p - m->start));
    CT_CHECK(m->count, CT_CORRUPT, "the model holds no pieces");
    return CT_OK;
}

// ---- into a tokenizer ----------------------------------------------------------------------------

static int control_id(const model *m, const char *text) {
    int id = ct_vocab_find(&m->tokenizer->vocab, text, strlen(text));
    return id >= 0 && m->types[id] == CONTROL ? id : -1;
}

static void collect_symbols(model *m) {
    const char **symbols = NULL;
    int count = 0, capacity = 0;
    for (int id = 0; id < m->count; id++)
        if (m->types[id] == USER_DEFINED) {
            CT_GROW(symbols, count, capacity);
            symbols[count++] = m->tokenizer->vocab.tokens[id].text;
            m->rules.first[(unsigned char)symbols[count - 1][0]] = 1;
        }
    const char **kept = CT_ARENA_ARRAY(&m->tokenizer->arena, const char *, count + 1);
    if (count) memcpy(kept, symbols, (size_t)count * sizeof *symbols);
    free(symbols);
    m->rules.symbols = kept, m->rules.symbol_count = count;
}

static ct_status use_normalizer(model *m) {
    ct_tokenizer *tokenizer = m->tokenizer;
    size_t size = (size_t)(m->charsmap.end - m->charsmap.p);
    unsigned char *bytes = ct_arena_alloc(&tokenizer->arena, size + 1);
    if (size) memcpy(bytes, m->charsmap.p, size);
    ct_norm_step *steps = ct_calloc(1, sizeof *steps);
    tokenizer->normalizer = (ct_normalizer){steps, 1, 1};
    steps->kind = CT_NORM_SENTENCEPIECE;
    CT_CHECK(ct_charsmap_parse(bytes, size, &steps->charsmap), CT_CORRUPT, "the model's character map is malformed");
    collect_symbols(m);
    steps->rules = m->rules;
    return CT_OK;
}

static void use_decoder(model *m) {
    ct_decoder *decoder = &m->tokenizer->decoder;
    decoder->steps = ct_calloc(2, sizeof *decoder->steps);
    decoder->count = decoder->capacity = 2;
    decoder->steps[0] = (ct_decode_step){.kind = CT_DECODE_BYTE_FALLBACK};
    decoder->steps[1] = (ct_decode_step){
        .kind = CT_DECODE_REPLACE, .text = "\xe2\x96\x81", .text_length = 3, .content = " ", .content_length = 1};
    decoder->fused = 1, decoder->drop_specials = 1;
    decoder->strip_text = " ";
    decoder->strip_start = m->rules.remove_extra_whitespaces ? INT32_MAX : m->rules.add_dummy_prefix;
    decoder->unk_text = m->unk_surface ? m->unk_surface : " \xe2\x81\x87 ";
}

static ct_status use_bpe(model *m) {
    ct_tokenizer *tokenizer = m->tokenizer;
    ct_bpe *bpe = &tokenizer->bpe;
    unsigned char *barred = ct_calloc((size_t)m->count, 1);
    int unused = 0;
    for (int id = 0; id < m->count; id++) {
        barred[id] = m->types[id] != NORMAL;
        unused |= m->types[id] == UNUSED;
    }
    uint32_t *ranks = ct_ranks_of_scores(m->scores, m->count);
    bpe->byte_fallback = m->byte_fallback;
    bpe->fuse_at_end = 1;
    bpe->rules = m->rules;
    ct_bpe_pairs_from_tokens(tokenizer, ranks, barred, 1);
    free(ranks);
    free(barred);
    CT_CHECK(!unused, CT_UNSUPPORTED, "a BPE model with unused pieces is not supported");
    tokenizer->info.kind = "sentencepiece BPE";
    return CT_OK;
}

static void use_unigram(model *m, int unk_id) {
    ct_unigram *unigram = &m->tokenizer->unigram;
    unigram->scores = ct_malloc((size_t)m->count * sizeof *unigram->scores);
    memcpy(unigram->scores, m->scores, (size_t)m->count * sizeof *unigram->scores);
    unigram->usable = ct_calloc((size_t)m->count, 1);
    unigram->defined = ct_calloc((size_t)m->count, 1);
    double lowest = 0;
    int any = 0;
    for (int id = 0; id < m->count; id++) {
        unigram->usable[id] = m->types[id] == NORMAL || m->types[id] == USER_DEFINED;
        unigram->defined[id] = m->types[id] == USER_DEFINED;
        if (m->types[id] != NORMAL) continue;
        if (!any || m->scores[id] < lowest) lowest = m->scores[id];
        if (!any || m->scores[id] > unigram->score_max) unigram->score_max = m->scores[id];
        any = 1;
    }
    unigram->unk_score = (double)((float)lowest - 10.0f);
    unigram->single_precision = 1;
    unigram->unk_id = unk_id;
    unigram->byte_fallback = m->byte_fallback;
    m->tokenizer->model = CT_MODEL_UNIGRAM;
    m->tokenizer->info.kind = "sentencepiece unigram";
    ct_unigram_index(unigram, &m->tokenizer->vocab);
}

static ct_status build(model *m) {
    ct_tokenizer *tokenizer = m->tokenizer;
    ct_tokenizer_info *info = &tokenizer->info;
    int unk = -1, bytes = 0;
    tokenizer->control = ct_calloc((size_t)m->count, 1);
    for (int id = 0; id < m->count; id++) {
        tokenizer->control[id] = m->types[id] == CONTROL;
        if (m->types[id] == UNKNOWN) unk = id;
        bytes += m->types[id] == BYTE;
    }
    CT_CHECK(unk >= 0, CT_CORRUPT, "the model has no unknown piece");
    CT_CHECK(!m->byte_fallback || bytes == 256, CT_CORRUPT, "byte fallback needs 256 byte pieces; the model has %d",
             bytes);
    info->vocab_size = m->count;
    info->bos_id = control_id(m, m->bos ? m->bos : "<s>");
    info->eos_id = control_id(m, m->eos ? m->eos : "</s>");
    if (info->bos_id >= 0) info->bos_token = tokenizer->vocab.tokens[info->bos_id].text;
    if (info->eos_id >= 0) info->eos_token = tokenizer->vocab.tokens[info->eos_id].text;
    tokenizer->bpe.unk_id = unk;
    CT_TRY(use_normalizer(m));
    use_decoder(m);
    if (m->model_type == BPE) return use_bpe(m);
    CT_CHECK(m->model_type == UNIGRAM, CT_UNSUPPORTED,
             "the model type %d is not supported (1, unigram, and 2, BPE, are)", m->model_type);
    use_unigram(m, unk);
    return CT_OK;
}

ct_status ct_load_sentencepiece(ct_tokenizer *tokenizer, const char *path) {
    ct_file_map map;
    CT_TRY(ct_file_map_open(path, &map));
    model m = {.tokenizer = tokenizer,
               .start = map.bytes,
               .model_type = UNIGRAM,
               .rules = {.add_dummy_prefix = 1, .remove_extra_whitespaces = 1, .escape_whitespaces = 1}};
    ct_status status = read_model(&m, (wire){map.bytes, map.bytes + map.size});
    if (!status) status = build(&m);
    free(m.scores);
    free(m.types);
    ct_file_map_close(&map);
    return status ? ct_error_note(status, "reading %s as a SentencePiece model", path) : CT_OK;
}
