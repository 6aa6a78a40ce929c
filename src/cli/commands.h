// The commands of `ctitan`. Each gets the arguments behind its name (argv[0] is the command's name) and returns the exit status.
#pragma once

typedef int ct_command_fn(int argc, char **argv);

typedef struct {
    const char *name;
    ct_command_fn *run;
    const char *summary; // one line for `ctitan --help`
} ct_command;

// Says what is wrong with the arguments and where help is; returns the exit status of wrong usage, 2.
int ct_misuse(const char *command, const char *format, ...) __attribute__((format(printf, 2, 3)));

// Arguments that are left after options and overrides were taken (argv[1] … argv[own - 1]): at most one, and no option. 0, or 2 after saying.
int ct_check_file_argument(const char *command, int own, char **argv);

// Removes a flag from the arguments; 1 where it was there.
int ct_take_flag(int *argc, char **argv, const char *flag);

// Removes `flag value` from the arguments; NULL where it isn't there.
const char *ct_take_value(int *argc, char **argv, const char *flag);

// Removes `flag N`: N, 0 where it isn't there, -1 where N is no number from 1 to 1000000.
int ct_take_count(int *argc, char **argv, const char *flag);

// Flushes standard output: 0, or 1 after saying why not all of it was written.
int ct_finish_output(const char *command);

ct_command_fn ct_cmd_config;
ct_command_fn ct_cmd_data;
ct_command_fn ct_cmd_train;
ct_command_fn ct_cmd_metrics;
ct_command_fn ct_cmd_plan;
ct_command_fn ct_cmd_graph;
ct_command_fn ct_cmd_generate;
ct_command_fn ct_cmd_checkpoint;
ct_command_fn ct_cmd_tokenizer;
ct_command_fn ct_cmd_trace;
ct_command_fn ct_cmd_schedule;
