// Building a corpus: the sources' pieces are gathered in batches, a team encodes a batch, and the ids are written in the sources' order, so
// the file does not depend on the number of threads.
#include "base/memory.h"
#include "base/team.h"
#include "corpus_write.h"
#include "source.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { BATCH_BYTES = 4 << 20 };

typedef struct {
    size_t offset, length; // in the batch's text
    int first;
    const char *path;
    int64_t line;
    int thread; // whose ids hold them, from `begin` on
    int64_t begin, count;
} batch_item;

typedef struct {
    ct_data_ids ids;
    ct_status failed;
    int64_t failed_item;
} batch_thread;

typedef struct {
    const ct_corpus_build_options *options;
    corpus_writer writer;
    ct_team *team;
    batch_thread *threads;
    ct_string text;
    batch_item *items;
    int64_t count, capacity;
    _Atomic int64_t next;
    int64_t bytes_total, bytes_done; // on disk; of the sources behind
} builder;

// ---- encoding a batch ----
static void encode_items(void *context, int thread, int threads) {
    (void)threads;
    builder *b = context;
    batch_thread *mine = &b->threads[thread];
    const ct_data_encoder *encoder = &b->options->encoder;
    mine->ids.count = 0;
    for (int64_t i; !mine->failed && (i = atomic_fetch_add(&b->next, 1)) < b->count;) {
        batch_item *item = &b->items[i];
        item->thread = thread;
        item->begin = mine->ids.count;
        ct_status status = encoder->encode(encoder->context, thread, b->text.text + item->offset, item->length, &mine->ids);
        item->count = mine->ids.count - item->begin;
        if (!status) continue;
        mine->failed = ct_error_note(status, "encoding %s:%lld", item->path, (long long)item->line);
        mine->failed_item = i;
    }
}

static ct_status first_failure(const builder *b) {
    const batch_thread *first = NULL;
    for (int i = 0; i < ct_team_size(b->team); i++)
        if (b->threads[i].failed && (!first || b->threads[i].failed_item < first->failed_item)) first = &b->threads[i];
    return first ? ct_error_adopt(first->failed) : CT_OK;
}

static ct_status write_batch(builder *b) {
    atomic_store(&b->next, 0);
    ct_team_run(b->team, encode_items, b);
    CT_TRY(first_failure(b));
    for (int64_t i = 0; i < b->count; i++) {
        const batch_item *item = &b->items[i];
        if (item->first) corpus_writer_document(&b->writer);
        CT_TRY_AS(corpus_writer_add(&b->writer, b->threads[item->thread].ids.ids + item->begin, item->count),
                  "encoding %s:%lld", item->path, (long long)item->line);
    }
    b->writer.header.text_bytes += b->text.length;
    b->count = 0;
    b->text.length = 0;
    return CT_OK;
}

// ---- reading the sources ----
static void add_item(builder *b, const data_piece *piece) {
    CT_GROW(b->items, b->count, b->capacity);
    b->items[b->count++] = (batch_item){.offset = b->text.length, .length = piece->length, .first = piece->first,
                                        .path = piece->path, .line = piece->line};
    ct_string_add_bytes(&b->text, piece->text, piece->length);
}

static int64_t size_of(const char *path) {
    struct stat st;
    return stat(path, &st) ? 0 : (int64_t)st.st_size;
}

static void report(const builder *b, const data_source *source) {
    if (!b->options->progress) return;
    int64_t done = b->bytes_done;
    for (int64_t i = 0; i < source->at.file; i++) done += size_of(source->files.paths[i]);
    if (source->reader_ready) done += source->reader.in.disk_bytes;
    b->options->progress(b->options->progress_context, done, b->bytes_total, (int64_t)b->writer.header.documents,
                         (int64_t)b->writer.header.tokens);
}

static ct_status read_source(builder *b, data_source *source) {
    for (int end = 0; !end;) {
        data_piece piece;
        CT_TRY(source_read(source, &piece, &end));
        if (!end) add_item(b, &piece);
        if (end || b->text.length < BATCH_BYTES) continue;
        CT_TRY(write_batch(b));
        report(b, source);
    }
    CT_TRY(write_batch(b)); // the items' paths are the source's
    for (int i = 0; i < source->files.count; i++) b->bytes_done += size_of(source->files.paths[i]);
    if (b->options->progress)
        b->options->progress(b->options->progress_context, b->bytes_done, b->bytes_total,
                             (int64_t)b->writer.header.documents, (int64_t)b->writer.header.tokens);
    return CT_OK;
}

static ct_status open_source(builder *b, data_source *source, int i) {
    ct_data_options options = {.encoder = b->options->encoder, .once = 1};
    CT_TRY(source_open(source, &b->options->sources[i], i, &options));
    CT_CHECK(source->mode == READ_STREAM, CT_INVALID, "%s is a corpus; text or JSON lines can be made into one",
             source->files.paths[0]);
    for (int f = 0; f < source->files.count; f++) b->bytes_total += size_of(source->files.paths[f]);
    return CT_OK;
}

static ct_status build(builder *b, data_source *sources, const char *path) {
    const ct_corpus_build_options *options = b->options;
    for (int i = 0; i < options->source_count; i++) CT_TRY(open_source(b, &sources[i], i));
    ct_team_options team = {.threads = options->threads > 0 ? options->threads : ct_cores(), .first_core = -1, .never_spin = 1};
    CT_TRY(ct_team_create(team, &b->team));
    b->threads = ct_calloc((size_t)team.threads, sizeof *b->threads);
    CT_TRY(corpus_writer_begin(&b->writer, path, &options->encoder));
    for (int i = 0; i < options->source_count; i++) CT_TRY(read_source(b, &sources[i]));
    CT_CHECK(b->writer.header.tokens, CT_INVALID, "%s: all documents are empty", sources[0].files.paths[0]);
    return corpus_writer_commit(&b->writer);
}

static void free_all(builder *b, data_source *sources) {
    for (int i = 0; b->threads && i < ct_team_size(b->team); i++) free(b->threads[i].ids.ids);
    ct_team_destroy(b->team);
    for (int i = 0; i < b->options->source_count; i++) source_close(&sources[i]);
    corpus_writer_end(&b->writer);
    free(sources);
    free(b->threads);
    free(b->items);
    ct_string_deinit(&b->text);
}

ct_status ct_corpus_build(const ct_corpus_build_options *options, const char *path, ct_corpus_info *out_info) {
    CT_CHECK(options->source_count >= 1, CT_INVALID, "a corpus needs a source");
    CT_CHECK(options->encoder.encode && options->encoder.vocab_size >= 1, CT_INVALID, "a corpus needs a tokenizer");
    builder b = {.options = options, .writer.fd = -1};
    data_source *sources = ct_calloc((size_t)options->source_count, sizeof *sources);
    ct_status status = build(&b, sources, path);
    const corpus_header h = b.writer.header;
    free_all(&b, sources);
    if (status) return status;
    if (out_info)
        *out_info = (ct_corpus_info){.id_bytes = h.id_bytes, .documents = (int64_t)h.documents, .tokens = (int64_t)h.tokens,
                                     .text_bytes = (int64_t)h.text_bytes, .file_bytes = (int64_t)h.file_bytes,
                                     .fingerprint = h.fingerprint, .vocab_size = (int32_t)h.vocab_size, .bos = h.bos,
                                     .eos = h.eos, .checksum = h.header_sum};
    return CT_OK;
}
