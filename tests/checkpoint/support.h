// What the checkpoint tests share: a folder of their own, tensors whose contents follow from a seed, and files to damage.
#pragma once
#include "base/file.h"
#include "base/memory.h"
#include "checkpoint/checkpoint.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#define OK(expression)                                                                                                 \
    do {                                                                                                               \
        ct_status ok_ = (expression);                                                                                  \
        if (ok_) fail_msg("%s", ct_error_text(ok_));                                                                   \
    } while (0)

// Fails with a status of this code whose message has all the words given (NULL-terminated), on one line.
void expect_error(ct_status status, ct_code code, ...) __attribute__((sentinel));

int make_folder(void **state);   // cmocka set-up: *state = path of a new empty folder
int remove_folder(void **state); // tear-down

// A handful of tensors of all dtypes and shapes (a scalar and an empty one among them), 8-byte-aligned, owned by arena.
enum { TENSORS = 7 };
ct_named_tensor *make_tensors(ct_arena *arena, uint64_t seed);
ct_named_tensor *empty_tensors(ct_arena *arena); // same names and shapes, data filled with 0xa5
int same_data(const ct_named_tensor *a, const ct_named_tensor *b, int count);

char *read_all(const char *path, size_t *out_size); // caller frees
void write_all(const char *path, const void *bytes, size_t size);
const char *join(ct_arena *arena, const char *folder, const char *name);
