#!/usr/bin/env python3
"""Packs fixtures/titan's texts again, without torchtitan, and says where in the token stream each recorded sequence lies.

A stream is BOS + text + EOS of every document in file order, over and over; a sequence is its next seq_len + 1 tokens, the first
seq_len of them the input and the last seq_len the labels; nothing is dropped at the end of the file. Fails if a training batch is
elsewhere; prints the sequence numbers of the validation batches.
"""
import itertools, json, os, tomllib
import numpy as np
from tokenizers import Tokenizer

OUT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "fixtures", "titan")

def sequences(text, length):
    tokenizer = Tokenizer.from_file(f"{OUT}/tokenizer/tokenizer.json")
    bos, eos = tokenizer.token_to_id("<|begin_of_text|>"), tokenizer.token_to_id("<|end_of_text|>")
    docs = [[bos, *tokenizer.encode(json.loads(line)["text"]).ids, eos] for line in open(f"{OUT}/{text}/data.json")]
    stream = itertools.chain.from_iterable(itertools.cycle(docs))
    return sum(map(len, docs)), iter(lambda: tuple(itertools.islice(stream, length + 1)), None)

def main():
    for name in sorted(d for d in os.listdir(OUT) if os.path.exists(f"{OUT}/{d}/case.json")):
        config, case = tomllib.load(open(f"{OUT}/{name}/config.toml", "rb")), json.load(open(f"{OUT}/{name}/case.json"))
        rows = np.fromfile(f"{OUT}/{name}/batches.bin", "<u2").reshape(case["steps"], case["micro"], 2, case["batch"], case["seq_len"])
        total, source = sequences(os.path.basename(config["training"]["dataset_path"]), case["seq_len"])
        used = 0
        for inputs, labels in rows.reshape(-1, 2, case["batch"], case["seq_len"]):
            for x, y in zip(inputs, labels):
                want = next(source)
                assert tuple(x) == want[:-1] and tuple(y) == want[1:], (name, used)
                used += case["seq_len"] + 1
        print(f"{name:16} {used} tokens used of a text of {total}: {used / total:.2f} epochs")
        if "valid_rows" in case:
            valid = np.fromfile(f"{OUT}/{name}/valid_batches.bin", "<u2").reshape(-1, 2, case["valid_seq_len"])
            total, source = sequences(os.path.basename(config["validation"]["dataset_path"]), case["valid_seq_len"])
            numbers = {}
            for i, seq in zip(range(1000), source):
                numbers.setdefault(seq, i)
            at = [numbers[(*map(int, x), int(y[-1]))] for x, y in valid]
            ends = list(itertools.accumulate(case["valid_rows"]))
            print("  validation: text of", total, "tokens; sequence numbers of each batch:", [at[e - n:e] for n, e in zip(case["valid_rows"], ends)])

if __name__ == "__main__":
    main()
