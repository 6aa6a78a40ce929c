#!/usr/bin/env python3
"""Checks import and export against transformers itself (not part of `make test`): check_transformers.py CTITAN [WORKDIR]

A random LlamaForCausalLM is saved by transformers, imported by ctitan, exported again and loaded by transformers: all tensors must be equal
bit for bit, and the logits too. Shapes: untied with Llama 3.1 scaling in bf16, tied in f32, many files, f16.
"""
import os, shutil, subprocess, sys, tempfile
import torch
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM

ctitan = os.path.abspath(sys.argv[1])
work = sys.argv[2] if len(sys.argv) > 2 else tempfile.mkdtemp()
scaling = dict(rope_type="llama3", rope_theta=500000.0, factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
               original_max_position_embeddings=8192)
plain = dict(rope_type="default", rope_theta=10000.0)
cases = [("scaled", torch.bfloat16, "bf16", dict(tie_word_embeddings=False, num_key_value_heads=2, rope_parameters=scaling), {}),
         ("tied", torch.float32, "f32", dict(tie_word_embeddings=True, num_key_value_heads=8, rope_parameters=plain), {}),
         ("many", torch.float32, "f32", dict(tie_word_embeddings=False, num_key_value_heads=1, rope_parameters=scaling),
          dict(max_shard_size="300KB")),
         ("half", torch.float16, "f16", dict(tie_word_embeddings=False, num_key_value_heads=4, rope_parameters=plain), {})]
for name, dtype, text, extra, save in cases:
    a, b, c = (os.path.join(work, f"{name}-{x}") for x in ("hf", "ckpt", "back"))
    for folder in (a, b, c): shutil.rmtree(folder, ignore_errors=True)
    torch.manual_seed(7)
    model = LlamaForCausalLM(LlamaConfig(vocab_size=300, hidden_size=128, intermediate_size=352, num_hidden_layers=3, num_attention_heads=8,
                                         max_position_embeddings=16384, rms_norm_eps=1e-5, **extra)).to(dtype)
    model.save_pretrained(a, **save)
    subprocess.run([ctitan, "checkpoint", "import", a, b], check=True)
    subprocess.run([ctitan, "checkpoint", "verify", b], check=True)
    subprocess.run([ctitan, "checkpoint", "export", b, c, "--dtype", text], check=True)
    first, back = (AutoModelForCausalLM.from_pretrained(x, dtype=dtype).eval() for x in (a, c))
    one, two = first.state_dict(), back.state_dict()
    assert one.keys() == two.keys(), set(one) ^ set(two)
    for key in one: assert torch.equal(one[key], two[key]), key
    ids = torch.randint(0, 300, (2, 64), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        assert torch.equal(first(ids).logits, back(ids).logits)
    for key in ("hidden_size", "num_key_value_heads", "rms_norm_eps", "rope_parameters", "tie_word_embeddings", "max_position_embeddings"):
        assert getattr(first.config, key) == getattr(back.config, key), (key, getattr(first.config, key), getattr(back.config, key))
    print(name, "equal: tensors, logits, configuration")
