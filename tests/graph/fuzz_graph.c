// A text is refused with a message, or parsed; what was parsed prints to a text that parses to the same print; what the verifier lets
// through can be costed and reinferred without harm. Built as a test it replays tests/graph/corpus; as a fuzzer, from the root:
//     clang -std=c17 -D_GNU_SOURCE -DCT_FUZZ -g -O1 -fsanitize=fuzzer,address,undefined -Isrc/{base,graph,ops}/include
//         src/base/{dtype,file,memory,status,wide}.c src/graph/*.c src/ops/*.c tests/graph/fuzz_graph.c -lm -o fuzz_graph
//     ./fuzz_graph -max_len=4096 new_texts tests/graph/corpus
#include "ops/ops.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void print_and_parse_again(const ct_graph *graph) {
    ct_string first = {0}, second = {0};
    ct_graph_print(graph, &first);
    ct_graph again;
    ct_status status = ct_graph_parse(&again, first.text, "printed", ct_op_find);
    CT_ASSERT(!status, "what was printed does not parse: %s", ct_error_text(status));
    ct_graph_print(&again, &second);
    CT_ASSERT(!strcmp(first.text, second.text), "the second print differs:\n%s\n%s", first.text, second.text);
    ct_graph_deinit(&again);
    ct_string_deinit(&first);
    ct_string_deinit(&second);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    char *text = ct_malloc(size + 1);
    memcpy(text, data, size);
    text[size] = 0;
    ct_graph graph;
    ct_status status = ct_graph_parse(&graph, text, "fuzz", ct_op_find);
    if (status) {
        CT_ASSERT(!strncmp(ct_error_text(status), "fuzz:", 5), "no place in '%s'", ct_error_text(status));
    } else {
        print_and_parse_again(&graph);
        if (!ct_graph_verify(&graph)) {
            for (int n = 0; n < graph.nodes_count; n++) ct_op_cost(&graph, &graph.nodes[n]);
            status = ct_graph_reinfer(&graph);
            CT_ASSERT(!status && !ct_graph_verify(&graph), "verified, but not after reinfer");
        }
        ct_graph_deinit(&graph);
    }
    free(text);
    return 0;
}

#ifndef CT_FUZZ
#include "base/file.h"

static int replay(const char *path) {
    char *text;
    size_t size;
    ct_status status = ct_file_read(path, 0, &text, &size);
    if (status) {
        fprintf(stderr, "%s\n", ct_error_text(status));
        return 0;
    }
    LLVMFuzzerTestOneInput((const uint8_t *)text, size);
    // And with each of its bytes cut off or changed, in turn.
    for (size_t i = 0; i < size; i++) {
        LLVMFuzzerTestOneInput((const uint8_t *)text, i);
        text[i] ^= 1;
        LLVMFuzzerTestOneInput((const uint8_t *)text, size);
        text[i] ^= 1;
    }
    free(text);
    return 1;
}

int main(void) {
    static const char folder[] = CT_SOURCE_DIR "/tests/graph/corpus";
    DIR *dir = opendir(folder);
    if (!dir) {
        fprintf(stderr, "no folder %s\n", folder);
        return 1;
    }
    int files = 0, failures = 0;
    for (struct dirent *entry; (entry = readdir(dir));) {
        if (entry->d_name[0] == '.') continue;
        char *path = ct_format("%s/%s", folder, entry->d_name);
        if (replay(path)) files++;
        else failures++;
        free(path);
    }
    closedir(dir);
    printf("%d texts replayed\n", files);
    return failures || !files;
}
#endif
