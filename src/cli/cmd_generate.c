// `ctitan generate FILE.toml`: text from a trained model, printed as it comes.
#include "commands.h"
#include "train/generate.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char help[] =
    "usage: ctitan generate FILE.toml [options] [--section.key value …]\n\n"
    "  --checkpoint PATH   weights: a checkpoint (its folder, or the folder of all), a Hugging Face folder, a llama2.c .bin;\n"
    "                      default: the newest in job.dump_folder\n"
    "  --ema               the checkpoint's average of the weights (optimizer.ema_decay) instead of them\n"
    "  --prompt TEXT       what to go on from (default: nothing but BOS)\n"
    "  --tokens N          new tokens at the most (200)\n"
    "  --temperature T     0: the likeliest token each time (1.0)\n"
    "  --top-k K           draw from the K likeliest only (0: all)\n"
    "  --top-p P           draw from the likeliest that make up P of the probability (1.0: all)\n"
    "  --seed S            of the draws (0)\n"
    "  --ids               print token ids instead of text\n"
    "  --logits            print the logits after every prompt token, one line a token, and generate nothing\n"
    "  --no-bos            don't put BOS before the prompt\n";

typedef struct {
    const char *checkpoint, *prompt;
    ct_sampling sampling;
    int ids, logits, no_bos, ema;
} arguments;

// ---- arguments ----
enum { MOST_TOKENS = 1 << 30 };

static int fraction(const char *text, double low, double high, double *out) {
    char *end;
    errno = 0;
    double x = strtod(text, &end);
    if (end == text || *end || errno || !(x >= low && x <= high)) return 0;
    return *out = x, 1;
}

static int whole(const char *text, uint64_t most, uint64_t *out) {
    char *end;
    errno = 0;
    unsigned long long x = strtoull(text, &end, 10);
    if (*text < '0' || *text > '9' || *end || errno || x > most) return 0;
    return *out = x, 1;
}

// Takes an option with a value. 1: well; 0: it is none of these; -1: the value is not what is wanted, which is *out_wanted.
static int take(arguments *a, const char *name, const char *value, const char **out_wanted) {
    uint64_t n = 0;
    if (!strcmp(name, "--checkpoint")) return a->checkpoint = value, *out_wanted = "a path", value ? 1 : -1;
    if (!strcmp(name, "--prompt")) return a->prompt = value, *out_wanted = "a text", value ? 1 : -1;
    if (!strcmp(name, "--temperature"))
        return *out_wanted = "a number from 0 to 1e6", value && fraction(value, 0, 1e6, &a->sampling.temperature) ? 1 : -1;
    if (!strcmp(name, "--top-p"))
        return *out_wanted = "a number above 0, at most 1", value && fraction(value, 1e-9, 1, &a->sampling.top_p) ? 1 : -1;
    if (!strcmp(name, "--seed")) return *out_wanted = "a whole number", value && whole(value, UINT64_MAX, &a->sampling.seed) ? 1 : -1;
    if (strcmp(name, "--tokens") && strcmp(name, "--top-k")) return 0;
    *out_wanted = "a whole number";
    if (!value || !whole(value, MOST_TOKENS, &n)) return -1;
    if (!strcmp(name, "--tokens")) a->sampling.max_new_tokens = (int64_t)n;
    else a->sampling.top_k = (int)n;
    return 1;
}

// Reads the command's own options; what is left over goes to the configuration. 0: wrong usage, said.
static int parse(int *argc, char **argv, arguments *a) {
    int kept = 1;
    for (int i = 1; i < *argc; i++) {
        const char *value = i + 1 < *argc ? argv[i + 1] : NULL, *wanted = NULL;
        if (!strcmp(argv[i], "--ids")) a->ids = 1;
        else if (!strcmp(argv[i], "--logits")) a->logits = 1;
        else if (!strcmp(argv[i], "--no-bos")) a->no_bos = 1;
        else if (!strcmp(argv[i], "--ema")) a->ema = 1;
        else {
            int taken = take(a, argv[i], value, &wanted);
            if (taken < 0) return ct_misuse("generate", "%s %s: %s is wanted", argv[i], value ? value : "has no value", wanted), 0;
            if (taken) i++;
            else argv[kept++] = argv[i];
        }
    }
    *argc = kept;
    return 1;
}

static void print_bytes(void *context, const void *bytes, size_t size) {
    fwrite(bytes, 1, size, context);
    fflush(context);
}

static void print_logits(const float *logits, int64_t n) {
    for (int64_t i = 0; i < n; i++) printf("%s%.9g", i ? " " : "", logits[i]);
    putchar('\n');
}

static ct_status generate_from(ct_generator *g, const ct_tokenizer *tokenizer, const arguments *a, const ct_ids *prompt) {
    const float *logits = NULL;
    int64_t vocabulary = ct_generator_model(g)->shape.vocab_size;
    ct_decode_stream stream = {.tokenizer = tokenizer, .skip_special = 1};
    for (size_t i = 0; i < prompt->count; i++) {
        CT_TRY(ct_generator_push(g, prompt->ids[i], &logits));
        if (a->logits) print_logits(logits, vocabulary);
        else if (a->ids) printf("%s%d", i ? " " : "", prompt->ids[i]);
        else ct_decode_stream_push(&stream, prompt->ids[i], print_bytes, stdout);
    }
    float *scratch = ct_malloc(sizeof(float) * (size_t)vocabulary);
    int eos = ct_tokenizer_describe(tokenizer)->eos_id;
    ct_status status = CT_OK;
    for (int64_t i = 0; !status && !a->logits && i < a->sampling.max_new_tokens; i++) {
        int32_t token = ct_sample(logits, vocabulary, a->sampling, prompt->count + (uint64_t)i, scratch);
        if (token == eos) break;
        if (a->ids) printf(" %d", token), fflush(stdout);
        else ct_decode_stream_push(&stream, token, print_bytes, stdout);
        if (i + 1 < a->sampling.max_new_tokens) status = ct_generator_push(g, token, &logits);
    }
    free(scratch);
    if (!a->ids && !a->logits) ct_decode_stream_finish(&stream, print_bytes, stdout);
    if (!a->logits) putchar('\n');
    return status;
}

static ct_status with_tokenizer(const ct_config *config, const ct_tokenizer *tokenizer, const arguments *a) {
    ct_ids prompt = {0};
    ct_tokenizer_context *context = ct_tokenizer_context_create(tokenizer);
    const ct_tokenizer_info *info = ct_tokenizer_describe(tokenizer);
    if (!a->no_bos && info->bos_id >= 0) ct_ids_add(&prompt, info->bos_id);
    ct_encode_options options = {.no_template = 1};
    ct_status status = ct_tokenizer_encode(context, a->prompt, strlen(a->prompt), options, &prompt);
    ct_tokenizer_context_destroy(context);
    if (!status && prompt.count == 0)
        status = ct_error_make(CT_INVALID, __FILE__, __LINE__, "nothing to start from: there is no BOS, and --prompt is empty");
    ct_generator *g = NULL;
    int64_t capacity = (int64_t)prompt.count + (a->logits ? 0 : a->sampling.max_new_tokens);
    if (!status) status = ct_generator_create(config, a->checkpoint, a->ema, capacity, &g);
    if (!status && info->vocab_size > ct_generator_model(g)->shape.vocab_size)
        status = ct_error_make(CT_INVALID, __FILE__, __LINE__, "the tokenizer at %s has %d ids, the model's vocabulary is %lld",
                               config->model.hf_assets_path, info->vocab_size, (long long)ct_generator_model(g)->shape.vocab_size);
    if (!status) status = generate_from(g, tokenizer, a, &prompt);
    ct_generator_destroy(g);
    ct_ids_deinit(&prompt);
    return status;
}

static ct_status generate(const char *path, int argc, char **argv, const arguments *a) {
    ct_arena arena = {0};
    ct_config *config;
    ct_tokenizer *tokenizer = NULL;
    ct_status status = ct_config_load(&arena, path, argc, argv, &config);
    if (!status) status = ct_setup_plugins(config);
    if (!status) status = ct_tokenizer_open(config->model.hf_assets_path, (ct_tokenizer_options){0}, &tokenizer);
    if (!status) status = with_tokenizer(config, tokenizer, a);
    ct_tokenizer_close(tokenizer);
    ct_arena_deinit(&arena);
    return status;
}

int ct_cmd_generate(int argc, char **argv) {
    for (int i = 1; i < argc; i++)
        if (!strcmp(argv[i], "--help") || !strcmp(argv[i], "-h")) return fputs(help, stdout), 0;
    arguments a = {.prompt = "", .sampling = {.max_new_tokens = 200, .temperature = 1, .top_p = 1}};
    if (!parse(&argc, argv, &a)) return 2;
    int own = ct_config_args_split(argc, argv);
    if (argc < 2) return fputs(help, stderr), 2;
    if (ct_check_file_argument("generate", own, argv)) return 2;
    ct_status status = generate(own == 2 ? argv[1] : NULL, argc - own, argv + own, &a);
    if (status) return fprintf(stderr, "ctitan generate: %s\n", ct_error_text(status)), 1;
    return ct_finish_output("generate");
}
