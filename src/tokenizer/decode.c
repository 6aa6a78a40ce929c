// Decoding. A token's bytes depend on nothing but the token and whether it is the first; what a decoder does to the
// whole text is limited to its beginning. So ids can be decoded as they come. Bytes are exact: where Hugging Face
// would put U+FFFD for byte tokens that form no UTF-8, the bytes themselves come out.
#include "core.h"

#include <stdlib.h>
#include <string.h>

const ct_tokenizer_info *ct_tokenizer_describe(const ct_tokenizer *tokenizer) { return &tokenizer->info; }

const char *ct_tokenizer_token(const ct_tokenizer *tokenizer, int id, size_t *out_length) {
    const ct_vocab *vocab = &tokenizer->added.texts;
    if (id < 0 || id >= vocab->size || !vocab->tokens[id].text) vocab = &tokenizer->vocab;
    if (id < 0 || id >= vocab->size || !vocab->tokens[id].text || id >= tokenizer->info.vocab_size) return NULL;
    if (out_length) *out_length = vocab->tokens[id].length;
    return vocab->tokens[id].text;
}

int ct_tokenizer_id(const ct_tokenizer *tokenizer, const char *token, size_t length) {
    int id = ct_vocab_find(&tokenizer->added.texts, token, length);
    if (id < 0) id = ct_vocab_find(&tokenizer->vocab, token, length);
    return id < tokenizer->info.vocab_size ? id : -1;
}

int ct_tokenizer_is_special(const ct_tokenizer *tokenizer, int id) {
    if (tokenizer->control) return id >= 0 && id < tokenizer->info.vocab_size && tokenizer->control[id];
    const ct_added_token *token = ct_added_find(&tokenizer->added, id);
    return token && token->special;
}

// ---- a token's steps -----------------------------------------------------------------------------

static void byte_level(const ct_buffer *in, ct_buffer *out) {
    for (size_t i = 0; i < in->size;) {
        int length, byte = ct_byte_from_point(ct_utf8_point(in->bytes + i, &length));
        if (byte < 0) { // some character stands for no byte: the token stays as it is
            out->size = 0;
            ct_buffer_add(out, in->bytes, in->size);
            return;
        }
        unsigned char c = (unsigned char)byte;
        ct_buffer_add(out, &c, 1);
        i += (size_t)length;
    }
}

static int hex_digit(int c) {
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
                                  : -1;
}

static void byte_fallback(const ct_buffer *in, ct_buffer *out) {
    const unsigned char *p = in->bytes;
    if (in->size == 6 && !memcmp(p, "<0x", 3) && p[5] == '>' && hex_digit(p[3]) >= 0 && hex_digit(p[4]) >= 0) {
        unsigned char c = (unsigned char)(hex_digit(p[3]) * 16 + hex_digit(p[4]));
        ct_buffer_add(out, &c, 1);
    } else {
        ct_buffer_add(out, p, in->size);
    }
}

static void replace(const ct_decode_step *step, const char *content, size_t content_length, const ct_buffer *in,
                    ct_buffer *out) {
    const unsigned char *p = in->bytes, *end = p + in->size, *hit;
    while (step->text_length && (hit = memmem(p, (size_t)(end - p), step->text, step->text_length))) {
        ct_buffer_add(out, p, (size_t)(hit - p));
        ct_buffer_add(out, content, content_length);
        p = hit + step->text_length;
    }
    ct_buffer_add(out, p, (size_t)(end - p));
}

static void strip(const ct_decode_step *step, const ct_buffer *in, ct_buffer *out) {
    const unsigned char *begin = in->bytes, *end = begin + in->size;
    size_t length = step->text_length;
    for (int i = 0;
         i < step->start && (size_t)(end - begin) >= length && length && !memcmp(begin, step->text, length); i++)
        begin += length;
    for (int i = 0;
         i < step->stop && (size_t)(end - begin) >= length && length && !memcmp(end - length, step->text, length);
         i++)
        end -= length;
    ct_buffer_add(out, begin, (size_t)(end - begin));
}

// A word's end becomes a space once another token follows: until then it is owed.
static void end_words(const ct_decode_step *step, ct_decode_stream *stream, const ct_buffer *in, ct_buffer *out) {
    size_t length = step->text_length;
    ct_buffer rest = *in;
    stream->owed = length && in->size >= length && !memcmp(in->bytes + in->size - length, step->text, length);
    if (stream->owed) rest.size -= length;
    replace(step, step->content, step->content_length, &rest, out);
}

static void run_step(const ct_decode_step *step, ct_decode_stream *stream, const ct_buffer *in, ct_buffer *out) {
    int is_first = !stream->started;
    switch (step->kind) {
    case CT_DECODE_BYTE_LEVEL:
        byte_level(in, out);
        break;
    case CT_DECODE_BYTE_FALLBACK:
        byte_fallback(in, out);
        break;
    case CT_DECODE_REPLACE:
        replace(step, step->content, step->content_length, in, out);
        break;
    case CT_DECODE_METASPACE:
        replace(step, step->content, is_first && step->start ? 0 : step->content_length, in, out);
        break;
    case CT_DECODE_SUFFIX:
        end_words(step, stream, in, out);
        break;
    case CT_DECODE_STRIP:
        strip(step, in, out);
        break;
    }
}

// ---- streams -------------------------------------------------------------------------------------

// Passes bytes on, all but the beginning of a UTF-8 character whose rest has not come.
static void pass_on(ct_decode_stream *stream, const unsigned char *bytes, size_t size, ct_decode_sink *sink,
                    void *context) {
    ct_buffer joined = {0};
    ct_buffer_add(&joined, stream->held, (size_t)stream->pending);
    ct_buffer_add(&joined, bytes, size);
    size_t keep = 0;
    for (size_t back = 1; back <= 3 && back <= joined.size; back++) {
        unsigned char c = joined.bytes[joined.size - back];
        if ((c & 0xc0) == 0x80) continue;
        int bad;
        const unsigned char *begin = joined.bytes + joined.size - back;
        if (c >= 0xc2 && c <= 0xf4 && !ct_utf8_check(begin, begin + back, &bad) && (size_t)bad == back) keep = back;
        break;
    }
    if (joined.size > keep) sink(context, joined.bytes, joined.size - keep);
    memcpy(stream->held, joined.bytes + joined.size - keep, keep);
    stream->pending = (int)keep;
    ct_buffer_deinit(&joined);
}

// Runs a token's text through the steps.
static void decode_token(ct_decode_stream *stream, const char *text, size_t length, ct_buffer *out,
                         ct_buffer *scratch) {
    const ct_decoder *decoder = &stream->tokenizer->decoder;
    out->size = 0;
    ct_buffer_add(out, text, length);
    for (int i = 0; i < decoder->count; i++) {
        scratch->size = 0;
        ct_buffer_reserve(scratch, 1);
        run_step(&decoder->steps[i], stream, out, scratch);
        ct_buffer done = *out;
        *out = *scratch, *scratch = done;
    }
}

void ct_decode_stream_push(ct_decode_stream *stream, int id, ct_decode_sink *sink, void *context) {
    const ct_tokenizer *tokenizer = stream->tokenizer;
    const ct_decoder *decoder = &tokenizer->decoder;
    size_t length;
    const char *text = ct_tokenizer_token(tokenizer, id, &length);
    if (!text || ((stream->skip_special || decoder->drop_specials) && ct_tokenizer_is_special(tokenizer, id))) return;
    if (decoder->unk_text && id == tokenizer->bpe.unk_id) {
        stream->started = 1, stream->stripped = -1;
        pass_on(stream, (const unsigned char *)decoder->unk_text, strlen(decoder->unk_text), sink, context);
        return;
    }
    if (stream->owed || (decoder->spaced && stream->started))
        pass_on(stream, (const unsigned char *)" ", 1, sink, context);
    stream->owed = 0;
    ct_buffer out = {0}, scratch = {0};
    decode_token(stream, text, length, &out, &scratch);
    size_t begin = 0, strip_size = decoder->strip_text ? strlen(decoder->strip_text) : 0;
    while (stream->stripped >= 0 && stream->stripped < decoder->strip_start && strip_size &&
           out.size - begin >= strip_size && !memcmp(out.bytes + begin, decoder->strip_text, strip_size))
        begin += strip_size, stream->stripped++;
    if (out.size > begin) stream->stripped = -1;
    stream->started = 1;
    pass_on(stream, out.bytes + begin, out.size - begin, sink, context);
    ct_buffer_deinit(&out);
    ct_buffer_deinit(&scratch);
}

void ct_decode_stream_finish(ct_decode_stream *stream, ct_decode_sink *sink, void *context) {
    if (stream->pending) sink(context, stream->held, (size_t)stream->pending);
    stream->pending = stream->started = stream->stripped = stream->owed = 0;
}

static void sink_string(void *context, const void *bytes, size_t size) { ct_string_add_bytes(context, bytes, size); }

void ct_tokenizer_decode(const ct_tokenizer *tokenizer, const int32_t *ids, size_t count, int skip_special,
                         char **out_text, size_t *out_size) {
    ct_string text = {0};
    ct_string_add_bytes(&text, "", 0);
    ct_decode_stream stream = {.tokenizer = tokenizer, .skip_special = skip_special};
    for (size_t i = 0; i < count; i++) ct_decode_stream_push(&stream, ids[i], sink_string, &text);
    ct_decode_stream_finish(&stream, sink_string, &text);
    if (!text.text) text.text = ct_calloc(1, 1);
    *out_text = text.text, *out_size = text.length;
}
