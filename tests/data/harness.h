// What the tests of data share: the byte tokenizer of make_packing.py, a scratch folder, files, and reading sequences.
#pragma once
#include "base/file.h"
#include "base/memory.h"
#include "data/corpus.h"
#include "data/data.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

ct_data_encoder byte_encoder(void);     // BOS 256, EOS 257
const char *fixture(const char *name);  // path; valid until 16 later calls
void scratch_make(void);                // an empty folder
void scratch_remove(void);
const char *scratch(const char *name);  // path in it; as fixture
void write_text(const char *path, const char *text);
void write_bytes(const char *path, const void *bytes, size_t size);
void write_gzip(const char *path, const char *text, size_t size, int members);
void write_zstd(const char *path, const char *text, size_t size, int frames);

// JSON lines of `count` documents: number i is the text "<i>:" and filler of 0 … most bytes, made of a fixed sequence.
char *numbered_documents(int count, int most);

#define assert_ok(status)                                                                                              \
    do {                                                                                                               \
        ct_status assert_status_ = (status);                                                                           \
        if (assert_status_) fail_msg("%s", ct_error_text(assert_status_));                                            \
    } while (0)

// Fails unless the status is an error of this code whose text holds `part`.
void assert_error(ct_status status, ct_code code, const char *part);

// Reads `count` sequences of seq_len + 1 ids (tokens and the last label), fewer at the end.
int64_t read_ids(ct_data *data, int32_t seq_len, int64_t count, int32_t *ids);
