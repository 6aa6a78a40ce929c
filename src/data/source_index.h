// What is known of a source's files before they are read.
#pragma once
#include "source.h"

// A number that changes with the files: names without folders, sizes, and their bytes (all of them up to 256 MiB in the
// source, else 16 evenly spread pieces of 64 KiB a file); of corpora their header's checksum. It also holds what decides how files
// are cut into documents.
ct_status source_fingerprint(data_source *source, uint64_t *out_fingerprint);

// Fills source->places and source->documents: where each document begins.
ct_status source_index(data_source *source);
