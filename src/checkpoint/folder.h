// The folders of checkpoints: step-N, and step-N.tmp while one is made or taken away.
#pragma once
#include "base/status.h"
#include "checkpoint/checkpoint.h"

#define CT_MANIFEST_NAME "manifest.json"

char *ct_step_path(const char *root, int64_t step, const char *suffix); // "<root>/step-N<suffix>"; caller frees
int ct_step_of_name(const char *name, const char *suffix, int64_t *out_step); // 1 where name is "step-N<suffix>"

// Puts a finished step-N.tmp in the place of step-N; what stood there is then gone. Until it returns either is whole in its place.
ct_status ct_step_folder_commit(const char *root, int64_t step);

// Takes step-N away: renamed first, so that it is never half there.
ct_status ct_step_folder_discard(const char *root, int64_t step);

// Removes step-N.tmp, files of ours only: shards and manifest. One that is not there is success; one that holds other files is kept with
// them.
ct_status ct_step_folder_clean(const char *root, int64_t step);

ct_status ct_folder_sync(const char *path); // fsync

// As ct_checkpoint_find for the newest whole one of a step below `before`; out_path NULL where there is none.
ct_status ct_checkpoint_find_before(const char *root, int64_t before, ct_warn_fn *warn, void *context, char **out_path, int64_t *out_step);

// All N for which root has a step-N<suffix>, ascending; caller frees. A root that is not there has none.
ct_status ct_steps_in(const char *root, const char *suffix, int64_t **out_steps, int *out_count);
