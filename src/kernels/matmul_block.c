// Cuts a product into tiles after Goto and van de Geijn (Anatomy of high-performance matrix multiplication, 2008): C
// is dealt out to the threads as a grid of regions; each thread packs its own blocks of B and A into its part of the
// scratch and runs tiles on them. Depth is one ascending sweep for every element: where it is cut into blocks, the
// f32 sums wait in scratch between two blocks, which changes no bit. Left out on purpose: split depth, shared
// packing, stealing (no waiting between threads inside a product).
#include "matmul.h"

enum {
    MAX_UNITS = 1024,    // depth of a block: an A panel is 64 KiB, a B panel 128 KiB; sums that wait cost more than
                         // longer panels
    MAX_UNITS_ACROSS = 512, // the same where A's depths lie apart
    A_BYTES = 352 << 10,  // of an A block: two of them and a panel or two of B stay in a 1 MiB L2
    MAX_ROWS = 154,       // of an A block
    MAX_COLS = 1024,     // columns of a B block: 4 MiB
    MAX_SUM_ROWS = 1024, // rows whose sums wait in scratch at a time
    FEW_ROWS = 64,       // up to here B is not reused enough to keep more of it than a cache holds
    FEW_ROWS_COLS = 64,
    KEEP_BYTES = 1 << 20, // A stays packed for all of B's blocks where it is no larger
    SLICE_DEPTHS = 8,     // depths in an A block's parts: whole lines
    PACK_COLS = 64,       // columns of B packed at a time, right before their first tiles
    SHORT_UNITS = 160,    // a tile of so few leaves the next one's part of C in the first cache
    FETCH_UNITS = 4,      // a tile fetches a line of C every so many units
    FETCH_PANELS = 16,    // the next rows of A are fetched while the last so many columns of tiles run
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

static int is_across(const ct_matmul_side *side) { return side->row_step == 1 && side->depth_step != 1; }

static layout lay_out(const ct_matmul_product *p, int threads) {
    const ct_matmul_isa *isa = p->isa;
    layout l = {0};
    choose_grid(p, threads, &l);
    int64_t units = ceil_div(p->depth, isa->elems_a_unit);
    const int64_t most = is_across(&p->a) ? MAX_UNITS_ACROSS : MAX_UNITS;
    l.depth_blocks = units > most ? ceil_div(units, most) : 1;
    l.block_units = ceil_div(units, l.depth_blocks);
    int64_t panels = A_BYTES / (4 * isa->a_width * (l.block_units ? l.block_units : 1)); // at least 5, see MAX_UNITS
    l.block_rows = even_part(l.rows, min64(panels * isa->tile_rows, MAX_ROWS), isa->tile_rows);
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

static size_t thread_bytes(const layout *l) { return (l->keep_a ? 1 : 2) * l->a_bytes + l->b_bytes + l->sum_bytes; }

size_t ct_matmul_scratch_bytes(const ct_matmul_product *product, int threads) {
    layout l = lay_out(product, threads);
    return thread_bytes(&l) * (size_t)threads;
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
    range m, n; // its region of C
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

// Packs rows × depths of a side into panels of `height` rows, the first at `to`, `panel_step` lanes from one to the next.
static void pack_part(const ct_matmul_product *p, const ct_matmul_side *side, char *to, range rows, range depths, int height, int width,
                      int64_t panel_step, int fetched) {
    int across = is_across(side);
    ct_matmul_packing packing = {
        .panels = (uint32_t *)to,
        .width = width,
        .height = height,
        .panel_step = panel_step,
        .source = element(p, side, rows.begin, depths.begin),
        .step = across ? side->depth_step : side->row_step,
        .rows = rows.end - rows.begin,
        .depth = depths.end - depths.begin,
        .fetched = fetched,
    };
    if (packing.rows > 0 && packing.depth > 0) (across ? p->isa->pack_across : p->isa->pack_along)(&packing);
}

// The lines of rows × depths of a side, in the order in which packing reads them.
static ct_matmul_fetch lines_of(const ct_matmul_product *p, const ct_matmul_side *side, range rows, range depths) {
    int64_t elem = (int64_t)ct_dtype_bytes(p->dtype), count = rows.end - rows.begin,
            depth = depths.end - depths.begin;
    if (count <= 0 || depth <= 0) return (ct_matmul_fetch){0};
    int across = is_across(side);
    uintptr_t at = (uintptr_t)element(p, side, rows.begin, depths.begin), line = at / LINE * LINE;
    int64_t run = ceil_div((int64_t)(at - line) + (across ? count : depth) * elem, LINE);
    int64_t step = (across ? side->depth_step : side->row_step) * elem;
    return (ct_matmul_fetch){
        .at = line, .jump = step - run * LINE, .run = run, .left = run * (across ? depth : count)};
}

// Where a block stands: rows × cols × depths of C's sums, its packed A, and the sums that wait.
typedef struct {
    range rows, cols, depths;
    int64_t units;
    int height; // of its tiles
    int first, last;
    int pack_a, pack_b; // 0: packed already
    char *a;
    float *sums;
} block;

// Slice `index` of `parts` of a block's A: a few depths of all its panels where depths lie apart, else everything in the last slice.
typedef struct {
    range rows, depths;
    int64_t lane; // of its first panel's begin
} slice;
static slice slice_of_a(const ct_matmul_product *p, const block *k, int64_t index, int64_t parts) {
    slice cut = {k->rows, k->depths, 0};
    if (!k->pack_a) return cut.rows.end = cut.rows.begin, cut;
    if (!is_across(&p->a)) {
        if (index + 1 < parts) cut.rows.end = cut.rows.begin;
        return cut;
    }
    int64_t depth = k->depths.end - k->depths.begin, begin = depth * index / parts / SLICE_DEPTHS * SLICE_DEPTHS;
    if (index + 1 < parts) cut.depths.end = k->depths.begin + depth * (index + 1) / parts / SLICE_DEPTHS * SLICE_DEPTHS;
    cut.depths.begin += begin;
    cut.lane = begin / p->isa->elems_a_unit * p->isa->a_width;
    return cut;
}
static void pack_a(const ct_matmul_product *p, const block *k, slice cut, int fetched) {
    pack_part(p, &p->a, k->a + cut.lane * 4, cut.rows, cut.depths, k->height, p->isa->a_width, k->units * p->isa->a_width, fetched);
}

// One column of tiles: a packed block of A with one panel of B. `sums` holds the tiles' sums. C's lines are fetched before they are written: a
// long tile's own into the first cache towards its end and the next one's into the second; in a short one's time only the next one's.
static void run_panel(const worker *w, const block *k, const char *b, int64_t n, float *sums, ct_matmul_fetch fetch[2]) {
    const ct_matmul_product *p = w->p;
    const ct_matmul_isa *isa = p->isa;
    const int64_t c_bytes = p->finish == CT_FINISH_BF16 ? 2 : 4, c_row = p->b.rows * c_bytes, a_bytes = k->units * isa->a_width * 4;
    const int tile_sums = isa->tile_rows * isa->tile_cols, last_panel = n + isa->tile_cols >= k->cols.end, is_short = k->units <= SHORT_UNITS;
    ct_matmul_tile t = {.a = k->a, .b = b, .units = k->units, .fetch = fetch, .c_step = p->b.rows, .finish = p->finish};
    t.cols = (int)min64(isa->tile_cols, k->cols.end - n);
    t.c_lines = isa->tile_cols * c_bytes > LINE ? 2 : 1;
    char *c = (char *)p->c + k->rows.begin * c_row + n * c_bytes, *next_panel = c + isa->tile_cols * c_bytes;
    for (int64_t m = k->rows.begin; m < k->rows.end; m += k->height) {
        int more = m + k->height < k->rows.end;
        t.rows = (int)min64(k->height, k->rows.end - m);
        t.from = k->first ? NULL : sums;
        t.to = k->last ? NULL : sums;
        t.c = c;
        c += k->height * c_row;
        sums = sums ? sums + tile_sums : NULL;
        int64_t c_left = k->last ? t.rows * t.c_lines : 0;
        ct_matmul_lines next = {(uintptr_t)(more ? c : next_panel), more || !last_panel ? c_left : 0};
        t.near_c = is_short ? next : (ct_matmul_lines){(uintptr_t)t.c, c_left};
        t.far_c = next;
        t.near_sums = (ct_matmul_lines){(uintptr_t)sums, k->first ? 0 : tile_sums * 4 / LINE};
        t.late = is_short ? k->units : FETCH_UNITS * (t.near_c.left + t.near_sums.left + 8);
        isa->tile(&t);
        t.a = (const char *)t.a + a_bytes;
    }
}

// All tiles of a packed block of A. Where the columns are to be packed too, that is done on the way, or, where their depths lie apart, at once:
// a few columns of many depths would be lines of few of a cache's sets. What is packed next is fetched while tiles run, and the next block of A
// packed in as many parts as there are columns of tiles.
static void run_tiles(const worker *w, const block *k, const block *next) {
    const ct_matmul_product *p = w->p;
    const ct_matmul_isa *isa = p->isa;
    const int64_t panel_bytes = k->units * isa->tile_cols * 4, panels = ceil_div(k->cols.end - k->cols.begin, isa->tile_cols);
    const int64_t tiles = ceil_div(k->rows.end - k->rows.begin, k->height), piece = PACK_COLS;
    const int64_t late = panels > FETCH_PANELS ? panels - FETCH_PANELS : 0;
    float *sums = k->sums;
    ct_matmul_fetch fetch[2] = {{0}};
    for (int64_t index = 0; index < panels; index++) {
        int64_t n = k->cols.begin + index * isa->tile_cols, at = n - k->cols.begin;
        char *b = w->b + index * panel_bytes;
        if (k->pack_b && at % piece == 0) {
            int64_t end = min64(n + piece, k->cols.end);
            pack_part(p, &p->b, b, (range){n, end}, k->depths, isa->tile_cols, isa->tile_cols, k->units * isa->tile_cols, at > 0);
            fetch[1] = lines_of(p, &p->b, (range){end, min64(end + piece, k->cols.end)}, k->depths);
        } else if (!k->pack_b && index + 1 < panels) {
            int64_t lines = panel_bytes / LINE;
            fetch[1] = (ct_matmul_fetch){.at = (uintptr_t)b + (uintptr_t)panel_bytes, .run = lines, .left = lines};
        }
        slice cut = slice_of_a(p, next, index, panels);
        if (is_across(&p->a))
            fetch[0] = lines_of(p, &p->a, cut.rows, cut.depths);
        else if (index == late && next->pack_a)
            fetch[0] = lines_of(p, &p->a, next->rows, next->depths);
        run_panel(w, k, b, n, sums, fetch);
        pack_a(p, next, cut, 1);
        if (sums) sums += tiles * isa->tile_rows * isa->tile_cols;
    }
}

// The order of blocks in a region: rows within depths within `sum_rows` rows within columns.
typedef struct {
    int64_t cols, rows, index, i;
    int parity;
} position;

static int advance(const worker *w, position *at) {
    const layout *l = w->l;
    at->parity ^= 1;
    if (at->rows + ++at->i * l->block_rows < min64(at->rows + l->sum_rows, w->m.end)) return 1;
    at->i = 0;
    if (++at->index < l->depth_blocks) return 1;
    at->index = 0;
    if ((at->rows += l->sum_rows) < w->m.end) return 1;
    at->rows = w->m.begin;
    return (at->cols += l->block_cols) < w->n.end;
}

static block block_at(const worker *w, position at) {
    const ct_matmul_product *p = w->p;
    const ct_matmul_isa *isa = p->isa;
    const layout *l = w->l;
    block k = {.first = at.index == 0, .last = at.index == l->depth_blocks - 1};
    k.cols = (range){at.cols, min64(at.cols + l->block_cols, w->n.end)};
    k.rows = part_of(at.rows, min64(at.rows + l->sum_rows, w->m.end), l->block_rows, at.i);
    k.depths = part_of(0, p->depth, l->block_units * isa->elems_a_unit, at.index);
    k.units = ceil_div(k.depths.end - k.depths.begin, isa->elems_a_unit);
    k.height = tile_height(isa, k.rows);
    k.pack_a = !l->keep_a || at.cols == w->n.begin;
    k.pack_b = at.i == 0;
    int64_t tiles = ceil_div(l->block_rows, isa->tile_rows);
    k.a = w->a + (l->keep_a ? at.index * tiles * isa->a_width * l->block_units * 4 : at.parity * (int64_t)l->a_bytes * is_across(&p->a));
    if (w->sums) k.sums = w->sums + at.i * tiles * isa->tile_rows * ceil_div(k.cols.end - k.cols.begin, isa->tile_cols) * isa->tile_cols;
    return k;
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
    char *mine = (char *)p->scratch + thread_bytes(l) * (size_t)thread;
    worker w = {.p = p, .l = l, .a = mine, .b = mine + (l->keep_a ? 1 : 2) * l->a_bytes};
    w.m = part_of(0, p->a.rows, l->rows, thread % l->threads_m);
    w.n = part_of(0, p->b.rows, l->cols, thread / l->threads_m);
    if (l->depth_blocks > 1) w.sums = (float *)(w.b + l->b_bytes);
    if (w.m.begin >= w.m.end || w.n.begin >= w.n.end) return;
    position at = {w.n.begin, w.m.begin, 0, 0, 0};
    block here = block_at(&w, at), next;
    pack_a(p, &here, slice_of_a(p, &here, 0, 1), 0);
    for (int more = 1; more; here = next) {
        more = advance(&w, &at);
        next = more ? block_at(&w, at) : (block){0};
        run_tiles(&w, &here, &next);
    }
}

void ct_matmul_product_run(const ct_matmul_product *product, ct_team *team) {
    job j = {product, lay_out(product, ct_team_size(team))};
    ct_team_run(team, run_region, &j);
}
