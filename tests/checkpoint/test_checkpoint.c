// Checkpoints: what is saved is what is loaded, whole or cut differently; what does not fit or is damaged is named; the newest whole one is
// found; old ones go and never the last.
#include "support.h"

#include <sys/stat.h>

typedef struct {
    ct_arena arena;
    const char *root;
    char warnings[4096];
} scene;

static int open_scene(void **state) {
    scene *s = calloc(1, sizeof *s);
    void *root;
    if (make_folder(&root)) return 1;
    s->root = root;
    *state = s;
    return 0;
}

static int close_scene(void **state) {
    scene *s = *state;
    void *root = (void *)(uintptr_t)s->root;
    ct_arena_deinit(&s->arena);
    free(s);
    return remove_folder(&root);
}

static void on_warning(void *context, const char *text) {
    scene *s = context;
    assert_null(strchr(text, '\n'));
    snprintf(s->warnings + strlen(s->warnings), sizeof s->warnings - strlen(s->warnings), "%s\n", text);
}

static void save_step(scene *s, int64_t step, int64_t keep) {
    ct_named_tensor *tensors = make_tensors(&s->arena, (uint64_t)step);
    char state[64];
    snprintf(state, sizeof state, "{\"data\": {\"position\": %lld}, \"seed\": \"a\\\"b\"}", (long long)step * 10);
    OK(ct_checkpoint_save(&(ct_save_options){.root = s->root, .step = step, .state_json = state, .keep_latest_k = keep}, tensors, TENSORS));
}

static const char *file_of(scene *s, int64_t step, const char *name) {
    return ct_arena_format(&s->arena, "%s/step-%lld/%s", s->root, (long long)step, name);
}

static int64_t restored_step(scene *s, int64_t step) {
    ct_named_tensor *loaded = empty_tensors(&s->arena);
    ct_checkpoint *checkpoint;
    s->warnings[0] = 0;
    OK(ct_checkpoint_restore(s->root, step, &(ct_load_options){.warn = on_warning, .context = s}, loaded, TENSORS, &checkpoint));
    if (!checkpoint) return -1;
    int64_t found = ct_checkpoint_step(checkpoint);
    ct_checkpoint_close(checkpoint);
    assert_true(same_data(loaded, make_tensors(&s->arena, (uint64_t)found), TENSORS));
    return found;
}

// ---- round trips ----
static void what_is_saved_is_loaded(void **state) {
    scene *s = *state;
    save_step(s, 7, 0);
    char *path;
    OK(ct_checkpoint_find(s->root, -1, NULL, NULL, &path));
    ct_checkpoint *checkpoint;
    OK(ct_checkpoint_open(path, &checkpoint));
    free(path);
    assert_int_equal(ct_checkpoint_step(checkpoint), 7);
    assert_int_equal(ct_checkpoint_count(checkpoint), TENSORS);
    assert_string_equal(ct_checkpoint_state(checkpoint), "{\"data\": {\"position\": 70}, \"seed\": \"a\\\"b\"}");
    ct_named_tensor *loaded = empty_tensors(&s->arena);
    OK(ct_checkpoint_load(checkpoint, NULL, loaded, TENSORS));
    assert_true(same_data(loaded, make_tensors(&s->arena, 7), TENSORS));
    ct_checkpoint_close(checkpoint);
    OK(ct_checkpoint_verify(file_of(s, 7, ""), NULL, NULL));
}

static void f32_and_bf16_are_converted(void **state) {
    scene *s = *state;
    save_step(s, 1, 0);
    float from_bf16[60];
    uint16_t from_f32[12];
    ct_named_tensor wanted[] = {
        {.name = "layers.0.attention.wq.weight", .dtype = CT_F32, .dims = 2, .shape = {12, 5}, .data = from_bf16},
        {.name = "layers.0.attention_norm.weight", .dtype = CT_BF16, .dims = 1, .shape = {12}, .data = from_f32}};
    ct_checkpoint *checkpoint;
    OK(ct_checkpoint_restore(s->root, 1, &(ct_load_options){.allow_unexpected = 1}, wanted, 2, &checkpoint));
    ct_checkpoint_close(checkpoint);
    ct_named_tensor *saved = make_tensors(&s->arena, 1);
    for (int i = 0; i < 60; i++) assert_true(from_bf16[i] == ct_f32_from_bf16(((uint16_t *)saved[1].data)[i]));
    for (int i = 0; i < 12; i++) assert_int_equal(from_f32[i], ct_bf16_from_f32(((float *)saved[2].data)[i]));
    wanted[0].dtype = CT_I32;
    expect_error(ct_checkpoint_restore(s->root, 1, &(ct_load_options){.allow_unexpected = 1}, wanted, 1, &checkpoint), CT_UNSUPPORTED,
                 "shard-0.safetensors", "wq", "BF16", "i32", NULL);
}

// ---- boxes ----
// A 9 x 8 tensor cut by `rows` and `columns` ranks, unevenly; element (i, j) = 100 i + j.
static ct_named_tensor cut(scene *s, int rows, int columns, int rank, int filled) {
    int r = rank / columns, c = rank % columns, height = (9 + rows - 1) / rows, width = (8 + columns - 1) / columns;
    ct_named_tensor t = {.name = "w", .dtype = CT_F32, .dims = 2, .shape = {9, 8}, .is_piece = 1};
    t.box.offset[0] = r * height < 9 ? r * height : 9, t.box.extent[0] = r * height + height < 9 ? height : 9 - t.box.offset[0];
    t.box.offset[1] = c * width < 8 ? c * width : 8, t.box.extent[1] = c * width + width < 8 ? width : 8 - t.box.offset[1];
    float *data = t.data = ct_arena_alloc(&s->arena, 4 * 72 + 4);
    for (int64_t i = 0; i < t.box.extent[0]; i++)
        for (int64_t j = 0; j < t.box.extent[1]; j++)
            data[i * t.box.extent[1] + j] = filled ? (float)(100 * (t.box.offset[0] + i) + t.box.offset[1] + j) : -1;
    return t;
}

static void save_cut(scene *s, int rows, int columns) {
    ct_save_options options = {.root = s->root, .step = 1};
    OK(ct_checkpoint_prepare(&options));
    ct_string parts[16] = {{0}};
    const char *texts[16];
    for (int rank = 0; rank < rows * columns; rank++) {
        ct_named_tensor t = cut(s, rows, columns, rank, 1);
        OK(ct_checkpoint_shard_write(&options, rank, &t, 1, &parts[rank]));
        texts[rank] = parts[rank].text;
    }
    OK(ct_checkpoint_commit(&options, texts, rows * columns));
    for (int rank = 0; rank < rows * columns; rank++) ct_string_deinit(&parts[rank]);
}

static void what_one_mesh_wrote_any_other_loads(void **state) {
    scene *s = *state;
    static const int meshes[][2] = {{1, 1}, {2, 1}, {1, 3}, {4, 2}, {5, 3}, {3, 4}}; // {5, ·} leaves ranks with little or nothing
    for (int from = 0; from < 6; from++) {
        save_cut(s, meshes[from][0], meshes[from][1]);
        OK(ct_checkpoint_verify(file_of(s, 1, ""), NULL, NULL));
        for (int to = 0; to < 6; to++)
            for (int skip = 0; skip < 2; skip++)
                for (int rank = 0; rank < meshes[to][0] * meshes[to][1]; rank++) {
                    ct_named_tensor got = cut(s, meshes[to][0], meshes[to][1], rank, 0);
                    ct_named_tensor expected = cut(s, meshes[to][0], meshes[to][1], rank, 1);
                    ct_checkpoint *checkpoint;
                    OK(ct_checkpoint_restore(s->root, -1, &(ct_load_options){.skip_checksums = skip}, &got, 1, &checkpoint));
                    ct_checkpoint_close(checkpoint);
                    assert_true(same_data(&got, &expected, 1));
                }
    }
}

static void parts_that_do_not_cover_a_tensor_once_are_refused(void **state) {
    scene *s = *state;
    ct_save_options options = {.root = s->root, .step = 1};
    for (int twice = 0; twice < 2; twice++) {
        OK(ct_checkpoint_prepare(&options));
        ct_named_tensor first = cut(s, 2, 1, 0, 1), second = twice ? cut(s, 1, 1, 0, 1) : cut(s, 3, 1, 2, 1);
        ct_string parts[2] = {{0}};
        OK(ct_checkpoint_shard_write(&options, 0, &first, 1, &parts[0]));
        OK(ct_checkpoint_shard_write(&options, 1, &second, 1, &parts[1]));
        expect_error(ct_checkpoint_commit(&options, (const char *const[]){parts[0].text, parts[1].text}, 2), CT_CORRUPT, "tensor w",
                     twice ? "overlap" : "72 elements", NULL);
        ct_checkpoint_abandon(&options);
        ct_string_deinit(&parts[0]), ct_string_deinit(&parts[1]);
    }
    assert_int_equal(restored_step(s, -1), -1);
}

// ---- what does not fit ----
static void what_does_not_fit_is_named_in_one_message(void **state) {
    scene *s = *state;
    save_step(s, 3, 0);
    ct_named_tensor *loaded = empty_tensors(&s->arena);
    loaded[0].shape[0] = 36;
    loaded[2].name = "layers.0.ffn_norm.weight";
    ct_checkpoint *checkpoint;
    expect_error(ct_checkpoint_restore(s->root, -1, NULL, loaded, TENSORS, &checkpoint), CT_INVALID, "step-3",
                 "1 missing (layers.0.ffn_norm.weight)", "1 not asked for (layers.0.attention_norm.weight)",
                 "tok_embeddings.weight: [37, 12] stored, [36, 12] wanted", NULL);
    static const char *const optimizer[] = {"optimizer.", "counts", "step", "nothing"};
    loaded = empty_tensors(&s->arena);
    OK(ct_checkpoint_restore(s->root, -1, &(ct_load_options){.ignored_prefixes = optimizer, .ignored_count = 4}, loaded, 3, &checkpoint));
    ct_checkpoint_close(checkpoint);
    assert_true(same_data(loaded, make_tensors(&s->arena, 3), 3));
}

static void bad_saves_are_refused(void **state) {
    scene *s = *state;
    ct_named_tensor *t = make_tensors(&s->arena, 1);
    ct_save_options options = {.root = s->root, .step = 1};
    t[1].name = t[0].name;
    expect_error(ct_checkpoint_save(&options, t, TENSORS), CT_INVALID, "tok_embeddings.weight", "two tensors", NULL);
    options.step = -1;
    expect_error(ct_checkpoint_save(&options, t, 1), CT_INVALID, "step -1", NULL);
    options.step = 1, options.state_json = "{\"a\": 1";
    expect_error(ct_checkpoint_save(&options, t, 1), CT_INVALID, "state", NULL);
    assert_int_equal(restored_step(s, -1), -1);
}

// ---- damage ----
static size_t size_of(const char *path) {
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    return (size_t)st.st_size;
}

static void flip_bit(const char *path, size_t bit) {
    FILE *file = fopen(path, "r+b");
    assert_int_equal(fseek(file, (long)(bit / 8), SEEK_SET), 0);
    int byte = fgetc(file);
    assert_int_equal(fseek(file, (long)(bit / 8), SEEK_SET), 0);
    fputc(byte ^ 1 << bit % 8, file);
    assert_int_equal(fclose(file), 0);
}

static void every_cut_off_manifest_is_rejected(void **state) {
    scene *s = *state;
    save_step(s, 1, 0);
    save_step(s, 2, 0);
    const char *path = file_of(s, 2, "manifest.json");
    size_t size;
    char *bytes = read_all(path, &size);
    for (size_t n = size; n-- > 0;) {
        assert_int_equal(truncate(path, (off_t)n), 0);
        ct_checkpoint *checkpoint;
        expect_error(ct_checkpoint_open(file_of(s, 2, ""), &checkpoint), CT_CORRUPT, "manifest.json", NULL);
    }
    assert_int_equal(restored_step(s, -1), 1);
    assert_non_null(strstr(s->warnings, "step-2/manifest.json"));
    write_all(path, bytes, size);
    assert_int_equal(restored_step(s, -1), 2);
    free(bytes);
}

static void every_changed_bit_of_a_manifest_is_found(void **state) {
    scene *s = *state;
    save_step(s, 2, 0);
    const char *path = file_of(s, 2, "manifest.json");
    size_t size = size_of(path);
    for (size_t bit = 0; bit < 8 * size; bit++) {
        flip_bit(path, bit);
        ct_checkpoint *checkpoint;
        expect_error(ct_checkpoint_open(file_of(s, 2, ""), &checkpoint), CT_CORRUPT, "manifest.json", NULL);
        flip_bit(path, bit);
    }
    assert_int_equal(restored_step(s, -1), 2);
}

static void every_cut_off_shard_is_rejected(void **state) {
    scene *s = *state;
    save_step(s, 1, 0);
    save_step(s, 2, 0);
    const char *path = file_of(s, 2, "shard-0.safetensors");
    size_t size;
    char *bytes = read_all(path, &size), *found;
    ct_named_tensor *loaded = empty_tensors(&s->arena);
    for (size_t n = size; n-- > 0;) {
        assert_int_equal(truncate(path, (off_t)n), 0);
        expect_error(ct_checkpoint_find(s->root, 2, NULL, NULL, &found), CT_CORRUPT, "shard-0.safetensors", NULL);
        ct_checkpoint *checkpoint;
        OK(ct_checkpoint_open(file_of(s, 2, ""), &checkpoint));
        expect_error(ct_checkpoint_load(checkpoint, NULL, loaded, TENSORS), CT_CORRUPT, "shard-0.safetensors", NULL);
        ct_checkpoint_close(checkpoint);
    }
    assert_int_equal(restored_step(s, -1), 1);
    free(bytes);
}

static void every_changed_bit_of_a_shard_is_found(void **state) {
    scene *s = *state;
    save_step(s, 2, 0);
    const char *path = file_of(s, 2, "shard-0.safetensors"), *folder = file_of(s, 2, "");
    size_t size = size_of(path), named = 0;
    for (size_t bit = 0; bit < 8 * size; bit += bit % 8 == 5 ? 3 : 5) {
        flip_bit(path, bit);
        ct_status status = ct_checkpoint_verify(folder, NULL, NULL);
        expect_error(status, CT_CORRUPT, "shard-0.safetensors", NULL);
        named += strstr(ct_error_text(status), "tensor ") != NULL;
        flip_bit(path, bit);
    }
    assert_true(named > size / 4);
    assert_int_equal(restored_step(s, -1), 2);
}

static void damage_is_an_error_when_asked_for_and_passed_over_else(void **state) {
    scene *s = *state;
    save_step(s, 1, 0);
    save_step(s, 2, 0);
    const char *path = file_of(s, 2, "shard-0.safetensors");
    size_t size;
    char *bytes = read_all(path, &size);
    bytes[size - 1] ^= 1; // the last tensor: bf16, the narrowest
    write_all(path, bytes, size);
    free(bytes);
    ct_named_tensor *loaded = empty_tensors(&s->arena);
    ct_checkpoint *checkpoint;
    expect_error(ct_checkpoint_restore(s->root, 2, NULL, loaded, TENSORS, &checkpoint), CT_CORRUPT, path,
                 "layers.0.attention.wq.weight is damaged", NULL);
    assert_int_equal(restored_step(s, -1), 1);
    assert_non_null(strstr(s->warnings, "wq.weight is damaged"));
    expect_error(ct_checkpoint_verify(file_of(s, 2, ""), NULL, NULL), CT_CORRUPT, "layers.0.attention.wq.weight", NULL);
    expect_error(ct_checkpoint_restore(s->root, 9, NULL, loaded, TENSORS, &checkpoint), CT_NOT_FOUND, "step 9", NULL);
    OK(ct_folder_remove(file_of(s, 1, "")));
    expect_error(ct_checkpoint_restore(s->root, -1, NULL, loaded, TENSORS, &checkpoint), CT_CORRUPT, "wq.weight is damaged", NULL);
}

// ---- which are there ----
static void folders_that_are_no_checkpoints_are_passed_over(void **state) {
    scene *s = *state;
    assert_int_equal(restored_step(s, -1), -1);
    save_step(s, 5, 0);
    OK(ct_folder_make(file_of(s, 900, "torch"))); // no manifest: another program's
    OK(ct_folder_make(ct_arena_format(&s->arena, "%s/step-007", s->root)));
    OK(ct_folder_make(ct_arena_format(&s->arena, "%s/step-99999999999999999999", s->root)));
    OK(ct_folder_make(ct_arena_format(&s->arena, "%s/step-6.tmp", s->root)));
    rename(file_of(s, 5, ""), file_of(s, 12, "")); // a manifest that speaks of another step
    save_step(s, 4, 0);
    assert_int_equal(restored_step(s, -1), 4);
    assert_non_null(strstr(s->warnings, "step-900 has no manifest.json"));
    assert_non_null(strstr(s->warnings, "is of step 5"));
    ct_checkpoint_info *infos;
    int count;
    OK(ct_checkpoint_list(s->root, &infos, &count));
    assert_int_equal(count, 3);
    assert_true(infos[0].whole && infos[0].step == 4 && infos[0].bytes > 2000 && infos[0].time_s > 1600000000);
    assert_false(infos[1].whole || infos[2].whole);
    ct_checkpoint_list_free(infos, count);
    ct_status status = ct_checkpoint_list(ct_arena_format(&s->arena, "%s/nowhere", s->root), &infos, &count);
    OK(status);
    assert_int_equal(count, 0);
    ct_checkpoint_list_free(infos, count);
}

static int has_step(scene *s, int64_t step) { return ct_path_exists(file_of(s, step, "manifest.json")); }

static void old_ones_go_and_the_newest_stay(void **state) {
    scene *s = *state;
    for (int64_t step = 10; step <= 50; step += 10) save_step(s, step, 3);
    assert_false(has_step(s, 10) || has_step(s, 20));
    assert_true(has_step(s, 30) && has_step(s, 40) && has_step(s, 50));
    save_step(s, 35, 2); // an older step, as after going back: what was just written stays
    assert_true(has_step(s, 35) && has_step(s, 40) && has_step(s, 50));
    assert_false(has_step(s, 30));
    truncate(file_of(s, 50, "shard-0.safetensors"), 100);
    truncate(file_of(s, 40, "shard-0.safetensors"), 100);
    OK(ct_checkpoint_prune(s->root, 1, -1));
    assert_true(has_step(s, 35)); // the last whole one
    OK(ct_checkpoint_prune(s->root, 0, -1));
    assert_int_equal(restored_step(s, -1), 35);
}

static void a_step_is_replaced_at_once(void **state) {
    scene *s = *state;
    save_step(s, 5, 0);
    ct_named_tensor *other = make_tensors(&s->arena, 99), *loaded = empty_tensors(&s->arena);
    OK(ct_checkpoint_save(&(ct_save_options){.root = s->root, .step = 5}, other, TENSORS));
    ct_checkpoint *checkpoint;
    OK(ct_checkpoint_restore(s->root, 5, NULL, loaded, TENSORS, &checkpoint));
    assert_string_equal(ct_checkpoint_state(checkpoint), "{}");
    ct_checkpoint_close(checkpoint);
    assert_true(same_data(loaded, other, TENSORS));
    assert_false(ct_path_exists(ct_arena_format(&s->arena, "%s/step-5.tmp", s->root)));
}

static void cleaning_takes_only_what_is_ours(void **state) {
    scene *s = *state;
    save_step(s, 1, 0);
    const char *leftover = ct_arena_format(&s->arena, "%s/step-2.tmp", s->root), *mixed = ct_arena_format(&s->arena, "%s/step-3.tmp", s->root);
    OK(ct_folder_make(leftover));
    OK(ct_folder_make(mixed));
    write_all(join(&s->arena, leftover, "shard-0.safetensors"), "half", 4);
    write_all(join(&s->arena, leftover, "manifest.json.tmp"), "{", 1);
    write_all(join(&s->arena, mixed, "notes.txt"), "mine", 4);
    write_all(join(&s->arena, mixed, "manifest.json"), "{", 1);
    OK(ct_checkpoint_clean(s->root));
    assert_false(ct_path_exists(join(&s->arena, mixed, "manifest.json")));
    assert_false(ct_path_exists(leftover));
    assert_true(ct_path_exists(join(&s->arena, mixed, "notes.txt")));
    rename(file_of(s, 1, ""), ct_arena_format(&s->arena, "%s/step-1.old", s->root)); // a replacement that died between two renames
    OK(ct_checkpoint_clean(s->root));
    assert_int_equal(restored_step(s, -1), 1);
    save_step(s, 3, 0); // other people's files are in nobody's way
    assert_int_equal(restored_step(s, -1), 3);
}

// ---- in the background ----
static void count_progress(void *context, size_t done, size_t total) {
    size_t *last = context;
    assert_true(done >= last[0] && done <= total);
    last[0] = done, last[1] = total;
}

static void a_save_in_the_background_keeps_what_it_copied(void **state) {
    scene *s = *state;
    ct_team *team;
    OK(ct_team_create((ct_team_options){.threads = 2, .first_core = -1, .never_spin = 1}, &team));
    ct_saver *saver;
    OK(ct_saver_create(&(ct_saver_options){.team = team}, &saver));
    for (int64_t step = 1; step <= 6; step++) {
        ct_named_tensor *t = make_tensors(&s->arena, (uint64_t)step);
        size_t progress[2] = {0};
        char note[32];
        snprintf(note, sizeof note, "{\"n\": %d}", (int)step);
        OK(ct_checkpoint_save_begin(
            saver, &(ct_save_options){.root = s->root, .step = step, .state_json = note, .progress = count_progress, .context = progress}, t,
            TENSORS));
        note[1] = 'x';
        for (int i = 0; i < TENSORS; i++) memset(t[i].data, 0, ct_named_tensor_bytes(&t[i])); // the next step overwrites
        if (step % 2) OK(ct_checkpoint_save_wait(saver));
        else while (ct_checkpoint_save_is_running(saver)) usleep(100);
        assert_true(progress[0] == progress[1] && progress[1] > 2000);
    }
    OK(ct_checkpoint_save_wait(saver));
    OK(ct_checkpoint_save_wait(saver));
    ct_saver_destroy(saver);
    ct_team_destroy(team);
    for (int64_t step = 1; step <= 6; step++) assert_int_equal(restored_step(s, step), step);
}

static void a_failed_save_in_the_background_is_reported_once(void **state) {
    scene *s = *state;
    _Alignas(64) static unsigned char staging[8192];
    ct_saver *saver;
    OK(ct_saver_create(&(ct_saver_options){.staging = staging, .staging_bytes = sizeof staging}, &saver));
    ct_named_tensor *t = make_tensors(&s->arena, 1);
    assert_true(ct_saver_staging_bytes(t, TENSORS) <= sizeof staging);
    write_all(join(&s->arena, s->root, "file"), "", 0);
    ct_save_options bad = {.root = join(&s->arena, s->root, "file/below"), .step = 1}, good = {.root = s->root, .step = 1};
    OK(ct_checkpoint_save_begin(saver, &bad, t, TENSORS));
    expect_error(ct_checkpoint_save_begin(saver, &good, t, TENSORS), CT_IO, "file", NULL);
    OK(ct_checkpoint_save_begin(saver, &good, t, TENSORS));
    OK(ct_checkpoint_save_wait(saver));
    static float big[4096];
    ct_named_tensor too_big = {.name = "big", .dims = 1, .shape = {4096}, .data = big};
    expect_error(ct_checkpoint_save_begin(saver, &good, &too_big, 1), CT_INVALID, "staging", NULL);
    ct_saver_destroy(saver);
    assert_int_equal(restored_step(s, -1), 1);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, open_scene, close_scene)
int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(what_is_saved_is_loaded),
        TEST(f32_and_bf16_are_converted),
        TEST(what_one_mesh_wrote_any_other_loads),
        TEST(parts_that_do_not_cover_a_tensor_once_are_refused),
        TEST(what_does_not_fit_is_named_in_one_message),
        TEST(bad_saves_are_refused),
        TEST(every_cut_off_manifest_is_rejected),
        TEST(every_changed_bit_of_a_manifest_is_found),
        TEST(every_cut_off_shard_is_rejected),
        TEST(every_changed_bit_of_a_shard_is_found),
        TEST(damage_is_an_error_when_asked_for_and_passed_over_else),
        TEST(folders_that_are_no_checkpoints_are_passed_over),
        TEST(old_ones_go_and_the_newest_stay),
        TEST(a_step_is_replaced_at_once),
        TEST(cleaning_takes_only_what_is_ours),
        TEST(a_save_in_the_background_keeps_what_it_copied),
        TEST(a_failed_save_in_the_background_is_reported_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
