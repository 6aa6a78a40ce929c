// Rewrites a tokenizer's regular expression for PCRE2. The engines differ in what they take a class to hold (another
// Unicode version, \s without U+180E), in set operations inside brackets and in what $ means. So every class is
// evaluated here to a set of code points, from our own tables, and written for PCRE2 as its own notation plus the
// ranges that it lacks, or as ranges alone. Leaves out: POSIX brackets, back-references by name beyond what PCRE2
// shares, \G, \K, and scripts' own newer members.
#define PCRE2_CODE_UNIT_WIDTH 8
#include "pattern.h"
#include "unicode.h"
#include "utf8.h"
#include "base/memory.h"

#include <pcre2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WORDS (CT_UNICODE_LIMIT / 64)

typedef struct {
    uint64_t bits[WORDS];
} set;

typedef struct {
    const char *text, *p, *end;
    ct_pattern_flavour flavour;
    const uint8_t *classes;
    ct_string out;
    int depth;
    set *categories; // what PCRE2 takes \\p{L}, M, N, P and S to be, once one was wanted
} rewriter;

static void set_add(set *s, uint32_t low, uint32_t high) {
    for (uint32_t c = low; c <= high; c++) s->bits[c / 64] |= 1ull << c % 64;
}
static int set_has(const set *s, uint32_t c) { return (int)(s->bits[c / 64] >> c % 64 & 1); }
static void set_invert(set *s) {
    for (int i = 0; i < WORDS; i++) s->bits[i] = ~s->bits[i];
}

static void add_point(ct_string *out, uint32_t point) { ct_string_add(out, "\\x{%x}", point); }

// ---- what a class escape holds -------------------------------------------------------------------

static const struct {
    const char *name;
    uint32_t mask;
} properties[] = {
    {"L", CT_MASK_L},
    {"Letter", CT_MASK_L},
    {"M", CT_MASK_M},
    {"Mark", CT_MASK_M},
    {"N", CT_MASK_N},
    {"Number", CT_MASK_N},
    {"P", CT_MASK_P},
    {"Punctuation", CT_MASK_P},
    {"S", CT_MASK_S},
    {"Symbol", CT_MASK_S},
    {"Z", CT_MASK_Z},
    {"Separator", CT_MASK_Z},
    {"Lu", CT_MASK(CT_GC_LU)},
    {"Ll", CT_MASK(CT_GC_LL)},
    {"Lt", CT_MASK(CT_GC_LT)},
    {"Lm", CT_MASK(CT_GC_LM)},
    {"Lo", CT_MASK(CT_GC_LO)},
    {"Mn", CT_MASK(CT_GC_MN)},
    {"Mc", CT_MASK(CT_GC_MC)},
    {"Me", CT_MASK(CT_GC_ME)},
    {"Nd", CT_MASK(CT_GC_ND)},
    {"Nl", CT_MASK(CT_GC_NL)},
    {"No", CT_MASK(CT_GC_NO)},
    {"Pc", CT_MASK(CT_GC_PC)},
    {"Pd", CT_MASK(CT_GC_PD)},
    {"Ps", CT_MASK(CT_GC_PS)},
    {"Pe", CT_MASK(CT_GC_PE)},
    {"Pi", CT_MASK(CT_GC_PI)},
    {"Pf", CT_MASK(CT_GC_PF)},
    {"Po", CT_MASK(CT_GC_PO)},
    {"Sm", CT_MASK(CT_GC_SM)},
    {"Sc", CT_MASK(CT_GC_SC)},
    {"Sk", CT_MASK(CT_GC_SK)},
    {"So", CT_MASK(CT_GC_SO)},
    {"Zs", CT_MASK(CT_GC_ZS)},
    {"Zl", CT_MASK(CT_GC_ZL)},
    {"Zp", CT_MASK(CT_GC_ZP)},
    {"Cc", CT_MASK(CT_GC_CC)},
    {"Cf", CT_MASK(CT_GC_CF)},
    {"Co", CT_MASK(CT_GC_CO)},
    {"Cn", CT_MASK(CT_GC_CN)},
    {"Cs", CT_MASK(CT_GC_CS)},
    {"C", CT_MASK(CT_GC_CC) | CT_MASK(CT_GC_CF) | CT_MASK(CT_GC_CS) | CT_MASK(CT_GC_CO) | CT_MASK(CT_GC_CN)},
};

static void add_mask(const rewriter *r, set *s, uint32_t mask, uint32_t flags) {
    for (uint32_t c = 0; c < CT_UNICODE_LIMIT; c++)
        if ((mask >> (r->classes[c] & 31) & 1) || (r->classes[c] & flags)) s->bits[c / 64] |= 1ull << c % 64;
}

// All that PCRE2 matches with a class, by running it over every code point.
static ct_status add_matches(const char *class, set *s) {
    int error;
    PCRE2_SIZE where;
    ct_string looped = {0};
    ct_string_add(&looped, "%s+", class);
    pcre2_code *code = pcre2_compile((PCRE2_SPTR)looped.text, PCRE2_ZERO_TERMINATED,
                                     PCRE2_UTF | PCRE2_UCP | PCRE2_NO_UTF_CHECK, &error, &where, NULL);
    ct_string_deinit(&looped);
    CT_CHECK(code, CT_UNSUPPORTED, "the class %.80s in a regular expression", class);
    pcre2_jit_compile(code, PCRE2_JIT_COMPLETE);
    pcre2_match_data *match = pcre2_match_data_create(1, NULL);
    ct_buffer all = {0};
    for (uint32_t c = 0; c < CT_UNICODE_LIMIT; c++)
        if (c < 0xd800 || c > 0xdfff) ct_buffer_add_point(&all, c);
    size_t from = 0;
    while (from < all.size && pcre2_match(code, all.bytes, all.size, from, PCRE2_NO_UTF_CHECK, match, NULL) > 0) {
        const PCRE2_SIZE *range = pcre2_get_ovector_pointer(match);
        int length;
        for (size_t i = range[0]; i < range[1]; i += (size_t)length) {
            uint32_t c = ct_utf8_point(all.bytes + i, &length);
            s->bits[c / 64] |= 1ull << c % 64;
        }
        from = range[1];
    }
    ct_buffer_deinit(&all);
    pcre2_match_data_free(match);
    pcre2_code_free(code);
    return CT_OK;
}

// Oniguruma's \w has no joiners, and outside brackets has ², ³, ¹, ¼, ½ and ¾.
static void add_word(const rewriter *r, set *s, int in_brackets) {
    add_mask(r, s, 0, CT_UNICODE_WORD);
    if (r->flavour != CT_FLAVOUR_ONIG) return;
    s->bits[0x200c / 64] &= ~(3ull << 0x200c % 64);
    if (!in_brackets) set_add(s, 0xb2, 0xb3), set_add(s, 0xb9, 0xb9), set_add(s, 0xbc, 0xbe);
}

static ct_status add_property(rewriter *r, set *s, const char *name, size_t length) {
    for (size_t i = 0; i < sizeof properties / sizeof *properties; i++)
        if (strlen(properties[i].name) == length && !memcmp(properties[i].name, name, length))
            return add_mask(r, s, properties[i].mask, 0), CT_OK;
    char class[100];
    CT_CHECK(length < 60, CT_INVALID, "the property \\p{%.60s…} in a regular expression", name);
    if (length > 7 && !memcmp(name, "Script=", 7)) name += 7, length -= 7;
    snprintf(class, sizeof class, "[\\p{sc:%.*s}]", (int)length, name); // a script, and no other script's extensions
    if (!add_matches(class, s)) return CT_OK;
    CT_FAIL(CT_UNSUPPORTED, "the property \\p{%.*s} in a regular expression", (int)length, name);
}

static uint32_t hex_value(rewriter *r, int digits) {
    uint32_t value = 0;
    for (int i = 0; i < digits && r->p < r->end; i++, r->p++) {
        char c = *r->p;
        int digit = c >= '0' && c <= '9'   ? c - '0'
                    : c >= 'a' && c <= 'f' ? c - 'a' + 10
                    : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                           : -1;
        if (digit < 0) break;
        value = value * 16 + (uint32_t)digit;
    }
    return value;
}

// \xHH, \x{…}, \uHHHH, \u{…}: r->p is behind the letter.
static uint32_t hex_escape(rewriter *r, int digits) {
    if (r->p < r->end && *r->p == '{') {
        r->p++;
        uint32_t value = hex_value(r, 8);
        if (r->p < r->end && *r->p == '}') r->p++;
        return value;
    }
    return hex_value(r, digits);
}

// Adds what a class escape holds, r->p at the letter behind the backslash; *out_is_class = 0 where it is no class.
static ct_status class_escape(rewriter *r, set *s, int in_brackets, int *out_is_class) {
    char c = *r->p;
    *out_is_class = 1;
    int inverted = c == 'S' || c == 'D' || c == 'W' || c == 'P' || c == 'H';
    set *own = ct_calloc(1, sizeof *own);
    ct_status status = CT_OK;
    if (c == 's' || c == 'S') {
        add_mask(r, own, 0, CT_UNICODE_SPACE), r->p++;
    } else if (c == 'd' || c == 'D') {
        add_mask(r, own, CT_MASK(CT_GC_ND), 0), r->p++;
    } else if (c == 'w' || c == 'W') {
        add_word(r, own, in_brackets), r->p++;
    } else if ((c == 'h' || c == 'H') && r->flavour == CT_FLAVOUR_ONIG) { // a hexadecimal digit there
        set_add(own, '0', '9'), set_add(own, 'a', 'f'), set_add(own, 'A', 'F'), r->p++;
    } else if ((c == 'p' || c == 'P') && r->p + 1 < r->end) {
        const char *name = r->p + 1, *stop = name + 1;
        if (*name == '{') {
            name++;
            stop = memchr(name, '}', (size_t)(r->end - name));
            if (!stop) stop = r->end;
        }
        if (name < stop && *name == '^') name++, inverted = !inverted;
        status = add_property(r, own, name, (size_t)(stop - name));
        r->p = stop < r->end && *stop == '}' ? stop + 1 : stop;
    } else {
        *out_is_class = 0;
    }
    if (inverted && *out_is_class) set_invert(own);
    for (int i = 0; i < WORDS && *out_is_class; i++) s->bits[i] |= own->bits[i];
    free(own);
    return status;
}

// ---- brackets ------------------------------------------------------------------------------------

// One character of a class, r->p at it.
static uint32_t class_character(rewriter *r) {
    if (*r->p != '\\' || r->p + 1 >= r->end) {
        int length;
        uint32_t c = ct_utf8_point((const unsigned char *)r->p, &length);
        r->p += length;
        return c;
    }
    char c = *++r->p;
    if ((unsigned char)c >= 0x80) return class_character(r);
    r->p++;
    switch (c) {
    case 'n':
        return '\n';
    case 'r':
        return '\r';
    case 't':
        return '\t';
    case 'f':
        return '\f';
    case 'v':
        return '\v';
    case 'a':
        return 7;
    case 'e':
        return 27;
    case '0':
        return 0;
    case 'x':
        return hex_escape(r, 2);
    case 'u':
        return hex_escape(r, 4);
    default:
        return (unsigned char)c;
    }
}

static ct_status parse_class(rewriter *r, set *s);

static ct_status class_item(rewriter *r, set *s) {
    if (*r->p == '[') {
        CT_CHECK(r->p + 1 >= r->end || r->p[1] != ':', CT_UNSUPPORTED, "POSIX brackets in a regular expression");
        set *inner = ct_calloc(1, sizeof *inner);
        ct_status status = parse_class(r, inner);
        for (int i = 0; i < WORDS; i++) s->bits[i] |= inner->bits[i];
        free(inner);
        return status;
    }
    if (*r->p == '\\' && r->p + 1 < r->end) {
        int is_class;
        r->p++;
        CT_TRY(class_escape(r, s, 1, &is_class));
        if (is_class) return CT_OK;
        r->p--;
    }
    uint32_t low = class_character(r), high = low;
    if (r->p + 1 < r->end && *r->p == '-' && r->p[1] != ']' && r->p[1] != '[') {
        r->p++;
        high = class_character(r);
    }
    CT_CHECK(low <= high && high < CT_UNICODE_LIMIT, CT_INVALID,
             "a character range out of order in a regular expression");
    set_add(s, low, high);
    return CT_OK;
}

// The rest of a class behind `&&`: its own set, cut with what came before.
static ct_status intersect(rewriter *r, set *s) {
    set *other = ct_calloc(1, sizeof *other);
    ct_status status = CT_OK;
    while (!status && r->p < r->end && *r->p != ']' && !(*r->p == '&' && r->p + 1 < r->end && r->p[1] == '&'))
        status = class_item(r, other);
    for (int i = 0; i < WORDS; i++) s->bits[i] &= other->bits[i];
    free(other);
    return status;
}

// r->p at '['.
static ct_status parse_class(rewriter *r, set *s) {
    CT_CHECK(++r->depth < 20, CT_UNSUPPORTED, "classes nested %d deep in a regular expression", r->depth);
    r->p++;
    int inverted = r->p < r->end && *r->p == '^';
    if (inverted) r->p++;
    for (int first = 1; r->p < r->end && (first || *r->p != ']'); first = 0) {
        if (*r->p == '&' && r->p + 1 < r->end && r->p[1] == '&') {
            r->p += 2;
            CT_TRY(intersect(r, s));
        } else {
            CT_TRY(class_item(r, s));
        }
    }
    CT_CHECK(r->p < r->end, CT_INVALID, "a class without its closing bracket in the regular expression '%.200s'",
             r->text);
    r->p++;
    r->depth--;
    if (inverted) set_invert(s);
    return CT_OK;
}

static void add_ranges(ct_string *out, const set *s) {
    for (uint32_t c = 0; c < CT_UNICODE_LIMIT; c++) {
        if (!s->bits[c / 64]) {
            c |= 63;
            continue;
        }
        if (!set_has(s, c) || (c >= 0xd800 && c <= 0xdfff)) continue;
        uint32_t high = c;
        while (high + 1 < CT_UNICODE_LIMIT && high + 1 != 0xd800 && set_has(s, high + 1)) high++;
        add_point(out, c);
        if (high > c) ct_string_add(out, "-"), add_point(out, high);
        c = high;
    }
}

static const char *const category_names[] = {"L", "M", "N", "P", "S"};
#define CATEGORIES (sizeof category_names / sizeof *category_names)

static ct_status learn_categories(rewriter *r) {
    if (r->categories) return CT_OK;
    r->categories = ct_calloc(CATEGORIES, sizeof *r->categories);
    for (size_t i = 0; i < CATEGORIES; i++) {
        char class[16];
        snprintf(class, sizeof class, "[\\p{%s}]", category_names[i]);
        CT_TRY(add_matches(class, &r->categories[i]));
    }
    return CT_OK;
}

// The best start for a set in PCRE2's notation: those general categories that lie in it whole (by PCRE2's own
// reckoning).
static ct_status add_categories(rewriter *r, const set *s, set *left) {
    CT_TRY(learn_categories(r));
    for (size_t i = 0; i < CATEGORIES; i++) {
        const set *theirs = &r->categories[i];
        int inside = 1;
        for (int w = 0; w < WORDS && inside; w++) inside = !(theirs->bits[w] & ~s->bits[w]);
        if (!inside) continue;
        ct_string_add(&r->out, "\\p{%s}", category_names[i]);
        for (int w = 0; w < WORDS; w++) left->bits[w] &= ~theirs->bits[w];
    }
    return CT_OK;
}

static int range_count(const set *s) {
    int count = 0, before = 0;
    for (uint32_t c = 0; c < CT_UNICODE_LIMIT; c++) {
        int now = set_has(s, c);
        count += now && !before;
        before = now;
    }
    return count;
}

// Writes a set as a class: whichever of it and its complement takes fewer ranges.
static ct_status write_class(rewriter *r, set *s) {
    int inverted = set_has(s, 0x10ffff); // unassigned: a negated class
    if (inverted) set_invert(s);
    ct_string_add(&r->out, inverted ? "[^" : "[");
    set *left = ct_malloc(sizeof *left);
    *left = *s;
    ct_status status = range_count(s) > 40 ? add_categories(r, s, left) : CT_OK;
    add_ranges(&r->out, left);
    free(left);
    ct_string_add(&r->out, "]");
    return status;
}

// ---- the whole -----------------------------------------------------------------------------------

static ct_status rewrite_escape(rewriter *r, set *s) {
    int is_class;
    r->p++;
    CT_CHECK(r->p < r->end, CT_INVALID, "the regular expression '%.200s' ends in a backslash", r->text);
    CT_TRY(class_escape(r, s, 0, &is_class));
    if (is_class) return write_class(r, s);
    char c = *r->p;
    if (c == 'u' || c == 'x') {
        r->p++;
        add_point(&r->out, hex_escape(r, c == 'u' ? 4 : 2));
    } else if ((unsigned char)c >= 0x80) {
        add_point(&r->out, class_character(r));
    } else {
        CT_CHECK(!strchr("GKRXNOyY", c), CT_UNSUPPORTED, "\\%c in a regular expression", c);
        ct_string_add_bytes(&r->out, r->p - 1, 2);
        r->p++;
    }
    return CT_OK;
}

// (?ims-…: the flags. Oniguruma's m is what others call s.
static ct_status rewrite_group(rewriter *r) {
    const char *p = r->p + 2;
    while (p < r->end && strchr("imsx-", *p)) p++;
    int is_flags = p > r->p + 2 && p < r->end && (*p == ':' || *p == ')');
    for (const char *q = r->p; is_flags && q < p; q++) {
        CT_CHECK(r->flavour != CT_FLAVOUR_ONIG || *q != 's', CT_INVALID,
                 "the flag s in the regular expression '%.200s'", r->text);
        ct_string_add(&r->out, "%c", r->flavour == CT_FLAVOUR_ONIG && *q == 'm' ? 's' : *q);
    }
    if (!is_flags) ct_string_add(&r->out, "(?"), p = r->p + 2;
    r->p = p;
    return CT_OK;
}

static ct_status rewrite_item(rewriter *r, set *s) {
    char c = *r->p;
    if (c == '(' && r->p + 1 < r->end && r->p[1] == '?') return rewrite_group(r);
    if (c == '\\') return rewrite_escape(r, s);
    if (c == '[') {
        CT_TRY(parse_class(r, s));
        return write_class(r, s);
    }
    if (c == '$')
        ct_string_add(&r->out, r->flavour == CT_FLAVOUR_ONIG ? "(?m:$)" : "\\z");
    else if (c == '^')
        ct_string_add(&r->out, r->flavour == CT_FLAVOUR_ONIG ? "(?m:^)" : "\\A");
    else
        ct_string_add_bytes(&r->out, r->p, 1);
    r->p++;
    return CT_OK;
}

ct_status ct_pattern_rewrite(const char *text, size_t length, ct_pattern_flavour flavour, const uint8_t *classes,
                             char **out_text) {
    rewriter r = {.text = text, .p = text, .end = text + length, .flavour = flavour, .classes = classes};
    set *s = ct_malloc(sizeof *s);
    ct_status status = CT_OK;
    ct_string_add(&r.out, "(?:)");
    r.out.length = 0, r.out.text[0] = 0; // never NULL
    while (!status && r.p < r.end) {
        memset(s, 0, sizeof *s);
        status = rewrite_item(&r, s);
    }
    free(s);
    free(r.categories);
    if (status) return ct_string_deinit(&r.out), status;
    *out_text = r.out.text;
    return CT_OK;
}
