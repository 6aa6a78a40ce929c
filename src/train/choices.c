// What placement chose at each node, and what it costs: layers together, dearest first.
#include "explain_parts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    ct_choice first;
    char module[96];
    int count;
} line;

static int same(const line *l, const ct_choice *c, const char *module) {
    return l->first.axis == c->axis && l->first.phase == c->phase && l->first.bytes == c->bytes && l->first.other_bytes == c->other_bytes &&
           !strcmp(l->first.op, c->op) && !strcmp(l->first.cut, c->cut) && !strcmp(l->first.other, c->other) && !strcmp(l->first.program, c->program) &&
           !strcmp(l->module, module);
}

static int by_price(const void *a, const void *b) {
    const line *x = a, *y = b;
    double p = x->first.bytes * x->count, q = y->first.bytes * y->count;
    return p > q ? -1 : p < q;
}

static int collect(const ct_choices *choices, line **out) {
    line *lines = ct_calloc((size_t)choices->count + 1, sizeof *lines);
    int count = 0;
    for (int i = 0; i < choices->count; i++) {
        char module[96];
        ct_module_without_number(choices->list[i].module, module, sizeof module);
        int k = 0;
        while (k < count && !same(&lines[k], &choices->list[i], module)) k++;
        if (k == count) {
            lines[count].first = choices->list[i];
            memcpy(lines[count++].module, module, sizeof module);
        }
        lines[k].count++;
    }
    qsort(lines, (size_t)count, sizeof *lines, by_price);
    *out = lines;
    return count;
}

static const char *cut_text(const char *cut) { return cut[0] ? cut : "whole"; }

enum { DEAREST = 16 };

void ct_choices_print(const ct_choices *choices, const ct_mesh *mesh, int all, ct_string *out) {
    line *lines;
    int total = collect(choices, &lines), count = all || total < DEAREST ? total : DEAREST;
    if (count) ct_string_add(out, "\nchoices of placement (bytes to a rank, were the axis alone)\n  program  axis         cuts   why                bytes ×       else          bytes  at\n");
    for (int i = 0; i < count; i++) {
        const ct_choice *c = &lines[i].first;
        char bytes[32], other[32] = "";
        ct_bytes_text(c->bytes, bytes, sizeof bytes);
        if (strcmp(c->other, "-")) ct_bytes_text(c->other_bytes, other, sizeof other);
        ct_string_add(out, "  %-8s %-12s %-6s %-11s %12s × %-5d %-6s %12s  %s in %s (%s)\n", c->program, mesh->axes[c->axis].name, cut_text(c->cut),
                      c->why, bytes, lines[i].count, c->other, other, c->op, lines[i].module, ct_phase_name(c->phase));
    }
    if (count < total) ct_string_add(out, "  … and %d that move less: --choices\n", total - count);
    free(lines);
}

void ct_choices_json(const ct_choices *choices, const ct_mesh *mesh, ct_string *out) {
    ct_string_add(out, "[");
    for (int i = 0; i < choices->count; i++) {
        const ct_choice *c = &choices->list[i];
        ct_string_add(out, "%s{\"program\": \"%s\", \"op\": \"%s\", \"module\": ", i ? ", " : "", c->program, c->op);
        ct_string_add_json(out, c->module);
        ct_string_add(out, ", \"phase\": \"%s\", \"axis\": \"%s\", \"cut\": \"%s\", \"why\": \"%s\", \"bytes\": %.17g", ct_phase_name(c->phase),
                      mesh->axes[c->axis].name, c->cut, c->why, c->bytes);
        if (strcmp(c->other, "-")) ct_string_add(out, ", \"else\": \"%s\", \"else_bytes\": %.17g", c->other, c->other_bytes);
        ct_string_add(out, "}");
    }
    ct_string_add(out, "]");
}
