// See toml_dump.h. compare_toml.py writes the same lines from Python's tomllib.
#include "toml_dump.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void dump_string(const char *text, size_t bytes, ct_string *out) {
    ct_string_add(out, "\"");
    for (size_t i = 0; i < bytes; i++) {
        unsigned char c = (unsigned char)text[i];
        if (c == '"' || c == '\\')
            ct_string_add(out, "\\%c", c);
        else if (c < 0x20)
            ct_string_add(out, "\\u%04x", c);
        else
            ct_string_add_bytes(out, &text[i], 1);
    }
    ct_string_add(out, "\"");
}

static int compare_entries(const void *a, const void *b) {
    const ct_toml_entry *x = a, *y = b;
    size_t n = x->key_bytes < y->key_bytes ? x->key_bytes : y->key_bytes;
    int order = memcmp(x->key, y->key, n);
    return order ? order : x->key_bytes < y->key_bytes ? -1 : x->key_bytes > y->key_bytes;
}

static void dump_table(const ct_toml_value *table, ct_string *out) {
    size_t count = (size_t)table->entry_count;
    ct_toml_entry *sorted = ct_calloc(count, sizeof *sorted);
    if (count) memcpy(sorted, table->entries, count * sizeof *sorted);
    qsort(sorted, count, sizeof *sorted, compare_entries);
    ct_string_add(out, "{");
    for (size_t i = 0; i < count; i++) {
        if (i) ct_string_add(out, ",");
        dump_string(sorted[i].key, sorted[i].key_bytes, out);
        ct_string_add(out, ":");
        toml_dump(sorted[i].value, out);
    }
    ct_string_add(out, "}");
    free(sorted);
}

static void dump_float(double number, ct_string *out) {
    uint64_t bits;
    memcpy(&bits, &number, 8);
    if (isnan(number))
        ct_string_add(out, "{\"f\":\"nan\"}");
    else
        ct_string_add(out, "{\"f\":\"%016llx\"}", (unsigned long long)bits);
}

void toml_dump(const ct_toml_value *value, ct_string *out) {
    switch (value->kind) {
    case CT_TOML_STRING:
        dump_string(value->text, value->bytes, out);
        return;
    case CT_TOML_INT:
        ct_string_add(out, "{\"i\":\"%lld\"}", (long long)value->integer);
        return;
    case CT_TOML_FLOAT:
        dump_float(value->number, out);
        return;
    case CT_TOML_BOOL:
        ct_string_add(out, value->boolean ? "true" : "false");
        return;
    case CT_TOML_DATE:
        ct_string_add(out, "{\"d\":\"%s\"}", value->text);
        return;
    case CT_TOML_TABLE:
        dump_table(value, out);
        return;
    case CT_TOML_ARRAY:
        break;
    }
    ct_string_add(out, "[");
    for (int64_t i = 0; i < value->item_count; i++) {
        if (i) ct_string_add(out, ",");
        toml_dump(value->items[i], out);
    }
    ct_string_add(out, "]");
}

long toml_case_parse(const char *text, size_t bytes, toml_case *out_case) {
    if (!bytes) return 0;
    char line[64] = "";
    const char *newline = memchr(text, '\n', bytes < 63 ? bytes : 63);
    if (!newline) return -1;
    memcpy(line, text, (size_t)(newline - text));
    long document_bytes, dump_bytes;
    if (sscanf(line, "case %ld %ld", &document_bytes, &dump_bytes) != 2 || document_bytes < 0 || dump_bytes < -1)
        return -1;
    size_t head = (size_t)(newline - text) + 1, dump = dump_bytes < 0 ? 0 : (size_t)dump_bytes;
    size_t all = head + (size_t)document_bytes + 1 + dump + 1;
    if (all > bytes) return -1;
    *out_case = (toml_case){.document = text + head, .document_bytes = (size_t)document_bytes, .dump_bytes = dump};
    if (dump_bytes >= 0) out_case->dump = text + head + document_bytes + 1;
    return (long)all;
}
