#!/usr/bin/env python3
"""Recomputes fixtures/titan's curves in float64 with plain_llama.py and an AdamW written out, and prints how far torchtitan's fp32 lies.

  python check_curves.py [CASE ...]

It also shows that the formulas in the README are all that is needed: schedule, clipping, loss, optimizer.
"""
import json, math, os, sys, tomllib
import numpy as np
import torch
from safetensors.torch import load_file
import plain_llama as llama

OUT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "fixtures", "titan")

def rows(path):
    with open(path) as f:
        return [json.loads(line) for line in f]

def lr_factor(step, total, warmup=200, decay_ratio=None, decay_type="linear", min_lr_factor=0.0):
    """step counts from 0; torchtitan's warm-up, stable, decay."""
    warmup = min(warmup, total)
    decay = total - warmup if decay_ratio is None else min(round(total * decay_ratio), total - warmup)
    stable = total + 1 - warmup - decay
    if step < warmup:
        return (step + 1) / warmup
    if step < warmup + stable:
        return 1.0
    progress = (step + 1 - warmup - stable) / decay
    f = {"linear": 1 - progress, "sqrt": 1 - math.sqrt(progress), "cosine": 0.5 * (1 + math.cos(math.pi * progress))}[decay_type]
    return min_lr_factor + (1 - min_lr_factor) * f

def run(name, dtype=torch.float64):
    folder = os.path.join(OUT, name)
    config = tomllib.load(open(f"{folder}/config.toml", "rb"))
    case, args = json.load(open(f"{folder}/case.json")), json.load(open(f"{folder}/model_args.json"))
    state = llama.from_hf(load_file(f"{OUT}/{case['init']}/model.safetensors"), args)
    w = {k: v.to(dtype).requires_grad_() for k, v in state.items()}
    m, v = ({k: torch.zeros_like(x) for k, x in w.items()} for _ in range(2))
    shape = (case["steps"], case["micro"], 2, case["batch"], case["seq_len"])
    batches = torch.from_numpy(np.fromfile(f"{folder}/batches.bin", "<u2").reshape(shape).astype(np.int64))
    valid = iter(())
    if "valid_rows" in case:
        seqs = torch.from_numpy(np.fromfile(f"{folder}/valid_batches.bin", "<u2").reshape(-1, 2, case["valid_seq_len"]).astype(np.int64))
        valid = iter(torch.split(seqs, case["valid_rows"]))
    opt = {"lr": 8e-4, "beta1": 0.9, "beta2": 0.95, "eps": 1e-8, "weight_decay": 0.1} | config.get("optimizer", {})
    max_norm, total = config["training"]["max_norm"], config["training"]["steps"]
    validations = {r["step"]: r for r in rows(f"{folder}/valid.jsonl")} if os.path.exists(f"{folder}/valid.jsonl") else {}
    worst = {"loss": 0.0, "loss_rel": 0.0, "grad_norm_rel": 0.0, "lr_rel": 0.0, "valid": 0.0}
    for want in rows(f"{folder}/steps.jsonl"):
        step = want["step"]
        count, loss = batches[step - 1, :, 1].numel(), 0.0
        for inputs, labels in batches[step - 1]:
            part = llama.loss_sum(llama.forward(w, args, inputs), labels) / count
            part.backward()
            loss += part.item()
        norm = math.sqrt(sum((p.grad.double() ** 2).sum().item() for p in w.values()))
        scale = min(1.0, max_norm / (norm + 1e-6))
        lr = opt["lr"] * lr_factor(step - 1, total, **{k.replace("warmup_steps", "warmup"): x for k, x in config.get("lr_scheduler", {}).items()})
        with torch.no_grad():
            for k, p in w.items():
                g = p.grad * scale
                p.mul_(1 - lr * opt["weight_decay"])
                m[k].lerp_(g, 1 - opt["beta1"])
                v[k].mul_(opt["beta2"]).addcmul_(g, g, value=1 - opt["beta2"])
                p.sub_(lr / (1 - opt["beta1"] ** step) * m[k] / (torch.sqrt(v[k]) / math.sqrt(1 - opt["beta2"] ** step) + opt["eps"]))
                p.grad = None
        for key, value in {"loss": abs(loss - want["loss"]), "loss_rel": abs(loss / want["loss"] - 1),
                           "grad_norm_rel": abs(norm / want["grad_norm"] - 1), "lr_rel": abs(lr / want["lr"] - 1)}.items():
            worst[key] = max(worst[key], value)
        if step in validations:
            with torch.no_grad():
                parts = [llama.loss_sum(llama.forward(w, args, x), y).item() / y.numel() for x, y in (next(valid).unbind(1) for _ in range(validations[step]["batches"]))]
            worst["valid"] = max(worst["valid"], abs(sum(parts) / len(parts) - validations[step]["loss"]))
    return worst

if __name__ == "__main__":
    torch.set_num_threads(1)
    for name in sys.argv[1:] or sorted(d for d in os.listdir(OUT) if os.path.exists(f"{OUT}/{d}/steps.jsonl")):
        print(f"{name:16}", "  ".join(f"{k} {x:.2e}" for k, x in run(name).items()), flush=True)
