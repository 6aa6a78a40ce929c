#!/usr/bin/env python3
"""Prints the logits that Hugging Face transformers computes for a model folder: the other side of export tests.

  python hf_logits.py [--float32] FOLDER ID [ID ...]        a line a position: the logits, 9 digits
  python hf_logits.py [--float32] --save OUT.safetensors FOLDER ID [ID ...]
  python hf_logits.py [--float32] --compare OTHER.safetensors FOLDER ID [ID ...]      the largest difference from its "logits" [T, vocab]

The folder needs config.json and *.safetensors. The model is computed in float64 (its weights are whatever the file holds) unless told.
"""
import argparse
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

def logits(folder, ids, dtype=torch.float64):
    model, info = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype, attn_implementation="eager", output_loading_info=True)
    bad = {k: v for k, v in info.items() if v}
    if bad:
        raise SystemExit(f"{folder} does not load cleanly: {bad}")
    with torch.no_grad():
        return model.eval()(torch.tensor([ids])).logits[0]

def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--float32", action="store_true")
    parser.add_argument("--save")
    parser.add_argument("--compare")
    parser.add_argument("folder")
    parser.add_argument("ids", type=int, nargs="+")
    a = parser.parse_args()
    out = logits(a.folder, a.ids, torch.float32 if a.float32 else torch.float64)
    if a.save:
        save_file({"ids": torch.tensor(a.ids).int(), "logits": out.float().contiguous()}, a.save)
    elif a.compare:
        other = load_file(a.compare)["logits"].double().reshape(out.shape)
        print("largest difference", (other - out.double()).abs().max().item(), "of logits up to", out.abs().max().item())
    else:
        for row in out.tolist():
            print(" ".join(f"{x:.9g}" for x in row))

if __name__ == "__main__":
    main()
