// `ctitan COMMAND …`: finds the command in the table and runs it. A new command is a file cmd_<name>.c and a line here.
#include "commands.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const ct_command commands[] = {
    {"train", ct_cmd_train, "train a model that a TOML file describes"},
    {"plan", ct_cmd_plan, "what a step will do: FLOPs, bytes, the peak and what is at it"},
    {"generate", ct_cmd_generate, "text from a trained model"},
    {"metrics", ct_cmd_metrics, "a run's summary and loss curve"},
    {"graph", ct_cmd_graph, "the graph of a step as text, parseable back; the op table"},
    {"config", ct_cmd_config, "every key and its meaning; every value of a run and where it came from"},
    {"data", ct_cmd_data, "build a tokenised corpus from text; describe one"},
    {"checkpoint", ct_cmd_checkpoint, "list, verify, import and export checkpoints"},
    {"tokenizer", ct_cmd_tokenizer, "train a tokenizer; encode and decode; describe one"},
    {"schedule", ct_cmd_schedule, "a pipeline schedule by itself: its bubble, its memory, a picture"},
    {"trace", ct_cmd_trace, "what the ranks of a job did last, from its flight recorder"},
    {0},
};

static void print_help(FILE *out) {
    fputs("ctitan: pre-training of large language models, in C\n\nusage: ctitan COMMAND [arguments]\n\n", out);
    for (const ct_command *c = commands; c->name; c++) fprintf(out, "  %-11s %s\n", c->name, c->summary);
    fputs("\n`ctitan COMMAND --help` explains a command; `ctitan --version` prints the version.\n", out);
}

// Where a standard stream is closed (`>&-`), the next file opened would get its number, and be written to by every message.
static void open_standard_streams(void) {
    int fd;
    while ((fd = open("/dev/null", O_RDWR)) >= 0 && fd <= STDERR_FILENO) {}
    if (fd >= 0) close(fd);
}

int main(int argc, char **argv) {
    open_standard_streams();
    if (argc < 2) return print_help(stderr), 2;
    if (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h") || !strcmp(argv[1], "help"))
        return print_help(stdout), 0;
    if (!strcmp(argv[1], "--version")) return puts("ctitan " CT_VERSION), 0;
    signal(SIGXFSZ, SIG_IGN); // a file beyond its limit (ulimit -f) is an error of writing, with a message, not the end
    for (const ct_command *c = commands; c->name; c++)
        if (!strcmp(argv[1], c->name)) return c->run(argc - 1, argv + 1);
    fprintf(stderr, "ctitan: there is no command '%s'; see `ctitan --help`\n", argv[1]);
    return 2;
}
