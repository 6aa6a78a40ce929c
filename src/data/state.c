// The loader's state as JSON: the released place, and what it belongs to. Numbers of 64 bits without a sign are written as
// hexadecimal strings, so that every JSON reader keeps them whole.
#include "loader.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { STATE_VERSION = 1 };

typedef struct {
    const char *name;
    size_t offset; // of an int64_t
} member;

static const member cursor_members[] = {
    {"epoch", offsetof(data_cursor, epoch)},   {"document", offsetof(data_cursor, document)},
    {"file", offsetof(data_cursor, file)},     {"offset", offsetof(data_cursor, offset)},
    {"line", offsetof(data_cursor, line)},     {"part", offsetof(data_cursor, part)},
    {"in_block", offsetof(data_cursor, in_block)}, {"tokens", offsetof(data_cursor, tokens)},
};
enum { CURSOR_MEMBERS = sizeof cursor_members / sizeof *cursor_members };

// What a state says, or what this loader would say.
typedef struct {
    int64_t version, seq_len, bos, eos, shuffle, once, count, sequence, taken, current;
    char seed[24], tokenizer[24], piece[24];
} state_head;

static const member head_members[] = {
    {"version", offsetof(state_head, version)}, {"seq_len", offsetof(state_head, seq_len)},
    {"bos", offsetof(state_head, bos)},         {"eos", offsetof(state_head, eos)},
    {"shuffle", offsetof(state_head, shuffle)}, {"once", offsetof(state_head, once)},
    {"sequence", offsetof(state_head, sequence)}, {"taken", offsetof(state_head, taken)},
    {"current", offsetof(state_head, current)},
};
static const member head_strings[] = {
    {"seed", offsetof(state_head, seed)},
    {"tokenizer", offsetof(state_head, tokenizer)},
    {"piece", offsetof(state_head, piece)},
};
#define COUNT(array) (sizeof(array) / sizeof *(array))

typedef struct {
    char fingerprint[24], *path;
    double weight;
    data_cursor cursor;
} state_source;

static void hex(char *to, uint64_t value) { snprintf(to, 24, "%016llx", (unsigned long long)value); }

static state_head head_of(const ct_data *data) {
    state_head head = {
        .version = STATE_VERSION,
        .seq_len = data->options.seq_len,
        .bos = data->options.encoder.bos,
        .eos = data->options.encoder.eos,
        .shuffle = data->options.shuffle != 0,
        .once = data->options.once != 0,
        .count = data->options.source_count,
        .sequence = data->place.sequence,
        .taken = data->place.taken,
        .current = data->place.current,
    };
    hex(head.seed, data->options.seed);
    hex(head.tokenizer, data->options.encoder.fingerprint);
    hex(head.piece, data->place.piece_hash);
    return head;
}

// ---- saving ----
static void add_source(ct_string *out, const data_source *source, const data_cursor *cursor) {
    char fingerprint[24];
    hex(fingerprint, source->fingerprint);
    ct_string_add(out, "{\"path\":");
    ct_string_add_json(out, source->spec.path ? source->spec.path : source->files.paths[0]);
    ct_string_add(out, ",\"fingerprint\":\"%s\",\"weight\":%.17g", fingerprint, source->spec.weight);
    for (int i = 0; i < CURSOR_MEMBERS; i++)
        ct_string_add(out, ",\"%s\":%lld", cursor_members[i].name,
                      (long long)*(const int64_t *)((const char *)cursor + cursor_members[i].offset));
    ct_string_add(out, "}");
}

void ct_data_state_save(const ct_data *data, char **out_json) {
    ct_string out = {0};
    state_head head = head_of(data);
    ct_string_add(&out, "{");
    for (size_t i = 0; i < COUNT(head_members); i++)
        ct_string_add(&out, "%s\"%s\":%lld", i ? "," : "", head_members[i].name,
                      (long long)*(int64_t *)((char *)&head + head_members[i].offset));
    for (size_t i = 0; i < COUNT(head_strings); i++)
        ct_string_add(&out, ",\"%s\":\"%s\"", head_strings[i].name, (char *)&head + head_strings[i].offset);
    ct_string_add(&out, ",\"sources\":[");
    for (int i = 0; i < data->options.source_count; i++) {
        if (i) ct_string_add(&out, ",");
        add_source(&out, &data->sources[i], &data->place_cursors[i]);
    }
    ct_string_add(&out, "]}");
    *out_json = out.text;
}

// ---- parsing ----
static ct_status copy_short(ct_json *json, char *to) {
    CT_TRY(ct_json_expect(json, CT_JSON_STRING));
    if (json->length >= 24) return ct_json_error(json, "a string of %zu bytes, wanted at most 23", json->length);
    memcpy(to, json->string, json->length);
    to[json->length] = 0;
    return CT_OK;
}

// Reads the value of a key of the table, or passes over it; *seen gets the key's bit.
static ct_status parse_integer_of(ct_json *json, const member *table, size_t count, void *base, unsigned *seen, int *found) {
    *found = 0;
    for (size_t i = 0; i < count; i++)
        if (ct_json_is(json, table[i].name)) {
            *found = 1;
            *seen |= 1u << i;
            return ct_json_expect_integer(json, (int64_t *)((char *)base + table[i].offset));
        }
    return CT_OK;
}

static ct_status parse_source(ct_json *json, state_source *source) {
    unsigned seen = 0;
    int found;
    for (;;) {
        CT_TRY(ct_json_next(json));
        if (json->kind == CT_JSON_OBJECT_END) break;
        CT_TRY(parse_integer_of(json, cursor_members, CURSOR_MEMBERS, &source->cursor, &seen, &found));
        if (found) continue;
        if (ct_json_is(json, "fingerprint")) CT_TRY(copy_short(json, source->fingerprint));
        else if (ct_json_is(json, "weight")) CT_TRY(ct_json_expect_double(json, &source->weight));
        else if (ct_json_is(json, "path") && !source->path) CT_TRY(ct_json_expect_string(json, &source->path));
        else CT_TRY(ct_json_skip(json));
    }
    if (seen != (1u << CURSOR_MEMBERS) - 1 || !source->path) return ct_json_error(json, "a source lacks members");
    return CT_OK;
}

static ct_status parse_sources(ct_json *json, state_source *sources, int wanted, int64_t *out_count) {
    CT_TRY(ct_json_expect(json, CT_JSON_ARRAY));
    for (*out_count = 0;; ++*out_count) {
        CT_TRY(ct_json_next(json));
        if (json->kind == CT_JSON_ARRAY_END) return CT_OK;
        if (json->kind != CT_JSON_OBJECT) return ct_json_error(json, "found %s, wanted an object", ct_json_kind_name(json->kind));
        if (*out_count >= wanted)
            return ct_json_error(json, "the state is of more data sources than the %d there are now", wanted);
        CT_TRY(parse_source(json, &sources[*out_count]));
    }
}

static ct_status parse_string_of(ct_json *json, state_head *head, int *found) {
    *found = 0;
    for (size_t i = 0; i < COUNT(head_strings); i++)
        if (ct_json_is(json, head_strings[i].name)) {
            *found = 1;
            return copy_short(json, (char *)head + head_strings[i].offset);
        }
    return CT_OK;
}

static ct_status parse_head(ct_json *json, state_head *head, state_source *sources, int wanted) {
    unsigned seen = 0;
    int found;
    CT_TRY(ct_json_expect(json, CT_JSON_OBJECT));
    for (;;) {
        CT_TRY(ct_json_next(json));
        if (json->kind == CT_JSON_OBJECT_END) break;
        CT_TRY(parse_integer_of(json, head_members, COUNT(head_members), head, &seen, &found));
        if (!found) CT_TRY(parse_string_of(json, head, &found));
        if (found) continue;
        if (ct_json_is(json, "sources")) CT_TRY(parse_sources(json, sources, wanted, &head->count));
        else CT_TRY(ct_json_skip(json));
    }
    if (seen != (1u << COUNT(head_members)) - 1) return ct_json_error(json, "the state lacks members");
    return ct_json_expect(json, CT_JSON_END);
}

// ---- comparing ----
static ct_status differs(const char *what, long long was, long long is) {
    CT_FAIL(CT_INVALID, "the saved data position is for %s = %lld, here it is %lld: it can't be gone on from", what, was, is);
}

static ct_status compare(const ct_data *data, const state_head *head, const state_source *sources) {
    state_head mine = head_of(data);
    CT_CHECK(head->version == STATE_VERSION, CT_UNSUPPORTED, "the saved data position is of version %lld; this program reads %d",
             (long long)head->version, STATE_VERSION);
    CT_CHECK(head->current >= -1 && head->current < mine.count, CT_CORRUPT, "the saved data position makes no sense");
    if (head->seq_len != mine.seq_len) return differs("seq_len", head->seq_len, mine.seq_len);
    CT_CHECK(!strcmp(head->tokenizer, mine.tokenizer), CT_INVALID,
             "the saved data position is of another tokenizer (fingerprint %s, this one has %s)", head->tokenizer, mine.tokenizer);
    if (head->bos != mine.bos) return differs("the BOS id", head->bos, mine.bos);
    if (head->eos != mine.eos) return differs("the EOS id", head->eos, mine.eos);
    if (head->shuffle != mine.shuffle) return differs("shuffle", head->shuffle, mine.shuffle);
    if (head->once != mine.once) return differs("once", head->once, mine.once);
    CT_CHECK(!mine.shuffle || !strcmp(head->seed, mine.seed), CT_INVALID,
             "the saved data position is for the seed 0x%s, here it is 0x%s: shuffling would differ", head->seed, mine.seed);
    if (head->count != mine.count) return differs("the number of data sources", head->count, mine.count);
    for (int i = 0; i < data->options.source_count; i++) {
        const data_source *source = &data->sources[i];
        char fingerprint[24];
        hex(fingerprint, source->fingerprint);
        CT_CHECK(!strcmp(fingerprint, sources[i].fingerprint), CT_INVALID,
                 "data source %d (%s) is not the one of the saved position (%s): files were changed, added or taken away, or they "
                 "are read in another way", i + 1, source->spec.path ? source->spec.path : source->files.paths[0], sources[i].path);
        CT_CHECK(sources[i].weight == source->spec.weight, CT_INVALID,
                 "data source %d had the weight %g when the position was saved, now it is %g", i + 1, sources[i].weight,
                 source->spec.weight);
    }
    return CT_OK;
}

// ---- going there ----
static ct_status go_to(ct_data *data, const state_head *head, const state_source *sources) {
    pack_place place = {head->sequence, head->taken, strtoull(head->piece, NULL, 16), (int32_t)head->current};
    data_cursor *cursors = ct_calloc((size_t)data->options.source_count, sizeof *cursors);
    for (int i = 0; i < data->options.source_count; i++) cursors[i] = sources[i].cursor;
    loader_stop(data);
    ct_status status = packer_seek(&data->pack, &place, cursors);
    if (status) { // stay where we were
        pack_place old = data->place;
        if (packer_seek(&data->pack, &old, data->place_cursors)) {
            data->failed = CT_INVALID;
            snprintf(data->failure, sizeof data->failure, "the data could not be read after a failed restore");
        }
    } else {
        data->place = place;
        memcpy(data->place_cursors, cursors, (size_t)data->options.source_count * sizeof *cursors);
        data->failed = 0;
    }
    data->ended = 0;
    data->produced = data->released = data->place.sequence;
    free(cursors);
    return status;
}

ct_status ct_data_state_restore(ct_data *data, const char *json, size_t length) {
    state_head head = {0};
    state_source *sources = ct_calloc((size_t)data->options.source_count, sizeof *sources);
    ct_json reader;
    ct_json_init(&reader, "saved data position", 1, json, length);
    ct_status status = parse_head(&reader, &head, sources, data->options.source_count);
    ct_json_deinit(&reader);
    if (status) {
        char text[1024];
        snprintf(text, sizeof text, "%s", ct_error_text(status));
        status = ct_error_make(CT_CORRUPT, __FILE__, __LINE__, "%s", text);
    }
    if (!status) status = compare(data, &head, sources);
    if (!status) status = go_to(data, &head, sources);
    for (int i = 0; i < data->options.source_count; i++) free(sources[i].path);
    free(sources);
    return status;
}
