// `ctitan trace FOLDER`: what the ranks of a job did last, from the files that its flight recorder left.
#include "commands.h"
#include "comm/flight.h"

#include <stdio.h>
#include <string.h>

static const char help[] =
    "usage: ctitan trace FOLDER [--last N]\n\n"
    "Prints the last N (8) collectives of every rank, from the ring files that a job leaves in <job.dump_folder>/<comm.save_traces_folder>\n"
    "however it ends, and says which rank is behind. The files of a running job can be read as well.\n";

int ct_cmd_trace(int argc, char **argv) {
    for (int i = 1; i < argc; i++)
        if (!strcmp(argv[i], "--help") || !strcmp(argv[i], "-h")) return fputs(help, stdout), 0;
    int last = ct_take_count(&argc, argv, "--last");
    if (last < 0) return ct_misuse("trace", "--last: a number from 1 to 1000000 is wanted");
    if (argc < 2) return fputs(help, stderr), 2;
    if (ct_check_file_argument("trace", argc, argv)) return 2;
    ct_string text = {0};
    ct_status status = ct_flight_print(argv[1], last ? last : 8, &text);
    if (status) fprintf(stderr, "ctitan trace: %s\n", ct_error_text(status));
    else fputs(text.text, stdout);
    ct_string_deinit(&text);
    return status ? 1 : ct_finish_output("trace");
}
