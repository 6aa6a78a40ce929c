#!/usr/bin/env python3
"""Makes the text and the tokenizer that the torchtitan fixtures are made from (fixtures/titan/{text,text_short,text_valid,tokenizer}).

The text is the King James Bible (public domain) from Debian's packages bible-kjv 4.38 and bible-kjv-text 4.38:

  apt-get download bible-kjv bible-kjv-text && for p in *.deb; do dpkg-deb -x $p DIR; done
  python make_text.py DIR

Verses are grouped into documents of uneven length. A few documents of our own are put between them because they are what readers get
wrong: an empty one, escapes and surrogate pairs, other scripts, a special token spelt out in the text, a second key before "text".
The tokenizer is a byte-level BPE of 510 entries: the 256 bytes, 252 merges, then <|begin_of_text|> and <|end_of_text|>.
"""
import json, os, re, subprocess, sys
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers

HERE = os.path.dirname(os.path.abspath(__file__))
OUT = os.path.join(HERE, "..", "fixtures", "titan")
BOS, EOS = "<|begin_of_text|>", "<|end_of_text|>"
ODD = [
    "",
    "naïve café — “quoted”, \"plain\", back\\slash, and a\ttab.\r\nA second line.\n\n\n",
    "日本語の文章。 中文句子。 한국어 문장. Ελληνικά, русский, עברית, العربية.",
    "emoji 😀👩‍👩‍👧 and 𝔘𝔫𝔦𝔠𝔬𝔡𝔢; a lone control \u0001 and a NUL \u0000 here; é composed, e\u0301 not.",
    f"A special token spelt out: {EOS} and on we go, {BOS}then more.",
    " ",
    "x" * 300,
    "3.14159 0x1F600 1,000,000 don't we'll I'M they'RE   three   spaces  \n trailing ",
]

def verses(folder, what):
    lib = os.path.join(folder, "usr", "lib")
    text = subprocess.run([os.path.join("..", "bin", "bible"), "-f", what], cwd=lib, capture_output=True, text=True, check=True).stdout
    return [line.split(" ", 1)[1].strip() for line in text.splitlines() if re.match(r"\S+:\d+ ", line)]

def documents(lines, limit_bytes):
    """Groups of 1 to 14 verses, the sizes from a small congruential sequence, until limit_bytes are reached."""
    out, at, state, size = [], 0, 1, 0
    while at < len(lines) and size < limit_bytes:
        state = (state * 1103515245 + 12345) % 2**31
        n = 1 + (state >> 16) % 14
        text = ("\n" if state >> 12 & 1 else " ").join(lines[at:at + n])
        out.append(text); at += n; size += len(text)
    return out

def write(name, docs, odd_every):
    rows, odd = [], iter(ODD)
    for i, text in enumerate(docs):
        if odd_every and i % odd_every == odd_every - 1 and (extra := next(odd, None)) is not None:
            rows.append(extra)
        rows.append(text)
    os.makedirs(os.path.join(OUT, name), exist_ok=True)
    with open(os.path.join(OUT, name, "data.json"), "w") as f:
        for i, text in enumerate(rows):
            row = {"text": text, "id": i} if i % 3 else {"id": i, "text": text}
            f.write(json.dumps(row, ensure_ascii=i % 2 == 0) + "\n")
    return rows

def main(folder):
    write("text", documents(verses(folder, "Gen1:1-50:26"), 90_000), 2)
    write("text_short", documents(verses(folder, "Ps1:1-30:12"), 9_000), 5)
    write("text_valid", documents(verses(folder, "Mat1:1-10:42"), 12_000), 0)

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=508, initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()), show_progress=False)
    tokenizer.train_from_iterator(verses(folder, "Exod1:1-40:38"), trainer)
    tokenizer.add_special_tokens([AddedToken(BOS, special=True), AddedToken(EOS, special=True)])
    os.makedirs(os.path.join(OUT, "tokenizer"), exist_ok=True)
    tokenizer.save(os.path.join(OUT, "tokenizer", "tokenizer.json"))
    with open(os.path.join(OUT, "tokenizer", "tokenizer_config.json"), "w") as f:
        json.dump({"bos_token": BOS, "eos_token": EOS, "clean_up_tokenization_spaces": False,
                   "tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": 131072}, f, indent=1)
        f.write("\n")
    print("vocabulary", tokenizer.get_vocab_size(), "bos", tokenizer.token_to_id(BOS), "eos", tokenizer.token_to_id(EOS))

if __name__ == "__main__":
    main(os.path.abspath(sys.argv[1]))
