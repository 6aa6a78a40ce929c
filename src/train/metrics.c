// What a run says of itself: a line on the console for people, one JSON object a line in metrics.jsonl for machines, TensorBoard on request.
// MFU is against this machine's own measured peak of the compute dtype.
#include "trainer_parts.h"
#include "base/file.h"
#include "kernels/peak.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

struct ct_metrics {
    const ct_config *config;
    const ct_model *model;
    FILE *jsonl;
    ct_events *events;
    double peak_flops; // of all ranks' teams
    int color, is_failure_said;
    int64_t tokens, steps; // since the last line
    double seconds, wait_s;
    double smoothed_step_s; // for the time left
};

size_t ct_rss_bytes(void) {
    FILE *f = fopen("/proc/self/statm", "r");
    if (!f) return 0;
    long long total, resident = 0;
    if (fscanf(f, "%lld %lld", &total, &resident) != 2) resident = 0;
    fclose(f);
    return (size_t)resident * (size_t)sysconf(_SC_PAGESIZE);
}

// One run a dump folder: two would mix their lines and clear away each other's checkpoints. The lock goes with the process.
static ct_status lock(int fd, const char *path) {
    CT_CHECK(flock(fd, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK, CT_INVALID, "another run is writing to %s", path);
    return CT_OK;
}

ct_status ct_metrics_check_free(const ct_config *config) {
    char *path = ct_format("%s/metrics.jsonl", config->job.dump_folder);
    int fd = open(path, O_RDWR | O_CLOEXEC | O_NONBLOCK);
    ct_status status = fd < 0 ? CT_OK : lock(fd, path);
    if (fd >= 0) close(fd);
    free(path);
    return status;
}

// Opens a file of lines for appending, after taking off the half of a line that a killed or full run left.
static ct_status open_lines(const char *path, FILE **out_file) {
    FILE *file = fopen(path, "a+");
    CT_CHECK(file, CT_IO, "cannot write %s: %s", path, strerror(errno));
    *out_file = file; // closed with the metrics, whatever comes
    CT_TRY(lock(fileno(file), path));
    long end = fseek(file, 0, SEEK_END) ? 0 : ftell(file), keep = end;
    for (; keep > 0 && !fseek(file, keep - 1, SEEK_SET) && fgetc(file) != '\n'; keep--) {}
    if (keep < end && ftruncate(fileno(file), keep))
        fprintf(stderr, "ctitan: %s ends in half a line\n", path);
    return CT_OK;
}

ct_status ct_metrics_open(const ct_config *config, const ct_model *model, ct_team *team, ct_dtype compute, double teams, ct_metrics **out) {
    ct_metrics m = {.config = config, .model = model};
    CT_TRY(ct_folder_make(config->job.dump_folder));
    char *path = ct_format("%s/metrics.jsonl", config->job.dump_folder);
    ct_status status = open_lines(path, &m.jsonl);
    free(path);
    if (!status && config->metrics.enable_tensorboard) {
        char *folder = ct_format("%s/%s", config->job.dump_folder, config->metrics.save_tb_folder);
        status = ct_events_open(folder, &m.events);
        free(folder);
    }
    if (!status) status = ct_peak_get(compute, team, &m.peak_flops);
    m.peak_flops *= teams;
    m.color = !config->metrics.disable_color_printing && isatty(STDOUT_FILENO);
    *out = ct_malloc(sizeof m);
    **out = m;
    if (status) {
        ct_metrics_close(*out);
        *out = NULL;
    }
    return status;
}

void ct_metrics_close(ct_metrics *m) {
    if (!m) return;
    if (m->jsonl) fclose(m->jsonl);
    ct_events_close(m->events);
    free(m);
}

static void duration(double s, char *out, size_t size) {
    if (s < 60) snprintf(out, size, "%.0fs", s);
    else if (s < 3600) snprintf(out, size, "%dm%02ds", (int)s / 60, (int)s % 60);
    else snprintf(out, size, "%dh%02dm", (int)(s / 3600), (int)(s / 60) % 60);
}

typedef struct {
    double tokens_per_second, tflops, mfu, seconds, memory_bytes;
} rates;

static void print_line(const ct_metrics *m, const ct_step_report *r, const rates *x) {
    char left[32];
    duration(m->smoothed_step_s * (double)(m->config->training.steps - r->step), left, sizeof left);
    const char *on[5] = {"\033[32m", "\033[33m", "\033[36m", "\033[35m", "\033[0m"}, *off[5] = {"", "", "", "", ""};
    const char **c = m->color ? on : off;
    printf("step %*lld/%lld  %sloss %8.5f%s  grad_norm %s%8.4f%s  lr %.2e  %s%8.0f tokens/s  %.3f TFLOP/s  MFU %4.1f%%%s  mem %.2f GB  left %s\n",
           (int)snprintf(NULL, 0, "%lld", (long long)m->config->training.steps), (long long)r->step,
           (long long)m->config->training.steps, c[0], r->loss, c[4], c[1], r->grad_norm, c[4], r->lr, c[2], x->tokens_per_second,
           x->tflops, 100 * x->mfu, c[4], x->memory_bytes / 1e9, left);
    fflush(stdout);
}

// A line that can't be written is said once; training goes on, for its weights are worth more.
static void flush_lines(ct_metrics *m) {
    if (fflush(m->jsonl) == 0 && !ferror(m->jsonl)) return;
    if (!m->is_failure_said)
        fprintf(stderr, "ctitan: cannot write %s/metrics.jsonl: %s; training goes on\n", m->config->job.dump_folder, strerror(errno));
    m->is_failure_said = 1;
    clearerr(m->jsonl);
}

static void write_json(ct_metrics *m, const ct_step_report *r, const rates *x, int64_t tokens_seen) {
    fprintf(m->jsonl,
            "{\"step\": %lld, \"loss\": %.9g, \"grad_norm\": %.9g, \"lr\": %.9g, \"tokens_per_second\": %.6g, \"tflops\": %.6g, "
            "\"mfu\": %.6g, \"seconds\": %.6g, \"data_wait_seconds\": %.6g, \"memory_bytes\": %.0f, \"tokens_seen\": %lld}\n",
            (long long)r->step, r->loss, r->grad_norm, r->lr, x->tokens_per_second, x->tflops, x->mfu, x->seconds, m->wait_s,
            x->memory_bytes, (long long)tokens_seen);
    flush_lines(m);
}

static void write_events(const ct_metrics *m, const ct_step_report *r, const rates *x, int64_t tokens_seen) {
    const struct {
        const char *tag;
        double value;
    } scalars[] = {{"loss_metrics/global_avg_loss", r->loss},    {"loss_metrics/global_max_loss", r->loss},
                   {"grad_norm", r->grad_norm},                  {"lr", r->lr},
                   {"n_tokens_seen", (double)tokens_seen},       {"throughput(tps)", x->tokens_per_second},
                   {"tflops", x->tflops},                        {"mfu(%)", 100 * x->mfu},
                   {"time_metrics/end_to_end(s)", x->seconds},   {"time_metrics/data_loading(s)", m->wait_s / (double)m->steps},
                   {"memory/max_active(GiB)", x->memory_bytes / 1073741824.0}};
    for (size_t i = 0; i < sizeof scalars / sizeof *scalars; i++)
        ct_events_scalar(m->events, scalars[i].tag, r->step, scalars[i].value);
    ct_events_flush(m->events);
}

void ct_metrics_step(ct_metrics *m, const ct_step_report *r, int64_t tokens_seen, int force) {
    m->tokens += r->tokens;
    m->steps++;
    m->seconds += r->seconds;
    m->wait_s += r->data_wait_s;
    m->smoothed_step_s = m->smoothed_step_s > 0 ? 0.9 * m->smoothed_step_s + 0.1 * r->seconds : r->seconds;
    if (r->step != 1 && r->step % m->config->metrics.log_freq != 0 && !force) return;
    double flops = ct_model_step_flops(m->model, (double)m->tokens, (double)m->config->training.seq_len);
    rates x = {.tokens_per_second = (double)m->tokens / m->seconds,
               .tflops = flops / m->seconds / 1e12,
               .mfu = flops / m->seconds / m->peak_flops,
               .seconds = m->seconds / (double)m->steps,
               .memory_bytes = (double)ct_rss_bytes()};
    print_line(m, r, &x);
    write_json(m, r, &x, tokens_seen);
    if (m->events) write_events(m, r, &x, tokens_seen);
    m->tokens = m->steps = 0;
    m->seconds = m->wait_s = 0;
}

void ct_metrics_validation(ct_metrics *m, int64_t step, int average, double loss, int64_t tokens, double seconds) {
    const char *prefix = average ? "ema_" : "";
    printf("validate step %lld  %sloss %8.5f  perplexity %.2f  %lld tokens in %.1fs\n", (long long)step, average ? "ema " : "", loss, exp(loss),
           (long long)tokens, seconds);
    fflush(stdout);
    fprintf(m->jsonl, "{\"step\": %lld, \"%svalidation_loss\": %.9g, \"validation_tokens\": %lld, \"seconds\": %.6g}\n",
            (long long)step, prefix, loss, (long long)tokens, seconds);
    flush_lines(m);
    if (!m->events) return;
    ct_events_scalar(m->events, average ? "validation_metrics/ema_loss" : "validation_metrics/loss", step, loss);
    ct_events_flush(m->events);
}
