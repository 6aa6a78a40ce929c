// The table of keys: one entry a key, in the order of sections and keys. What a key is, what it may be, whether this
// version builds it and what it means is said here and nowhere else.
#pragma once
#include "config/config.h"
#include "toml.h"

typedef enum {
    KEY_BOOL,
    KEY_INT,
    KEY_FLOAT,
    KEY_STRING,
    KEY_ENUM,
    KEY_STRINGS,
    KEY_STRING_LISTS,
    KEY_GROUPS
} config_type;

// A name that an enum key may have, and the C enum's value. A list ends with a NULL name.
typedef struct {
    const char *name;
    int value;
} config_choice;

// What an integer or a number may be; text is for messages and the reference ("≥ 1 or -1").
typedef struct {
    double min, max;
    bool above_min, below_max; // the ends don't belong to the range
    bool or_minus_one;
    bool not_one;
    const char *text;
} config_range;

typedef enum {
    USE_RUN,   // has an effect here (the zero: most keys)
    USE_NONE,  // can't change the numbers and has no use here: named in a line when set; `why` says why
    USE_GATED, // speaks only together with another key, which `why` names; silent otherwise
} config_use;

typedef enum { FROM_TITAN, FROM_TITAN_MAIN, FROM_US } config_source;

typedef struct config_key config_key;
struct config_key {
    const char *section, *name;
    config_type type;
    bool optional;                // a ct_opt_…, a string that may be NULL, or an enum with unset_choice
    int unset_choice;             // an optional enum's value when unset
    size_t offset;                // in ct_config; in an element for a group's fields
    const char *default_text;     // as TOML; NULL: unset (or required, in a group)
    const config_choice *choices; // KEY_ENUM
    bool any_case;                // KEY_ENUM: names are compared without regard to case
    bool or_string;               // KEY_STRINGS: a string alone is a list of one
    const config_range *range;    // KEY_INT, KEY_FLOAT; NULL: any (but never NaN)
    const char *unit;
    bool numbers; // may change a run's numbers: counted in the hash
    config_use use;
    const char *why;
    const char *built; // the values that this version builds, parted by blanks, as TEXT_PLAIN; NULL: all
    // Where true, the value isn't read and may be anything; NULL: always read.
    bool (*is_unread)(const ct_config *config);
    config_source source;
    const char *help;
    const config_key *fields; // KEY_GROUPS: the fields of an element, field_count of element_bytes each
    int field_count;
    size_t element_bytes, count_offset;
};

typedef struct {
    const char *name, *help;
} config_section;

// Table pieces, one file a group of sections; table.c puts them into one order.
typedef struct {
    const config_key *keys;
    int count;
} config_keys;
extern const config_keys config_keys_job, config_keys_model, config_keys_optimizer, config_keys_training,
    config_keys_parallelism, config_keys_checkpoint, config_keys_memory, config_keys_quantize, config_keys_rest;

// ---- table.c ----
int config_key_count(void);
const config_key *config_key_at(int index);
// The index of a key, or -1.
int config_key_find(const char *section, size_t section_bytes, const char *name, size_t name_bytes);
// NULL-terminated by name.
const config_section *config_sections(void);
// Is this a section, or the beginning of one ("quantize.linear")?
bool config_is_section(const char *name, size_t bytes);
// Appends "; the nearest …" for a name that is no key (or no section, where name is NULL), as far as anything is
// near.
void config_add_nearest(const char *section, const char *name, ct_string *out);

// ---- text.c ----
typedef enum {
    TEXT_TOML,
    TEXT_PLAIN, // TOML without quotes around a string or a name
    TEXT_JSON,  // unset: null
} config_text;
// Appends a value; an unset one appends nothing (TEXT_JSON: null) and gives false. base is the ct_config, or a
// group's element.
bool config_add_value(const config_key *key, const void *base, config_text text, ct_string *out);
// Appends a value as it was found, for messages: `"abc"`, `an array`.
void config_add_found(const ct_toml_value *value, ct_string *out);
// Appends what is wanted of a key's value: "an integer ≥ 1", "\"a\" or \"b\"".
void config_add_wanted(const config_key *key, ct_string *out);
// Appends a key's default as in config_add_value; false where it is unset by default.
bool config_add_default(const config_key *key, ct_string *out);

// ---- set.c ----
struct ct_config_origin {
    enum { ORIGIN_DEFAULT, ORIGIN_FILE, ORIGIN_ARGUMENT } kind;
    const char *text;
};
// Puts a value into its place below base and checks type and range. file is the TOML file's name, or NULL for the
// command line.
ct_status config_set(ct_arena *arena, const config_key *key, void *base, const ct_toml_value *value,
                     const char *file);
// Sets the default, which may be "unset".
void config_set_default(ct_arena *arena, const config_key *key, void *base);
// "train.toml:14:9", or "command line" where file is NULL.
const char *config_where(ct_arena *arena, const char *file, int line, int column);

// ---- arguments.c ----
// Reads the override at argv[0] into config and says how many arguments it took.
ct_status config_take_argument(ct_arena *arena, ct_config *config, int argc, char **argv, int *out_taken);
// The file that --job.config_file names among the arguments, or NULL.
const char *config_file_argument(int argc, char **argv);
