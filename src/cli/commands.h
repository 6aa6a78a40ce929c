// The commands of `ctitan`. Each gets the arguments behind its name (argv[0] is the command's name) and returns the exit status.
#pragma once

typedef int ct_command_fn(int argc, char **argv);

typedef struct {
    const char *name;
    ct_command_fn *run;
    const char *summary; // one line for `ctitan --help`
} ct_command;

ct_command_fn ct_cmd_config;
ct_command_fn ct_cmd_data;
ct_command_fn ct_cmd_train;
ct_command_fn ct_cmd_metrics;
ct_command_fn ct_cmd_plan;
ct_command_fn ct_cmd_graph;
ct_command_fn ct_cmd_generate;
ct_command_fn ct_cmd_checkpoint;
ct_command_fn ct_cmd_tokenizer;
