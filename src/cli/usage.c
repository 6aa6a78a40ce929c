// Wrong usage: one line on standard error and exit status 2, the same words for every command.
#include "commands.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

int ct_take_flag(int *argc, char **argv, const char *flag) {
    for (int i = 1; i < *argc; i++) {
        if (strcmp(argv[i], flag)) continue;
        memmove(argv + i, argv + i + 1, sizeof *argv * (size_t)(*argc - i));
        --*argc;
        return 1;
    }
    return 0;
}

const char *ct_take_value(int *argc, char **argv, const char *flag) {
    for (int i = 1; i + 1 < *argc; i++) {
        if (strcmp(argv[i], flag)) continue;
        const char *value = argv[i + 1];
        memmove(argv + i, argv + i + 2, sizeof *argv * (size_t)(*argc - i - 1));
        *argc -= 2;
        return value;
    }
    return NULL;
}

int ct_take_count(int *argc, char **argv, const char *flag) {
    const char *text = ct_take_value(argc, argv, flag);
    if (!text) return 0;
    char *end;
    long ranks = strtol(text, &end, 10);
    return *text && !*end && ranks >= 1 && ranks <= 1000000 ? (int)ranks : -1;
}
