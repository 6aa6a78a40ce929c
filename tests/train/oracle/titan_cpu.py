#!/usr/bin/env python3
"""The torchtitan CPU runner: one rank of torchtitan 0.2.2's own trainer on a CPU, watched.

  python titan_cpu.py OUT FILE.toml [--section.key value ...]        (from the folder to which the file's paths are relative)

Leaves in OUT:
  init.safetensors   the weights before step 1, fp32, Hugging Face names (torchtitan's own adapter wrote them)
  steps.jsonl        a line a step: {"step", "loss", "grad_norm", "lr"}; loss and norm are torchtitan's fp32 values in full (17 digits),
                     not its rounded log; norm is before clipping; lr is the one that this step's update used
  valid.jsonl        a line a validation: {"step", "loss", "batches"}
  batches.npz        "input" and "labels" [steps, micro, B, T]; "valid_input", "valid_labels" [rows, T] in the order evaluated,
                     "valid_rows" the rows of each batch
  resolved.json      torchtitan's model arguments as it used them

FILE.toml is a torchtitan file with one addition, which is taken out before torchtitan sees it: [model.args], fields of the flavour's
model arguments (nested tables for nested dataclasses), since torchtitan has its sizes in Python. torchtitan was made for a GPU; what
stands in for one is marked. torch's threads: OMP_NUM_THREADS.
"""
import dataclasses, json, os, sys, tempfile, time, tomllib

os.environ.update({"HF_DATASETS_OFFLINE": "1", "HF_HUB_OFFLINE": "1"})
os.environ.setdefault("HF_HOME", tempfile.mkdtemp(prefix="hf-"))       # or an old text may come back from the data sets' cache
for key, value in {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29517"}.items():
    os.environ.setdefault(key, value)                                  # what torchrun would have set

def toml_value(value):
    return json.dumps(value)                                           # strings, numbers, booleans and lists of them: the same text

def write_toml(table, f, path=()):
    flat = {k: v for k, v in table.items() if not isinstance(v, dict)}
    if path and flat:
        f.write("[" + ".".join(path) + "]\n")
    for key, value in flat.items():
        f.write(f"{key} = {toml_value(value)}\n")
    for key, value in table.items():
        if isinstance(value, dict):
            write_toml(value, f, path + (key,))

def split_config(path):
    """The file without [model.args], as a new file's path; and [model.args]."""
    with open(path, "rb") as f:
        table = tomllib.load(f)
    args = table.get("model", {}).pop("args", {})
    with tempfile.NamedTemporaryFile("w", suffix=".toml", delete=False) as f:
        write_toml(table, f)
    return f.name, args

out_folder, config_path, model_args = sys.argv[1], *split_config(sys.argv[2])
sys.argv[1:3] = ["--job.config_file", config_path]                     # torchtitan reads them when it is imported

import torch
import torch._utils
torch._utils._get_available_device_type = lambda: "cpu"                # torchtitan falls back to "cuda"
torch._utils._get_device_module = lambda _type: torch.cpu

class Device:                                                          # the properties of a CUDA device that its metrics ask for
    name, total_memory = "cpu", os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")

for name, value in {"get_device_properties": Device, "get_device_name": "cpu", "set_device": None, "current_device": 0,
                    "reset_peak_memory_stats": None, "empty_cache": None,
                    "memory_stats": {"active_bytes.all.peak": 0, "reserved_bytes.all.peak": 0, "num_alloc_retries": 0,
                                     "num_ooms": 0}}.items():
    setattr(torch.cpu, name, lambda *_, value=value: value)

import numpy as np
import torchtitan.train as train
from safetensors.torch import save_file
from torchtitan.components.metrics import MetricsProcessor
from torchtitan.components.validate import Validator

def set_fields(args, values):
    for key, value in values.items():
        if not hasattr(args, key):
            raise SystemExit(f"torchtitan's model arguments have no {key}")
        if isinstance(value, dict):
            set_fields(getattr(args, key), value)
        else:
            setattr(args, key, value)

class Watch:
    """Replaces a few methods of torchtitan by ones that note what passes and call the original."""
    def __init__(self, out, model_args):
        self.out, self.steps, self.valid, self.batches, self.valid_batches = out, [], [], [], []
        self.model_args, self.t = model_args, 0.0
        os.makedirs(out, exist_ok=True)

    def install(self):
        watch, get_spec, step, log = self, train.train_spec_module.get_train_spec, train.Trainer.train_step, MetricsProcessor.log
        validate, process, log_valid = Validator.validate, Validator.post_dataloading_process, MetricsProcessor.log_validation

        def new_spec(name):
            spec = get_spec(name)
            for args in spec.model_args.values():
                set_fields(args, watch.model_args)
            return spec

        def new_step(trainer, batches):
            if trainer.step == 1:
                watch.save_start(trainer)
            micro = []
            def seen():
                for inputs, labels in batches:
                    micro.append((inputs["input"].numpy().copy(), labels.numpy().copy()))
                    yield inputs, labels
            t = time.perf_counter()
            step(trainer, seen())
            watch.steps[-1]["seconds"] = time.perf_counter() - t
            watch.batches.append(micro)

        def new_log(metrics, step, loss, max_loss, grad_norm, extra_metrics=None):
            watch.steps.append({"step": step, "loss": float(loss), "grad_norm": float(grad_norm), "lr": float(extra_metrics["lr"])})
            return log(metrics, step, loss, max_loss, grad_norm, extra_metrics)

        def new_process(validator, input_dict, labels, model_parts):
            watch.valid_batches.append((input_dict["input"].numpy().copy(), labels.numpy().copy()))
            return process(validator, input_dict, labels, model_parts)

        def new_log_valid(metrics, loss, step, extra_metrics=None):
            done = sum(v["batches"] for v in watch.valid)
            watch.valid.append({"step": step, "loss": float(loss), "batches": len(watch.valid_batches) - done})
            return log_valid(metrics, loss, step, extra_metrics)

        train.train_spec_module.get_train_spec = new_spec
        train.Trainer.train_step, MetricsProcessor.log = new_step, new_log
        Validator.post_dataloading_process, MetricsProcessor.log_validation = new_process, new_log_valid

    def save_start(self, trainer):
        model, = trainer.model_parts
        state = {k.replace("_checkpoint_wrapped_module.", ""): v.detach().float().contiguous().clone()
                 for k, v in model.state_dict().items() if v is not None}
        adapter = trainer.train_spec.state_dict_adapter(trainer.model_args, None)
        save_file({k: v.contiguous() for k, v in adapter.to_hf(state).items()}, f"{self.out}/init.safetensors")
        with open(f"{self.out}/resolved.json", "w") as f:
            json.dump(dataclasses.asdict(trainer.model_args), f, indent=1)

    def save(self):
        for name, rows in {"steps": self.steps, "valid": self.valid}.items():
            if rows:
                with open(f"{self.out}/{name}.jsonl", "w") as f:
                    f.writelines(json.dumps(row) + "\n" for row in rows)
        whole = [b for b in self.batches if len(b) == len(self.batches[0])]
        arrays = {"input": np.stack([[x for x, _ in micro] for micro in whole]), "labels": np.stack([[y for _, y in micro] for micro in whole])}
        if self.valid_batches:
            arrays |= {"valid_input": np.concatenate([x for x, _ in self.valid_batches]),
                       "valid_labels": np.concatenate([y for _, y in self.valid_batches]),
                       "valid_rows": np.array([len(x) for x, _ in self.valid_batches])}
        np.savez(f"{self.out}/batches.npz", **arrays)

if __name__ == "__main__":
    watch = Watch(out_folder, model_args)
    watch.install()
    try:
        train.main(train.Trainer)
    finally:
        if watch.steps:
            watch.save()
        os.unlink(config_path)
