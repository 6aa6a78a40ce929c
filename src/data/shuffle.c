// A Feistel network over the smallest even number of bits that holds count, with Philox as its round function; what falls outside
// [0, count) is sent round again (cycle walking; Black and Rogaway, Ciphers with arbitrary finite domains, 2002).
#include "shuffle.h"
#include "base/philox.h"

enum { ROUNDS = 8 };

permutation permutation_make(uint64_t count, uint64_t seed, shuffle_use use, uint32_t source, uint32_t epoch,
                             uint64_t block) {
    permutation p = {.count = count, .half_bits = 1};
    while (p.half_bits < 32 && count > (uint64_t)1 << (2 * p.half_bits)) p.half_bits++;
    uint32_t counter[4] = {source << 2 | (uint32_t)use, epoch, (uint32_t)block, (uint32_t)(block >> 32)}, out[4];
    uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    ct_philox(counter, key, out);
    p.key[0] = out[0], p.key[1] = out[1];
    return p;
}

static uint64_t once(const permutation *p, uint64_t i) {
    uint32_t mask = (uint32_t)(((uint64_t)1 << p->half_bits) - 1), left = (uint32_t)(i >> p->half_bits), right = (uint32_t)i & mask;
    for (uint32_t round = 0; round < ROUNDS; round++) {
        uint32_t counter[4] = {right, round, 0, 0}, out[4];
        ct_philox(counter, p->key, out);
        uint32_t next = (left ^ out[0]) & mask;
        left = right;
        right = next;
    }
    return (uint64_t)left << p->half_bits | right;
}

uint64_t permutation_at(const permutation *p, uint64_t i) {
    if (p->count <= 1) return i;
    do i = once(p, i);
    while (i >= p->count);
    return i;
}
