// One shard against what the manifest says of it.
#pragma once
#include "manifest.h"

// Opens folder/<name>; a size other than the manifest's is CT_CORRUPT. Caller closes.
ct_status ct_shard_open(const char *folder, const ct_manifest_file *file, ct_safetensors *out_file);

// The entry that holds a piece, of the type and extents that the manifest says.
ct_status ct_shard_entry(const ct_safetensors *file, const ct_manifest_tensor *tensor, const ct_manifest_piece *piece,
                         const ct_safetensors_entry **out_entry);
