// Philox4x32-10: random numbers by counter, so that element i of stream s is the same on every mesh and in every order.
// Salmon, Moraes, Dror, Shaw: Parallel random numbers: as easy as 1, 2, 3 (SC 2011); equal to Random123's philox4x32 with 10 rounds.
#pragma once
#include <stdint.h>

// The 128 random bits of counter under key. Pure.
void ct_philox(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4]);
