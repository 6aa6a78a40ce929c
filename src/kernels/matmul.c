#include "kernels/kernel.h"

extern const ct_kernel ct_kernels_matmul[];
const ct_kernel ct_kernels_matmul[] = {{0}};
