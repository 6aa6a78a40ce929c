// A source is read in one of five ways, and each keeps its place in a few numbers: as a stream (file, offset, and the bytes gone of a
// document given in pieces); shuffled through an index of places, straight in a corpus, or from a reader (the number of the document in the pass's
// permutation); shuffled block by block where files are compressed (the block's start, and how many of its documents are gone).
#include "source.h"
#include "source_index.h"
#include "base/file.h"

#include <stdlib.h>
#include <string.h>

enum { BLOCK_BYTES = 64 << 20, BLOCK_DOCUMENTS = 4096, CORPUS_PIECE = 1 << 16 };

// ---- opening ----
static char *copy_or_null(const char *text) { return text && *text ? ct_strdup(text) : NULL; }

static read_mode mode_of(const data_source *source) {
    if (source->spec.reader.open) return READ_READER;
    if (source->files.format == FORMAT_CORPUS) return READ_CORPUS;
    if (!source->shuffle) return READ_STREAM;
    for (int i = 0; i < source->files.count; i++)
        if (files_is_compressed(source->files.paths[i])) return READ_BLOCKS;
    return READ_INDEXED;
}

static ct_status open_corpora(data_source *source, const ct_data_encoder *encoder) {
    source->corpora = ct_calloc((size_t)source->files.count, sizeof *source->corpora);
    source->corpus_first = ct_calloc((size_t)source->files.count + 1, sizeof *source->corpus_first);
    for (int i = 0; i < source->files.count; i++) {
        const char *path = source->files.paths[i];
        CT_TRY(ct_corpus_open(path, &source->corpora[i]));
        const ct_corpus_info *info = ct_corpus_describe(source->corpora[i]);
        CT_CHECK(info->fingerprint == encoder->fingerprint, CT_INVALID,
                 "%s was built with another tokenizer (%d entries, fingerprint %016llx; this one has %016llx)", path,
                 info->vocab_size, (unsigned long long)info->fingerprint, (unsigned long long)encoder->fingerprint);
        source->corpus_first[i + 1] = source->corpus_first[i] + info->documents;
    }
    source->documents = source->corpus_first[source->files.count];
    return CT_OK;
}

static ct_status open_reader(data_source *source) {
    const ct_data_reader *reader = &source->spec.reader;
    const char *path = source->spec.path ? source->spec.path : "";
    const char *wrong = reader->open(path, &source->reader_source, &source->documents, &source->fingerprint);
    CT_CHECK(!wrong, CT_INVALID, "%s: data source %s can't open it: %s", path, reader->name, wrong ? wrong : "");
    source->reader_open = 1;
    CT_CHECK(source->documents > 0, CT_INVALID, "%s: data source %s has no documents there", path, reader->name);
    return CT_OK;
}

ct_status source_open(data_source *source, const ct_data_source *spec, int number, const ct_data_options *options) {
    *source = (data_source){.spec = *spec, .number = number, .shuffle = options->shuffle, .seed = options->seed};
    source->spec.path = copy_or_null(spec->path);
    source->spec.format = copy_or_null(spec->format);
    source->spec.field = copy_or_null(spec->field);
    source->spec.split_line = copy_or_null(spec->split_line);
    source->block_max = options->shuffle_buffer > 0 ? options->shuffle_buffer : BLOCK_DOCUMENTS;
    source->order_epoch = -1;
    source->at.line = 1;
    CT_TRY(files_find(&source->spec, &source->files));
    source->mode = mode_of(source);
    if (source->mode == READ_READER) CT_TRY(open_reader(source));
    source->reader.spec = &source->spec;
    source->reader.format = source->files.format;
    source->reader.may_cut = options->encoder.may_cut;
    if (source->mode == READ_CORPUS) CT_TRY(open_corpora(source, &options->encoder));
    else CT_CHECK(options->encoder.encode, CT_INVALID, "%s must be encoded, and there is no tokenizer", source->files.paths[0]);
    CT_TRY(source_fingerprint(source, &source->fingerprint));
    if (source->mode == READ_INDEXED) CT_TRY(source_index(source));
    return CT_OK;
}

void source_close(data_source *source) {
    for (int i = 0; source->corpora && i < source->files.count; i++) ct_corpus_close(source->corpora[i]);
    if (source->reader_open && source->spec.reader.close) source->spec.reader.close(source->reader_source);
    free(source->corpora);
    free(source->corpus_first);
    free(source->places);
    free(source->block);
    ct_string_deinit(&source->block_text);
    documents_deinit(&source->reader);
    files_deinit(&source->files);
    free((char *)source->spec.path);
    free((char *)source->spec.format);
    free((char *)source->spec.field);
    free((char *)source->spec.split_line);
    *source = (data_source){0};
}

// ---- orders ----
// Sees to it that `order` is this pass's.
static void need_order(data_source *source) {
    if (source->order_epoch == source->at.epoch) return;
    int files = source->mode == READ_BLOCKS;
    source->order = permutation_make((uint64_t)(files ? source->files.count : source->documents), source->seed,
                                     files ? SHUFFLE_FILES : SHUFFLE_DOCUMENTS, (uint32_t)source->number,
                                     (uint32_t)source->at.epoch, 0);
    source->order_epoch = source->at.epoch;
}

static int64_t in_order(data_source *source, int64_t i) {
    if (!source->shuffle) return i;
    need_order(source);
    return (int64_t)permutation_at(&source->order, (uint64_t)i);
}

static void start_pass(data_source *source) {
    source->at = (data_cursor){.epoch = source->at.epoch + 1, .line = 1, .tokens = source->at.tokens};
    source->reader_ready = 0;
    source->block_ready = 0;
}

// ---- streams ----
static void count_piece(data_source *source, const data_piece *piece, int64_t size) {
    source->at.document += piece->last;
    source->at.part = piece->last ? 0 : source->at.part + size;
}

// Reads the next piece of file number `file` of this pass; *out_end where all files are read.
static ct_status read_files(data_source *source, data_piece *piece, int *out_end) {
    data_cursor *at = &source->at;
    for (; at->file < source->files.count; at->file++, at->offset = 0, at->line = 1, source->reader_ready = 0) {
        const char *path = source->files.paths[source->mode == READ_BLOCKS ? in_order(source, at->file) : at->file];
        int end;
        if (!source->reader_ready) CT_TRY(documents_open(&source->reader, path, at->offset, at->line, at->part));
        source->reader_ready = 1;
        CT_TRY(documents_next(&source->reader, piece, &end));
        if (end) continue;
        count_piece(source, piece, (int64_t)piece->length);
        if (!piece->last) return CT_OK;
        at->offset = input_offset(&source->reader.in);
        at->line = source->reader.line;
        return CT_OK;
    }
    *out_end = 1;
    return CT_OK;
}

// ---- shuffled plain files ----
static ct_status read_indexed(data_source *source, data_piece *piece, int *out_end) {
    data_cursor *at = &source->at;
    *out_end = at->document >= source->documents;
    if (*out_end) return CT_OK;
    document_place place = source->places[in_order(source, at->document)];
    const char *path = source->files.paths[place.file];
    int end;
    if (!at->part || !source->reader_ready)
        CT_TRY(documents_open(&source->reader, path, place.offset, place.line, at->part));
    source->reader_ready = 1;
    CT_TRY(documents_next(&source->reader, piece, &end));
    CT_CHECK(!end, CT_CORRUPT, "%s has changed: no document is at byte %lld any more", path, (long long)place.offset);
    count_piece(source, piece, (int64_t)piece->length);
    return CT_OK;
}

// ---- shuffled blocks ----
static void add_to_block(data_source *source, const data_piece *piece) {
    if (piece->first) {
        CT_GROW(source->block, source->block_count, source->block_capacity);
        source->block[source->block_count++] = (block_document){source->block_text.length, 0, piece->path, piece->line};
    }
    ct_string_add_bytes(&source->block_text, piece->text, piece->length);
    source->block[source->block_count - 1].length += piece->length;
}

static ct_status gather_block(data_source *source) {
    data_cursor start = source->at;
    int64_t before = start.document - start.in_block;
    int end = 0, whole = 1;
    source->block_count = 0;
    source->block_text.length = 0;
    source->reader_ready = 0;
    while (!whole || (source->block_count < source->block_max && source->block_text.length < BLOCK_BYTES)) {
        data_piece piece;
        CT_TRY(read_files(source, &piece, &end));
        if (end) break;
        add_to_block(source, &piece);
        whole = piece.last;
    }
    source->block_next = source->at;
    source->at = start;
    source->block_order = permutation_make((uint64_t)source->block_count, source->seed, SHUFFLE_BLOCK,
                                           (uint32_t)source->number, (uint32_t)start.epoch, (uint64_t)before);
    source->block_ready = 1;
    return CT_OK;
}

static ct_status read_block(data_source *source, data_piece *piece, int *out_end) {
    data_cursor *at = &source->at;
    if (!source->block_ready) CT_TRY(gather_block(source));
    *out_end = !source->block_count;
    if (*out_end) return CT_OK;
    CT_CHECK(at->in_block < source->block_count, CT_INVALID, "%s: a place that is not there was looked for",
             source->files.paths[0]);
    const block_document *document =
        &source->block[permutation_at(&source->block_order, (uint64_t)at->in_block)];
    *piece = (data_piece){.text = source->block_text.text + document->offset, .length = document->length, .first = 1, .last = 1,
                          .path = document->path, .line = document->line};
    at->document++;
    if (++at->in_block < source->block_count) return CT_OK;
    at->in_block = 0;
    at->file = source->block_next.file;
    at->offset = source->block_next.offset;
    at->line = source->block_next.line;
    source->block_ready = 0;
    return CT_OK;
}

// ---- corpora ----
static int corpus_of(const data_source *source, int64_t document) {
    int low = 0, high = source->files.count - 1;
    while (low < high) {
        int middle = (low + high + 1) / 2;
        if (source->corpus_first[middle] <= document) low = middle;
        else high = middle - 1;
    }
    return low;
}

static ct_status read_corpus(data_source *source, data_piece *piece, int *out_end) {
    data_cursor *at = &source->at;
    *out_end = at->document >= source->documents;
    if (*out_end) return CT_OK;
    int64_t document = in_order(source, at->document), count;
    int which = corpus_of(source, document);
    ct_corpus *corpus = source->corpora[which];
    uint32_t id_bytes = ct_corpus_describe(corpus)->id_bytes;
    const void *ids;
    CT_TRY(ct_corpus_document(corpus, document - source->corpus_first[which], &ids, &count));
    CT_CHECK(at->part <= count, CT_INVALID, "%s: a place that is not there was looked for", source->files.paths[which]);
    int64_t left = count - at->part, n = left < CORPUS_PIECE ? left : CORPUS_PIECE;
    *piece = (data_piece){.ids = (const char *)ids + at->part * id_bytes, .id_bytes = id_bytes, .count = n,
                          .first = !at->part, .last = n == left, .path = source->files.paths[which]};
    count_piece(source, piece, n);
    return CT_OK;
}

// ---- readers ----
static ct_status read_reader(data_source *source, data_piece *piece, int *out_end) {
    data_cursor *at = &source->at;
    *out_end = at->document >= source->documents;
    if (*out_end) return CT_OK;
    const char *path = source->files.paths[0];
    CT_CHECK(!at->part, CT_INVALID, "%s: a place that is not there was looked for", path);
    int64_t document = in_order(source, at->document);
    *piece = (data_piece){.first = 1, .last = 1, .path = path, .text = ""};
    const char *wrong = source->spec.reader.read(source->reader_source, document, &piece->text, &piece->length);
    CT_CHECK(!wrong, CT_IO, "%s: document %lld of data source %s: %s", path, (long long)document, source->spec.reader.name, wrong ? wrong : "");
    at->document++;
    return CT_OK;
}

// ---- all ----
ct_status source_read(data_source *source, data_piece *out_piece, int *out_end) {
    *out_end = 0;
    switch (source->mode) {
    case READ_STREAM: CT_TRY(read_files(source, out_piece, out_end)); break;
    case READ_INDEXED: CT_TRY(read_indexed(source, out_piece, out_end)); break;
    case READ_BLOCKS: CT_TRY(read_block(source, out_piece, out_end)); break;
    case READ_CORPUS: CT_TRY(read_corpus(source, out_piece, out_end)); break;
    case READ_READER: CT_TRY(read_reader(source, out_piece, out_end)); break;
    }
    if (!*out_end) return CT_OK;
    CT_CHECK(source->at.document > 0, CT_INVALID, "%s: no document in it (%d file%s)",
             source->spec.path ? source->spec.path : source->files.paths[0], source->files.count,
             source->files.count == 1 ? "" : "s");
    start_pass(source);
    return CT_OK;
}

ct_status source_seek(data_source *source, const data_cursor *to) {
    CT_CHECK(to->epoch >= 0 && to->document >= 0 && to->file >= 0 && to->file <= source->files.count && to->offset >= 0 &&
                 to->line >= 1 && to->part >= 0 && to->in_block >= 0 && to->in_block <= to->document && to->tokens >= 0,
             CT_CORRUPT, "%s: a saved place makes no sense", source->files.paths[0]);
    source->at = *to;
    source->reader_ready = 0;
    source->block_ready = 0;
    return CT_OK;
}
