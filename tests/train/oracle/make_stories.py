#!/usr/bin/env python3
"""Makes fixtures/stories260K from the published checkpoint stories260K.bin and its tokenizer tok512.bin (karpathy/tinyllamas).

  python make_stories.py FOLDER        (FOLDER holds the two files; they are not part of this repository)

Logits of a fixed prompt and the greedy continuation of BOS, computed with plain_llama.py in float64. It checks that the rotary tables
stored in the checkpoint are those of theta = 10000, and prints the smallest gap between the first and the second choice, which is what a
float32 implementation's error must stay below to tell the same story.
"""
import os, struct, sys
import numpy as np
import torch
from safetensors.torch import save_file
import plain_llama as llama

OUT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "fixtures", "stories260K")
PROMPT = ("Tom and his sister Lily went to the park. They saw a big dog with a red ball. \"Can we play with you?\" asked Tom. "
          "The dog said, \"Yes, but first you must find 7 nuts!\"")
BOS, PROMPT_TOKENS, STORY_TOKENS = 1, 64, 256

def load_model(path):
    """llama2.c's legacy format: seven int32, then fp32 arrays."""
    data = open(path, "rb").read()
    dim, hidden, layers, heads, kv_heads, vocab, seq_len = struct.unpack("<7i", data[:28])
    tied, vocab, kv = vocab > 0, abs(vocab), dim // heads * kv_heads
    flat, at = torch.from_numpy(np.frombuffer(data, "<f4", offset=28).copy()), 0
    def take(*shape):
        nonlocal at
        n = int(np.prod(shape)); at += n
        return flat[at - n:at].view(*shape)
    w = {"tok_embeddings.weight": take(vocab, dim)}
    for name, shape in {"attention_norm": (dim,), "attention.wq": (dim, dim), "attention.wk": (kv, dim), "attention.wv": (kv, dim),
                        "attention.wo": (dim, dim), "ffn_norm": (dim,), "feed_forward.w1": (hidden, dim), "feed_forward.w2": (dim, hidden),
                        "feed_forward.w3": (hidden, dim)}.items():
        w |= {f"layers.{i}.{name}.weight": x for i, x in enumerate(take(layers, *shape))}
    w["norm.weight"] = take(dim)
    tables = take(seq_len, dim // heads // 2), take(seq_len, dim // heads // 2)
    if not tied:
        w["output.weight"] = take(vocab, dim)
    assert at == flat.numel(), "bytes left over"
    args = {"dim": dim, "n_layers": layers, "n_heads": heads, "n_kv_heads": kv_heads, "norm_eps": 1e-5, "rope_theta": 10000.0, "rope_scaling_args": None}
    angles = torch.arange(seq_len, dtype=torch.float64)[:, None] * llama.rope_frequencies(dim // heads, 10000.0)
    print("rotary tables differ from theta = 10000 by", max((t.double() - f(angles)).abs().max().item() for t, f in zip(tables, (torch.cos, torch.sin))))
    return {k: v.double() for k, v in w.items()}, args, vocab, hidden, seq_len

def load_tokens(path, vocab):
    data, at, out = open(path, "rb").read(), 4, []
    for _ in range(vocab):
        score, n = struct.unpack_from("<fi", data, at)
        out.append((data[at + 8:at + 8 + n], score)); at += 8 + n
    return out

def encode(text, tokens):
    """BOS, a space before the text, then the pair with the best score merged until none is left; bytes stand at 3 + byte."""
    ids = {piece: i for i, (piece, _) in reversed(list(enumerate(tokens)))}
    out = [ids[c] if (c := ch.encode()) in ids else None for ch in " " + text]
    assert None not in out
    while True:
        pairs = [(tokens[ids[m]][1], -i) for i in range(len(out) - 1) if (m := tokens[out[i]][0] + tokens[out[i + 1]][0]) in ids]
        if not pairs:
            return [BOS, *out]
        i = -max(pairs)[1]
        out[i:i + 2] = [ids[tokens[out[i]][0] + tokens[out[i + 1]][0]]]

def decode(ids, tokens):
    text = b"".join(bytes([i - 3]) if i < 259 else tokens[i][0] for i in ids if i > 2)
    return text.decode().removeprefix(" ")

def greedy(w, args, n):
    ids, gap = [BOS], float("inf")
    while len(ids) < n:
        first, second = torch.topk(llama.forward(w, args, torch.tensor([ids]))[0, -1], 2)
        gap = min(gap, (first[0] - first[1]).item())
        if second[0].item() == BOS:
            break
        ids.append(second[0].item())
    return ids, gap

def main(folder):
    torch.set_num_threads(1)
    w, args, vocab, hidden, seq_len = load_model(f"{folder}/stories260K.bin")
    tokens = load_tokens(f"{folder}/tok512.bin", vocab)
    print(args, "vocab", vocab, "hidden", hidden, "context", seq_len)
    prompt = encode(PROMPT, tokens)[:PROMPT_TOKENS]
    assert len(prompt) == PROMPT_TOKENS
    logits = llama.forward(w, args, torch.tensor([prompt]))[0]
    ids, gap = greedy(w, args, STORY_TOKENS)
    w32 = {k: v.float() for k, v in w.items()}
    error = llama.forward(w32, args, torch.tensor([prompt]))[0].double() - logits
    story = decode(ids, tokens)
    print("prompt:", decode(prompt, tokens)); print(story)
    print(len(ids), "ids; smallest gap", gap, "; PyTorch in float32 is off by at most", error.abs().max().item(), "rms",
          error.pow(2).mean().sqrt().item(), "of logits up to", logits.abs().max().item())
    assert story.startswith("Once upon a time, there was a little girl named Lily.")
    os.makedirs(OUT, exist_ok=True)
    save_file({"prompt": torch.tensor(prompt).int(), "logits": logits.float().contiguous(), "story": torch.tensor(ids).int()}, f"{OUT}/expected.safetensors")
    os.chmod(f"{OUT}/expected.safetensors", 0o644)
    with open(f"{OUT}/prompt.txt", "w") as f:
        f.write(decode(prompt, tokens))
    with open(f"{OUT}/story.txt", "w") as f:
        f.write(story)

if __name__ == "__main__":
    main(sys.argv[1])
