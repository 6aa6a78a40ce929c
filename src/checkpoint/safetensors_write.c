// Writes a safetensors file front to back, hashing on the way, and is through only when the disk has it. The widest types come first,
// so that every tensor is aligned to its elements, and the header is padded so that the data begins at a multiple of 8.
#include "hash.h"
#include "safetensors_header.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

enum { CHUNK = 1 << 20 };

typedef struct {
    const ct_safetensors_write_options *options;
    int fd;
    size_t bytes;
    XXH3_state_t *whole, *item;
} writer;

static ct_status write_fault(const char *path) {
    return ct_error_make(CT_IO, __FILE__, __LINE__, "cannot write %s: %s", path, strerror(errno));
}

static ct_status put(writer *w, const void *bytes, size_t size) {
    for (size_t done = 0; done < size;) {
        ssize_t n = write(w->fd, (const char *)bytes + done, size - done);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return write_fault(w->options->path);
        done += (size_t)n;
    }
    XXH3_128bits_update(w->whole, bytes, size);
    w->bytes += size;
    return CT_OK;
}

static size_t item_bytes(const ct_safetensors_item *item) {
    return (size_t)ct_extents_product(item->shape, item->dims) * (size_t)ct_stored_type_bits(item->type) / 8;
}

static void add_item(ct_string *json, const ct_safetensors_item *item, size_t *offset) {
    size_t size = item_bytes(item);
    char shape[CT_SHAPE_TEXT];
    ct_string_add_json(json, item->name);
    ct_string_add(json, ":{\"dtype\":\"%s\",\"shape\":%s,\"data_offsets\":[%zu,%zu]}", ct_stored_type_name(item->type),
                  ct_shape_text(item->shape, item->dims, shape), *offset, *offset + size);
    *offset += size;
}

// The next item in file order (by descending width, else as given) behind item `at` of width *bits; -1: no more.
static int next_in_order(const ct_safetensors_item *items, int count, int *bits, int at) {
    for (; *bits >= 4; *bits = *bits > 8 ? *bits / 2 : *bits - 2, at = -1)
        for (int i = at + 1; i < count; i++)
            if (ct_stored_type_bits(items[i].type) == *bits) return i;
    return -1;
}

static ct_status put_header(writer *w, const ct_safetensors_item *items, int count) {
    ct_string json = {0};
    size_t offset = 0;
    const char *comma = "";
    ct_string_add(&json, "{");
    if (w->options->metadata) ct_string_add(&json, "\"__metadata__\":%s", w->options->metadata), comma = ",";
    for (int bits = 64, i = -1; (i = next_in_order(items, count, &bits, i)) >= 0; comma = ",") {
        ct_string_add_bytes(&json, ",", comma[0] != 0);
        add_item(&json, &items[i], &offset);
    }
    ct_string_add(&json, "}");
    while (json.length % 8) ct_string_add_bytes(&json, " ", 1);
    unsigned char prefix[8];
    for (int i = 0; i < 8; i++) prefix[i] = (unsigned char)((uint64_t)json.length >> 8 * i);
    ct_status status = put(w, prefix, 8);
    if (!status) status = put(w, json.text, json.length);
    ct_string_deinit(&json);
    return status;
}

static ct_status put_item(writer *w, ct_safetensors_item *item, int index) {
    const void *bytes = NULL;
    size_t size = item_bytes(item);
    if (size) CT_TRY(w->options->produce(w->options->context, index, &bytes));
    XXH3_128bits_reset(w->item);
    for (size_t done = 0; done < size; done += CHUNK) {
        size_t n = size - done < CHUNK ? size - done : CHUNK;
        XXH3_128bits_update(w->item, (const char *)bytes + done, n);
        CT_TRY(put(w, (const char *)bytes + done, n));
        if (w->options->advance) w->options->advance(w->options->context, n);
    }
    item->checksum = ct_checksum_text(XXH3_128bits_digest(w->item));
    return CT_OK;
}

static ct_status write_all(writer *w, ct_safetensors_item *items, int count) {
    CT_CHECK(w->whole && w->item, CT_NO_MEMORY, "no memory to write %s", w->options->path);
    XXH3_128bits_reset(w->whole);
    CT_TRY(put_header(w, items, count));
    for (int bits = 64, i = -1; (i = next_in_order(items, count, &bits, i)) >= 0;) CT_TRY(put_item(w, &items[i], i));
    if (fsync(w->fd)) return write_fault(w->options->path);
    return CT_OK;
}

ct_status ct_safetensors_write(const ct_safetensors_write_options *options, ct_safetensors_item *items, int count, size_t *out_bytes,
                               ct_checksum *out_checksum) {
    writer w = {.options = options, .fd = open(options->path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644)};
    if (w.fd < 0) CT_FAIL(CT_IO, "cannot create %s: %s", options->path, strerror(errno));
    w.whole = XXH3_createState(), w.item = XXH3_createState();
    ct_status status = write_all(&w, items, count);
    if (close(w.fd) && !status) status = write_fault(options->path);
    if (status) unlink(options->path);
    else *out_bytes = w.bytes, *out_checksum = ct_checksum_text(XXH3_128bits_digest(w.whole));
    XXH3_freeState(w.whole), XXH3_freeState(w.item);
    return status;
}
