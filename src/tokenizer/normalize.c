// Normalisers. Unicode's forms come from utf8proc; a quick check lets text pass that is in form C already. The
// reference follows an older Unicode here: code points that it does not know to compose or reorder are barriers,
// copied as they are between the parts that are normalised.
#include "normalize.h"
#include "bpe.h"
#include "unicode.h"
#include "base/memory.h"

#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

void ct_normalizer_deinit(ct_normalizer *normalizer) {
    for (int i = 0; i < normalizer->count; i++) ct_pattern_free(normalizer->steps[i].pattern);
    free(normalizer->steps);
    *normalizer = (ct_normalizer){0};
}

// ---- Unicode's forms -----------------------------------------------------------------------------

static int is_composed(const uint8_t *classes, const unsigned char *p, const unsigned char *end) {
    while (p < end) {
        if (*p < 0xcc) { // below U+0300
            p++;
            continue;
        }
        int length;
        if (classes[ct_utf8_point(p, &length)] & CT_UNICODE_NFC_UNSAFE) return 0;
        p += length;
    }
    return 1;
}

static int is_ascii(const unsigned char *p, const unsigned char *end) {
    for (; p < end; p++)
        if (*p >= 0x80) return 0;
    return 1;
}

static utf8proc_option_t options_of(ct_norm_kind kind) {
    utf8proc_option_t options = UTF8PROC_STABLE;
    options |= kind == CT_NORM_NFC || kind == CT_NORM_NFKC ? UTF8PROC_COMPOSE : UTF8PROC_DECOMPOSE;
    if (kind == CT_NORM_NFKC || kind == CT_NORM_NFKD) options |= UTF8PROC_COMPAT;
    return options;
}

static ct_status add_form(ct_norm_kind kind, const unsigned char *text, size_t size, ct_buffer *out) {
    if (!size) return CT_OK;
    utf8proc_uint8_t *form = NULL;
    utf8proc_ssize_t length = utf8proc_map(text, (utf8proc_ssize_t)size, &form, options_of(kind));
    if (length < 0) CT_FAIL(CT_NO_MEMORY, "normalising a text of %zu bytes: %s", size, utf8proc_errmsg(length));
    ct_buffer_add(out, form, (size_t)length);
    free(form);
    return CT_OK;
}

static ct_status to_form(ct_norm_kind kind, const uint8_t *classes, const ct_buffer *text, ct_buffer *out) {
    const unsigned char *p = text->bytes, *end = p + text->size, *part = p;
    if (is_ascii(p, end) || (kind == CT_NORM_NFC && is_composed(classes, p, end)))
        return ct_buffer_add(out, p, text->size), CT_OK;
    while (p < end) {
        int length = 1;
        if (*p >= 0x80 && ct_unicode_in(ct_unicode_barrier, ct_unicode_barrier_count, ct_utf8_point(p, &length))) {
            CT_TRY(add_form(kind, part, (size_t)(p - part), out));
            ct_buffer_add(out, p, (size_t)length);
            part = p + length;
        }
        p += length;
    }
    return add_form(kind, part, (size_t)(p - part), out);
}

// ---- the others ----------------------------------------------------------------------------------

static void lowercase(const ct_buffer *text, ct_buffer *out) {
    for (size_t i = 0; i < text->size;) {
        int length;
        uint32_t point = ct_utf8_point(text->bytes + i, &length);
        i += (size_t)length;
        if (point == 0x130) { // the one letter whose lower case is two
            ct_buffer_add_point(out, 'i');
            point = 0x307;
        } else {
            point = (uint32_t)utf8proc_tolower((utf8proc_int32_t)point);
        }
        ct_buffer_add_point(out, point);
    }
}

static void strip(const ct_norm_step *step, const ct_buffer *text, ct_buffer *out) {
    const unsigned char *begin = text->bytes, *end = begin + text->size;
    int length;
    while (step->left && begin < end && ct_unicode_is_space(ct_utf8_point(begin, &length))) begin += length;
    while (step->right && begin < end) {
        const unsigned char *last = ct_utf8_back(end, begin);
        if (!ct_unicode_is_space(ct_utf8_point(last, &length))) break;
        end = last;
    }
    ct_buffer_add(out, begin, (size_t)(end - begin));
}

static void strip_accents(const ct_buffer *text, ct_buffer *out) {
    for (size_t i = 0; i < text->size;) {
        int length;
        uint32_t point = ct_utf8_point(text->bytes + i, &length);
        if (point < 0x300 || !ct_unicode_in(ct_unicode_mark, ct_unicode_mark_count, point))
            ct_buffer_add(out, text->bytes + i, (size_t)length);
        i += (size_t)length;
    }
}

static void nmt(const ct_buffer *text, ct_buffer *out) {
    for (size_t i = 0; i < text->size;) {
        int length;
        uint32_t c = ct_utf8_point(text->bytes + i, &length);
        i += (size_t)length;
        int gone = (c >= 1 && c <= 8) || c == 0xb || (c >= 0xe && c <= 0x1f) || c == 0x7f || c == 0x8f || c == 0x9f;
        int space = c == 9 || c == 0xa || c == 0xc || c == 0xd || c == 0x1680 || (c >= 0x200b && c <= 0x200f) ||
                    c == 0x2028 || c == 0x2029 || c == 0x2581 || c == 0xfeff || c == 0xfffd;
        if (!gone) ct_buffer_add_point(out, space ? ' ' : c);
    }
}

static ct_status replace(const ct_norm_step *step, ct_pattern_scratch *scratch, const ct_buffer *text,
                         ct_buffer *out) {
    size_t last = 0, from = 0;
    while (from <= text->size) {
        size_t begin = SIZE_MAX, end = SIZE_MAX;
        if (step->pattern) {
            CT_TRY(ct_pattern_find(step->pattern, scratch, text->bytes, text->size, from, &begin, &end));
        } else if (step->text_length) {
            const unsigned char *hit = memmem(text->bytes + from, text->size - from, step->text, step->text_length);
            if (hit) begin = (size_t)(hit - text->bytes), end = begin + step->text_length;
        }
        if (begin == SIZE_MAX) break;
        ct_buffer_add(out, text->bytes + last, begin - last);
        ct_buffer_add(out, step->content, step->content_length);
        last = end;
        from = end > begin ? end : end + (end < text->size ? (size_t)ct_utf8_length(text->bytes[end]) : 1);
    }
    ct_buffer_add(out, text->bytes + last, text->size - last);
    return CT_OK;
}

static ct_status run_step(const ct_norm_step *step, const uint8_t *classes, ct_pattern_scratch *scratch,
                          const ct_buffer *text, ct_buffer *out) {
    switch (step->kind) {
    case CT_NORM_NFC:
    case CT_NORM_NFD:
    case CT_NORM_NFKC:
    case CT_NORM_NFKD:
        return to_form(step->kind, classes, text, out);
    case CT_NORM_LOWERCASE:
        lowercase(text, out);
        break;
    case CT_NORM_STRIP:
        strip(step, text, out);
        break;
    case CT_NORM_STRIP_ACCENTS:
        strip_accents(text, out);
        break;
    case CT_NORM_REPLACE:
        return replace(step, scratch, text, out);
    case CT_NORM_PREPEND:
        if (text->size) ct_buffer_add(out, step->content, step->content_length);
        ct_buffer_add(out, text->bytes, text->size);
        break;
    case CT_NORM_NMT:
        nmt(text, out);
        break;
    case CT_NORM_BYTES:
        for (size_t i = 0; i < text->size; i++) ct_buffer_add_point(out, (uint32_t)ct_byte_to_point(text->bytes[i]));
        break;
    case CT_NORM_CHARSMAP:
        ct_charsmap_apply(&step->charsmap, text, out);
        break;
    case CT_NORM_SENTENCEPIECE:
        ct_sentencepiece_normalize(&step->charsmap, &step->rules, text, out);
        break;
    }
    return CT_OK;
}

ct_status ct_normalizer_run(const ct_normalizer *normalizer, const uint8_t *classes, ct_pattern_scratch *scratch,
                            ct_buffer *text, ct_buffer *other) {
    for (int i = 0; i < normalizer->count; i++) {
        other->size = 0;
        ct_buffer_reserve(other, text->size + 16);
        CT_TRY(run_step(&normalizer->steps[i], classes, scratch, text, other));
        ct_buffer done = *other;
        *other = *text, *text = done;
        CT_CHECK(text->size < UINT32_MAX / 2, CT_INVALID, "a text that grows beyond 2 GB in normalisation");
        memset(text->bytes + text->size, 0, CT_BUFFER_SLACK);
    }
    return CT_OK;
}
