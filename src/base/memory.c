// Arenas, checked allocation and growing strings. No free lists and no reference counts: a phase frees its arena.
#include "base/memory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static _Noreturn void out_of_memory(size_t bytes) {
    fprintf(stderr, "ctitan: out of memory: the system has no %zu bytes left for this process\n", bytes);
    _Exit(1);
}

void *ct_malloc(size_t bytes) {
    void *p = malloc(bytes ? bytes : 1);
    if (!p) out_of_memory(bytes);
    return p;
}

void *ct_calloc(size_t count, size_t bytes) {
    void *p = calloc(count ? count : 1, bytes ? bytes : 1);
    if (!p) out_of_memory(count * bytes);
    return p;
}

void *ct_realloc(void *pointer, size_t bytes) {
    void *p = realloc(pointer, bytes ? bytes : 1);
    if (!p) out_of_memory(bytes);
    return p;
}

char *ct_strdup(const char *text) {
    size_t n = strlen(text) + 1;
    return memcpy(ct_malloc(n), text, n);
}

static char *format_with(char *(*place)(void *, size_t), void *context, const char *format, va_list args) {
    va_list copy;
    va_copy(copy, args);
    int n = vsnprintf(NULL, 0, format, copy);
    va_end(copy);
    char *text = place(context, (size_t)n + 1);
    vsnprintf(text, (size_t)n + 1, format, args);
    return text;
}

static char *place_heap(void *context, size_t bytes) {
    (void)context;
    return ct_malloc(bytes);
}
static char *place_arena(void *context, size_t bytes) { return ct_arena_alloc(context, bytes); }

char *ct_format(const char *format, ...) {
    va_list args;
    va_start(args, format);
    char *text = format_with(place_heap, NULL, format, args);
    va_end(args);
    return text;
}

// ---- arena ----
struct ct_arena_block {
    ct_arena_block *next;
    size_t used, size;
    _Alignas(16) unsigned char bytes[];
};

void *ct_arena_alloc(ct_arena *arena, size_t bytes) {
    bytes = (bytes + 15) & ~(size_t)15;
    ct_arena_block *block = arena->blocks;
    if (!block || block->size - block->used < bytes) {
        size_t size = block ? 2 * block->size : 4096;
        if (size > (1u << 20)) size = 1u << 20;
        if (size < bytes) size = bytes;
        block = ct_calloc(1, sizeof *block + size);
        block->size = size;
        block->next = arena->blocks;
        arena->blocks = block;
    }
    void *p = block->bytes + block->used;
    block->used += bytes;
    return p;
}

char *ct_arena_strndup(ct_arena *arena, const char *text, size_t length) {
    char *copy = ct_arena_alloc(arena, length + 1);
    memcpy(copy, text, length);
    copy[length] = 0;
    return copy;
}

char *ct_arena_strdup(ct_arena *arena, const char *text) { return ct_arena_strndup(arena, text, strlen(text)); }

char *ct_arena_format(ct_arena *arena, const char *format, ...) {
    va_list args;
    va_start(args, format);
    char *text = format_with(place_arena, arena, format, args);
    va_end(args);
    return text;
}

void ct_arena_deinit(ct_arena *arena) {
    for (ct_arena_block *block = arena->blocks, *next; block; block = next) {
        next = block->next;
        free(block);
    }
    arena->blocks = NULL;
}

// ---- strings ----
static void reserve(ct_string *string, size_t more) {
    if (string->length + more + 1 <= string->capacity) return;
    string->capacity = 2 * (string->length + more + 1);
    string->text = ct_realloc(string->text, string->capacity);
}

void ct_string_add_bytes(ct_string *string, const void *bytes, size_t length) {
    reserve(string, length);
    memcpy(string->text + string->length, bytes, length);
    string->length += length;
    string->text[string->length] = 0;
}

void ct_string_add(ct_string *string, const char *format, ...) {
    va_list args;
    va_start(args, format);
    va_list copy;
    va_copy(copy, args);
    int n = vsnprintf(NULL, 0, format, copy);
    va_end(copy);
    reserve(string, (size_t)n);
    vsnprintf(string->text + string->length, (size_t)n + 1, format, args);
    va_end(args);
    string->length += (size_t)n;
}

void ct_string_add_json(ct_string *string, const char *text) {
    ct_string_add_bytes(string, "\"", 1);
    for (const unsigned char *p = (const unsigned char *)text; *p; p++) {
        if (*p == '"' || *p == '\\') ct_string_add(string, "\\%c", *p);
        else if (*p == '\n') ct_string_add_bytes(string, "\\n", 2);
        else if (*p == '\t') ct_string_add_bytes(string, "\\t", 2);
        else if (*p < 0x20) ct_string_add(string, "\\u%04x", *p);
        else ct_string_add_bytes(string, p, 1);
    }
    ct_string_add_bytes(string, "\"", 1);
}

void ct_string_deinit(ct_string *string) {
    free(string->text);
    *string = (ct_string){0};
}
