#!/usr/bin/env python3
"""Makes fixtures/hf_tiny: two random Llama folders as transformers writes them, with the logits it computes.

  python make_hf_tiny.py

untied/: grouped queries, Llama 3.1 rotary scaling, a head of its own, one file, and config.json in the words of the folders published
before transformers 5 (rope_theta, rope_scaling, torch_dtype). tied/: no scaling, several files and an index, config.json as transformers
5 writes it (rope_parameters, dtype). <name>.safetensors: "ids", "logits" as transformers computes them with float64 weights (its norms
and rotary tables stay float32), "logits_exact" as plain_llama.py does in float64, both rounded to float32 once.
"""
import glob, json, os, shutil
import torch
from safetensors.torch import load_file
from transformers import LlamaConfig, LlamaForCausalLM
from hf_logits import logits, save_file
import plain_llama as llama

OUT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "fixtures", "hf_tiny")
COMMON = dict(hidden_size=32, intermediate_size=56, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, vocab_size=128,
              max_position_embeddings=256, bos_token_id=1, eos_token_id=2, initializer_range=0.3)
SCALING = {"rope_type": "llama3", "rope_theta": 5000.0, "factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
           "original_max_position_embeddings": 64}

def old_config(path):
    """The same settings in the words used before transformers 5."""
    with open(path) as f:
        config = json.load(f)
    rope = config.pop("rope_parameters")
    config |= {"rope_theta": rope.pop("rope_theta"), "rope_scaling": rope, "torch_dtype": config.pop("dtype"), "transformers_version": "4.43.0"}
    with open(path, "w") as f:
        json.dump(config, f, indent=2); f.write("\n")

def plain_args(config, rope):
    names = {"scaling_factor": "factor", "low_freq_factor": "low_freq_factor", "high_freq_factor": "high_freq_factor",
             "original_max_position_embeddings": "original_max_position_embeddings"}
    scaling = {k: rope[v] for k, v in names.items()} if rope["rope_type"] == "llama3" else None
    return {"dim": 32, "n_layers": 2, "n_heads": 4, "n_kv_heads": 2, "norm_eps": config.rms_norm_eps, "rope_theta": rope["rope_theta"],
            "rope_scaling_args": scaling}

def make(name, shard, rope, old, **options):
    folder = f"{OUT}/{name}"
    shutil.rmtree(folder, ignore_errors=True)
    torch.manual_seed(99)
    model = LlamaForCausalLM(LlamaConfig(**COMMON, rope_parameters=dict(rope), **options))
    with torch.no_grad():
        for key, p in model.named_parameters():
            p.copy_(torch.randn_like(p) * 0.3 + (1.0 if p.dim() == 1 else 0.0))
    model.save_pretrained(folder, max_shard_size=shard)
    if old:
        old_config(f"{folder}/config.json")
    ids = torch.randint(0, 128, (40,)).tolist()
    theirs = logits(folder, ids)
    state = {k: v.double() for path in glob.glob(f"{folder}/*.safetensors") for k, v in load_file(path).items()}
    args = plain_args(model.config, rope)
    exact = llama.forward(llama.from_hf(state, args), args, torch.tensor([ids]))[0]
    save_file({"ids": torch.tensor(ids).int(), "logits": theirs.float().contiguous(), "logits_exact": exact.float().contiguous()}, f"{folder}.safetensors")
    print(name, "off by at most: transformers in float32", (logits(folder, ids, torch.float32) - exact).abs().max().item(), "in float64",
          (theirs - exact).abs().max().item(), "of logits up to", exact.abs().max().item())
    for path in [f"{folder}.safetensors", *glob.glob(f"{folder}/*")]:
        os.chmod(path, 0o644)

if __name__ == "__main__":
    torch.set_num_threads(1)
    os.makedirs(OUT, exist_ok=True)
    make("untied", "1GB", SCALING, old=True, rms_norm_eps=1e-5, tie_word_embeddings=False)
    make("tied", "40KB", {"rope_type": "default", "rope_theta": 10000.0}, old=False, rms_norm_eps=1e-6, tie_word_embeddings=True)
