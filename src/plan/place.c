// Offsets for buffers with known lives (dynamic storage allocation): first fit in several orders, the best kept. Lives in a training step
// nest almost like a stack, so that one of the orders comes within a per cent or two of the largest live sum; where none does, the buffers
// that stick out are placed earlier and the rest around them, a few times.
#include "plan/plan.h"

#include <stdlib.h>
#include <string.h>

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

typedef struct {
    ct_buffer *buffers;
    int count;
    keyed *order;
    int *placed;
    size_t *best; // offsets of the smallest extent so far
    size_t best_extent;
} placing;

static void try_order(placing *p) {
    size_t extent = place_in_order(p->buffers, p->order, p->count, p->placed);
    if (extent >= p->best_extent) return;
    p->best_extent = extent;
    for (int i = 0; i < p->count; i++) p->best[i] = p->buffers[i].offset;
}

// Moves the buffers that stick out over `target` to the front of the order, both parts keeping theirs. 0: none does.
static int advance_offenders(placing *p, size_t target, keyed *scratch) {
    int front = 0, back = 0;
    for (int i = 0; i < p->count; i++) {
        const ct_buffer *b = &p->buffers[p->order[i].index];
        if (b->offset + b->bytes > target) scratch[front++] = p->order[i];
    }
    if (front == 0) return 0;
    for (int i = 0; i < p->count; i++) {
        const ct_buffer *b = &p->buffers[p->order[i].index];
        if (b->offset + b->bytes <= target) scratch[front + back++] = p->order[i];
    }
    memcpy(p->order, scratch, sizeof(keyed) * (size_t)p->count);
    return 1;
}

size_t ct_place_buffers(ct_buffer *buffers, int count, size_t live_bytes) {
    enum { WORK = 40000000 }; // buffer pairs looked at while refining, about 0.1 s; at least two rounds an order
    if (count == 0) return 0;
    size_t bytes = sizeof(keyed) * (size_t)count, good = live_bytes + live_bytes / 200;
    placing p = {buffers, count, ct_malloc(bytes), ct_malloc(sizeof(int) * (size_t)(count + 1)),
                 ct_malloc(sizeof(size_t) * (size_t)count), SIZE_MAX};
    keyed *scratch = ct_malloc(bytes);
    double pairs = 0;
    for (int o = 0; o < ORDERS && p.best_extent > good; o++) {
        for (int i = 0; i < count; i++) p.order[i] = key_of(&buffers[i], i, o);
        qsort(p.order, (size_t)count, sizeof *p.order, compare_keyed);
        try_order(&p);
        for (int k = 0; p.best_extent > good && (k < 2 || pairs < (o + 1) * (double)WORK / ORDERS); k++) {
            if (!advance_offenders(&p, good, scratch)) break;
            try_order(&p);
            pairs += 0.5 * (double)count * count;
        }
    }
    for (int i = 0; i < count; i++) buffers[i].offset = p.best[i];
    free(p.order);
    free(p.placed);
    free(p.best);
    free(scratch);
    return p.best_extent;
}
