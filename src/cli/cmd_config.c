// `ctitan config`: the reference of all keys, or every value of one run and where it came from.
#include "commands.h"

#include "config/config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char help[] =
    "usage: ctitan config [--json]                                       every key: default, type, meaning\n"
    "       ctitan config FILE.toml [--section.key value ...] [--json]   every value, and where it came from\n"
    "       ctitan config FILE.toml [--section.key value ...] --toml     the resolved config, as TOML\n"
    "\n"
    "Overrides are written --section.key value or --section.key=value; booleans also --section.flag and\n"
    "--section.no_flag; lists are comma-separated; `none` unsets what may be unset. The command line goes\n"
    "before the file, the file before the defaults.\n"
    "  --json       for machines\n"
    "  --toml       the resolved config; read back, it gives the same values\n"
    "  --markdown   the reference as Markdown (docs/CONFIG.md)\n";

typedef struct {
    bool json, toml, markdown, help;
    const char *file;
} options;

static bool read_options(int count, char **args, options *o) {
    for (int i = 0; i < count; i++)
        if (!strcmp(args[i], "--help") || !strcmp(args[i], "-h")) return o->help = true;
    for (int i = 0; i < count; i++) {
        if (!strcmp(args[i], "--json"))
            o->json = true;
        else if (!strcmp(args[i], "--toml"))
            o->toml = true;
        else if (!strcmp(args[i], "--markdown"))
            o->markdown = true;
        else if (args[i][0] != '-' && !o->file)
            o->file = args[i];
        else
            return fprintf(stderr, "ctitan config: what is '%s'? See `ctitan config --help`\n", args[i]), false;
    }
    return true;
}

static void add_note(void *out, const char *line) { ct_string_add(out, "  %s\n", line); }

// What `train` would say of this config.
static void add_verdict(const ct_config *config, ct_string *out) {
    ct_string notes = {0};
    ct_status status = ct_config_check_train(config, add_note, &notes);
    if (notes.length) ct_string_add(out, "\nHere without use:\n%s", notes.text);
    if (status) ct_string_add(out, "\n`ctitan train` would not run this:\n%s\n", ct_error_text(status));
    ct_string_deinit(&notes);
}

static ct_status print_values(const options *o, int argc, char **argv, ct_arena *arena, ct_string *out) {
    ct_config *config;
    CT_TRY(ct_config_load(arena, o->file, argc, argv, &config));
    if (o->toml) return ct_config_print_resolved(config, out), CT_OK;
    ct_config_print_values(config, o->json, out);
    if (!o->json) add_verdict(config, out);
    return CT_OK;
}

// Prints out whole, or says why not.
static int finish(const ct_string *out) {
    bool written = fwrite(out->text, 1, out->length, stdout) == out->length && fflush(stdout) == 0;
    if (!written) perror("ctitan config: writing");
    return !written;
}

int ct_cmd_config(int argc, char **argv) {
    options o = {0};
    int count = ct_config_args_split(argc - 1, argv + 1);
    if (!read_options(count, argv + 1, &o)) return 2;
    ct_arena arena = {0};
    ct_string out = {0};
    ct_status status = CT_OK;
    if (o.help)
        ct_string_add(&out, "%s", help);
    else if (o.file || o.toml || count < argc - 1)
        status = print_values(&o, argc - 1 - count, argv + 1 + count, &arena, &out);
    else
        ct_config_print_keys(o.markdown ? CT_CONFIG_MARKDOWN : o.json ? CT_CONFIG_JSON : CT_CONFIG_TEXT, &out);
    if (status) fprintf(stderr, "ctitan config: %s\n", ct_error_text(status));
    int failed = status ? 1 : finish(&out);
    ct_string_deinit(&out);
    ct_arena_deinit(&arena);
    return failed;
}
