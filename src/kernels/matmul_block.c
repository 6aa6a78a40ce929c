// Cuts a product into tiles after Goto and van de Geijn (Anatomy of high-performance matrix multiplication, 2008): C
// is dealt out to the threads as a grid of regions; each thread packs its own blocks of B and A into its part of the
// scratch and runs tiles on them. Depth is one ascending sweep for every element: where it is cut into blocks, the
// f32 sums wait in scratch between two blocks, which changes no bit. Left out on purpose: split depth, shared
// packing, stealing (no waiting between threads inside a product).
#include "matmul.h"

enum {
    MAX_UNITS = 1024,    // depth of a block: an A panel is 64 KiB, a B panel 128 KiB; sums that wait cost more than
                         // longer panels
    MAX_ROWS = 126,      // rows of an A block: half of a 1 MiB L2
    MAX_COLS = 1024,     // columns of a B block: 4 MiB
    MAX_SUM_ROWS = 1024, // rows whose sums wait in scratch at a time
    FEW_ROWS = 64,       // up to here B is not reused enough to keep more of it than a cache holds
    FEW_ROWS_COLS = 64,
    KEEP_BYTES = 1 << 20, // A stays packed for all of B's blocks where it is no larger
    PACK_COLS = 64,       // columns of B packed at a time, right before their first tiles
    FETCH_COLS = 512,     // the next rows of A are fetched while the last so many columns run
    LINE = 64,
};

// How a product is cut. Block counts are per region, whose largest extents are rows × cols.
typedef struct {
    int threads_m, threads_n;
    int64_t rows, cols;
    int64_t depth_blocks, block_units;
    int64_t block_rows, block_cols, sum_rows;
    int keep_a;
    size_t a_bytes, b_bytes, sum_bytes; // of one thread
} layout;

static int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
static int64_t min64(int64_t a, int64_t b) { return a < b ? a : b; }
static size_t whole_lines(size_t bytes) { return (bytes + LINE - 1) / LINE * LINE; }

// The largest part when `count` is cut into the fewest even parts of at most `most`, in whole grains.
static int64_t even_part(int64_t count, int64_t most, int64_t grain) {
    int64_t parts = ceil_div(count, most);
    return parts ? ceil_div(ceil_div(count, grain), parts) * grain : grain;
}

// The grid with the least work for the busiest thread, packing counted as 8 tile columns' worth a row and column.
static void choose_grid(const ct_matmul_product *p, int threads, layout *l) {
    const ct_matmul_isa *isa = p->isa;
    int64_t best = INT64_MAX;
    for (int threads_m = 1; threads_m <= threads; threads_m++) {
        if (threads % threads_m) continue;
        int threads_n = threads / threads_m;
        int64_t rows = ceil_div(p->a.rows, threads_m);
        int64_t cols = ceil_div(ceil_div(p->b.rows, isa->tile_cols), threads_n) * isa->tile_cols;
        int64_t cost = rows * cols + 8 * (rows + cols);
        if (cost >= best) continue;
        best = cost;
        l->threads_m = threads_m, l->threads_n = threads_n;
        l->rows = rows, l->cols = cols;
    }
}

static layout lay_out(const ct_matmul_product *p, int threads) {
    const ct_matmul_isa *isa = p->isa;
    layout l = {0};
    choose_grid(p, threads, &l);
    int64_t units = ceil_div(p->depth, isa->elems_a_unit);
    l.depth_blocks = units > MAX_UNITS ? ceil_div(units, MAX_UNITS) : 1;
    l.block_units = ceil_div(units, l.depth_blocks);
    l.block_rows = even_part(l.rows, MAX_ROWS, isa->tile_rows);
    l.block_cols = even_part(l.cols, l.rows > FEW_ROWS ? MAX_COLS : FEW_ROWS_COLS, isa->tile_cols);
    l.sum_rows = l.depth_blocks > 1 ? even_part(l.rows, MAX_SUM_ROWS, l.block_rows) : l.rows;
    size_t panel_units = (size_t)l.block_units * sizeof(uint32_t);
    size_t a_block = (size_t)ceil_div(l.block_rows, isa->tile_rows) * (size_t)isa->a_width * panel_units;
    size_t a_all = a_block * (size_t)l.depth_blocks;
    l.keep_a = l.rows <= l.block_rows && a_all <= KEEP_BYTES;
    l.a_bytes = whole_lines(l.keep_a ? a_all : a_block);
    l.b_bytes = whole_lines((size_t)l.block_cols * panel_units);
    if (l.depth_blocks > 1)
        l.sum_bytes =
            whole_lines((size_t)ceil_div(l.sum_rows, l.block_rows) * (size_t)ceil_div(l.block_rows, isa->tile_rows) *
                        (size_t)isa->tile_rows * (size_t)l.block_cols * sizeof(float));
    return l;
}

size_t ct_matmul_scratch_bytes(const ct_matmul_product *product, int threads) {
    layout l = lay_out(product, threads);
    return (l.a_bytes + l.b_bytes + l.sum_bytes) * (size_t)threads;
}

typedef struct {
    int64_t begin, end;
} range;

static range part_of(int64_t begin, int64_t end, int64_t part, int64_t index) {
    int64_t from = begin + part * index;
    return (range){min64(from, end), min64(from + part, end)};
}

// One thread's work.
typedef struct {
    const ct_matmul_product *p;
    const layout *l;
    char *a, *b;
    float *sums;
    int64_t cols_end; // of its region
} worker;

// The height of a block's tiles: evenly cut, so that none is a sliver.
static int tile_height(const ct_matmul_isa *isa, range rows) {
    int64_t count = rows.end - rows.begin;
    return (int)ceil_div(count, ceil_div(count, isa->tile_rows));
}

static const char *element(const ct_matmul_product *p, const ct_matmul_side *side, int64_t row, int64_t depth) {
    return (const char *)side->data +
           (row * side->row_step + depth * side->depth_step) * (int64_t)ct_dtype_bytes(p->dtype);
}

// Packs rows × depths of a side into panels of `height` rows.
static void pack_block(const ct_matmul_product *p, const ct_matmul_side *side, char *to, range rows, range depths,
                       int height, int width) {
    int across = side->row_step == 1 && side->depth_step != 1;
    ct_matmul_packing packing = {
        .panels = (uint32_t *)to,
        .width = width,
        .height = height,
        .panel_step = ceil_div(depths.end - depths.begin, p->isa->elems_a_unit) * width,
        .source = element(p, side, rows.begin, depths.begin),
        .step = across ? side->depth_step : side->row_step,
        .rows = rows.end - rows.begin,
        .depth = depths.end - depths.begin,
    };
    (across ? p->isa->pack_across : p->isa->pack_along)(&packing);
}

// The lines of rows × depths of a side, in the order in which packing reads them.
static ct_matmul_fetch lines_of(const ct_matmul_product *p, const ct_matmul_side *side, range rows, range depths) {
    int64_t elem = (int64_t)ct_dtype_bytes(p->dtype), count = rows.end - rows.begin,
            depth = depths.end - depths.begin;
    if (count <= 0) return (ct_matmul_fetch){0};
    int across = side->row_step == 1 && side->depth_step != 1;
    uintptr_t at = (uintptr_t)element(p, side, rows.begin, depths.begin), line = at / LINE * LINE;
    int64_t run = ceil_div((int64_t)(at - line) + (across ? count : depth) * elem, LINE);
    int64_t step = (across ? side->depth_step : side->row_step) * elem;
    return (ct_matmul_fetch){
        .at = line, .jump = step - run * LINE, .run = run, .left = run * (across ? depth : count)};
}

// Where a block stands: rows × cols × depths of C's sums.
typedef struct {
    range rows, cols, depths;
    int64_t units;
    int height; // of its tiles
    int first, last;
} block;

// One column of tiles: a packed block of A with one panel of B. `sums` holds the tiles' sums.
static void run_panel(const worker *w, const block *k, const char *a, const char *b, int64_t n, float *sums,
                      ct_matmul_fetch *fetch) {
    const ct_matmul_product *p = w->p;
    const ct_matmul_isa *isa = p->isa;
    int64_t c_bytes = p->finish == CT_FINISH_BF16 ? 2 : 4;
    ct_matmul_tile t = {.a = a, .b = b, .units = k->units, .fetch = fetch, .c_step = p->b.rows, .finish = p->finish};
    t.cols = (int)min64(isa->tile_cols, k->cols.end - n);
    for (int64_t m = k->rows.begin; m < k->rows.end; m += k->height) {
        t.rows = (int)min64(k->height, k->rows.end - m);
        t.from = k->first ? NULL : sums;
        t.to = k->last ? NULL : sums;
        t.c = (char *)p->c + (m * p->b.rows + n) * c_bytes;
        isa->tile(&t);
        t.a = (const char *)t.a + k->units * isa->a_width * (int64_t)sizeof(uint32_t);
        sums = sums ? sums + isa->tile_rows * isa->tile_cols : NULL;
    }
}

// All tiles of a packed block of A. With the first rows the columns are packed on the way: while a few of them run,
// the next ones' source is fetched, and towards the end that of the next rows.
static void run_tiles(const worker *w, const block *k, const char *a, float *sums, int pack_b, range next_rows) {
    const ct_matmul_product *p = w->p;
    const ct_matmul_isa *isa = p->isa;
    int64_t panel_bytes = k->units * isa->tile_cols * (int64_t)sizeof(uint32_t);
    int64_t tiles = ceil_div(k->rows.end - k->rows.begin, k->height);
    ct_matmul_fetch next_a = lines_of(p, &p->a, next_rows, k->depths), next_b = {0};
    for (int64_t n = k->cols.begin; n < k->cols.end; n += isa->tile_cols) {
        int64_t at = n - k->cols.begin;
        char *b = w->b + at / isa->tile_cols * panel_bytes;
        if (pack_b && at % PACK_COLS == 0) {
            int64_t end = min64(n + PACK_COLS, k->cols.end);
            pack_block(p, &p->b, b, (range){n, end}, k->depths, isa->tile_cols, isa->tile_cols);
            next_b = lines_of(p, &p->b, (range){end, min64(end + PACK_COLS, w->cols_end)}, k->depths);
        }
        ct_matmul_fetch *fetch = next_b.left <= 0 && n + FETCH_COLS >= k->cols.end ? &next_a : &next_b;
        run_panel(w, k, a, b, n, sums, fetch);
        if (sums) sums += tiles * isa->tile_rows * isa->tile_cols;
    }
}

// One block of depth of rows × cols, block of rows after block of rows. `pack_a` is 0 where A is kept and packed
// already.
static void run_depth_block(const worker *w, range rows, range cols, int64_t index, int pack_a) {
    const ct_matmul_product *p = w->p;
    const ct_matmul_isa *isa = p->isa;
    const layout *l = w->l;
    block k = {.cols = cols, .first = index == 0, .last = index == l->depth_blocks - 1};
    k.depths = part_of(0, p->depth, l->block_units * isa->elems_a_unit, index);
    k.units = ceil_div(k.depths.end - k.depths.begin, isa->elems_a_unit);
    int64_t panels_b = ceil_div(cols.end - cols.begin, isa->tile_cols);
    float *sums = w->sums;
    for (int64_t i = 0; i * l->block_rows < rows.end - rows.begin; i++) {
        k.rows = part_of(rows.begin, rows.end, l->block_rows, i);
        k.height = tile_height(isa, k.rows);
        char *a = w->a;
        if (l->keep_a) a += index * ceil_div(l->block_rows, isa->tile_rows) * isa->a_width * l->block_units * 4;
        if (pack_a) pack_block(p, &p->a, a, k.rows, k.depths, k.height, isa->a_width);
        run_tiles(w, &k, a, sums, i == 0, part_of(rows.begin, rows.end, l->block_rows, i + 1));
        if (sums) sums += ceil_div(k.rows.end - k.rows.begin, k.height) * panels_b * isa->tile_rows * isa->tile_cols;
    }
}

typedef struct {
    const ct_matmul_product *product;
    layout layout;
} job;

static void run_region(void *context, int thread, int threads) {
    const job *j = context;
    const ct_matmul_product *p = j->product;
    const layout *l = &j->layout;
    (void)threads;
    range m = part_of(0, p->a.rows, l->rows, thread % l->threads_m),
          n = part_of(0, p->b.rows, l->cols, thread / l->threads_m);
    char *mine = (char *)p->scratch + (l->a_bytes + l->b_bytes + l->sum_bytes) * (size_t)thread;
    worker w = {.p = p, .l = l, .a = mine, .b = mine + l->a_bytes, .cols_end = n.end};
    if (l->depth_blocks > 1) w.sums = (float *)(mine + l->a_bytes + l->b_bytes);
    if (m.begin >= m.end) return;
    for (int64_t jc = n.begin; jc < n.end; jc += l->block_cols)
        for (int64_t ms = m.begin; ms < m.end; ms += l->sum_rows)
            for (int64_t index = 0; index < l->depth_blocks; index++)
                run_depth_block(&w, (range){ms, min64(ms + l->sum_rows, m.end)},
                                (range){jc, min64(jc + l->block_cols, n.end)}, index, !l->keep_a || jc == n.begin);
}

void ct_matmul_product_run(const ct_matmul_product *product, ct_team *team) {
    job j = {product, lay_out(product, ct_team_size(team))};
    ct_team_run(team, run_region, &j);
}
