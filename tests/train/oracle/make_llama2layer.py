#!/usr/bin/env python3
"""Makes fixtures/llama2layer: logits, loss and every gradient of a 2-layer Llama, causal and with documents kept apart.

  python make_llama2layer.py

The expected values are plain_llama.py's in float64, rounded once to float32. torchtitan 0.2.2's own Transformer on the same weights, in
float32, must agree with them; how well is printed, and is what a float32 implementation can be asked for.
"""
import json, os
import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from torchtitan.models.llama3.model.args import RoPEScalingArgs, TransformerModelArgs
from torchtitan.models.llama3.model.model import Transformer
import plain_llama as llama

OUT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "fixtures", "llama2layer")
B, T, EOS = 2, 24, 3
SCALING = {"scaling_factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 64}
ARGS = {"dim": 32, "n_layers": 2, "n_heads": 4, "n_kv_heads": 2, "vocab_size": 96, "multiple_of": 8, "norm_eps": 1e-3,
        "rope_theta": 1000.0, "rope_scaling_args": SCALING, "max_seq_len": T}

class Masked(torch.nn.Module):
    """In place of torchtitan's attention wrapper (causal only): the same call with an explicit mask."""
    def __init__(self, mask_BTT):
        super().__init__()
        self.mask = mask_BTT[:, None]
    def forward(self, q, k, v, *, enable_gqa=False, **_):
        return F.scaled_dot_product_attention(q, k, v, attn_mask=self.mask, enable_gqa=enable_gqa)

def weights():
    torch.manual_seed(1234)
    hidden = llama.ffn_hidden(ARGS["dim"], ARGS["multiple_of"])
    D, kv = ARGS["dim"], ARGS["dim"] // ARGS["n_heads"] * ARGS["n_kv_heads"]
    shapes = {"tok_embeddings.weight": (96, D)}
    for i in range(2):
        shapes |= {f"layers.{i}.attention.{n}.weight": s for n, s in {"wq": (D, D), "wk": (kv, D), "wv": (kv, D), "wo": (D, D)}.items()}
        shapes |= {f"layers.{i}.feed_forward.{n}.weight": s for n, s in {"w1": (hidden, D), "w2": (D, hidden), "w3": (hidden, D)}.items()}
        shapes |= {f"layers.{i}.attention_norm.weight": (D,), f"layers.{i}.ffn_norm.weight": (D,)}
    shapes |= {"norm.weight": (D,), "output.weight": (96, D)}
    return {k: torch.randn(s) * (0.3 if len(s) == 1 else 0.2) + (1.0 if len(s) == 1 else 0.0) for k, s in shapes.items()}

def inputs():
    tokens = torch.randint(4, ARGS["vocab_size"], (B, T))
    labels = torch.randint(4, ARGS["vocab_size"], (B, T))
    labels[:, :-1] = tokens[:, 1:]
    tokens[0, [6, 7, 15]] = EOS                # a document of the EOS alone
    tokens[1, [0, 11, T - 1]] = EOS            # at the start and at the end
    labels[0, [2, 9]] = labels[1, 5] = -100
    return tokens, labels

def by_formula(w, tokens, labels, mask, positions):
    w = {k: v.double().requires_grad_() for k, v in w.items()}
    logits = llama.forward(w, ARGS, tokens, positions, mask)
    loss = llama.loss_sum(logits, labels) / (labels != -100).sum()
    loss.backward()
    return logits.detach(), loss.item(), {k: v.grad for k, v in w.items()}

def by_torchtitan(w, tokens, labels, mask):
    args = TransformerModelArgs(**{**ARGS, "rope_scaling_args": RoPEScalingArgs(**SCALING)})
    model = Transformer(args)
    model.load_state_dict(w)
    for layer in model.layers.values():
        layer.attention.inner_attention = Masked(mask)
    logits = model(tokens)
    loss = F.cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="sum") / (labels != -100).sum()
    loss.backward()
    return logits.detach(), loss.item(), {k: v.grad for k, v in model.named_parameters()}

def difference(a, b):
    """The largest difference over the largest value, and the difference's norm over the norm."""
    a, b = a.double(), b.double()
    return ((a - b).abs().max() / b.abs().max()).item(), ((a - b).norm() / b.norm()).item()

def main():
    torch.set_num_threads(1)
    os.makedirs(OUT, exist_ok=True)
    w = weights()
    tokens, labels = inputs()
    doc, restarted = llama.documents(tokens, EOS)
    plain = torch.arange(T).expand(B, T)
    save_file(w, f"{OUT}/weights.safetensors")
    save_file({k: v.int().contiguous() for k, v in {"tokens": tokens, "labels": labels, "documents": doc, "positions": restarted}.items()},
              f"{OUT}/inputs.safetensors")
    losses = {}
    for name, mask, positions in (("causal", llama.causal_mask(tokens), plain), ("block_causal", llama.causal_mask(tokens, doc), restarted)):
        logits, loss, grads = by_formula(w, tokens, labels, mask, positions)
        save_file({"logits": logits.float(), **{f"grad.{k}": g.float() for k, g in grads.items()}}, f"{OUT}/{name}.safetensors")
        losses[name] = loss
        logits32, loss32, grads32 = by_torchtitan(w, tokens, labels, mask)
        worst = max(grads, key=lambda k: difference(grads32[k], grads[k])[0])
        print(f"{name}: loss {loss} torchtitan's {loss32 - loss:+.1e}; logits max, norm", *(f"{x:.1e}" for x in difference(logits32, logits)),
              f"; worst gradient {worst}", *(f"{x:.1e}" for x in difference(grads32[worst], grads[worst])),
              "; smallest gradient norm", f"{min(g.norm().item() for g in grads.values()):.2g}")
    with open(f"{OUT}/expected.json", "w") as f:
        json.dump({"args": ARGS, "eos": EOS, "valid_labels": int((labels != -100).sum()), "loss": losses}, f, indent=1)
        f.write("\n")
    for path in os.listdir(OUT):
        os.chmod(os.path.join(OUT, path), 0o644)

if __name__ == "__main__":
    main()
