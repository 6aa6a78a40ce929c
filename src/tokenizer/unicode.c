// Expands the generated runs into a table of one byte a code point: 1.1 MB a tokenizer, of which text touches little.
#include "unicode.h"
#include "base/memory.h"

#include <string.h>

uint8_t *ct_unicode_expand(void) {
    uint8_t *table = ct_malloc(CT_UNICODE_LIMIT);
    for (int i = 0; i < ct_unicode_runs_count; i++) {
        uint32_t begin = ct_unicode_runs[i] >> 8;
        uint32_t end = i + 1 < ct_unicode_runs_count ? ct_unicode_runs[i + 1] >> 8 : CT_UNICODE_LIMIT;
        memset(table + begin, (int)(ct_unicode_runs[i] & 0xff), end - begin);
    }
    for (uint32_t point = 0; point <= 0x3000; point++)
        if (ct_unicode_is_space(point)) table[point] |= CT_UNICODE_SPACE;
    return table;
}

int ct_unicode_in(const uint32_t *pairs, int count, uint32_t point) {
    int low = 0, high = count / 2;
    while (low < high) {
        int middle = (low + high) / 2;
        if (point > pairs[2 * middle + 1])
            low = middle + 1;
        else
            high = middle;
    }
    return low < count / 2 && point >= pairs[2 * low];
}
