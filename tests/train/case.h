// A torchtitan case from the fixtures as a running trainer, with overrides.
#pragma once
#include "train/trainer.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

typedef struct {
    ct_arena arena;
    ct_config *config;
    ct_trainer *trainer;
    char *folder; // fixtures of the case, relative to the source folder
    char *dump;   // a fresh folder below the temporary folder
    int64_t steps, micro, batch, seq_len;
    double *loss, *grad_norm, *lr; // torchtitan's, by step - 1
} titan_case;

// Opens a case: its config.toml, its initial weights, `overrides` ("--section.key", "value", …, NULL) on top. The working folder becomes the
// source folder, as the configs' paths want it. dump: NULL for a fresh one.
void case_open(titan_case *c, const char *name, const char *const *overrides, const char *dump);
void case_close(titan_case *c, int keep_dump);

// Reads a whole tensor of a safetensors file into data; fails the test where it has not `elems` elements.
void load_array(const char *path, const char *name, ct_dtype dtype, void *data, int64_t elems);

// The folder of files that are not in the repository; NULL (after saying so) where it is absent.
const char *test_data(void);

#define assert_ok(status_expression)                                                                                   \
    do {                                                                                                               \
        ct_status assert_ok_ = (status_expression);                                                                    \
        if (assert_ok_) fail_msg("%s", ct_error_text(assert_ok_));                                                     \
    } while (0)
