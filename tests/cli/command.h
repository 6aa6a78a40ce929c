// Running ctitan as a user does: a process with arguments, its exit status, what it printed, and a folder to work in.
#pragma once
#include "base/file.h"
#include "base/memory.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <cmocka.h>

// A fresh folder of a test, and the last command's outcome.
typedef struct {
    char *folder;
    int status;         // exit status, or 128 + the signal that ended it
    char *out, *err;    // what it printed
    long max_rss_kb;    // largest resident set
    double seconds;
    long file_bytes;    // > 0: no file may grow beyond this many bytes (a full disk)
    int closed_fd;           // > 0: this standard stream is closed
    const char *launcher; // words that go before the program: "mpirun -n 4"; NULL: none
    const char *stdout_path; // where standard output goes instead of out; NULL: out
} scene;

int scene_open(void **state); // cmocka set-up and tear-down
int scene_close(void **state);

// Runs `ctitan WORDS` in the source folder, words parted by blanks ("%20" in a word is a blank, "%%" in the format a per cent sign), and
// waits; gives the exit status. `~` at a word's beginning is the scene's folder.
int run(scene *s, const char *format, ...) __attribute__((format(printf, 2, 3)));

// The same in two halves: a process that goes on, and its end.
pid_t start(scene *s, const char *format, ...) __attribute__((format(printf, 2, 3)));
int finish(scene *s, pid_t process);

// Runs and wants this status; where it is not 0, exactly one message on standard error that has these words, begins with
// "ctitan <command>: " and nothing on standard output.
void expect(scene *s, int status, const char *words, const char *format, ...) __attribute__((format(printf, 4, 5)));

char *read_scene_file(scene *s, const char *name); // caller frees
void write_scene_file(scene *s, const char *name, const void *bytes, size_t size);
int has_scene_file(scene *s, const char *name);

// Position in text behind the first `key`, read as a number; fails where it isn't there.
double number_after(const char *text, const char *key);

// Folder of files that are not in the repository (CT_TESTDATA); NULL (after saying so) where it is absent.
const char *test_data(void);

// The numbers of a run that do not depend on time: every step's loss, norm, rate and tokens, every validation's loss, later lines of a
// step standing for earlier ones. Fails where two lines of a step differ. Caller frees.
char *curve_of(scene *s, const char *dump);

// torchtitan's smallest case, as a run into ~/<dump>.
#define BASE "train tests/train/fixtures/titan/base/config.toml --training.threads 1 --job.dump_folder ~/"
