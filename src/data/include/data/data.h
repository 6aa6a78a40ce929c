// Training data: from files of text to packed sequences of token ids.
//
// The unit is the global sequence number. Sequence n is the same on every mesh: micro-batch g of b sequences holds
// [g·b, (g+1)·b), and a rank asks for the sequences it needs. On one rank the order, token by token, is that of torchtitan
// v0.2.2: each document becomes BOS + text + EOS and is appended to a rolling buffer; while the buffer holds at least
// seq_len + 1 ids, seq_len + 1 of them leave it as one sequence (tokens = the first seq_len, labels = the last seq_len), and
// a new pass over the files goes on with what is left in the buffer.
//
// A background thread reads and encodes ahead of training into a bounded ring. Several threads may read from one loader.
#pragma once
#include "base/status.h"
#include <stddef.h>
#include <stdint.h>

// ---- the tokenizer, as the loader sees it ----

// Growing array of ids. Zero-initialise; free(ids.ids) when done.
typedef struct {
    int32_t *ids;
    int64_t count, capacity;
} ct_data_ids;

// Makes room for `more` ids behind the last and returns the place; the caller writes there and adds to ids->count.
int32_t *ct_data_ids_reserve(ct_data_ids *ids, int64_t more);

typedef struct {
    void *context; // borrowed
    // Appends the ids of text (any bytes, not NUL-terminated), without BOS and EOS. `thread` tells apart calls that may run at
    // the same time: options.encoder_thread for a loader, 0 … threads - 1 for ct_corpus_build. NULL: corpora only.
    ct_status (*encode)(void *context, int thread, const char *text, size_t length, ct_data_ids *ids);
    int32_t bos, eos;     // ids put before and behind each document; -1: none
    int32_t vocab_size;   // ids from files at or above it are an error
    uint64_t fingerprint; // of all that decides ids: vocabulary, merges, patterns. Kept in corpora and saved states
    int may_cut;          // 1 where encoding "…x\n" and "Y…" apart (x a visible character, Y a letter) gives the ids of encoding
                          // them together: true of byte-level BPE with the usual patterns, not of SentencePiece
} ct_data_encoder;

// ---- sources ----

// Documents that are no files, by number: a plugin's data source. Functions give NULL, or what is wrong in words that stay until the next call.
typedef struct {
    const char *name; // outlives the loader
    // What `path` names, in the reader's own terms: how many documents (≥ 1), and a number that is another where they are. Perhaps from several
    // threads at once; what was opened is used by one at a time.
    const char *(*open)(const char *path, void **out_source, int64_t *out_documents, uint64_t *out_fingerprint);
    const char *(*read)(void *source, int64_t document, const char **out_text, size_t *out_bytes); // borrowed until the next read
    void (*close)(void *source);                                                                   // NULL: nothing to close
} ct_data_reader;

typedef struct {
    const char *path;   // a file, a folder (its files in byte order of their names) or a glob pattern (sorted likewise)
    const char *format; // see below; NULL: by the ending of the first file's name
    double weight;      // share of the tokens among the sources; 0: 1
    const char *field;  // jsonl: the member that holds the text; NULL: "text"
    int split_blank_lines;  // text: runs of at least so many blank lines part documents; 0: a file is one document
    const char *split_line; // text: a line that equals this parts documents (and belongs to none); NULL: none
    int recursive;          // folders: their subfolders too
    ct_data_reader reader;  // open NULL: files, else path is the reader's own and format is not read
} ct_data_source;

// Formats. Files whose names end in .gz or .zst are decompressed as they are read.
//   text           plain text
//   jsonl          JSON lines, each an object with a string "text"; blank lines are passed over
//   corpus         built by ct_corpus_build (.ctc), memory-mapped
//   c4_test        jsonl, path NULL: tests/assets/c4_test, as in torchtitan
//   c4_validation  jsonl; in a folder en/c4-validation.*.json.gz or c4-validation.*, else its JSON files
//   c4             the same with c4-train
//
// A mixture is weighted by tokens: the next document comes from the source with the smallest (tokens given so far) / weight,
// the first of equals, so that the shares hold at every moment to within a document. No random number is involved.

typedef struct {
    ct_data_encoder encoder;
    const ct_data_source *sources; // copied
    int source_count;
    int32_t seq_len;
    int once;               // 1: one pass over each source, then the end (validation); 0: passes without end
    int shuffle;            // 1: documents in an order of seed and pass. Off: the files' order, as torchtitan
    uint64_t seed;
    int64_t shuffle_buffer; // documents that are shuffled among themselves where a source has compressed files (the order of
                            // its files is shuffled too); 0: 4096, and at most 64 MiB of text. Else all documents are
    int documents_apart;    // 1: documents and positions say where documents begin (block_causal)
    int mask_boundaries;    // 1: the label of a document's last token is -100. torchtitan: 0, it predicts the next one's BOS
    int32_t ahead;          // sequences kept ready, at least what is read between two releases; 0: 64
    int encoder_thread;     // given to encode; two loaders alive at once need two numbers
} ct_data_options;

typedef struct ct_data ct_data;

// Opens all sources and checks what can be checked at once: files are there and can be read, corpora are whole and of this
// tokenizer, at least one document. Starts no thread yet. Caller destroys.
ct_status ct_data_create(const ct_data_options *options, ct_data **out_data);
void ct_data_destroy(ct_data *data); // NULL is fine

// ---- reading ----

// Starts the thread that reads ahead; else the first read does. Later calls do nothing.
ct_status ct_data_start(ct_data *data);

// Caller's arrays, each [count][seq_len] or NULL where it is not wanted.
typedef struct {
    int32_t *tokens;
    int32_t *labels;    // the next token; -100: not counted in the loss
    int32_t *positions; // 0 … seq_len - 1; with documents_apart from 0 in each document of the sequence
    int32_t *documents; // 0; with documents_apart the number, from 0, of the document in the sequence. A document ends with an
                        // EOS id (torchtitan's rule), where the tokenizer has none it begins with a BOS id
} ct_data_batch;

// Copies sequences [first, first + count) into the batch, waiting for them where they are not ready. first may be any
// sequence not yet released, and first + count at most `ahead` behind the last release. *out_count < count only at the end
// of the data (once). Allocates nothing, once the thread runs. Any thread. Errors: what went wrong in reading and
// encoding, where a sequence is asked for that did not come to be; the same again at every later such call.
ct_status ct_data_read(ct_data *data, int64_t first, int32_t count, ct_data_batch batch, int32_t *out_count);

// Gives back all sequences before `next`: their room is filled anew, and a state saved now goes on at `next`.
// One thread, after all have read. Allocates nothing.
void ct_data_release(ct_data *data, int64_t next);

// For one reader: reads the next `count` sequences and releases them.
ct_status ct_data_next(ct_data *data, int32_t count, ct_data_batch batch, int32_t *out_count);

// First sequence that is not released.
int64_t ct_data_position(const ct_data *data);

// Whole passes behind the released position, of the source furthest on.
int64_t ct_data_epoch(const ct_data *data);

// Seconds that ct_data_read has waited since the loader was made, summed over callers.
double ct_data_waited_s(const ct_data *data);

// ---- state ----

// Writes the released position as JSON: sequence number, pass and place of each source, tokens given (the mixture's state), how
// much of the current document is packed, the fingerprints of files and tokenizer. A few hundred bytes a source. Caller frees.
void ct_data_state_save(const ct_data *data, char **out_json);

// Goes to a saved position: the same options and files give the same sequences from there on, bit for bit. Any earlier reading
// is forgotten. CT_INVALID where the state is of other files, another tokenizer, seq_len, seed or order of sources;
// CT_CORRUPT where it is no state. The loader is then as before, or unusable where the files changed while it read.
ct_status ct_data_state_restore(ct_data *data, const char *json, size_t length);
