// Inside the matrix products: what an instruction set provides (packing and one tile), and the product that
// matmul_block.c cuts into tiles. Words: a product is C[m,n] = sum over k of A[m,k]·B[n,k]; "rows" are A's m or B's
// n, "depth" is k; a unit is what one lane multiplies in one step (one f32, or a pair of bf16 at depths 2u and 2u+1);
// a panel holds, unit after unit, the same unit of `width` neighbouring rows.
#pragma once
#include "kernels/kernel.h"

typedef enum { CT_FINISH_F32, CT_FINISH_BF16, CT_FINISH_ADD_F32 } ct_matmul_finish;

// Memory that will be packed soon: `left` lines, in runs of neighbouring ones.
typedef struct {
    uintptr_t at;
    int64_t jump; // bytes from the end of a run to the next
    int64_t run, index, left;
} ct_matmul_fetch;

// Neighbouring lines, or those of C's rows in a tile.
typedef struct {
    uintptr_t at;
    int64_t left;
} ct_matmul_lines;

// One tile: rows × cols sums over `units` units. Starts from zero or from `from`; ends in `to` (f32, row step: the
// tile's full width), or, where `to` is NULL, in C by `finish`.
typedef struct {
    const void *a, *b; // panels at their first unit
    int64_t units;
    ct_matmul_fetch *fetch; // two lists of what may be fetched meanwhile, the first before the second; a tile takes lines as it likes
    // Until `late` units are left, far_c is fetched into the second-level cache, then near_c and near_sums into the first.
    ct_matmul_lines far_c, near_c, near_sums;
    int64_t late;
    int c_lines; // a row, 1 or 2
    const float *from;
    float *to;
    void *c;
    int64_t c_step; // elements from a row of C to the next
    int rows, cols;
    ct_matmul_finish finish;
} ct_matmul_tile;

// How a block of one operand becomes panels: panel i holds rows i·height to (i+1)·height, or fewer at the end, in
// `width` ≥ height lanes. Further lanes hold anything, a last half pair holds zero. `source` is the block's first
// element; `step` is the distance in elements between rows ("along": depth is contiguous) or between depths
// ("across": rows are).
typedef struct {
    uint32_t *panels;
    int width, height;
    int64_t panel_step; // 32-bit lanes from a panel to the next
    const void *source;
    int64_t step, rows, depth; // depth in elements
    int fetched;               // the source is in the second-level cache already
} ct_matmul_packing;
typedef void ct_matmul_pack(const ct_matmul_packing *packing);

typedef struct {
    int tile_rows, tile_cols; // most rows and columns of a tile; a B panel's width is tile_cols
    int a_width;              // lanes of an A panel, ≥ tile_rows
    int elems_a_unit;         // 1 or 2
    ct_matmul_pack *pack_along, *pack_across;
    void (*tile)(const ct_matmul_tile *tile);
} ct_matmul_isa;

// [dtype == CT_BF16]; the entries of a set of instructions that has no path for a dtype are not in the table of
// kernels.
extern const ct_matmul_isa ct_matmul_generic[2], ct_matmul_avx2[2], ct_matmul_avx512[2], ct_matmul_avx512bf16[2];

// One operand of a product. One of the steps is 1.
typedef struct {
    const void *data;
    int64_t rows, row_step, depth_step;
} ct_matmul_side;

typedef struct {
    const ct_matmul_isa *isa;
    ct_matmul_side a, b;
    int64_t depth;
    ct_dtype dtype; // of A and B
    void *c;        // [a.rows, b.rows] dense
    ct_matmul_finish finish;
    void *scratch;
} ct_matmul_product;

size_t ct_matmul_scratch_bytes(const ct_matmul_product *product, int threads);
void ct_matmul_product_run(const ct_matmul_product *product, ct_team *team);
