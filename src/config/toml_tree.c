// The tree of a TOML document: tables with an index, and the rules of what may be defined, extended and opened again.
//
// A table is made by a [header], as a step on the way to another (then a header may define it later), by a dotted key
// (then only dotted keys of the same section may extend it, and headers may only add tables below), or inline (then
// it is closed).
#include "toml_parse.h"

#include <string.h>

ct_toml_value *toml_new_value(toml_parser *p, ct_toml_kind kind, const char *at) {
    ct_toml_value *value = CT_ARENA_NEW(p->arena, ct_toml_value);
    value->kind = kind;
    toml_place(p, at, &value->line, &value->column);
    return value;
}

void toml_array_add(toml_parser *p, ct_toml_value *array, ct_toml_value *item) {
    if (array->item_count == array->item_capacity) {
        int64_t capacity = array->item_capacity ? 2 * array->item_capacity : 4;
        ct_toml_value **items = CT_ARENA_ARRAY(p->arena, ct_toml_value *, capacity);
        if (array->item_count) memcpy(items, array->items, sizeof *items * (size_t)array->item_count);
        array->items = items, array->item_capacity = capacity;
    }
    array->items[array->item_count++] = item;
}

// ---- tables ----
static uint64_t hash_key(const char *key, size_t bytes) {
    uint64_t h = 0xcbf29ce484222325u; // FNV-1a
    for (size_t i = 0; i < bytes; i++) h = (h ^ (unsigned char)key[i]) * 0x100000001b3u;
    return h ^ h >> 29;
}

// The slot that holds the key, or the free one where it belongs. The table must have slots.
static int32_t *find_slot(const ct_toml_value *table, const char *key, size_t bytes) {
    uint64_t mask = 2 * (uint64_t)table->entry_capacity - 1;
    for (uint64_t i = hash_key(key, bytes);; i++) {
        int32_t *slot = &table->slots[i & mask];
        if (!*slot) return slot;
        const ct_toml_entry *entry = &table->entries[*slot - 1];
        if (entry->key_bytes == bytes && !memcmp(entry->key, key, bytes)) return slot;
    }
}

ct_toml_entry *toml_table_find(const ct_toml_value *table, const char *key, size_t key_bytes) {
    if (!table->entry_count) return NULL;
    int32_t *slot = find_slot(table, key, key_bytes);
    return *slot ? &table->entries[*slot - 1] : NULL;
}

static void grow_table(toml_parser *p, ct_toml_value *table) {
    int64_t capacity = table->entry_capacity ? 2 * table->entry_capacity : 8;
    ct_toml_entry *entries = CT_ARENA_ARRAY(p->arena, ct_toml_entry, capacity);
    if (table->entry_count) memcpy(entries, table->entries, sizeof *entries * (size_t)table->entry_count);
    table->entries = entries, table->entry_capacity = capacity;
    table->slots = CT_ARENA_ARRAY(p->arena, int32_t, 2 * capacity);
    for (int64_t i = 0; i < table->entry_count; i++)
        *find_slot(table, entries[i].key, entries[i].key_bytes) = (int32_t)(i + 1);
}

void toml_table_add(toml_parser *p, ct_toml_value *table, const toml_part *part, ct_toml_value *value) {
    if (table->entry_count == table->entry_capacity) grow_table(p, table);
    *find_slot(table, part->text, part->bytes) = (int32_t)(table->entry_count + 1);
    table->entries[table->entry_count++] = (ct_toml_entry){part->text, part->bytes, part->line, part->column, value};
}

ct_toml_value *ct_toml_find(const ct_toml_value *table, const char *key) {
    ct_toml_entry *entry = toml_table_find(table, key, strlen(key));
    return entry ? entry->value : NULL;
}

// ---- rules ----
static ct_status fail_at_part(toml_parser *p, const toml_key *key, int part, const char *problem, int first_line) {
    return ct_error_make(CT_INVALID, __FILE__, __LINE__, "%s:%d:%d: %s %s (line %d)", p->name, key->parts[part].line,
                         key->parts[part].column, toml_key_text(p, key, part + 1), problem, first_line);
}

static ct_toml_value *add_table(toml_parser *p, ct_toml_value *parent, const toml_part *part) {
    ct_toml_value *table = CT_ARENA_NEW(p->arena, ct_toml_value);
    table->kind = CT_TOML_TABLE;
    table->line = part->line, table->column = part->column;
    toml_table_add(p, parent, part, table);
    return table;
}

// The table at one part of a dotted key before its last.
static ct_status step_dotted(toml_parser *p, const toml_key *key, int part, ct_toml_value **table) {
    ct_toml_entry *entry = toml_table_find(*table, key->parts[part].text, key->parts[part].bytes);
    ct_toml_value *next = entry ? entry->value : add_table(p, *table, &key->parts[part]);
    if (next->kind != CT_TOML_TABLE)
        return fail_at_part(p, key, part, "is already a value and can't hold keys", entry->line);
    if (next->frozen) return fail_at_part(p, key, part, "is a table in braces and can't be added to", entry->line);
    if (next->by_header || (next->dotted_since && next->dotted_since != p->section))
        return fail_at_part(p, key, part, "is defined elsewhere and can't be added to with a dotted key", next->line);
    if (!next->dotted_since) next->dotted_since = p->section;
    *table = next;
    return CT_OK;
}

ct_status toml_insert(toml_parser *p, ct_toml_value *table, const toml_key *key, ct_toml_value *value) {
    int last = key->count - 1;
    for (int i = 0; i < last; i++) CT_TRY(step_dotted(p, key, i, &table));
    ct_toml_entry *entry = toml_table_find(table, key->parts[last].text, key->parts[last].bytes);
    if (entry) return fail_at_part(p, key, last, "is given a second time; first", entry->line);
    toml_table_add(p, table, &key->parts[last], value);
    return CT_OK;
}

// The table at one part of a header before its last: in an array of tables, the newest.
static ct_status step_header(toml_parser *p, const toml_key *key, int part, ct_toml_value **table) {
    ct_toml_entry *entry = toml_table_find(*table, key->parts[part].text, key->parts[part].bytes);
    ct_toml_value *next = entry ? entry->value : add_table(p, *table, &key->parts[part]);
    if (next->frozen) return fail_at_part(p, key, part, "is given as a value and can't be added to", entry->line);
    if (next->kind == CT_TOML_ARRAY) next = next->items[next->item_count - 1];
    if (next->kind != CT_TOML_TABLE)
        return fail_at_part(p, key, part, "is already a value and can't be a table", entry->line);
    *table = next;
    return CT_OK;
}

ct_status toml_open_table(toml_parser *p, ct_toml_value *root, const toml_key *key, ct_toml_value **out_table) {
    int last = key->count - 1;
    for (int i = 0; i < last; i++) CT_TRY(step_header(p, key, i, &root));
    ct_toml_entry *entry = toml_table_find(root, key->parts[last].text, key->parts[last].bytes);
    ct_toml_value *table = entry ? entry->value : add_table(p, root, &key->parts[last]);
    if (table->kind != CT_TOML_TABLE || table->frozen)
        return fail_at_part(p, key, last, "is already a value and can't be a table", entry->line);
    if (table->by_header || table->dotted_since)
        return fail_at_part(p, key, last, "is defined a second time; first", table->line);
    table->by_header = true;
    table->line = key->parts[last].line, table->column = key->parts[last].column;
    *out_table = table;
    return CT_OK;
}

ct_status toml_open_array_item(toml_parser *p, ct_toml_value *root, const toml_key *key, ct_toml_value **out_table) {
    int last = key->count - 1;
    for (int i = 0; i < last; i++) CT_TRY(step_header(p, key, i, &root));
    const toml_part *part = &key->parts[last];
    ct_toml_entry *entry = toml_table_find(root, part->text, part->bytes);
    ct_toml_value *array = entry ? entry->value : CT_ARENA_NEW(p->arena, ct_toml_value);
    if (entry && (array->kind != CT_TOML_ARRAY || array->frozen))
        return fail_at_part(p, key, last, "is no array of tables; first defined", entry->line);
    if (!entry) {
        array->kind = CT_TOML_ARRAY, array->by_header = true, array->line = part->line, array->column = part->column;
        toml_table_add(p, root, part, array);
    }
    ct_toml_value *table = CT_ARENA_NEW(p->arena, ct_toml_value);
    table->kind = CT_TOML_TABLE, table->by_header = true, table->line = part->line, table->column = part->column;
    toml_array_add(p, array, table);
    *out_table = table;
    return CT_OK;
}
