#!/usr/bin/env python3
"""Makes fixtures/c4_test/data.json and fixtures/packing.txt: the sequences that torchtitan's own dataset class yields.

  V/bin/pip install torch==2.15.0 torchtitan==0.2.2
  V/bin/python make_packing.py

The tokenizer is the bytes of the text, BOS 256, EOS 257. packing.txt: for each case a line "seq_len sequences infinite", then a
line a sequence: its seq_len + 1 ids, input and last label (that label = input moved by one is checked here).
"""
import json, os, random, tempfile

os.environ["HF_HUB_OFFLINE"] = os.environ["HF_DATASETS_OFFLINE"] = "1"
os.environ["HF_HOME"] = tempfile.mkdtemp()
from torchtitan.hf_datasets.text_datasets import HuggingFaceTextDataset

HERE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "fixtures")

class Bytes:
    def encode(self, text, add_bos, add_eos):
        return [256] * add_bos + list(text.encode()) + [257] * add_eos

def documents():
    rng = random.Random(3)
    words = "the quick brown fox jumps over a lazy dog while rain falls on old tiled roofs".split()
    special = ["", "x", "tab\tnewline\nquote\" backslash\\ slash/", "Grüße, 世界 🙂 \u0007 \u2028 end", "\u0000nul"]
    for i in range(40):
        yield special[i // 8] if i % 8 == 3 else " ".join(rng.choices(words, k=rng.choice([1, 2, 5, 9, 40])))

def main():
    os.makedirs(f"{HERE}/c4_test", exist_ok=True)
    with open(f"{HERE}/c4_test/data.json", "w", encoding="utf-8") as f:
        for i, text in enumerate(documents()):                      # half of them with everything escaped
            row = {"url": f"https://example.org/{i}", "text": text, "n": i}
            f.write(json.dumps(row, ensure_ascii=i % 2 == 0) + "\n")
    with open(f"{HERE}/packing.txt", "w") as out:
        for seq_len, count, infinite in [(16, 700, True), (128, 120, True), (1, 50, True), (2000, 9, True), (33, 10**6, False)]:
            data = HuggingFaceTextDataset("c4_test", f"{HERE}/c4_test", Bytes(), seq_len=seq_len, infinite=infinite)
            rows = []
            for sample, label in data:
                x, y = sample["input"].tolist(), label.tolist()
                assert x[1:] == y[:-1] and len(x) == len(y) == seq_len
                rows.append(x + y[-1:])
                if len(rows) == count:
                    break
            out.write(f"{seq_len} {len(rows)} {int(infinite)}\n")
            out.writelines(" ".join(map(str, row)) + "\n" for row in rows)

main()
