// Offsets for buffers with known lives (dynamic storage allocation): first fit in several orders, the best kept. Lives in a training step
// nest almost like a stack, so that one of the orders comes within a per cent or two of the largest live sum.
#include "plan/plan.h"

#include <stdlib.h>
#include <string.h>

typedef struct {
    const ct_buffer *buffers;
    int order; // which key
} sorting;

typedef struct {
    int index;
    double key, second;
} keyed;

static int compare_keyed(const void *a, const void *b) {
    const keyed *x = a, *y = b;
    if (x->key != y->key) return x->key > y->key ? -1 : 1;
    if (x->second != y->second) return x->second > y->second ? -1 : 1;
    return x->index - y->index;
}

enum { ORDERS = 5 };

static keyed key_of(const ct_buffer *b, int index, int order) {
    double life = (double)(b->last - b->first + 1), size = (double)b->bytes;
    switch (order) {
    case 0: return (keyed){index, life, size};
    case 1: return (keyed){index, size, life};
    case 2: return (keyed){index, size * life, size};
    case 3: return (keyed){index, -(double)b->first, life};
    default: return (keyed){index, (double)b->last, life};
    }
}

// Lowest gap that fits among the placed buffers (sorted by offset) whose lives overlap.
static size_t first_fit(const ct_buffer *buffers, const int *placed, int count, const ct_buffer *b) {
    size_t offset = 0;
    for (int i = 0; i < count; i++) {
        const ct_buffer *p = &buffers[placed[i]];
        if (p->last < b->first || p->first > b->last) continue;
        if (p->offset >= offset + b->bytes) return offset;
        if (p->offset + p->bytes > offset) offset = p->offset + p->bytes;
    }
    return offset;
}

static size_t place_in_order(ct_buffer *buffers, const keyed *order, int count, int *placed) {
    size_t extent = 0;
    for (int i = 0; i < count; i++) {
        ct_buffer *b = &buffers[order[i].index];
        b->offset = first_fit(buffers, placed, i, b);
        if (b->offset + b->bytes > extent) extent = b->offset + b->bytes;
        int low = 0, high = i;
        while (low < high) {
            int middle = (low + high) / 2;
            if (buffers[placed[middle]].offset <= b->offset) low = middle + 1;
            else high = middle;
        }
        memmove(placed + low + 1, placed + low, sizeof(int) * (size_t)(i - low));
        placed[low] = order[i].index;
    }
    return extent;
}

size_t ct_place_buffers(ct_buffer *buffers, int count, size_t live_bytes) {
    if (count == 0) return 0;
    keyed *order = ct_malloc(sizeof(keyed) * (size_t)count);
    int *placed = ct_malloc(sizeof(int) * (size_t)(count + 1));
    size_t *best = ct_malloc(sizeof(size_t) * (size_t)count), best_extent = SIZE_MAX;
    for (int o = 0; o < ORDERS && best_extent > live_bytes + live_bytes / 200; o++) {
        for (int i = 0; i < count; i++) order[i] = key_of(&buffers[i], i, o);
        qsort(order, (size_t)count, sizeof *order, compare_keyed);
        size_t extent = place_in_order(buffers, order, count, placed);
        if (extent >= best_extent) continue;
        best_extent = extent;
        for (int i = 0; i < count; i++) best[i] = buffers[i].offset;
    }
    for (int i = 0; i < count; i++) buffers[i].offset = best[i];
    free(order);
    free(placed);
    free(best);
    return best_extent;
}
