// Processes of ctitan for tests.
#include "command.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { MOST_WORDS = 64 };

static double now_s(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

int scene_open(void **state) {
    char template[] = "/tmp/ct_cli_XXXXXX";
    scene *s = ct_calloc(1, sizeof *s);
    if (!mkdtemp(template)) return 1;
    s->folder = ct_strdup(template);
    *state = s;
    return 0;
}

int scene_close(void **state) {
    scene *s = *state;
    ct_status status = ct_folder_remove(s->folder);
    free(s->folder), free(s->out), free(s->err), free(s);
    return status != CT_OK;
}

// ---- processes ----
static void unescape(char *word) {
    for (char *at; (at = strstr(word, "%20"));) *at = ' ', memmove(at + 1, at + 3, strlen(at + 3) + 1);
}

static void into_file(scene *s, const char *name, int fd) {
    char *path = fd == STDOUT_FILENO && s->stdout_path ? ct_strdup(s->stdout_path) : ct_format("%s/%s", s->folder, name);
    if (!freopen(path, "w", fd == STDOUT_FILENO ? stdout : stderr)) _exit(126);
    free(path);
}

static void become(scene *s, char *line) {
    char *argv[2 * MOST_WORDS + 2] = {0}, *save = NULL, *launcher = s->launcher ? ct_strdup(s->launcher) : NULL;
    int n = 0;
    for (char *word = launcher ? strtok_r(launcher, " ", &save) : NULL; word && n < MOST_WORDS; word = strtok_r(NULL, " ", &save)) argv[n++] = word;
    argv[n++] = getenv("CT_BINARY");
    for (char *word = strtok_r(line, " ", &save); word && n < 2 * MOST_WORDS; word = strtok_r(NULL, " ", &save)) {
        argv[n++] = word[0] == '~' ? ct_format("%s%s", s->folder, word + 1) : word;
        unescape(argv[n - 1]);
    }
    struct rlimit limit = {(rlim_t)s->file_bytes, (rlim_t)s->file_bytes};
    into_file(s, ".stdout", STDOUT_FILENO);
    into_file(s, ".stderr", STDERR_FILENO);
    if (!freopen("/dev/null", "r", stdin) || chdir(CT_SOURCE_DIR)) _exit(126);
    if (s->file_bytes > 0 && setrlimit(RLIMIT_FSIZE, &limit)) _exit(126);
    if (launcher) setenv("ASAN_OPTIONS", "detect_leaks=0", 1); // MPI libraries keep what they have
    if (s->closed_fd > 0) close(s->closed_fd);
    execvp(argv[0], argv);
    _exit(127);
}

static pid_t start_list(scene *s, const char *format, va_list arguments) {
    assert_non_null(getenv("CT_BINARY"));
    char *line = NULL;
    assert_true(vasprintf(&line, format, arguments) >= 0);
    fflush(NULL);
    pid_t process = fork();
    assert_true(process >= 0);
    if (process == 0) become(s, line);
    free(line);
    s->seconds = now_s();
    return process;
}

pid_t start(scene *s, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    pid_t process = start_list(s, format, arguments);
    va_end(arguments);
    return process;
}

int finish(scene *s, pid_t process) {
    int status;
    struct rusage usage;
    assert_int_equal(wait4(process, &status, 0, &usage), process);
    s->seconds = now_s() - s->seconds;
    s->max_rss_kb = usage.ru_maxrss;
    free(s->out), free(s->err);
    s->out = s->stdout_path ? ct_strdup("") : read_scene_file(s, ".stdout");
    s->err = read_scene_file(s, ".stderr");
    return s->status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

int run(scene *s, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    pid_t process = start_list(s, format, arguments);
    va_end(arguments);
    return finish(s, process);
}

static int lines_of(const char *text) {
    int lines = 0;
    for (; *text; text++) lines += *text == '\n';
    return lines;
}

void expect(scene *s, int status, const char *words, const char *format, ...) {
    char *line = NULL, command[32] = "";
    va_list arguments;
    va_start(arguments, format);
    assert_true(vasprintf(&line, format, arguments) >= 0);
    va_end(arguments);
    run(s, "%s", line);
    sscanf(line, "%31s", command);
    char *begin = ct_format("ctitan %s: ", command);
    int is_good = s->status == status && strstr(status ? s->err : s->out, words);
    if (status) is_good = is_good && !s->out[0] && lines_of(s->err) == 1 && !strncmp(s->err, begin, strlen(begin));
    if (!is_good)
        fail_msg("%s: status %d, wanted %d and '%s'; it printed\n%s%s", line, s->status, status, words, s->out, s->err);
    free(begin), free(line);
}

// ---- files ----
char *read_scene_file(scene *s, const char *name) {
    char *path = ct_format("%s/%s", s->folder, name), *text;
    ct_status status = ct_file_read(path, 0, &text, NULL);
    if (status) fail_msg("%s", ct_error_text(status));
    free(path);
    return text;
}

void write_scene_file(scene *s, const char *name, const void *bytes, size_t size) {
    char *path = ct_format("%s/%s", s->folder, name);
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, size, file), size);
    assert_int_equal(fclose(file), 0);
    free(path);
}

int has_scene_file(scene *s, const char *name) {
    char *path = ct_format("%s/%s", s->folder, name);
    int has = ct_path_exists(path);
    free(path);
    return has;
}

double number_after(const char *text, const char *key) {
    const char *at = strstr(text, key);
    if (!at) fail_msg("no '%s' in %s", key, text);
    return strtod(at + strlen(key), NULL);
}

const char *test_data(void) {
    const char *folder = getenv("CT_TESTDATA");
    if (!folder) folder = CT_SOURCE_DIR "/../shared/data";
    if (ct_path_is_folder(folder)) return folder;
    printf("skipped: no folder %s (CT_TESTDATA)\n", folder);
    return NULL;
}

// ---- curves ----
enum { MOST_STEPS = 4096 };

// The line without what depends on time.
static char *timeless(const char *line, int64_t *out_step, int *out_is_validation) {
    static const char *const kept[] = {"loss", "grad_norm", "lr", "tokens_seen", "validation_loss", "validation_tokens"};
    cJSON *json = cJSON_Parse(line);
    if (!json) fail_msg("not JSON: %s", line);
    ct_string text = {0};
    *out_step = (int64_t)cJSON_GetObjectItemCaseSensitive(json, "step")->valuedouble;
    *out_is_validation = cJSON_HasObjectItem(json, "validation_loss");
    ct_string_add(&text, "%lld", (long long)*out_step);
    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++) {
        const cJSON *item = cJSON_GetObjectItemCaseSensitive(json, kept[i]);
        if (item) ct_string_add(&text, " %s %.17g", kept[i], item->valuedouble);
    }
    cJSON_Delete(json);
    return text.text;
}

char *curve_of(scene *s, const char *dump) {
    static char *found[2][MOST_STEPS];
    memset(found, 0, sizeof found);
    char *name = ct_format("%s/metrics.jsonl", dump), *text = read_scene_file(s, name), *save = NULL;
    for (char *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
        int64_t step;
        int validation;
        char *value = timeless(line, &step, &validation);
        assert_true(step > 0 && step < MOST_STEPS);
        char **place = &found[validation][step];
        if (*place) assert_string_equal(*place, value);
        free(*place);
        *place = value;
    }
    ct_string all = {0};
    ct_string_add(&all, "%s", "");
    for (int v = 0; v < 2; v++)
        for (int i = 0; i < MOST_STEPS; i++)
            if (found[v][i]) ct_string_add(&all, "%s\n", found[v][i]), free(found[v][i]);
    free(text), free(name);
    return all.text;
}
