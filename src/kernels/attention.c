#include "kernels/kernel.h"

extern const ct_kernel ct_kernels_attention[];
const ct_kernel ct_kernels_attention[] = {{0}};
