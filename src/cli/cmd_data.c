// `ctitan data build|info`: tokenised corpora.
#include "commands.h"
#include "base/clock.h"
#include "base/memory.h"
#include "data/corpus.h"
#include "data/tokens.h"
#include "base/team.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char help[] =
    "usage: ctitan data build TOKENIZER OUT.ctc FILE... [options]\n"
    "       ctitan data info FILE.ctc [--verify] [--json]\n"
    "\n"
    "build encodes text into a corpus that training maps into memory. TOKENIZER is a tokenizer's file or folder. A FILE may be a\n"
    "folder or a pattern; .gz and .zst are decompressed. OUT.ctc is replaced only when the new corpus is whole.\n"
    "\n"
    "  --format F            text, jsonl, c4_test, c4_validation or c4 (default: by each FILE's name)\n"
    "  --field NAME          jsonl: the member that holds the text (default: text)\n"
    "  --split-blank N       text: runs of at least N blank lines part documents (default: a file is one document)\n"
    "  --split-line TEXT     text: a line that equals TEXT parts documents\n"
    "  --recursive           folders: their subfolders too\n"
    "  --threads N           threads that encode (default: one a core)\n"
    "  --progress, --no-progress   show how far it is (default: on a terminal)\n"
    "  --json                print the result as JSON\n"
    "\n"
    "info describes a corpus; --verify checks every id in it.\n";

typedef struct {
    const char **files; // arguments that are no options
    int count;
    ct_data_source spec;
    int threads, progress, json, verify;
} arguments;

static ct_status parse_count(const char *name, const char *text, int *out) {
    char *end;
    long value = strtol(text, &end, 10);
    CT_CHECK(*text && !*end && value >= 1 && value <= 1024, CT_INVALID, "%s %s: wanted is a number from 1 to 1024", name, text);
    *out = (int)value;
    return CT_OK;
}

static ct_status parse_option(int argc, char **argv, int *i, arguments *a) {
    const char *name = argv[*i];
    if (!strcmp(name, "--progress")) return a->progress = 1, CT_OK;
    if (!strcmp(name, "--no-progress")) return a->progress = 0, CT_OK;
    if (!strcmp(name, "--json")) return a->json = 1, CT_OK;
    if (!strcmp(name, "--verify")) return a->verify = 1, CT_OK;
    if (!strcmp(name, "--recursive")) return a->spec.recursive = 1, CT_OK;
    static const char *const with_value[] = {"--format", "--field", "--split-line", "--split-blank", "--threads"};
    int which = 0;
    while (which < 5 && strcmp(name, with_value[which])) which++;
    CT_CHECK(which < 5, CT_INVALID, "there is no option %s; see `ctitan data --help`", name);
    CT_CHECK(*i + 1 < argc, CT_INVALID, "%s needs a value", name);
    const char *value = argv[++*i];
    switch (which) {
    case 0: a->spec.format = value; return CT_OK;
    case 1: a->spec.field = value; return CT_OK;
    case 2: a->spec.split_line = value; return CT_OK;
    case 3: return parse_count(name, value, &a->spec.split_blank_lines);
    default: return parse_count(name, value, &a->threads);
    }
}

static ct_status parse(int argc, char **argv, arguments *a) {
    int only_files = 0;
    for (int i = 2; i < argc; i++) {
        if (!only_files && !strcmp(argv[i], "--")) only_files = 1;
        else if (!only_files && !strncmp(argv[i], "--", 2)) CT_TRY(parse_option(argc, argv, &i, a));
        else a->files[a->count++] = argv[i];
    }
    return CT_OK;
}

// ---- build ----
typedef struct {
    double start, last; // seconds
    int shown;
} meter;

static void show_progress(void *context, int64_t done, int64_t total, int64_t documents, int64_t tokens) {
    meter *m = context;
    int terminal = isatty(STDERR_FILENO);
    double now = ct_now_s(), s = now - m->start, rate = s > 0 ? (double)done / s : 0;
    if (m->shown && now - m->last < (terminal ? 0.2 : 5) && done < total) return;
    m->last = now;
    m->shown = 1;
    fprintf(stderr, "%s%5.1f %%  %" PRId64 " documents, %.2f M tokens, %.1f MB/s, %.0f s left%s", terminal ? "\r" : "",
            total ? 100.0 * (double)done / (double)total : 100.0, documents, (double)tokens / 1e6, rate / 1e6,
            rate > 0 ? (double)(total - done) / rate : 0.0, terminal ? "   " : "\n");
}

static void print_info(const char *path, const ct_corpus_info *info, int json) {
    if (json) {
        ct_string out = {0};
        ct_string_add(&out, "{\"path\":");
        ct_string_add_json(&out, path);
        ct_string_add(&out,
                      ",\"documents\":%" PRId64 ",\"tokens\":%" PRId64 ",\"text_bytes\":%" PRId64 ",\"file_bytes\":%" PRId64
                      ",\"id_bytes\":%u,\"vocab_size\":%d,\"bos_id\":%d,\"eos_id\":%d,\"tokenizer\":\"%016" PRIx64
                      "\",\"checksum\":\"%016" PRIx64 "\"}",
                      info->documents, info->tokens, info->text_bytes, info->file_bytes, info->id_bytes, info->vocab_size,
                      info->bos, info->eos, info->fingerprint, info->checksum);
        puts(out.text);
        ct_string_deinit(&out);
        return;
    }
    printf("%s\n  documents    %" PRId64 "\n  tokens       %" PRId64 " (%.2f bytes of text a token, %.0f tokens a document)\n"
           "  text         %.1f MB\n  file         %.1f MB, %u bytes an id\n  vocabulary   %d, BOS %d, EOS %d\n"
           "  tokenizer    %016" PRIx64 "\n  checksum     %016" PRIx64 "\n",
           path, info->documents, info->tokens, info->tokens ? (double)info->text_bytes / (double)info->tokens : 0.0,
           info->documents ? (double)info->tokens / (double)info->documents : 0.0, (double)info->text_bytes / 1e6,
           (double)info->file_bytes / 1e6, info->id_bytes, info->vocab_size, info->bos, info->eos, info->fingerprint,
           info->checksum);
}

static ct_status build_with(const ct_tokenizer *tokenizer, const arguments *a, ct_corpus_info *info) {
    int threads = a->threads > 0 ? a->threads : ct_cores(), count = a->count - 2;
    ct_data_tokens *tokens;
    CT_TRY(ct_data_tokens_create(tokenizer, threads, &tokens));
    ct_data_source *sources = ct_calloc((size_t)count, sizeof *sources);
    for (int i = 0; i < count; i++) {
        sources[i] = a->spec;
        sources[i].path = a->files[i + 2];
    }
    meter m = {.start = ct_now_s()};
    int show = a->progress > 0 || (a->progress < 0 && isatty(STDERR_FILENO));
    ct_corpus_build_options options = {.encoder = ct_data_tokens_encoder(tokens, 0), .sources = sources, .source_count = count,
                                       .threads = threads, .progress = show ? show_progress : NULL, .progress_context = &m};
    ct_status status = ct_corpus_build(&options, a->files[1], info);
    if (m.shown && isatty(STDERR_FILENO)) fputc('\n', stderr);
    free(sources);
    ct_data_tokens_destroy(tokens);
    return status;
}

static ct_status build(const arguments *a) {
    ct_tokenizer *tokenizer;
    ct_corpus_info info;
    CT_TRY(ct_tokenizer_open(a->files[0], (ct_tokenizer_options){0}, &tokenizer));
    ct_status status = build_with(tokenizer, a, &info);
    ct_tokenizer_close(tokenizer);
    if (!status) print_info(a->files[1], &info, a->json);
    return status;
}

// ---- info ----
static ct_status info_of(const arguments *a) {
    ct_corpus *corpus;
    CT_TRY(ct_corpus_open(a->files[0], &corpus));
    ct_status status = a->verify ? ct_corpus_verify(corpus) : CT_OK;
    if (!status) print_info(a->files[0], ct_corpus_describe(corpus), a->json);
    ct_corpus_close(corpus);
    return status;
}

int ct_cmd_data(int argc, char **argv) {
    for (int i = 1; i < argc; i++)
        if (!strcmp(argv[i], "--help") || !strcmp(argv[i], "-h")) return fputs(help, stdout), 0;
    if (argc < 2) return fputs(help, stderr), 2;
    arguments a = {.progress = -1, .files = ct_calloc((size_t)argc, sizeof *a.files)};
    ct_status status = parse(argc, argv, &a);
    if (!status && !strcmp(argv[1], "build") && a.count < 3)
        status = ct_error_make(CT_INVALID, __FILE__, __LINE__, "build needs a tokenizer, a file to write and files to read; see `ctitan data --help`");
    if (!status && !strcmp(argv[1], "info") && a.count != 1)
        status = ct_error_make(CT_INVALID, __FILE__, __LINE__, "info needs one corpus; see `ctitan data --help`");
    int usage = status != CT_OK;
    if (!status && !strcmp(argv[1], "build")) status = build(&a);
    else if (!status && !strcmp(argv[1], "info")) status = info_of(&a);
    else if (!status) status = ct_error_make(CT_INVALID, __FILE__, __LINE__, "there is no `ctitan data %s`; see `ctitan data --help`", argv[1]), usage = 1;
    free(a.files);
    if (!status) return ct_finish_output("data");
    fprintf(stderr, "ctitan data: %s\n", ct_error_text(status));
    return usage ? 2 : 1;
}
