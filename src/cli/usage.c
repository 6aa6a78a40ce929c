// Wrong usage: one line on standard error and exit status 2, the same words for every command.
#include "commands.h"

#include <stdarg.h>
#include <stdio.h>

int ct_misuse(const char *command, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    fprintf(stderr, "ctitan %s: ", command);
    vfprintf(stderr, format, arguments);
    fprintf(stderr, "; see `ctitan %s --help`\n", command);
    va_end(arguments);
    return 2;
}

int ct_check_file_argument(const char *command, int own, char **argv) {
    for (int i = 1; i < own; i++)
        if (argv[i][0] == '-') return ct_misuse(command, "there is no option %s", argv[i]);
    return own > 2 ? ct_misuse(command, "'%s' is one argument too many", argv[2]) : 0;
}

int ct_finish_output(const char *command) {
    if (fflush(stdout) == 0 && !ferror(stdout)) return 0;
    fprintf(stderr, "ctitan %s: ", command);
    perror("writing to standard output");
    return 1;
}
