"""The benchmark models in PyTorch, as fast as it trains them on a CPU: what scripts/bench-pytorch races.

peer_pytorch.py MODEL BATCH SEQ PRECISION [--compile] [--steps N] [--threads N]
  MODEL      110m or 25m, the sizes of bench/*.toml and README.md
  PRECISION  float32; autocast (fp32 masters, bf16 products); bfloat16 (weights and AdamW's moments too)

Every step is a whole one: forward, cross entropy, backward, clipping to norm 1, AdamW. Prints the seconds of each, then peak RSS in bytes. Tokens are
random: nothing here depends on them.
"""
import argparse, contextlib, resource, time

import torch
import torch.nn.functional as F
from torch import nn

SIZES = {"110m": dict(dim=768, layers=10, heads=12, kv_heads=4, ffn=2048), "25m": dict(dim=256, layers=10, heads=8, kv_heads=4, ffn=768)}
VOCABULARY = 32000


def rotate(x, cos, sin):
    even, odd = x[..., ::2], x[..., 1::2]
    return torch.stack((even * cos - odd * sin, even * sin + odd * cos), -1).flatten(-2)


class Layer(nn.Module):
    def __init__(self, s):
        super().__init__()
        dim, head = s["dim"], s["dim"] // s["heads"]
        self.s, self.head = s, head
        self.attention_norm, self.ffn_norm = nn.RMSNorm(dim, eps=1e-5), nn.RMSNorm(dim, eps=1e-5)
        self.wq, self.wo = nn.Linear(dim, dim, bias=False), nn.Linear(dim, dim, bias=False)
        self.wk, self.wv = nn.Linear(dim, s["kv_heads"] * head, bias=False), nn.Linear(dim, s["kv_heads"] * head, bias=False)
        self.w1, self.w3, self.w2 = nn.Linear(dim, s["ffn"], bias=False), nn.Linear(dim, s["ffn"], bias=False), nn.Linear(s["ffn"], dim, bias=False)

    def forward(self, x, cos, sin):
        batch, seq, _ = x.shape
        y = self.attention_norm(x)
        q = rotate(self.wq(y).view(batch, seq, -1, self.head).transpose(1, 2), cos, sin)
        k = rotate(self.wk(y).view(batch, seq, -1, self.head).transpose(1, 2), cos, sin)
        v = self.wv(y).view(batch, seq, -1, self.head).transpose(1, 2)
        y = F.scaled_dot_product_attention(q.to(v.dtype), k.to(v.dtype), v, is_causal=True, enable_gqa=True)
        x = x + self.wo(y.transpose(1, 2).reshape(batch, seq, -1))
        y = self.ffn_norm(x)
        return x + self.w2(F.silu(self.w1(y)) * self.w3(y))


class Model(nn.Module):
    def __init__(self, s, seq):
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, s["dim"])
        self.layers = nn.ModuleList(Layer(s) for _ in range(s["layers"]))
        self.norm, self.output = nn.RMSNorm(s["dim"], eps=1e-5), nn.Linear(s["dim"], VOCABULARY, bias=False)
        head = s["dim"] // s["heads"]
        angle = torch.outer(torch.arange(seq).float(), 500000.0 ** (-torch.arange(0, head, 2).float() / head))
        self.register_buffer("cos", angle.cos()), self.register_buffer("sin", angle.sin())

    def forward(self, tokens, labels):
        x = self.embedding(tokens)
        cos, sin = self.cos.to(x.dtype), self.sin.to(x.dtype)
        for layer in self.layers:
            x = layer(x, cos, sin)
        return F.cross_entropy(self.output(self.norm(x)).flatten(0, 1).float(), labels.flatten())


def main():
    p = argparse.ArgumentParser()
    p.add_argument("model", choices=SIZES), p.add_argument("batch", type=int), p.add_argument("seq", type=int)
    p.add_argument("precision", choices=("float32", "autocast", "bfloat16"))
    p.add_argument("--compile", action="store_true"), p.add_argument("--steps", type=int, default=4), p.add_argument("--threads", type=int, default=2)
    a = p.parse_args()
    torch.set_num_threads(a.threads)
    torch.manual_seed(0)
    model = Model(SIZES[a.model], a.seq)
    if a.precision == "bfloat16":
        model = model.bfloat16()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, betas=(0.9, 0.95), fused=True)
    run = torch.compile(model) if a.compile else model
    cast = torch.autocast("cpu", torch.bfloat16) if a.precision == "autocast" else contextlib.nullcontext()
    for _ in range(a.steps):
        tokens = torch.randint(0, VOCABULARY, (a.batch, a.seq + 1))
        begin = time.perf_counter()
        with cast:
            loss = run(tokens[:, :-1], tokens[:, 1:])
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        loss.item()
        print(f"{time.perf_counter() - begin:.6f}", flush=True)
    print("rss", resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)


main()
