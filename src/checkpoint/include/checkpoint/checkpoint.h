// Checkpoints: <root>/step-N/ holds shard-<rank>.safetensors and manifest.json, which says what tensors there are, which box of global
// indices of each lies in which file, every checksum, and the trainer's own state. A save is made in step-N.tmp and renamed when all of it
// is on the disk: a folder named step-N is whole, whatever happened when. Nothing here knows a model.
//
// manifest.json: {"format": "ctitan-checkpoint", "version": 1, "step", "files": {name: {"bytes", "xxh3_128"}}, "tensors": {name: {"dtype",
// "shape", "pieces": [{"file", "key", "offset", "extent", "xxh3_128"}]}}, "state": {…}, "manifest_xxh3_128"}; the last is of all bytes
// before it.
#pragma once
#include "base/memory.h"
#include "base/team.h"
#include "checkpoint/tensor.h"

// ---- saving -----------------------------------------------------------------------------------------------------------
typedef struct {
    const char *root; // made where it is not there
    int64_t step;     // ≥ 0
    const char *state_json; // a JSON object, kept as it is; NULL: {}
    int64_t keep_latest_k;  // afterwards older ones are removed, see ct_checkpoint_prune; 0: none
    ct_fetch_fn *fetch;     // for tensors whose data is NULL
    ct_progress_fn *progress;
    ct_warn_fn *warn; // told where an older checkpoint could not be removed
    void *context;    // of fetch, progress and warn
} ct_save_options;

// Saves from one rank: prepare, one shard, commit. On any error what was there before is untouched and loadable; a checkpoint of the
// same step is replaced at once or not at all. Errors: CT_IO with the file and the system's word, CT_INVALID.
ct_status ct_checkpoint_save(const ct_save_options *options, const ct_named_tensor *tensors, int count);

// The same in parts, for many ranks: one rank prepares (then a barrier), every rank writes its shard, the parts are gathered, one rank
// commits. What is replicated is passed in by one rank only. A part is text, caller deinits. Together the boxes must cover every tensor
// once. After an error on any rank, one abandons.
ct_status ct_checkpoint_prepare(const ct_save_options *options);
ct_status ct_checkpoint_shard_write(const ct_save_options *options, int rank, const ct_named_tensor *tensors, int count,
                                    ct_string *out_part);
ct_status ct_checkpoint_commit(const ct_save_options *options, const char *const *parts, int part_count);
void ct_checkpoint_abandon(const ct_save_options *options);

// ---- saving in the background -----------------------------------------------------------------------------------------
typedef struct ct_saver ct_saver;

typedef struct {
    void *staging;        // 64-byte-aligned storage of the caller's for copies, or NULL: reserved here and kept
    size_t staging_bytes; // its size; with staging NULL what is reserved at once (0: at the first save, which then stops for longer)
    ct_team *team;        // copies are shared out over it; NULL: the caller copies alone
} ct_saver_options;

ct_status ct_saver_create(const ct_saver_options *options, ct_saver **out_saver);
void ct_saver_destroy(ct_saver *saver); // waits for a save in flight

// Bytes of staging that these tensors need.
size_t ct_saver_staging_bytes(const ct_named_tensor *tensors, int count);

// Copies tensors, names and options into staging and returns; a thread writes them. The tensors may change as soon as this returns.
// Waits first for an earlier save (at most one is in flight) and returns its error, without starting another, if it failed.
// fetch is not allowed; progress and warn are called from the thread.
ct_status ct_checkpoint_save_begin(ct_saver *saver, const ct_save_options *options, const ct_named_tensor *tensors, int count);

// The same for one rank's shard of a save that has been prepared; its part comes from ct_checkpoint_shard_end.
ct_status ct_checkpoint_shard_begin(ct_saver *saver, const ct_save_options *options, int rank, const ct_named_tensor *tensors, int count);

// Waits for the save in flight and gives its status, once; CT_OK where there is none.
ct_status ct_checkpoint_save_wait(ct_saver *saver);
ct_status ct_checkpoint_shard_end(ct_saver *saver, ct_string *out_part); // caller deinits, after an error as well
int ct_checkpoint_save_is_running(ct_saver *saver); // 1 until the thread is through; never waits

// ---- finding ----------------------------------------------------------------------------------------------------------
typedef struct {
    int64_t step;
    char *path;
    size_t bytes;     // of the files the manifest names, and of itself
    int64_t time_s;   // when the manifest was written, seconds since 1970
    int whole;        // the manifest parses and all files have their sizes
    char *why;        // where not whole: one line; NULL else
} ct_checkpoint_info;

// All folders step-N below root, ascending. A root that is not there gives none. Caller frees with ct_checkpoint_list_free.
ct_status ct_checkpoint_list(const char *root, ct_checkpoint_info **out_infos, int *out_count);
void ct_checkpoint_list_free(ct_checkpoint_info *infos, int count);

// The path of a whole checkpoint: of this step, or (step = -1) the newest, those that are not whole being passed over with a warning.
// Errors: CT_NOT_FOUND, or CT_CORRUPT where it is there and not whole. With step = -1 and none there: CT_OK and out_path NULL.
// Caller frees out_path.
ct_status ct_checkpoint_find(const char *root, int64_t step, ct_warn_fn *warn, void *context, char **out_path);

// ---- loading ----------------------------------------------------------------------------------------------------------
typedef struct ct_checkpoint ct_checkpoint;

// Reads and checks the manifest in a step-N folder. Caller closes.
ct_status ct_checkpoint_open(const char *path, ct_checkpoint **out_checkpoint);
void ct_checkpoint_close(ct_checkpoint *checkpoint);
int64_t ct_checkpoint_step(const ct_checkpoint *checkpoint);
const char *ct_checkpoint_path(const ct_checkpoint *checkpoint);
const char *ct_checkpoint_state(const ct_checkpoint *checkpoint); // the JSON text handed in; borrowed
int ct_checkpoint_count(const ct_checkpoint *checkpoint);
ct_named_tensor ct_checkpoint_tensor(const ct_checkpoint *checkpoint, int index); // data NULL; name borrowed

// Fills the tensors' data by name, whole or the boxes asked for, from whatever pieces were written, converting f32 ↔ bf16 and checking
// every piece's XXH3. All names missing, unexpected or of another shape are in one message (CT_INVALID). CT_CORRUPT names file and
// tensor; data is then partly overwritten.
ct_status ct_checkpoint_load(const ct_checkpoint *checkpoint, const ct_load_options *options, const ct_named_tensor *tensors,
                             int count);

// Finds, opens and loads. step = -1: the newest; one that turns out damaged is passed over with a warning for the next older one, and none
// at all is CT_OK with out_checkpoint NULL. An explicit step is loaded or is an error. Caller closes.
ct_status ct_checkpoint_restore(const char *root, int64_t step, const ct_load_options *options, const ct_named_tensor *tensors,
                                int count, ct_checkpoint **out_checkpoint);

// ---- looking after them -----------------------------------------------------------------------------------------------
// Checks every checksum of a step-N folder. CT_CORRUPT names the first bad file and, where it lies in one, the tensor.
ct_status ct_checkpoint_verify(const char *path, ct_progress_fn *progress, void *context);

// Removes whole checkpoints but the newest keep_latest_k (0: keeps all) and the one of step keep_step (-1: none). The last whole one is never
// removed, damaged ones neither. Not while a save is in flight.
ct_status ct_checkpoint_prune(const char *root, int64_t keep_latest_k, int64_t keep_step);

// Removes what killed saves and removals left behind (step-N.tmp), files of ours only. Not while a save is in flight.
ct_status ct_checkpoint_clean(const char *root);
