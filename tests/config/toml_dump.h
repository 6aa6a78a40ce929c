// A TOML document as one line of text that another program can make too, and the framing in which cases are kept.
#pragma once
#include "toml.h"

// Appends a value: keys sorted by their bytes; integers {"i":"1"}, floats {"f":"<16 hex digits of the double>"}
// ("nan"), dates
// {"d":"text"}; strings with only '"', '\' and what is below U+0020 escaped, the latter as \u00xx.
void toml_dump(const ct_toml_value *value, ct_string *out);

// One case: "case DOCUMENT_BYTES DUMP_BYTES\n" document "\n" dump "\n"; DUMP_BYTES is -1, and the dump absent, where
// the document is to be refused. Returns the bytes the case takes, 0 at the end, -1 where the framing is wrong.
typedef struct {
    const char *document, *dump; // dump is NULL for a document to be refused
    size_t document_bytes, dump_bytes;
} toml_case;
long toml_case_parse(const char *text, size_t bytes, toml_case *out_case);
