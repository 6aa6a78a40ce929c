// Documents from lines. A JSON line is one. A text file is one, given in pieces cut where no tokenizer's pattern reaches across, so that
// a book neither fills the memory nor keeps training waiting; or it is split at blank lines or at a line that marks the end.
#include "document.h"

#include <string.h>

enum { PIECE = 1 << 18, DOCUMENT_MAX = 1 << 30 };

ct_status documents_open(document_reader *reader, const char *path, int64_t offset, int64_t line, int64_t part) {
    if (!reader->json_open) {
        ct_json_init(&reader->json, path, 1, "", 0);
        reader->json_open = 1;
    }
    reader->json.name = path;
    if (!reader->in.path || strcmp(reader->in.path, path)) CT_TRY(input_open(&reader->in, path));
    CT_TRY(input_seek(&reader->in, offset + part));
    reader->line = line;
    reader->inside = part > 0;
    return CT_OK;
}

void documents_deinit(document_reader *reader) {
    input_deinit(&reader->in);
    if (reader->json_open) ct_json_deinit(&reader->json);
    ct_string_deinit(&reader->gathered);
}

static int is_blank(const char *line, size_t length) {
    for (size_t i = 0; i < length; i++)
        if (!strchr(" \t\r\f\v", line[i]) || !line[i]) return 0;
    return 1;
}

// ---- a whole file ----
static int is_letter_start(const unsigned char *p) { // ASCII, Cyrillic, Han, Hangul: what is certainly a letter by its first byte
    return (unsigned)((*p | 0x20) - 'a') < 26 || *p == 0xd0 || *p == 0xd1 || (*p >= 0xe5 && *p <= 0xe9) || *p == 0xeb || *p == 0xec;
}

static int is_visible_end(const unsigned char *p, size_t before) { // p: the last byte; `before` bytes stand before it
    if (*p > 0x20 && *p < 0x7f) return 1;
    if (*p < 0x80 || *p >= 0xc0) return 0;
    if (before >= 1 && (p[-1] == 0xd0 || p[-1] == 0xd1)) return 1;
    if (before < 2 || p[-1] < 0x80 || p[-1] >= 0xc0) return 0;
    return (p[-2] >= 0xe4 && p[-2] <= 0xe9) || p[-2] == 0xef || (p[-2] == 0xe3 && p[-1] == 0x80 && *p == 0x82);
}

size_t documents_cut(const char *text, size_t length) {
    const unsigned char *t = (const unsigned char *)text;
    for (size_t n = length; n >= 2; n--)
        if (t[n - 1] == '\n' && is_visible_end(t + n - 2, n - 2) && is_letter_start(t + n)) return n;
    return 0;
}

static ct_status next_of_file(document_reader *reader, data_piece *piece, int *out_end) {
    input *in = &reader->in;
    size_t length = 0;
    int last = 0;
    for (size_t want = PIECE; !length; want *= 2) {
        CT_TRY(input_fill(in, want + 1));
        size_t have = in->size - in->at;
        *out_end = !have;
        if (!have) return CT_OK;
        CT_CHECK(have <= DOCUMENT_MAX, CT_INVALID, "%s: a document of more than 1 GiB that can't be cut", in->path);
        last = have <= want;
        length = last ? have : reader->may_cut ? documents_cut(in->buffer + in->at, want) : 0;
    }
    *piece = (data_piece){.text = in->buffer + in->at, .length = length, .first = !reader->inside, .last = last,
                          .path = in->path, .line = 1};
    in->at += length;
    reader->inside = !last;
    return CT_OK;
}

// ---- documents split from a file ----
static ct_status next_split(document_reader *reader, data_piece *piece, int *out_end) {
    const ct_data_source *spec = reader->spec;
    ct_string *document = &reader->gathered;
    size_t solid = 0, n, mark_length = spec->split_line ? strlen(spec->split_line) : 0;
    int blanks = 0;
    const char *line;
    document->length = 0;
    *piece = (data_piece){.first = 1, .last = 1, .path = reader->in.path};
    for (;;) {
        CT_TRY(input_line(&reader->in, &line, &n));
        reader->line += line != NULL;
        size_t visible = n && line[n - 1] == '\r' ? n - 1 : n;
        int mark = spec->split_line && line && visible == mark_length && !memcmp(line, spec->split_line, mark_length);
        int blank = line && !mark && is_blank(line, n);
        blanks = blank ? blanks + 1 : 0;
        int parted = !line || mark || (blank && spec->split_blank_lines > 0 && blanks >= spec->split_blank_lines);
        if (parted && (solid || !line)) break;
        if (mark || (blank && !solid)) continue;
        CT_CHECK(document->length + n < DOCUMENT_MAX, CT_INVALID, "%s:%lld: a document of more than 1 GiB",
                 reader->in.path, (long long)piece->line);
        if (!solid) piece->line = reader->line - 1;
        ct_string_add_bytes(document, line, n);
        if (!blank) solid = document->length;
        ct_string_add_bytes(document, "\n", 1);
    }
    *out_end = !solid;
    piece->text = document->text;
    piece->length = solid;
    return CT_OK;
}

// ---- JSON lines ----
static ct_status next_line(document_reader *reader, const char **out_line, size_t *out_length) {
    static const char bom[] = "\xef\xbb\xbf";
    do {
        int64_t offset = input_offset(&reader->in);
        CT_TRY(input_line(&reader->in, out_line, out_length));
        if (!*out_line) return CT_OK;
        reader->line++;
        if (!offset && *out_length >= 3 && !memcmp(*out_line, bom, 3)) *out_line += 3, *out_length -= 3;
    } while (is_blank(*out_line, *out_length));
    return CT_OK;
}

static ct_status parse_line(document_reader *reader, const char *line, size_t length, data_piece *piece) {
    const char *field = reader->spec->field && *reader->spec->field ? reader->spec->field : "text";
    ct_json *json = &reader->json;
    ct_json_reset(json, (long)reader->line - 1, line, length);
    CT_TRY(ct_json_expect(json, CT_JSON_OBJECT));
    for (;;) {
        CT_TRY(ct_json_next(json));
        if (json->kind == CT_JSON_OBJECT_END) break;
        if (!ct_json_is(json, field)) {
            CT_TRY(ct_json_skip(json));
            continue;
        }
        CT_TRY_AS(ct_json_expect(json, CT_JSON_STRING), "the member \"%s\"", field);
        piece->text = ct_json_hold(json, &reader->gathered);
        piece->length = json->length;
    }
    if (!piece->text) return ct_json_error(json, "this object has no member \"%s\"", field);
    return ct_json_expect(json, CT_JSON_END);
}

static ct_status next_json(document_reader *reader, data_piece *piece, int *out_end) {
    const char *line;
    size_t length;
    CT_TRY(next_line(reader, &line, &length));
    *out_end = !line;
    if (!line) return CT_OK;
    *piece = (data_piece){.first = 1, .last = 1, .path = reader->in.path, .line = reader->line - 1};
    return parse_line(reader, line, length, piece);
}

static int is_split(const document_reader *reader) {
    return reader->spec->split_blank_lines > 0 || (reader->spec->split_line && *reader->spec->split_line);
}

ct_status documents_next(document_reader *reader, data_piece *out_piece, int *out_end) {
    if (reader->format == FORMAT_JSONL) return next_json(reader, out_piece, out_end);
    if (is_split(reader)) return next_split(reader, out_piece, out_end);
    return next_of_file(reader, out_piece, out_end);
}

ct_status documents_scan(document_reader *reader, int64_t *out_offset, int64_t *out_line, int *out_end) {
    *out_offset = input_offset(&reader->in);
    *out_line = reader->line;
    if (reader->format == FORMAT_JSONL) {
        const char *line;
        size_t length;
        CT_TRY(next_line(reader, &line, &length));
        *out_end = !line;
        return CT_OK;
    }
    if (is_split(reader)) {
        data_piece piece;
        return next_split(reader, &piece, out_end);
    }
    CT_TRY(input_fill(&reader->in, 1));
    *out_end = reader->in.at == reader->in.size || *out_offset > 0;
    if (!*out_end) CT_TRY(input_seek(&reader->in, 1)); // the next look finds the end
    return CT_OK;
}
