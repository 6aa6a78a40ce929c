#!/usr/bin/env python3
"""Makes tests/tokenizer/fixtures with the reference implementations: small tokenizers of many kinds, and what they give.

    make_fixtures.py [DATA]

Needs the PyPI packages tokenizers, tiktoken, sentencepiece. For every tokenizer X a file X.cases is written: JSON, a list of
{"text", "ids", "text_back"} (ids without the template; text_back as the reference decodes them) and, under "template", ids with the
template. mixed.bin is 150 KB of awkward bytes from mixed_text.py; X.cases holds the count and the FNV-1a hash of its ids ("mixed").
With DATA (the folder of CT_TESTDATA), data.cases gets the same for the tokenizers there.
"""
import base64
import json
import math
import os
import random
import sys

import sentencepiece
import tiktoken
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

import compare_reference
import mixed_text

HERE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "fixtures")
WORDS = """the of and to in a is that for it was on are as with his they at be this from I have or by one had not but what all were when
we there can an your which their said if do will each about how up out them then she many some so these would other into has more her
two like him see time could no make than first been its who now people my made over did down only way find use may water long little
very after words called just where most know get through back much before go good new write our used me man too any day same right
look think also around another came come work three word must because does part even place well such here take why things help put
years different away again off went old number great tell men say small every found still between name should Mr home big give air
line set own under read last never us left end along while might next sound below saw something thought both few those always
Straße naïve café über Москва привет мир Ελληνικά שלום مرحبا नमस्ते 你好世界 日本語 テスト 한국어 ไทย 🙂 👍 100 2024 3.14 int main(void) { return 0; }
#include <stdio.h> x = y + z; /* comment */ http://example.com/a?b=c don't it's you're I'll we've""".split()


def training_text():
    r = random.Random(7)
    lines = [" ".join(r.choice(WORDS) for _ in range(r.randint(3, 14))) + r.choice([".", "!", "?", "\n", ""]) for _ in range(3000)]
    return lines + [mixed_text.document(1000 + i, 400).decode(errors="replace") for i in range(20)]


TEXTS = ["", " ", "  ", "Hello world", " Hello  world ", "hello\n\nworld\n", "don't DON'T it's 'S", "a" * 100, "1234567 12 ³½", "naïve café",
         "naïve café e\u0301 \u1100\u1161\u11a8 \ufb01 Ⅷ", "你好，世界。日本語テスト", "🙂👍🏽👨‍👩‍👧", "\t\tint x = 0;\r\n", "<s>x</s>", "x<sep> y <sep>z", "<unk>",
         "▁already ▁marked", "İSTANBUL ΣΑΣ ẞ", "tab\tnbsp\u00a0end\u3000", "a,b.c!d?e", "mix中文and英文123abc", "... --- ...", "zq\ue000\U0010fffd",
         "the of and to in a is that for it was", "word<sep>", " <lead>  x", "noword word <w>word <w>", "\u2028line\u2029para", "aaa<|end|>bbb"]
TEXTS += [mixed_text.document(500 + i, 300).decode(errors="replace") for i in range(8)]
TEXTS = [t.replace("\0", "\1") for t in TEXTS]  # the C test's JSON reader ends a text at a NUL; mixed.bin has some


def fnv(ids):
    value = 0xCBF29CE484222325
    for i in ids:
        for b in int(i).to_bytes(4, "little"):
            value = ((value ^ b) * 0x100000001B3) & 0xFFFFFFFFFFFFFFFF
    return "%016x" % value


MIXED = mixed_text.document(42, 150_000)


def write_cases(name, encode, decode, template=None):
    cases = {"cases": [{"text": t, "ids": encode(t), "text_back": decode(encode(t))} for t in TEXTS]}
    if template:
        cases["template"] = template
    ids = encode(MIXED.decode(errors="replace"))
    cases["mixed"] = {"count": len(ids), "fnv": fnv(ids)}
    with open(os.path.join(HERE, name + ".cases"), "w") as f:
        json.dump(cases, f, indent=0)


def huggingface(name, model, trainer, **parts):
    t = Tokenizer(model)
    for key in ("normalizer", "pre_tokenizer", "decoder", "post_processor"):
        if parts.get(key) is not None:
            setattr(t, key, parts[key])
    if trainer:
        t.train_from_iterator(training_text(), trainer)
    if parts.get("edit"):
        j = json.loads(t.to_str())
        parts["edit"](j)
        t = Tokenizer.from_str(json.dumps(j))
    if parts.get("added"):
        t.add_tokens(parts["added"])
    if parts.get("specials"):
        t.add_special_tokens(parts["specials"])
    if parts.get("template"):
        t.post_processor = parts["template"](t)
    t.save(os.path.join(HERE, name + ".json"), pretty=False)
    write_cases(name, lambda x: t.encode(x, add_special_tokens=False).ids, lambda x: t.decode(x, skip_special_tokens=False),
                {"text": "Hello <s>", "ids": t.encode("Hello <s>").ids})
    return t


def bpe_trainer(size, **kw):
    return trainers.BpeTrainer(vocab_size=size, show_progress=False, **kw)


def byte_fallback(j):
    """Adds <0x00>…<0xFF> in front of a model's vocabulary, as Llama 2's has them."""
    names = ["<unk>", "<s>", "</s>"] + ["<0x%02X>" % i for i in range(256)]
    old = sorted(j["model"]["vocab"], key=j["model"]["vocab"].get)
    names += [n for n in old if n not in names]
    j["model"]["vocab"] = {n: i for i, n in enumerate(names)}
    j["model"].update(byte_fallback=True, unk_token="<unk>", fuse_unk=True)


def unigram_pieces():
    """Frequent pieces of up to five characters, scored by their frequency."""
    counts = {}
    for line in training_text()[:1500]:
        line = "▁" + line.replace(" ", "▁")
        for i in range(len(line)):
            for n in range(1, 6):
                if "▁" not in line[i + 1:i + n] and i + n <= len(line):
                    counts[line[i:i + n]] = counts.get(line[i:i + n], 0) + 1
    best = sorted(counts, key=lambda p: (-counts[p] * len(p), p))[:600]
    total = sum(counts[p] for p in best)
    return [("<unk>", 0.0), ("<s>", 0.0)] + [(p, math.log(counts[p] / total)) for p in best]


def main():
    os.makedirs(HERE, exist_ok=True)
    with open(os.path.join(HERE, "mixed.bin"), "wb") as f:
        f.write(MIXED)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    added = [AddedToken("<sep>", lstrip=True, rstrip=True), AddedToken(" <lead>", lstrip=True), AddedToken("<w>", single_word=True),
             AddedToken("Café", normalized=True)]
    gpt2 = huggingface("gpt2_like", models.BPE(), bpe_trainer(700, initial_alphabet=alphabet),
                       pre_tokenizer=pre_tokenizers.ByteLevel(add_prefix_space=False), decoder=decoders.ByteLevel(), added=added,
                       specials=["<|end|>"])
    huggingface("prefix_space", models.BPE(), bpe_trainer(600, initial_alphabet=alphabet),
                pre_tokenizer=pre_tokenizers.ByteLevel(add_prefix_space=True), decoder=decoders.ByteLevel(), specials=["<s>", "</s>"],
                template=lambda t: processors.RobertaProcessing(("</s>", t.token_to_id("</s>")), ("<s>", t.token_to_id("<s>"))))
    llama3_pattern = compare_reference.LLAMA3_PATTERN
    huggingface("llama3_like", models.BPE(ignore_merges=True), bpe_trainer(700, initial_alphabet=alphabet),
                pre_tokenizer=pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(llama3_pattern), "isolated"),
                                                       pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]),
                decoder=decoders.ByteLevel(), specials=["<s>", "</s>"],
                template=lambda t: processors.Sequence([processors.ByteLevel(), processors.TemplateProcessing(
                    single="<s> $A", special_tokens=[("<s>", t.token_to_id("<s>"))])]))
    huggingface("nfc_falcon", models.BPE(), bpe_trainer(600),
                normalizer=normalizers.Sequence([normalizers.NFC()]),
                pre_tokenizer=pre_tokenizers.Sequence([pre_tokenizers.Punctuation("contiguous"), pre_tokenizers.ByteLevel(add_prefix_space=False),
                                                       pre_tokenizers.Digits(individual_digits=False),
                                                       pre_tokenizers.Split(Regex("[0-9][0-9][0-9]"), "isolated")]),
                decoder=decoders.ByteLevel())
    huggingface("starcoder", models.BPE(), bpe_trainer(600, initial_alphabet=alphabet), normalizer=normalizers.NFKC(),
                pre_tokenizer=pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]),
                decoder=decoders.ByteLevel())
    spaced = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    huggingface("llama2_like", models.BPE(unk_token="<unk>"), bpe_trainer(500, special_tokens=["<unk>", "<s>", "</s>"]),
                normalizer=normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]),
                decoder=decoders.Sequence(spaced), edit=byte_fallback, specials=["<s>", "</s>"],
                template=lambda t: processors.TemplateProcessing(single="<s> $A </s>", special_tokens=[("<s>", 1), ("</s>", 2)]))
    for scheme in ("first", "always", "never"):
        huggingface("metaspace_" + scheme, models.BPE(unk_token="<unk>", fuse_unk=scheme == "first"),
                    bpe_trainer(400, special_tokens=["<unk>", "<s>"]),
                    pre_tokenizer=pre_tokenizers.Metaspace(prepend_scheme=scheme, split=scheme != "always"),
                    decoder=decoders.Metaspace(prepend_scheme=scheme, split=scheme != "always"), added=added)
    huggingface("word_end", models.BPE(unk_token="<unk>", end_of_word_suffix="</w>"),
                bpe_trainer(500, special_tokens=["<unk>"], end_of_word_suffix="</w>"),
                normalizer=normalizers.Sequence([normalizers.NFKC(), normalizers.Replace(Regex(r"\s+"), " "), normalizers.Lowercase()]),
                pre_tokenizer=pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Punctuation()]), decoder=decoders.BPEDecoder())
    huggingface("continuing", models.BPE(unk_token="<unk>", continuing_subword_prefix="##"),
                bpe_trainer(500, special_tokens=["<unk>"], continuing_subword_prefix="##"),
                normalizer=normalizers.Sequence([normalizers.Strip(), normalizers.NFD(), normalizers.StripAccents()]),
                pre_tokenizer=pre_tokenizers.Whitespace())
    behaviours = ["removed", "merged_with_previous", "merged_with_next", "contiguous"]
    for number, behaviour in enumerate(behaviours):
        huggingface("split_" + behaviour, models.BPE(unk_token="<unk>"), bpe_trainer(300, special_tokens=["<unk>"]),
                    normalizer=normalizers.NFKD() if number % 2 else None,
                    pre_tokenizer=pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(r"[\s\p{P}]|[^\W\d]{3}(?=e)"), behaviour, invert=number == 3),
                                                           pre_tokenizers.Split("o", behaviours[3 - number]),
                                                           pre_tokenizers.Split(Regex(r"[a-y&&[^m-p]]+$"), "isolated")]),
                    decoder=decoders.Fuse())
    huggingface("unigram", models.Unigram(unigram_pieces(), unk_id=0, byte_fallback=False), None,
                normalizer=normalizers.Sequence([normalizers.Nmt(), normalizers.NFKC()]), pre_tokenizer=pre_tokenizers.Metaspace(),
                decoder=decoders.Metaspace())
    training_fixture()
    tiktoken_fixture(gpt2)
    sentencepiece_fixtures()
    if len(sys.argv) > 1:
        data_cases(sys.argv[1])


def training_fixture():
    """Text, and the merges that Hugging Face's trainer finds in it: 800 ids less two special tokens."""
    text = "\n".join(training_text()[:1200] + training_text()[-6:]).replace("\0", "")
    with open(os.path.join(HERE, "train_small.txt"), "w", newline="") as f:
        f.write(text)
    t = Tokenizer(models.BPE())
    t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(compare_reference.LLAMA3_PATTERN), "isolated"),
                                               pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    t.train_from_iterator([text], bpe_trainer(798, min_frequency=2, initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    merges = json.loads(t.to_str())["model"]["merges"]
    with open(os.path.join(HERE, "train_small.merges"), "w") as f:
        for m in merges:
            f.write(json.dumps(m if isinstance(m, str) else " ".join(m), ensure_ascii=False) + "\n")


def tiktoken_fixture(t):
    """The byte-level tokenizer's bytes and merged tokens as ranks, under the cl100k pattern."""
    points = {}
    for b in range(256):
        own = 33 <= b <= 126 or 161 <= b <= 172 or 174 <= b
        points[b if own else 256 + len([x for x in range(b) if not (33 <= x <= 126 or 161 <= x <= 172 or 174 <= x)])] = b
    vocab = json.loads(t.to_str())["model"]["vocab"]
    ranks = {bytes(points[ord(c)] for c in text): i for text, i in vocab.items()}
    with open(os.path.join(HERE, "small.tiktoken"), "wb") as f:
        for text, i in sorted(ranks.items(), key=lambda x: x[1]):
            f.write(base64.b64encode(text) + b" %d\n" % i)
    import tiktoken_ext.openai_public as public
    public.load_tiktoken_bpe = lambda *a, **k: {}
    for name in ("cl100k_base", "o200k_base", "r50k_base"):
        known = public.ENCODING_CONSTRUCTORS[name]()
        e = tiktoken.Encoding(name, pat_str=known["pat_str"], mergeable_ranks=ranks, special_tokens=known["special_tokens"])
        write_cases("small_" + name, lambda text: e.encode(text, allowed_special="all"), lambda ids: e.decode_bytes(ids).decode())


def sentencepiece_fixtures():
    text = [line for line in "\n".join(training_text()[:-20]).split("\n") if line]
    for name, options in [("sp_bpe", dict(model_type="bpe", vocab_size=700, byte_fallback=True, normalization_rule_name="identity",
                                          remove_extra_whitespaces=False, user_defined_symbols=["<sep>", "中文"])),
                          ("sp_unigram", dict(model_type="unigram", vocab_size=300, user_defined_symbols=["<sep>"]))]:
        prefix = os.path.join(HERE, name)
        sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(text), model_prefix=prefix, character_coverage=0.98, minloglevel=2, **options)
        os.remove(prefix + ".vocab")
        m = sentencepiece.SentencePieceProcessor(model_file=prefix + ".model")
        write_cases(name, lambda x: m.encode(x), lambda x: m.decode(x))


def data_cases(data):
    out = {}
    for case in compare_reference.CASES:
        ids = compare_reference.reference(case, data)(MIXED.decode(errors="replace"))
        out[case] = {"count": len(ids), "fnv": fnv(ids)}
    with open(os.path.join(HERE, "data.cases"), "w") as f:
        json.dump(out, f, indent=1)


if __name__ == "__main__":
    main()
