// The steps of pre-tokenisation. A step that only cuts maps words to words over the same text; one that writes
// (prefixes, marks, the byte-level alphabet) makes a new text. A cut is made in two moves: find the matches, then
// apply the behaviour.
#include "split.h"
#include "bpe.h"
#include "unicode.h"
#include "base/memory.h"

#include <stdlib.h>
#include <string.h>

void ct_spans_grow(ct_spans *spans) {
    spans->capacity = spans->capacity ? 2 * spans->capacity : 256;
    spans->items = ct_realloc(spans->items, spans->capacity * sizeof *spans->items);
}

void ct_spans_deinit(ct_spans *spans) {
    free(spans->items);
    *spans = (ct_spans){0};
}

void ct_splitter_deinit(ct_splitter *splitter) {
    for (int i = 0; i < splitter->count; i++) ct_pattern_free(splitter->steps[i].pattern);
    free(splitter->steps);
    *splitter = (ct_splitter){0};
}

void ct_split_work_deinit(ct_split_work *work) {
    ct_buffer_deinit(&work->text);
    ct_buffer_deinit(&work->other_text);
    ct_spans_deinit(&work->words);
    ct_spans_deinit(&work->other_words);
    ct_spans_deinit(&work->matches);
    free(work->is_match);
    ct_pattern_scratch_destroy(work->pattern);
    *work = (ct_split_work){0};
}

// ---- finding matches: the parts of a word, each with whether it matched ------------------------------

static void add_part(ct_split_work *work, uint32_t begin, uint32_t end, int is_match) {
    ct_spans *parts = &work->matches;
    if (parts->count == parts->capacity) ct_spans_grow(parts);
    if (parts->capacity > work->is_match_capacity) {
        work->is_match = ct_realloc(work->is_match, parts->capacity);
        work->is_match_capacity = parts->capacity;
    }
    work->is_match[parts->count] = (unsigned char)is_match;
    parts->items[parts->count++] = (ct_span){begin, end};
}

static ct_status find_pattern(const ct_split_step *step, ct_split_work *work, ct_span word) {
    const unsigned char *text = work->text.bytes + word.begin;
    size_t size = word.end - word.begin, last = 0, from = 0;
    while (from <= size) {
        size_t begin, end;
        CT_TRY(ct_pattern_find(step->pattern, work->pattern, text, size, from, &begin, &end));
        if (begin == SIZE_MAX) break;
        if (begin > last) add_part(work, word.begin + (uint32_t)last, word.begin + (uint32_t)begin, 0);
        add_part(work, word.begin + (uint32_t)begin, word.begin + (uint32_t)end, 1);
        last = end;
        from = end > begin ? end : end + (end < size ? (size_t)ct_utf8_length(text[end]) : 1);
    }
    if (last < size) add_part(work, word.begin + (uint32_t)last, word.end, 0);
    return CT_OK;
}

static void find_text(const ct_split_step *step, ct_split_work *work, ct_span word) {
    const unsigned char *text = work->text.bytes;
    uint32_t last = word.begin;
    while (step->text_length) {
        const unsigned char *hit = memmem(text + last, word.end - last, step->text, step->text_length);
        if (!hit) break;
        uint32_t begin = (uint32_t)(hit - text);
        if (begin > last) add_part(work, last, begin, 0);
        last = begin + (uint32_t)step->text_length;
        add_part(work, begin, last, 1);
    }
    if (last < word.end) add_part(work, last, word.end, 0);
}

static int is_wanted(ct_split_kind kind, uint32_t point) {
    if (kind == CT_SPLIT_SPACES) return ct_unicode_is_space(point);
    if (kind == CT_SPLIT_DIGITS) return ct_unicode_in(ct_unicode_numeric, ct_unicode_numeric_count, point);
    return ct_unicode_in(ct_unicode_punctuation, ct_unicode_punctuation_count, point);
}

static void find_characters(ct_split_kind kind, ct_split_work *work, ct_span word) {
    const unsigned char *text = work->text.bytes;
    uint32_t last = word.begin;
    for (uint32_t i = word.begin; i < word.end;) {
        int length;
        uint32_t point = ct_utf8_point(text + i, &length);
        if (is_wanted(kind, point)) {
            if (i > last) add_part(work, last, i, 0);
            add_part(work, i, i + (uint32_t)length, 1);
            last = i + (uint32_t)length;
        }
        i += (uint32_t)length;
    }
    if (last < word.end) add_part(work, last, word.end, 0);
}

// Words and runs of other characters are the parts that stay: they count as no match, spaces as a match.
static void find_words(const uint8_t *classes, ct_split_work *work, ct_span word) {
    const unsigned char *text = work->text.bytes;
    int kind = -1;
    uint32_t last = word.begin, i = word.begin;
    while (i < word.end) {
        int length;
        uint32_t point = ct_utf8_point(text + i, &length);
        int now = ct_unicode_is_space(point) ? 1 : classes[point] & CT_UNICODE_WORD ? 2 : 3;
        if (now != kind && i > last) add_part(work, last, i, kind == 1), last = i;
        kind = now;
        i += (uint32_t)length;
    }
    if (i > last) add_part(work, last, i, kind == 1);
}

// ---- behaviours ----------------------------------------------------------------------------------

static void merge_next(ct_split_work *work) {
    size_t count = work->matches.count, kept = count;
    int before = 0; // from the end towards the beginning; the parts that are kept gather at the end
    ct_span *items = work->matches.items;
    for (size_t i = count; i-- > 0;) {
        int is_match = work->is_match[i];
        if (is_match && !before && kept < count)
            items[kept].begin = items[i].begin;
        else
            items[--kept] = items[i];
        before = is_match;
    }
    for (size_t i = kept; i < count; i++) ct_spans_add(&work->other_words, items[i].begin, items[i].end);
}

static void apply_behaviour(const ct_split_step *step, ct_split_work *work) {
    ct_spans *out = &work->other_words;
    size_t first = out->count;
    int before = 0;
    if (step->invert)
        for (size_t i = 0; i < work->matches.count; i++) work->is_match[i] = !work->is_match[i];
    if (step->behaviour == CT_SPLIT_NEXT) {
        merge_next(work);
        return;
    }
    for (size_t i = 0; i < work->matches.count; i++) {
        ct_span part = work->matches.items[i];
        int is_match = work->is_match[i], joins = 0;
        if (step->behaviour == CT_SPLIT_REMOVED && is_match) continue;
        if (step->behaviour == CT_SPLIT_CONTIGUOUS) joins = is_match == before;
        if (step->behaviour == CT_SPLIT_PREVIOUS) joins = is_match && !before;
        if (joins && out->count > first && out->items[out->count - 1].end == part.begin)
            out->items[out->count - 1].end = part.end;
        else
            ct_spans_add(out, part.begin, part.end);
        before = is_match;
    }
}

// ---- steps that write ----------------------------------------------------------------------------

static void end_word(ct_split_work *work, size_t begin) {
    ct_spans_add(&work->other_words, (uint32_t)begin, (uint32_t)work->other_text.size);
}

static void write_prefixed(ct_split_work *work, ct_span word) {
    size_t begin = work->other_text.size;
    if (work->text.bytes[word.begin] != ' ') ct_buffer_add(&work->other_text, " ", 1);
    ct_buffer_add(&work->other_text, work->text.bytes + word.begin, word.end - word.begin);
    end_word(work, begin);
}

static void write_bytes(ct_split_work *work, ct_span word) {
    size_t begin = work->other_text.size;
    for (uint32_t i = word.begin; i < word.end; i++)
        ct_buffer_add_point(&work->other_text, (uint32_t)ct_byte_to_point(work->text.bytes[i]));
    end_word(work, begin);
}

static void write_metaspace(const ct_split_step *step, ct_split_work *work, ct_span word, int is_first) {
    const unsigned char *text = work->text.bytes;
    ct_buffer *out = &work->other_text;
    size_t begin = out->size;
    int marked = text[word.begin] == ' ' || (word.end - word.begin >= step->text_length &&
                                             !memcmp(text + word.begin, step->text, step->text_length));
    if (!marked && (step->prepend == CT_PREPEND_ALWAYS || (step->prepend == CT_PREPEND_FIRST && is_first)))
        ct_buffer_add(out, step->text, step->text_length);
    for (uint32_t i = word.begin; i < word.end; i++) {
        int is_space = text[i] == ' ';
        int is_mark =
            !is_space && word.end - i >= step->text_length && !memcmp(text + i, step->text, step->text_length);
        if ((is_space || is_mark) && step->cut && out->size > begin) end_word(work, begin), begin = out->size;
        if (is_space)
            ct_buffer_add(out, step->text, step->text_length);
        else
            ct_buffer_add(out, text + i, is_mark ? step->text_length : 1);
        if (is_mark) i += (uint32_t)step->text_length - 1;
    }
    end_word(work, begin);
}

// ---- running -------------------------------------------------------------------------------------

static ct_status run_on_word(const ct_split_step *step, const uint8_t *classes, ct_split_work *work, ct_span word,
                             int is_first) {
    switch (step->kind) {
    case CT_SPLIT_SCAN:
        return step->scanner->scan(classes, work->text.bytes, word, &work->other_words), CT_OK;
    case CT_SPLIT_PREFIX:
        return write_prefixed(work, word), CT_OK;
    case CT_SPLIT_BYTES:
        return write_bytes(work, word), CT_OK;
    case CT_SPLIT_METASPACE:
        return write_metaspace(step, work, word, is_first), CT_OK;
    case CT_SPLIT_PATTERN:
        CT_TRY(find_pattern(step, work, word));
        break;
    case CT_SPLIT_TEXT:
        find_text(step, work, word);
        break;
    case CT_SPLIT_WORDS:
        find_words(classes, work, word);
        break;
    case CT_SPLIT_SPACES:
    case CT_SPLIT_DIGITS:
    case CT_SPLIT_PUNCTUATION:
        find_characters(step->kind, work, word);
        break;
    }
    apply_behaviour(step, work);
    work->matches.count = 0;
    return CT_OK;
}

static int writes(ct_split_kind kind) {
    return kind == CT_SPLIT_PREFIX || kind == CT_SPLIT_BYTES || kind == CT_SPLIT_METASPACE;
}

ct_status ct_splitter_run(const ct_splitter *splitter, const uint8_t *classes, ct_split_work *work, int at_start) {
    work->words.count = work->matches.count = 0;
    ct_spans_add(&work->words, 0, (uint32_t)work->text.size);
    for (int s = 0; s < splitter->count; s++) {
        const ct_split_step *step = &splitter->steps[s];
        if (step->kind == CT_SPLIT_PATTERN && !work->pattern) work->pattern = ct_pattern_scratch_create();
        work->other_words.count = 0;
        work->other_text.size = 0;
        for (size_t i = 0; i < work->words.count; i++)
            CT_TRY(run_on_word(step, classes, work, work->words.items[i], at_start && i == 0));
        ct_spans words = work->words;
        work->words = work->other_words, work->other_words = words;
        if (writes(step->kind)) {
            ct_buffer text = work->text;
            work->text = work->other_text, work->other_text = text;
            CT_CHECK(work->text.size < UINT32_MAX / 2, CT_INVALID,
                     "a text that grows beyond 2 GB in pre-tokenisation");
        }
    }
    return CT_OK;
}
