// Tokenizers as published language models use them: text to ids and back, exactly as the reference implementations do
// it.
//
// Formats: Hugging Face's tokenizer.json (BPE of every kind, Unigram); GPT-2's pair of files (vocab.bpe or merges.txt
// beside encoder.json or vocab.json); tiktoken's rank files; SentencePiece's .model (BPE and unigram); llama2.c's
// tokenizer.bin.
//
// A tokenizer is immutable once open and may be shared by any number of threads; what encoding needs beside it
// (scratch space, a bounded cache of words) lies in a context, one a thread. Text is any bytes: what is no UTF-8 is
// encoded as if it had been decoded with replacement characters (one U+FFFD for each maximal part of an ill-formed
// sequence).
#pragma once
#include "base/status.h"
#include <stddef.h>
#include <stdint.h>

typedef struct ct_tokenizer ct_tokenizer;
typedef struct ct_tokenizer_context ct_tokenizer_context;

typedef struct {
    // tiktoken files: the pre-tokenisation pattern, as a name ("gpt2", "r50k_base", "p50k_base", "cl100k_base",
    // "o200k_base", "llama3") or as a regular expression. NULL: known by the file's name.
    const char *pattern;
    // 1: tokenizer_config.json beside the tokenizer is not read (no BOS and EOS ids from it).
    int ignore_config;
} ct_tokenizer_options;

// Opens a tokenizer file, or a folder that holds one (looked for in this order: tokenizer.json, vocab.json +
// merges.txt, encoder.json + vocab.bpe, tokenizer.model, spiece.model, *.tiktoken). A tokenizer_config.json beside it
// names BOS and EOS and may add tokens, as in torchtitan. Caller closes. Errors: CT_NOT_FOUND, CT_CORRUPT (not what
// its name says), CT_UNSUPPORTED (names the part that is not built), CT_INVALID.
ct_status ct_tokenizer_open(const char *path, ct_tokenizer_options options, ct_tokenizer **out_tokenizer);
void ct_tokenizer_close(ct_tokenizer *tokenizer); // NULL is fine

typedef struct {
    const char *kind; // "byte-level BPE", "BPE", "unigram", "tiktoken", "sentencepiece BPE", "sentencepiece unigram",
                      // "llama2.c"
    const char *path; // the file that was read
    int vocab_size;   // largest id + 1, added tokens included: what a model's vocabulary must at least be
    int tokens;       // ids that have a token
    int merges;       // pairs that merge (0 for unigram)
    int added;        // added tokens, special ones included
    int specials;     // special tokens
    int bos_id, eos_id;                // -1: none
    const char *bos_token, *eos_token; // NULL: none
    int default_bos, default_eos; // what tokenizer_config.json's add_bos_token and add_eos_token say (0 where silent)
    int template_bos, template_eos; // the tokenizer's own template already puts BOS and EOS around a text
    const char *splitter; // how text is cut into words: a fast scanner's name, or "regex", "general", "none"
} ct_tokenizer_info;

// Facts about a tokenizer. Borrows; valid while it is open.
const ct_tokenizer_info *ct_tokenizer_describe(const ct_tokenizer *tokenizer);

// Id → token text as the file has it (byte-level alphabet and all), NULL where the id has none. Borrows;
// NUL-terminated at *out_length (out_length may be NULL; a token may itself hold NULs).
const char *ct_tokenizer_token(const ct_tokenizer *tokenizer, int id, size_t *out_length);
// Token text → id, added tokens first; -1 where there is none.
int ct_tokenizer_id(const ct_tokenizer *tokenizer, const char *token, size_t length);
// 1 where the id is a special token (left out of decoded text on request).
int ct_tokenizer_is_special(const ct_tokenizer *tokenizer, int id);

// ---- encoding ------------------------------------------------------------------------------------

// One thread's scratch space for one tokenizer, about 6 MB once used. Caller destroys, before the tokenizer is
// closed.
ct_tokenizer_context *ct_tokenizer_context_create(const ct_tokenizer *tokenizer);
void ct_tokenizer_context_destroy(ct_tokenizer_context *context);

// A growing list of ids. Zero-initialise.
typedef struct {
    int32_t *ids;
    size_t count, capacity;
} ct_ids;
void ct_ids_add(ct_ids *list, int32_t id);
void ct_ids_deinit(ct_ids *list);

// Zero gives what `Tokenizer.encode(text).ids` of Hugging Face gives, and with add_bos and add_eos what torchtitan
// 0.2.2's HuggingFaceTokenizer gives: BOS and EOS are added once, by the template or by us.
typedef struct {
    int add_bos,
        add_eos; // 1: put BOS in front, EOS behind, where the tokenizer has them and its template does not add them
    int no_template;    // 1: leave out what the tokenizer's own template would add (Llama 2 adds <s>)
    int plain_specials; // 1: special tokens spelled out in the text are text like any other
} ct_encode_options;

// Appends the ids of a text to out_ids (which keeps what it held). Errors: a regular expression that the pattern
// engine gave up on (CT_UNSUPPORTED), more than 2 GB of text (CT_INVALID). Allocates only where scratch space must
// grow.
ct_status ct_tokenizer_encode(ct_tokenizer_context *context, const void *text, size_t size, ct_encode_options options,
                              ct_ids *out_ids);

// ---- decoding ------------------------------------------------------------------------------------

// Turns ids into bytes, piece by piece as they are generated. Zero-initialise but for the tokenizer; needs no deinit.
typedef struct {
    const ct_tokenizer *tokenizer;
    int skip_special;      // 1: special tokens give nothing
    int started;           // (state) a token was decoded
    int stripped;          // (state) leading characters that the whole text has lost; -1: it has begun
    int owed;              // (state) a space that comes with the next token, if there is one
    int pending;           // (state) bytes held back
    unsigned char held[4]; // (state) the beginning of a UTF-8 character
} ct_decode_stream;

// Takes the next bytes of the text.
typedef void ct_decode_sink(void *context, const void *bytes, size_t size);

// Decodes one id. Bytes that begin a UTF-8 character whose rest has not come yet are held back. An id without a token
// gives nothing. sink may be called any number of times.
void ct_decode_stream_push(ct_decode_stream *stream, int id, ct_decode_sink *sink, void *context);
// Gives what is held back. The stream may then start anew.
void ct_decode_stream_finish(ct_decode_stream *stream, ct_decode_sink *sink, void *context);

// Decodes a list of ids at once into a heap buffer, NUL-terminated; caller frees. The bytes are exact: byte tokens
// that form no UTF-8 come out as they are.
void ct_tokenizer_decode(const ct_tokenizer *tokenizer, const int32_t *ids, size_t count, int skip_special,
                         char **out_text, size_t *out_size);
