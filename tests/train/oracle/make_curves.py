#!/usr/bin/env python3
"""Makes fixtures/titan/<case>/ for every case below by running torchtitan 0.2.2 through titan_cpu.py (one rank, OMP_NUM_THREADS=1).

  python make_curves.py [CASE ...]        (make_text.py first)

Each case is a change of BASE, written out as config.toml. Paths in it are relative to the repository's root, where torchtitan is run.
See ../fixtures/README.md for the files.
"""
import copy, filecmp, json, os, shutil, subprocess, sys, tempfile
import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.normpath(os.path.join(HERE, "..", "..", ".."))
OUT = os.path.join(HERE, "..", "fixtures", "titan")
IN_REPO = "tests/train/fixtures/titan"

BASE = {
    "job": {"dump_folder": "./outputs"},
    "metrics": {"log_freq": 1},
    "model": {"name": "llama3", "flavor": "debugmodel", "hf_assets_path": f"{IN_REPO}/tokenizer",
              "args": {"dim": 48, "n_layers": 2, "n_heads": 6, "vocab_size": 512, "multiple_of": 16}},
    "optimizer": {"name": "AdamW", "lr": 4e-3, "eps": 1e-8},
    "lr_scheduler": {"warmup_steps": 2, "decay_ratio": 0.8, "decay_type": "linear", "min_lr_factor": 0.0},
    "training": {"local_batch_size": 4, "seq_len": 64, "max_norm": 1.0, "steps": 24, "dataset": "c4_test",
                 "dataset_path": f"{IN_REPO}/text", "mixed_precision_param": "float32"},
    "activation_checkpoint": {"mode": "none"},
    "debug": {"seed": 42},
}
ROPE = {"scaling_factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 64}
CASES = {
    "base": {},
    "gqa": {"model.args.n_kv_heads": 2, "model.args.n_layers": 3, "model.args.vocab_size": 515, "model.args.multiple_of": 7,
            "model.args.ffn_dim_multiplier": 1.3, "training.local_batch_size": 3, "training.seq_len": 66,
            "debug.seed": 7, "optimizer.lr": 1e-2},
    "accumulate": {"training.local_batch_size": 2, "training.global_batch_size": 6, "training.dataset_path": f"{IN_REPO}/text_short"},
    "sqrt": {"lr_scheduler.warmup_steps": 5, "lr_scheduler.decay_ratio": 0.5, "lr_scheduler.decay_type": "sqrt",
             "lr_scheduler.min_lr_factor": 0.1},
    "cosine": {"lr_scheduler.warmup_steps": 3, "lr_scheduler.decay_ratio": 0.6, "lr_scheduler.decay_type": "cosine",
               "lr_scheduler.min_lr_factor": 0.05, "optimizer.beta1": 0.85, "optimizer.beta2": 0.97, "optimizer.weight_decay": 0.2},
    "clip": {"training.max_norm": 0.3, "optimizer.lr": 6e-3},
    "defaults": {"lr_scheduler": {}, "optimizer": {}},
    "validate": {"validation": {"enable": True, "dataset": "c4_test", "dataset_path": f"{IN_REPO}/text_valid", "freq": 8, "steps": 3,
                                "local_batch_size": 3, "seq_len": 48}},
    "validate_all": {"validation": {"enable": True, "dataset": "c4_test", "dataset_path": f"{IN_REPO}/text_valid", "freq": 100, "steps": -1,
                                    "local_batch_size": 4, "seq_len": 64}},
    "rope": {"model.args.n_heads": 3, "model.args.rope_theta": 10000.0, "model.args.rope_scaling_args": ROPE,
             "model.args.norm_eps": 1e-3, "training.seq_len": 128, "training.local_batch_size": 2, "optimizer.lr": 1e-2},
    "long": {"model.args.n_heads": 3, "model.args.n_kv_heads": 1, "training.seq_len": 1024, "training.local_batch_size": 1,
             "training.max_norm": 0.5, "optimizer.lr": 1e-2},
    "recompute_layer": {"activation_checkpoint": {"mode": "selective", "selective_ac_option": "2"}},
    "recompute_full": {"activation_checkpoint": {"mode": "full"}},
    "bf16": {"training.mixed_precision_param": "bfloat16"},
}

def configure(changes):
    table = copy.deepcopy(BASE)
    for path, value in changes.items():
        *parents, key = path.split(".")
        at = table
        for parent in parents:
            at = at.setdefault(parent, {})
        at[key] = value
    return table

def write_toml(table, f, path=()):
    flat = {k: v for k, v in table.items() if not isinstance(v, dict)}
    if path and flat:
        f.write("[" + ".".join(path) + "]\n" + "".join(f"{k} = {json.dumps(v)}\n" for k, v in flat.items()) + "\n")
    for key, value in table.items():
        if isinstance(value, dict):
            write_toml(value, f, path + (key,))

def init_folder(path, names):
    """Where this file of initial weights is kept: one folder for all cases that start from the same bytes."""
    for other in names:
        folder = os.path.join(OUT, f"init_{other}")
        if os.path.isdir(folder) and filecmp.cmp(os.path.join(folder, "model.safetensors"), path, shallow=False):
            return f"init_{other}"
    return None

def make(name):
    folder = os.path.join(OUT, name)
    os.makedirs(folder, exist_ok=True)
    config = os.path.join(folder, "config.toml")
    with open(config, "w") as f:
        write_toml(configure(CASES[name]), f)
    with tempfile.TemporaryDirectory() as tmp:
        env = dict(os.environ, OMP_NUM_THREADS="1", HF_HOME=os.path.join(tmp, "hf"))
        done = subprocess.run([sys.executable, os.path.join(HERE, "titan_cpu.py"), tmp, config, "--job.dump_folder", f"{tmp}/outputs"], cwd=ROOT, env=env, capture_output=True, text=True)
        if done.returncode:
            sys.exit(done.stdout + done.stderr)
        pack(name, folder, tmp)

def pack(name, folder, tmp):
    init = init_folder(f"{tmp}/init.safetensors", CASES)
    if init is None:
        init = f"init_{name}"
        os.makedirs(os.path.join(OUT, init), exist_ok=True)
        shutil.copyfile(f"{tmp}/init.safetensors", os.path.join(OUT, init, "model.safetensors"))
        os.chmod(os.path.join(OUT, init, "model.safetensors"), 0o644)
    batches = np.load(f"{tmp}/batches.npz")
    steps, micro, rows, cols = batches["input"].shape
    with open(os.path.join(folder, "batches.bin"), "wb") as f:
        f.write(np.stack([batches["input"], batches["labels"]], axis=2).astype("<u2").tobytes())
    case = {"init": init, "steps": steps, "micro": micro, "batch": rows, "seq_len": cols}
    if "valid_input" in batches:
        case |= {"valid_rows": batches["valid_rows"].tolist(), "valid_seq_len": batches["valid_input"].shape[1]}
        with open(os.path.join(folder, "valid_batches.bin"), "wb") as f:
            f.write(np.stack([batches["valid_input"], batches["valid_labels"]], axis=1).astype("<u2").tobytes())
    with open(os.path.join(folder, "case.json"), "w") as f:
        json.dump(case, f); f.write("\n")
    shutil.copy(f"{tmp}/resolved.json", os.path.join(folder, "model_args.json"))
    for file, keys in {"steps": ("step", "loss", "grad_norm", "lr"), "valid": ("step", "loss", "batches")}.items():
        if os.path.exists(f"{tmp}/{file}.jsonl"):
            with open(f"{tmp}/{file}.jsonl") as src, open(os.path.join(folder, f"{file}.jsonl"), "w") as out:
                for line in src:
                    row = json.loads(line)
                    out.write(json.dumps({k: row[k] for k in keys}) + "\n")
    print(name, case, flush=True)

if __name__ == "__main__":
    for name in sys.argv[1:] or CASES:
        make(name)
