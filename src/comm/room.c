// How much memory there is, before it is asked for: Linux promises more than it has and kills whoever touches what is not there.
#include "world.h"

#include <stdlib.h>
#include <string.h>

// The number behind `key` at a line's beginning of a small file (key "": the file's one number); -1: not there, or no number.
static double number_in(const char *path, const char *key) {
    FILE *f = fopen(path, "r");
    if (!f) return -1;
    char line[256];
    double found = -1;
    size_t n = strlen(key);
    while (found < 0 && fgets(line, sizeof line, f)) {
        char *end;
        if (strncmp(line, key, n)) continue;
        double number = strtod(line + n, &end);
        if (end > line + n) found = number;
    }
    fclose(f);
    return found;
}

static double least(double a, double b) { return b >= 0 && (a < 0 || b < a) ? b : a; }
static double positive(double a) { return a > 0 ? a : 0; }

// How the two versions of control groups name things.
typedef struct {
    const char *line, *root, *most, *used; // line: where /proc/self/cgroup names our folder below root
} cgroup_version;
static const cgroup_version versions[] = {{"0::", "/sys/fs/cgroup", "memory.max", "memory.current"},
                                          {"memory:", "/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes"}};

// What a control group leaves: its limit less what is in use and can't be dropped. -1: no limit.
static double room_of_group(const char *folder, const cgroup_version *v) {
    char path[800];
    snprintf(path, sizeof path, "%s/%s", folder, v->most);
    double most = number_in(path, "");
    if (most < 0) return -1;
    snprintf(path, sizeof path, "%s/%s", folder, v->used);
    double used = positive(number_in(path, ""));
    snprintf(path, sizeof path, "%s/memory.stat", folder);
    return positive(most - used + positive(number_in(path, "inactive_file ")) + positive(number_in(path, "active_file ")));
}

// The tightest of this group and those above it.
static double room_of_path(const char *path, const cgroup_version *v) {
    char folder[700];
    double room = -1;
    snprintf(folder, sizeof folder, "%s%s", v->root, path);
    while (strlen(folder) >= strlen(v->root)) {
        room = least(room, room_of_group(folder, v));
        *strrchr(folder, '/') = 0;
    }
    return room;
}

static double room_of_groups(void) {
    FILE *f = fopen("/proc/self/cgroup", "r");
    char line[600];
    double room = -1;
    while (f && fgets(line, sizeof line, f)) {
        line[strcspn(line, "\n")] = 0;
        for (size_t i = 0; i < sizeof versions / sizeof *versions; i++) {
            const char *at = strstr(line, versions[i].line);
            if (at) room = least(room, room_of_path(at + strlen(versions[i].line), &versions[i]));
        }
    }
    if (f) fclose(f);
    return room;
}

ct_status ct_check_room(size_t bytes, int ranks) {
    double kilobytes = number_in("/proc/meminfo", "MemAvailable:");
    double room = least(kilobytes < 0 ? -1 : kilobytes * 1024, room_of_groups());
    CT_CHECK(room < 0 || (double)bytes <= room, CT_NO_MEMORY, "%.2f GB of shared memory are wanted for %d ranks, and %.2f GB of memory are free here",
             (double)bytes / 1e9, ranks, room / 1e9);
    return CT_OK;
}
