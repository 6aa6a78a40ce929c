// Small host-side memory: arenas owned by a phase, checked allocation, and growing strings.
//
// Small allocations do not fail in the callers' eyes: where the system has none left, the process ends with one message
// and status 1 (a checkpoint being written is not committed then, so nothing is lost). What is large (a rank's spaces, tensors
// read from a file) is reserved through functions that return a status.
#pragma once
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

void *ct_malloc(size_t bytes);               // never NULL
void *ct_calloc(size_t count, size_t bytes); // never NULL, zeroed
void *ct_realloc(void *pointer, size_t bytes);
char *ct_strdup(const char *text);
char *ct_format(const char *format, ...) __attribute__((format(printf, 1, 2))); // caller frees

// An arena: many allocations, one owner, freed at once. Zero-initialise; memory comes zeroed and 16-byte aligned.
typedef struct ct_arena_block ct_arena_block;
typedef struct {
    ct_arena_block *blocks;
} ct_arena;
void *ct_arena_alloc(ct_arena *arena, size_t bytes);
char *ct_arena_strdup(ct_arena *arena, const char *text);
char *ct_arena_strndup(ct_arena *arena, const char *text, size_t length);
char *ct_arena_format(ct_arena *arena, const char *format, ...) __attribute__((format(printf, 2, 3)));
void ct_arena_deinit(ct_arena *arena);
#define CT_ARENA_NEW(arena, type) ((type *)ct_arena_alloc((arena), sizeof(type)))
#define CT_ARENA_ARRAY(arena, type, count) ((type *)ct_arena_alloc((arena), sizeof(type) * (size_t)(count)))

// A growing string, always NUL-terminated once something was added. Zero-initialise.
typedef struct {
    char *text;
    size_t length, capacity;
} ct_string;
void ct_string_add(ct_string *string, const char *format, ...) __attribute__((format(printf, 2, 3)));
void ct_string_add_bytes(ct_string *string, const void *bytes, size_t length);
void ct_string_add_json(ct_string *string, const char *text); // quoted and escaped
void ct_string_deinit(ct_string *string);

// Makes room for one more element in a growing array: items (pointer variable), count, capacity (variables).
#define CT_GROW(items, count, capacity)                                                                                \
    do {                                                                                                               \
        if ((count) >= (capacity)) {                                                                                   \
            (capacity) = (capacity) ? 2 * (capacity) : 16;                                                             \
            (items) = ct_realloc((items), sizeof(*(items)) * (size_t)(capacity));                                      \
        }                                                                                                              \
    } while (0)
