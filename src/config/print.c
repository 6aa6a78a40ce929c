// A config says what it holds: as TOML that reads back to the same, with the place of each value, as a hash.
#include "keys.h"

#include <string.h>
#include <xxhash.h>

static bool starts_section(int index) {
    return index == 0 || strcmp(config_key_at(index - 1)->section, config_key_at(index)->section) != 0;
}

void ct_config_print_resolved(const ct_config *config, ct_string *out) {
    for (int i = 0, count = config_key_count(); i < count; i++) {
        const config_key *key = config_key_at(i);
        ct_string value = {0};
        if (starts_section(i)) ct_string_add(out, "%s[%s]\n", i ? "\n" : "", key->section);
        bool set = config_add_value(key, config, TEXT_TOML, &value);
        // Where a config was read from isn't part of it.
        bool comment = !set || (!strcmp(key->name, "config_file") && !strcmp(key->section, "job"));
        ct_string_add(out, "%s%s = %s\n", comment ? "# " : "", key->name, set ? value.text : "(unset)");
        ct_string_deinit(&value);
    }
}

static void print_value_row(const ct_config *config, int index, ct_string *out) {
    const config_key *key = config_key_at(index);
    ct_string value = {0};
    if (starts_section(index)) ct_string_add(out, "%s[%s]\n", index ? "\n" : "", key->section);
    if (!config_add_value(key, config, TEXT_TOML, &value)) ct_string_add(&value, "-");
    ct_string_add(out, "  %-44s %-28s %s\n", key->name, value.text, config->origins[index].text);
    ct_string_deinit(&value);
}

static void print_value_json(const ct_config *config, int index, ct_string *out) {
    static const char *const kinds[] = {"default", "file", "command line"};
    const config_key *key = config_key_at(index);
    const ct_config_origin *origin = &config->origins[index];
    ct_string_add(out, "%s  \"%s.%s\": {\"value\": ", index ? ",\n" : "", key->section, key->name);
    config_add_value(key, config, TEXT_JSON, out);
    ct_string_add(out, ", \"from\": \"%s\", \"where\": ", kinds[origin->kind]);
    ct_string_add_json(out, origin->text);
    ct_string_add(out, "}");
}

void ct_config_print_values(const ct_config *config, bool json, ct_string *out) {
    if (json) ct_string_add(out, "{\n");
    for (int i = 0, count = config_key_count(); i < count; i++) {
        if (json)
            print_value_json(config, i, out);
        else
            print_value_row(config, i, out);
    }
    if (json) ct_string_add(out, "\n}\n");
}

uint64_t ct_config_hash(const ct_config *config) {
    ct_string text = {0};
    for (int i = 0, count = config_key_count(); i < count; i++) {
        const config_key *key = config_key_at(i);
        if (!key->numbers) continue;
        ct_string_add(&text, "%s.%s=", key->section, key->name);
        config_add_value(key, config, TEXT_TOML, &text);
        ct_string_add(&text, "\n");
    }
    uint64_t hash = XXH3_64bits(text.text, text.length);
    ct_string_deinit(&text);
    return hash;
}
