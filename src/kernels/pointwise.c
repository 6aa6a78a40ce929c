#include "kernels/kernel.h"

extern const ct_kernel ct_kernels_pointwise[];
const ct_kernel ct_kernels_pointwise[] = {{0}};
