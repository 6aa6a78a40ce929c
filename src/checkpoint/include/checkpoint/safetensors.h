// Safetensors files: 8 bytes of header length, a JSON header, the tensors' bytes. Headers are checked in full before anything is
// read: types, extents, byte ranges without overlap or hole, no name twice. Format: huggingface/safetensors, README "Format".
#pragma once
#include "base/memory.h"
#include "checkpoint/tensor.h"

typedef enum {
    CT_ST_F64 = 0, CT_ST_I64, CT_ST_U64, CT_ST_F32, CT_ST_I32, CT_ST_U32, CT_ST_F16, CT_ST_BF16, CT_ST_I16, CT_ST_U16,
    CT_ST_I8, CT_ST_U8, CT_ST_BOOL, CT_ST_F8_E4M3, CT_ST_F8_E5M2, CT_ST_F8_E8M0, CT_ST_F6_E2M3, CT_ST_F6_E3M2, CT_ST_F4,
    CT_ST_TYPES
} ct_stored_type;

const char *ct_stored_type_name(ct_stored_type type);                  // "F32", as in the header
int ct_stored_type_parse(const char *name, ct_stored_type *out_type);  // 1 where the name is known
ct_stored_type ct_stored_type_of(ct_dtype dtype);
int ct_stored_type_bits(ct_stored_type type);

// 16 bytes in hexadecimal: XXH3-128 as xxhsum and Python's xxhash print it.
typedef struct {
    char hex[33];
} ct_checksum;

typedef struct {
    const char *name;
    ct_stored_type type;
    int dims;
    int64_t shape[CT_TENSOR_DIMS];
    size_t begin, end; // bytes, from the start of the data section
} ct_safetensors_entry;

typedef struct {
    char *path;
    int fd;
    size_t data_begin, file_bytes;
    int count;
    ct_safetensors_entry *entries; // by name, ascending
    ct_arena arena;
} ct_safetensors;

// Opens a file and checks its header. Errors: CT_NOT_FOUND, CT_IO, CT_CORRUPT; they name the file. Caller closes.
ct_status ct_safetensors_open(const char *path, ct_safetensors *out_file);
void ct_safetensors_close(ct_safetensors *file);
const ct_safetensors_entry *ct_safetensors_find(const ct_safetensors *file, const char *name); // NULL: not there

// Reads an entry that is the box `piece` (NULL: all) of the target's tensor, as far as the target's box overlaps it, and converts it:
// f64, f32, f16 and bf16 to f64, f32 and bf16 (nearest even), integers to their own type only (CT_UNSUPPORTED else).
// With out_checksum the whole entry is read and hashed; without, only the byte ranges needed. buffer: CT_READ_BUFFER_BYTES.
// advance, where given, is called with the bytes read since its last call.
enum { CT_READ_BUFFER_BYTES = 1 << 20 };
typedef void ct_advance_fn(void *context, size_t bytes);
typedef struct {
    void *buffer;
    ct_advance_fn *advance;
    void *context;
} ct_read_options;
ct_status ct_safetensors_read(const ct_safetensors *file, const ct_safetensors_entry *entry, const ct_box *piece,
                              const ct_named_tensor *target, const ct_read_options *options, ct_checksum *out_checksum);

// The XXH3-128 of an entry's bytes.
ct_status ct_safetensors_checksum(const ct_safetensors *file, const ct_safetensors_entry *entry, const ct_read_options *options,
                                  ct_checksum *out_checksum);

// One tensor of a file to be written. Its bytes come from produce, as elements of `type`.
typedef struct {
    const char *name;
    ct_stored_type type;
    int dims;
    int64_t shape[CT_TENSOR_DIMS];
    ct_checksum checksum; // out: of its bytes
} ct_safetensors_item;

typedef ct_status ct_produce_fn(void *context, int item, const void **out_bytes);

typedef struct {
    const char *path;
    const char *metadata; // JSON object of strings for "__metadata__", or NULL
    ct_produce_fn *produce;
    ct_advance_fn *advance; // may be NULL
    void *context;          // of both
} ct_safetensors_write_options;

// Writes a file, the widest types first and the data 8-byte-aligned, and fsyncs it. On an error the file is removed.
// Gives its size and the XXH3-128 of all its bytes.
ct_status ct_safetensors_write(const ct_safetensors_write_options *options, ct_safetensors_item *items, int count,
                               size_t *out_bytes, ct_checksum *out_checksum);
