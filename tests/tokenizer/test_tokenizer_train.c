// Training, and the command. Expected merges: by hand, and (train_small.json) by the trainer of Hugging Face's
// tokenizers.
#include "base/file.h"
#include "base/memory.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/train.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#define FIXTURES CT_SOURCE_DIR "/tests/tokenizer/fixtures/"

static char *temporary_folder(void) {
    char *folder = ct_strdup("/tmp/ct_train_XXXXXX");
    assert_non_null(mkdtemp(folder));
    return folder;
}

static char *read_in(const char *folder, const char *name) {
    char *path = ct_format("%s/%s", folder, name), *text;
    size_t size;
    ct_status status = ct_file_read(path, 0, &text, &size);
    if (status) fail_msg("%s", ct_error_text(status));
    free(path);
    return text;
}

static void merges_go_by_count_then_by_symbol(void **state) {
    (void)state;
    // Words (llama3's pattern): "ab" once, " ab" twice, " cb" three times. Pairs: " c" 3, "cb" 3, "ab" 3, " a" 2:
    // ties go to the smaller left symbol, and a space comes behind the letters in the byte-level alphabet.
    char *folder = temporary_folder();
    ct_tokenizer_trainer *trainer = NULL;
    assert_null(ct_tokenizer_trainer_create((ct_train_options){.vocab_size = 256 + 2 + 4}, &trainer));
    static const char text[] = "ab ab ab cb cb cb";
    assert_null(ct_tokenizer_trainer_feed(trainer, text, sizeof text - 1));
    int size = 0;
    assert_null(ct_tokenizer_trainer_write(trainer, folder, &size));
    ct_tokenizer_trainer_destroy(trainer);
    assert_int_equal(size, 262);
    char *json = read_in(folder, "tokenizer.json");
    assert_non_null(
        strstr(json, "\"merges\": [\n   \"a b\",\n   \"c b\",\n   \"\xc4\xa0 cb\",\n   \"\xc4\xa0 ab\"]"));
    free(json);
    assert_null(ct_folder_remove(folder));
    free(folder);
}

static void training_gives_the_merges_of_the_reference(void **state) {
    (void)state;
    char *folder = temporary_folder();
    static const char *const paths[] = {FIXTURES "train_small.txt"};
    int size = 0;
    ct_status status = ct_tokenizer_train(paths, 1, (ct_train_options){.vocab_size = 800}, folder, &size);
    if (status) fail_msg("%s", ct_error_text(status));
    assert_int_equal(size, 800);
    char *json = read_in(folder, "tokenizer.json"), *want = read_in(FIXTURES, "train_small.merges");
    char *merges = strstr(json, "\"merges\": [\n");
    assert_non_null(merges);
    merges += strlen("\"merges\": [\n");
    for (char *p = want; *p;) { // the fixture has one merge a line, as JSON texts
        size_t length = strcspn(p, "\n");
        if (strncmp(merges + 3, p, length)) fail_msg("merge '%.40s' should be '%.*s'", merges, (int)length, p);
        merges += 3 + length + 2;
        p += length + 1;
    }
    free(json);
    free(want);
    ct_tokenizer *tokenizer = NULL;
    assert_null(ct_tokenizer_open(folder, (ct_tokenizer_options){0}, &tokenizer));
    const ct_tokenizer_info *info = ct_tokenizer_describe(tokenizer);
    assert_int_equal(info->bos_id, 798);
    assert_int_equal(info->eos_id, 799);
    assert_string_equal(info->splitter, "llama3");
    ct_tokenizer_close(tokenizer);
    assert_null(ct_folder_remove(folder));
    free(folder);
}

static void what_cannot_be_trained_is_said(void **state) {
    (void)state;
    ct_tokenizer_trainer *trainer = NULL;
    ct_status status = ct_tokenizer_trainer_create((ct_train_options){.vocab_size = 257}, &trainer);
    assert_non_null(status);
    assert_non_null(strstr(ct_error_text(status), "257"));
    status = ct_tokenizer_trainer_create((ct_train_options){.bos = "<x>"}, &trainer);
    assert_non_null(strstr(ct_error_text(status), "<x>"));
    assert_null(ct_tokenizer_trainer_create((ct_train_options){0}, &trainer));
    status = ct_tokenizer_trainer_write(trainer, "/tmp", NULL);
    assert_non_null(strstr(ct_error_text(status), "no text"));
    ct_tokenizer_trainer_destroy(trainer);
    static const char *const paths[] = {"/nonexistent/text"};
    assert_int_equal(ct_error_code(ct_tokenizer_train(paths, 1, (ct_train_options){0}, "/tmp/x", NULL)),
                     CT_NOT_FOUND);
}

// ---- the command ---------------------------------------------------------------------------------

// Runs `ctitan tokenizer …`; its output into *out (heap). Returns the exit status.
static int run(const char *arguments, char **out) {
    const char *binary = getenv("CT_BINARY");
    char *command = ct_format("%s tokenizer %s 2>&1", binary, arguments);
    FILE *pipe = popen(command, "r");
    assert_non_null(pipe);
    ct_string text = {0};
    char chunk[4096];
    size_t n;
    ct_string_add(&text, "%s", "");
    while ((n = fread(chunk, 1, sizeof chunk, pipe))) ct_string_add_bytes(&text, chunk, n);
    int status = pclose(pipe);
    free(command);
    *out = text.text ? text.text : ct_calloc(1, 1);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128;
}

static void expect(const char *arguments, int code, const char *part) {
    char *out;
    int status = run(arguments, &out);
    if (status != code || !strstr(out, part))
        fail_msg("`%s` gives status %d and '%s'; wanted %d and '%s'", arguments, status, out, code, part);
    free(out);
}

static int binary_is_there(void) {
    const char *binary = getenv("CT_BINARY");
    if (binary && ct_path_exists(binary)) return 1;
    print_message("[ SKIPPED ] CT_BINARY names no program\n");
    return 0;
}

static void the_command_encodes_decodes_and_describes(void **state) {
    (void)state;
    if (!binary_is_there()) skip();
    char *folder = temporary_folder(), *ids, *back, *command;
    command = ct_format("encode " FIXTURES "gpt2_like.json > %s/ids < " FIXTURES "train_small.txt", folder);
    assert_int_equal(run(command, &ids), 0);
    free(command);
    free(ids);
    command = ct_format("decode " FIXTURES "gpt2_like.json %s/ids", folder);
    assert_int_equal(run(command, &back), 0);
    free(command);
    char *text = read_in(FIXTURES, "train_small.txt");
    assert_string_equal(back, text);
    free(text);
    free(back);
    expect("info --json " FIXTURES "gpt2_like.json", 0, "\"kind\": \"byte-level BPE\"");
    expect("info " FIXTURES "sp_bpe.model", 0, "sentencepiece BPE");
    command = ct_format("train --vocab-size 300 -o %s/t " FIXTURES "train_small.txt", folder);
    expect(command, 0, "300 tokens");
    free(command);
    command = ct_format("encode %s/t --bos --eos /dev/null", folder);
    expect(command, 1, "not a regular file");
    free(command);
    command = ct_format("encode %s/t --bos --eos < /dev/null", folder);
    expect(command, 0, "298 299\n");
    free(command);
    assert_null(ct_folder_remove(folder));
    free(folder);
}

static void the_command_says_what_is_wrong(void **state) {
    (void)state;
    if (!binary_is_there()) skip();
    expect("--help", 0, "usage:");
    expect("encode --help", 0, "usage:");
    expect("", 2, "usage:");
    expect("frobnicate", 2, "ctitan tokenizer: there is no command 'frobnicate'");
    expect("encode", 2, "needs a tokenizer");
    expect("encode a b c", 2, "too many");
    expect("encode --json x", 2, "no option --json");
    expect("train " FIXTURES "train_small.txt", 2, "-o FOLDER");
    expect("train -o /tmp/x --vocab-size many f", 2, "'many'");
    expect("info /nonexistent", 1, "ctitan tokenizer: there is no tokenizer at /nonexistent");
    expect("encode " FIXTURES "gpt2_like.json --bos < /dev/null", 1, "names no BOS");
    expect("decode " FIXTURES "gpt2_like.json < " FIXTURES "train_small.txt", 1, "is no id");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(merges_go_by_count_then_by_symbol),
        cmocka_unit_test(training_gives_the_merges_of_the_reference),
        cmocka_unit_test(what_cannot_be_trained_is_said),
        cmocka_unit_test(the_command_encodes_decodes_and_describes),
        cmocka_unit_test(the_command_says_what_is_wrong),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
