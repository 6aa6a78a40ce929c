// tokenizer.json's normalizer, pre_tokenizer, decoder and post_processor: each a tree of typed objects ("Sequence"
// nests), which becomes a flat list of steps. A type that is not known here is an error that names it.
#include "load_json.h"
#include "load_base64.h"

#include <stdlib.h>
#include <string.h>

// The type of a part, and an error where it has none.
static ct_status type_of(const cJSON *json, const char **out_type) {
    CT_CHECK(cJSON_IsObject(json), CT_INVALID, "a part is not an object");
    CT_TRY(ct_json_text(json, "type", out_type));
    CT_CHECK(*out_type, CT_INVALID, "a part has no \"type\"");
    return CT_OK;
}

// Calls load for every part of a Sequence.
typedef ct_status part_loader(ct_tokenizer *tokenizer, const cJSON *json);
static ct_status load_sequence(ct_tokenizer *tokenizer, const cJSON *json, const char *field, part_loader *load) {
    const cJSON *parts = ct_json_field(json, field);
    CT_CHECK(cJSON_IsArray(parts), CT_INVALID, "a Sequence has no list \"%s\"", field);
    for (cJSON *part = parts->child; part; part = part->next) CT_TRY(load(tokenizer, part));
    return CT_OK;
}

static ct_status text_field(ct_tokenizer *tokenizer, const cJSON *json, const char *name, const char *otherwise,
                            const char **out_text) {
    CT_TRY(ct_json_text(json, name, out_text));
    if (!*out_text) *out_text = otherwise;
    CT_CHECK(*out_text, CT_INVALID, "there is no \"%s\"", name);
    *out_text = ct_arena_strdup(&tokenizer->arena, *out_text);
    return CT_OK;
}

// {"String": …} or {"Regex": …}
static ct_status pattern_field(ct_tokenizer *tokenizer, const cJSON *json, const char **out_string,
                               const char **out_regex) {
    const cJSON *pattern = ct_json_field(json, "pattern");
    *out_string = *out_regex = NULL;
    if (cJSON_IsString(pattern)) {
        *out_string = ct_arena_strdup(&tokenizer->arena, pattern->valuestring);
        return CT_OK;
    }
    CT_CHECK(cJSON_IsObject(pattern), CT_INVALID, "there is no \"pattern\"");
    CT_TRY(ct_json_text(pattern, "String", out_string));
    CT_TRY(ct_json_text(pattern, "Regex", out_regex));
    CT_CHECK(!*out_string != !*out_regex, CT_INVALID, "a \"pattern\" is neither a String nor a Regex");
    if (*out_string) *out_string = ct_arena_strdup(&tokenizer->arena, *out_string);
    return CT_OK;
}

// ---- normalizer ----------------------------------------------------------------------------------

static ct_norm_step *new_norm(ct_tokenizer *tokenizer, ct_norm_kind kind) {
    ct_normalizer *normalizer = &tokenizer->normalizer;
    CT_GROW(normalizer->steps, normalizer->count, normalizer->capacity);
    ct_norm_step *step = &normalizer->steps[normalizer->count++];
    *step = (ct_norm_step){.kind = kind};
    return step;
}

static ct_status load_replace(ct_tokenizer *tokenizer, const cJSON *json) {
    const char *string, *regex, *content;
    CT_TRY(pattern_field(tokenizer, json, &string, &regex));
    CT_TRY(text_field(tokenizer, json, "content", NULL, &content));
    ct_pattern *pattern = NULL;
    if (regex) CT_TRY(ct_pattern_compile(regex, strlen(regex), CT_FLAVOUR_ONIG, tokenizer->classes, &pattern));
    ct_norm_step *step = new_norm(tokenizer, CT_NORM_REPLACE);
    step->pattern = pattern;
    step->text = string, step->text_length = string ? strlen(string) : 0;
    step->content = content, step->content_length = strlen(content);
    return CT_OK;
}

static ct_status load_precompiled(ct_tokenizer *tokenizer, const cJSON *json) {
    const char *text;
    CT_TRY(ct_json_text(json, "precompiled_charsmap", &text));
    size_t size;
    unsigned char *bytes = text ? ct_arena_alloc(&tokenizer->arena, strlen(text) + 4) : NULL;
    CT_CHECK(!text || ct_base64_decode(text, strlen(text), bytes, &size), CT_INVALID,
             "precompiled_charsmap is not base64");
    ct_charsmap map = {0};
    CT_CHECK(!text || ct_charsmap_parse(bytes, size, &map), CT_CORRUPT, "precompiled_charsmap is malformed");
    new_norm(tokenizer, CT_NORM_CHARSMAP)->charsmap = map;
    return CT_OK;
}

static ct_status load_strip(ct_tokenizer *tokenizer, const cJSON *json) {
    int left, right;
    CT_TRY(ct_json_flag(json, "strip_left", 0, &left));
    CT_TRY(ct_json_flag(json, "strip_right", 0, &right));
    ct_norm_step *step = new_norm(tokenizer, CT_NORM_STRIP);
    step->left = left, step->right = right;
    return CT_OK;
}

ct_status ct_load_normalizer(ct_tokenizer *tokenizer, const cJSON *json) {
    static const struct {
        const char *type;
        ct_norm_kind kind;
    } plain[] = {{"NFC", CT_NORM_NFC},
                 {"NFD", CT_NORM_NFD},
                 {"NFKC", CT_NORM_NFKC},
                 {"NFKD", CT_NORM_NFKD},
                 {"Lowercase", CT_NORM_LOWERCASE},
                 {"StripAccents", CT_NORM_STRIP_ACCENTS},
                 {"Nmt", CT_NORM_NMT},
                 {"ByteLevel", CT_NORM_BYTES}};
    if (!json) return CT_OK;
    const char *type;
    CT_TRY(type_of(json, &type));
    if (!strcmp(type, "Sequence")) return load_sequence(tokenizer, json, "normalizers", ct_load_normalizer);
    if (!strcmp(type, "Replace")) return load_replace(tokenizer, json);
    if (!strcmp(type, "Strip")) return load_strip(tokenizer, json);
    if (!strcmp(type, "Precompiled")) return load_precompiled(tokenizer, json);
    if (!strcmp(type, "Prepend")) {
        const char *content;
        CT_TRY(text_field(tokenizer, json, "prepend", NULL, &content));
        ct_norm_step *step = new_norm(tokenizer, CT_NORM_PREPEND);
        step->content = content, step->content_length = strlen(content);
        return CT_OK;
    }
    for (size_t i = 0; i < sizeof plain / sizeof *plain; i++)
        if (!strcmp(type, plain[i].type)) return new_norm(tokenizer, plain[i].kind), CT_OK;
    CT_FAIL(CT_UNSUPPORTED, "the normalizer '%.40s' is not supported", type);
}

// ---- pre_tokenizer -------------------------------------------------------------------------------

static ct_split_step *new_split(ct_tokenizer *tokenizer, ct_split_kind kind, ct_split_behaviour behaviour) {
    ct_splitter *splitter = &tokenizer->splitter;
    CT_GROW(splitter->steps, splitter->count, splitter->capacity);
    ct_split_step *step = &splitter->steps[splitter->count++];
    *step = (ct_split_step){.kind = kind, .behaviour = behaviour};
    return step;
}

static ct_status behaviour_field(const cJSON *json, ct_split_behaviour *out_behaviour) {
    static const char *const names[] = {"Isolated", "Removed", "Contiguous", "MergedWithPrevious", "MergedWithNext"};
    const char *text;
    CT_TRY(ct_json_text(json, "behavior", &text));
    *out_behaviour = CT_SPLIT_ISOLATED;
    for (int i = 0; text && i < 5; i++)
        if (!strcmp(text, names[i])) return *out_behaviour = (ct_split_behaviour)i, CT_OK;
    CT_CHECK(!text, CT_UNSUPPORTED, "the behavior '%.40s' is not supported", text);
    return CT_OK;
}

static ct_status load_split(ct_tokenizer *tokenizer, const cJSON *json) {
    const char *string, *regex;
    ct_split_behaviour behaviour;
    int invert;
    CT_TRY(pattern_field(tokenizer, json, &string, &regex));
    CT_TRY(behaviour_field(json, &behaviour));
    CT_TRY(ct_json_flag(json, "invert", 0, &invert));
    ct_splitter *splitter = &tokenizer->splitter;
    if (regex && behaviour == CT_SPLIT_ISOLATED && !invert)
        return ct_splitter_add_pattern(splitter, regex, strlen(regex), CT_FLAVOUR_ONIG, tokenizer->classes);
    ct_pattern *pattern = NULL;
    if (regex) CT_TRY(ct_pattern_compile(regex, strlen(regex), CT_FLAVOUR_ONIG, tokenizer->classes, &pattern));
    ct_split_step *step = new_split(tokenizer, regex ? CT_SPLIT_PATTERN : CT_SPLIT_TEXT, behaviour);
    step->pattern = pattern, step->invert = invert;
    step->text = string, step->text_length = string ? strlen(string) : 0;
    return CT_OK;
}

static ct_status load_byte_level(ct_tokenizer *tokenizer, const cJSON *json) {
    int prefix, regex;
    CT_TRY(ct_json_flag(json, "add_prefix_space", 1, &prefix));
    CT_TRY(ct_json_flag(json, "use_regex", 1, &regex));
    if (prefix) new_split(tokenizer, CT_SPLIT_PREFIX, CT_SPLIT_ISOLATED);
    const char *pattern = ct_pattern_named("gpt2");
    if (regex)
        CT_TRY(ct_splitter_add_pattern(&tokenizer->splitter, pattern, strlen(pattern), CT_FLAVOUR_ONIG,
                                       tokenizer->classes));
    new_split(tokenizer, CT_SPLIT_BYTES, CT_SPLIT_ISOLATED);
    return CT_OK;
}

static ct_status prepend_field(const cJSON *json, ct_prepend *out_prepend) {
    const char *scheme;
    int prefix;
    CT_TRY(ct_json_text(json, "prepend_scheme", &scheme));
    CT_TRY(ct_json_flag(json, "add_prefix_space", 1, &prefix));
    if (!scheme) scheme = prefix ? "always" : "never";
    int is_never = !strcmp(scheme, "never"), is_first = !strcmp(scheme, "first");
    CT_CHECK(is_never || is_first || !strcmp(scheme, "always"), CT_INVALID, "the prepend_scheme '%.40s'", scheme);
    *out_prepend = is_never ? CT_PREPEND_NEVER : is_first ? CT_PREPEND_FIRST : CT_PREPEND_ALWAYS;
    return CT_OK;
}

static ct_status load_metaspace(ct_tokenizer *tokenizer, const cJSON *json) {
    const char *mark;
    ct_prepend prepend;
    int cut;
    CT_TRY(text_field(tokenizer, json, "replacement", "\xe2\x96\x81", &mark));
    CT_CHECK(*mark, CT_INVALID, "an empty \"replacement\"");
    CT_TRY(prepend_field(json, &prepend));
    CT_TRY(ct_json_flag(json, "split", 1, &cut));
    ct_split_step *step = new_split(tokenizer, CT_SPLIT_METASPACE, CT_SPLIT_ISOLATED);
    step->text = mark, step->text_length = strlen(mark), step->prepend = prepend, step->cut = cut;
    return CT_OK;
}

static ct_status load_punctuation(ct_tokenizer *tokenizer, const cJSON *json) {
    ct_split_behaviour behaviour;
    CT_TRY(behaviour_field(json, &behaviour));
    new_split(tokenizer, CT_SPLIT_PUNCTUATION, behaviour);
    return CT_OK;
}

static ct_status load_digits(ct_tokenizer *tokenizer, const cJSON *json) {
    int individual;
    CT_TRY(ct_json_flag(json, "individual_digits", 0, &individual));
    new_split(tokenizer, CT_SPLIT_DIGITS, individual ? CT_SPLIT_ISOLATED : CT_SPLIT_CONTIGUOUS);
    return CT_OK;
}

static ct_status load_delimiter(ct_tokenizer *tokenizer, const cJSON *json) {
    const char *delimiter;
    CT_TRY(text_field(tokenizer, json, "delimiter", NULL, &delimiter));
    ct_split_step *step = new_split(tokenizer, CT_SPLIT_TEXT, CT_SPLIT_REMOVED);
    step->text = delimiter, step->text_length = strlen(delimiter);
    return CT_OK;
}

static ct_status load_split_part(ct_tokenizer *tokenizer, const cJSON *json) {
    const char *type;
    CT_TRY(type_of(json, &type));
    if (!strcmp(type, "Sequence")) return load_sequence(tokenizer, json, "pretokenizers", load_split_part);
    if (!strcmp(type, "Split")) return load_split(tokenizer, json);
    if (!strcmp(type, "ByteLevel")) return load_byte_level(tokenizer, json);
    if (!strcmp(type, "Metaspace")) return load_metaspace(tokenizer, json);
    if (!strcmp(type, "Digits")) return load_digits(tokenizer, json);
    if (!strcmp(type, "Punctuation")) return load_punctuation(tokenizer, json);
    if (!strcmp(type, "CharDelimiterSplit")) return load_delimiter(tokenizer, json);
    if (!strcmp(type, "Whitespace")) return new_split(tokenizer, CT_SPLIT_WORDS, CT_SPLIT_REMOVED), CT_OK;
    if (!strcmp(type, "WhitespaceSplit")) return new_split(tokenizer, CT_SPLIT_SPACES, CT_SPLIT_REMOVED), CT_OK;
    if (!strcmp(type, "BertPreTokenizer")) {
        new_split(tokenizer, CT_SPLIT_SPACES, CT_SPLIT_REMOVED);
        new_split(tokenizer, CT_SPLIT_PUNCTUATION, CT_SPLIT_ISOLATED);
        return CT_OK;
    }
    CT_FAIL(CT_UNSUPPORTED, "the pre_tokenizer '%.40s' is not supported", type);
}

ct_status ct_load_splitter(ct_tokenizer *tokenizer, const cJSON *json) {
    if (json) CT_TRY(load_split_part(tokenizer, json));
    // A last step that only writes the byte-level alphabet is left out: BPE then works on the bytes themselves.
    ct_splitter *splitter = &tokenizer->splitter;
    int bytes_last = splitter->count && splitter->steps[splitter->count - 1].kind == CT_SPLIT_BYTES;
    for (int i = 0; i + 1 < splitter->count; i++) bytes_last &= splitter->steps[i].kind != CT_SPLIT_BYTES;
    if (bytes_last && tokenizer->model == CT_MODEL_BPE && !tokenizer->bpe.prefix && !tokenizer->bpe.suffix &&
        !tokenizer->bpe.byte_fallback) {
        splitter->count--;
        tokenizer->bpe.byte_level = 1;
    }
    return CT_OK;
}

// ---- decoder -------------------------------------------------------------------------------------

static ct_decode_step *new_decode(ct_tokenizer *tokenizer, ct_decode_kind kind) {
    ct_decoder *decoder = &tokenizer->decoder;
    CT_GROW(decoder->steps, decoder->count, decoder->capacity);
    ct_decode_step *step = &decoder->steps[decoder->count++];
    *step = (ct_decode_step){.kind = kind};
    return step;
}

static ct_status load_decode_strip(ct_tokenizer *tokenizer, const cJSON *json) {
    const char *content;
    int start, stop;
    CT_TRY(text_field(tokenizer, json, "content", NULL, &content));
    CT_TRY(ct_json_count(json, "start", 0, &start));
    CT_TRY(ct_json_count(json, "stop", 0, &stop));
    ct_decoder *decoder = &tokenizer->decoder;
    if (decoder->fused) {
        CT_CHECK(!stop && !decoder->strip_text, CT_UNSUPPORTED,
                 "a decoder's Strip at the end of the whole text is not supported");
        decoder->strip_text = content, decoder->strip_start = start;
        return CT_OK;
    }
    ct_decode_step *step = new_decode(tokenizer, CT_DECODE_STRIP);
    step->text = content, step->text_length = strlen(content), step->start = start, step->stop = stop;
    return CT_OK;
}

static ct_status load_decode_replace(ct_tokenizer *tokenizer, const cJSON *json) {
    const char *string, *regex, *content;
    CT_TRY(pattern_field(tokenizer, json, &string, &regex));
    CT_CHECK(!regex, CT_UNSUPPORTED, "a decoder's Replace with a Regex is not supported");
    CT_TRY(text_field(tokenizer, json, "content", NULL, &content));
    ct_decode_step *step = new_decode(tokenizer, CT_DECODE_REPLACE);
    step->text = string, step->text_length = strlen(string), step->content = content,
    step->content_length = strlen(content);
    return CT_OK;
}

static ct_status load_decode_metaspace(ct_tokenizer *tokenizer, const cJSON *json) {
    const char *mark;
    ct_prepend prepend;
    CT_TRY(text_field(tokenizer, json, "replacement", "\xe2\x96\x81", &mark));
    CT_TRY(prepend_field(json, &prepend));
    ct_decode_step *step = new_decode(tokenizer, CT_DECODE_METASPACE);
    step->text = mark, step->text_length = strlen(mark), step->content = " ", step->content_length = 1;
    step->start = prepend != CT_PREPEND_NEVER;
    return CT_OK;
}

static ct_status load_decode_part(ct_tokenizer *tokenizer, const cJSON *json) {
    const char *type;
    CT_TRY(type_of(json, &type));
    if (!strcmp(type, "Sequence")) return load_sequence(tokenizer, json, "decoders", load_decode_part);
    if (!strcmp(type, "Strip")) return load_decode_strip(tokenizer, json);
    if (!strcmp(type, "Fuse")) return tokenizer->decoder.fused = 1, CT_OK;
    CT_CHECK(!tokenizer->decoder.fused, CT_UNSUPPORTED, "the decoder '%.40s' behind Fuse is not supported", type);
    if (!strcmp(type, "ByteLevel")) return new_decode(tokenizer, CT_DECODE_BYTE_LEVEL), CT_OK;
    if (!strcmp(type, "ByteFallback")) return new_decode(tokenizer, CT_DECODE_BYTE_FALLBACK), CT_OK;
    if (!strcmp(type, "Replace")) return load_decode_replace(tokenizer, json);
    if (!strcmp(type, "Metaspace")) return load_decode_metaspace(tokenizer, json);
    if (!strcmp(type, "BPEDecoder")) {
        const char *suffix;
        CT_TRY(text_field(tokenizer, json, "suffix", "</w>", &suffix));
        ct_decode_step *step = new_decode(tokenizer, CT_DECODE_SUFFIX);
        step->text = suffix, step->text_length = strlen(suffix), step->content = " ", step->content_length = 1;
        return CT_OK;
    }
    CT_FAIL(CT_UNSUPPORTED, "the decoder '%.40s' is not supported", type);
}

ct_status ct_load_decoder(ct_tokenizer *tokenizer, const cJSON *json) {
    if (!json) return tokenizer->decoder.spaced = 1, CT_OK;
    return load_decode_part(tokenizer, json);
}

// ---- post_processor ------------------------------------------------------------------------------

static void add_template_id(ct_tokenizer *tokenizer, int behind, int32_t id) {
    int32_t **ids = behind ? &tokenizer->after : &tokenizer->before;
    int *count = behind ? &tokenizer->after_count : &tokenizer->before_count;
    *ids = ct_realloc(*ids, (size_t)(*count + 1) * sizeof **ids);
    (*ids)[(*count)++] = id;
}

static ct_status template_special(ct_tokenizer *tokenizer, const cJSON *json, const cJSON *special, int behind) {
    const char *name;
    CT_TRY(ct_json_text(special, "id", &name));
    CT_CHECK(name, CT_INVALID, "a template's SpecialToken has no \"id\"");
    const cJSON *known = ct_json_field(ct_json_field(json, "special_tokens"), name);
    const cJSON *ids = ct_json_field(known, "ids");
    CT_CHECK(cJSON_IsArray(ids), CT_INVALID, "the template's token '%.60s' has no \"ids\"", name);
    for (cJSON *id = ids->child; id; id = id->next) {
        CT_CHECK(cJSON_IsNumber(id) && id->valuedouble >= 0 && id->valuedouble < 1 << 28, CT_INVALID,
                 "the template's token '%.60s' has an id that is none", name);
        add_template_id(tokenizer, behind, id->valueint);
    }
    return CT_OK;
}

static ct_status load_template_processing(ct_tokenizer *tokenizer, const cJSON *json) {
    const cJSON *single = ct_json_field(json, "single");
    CT_CHECK(cJSON_IsArray(single), CT_UNSUPPORTED, "a template's \"single\" that is not a list is not supported");
    int behind = 0;
    for (cJSON *part = single->child; part; part = part->next) {
        const cJSON *special = ct_json_field(part, "SpecialToken");
        CT_CHECK(special || ct_json_field(part, "Sequence"), CT_INVALID,
                 "a template's part is neither token nor text");
        CT_CHECK(special || !behind, CT_UNSUPPORTED, "a template that repeats its text is not supported");
        if (special)
            CT_TRY(template_special(tokenizer, json, special, behind));
        else
            behind = 1;
    }
    return CT_OK;
}

// ["<s>", 0]
static ct_status pair_id(const cJSON *json, const char *name, int32_t *out_id) {
    const cJSON *pair = ct_json_field(json, name),
                *id = cJSON_IsArray(pair) && pair->child ? pair->child->next : NULL;
    CT_CHECK(cJSON_IsNumber(id) && id->valuedouble >= 0 && id->valuedouble < 1 << 28, CT_INVALID,
             "\"%s\" is no token and id", name);
    *out_id = id->valueint;
    return CT_OK;
}

static ct_status load_template_part(ct_tokenizer *tokenizer, const cJSON *json) {
    const char *type;
    CT_TRY(type_of(json, &type));
    if (!strcmp(type, "Sequence")) return load_sequence(tokenizer, json, "processors", load_template_part);
    if (!strcmp(type, "ByteLevel")) return CT_OK; // moves offsets only
    CT_CHECK(!tokenizer->before_count && !tokenizer->after_count, CT_UNSUPPORTED, "two templates are not supported");
    if (!strcmp(type, "TemplateProcessing")) return load_template_processing(tokenizer, json);
    if (!strcmp(type, "RobertaProcessing") || !strcmp(type, "BertProcessing")) {
        int32_t cls, sep;
        CT_TRY(pair_id(json, "cls", &cls));
        CT_TRY(pair_id(json, "sep", &sep));
        add_template_id(tokenizer, 0, cls);
        add_template_id(tokenizer, 1, sep);
        return CT_OK;
    }
    CT_FAIL(CT_UNSUPPORTED, "the post_processor '%.40s' is not supported", type);
}

ct_status ct_load_template(ct_tokenizer *tokenizer, const cJSON *json) {
    return json ? load_template_part(tokenizer, json) : CT_OK;
}
