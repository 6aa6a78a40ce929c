#include "kernels/kernel.h"

extern const ct_kernel ct_kernels_vocab[];
const ct_kernel ct_kernels_vocab[] = {{0}};
