// Documents in a file of text or JSON lines.
#pragma once
#include "base/json.h"
#include "base/memory.h"
#include "files.h"
#include "input.h"

// A document or a part of one. Valid until the next is read.
typedef struct {
    const char *text; // or, from a corpus, ids
    size_t length;
    const void *ids;
    uint32_t id_bytes;
    int64_t count;
    int first, last; // begins, ends its document
    const char *path;
    int64_t line; // where the document begins, from 1; 0: unknown
} data_piece;

typedef struct {
    const ct_data_source *spec; // borrowed
    data_format format;
    int may_cut;
    input in;
    int64_t line;      // number of the line that comes next
    int inside;        // the next bytes go on with a document
    int json_open;
    ct_json json;
    ct_string gathered; // a document that is not a piece of the buffer
} document_reader;

// Zero-initialise; set spec, format and may_cut. Opens path (borrowed until the next open) at a place that was read off before: the
// offset and line where a document begins, and how many bytes of it are gone.
ct_status documents_open(document_reader *reader, const char *path, int64_t offset, int64_t line, int64_t part);
void documents_deinit(document_reader *reader);

// Reads the next piece; *out_end = 1 where the file has no more.
ct_status documents_next(document_reader *reader, data_piece *out_piece, int *out_end);

// Finds the next document without parsing it: where it begins. *out_end as above.
ct_status documents_scan(document_reader *reader, int64_t *out_offset, int64_t *out_line, int *out_end);

// The largest n ≤ length behind a line end where text may be cut (see ct_data_encoder.may_cut) with text[n] known; 0: none.
size_t documents_cut(const char *text, size_t length);
