// `ctitan tokenizer train|encode|decode|info`.
#include "commands.h"
#include "base/file.h"
#include "base/memory.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/train.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char help[] =
    "usage: ctitan tokenizer COMMAND …\n\n"
    "  encode TOKENIZER [FILE]    text to ids, on one line parted by spaces\n"
    "  decode TOKENIZER [FILE]    ids (parted by white space or commas) to text\n"
    "  info TOKENIZER             what a tokenizer is\n"
    "  train -o FOLDER FILE…      trains a byte-level BPE on text files\n\n"
    "TOKENIZER is a file (tokenizer.json, vocab.json or encoder.json beside their merges, *.tiktoken, a "
    "SentencePiece .model, llama2.c's\n"
    ".bin) or a folder that holds one. FILE is read from standard input where it is missing or `-`.\n\n"
    "encode:  --bos, --eos     put the beginning-of-text id in front, the end-of-text id behind\n"
    "         --template       add what the tokenizer's own template adds (as Hugging Face does by default)\n"
    "         --no-specials    special tokens spelled out in the text are text like any other\n"
    "decode:  --skip-special   special tokens give no text\n"
    "info:    --json           for machines\n"
    "all:     --pattern P      tiktoken files: the pattern, by name (cl100k_base, o200k_base, p50k_base, r50k_base, "
    "gpt2, llama3) or as\n"
    "                          a regular expression, where the file's name does not say it\n"
    "train:   --vocab-size N   ids in all (4096)\n"
    "         --pattern P      llama3 (default), gpt2, qwen, or a regular expression\n"
    "         --min-count N    pairs seen less often are not merged (2)\n"
    "         -o FOLDER        where tokenizer.json and tokenizer_config.json go\n";

typedef struct {
    int bos, eos, template, no_specials, skip_special, json;
    const char *pattern, *folder;
    int64_t vocab_size, min_count;
    const char **operands;
    int operand_count;
} arguments;

static int fail(ct_status status) {
    fprintf(stderr, "ctitan tokenizer: %s\n", ct_error_text(status));
    return 1;
}

static int misuse(const char *format, const char *what) {
    fputs("ctitan tokenizer: ", stderr);
    fprintf(stderr, format, what);
    fputs("; see `ctitan tokenizer --help`\n", stderr);
    return 2;
}

// ---- arguments -----------------------------------------------------------------------------------

static int parse_number(const char *text, int64_t *out) {
    char *end;
    errno = 0;
    long long value = strtoll(text, &end, 10);
    if (errno || end == text || *end || value < 0) return 0;
    *out = value;
    return 1;
}

// Each command's own options, parted by spaces.
static const struct {
    const char *command, *flags;
} allowed[] = {{"encode", " --bos --eos --template --no-specials --pattern "},
               {"decode", " --skip-special --pattern "},
               {"info", " --json --pattern "},
               {"train", " --vocab-size --pattern --min-count -o --output "}};

static int is_allowed(const char *command, const char *option) {
    char spaced[64];
    if (strlen(option) > 40) return 0;
    snprintf(spaced, sizeof spaced, " %s ", option);
    for (size_t i = 0; i < sizeof allowed / sizeof *allowed; i++)
        if (!strcmp(allowed[i].command, command)) return strstr(allowed[i].flags, spaced) != NULL;
    return 0;
}

// Sets what an option says. 0: well; else the exit status.
static int set_option(arguments *a, const char *option, const char *value) {
    if (!strcmp(option, "--bos")) return a->bos = 1, 0;
    if (!strcmp(option, "--eos")) return a->eos = 1, 0;
    if (!strcmp(option, "--template")) return a->template = 1, 0;
    if (!strcmp(option, "--no-specials")) return a->no_specials = 1, 0;
    if (!strcmp(option, "--skip-special")) return a->skip_special = 1, 0;
    if (!strcmp(option, "--json")) return a->json = 1, 0;
    if (!value) return misuse("%s needs a value", option);
    if (!strcmp(option, "--pattern")) return a->pattern = value, 0;
    if (!strcmp(option, "-o") || !strcmp(option, "--output")) return a->folder = value, 0;
    int64_t *number = !strcmp(option, "--vocab-size") ? &a->vocab_size : &a->min_count;
    return parse_number(value, number) ? 0 : misuse("'%s' is not a whole number", value);
}

static int takes_value(const char *option) {
    return !strcmp(option, "--pattern") || !strcmp(option, "-o") || !strcmp(option, "--output") ||
           !strcmp(option, "--vocab-size") || !strcmp(option, "--min-count");
}

static int parse(int argc, char **argv, arguments *a) {
    int options_end = 0;
    for (int i = 1; i < argc; i++) {
        char *option = argv[i], *equals = strchr(option, '='), *value = NULL;
        if (options_end || option[0] != '-' || !option[1]) {
            a->operands[a->operand_count++] = option;
            continue;
        }
        if (!strcmp(option, "--")) {
            options_end = 1;
            continue;
        }
        if (equals && option[1] == '-') *equals = 0, value = equals + 1;
        if (!is_allowed(argv[0], option)) return misuse("there is no option %s here", option);
        if (value && !takes_value(option)) return misuse("%s takes no value", option);
        if (takes_value(option) && !value && i + 1 < argc) value = argv[++i];
        int status = set_option(a, option, value);
        if (status) return status;
    }
    return 0;
}

// ---- input ---------------------------------------------------------------------------------------

static ct_status read_stream(FILE *in, char **out_text, size_t *out_size) {
    ct_string text = {0};
    char *chunk = ct_malloc(1 << 16);
    size_t n;
    ct_string_add_bytes(&text, "", 0);
    while ((n = fread(chunk, 1, 1 << 16, in))) ct_string_add_bytes(&text, chunk, n);
    free(chunk);
    if (ferror(in)) {
        ct_string_deinit(&text);
        CT_FAIL(CT_IO, "reading standard input: %s", strerror(errno));
    }
    *out_text = text.text ? text.text : ct_calloc(1, 1), *out_size = text.length;
    return CT_OK;
}

static ct_status read_input(const arguments *a, char **out_text, size_t *out_size) {
    if (a->operand_count < 2 || !strcmp(a->operands[1], "-")) return read_stream(stdin, out_text, out_size);
    return ct_file_read(a->operands[1], 0, out_text, out_size);
}

// ---- commands ------------------------------------------------------------------------------------

static int run_encode(const arguments *a, ct_tokenizer *tokenizer) {
    char *text;
    size_t size;
    ct_status status = read_input(a, &text, &size);
    if (status) return fail(status);
    const ct_tokenizer_info *info = ct_tokenizer_describe(tokenizer);
    ct_ids ids = {0};
    ct_tokenizer_context *context = ct_tokenizer_context_create(tokenizer);
    if ((a->bos && info->bos_id < 0) || (a->eos && info->eos_id < 0))
        status = ct_error_make(CT_INVALID, __FILE__, __LINE__, "%s names no %s token", info->path,
                               a->bos && info->bos_id < 0 ? "BOS" : "EOS");
    ct_encode_options options = {
        .add_bos = a->bos, .add_eos = a->eos, .no_template = !a->template, .plain_specials = a->no_specials};
    if (!status) status = ct_tokenizer_encode(context, text, size, options, &ids);
    for (size_t i = 0; i < ids.count && !status; i++) printf(i ? " %d" : "%d", ids.ids[i]);
    if (!status) putchar('\n');
    ct_tokenizer_context_destroy(context);
    ct_ids_deinit(&ids);
    free(text);
    return status ? fail(status) : ct_finish_output("tokenizer");
}

static ct_status parse_ids(const ct_tokenizer *tokenizer, const char *text, size_t size, ct_ids *ids) {
    int limit = ct_tokenizer_describe(tokenizer)->vocab_size;
    for (size_t i = 0; i < size;) {
        if (strchr(" \t\r\n,[]", text[i]) && text[i]) {
            i++;
            continue;
        }
        char *end;
        errno = 0;
        long id = strtol(text + i, &end, 10);
        CT_CHECK(end > text + i, CT_INVALID, "byte %zu of the input, '%.20s', is no id", i, text + i);
        CT_CHECK(!errno && id >= 0 && id < limit, CT_INVALID, "the id %ld is not in the vocabulary (0 to %d)", id,
                 limit - 1);
        ct_ids_add(ids, (int32_t)id);
        i = (size_t)(end - text);
    }
    return CT_OK;
}

static int run_decode(const arguments *a, ct_tokenizer *tokenizer) {
    char *text, *decoded;
    size_t size, decoded_size;
    ct_status status = read_input(a, &text, &size);
    if (status) return fail(status);
    ct_ids ids = {0};
    status = parse_ids(tokenizer, text, size, &ids);
    if (!status) {
        ct_tokenizer_decode(tokenizer, ids.ids, ids.count, a->skip_special, &decoded, &decoded_size);
        fwrite(decoded, 1, decoded_size, stdout);
        free(decoded);
    }
    ct_ids_deinit(&ids);
    free(text);
    return status ? fail(status) : ct_finish_output("tokenizer");
}

static void add_end(ct_string *out, const char *name, int id, const char *token) {
    ct_string_add(out, "  \"%s_id\": ", name);
    if (id >= 0)
        ct_string_add(out, "%d,\n  \"%s_token\": ", id, name);
    else
        ct_string_add(out, "null,\n  \"%s_token\": ", name);
    if (token)
        ct_string_add_json(out, token);
    else
        ct_string_add(out, "null");
    ct_string_add(out, ",\n");
}

static void print_json(const ct_tokenizer_info *info) {
    ct_string out = {0};
    ct_string_add(&out, "{\n  \"kind\": ");
    ct_string_add_json(&out, info->kind);
    ct_string_add(&out, ",\n  \"path\": ");
    ct_string_add_json(&out, info->path);
    ct_string_add(
        &out,
        ",\n  \"vocab_size\": %d,\n  \"tokens\": %d,\n  \"merges\": %d,\n  \"added\": %d,\n  \"specials\": %d,\n",
        info->vocab_size, info->tokens, info->merges, info->added, info->specials);
    add_end(&out, "bos", info->bos_id, info->bos_token);
    add_end(&out, "eos", info->eos_id, info->eos_token);
    ct_string_add(&out, "  \"template_bos\": %s,\n  \"template_eos\": %s,\n  \"splitter\": ",
                  info->template_bos ? "true" : "false", info->template_eos ? "true" : "false");
    ct_string_add_json(&out, info->splitter);
    ct_string_add(&out, "\n}\n");
    fputs(out.text, stdout);
    ct_string_deinit(&out);
}

static void print_end(const char *name, int id, const char *token, int by_template) {
    if (id < 0)
        printf("  %-11s none\n", name);
    else
        printf("  %-11s %d %s%s\n", name, id, token, by_template ? " (the template adds it)" : "");
}

static int run_info(const arguments *a, ct_tokenizer *tokenizer) {
    const ct_tokenizer_info *info = ct_tokenizer_describe(tokenizer);
    if (a->json) {
        print_json(info);
        return ct_finish_output("tokenizer");
    }
    printf("%s: %s\n", info->path, info->kind);
    printf("  vocabulary  %d (%d ids have a token)\n  merges      %d\n  added       %d, of which %d special\n",
           info->vocab_size, info->tokens, info->merges, info->added, info->specials);
    print_end("BOS", info->bos_id, info->bos_token, info->template_bos);
    print_end("EOS", info->eos_id, info->eos_token, info->template_eos);
    printf("  words       cut by: %s\n", info->splitter);
    return ct_finish_output("tokenizer");
}

static int with_tokenizer(const char *command, const arguments *a) {
    if (a->operand_count < 1) return misuse("%s needs a tokenizer", command);
    if (a->operand_count > (strcmp(command, "info") ? 2 : 1))
        return misuse("'%s' is one argument too many", a->operands[a->operand_count - 1]);
    ct_tokenizer *tokenizer;
    ct_status status = ct_tokenizer_open(a->operands[0], (ct_tokenizer_options){.pattern = a->pattern}, &tokenizer);
    if (status) return fail(status);
    int code = !strcmp(command, "encode")   ? run_encode(a, tokenizer)
               : !strcmp(command, "decode") ? run_decode(a, tokenizer)
                                            : run_info(a, tokenizer);
    ct_tokenizer_close(tokenizer);
    return code;
}

// ---- training ------------------------------------------------------------------------------------

static void show_progress(void *context, const ct_train_progress *p) {
    (void)context;
    if (p->merges)
        fprintf(stderr, "\r%d of %d merges   ", p->merges, p->merges_wanted);
    else
        fprintf(stderr, "\r%.1f MB read, %lld different words   ", (double)p->bytes_read / 1e6, (long long)p->words);
}

static int run_train(const arguments *a) {
    if (!a->folder) return misuse("%s needs -o FOLDER", "train");
    if (!a->operand_count) return misuse("%s needs text files", "train");
    if (a->vocab_size > 1 << 24) return misuse("%s is too large", "--vocab-size");
    ct_train_options options = {.vocab_size = (int)a->vocab_size,
                                .pattern = a->pattern,
                                .min_count = a->min_count,
                                .progress = isatty(2) ? show_progress : NULL};
    int size;
    ct_status status = ct_tokenizer_train(a->operands, a->operand_count, options, a->folder, &size);
    if (isatty(2)) fputc('\n', stderr);
    if (status) return fail(status);
    printf("%s/tokenizer.json: %d tokens\n", a->folder, size);
    return ct_finish_output("tokenizer");
}

static int run(const char *command, const arguments *a) {
    return strcmp(command, "train") ? with_tokenizer(command, a) : run_train(a);
}

int ct_cmd_tokenizer(int argc, char **argv) {
    for (int i = 1; i < argc; i++)
        if (!strcmp(argv[i], "--help") || !strcmp(argv[i], "-h")) return fputs(help, stdout), 0;
    if (argc < 2) return fputs(help, stderr), 2;
    int known = 0;
    for (size_t i = 0; i < sizeof allowed / sizeof *allowed; i++) known |= !strcmp(allowed[i].command, argv[1]);
    if (!known) return misuse("there is no command '%s'", argv[1]);
    arguments a = {.operands = ct_calloc((size_t)argc, sizeof(char *))};
    int status = parse(argc - 1, argv + 1, &a);
    if (!status) status = run(argv[1], &a);
    free(a.operands);
    return status;
}
