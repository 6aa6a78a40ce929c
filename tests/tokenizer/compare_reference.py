#!/usr/bin/env python3
"""Compares ctitan's ids with those of the reference implementations, document by document. Not part of `make test`.

    compare_reference.py --binary build/tests/tokenizer/encode_documents --data DATA [--megabytes 20] [--only llama3,gpt2] [--text FOLDER …]

DATA is the folder of CT_TESTDATA; needs the PyPI packages tokenizers, tiktoken and sentencepiece. The text: three parts from
files (prose and reference pages of the Debian packages in --text, by default what is installed under /usr/share, /usr/include and
/usr/lib/python3), one part from mixed_text.py. Documents are 1 KB to 400 KB long. The first difference of each tokenizer is shown.
"""
import argparse
import array
import base64
import os
import random
import struct
import subprocess
import sys

import mixed_text

LLAMA3_PATTERN = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|"
                  r"\s+(?!\S)|\s+")
CASES = ["llama3", "qwen3", "deepseek_v3", "titan_test", "llama2", "gpt2", "llama3/tokenizer.model", "tiktoken/cl100k_base.tiktoken",
         "llama2/tokenizer.model", "t5/spiece.model"]


def files_of(folders):
    names = []
    for folder in folders:
        for root, _, files in os.walk(folder):
            names += [os.path.join(root, f) for f in files if f.endswith((".txt", ".h", ".py", ".rst", ".c", ".po", ".html", ".md", ".json", ".pl", ".pm"))]
    return sorted(names)


def documents(folders, size):
    r = random.Random(1)
    names = files_of(folders)
    r.shuffle(names)
    total, seed = 0, 0
    while total < size:
        if names and seed % 4:
            with open(names.pop(), "rb") as f:
                data = f.read(400_000)
            if not data:
                continue
        else:
            data = mixed_text.document(seed, r.choice([1000, 20_000, 200_000]))
        seed += 1
        total += len(data)
        yield data


def ranks_of(path):
    with open(path, "rb") as f:
        return {base64.b64decode(a): int(b) for a, b in (line.split() for line in f if line.strip())}


def llama3_specials():
    first = ["<|begin_of_text|>", "<|end_of_text|>", "<|reserved_special_token_0|>", "<|reserved_special_token_1|>",
             "<|reserved_special_token_2|>", "<|reserved_special_token_3|>", "<|start_header_id|>", "<|end_header_id|>",
             "<|reserved_special_token_4|>", "<|eot_id|>"]
    names = first + [f"<|reserved_special_token_{i}|>" for i in range(5, 251)]
    return {name: 128000 + i for i, name in enumerate(names)}


def reference(case, data):
    path = os.path.join(data, "tokenizers", case)
    if case in ("llama3", "qwen3", "deepseek_v3", "llama2"):
        import tokenizers
        t = tokenizers.Tokenizer.from_file(path + "/tokenizer.json")
        return lambda text: t.encode(text, add_special_tokens=False).ids
    if case == "titan_test":  # torchtitan adds the special tokens of tokenizer_config.json
        import json
        import tokenizers
        t = tokenizers.Tokenizer.from_file(path + "/tokenizer.json")
        config = json.load(open(path + "/tokenizer_config.json"))
        t.add_special_tokens([tokenizers.AddedToken(a["content"], normalized=False, special=True)
                              for a in config["added_tokens_decoder"].values()])
        return lambda text: t.encode(text, add_special_tokens=False).ids
    if case == "gpt2":
        import json
        import tokenizers
        merges = [tuple(line.split(" ")) for line in open(path + "/vocab.bpe", encoding="utf-8").read().split("\n")[1:] if line]
        t = tokenizers.Tokenizer(tokenizers.models.BPE(json.load(open(path + "/encoder.json")), merges))
        t.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
        t.add_special_tokens([tokenizers.AddedToken("<|endoftext|>", normalized=False, special=True)])
        return lambda text: t.encode(text, add_special_tokens=False).ids
    if case == "llama3/tokenizer.model":
        import tiktoken
        t = tiktoken.Encoding("llama3", pat_str=LLAMA3_PATTERN, mergeable_ranks=ranks_of(path), special_tokens=llama3_specials())
        return lambda text: t.encode(text, allowed_special="all")
    if case.endswith(".tiktoken"):
        import tiktoken
        import tiktoken_ext.openai_public as public
        public.load_tiktoken_bpe = lambda *a, **k: ranks_of(path)
        t = tiktoken.Encoding(**public.ENCODING_CONSTRUCTORS[os.path.basename(case).split(".")[0]]())
        return lambda text: t.encode(text, allowed_special="all")
    import sentencepiece
    t = sentencepiece.SentencePieceProcessor(model_file=path)
    return lambda text: t.encode(text)


class Ours:
    """One encode_documents process."""

    def __init__(self, binary, path):
        self.process = subprocess.Popen([binary, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def encode(self, data):
        self.process.stdin.write(struct.pack("<I", len(data)) + data)
        self.process.stdin.flush()
        head = self.process.stdout.read(4)
        if len(head) < 4:
            sys.exit("encode_documents ended")
        count = struct.unpack("<I", head)[0]
        ids = array.array("i")
        ids.frombytes(self.process.stdout.read(4 * count))
        return ids.tolist()


def show(case, number, text, want, have):
    n = next((i for i, (a, b) in enumerate(zip(want, have)) if a != b), min(len(want), len(have)))
    print(f"{case}: document {number} ({len(want)} ids, ours {len(have)}) differs at id {n}: want {want[n:n + 8]} have {have[n:n + 8]}, before {want[max(0, n - 6):n]}")


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--binary", required=True)
    p.add_argument("--data", required=True)
    p.add_argument("--megabytes", type=float, default=20)
    p.add_argument("--only")
    p.add_argument("--text", nargs="*", default=["/usr/share/doc", "/usr/share/perl", "/usr/include", "/usr/lib/python3", "/usr/share/i18n"])
    p.add_argument("--keep", help="folder where documents that differ are kept")
    a = p.parse_args()
    cases = a.only.split(",") if a.only else CASES
    failures = {case: 0 for case in cases}
    counts = {case: [0, 0, 0] for case in cases}
    for case in cases:
        encode, own = reference(case, a.data), Ours(a.binary, os.path.join(a.data, "tokenizers", case))
        for number, data in enumerate(documents(a.text, a.megabytes * 1e6)):
            text = data.decode("utf-8", errors="replace")
            want, have = encode(text), own.encode(data)
            counts[case][0] += 1
            counts[case][1] += len(data)
            counts[case][2] += len(want)
            if want == have:
                continue
            failures[case] += 1
            if failures[case] <= 3:
                show(case, number, text, want, have)
            if a.keep:
                os.makedirs(a.keep, exist_ok=True)
                with open(os.path.join(a.keep, f"{number}"), "wb") as f:
                    f.write(data)
        own.process.stdin.close()
        own.process.wait()
    for case in cases:
        documents_, size, ids = counts[case]
        print(f"{case}: {documents_} documents, {size / 1e6:.1f} MB, {ids} ids, {failures[case]} documents differ", flush=True)
    return any(failures.values())


if __name__ == "__main__":
    sys.exit(main())
