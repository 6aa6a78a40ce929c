#include "kernels/kernel.h"

extern const ct_kernel ct_kernels_optimizer[];
const ct_kernel ct_kernels_optimizer[] = {{0}};
