// Names of the kernels' build: every file of this folder is compiled once for each instruction set (CMakeLists.txt
// says with which flags), with CT_ISA = generic, avx2 or avx512, and puts its kernels into a table of that build:
// ct_kernels_<file>_<isa>.
#pragma once
#include "kernels/kernel.h"

#define CT_PASTE_(a, b) a##_##b
#define CT_PASTE(a, b) CT_PASTE_(a, b)
#define CT_TEXT_(a) #a
#define CT_TEXT(a) CT_TEXT_(a)
#define CT_TABLE(name) CT_PASTE(ct_kernels_##name, CT_ISA)
#define ISA CT_TEXT(CT_ISA)
