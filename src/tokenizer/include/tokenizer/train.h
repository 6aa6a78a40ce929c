// Trains a byte-level BPE on text and writes it as a Hugging Face tokenizer.json.
#pragma once
#include "base/status.h"
#include <stddef.h>
#include <stdint.h>

typedef struct {
    int64_t words;     // different words counted so far
    size_t bytes_read; // of text
    int merges;        // made so far
    int merges_wanted;
} ct_train_progress;

typedef struct {
    int vocab_size;      // ids in all: 256 bytes + merges + specials; default 4096, at least 256 + specials
    const char *pattern; // "llama3" (default), "gpt2", "qwen" or a regular expression (as tokenizer.json takes it)
    const char *const *specials; // NULL: <|begin_of_text|>, <|end_of_text|>
    int special_count;
    const char *bos, *eos; // of the specials; NULL: the first and the second
    int64_t min_count;     // pairs seen less often are not merged; default 2
    void (*progress)(void *context, const ct_train_progress *progress); // may be NULL
    void *progress_context;
} ct_train_options;

typedef struct ct_tokenizer_trainer ct_tokenizer_trainer;

// Counts words: create, feed texts (each a document of its own: no word crosses from one to the next), finish. Not
// thread-safe.
ct_status ct_tokenizer_trainer_create(ct_train_options options, ct_tokenizer_trainer **out_trainer);
void ct_tokenizer_trainer_destroy(ct_tokenizer_trainer *trainer);
ct_status ct_tokenizer_trainer_feed(ct_tokenizer_trainer *trainer, const void *text, size_t size);

// Merges the most frequent pair until the vocabulary is full (ties: the pair with the smaller left, then right id)
// and writes tokenizer.json and tokenizer_config.json into a folder, which it makes. out_vocab_size (may be NULL)
// gets the number of ids: fewer than asked for where the text has no more pairs to merge. Errors: CT_INVALID (no
// text), CT_IO.
ct_status ct_tokenizer_trainer_write(ct_tokenizer_trainer *trainer, const char *folder, int *out_vocab_size);

// All of it for files: each file is cut at line ends into documents of at most 1 MB.
ct_status ct_tokenizer_train(const char *const *paths, int path_count, ct_train_options options, const char *folder,
                             int *out_vocab_size);
