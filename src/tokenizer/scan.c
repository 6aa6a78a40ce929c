// The well-known patterns by name, and hand-written scanners for those that most text goes through. A scanner follows
// its pattern alternative by alternative; a test holds it against the regular expression itself. o200k has none: its
// letters need backtracking.
#include "split.h"
#include "unicode.h"

#include <string.h>

#define GPT2 "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"
#define R50K "'(?:[sdmt]|ll|ve|re)| ?\\p{L}++| ?\\p{N}++| ?[^\\s\\p{L}\\p{N}]++|\\s++$|\\s+(?!\\S)|\\s"
#define CL100K                                                                                                       \
    "'(?i:[sdmt]|ll|ve|re)|[^\\r\\n\\p{L}\\p{N}]?+\\p{L}++|\\p{N}{1,3}+| "                                           \
    "?[^\\s\\p{L}\\p{N}]++[\\r\\n]*+|\\s++$|\\s*[\\r\\n]|"                                                           \
    "\\s+(?!\\S)|\\s"
#define O200K                                                                                                        \
    "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]*[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]+(?i:'s|'t|'re|'ve|'m|" \
    "'ll|'d)?|"                                                                                                      \
    "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]+[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]*(?i:'s|'t|'re|'ve|'m|" \
    "'ll|'d)?|"                                                                                                      \
    "\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define CONTRACTION "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|"
#define REST "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define LLAMA3 CONTRACTION "\\p{N}{1,3}" REST
#define QWEN CONTRACTION "\\p{N}" REST
#define DEEPSEEK_NUMBERS "\\p{N}{1,3}"
#define DEEPSEEK_CJK "[\xe4\xb8\x80-\xe9\xbe\xa5\xe3\x81\x80-\xe3\x82\x9f\xe3\x82\xa0-\xe3\x83\xbf]+"
#define DEEPSEEK                                                                                                     \
    "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| "              \
    "?[\\p{P}\\p{S}]+[\r\n]*|"                                                                                       \
    "\\s*[\r\n]+|\\s+(?!\\S)|\\s+"

static const struct {
    const char *name, *pattern;
} named[] = {{"gpt2", GPT2},        {"r50k_base", R50K}, {"p50k_base", R50K}, {"cl100k_base", CL100K},
             {"o200k_base", O200K}, {"llama3", LLAMA3},  {"qwen", QWEN}};

const char *ct_pattern_named(const char *name) {
    for (size_t i = 0; i < sizeof named / sizeof *named; i++)
        if (!strcmp(named[i].name, name)) return named[i].pattern;
    return NULL;
}

// ---- what the scanners share ---------------------------------------------------------------------

typedef struct {
    const uint8_t *classes;
    const unsigned char *end;
} bounds;

// Whether the character at p is of a category in mask; *out_length its length.
static inline int is_of(const bounds *b, const unsigned char *p, uint32_t mask, int *out_length) {
    uint32_t point = *p < 0x80 ? (*out_length = 1, *p) : ct_utf8_point(p, out_length);
    return (int)(mask >> (b->classes[point] & 31) & 1);
}

static inline int is_space(const bounds *b, const unsigned char *p, int *out_length) {
    uint32_t point = *p < 0x80 ? (*out_length = 1, *p) : ct_utf8_point(p, out_length);
    return b->classes[point] & CT_UNICODE_SPACE;
}

static inline const unsigned char *skip(const bounds *b, const unsigned char *p, uint32_t mask) {
    int length;
    while (p < b->end && is_of(b, p, mask, &length)) p += length;
    return p;
}

// [^\s\p{L}\p{N}]
static inline int is_other(const bounds *b, const unsigned char *p, int *out_length) {
    uint32_t point = *p < 0x80 ? (*out_length = 1, *p) : ct_utf8_point(p, out_length);
    uint8_t class = b->classes[point];
    return !(class & CT_UNICODE_SPACE) && !((CT_MASK_L | CT_MASK_N) >> (class & 31) & 1);
}

static inline const unsigned char *skip_other(const bounds *b, const unsigned char *p) {
    int length;
    while (p < b->end && is_other(b, p, &length)) p += length;
    return p;
}

static inline const unsigned char *skip_newlines(const bounds *b, const unsigned char *p) {
    while (p < b->end && (*p == '\r' || *p == '\n')) p++;
    return p;
}

// The length of a contraction behind an apostrophe at p, or 0.
static int contraction(const bounds *b, const unsigned char *p, int any_case) {
    int left = (int)(b->end - p - 1), fold = any_case ? 0x20 : 0;
    if (left < 1) return 0;
    int c = p[1] | fold;
    if (c == 's' || c == 't' || c == 'm' || c == 'd') return 2;
    if (left >= 2 && any_case && p[1] == 0xc5 && p[2] == 0xbf) return 3; // the long s is an s in another case
    int d = left >= 2 ? p[2] | fold : 0;
    return (c == 'r' && d == 'e') || (c == 'v' && d == 'e') || (c == 'l' && d == 'l') ? 3 : 0;
}

// White space: \s+(?!\S)|\s+, and before it \s*[\r\n]+ where `lines`, and before that \s+$ where `tail`.
static const unsigned char *spaces(const bounds *b, const unsigned char *p, int lines, int tail) {
    const unsigned char *stop = p, *last = p, *newline = NULL;
    int length;
    while (stop < b->end && is_space(b, stop, &length)) {
        last = stop;
        stop += length;
        if (*last == '\n' || *last == '\r') newline = stop;
    }
    if (tail && stop == b->end) return stop;
    if (lines && newline) return newline;
    return stop == b->end || last == p ? stop : last;
}

// ---- GPT-2 ---------------------------------------------------------------------------------------

static const unsigned char *gpt2_word(const bounds *b, const unsigned char *p) {
    int length;
    if (*p == '\'' && (length = contraction(b, p, 0))) return p + length;
    const unsigned char *q = *p == ' ' && p + 1 < b->end ? p + 1 : p;
    if (is_of(b, q, CT_MASK_L, &length)) return skip(b, q + length, CT_MASK_L);
    if (is_of(b, q, CT_MASK_N, &length)) return skip(b, q + length, CT_MASK_N);
    if (is_other(b, q, &length)) return skip_other(b, q + length);
    return spaces(b, p, 0, 0);
}

static void scan_gpt2(const uint8_t *classes, const unsigned char *text, ct_span span, ct_spans *out) {
    bounds b = {classes, text + span.end};
    for (const unsigned char *p = text + span.begin; p < b.end;) {
        const unsigned char *stop = gpt2_word(&b, p);
        ct_spans_add(out, (uint32_t)(p - text), (uint32_t)(stop - text));
        p = stop;
    }
}

// ---- Llama 3, Qwen, cl100k: they differ in digits and in white space at the end ------------------------

static inline const unsigned char *modern_word(const bounds *b, const unsigned char *p, int digits, int tail) {
    int length, next;
    if (*p == '\'' && (length = contraction(b, p, 1))) return p + length;
    if (is_of(b, p, CT_MASK_L, &length)) return skip(b, p + length, CT_MASK_L);
    if (is_of(b, p, CT_MASK_N, &length)) {
        const unsigned char *q = p + length;
        for (int n = 1; n < digits && q < b->end && is_of(b, q, CT_MASK_N, &next); n++) q += next;
        return q;
    }
    int is_newline = *p == '\r' || *p == '\n';
    if (!is_newline && p + length < b->end && is_of(b, p + length, CT_MASK_L, &next))
        return skip(b, p + length + next, CT_MASK_L);
    if (is_other(b, p, &length)) return skip_newlines(b, skip_other(b, p + length));
    if (*p == ' ' && p + 1 < b->end && is_other(b, p + 1, &next))
        return skip_newlines(b, skip_other(b, p + 1 + next));
    return spaces(b, p, 1, tail);
}

static inline void scan_modern(const uint8_t *classes, const unsigned char *text, ct_span span, ct_spans *out,
                               int digits, int tail) {
    bounds b = {classes, text + span.end};
    for (const unsigned char *p = text + span.begin; p < b.end;) {
        const unsigned char *stop = modern_word(&b, p, digits, tail);
        ct_spans_add(out, (uint32_t)(p - text), (uint32_t)(stop - text));
        p = stop;
    }
}

static void scan_llama3(const uint8_t *classes, const unsigned char *text, ct_span span, ct_spans *out) {
    scan_modern(classes, text, span, out, 3, 0);
}
static void scan_qwen(const uint8_t *classes, const unsigned char *text, ct_span span, ct_spans *out) {
    scan_modern(classes, text, span, out, 1, 0);
}
static void scan_cl100k(const uint8_t *classes, const unsigned char *text, ct_span span, ct_spans *out) {
    scan_modern(classes, text, span, out, 3, 1);
}

// ---- DeepSeek: three patterns, one behind the other ------------------------------------------------

static void scan_deepseek_numbers(const uint8_t *classes, const unsigned char *text, ct_span span, ct_spans *out) {
    bounds b = {classes, text + span.end};
    const unsigned char *p = text + span.begin, *gap = p;
    int length;
    while (p < b.end) {
        if (!is_of(&b, p, CT_MASK_N, &length)) {
            p += length;
            continue;
        }
        ct_spans_add(out, (uint32_t)(gap - text), (uint32_t)(p - text));
        const unsigned char *q = p + length;
        for (int n = 1; n < 3 && q < b.end && is_of(&b, q, CT_MASK_N, &length); n++) q += length;
        ct_spans_add(out, (uint32_t)(p - text), (uint32_t)(q - text));
        gap = p = q;
    }
    ct_spans_add(out, (uint32_t)(gap - text), span.end);
}

static inline int is_cjk(const unsigned char *p, int *out_length) {
    if (*p < 0x80) return *out_length = 1, 0;
    uint32_t point = ct_utf8_point(p, out_length);
    return (point >= 0x4e00 && point <= 0x9fa5) || (point >= 0x3040 && point <= 0x30ff);
}

static void scan_deepseek_cjk(const uint8_t *classes, const unsigned char *text, ct_span span, ct_spans *out) {
    (void)classes;
    const unsigned char *end = text + span.end, *p = text + span.begin, *begin = p;
    int within = 0, length;
    for (; p < end; p += length) {
        int now = is_cjk(p, &length);
        if (now != within) ct_spans_add(out, (uint32_t)(begin - text), (uint32_t)(p - text)), begin = p;
        within = now;
    }
    ct_spans_add(out, (uint32_t)(begin - text), span.end);
}

static inline int is_ascii_letter(unsigned char c) { return (unsigned char)((c | 0x20) - 'a') < 26; }
static inline int is_ascii_mark(unsigned char c) {
    return (c >= 33 && c <= 47) || (c >= 58 && c <= 64) || (c >= 91 && c <= 96) || (c >= 123 && c <= 126);
}

// The end of the match that begins at p, or p where none does.
static const unsigned char *deepseek_word(const bounds *b, const unsigned char *p) {
    const uint32_t letters = CT_MASK_L | CT_MASK_M, marks = CT_MASK_P | CT_MASK_S;
    int length, next;
    if (is_ascii_mark(*p) && p + 1 < b->end && is_ascii_letter(p[1])) {
        for (p += 2; p < b->end && is_ascii_letter(*p);) p++;
        return p;
    }
    if (is_of(b, p, letters, &length)) return skip(b, p + length, letters);
    if (is_of(b, p, marks, &length)) return skip_newlines(b, skip(b, p + length, marks));
    int is_newline = *p == '\r' || *p == '\n';
    if (!is_newline && p + length < b->end && is_of(b, p + length, letters, &next))
        return skip(b, p + length + next, letters);
    if (*p == ' ' && p + 1 < b->end && is_of(b, p + 1, marks, &next))
        return skip_newlines(b, skip(b, p + 1 + next, marks));
    return is_space(b, p, &length) ? spaces(b, p, 1, 0) : p;
}

static void scan_deepseek(const uint8_t *classes, const unsigned char *text, ct_span span, ct_spans *out) {
    bounds b = {classes, text + span.end};
    const unsigned char *p = text + span.begin, *gap = p;
    while (p < b.end) {
        const unsigned char *stop = deepseek_word(&b, p);
        if (stop == p) { // what no alternative matches stays together
            p += ct_utf8_length(*p);
            continue;
        }
        ct_spans_add(out, (uint32_t)(gap - text), (uint32_t)(p - text));
        ct_spans_add(out, (uint32_t)(p - text), (uint32_t)(stop - text));
        gap = p = stop;
    }
    ct_spans_add(out, (uint32_t)(gap - text), span.end);
}

// ---- the table -----------------------------------------------------------------------------------

// flavours: a bit for each flavour under which the scanner means what the pattern says ($ differs).
static const struct {
    ct_scanner_entry entry;
    const char *pattern;
    int flavours;
} scanners[] = {
    {{"gpt2", scan_gpt2}, GPT2, 3},
    {{"gpt2", scan_gpt2}, R50K, 1 << CT_FLAVOUR_RUST},
    {{"cl100k", scan_cl100k}, CL100K, 1 << CT_FLAVOUR_RUST},
    {{"llama3", scan_llama3}, LLAMA3, 3},
    {{"qwen", scan_qwen}, QWEN, 3},
    {{"deepseek", scan_deepseek_numbers}, DEEPSEEK_NUMBERS, 3},
    {{"deepseek", scan_deepseek_cjk}, DEEPSEEK_CJK, 3},
    {{"deepseek", scan_deepseek}, DEEPSEEK, 3},
};

const ct_scanner_entry *ct_scanner_find(const char *pattern, size_t length, ct_pattern_flavour flavour) {
    for (size_t i = 0; i < sizeof scanners / sizeof *scanners; i++)
        if ((scanners[i].flavours >> flavour & 1) && strlen(scanners[i].pattern) == length &&
            !memcmp(scanners[i].pattern, pattern, length))
            return &scanners[i].entry;
    return NULL;
}
