"""DeepSpeed ZeRO-3: weights, gradients and optimizer state divided over all ranks, checkpoints by DeepSpeed itself.

The model is divided while it is made, so no rank ever holds all of it. A run that starts again continues from the
checkpoint that the file `latest` of the checkpoint folder names; it is replaced when all ranks have saved. The number of
ranks must stay the same.

    torchrun --nproc_per_node=8 train_deepspeed.py --width 2048 --layers 24 --heads 16 --context 2048 --batch 8

On a machine without GPUs it runs with gloo.
"""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

import torch

if not torch.cuda.is_available():
    os.environ.setdefault("DS_ACCELERATOR", "cpu")

import deepspeed
import torch.distributed as dist
from headway_train import report
from tiny_llm import Tokens, build_model, build_tokenizer, parser
from transformers.integrations import HfDeepSpeedConfig

# Without GPUs DeepSpeed compiles a kernel for shared memory when it starts. A kill during that leaves a lock file, for which
# every later start waits. gloo does the same work.
deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
KEEP = 2  # checkpoints


def configuration(batch: int, lr: float) -> dict[str, object]:
    """Returns DeepSpeed's configuration."""
    return {
        "train_micro_batch_size_per_gpu": batch,
        "gradient_clipping": 1.0,
        "bf16": {"enabled": torch.cuda.is_available()},
        "optimizer": {"type": "AdamW", "params": {"lr": lr, "torch_adam": True}},
        # Threshold 0: small weights are divided too, which is right for a small model only.
        "zero_optimization": {"stage": 3, "stage3_param_persistence_threshold": 0},
    }


def save(engine: deepspeed.DeepSpeedEngine, folder: Path, step: int) -> None:
    """Writes a checkpoint, names it in `latest` once all ranks have written, and deletes the oldest ones."""
    tag = f"step-{step:08d}"
    engine.save_checkpoint(str(folder), tag=tag, save_latest=False)
    dist.barrier()
    if dist.get_rank() == 0:
        (folder / ".latest").write_text(tag)
        (folder / ".latest").replace(folder / "latest")
        for old in sorted(folder.glob("step-*"))[:-KEEP]:
            shutil.rmtree(old, ignore_errors=True)


def main() -> None:
    options = parser("Train a small Llama with DeepSpeed ZeRO-3.").parse_args()
    deepspeed.init_distributed("nccl" if torch.cuda.is_available() else "gloo")
    rank, ranks = dist.get_rank(), dist.get_world_size()
    tokenizer = build_tokenizer(options.data)
    tokens = Tokens(tokenizer, options.data)
    config = configuration(options.batch, options.lr)
    zero3 = HfDeepSpeedConfig(config)  # while it exists, transformers divides the models that it makes
    model = build_model(
        tokenizer, width=options.width, layers=options.layers, heads=options.heads, context=options.context
    )
    model.activation_checkpointing_enable()
    engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=config)
    held = sum(part.ds_tensor.numel() for part in model.parameters())
    weights = sum(part.ds_numel for part in model.parameters())
    del zero3
    print(f"ZeRO-3 on {engine.device.type}: rank {rank} of {ranks} holds {held:,} of {weights:,} weights", flush=True)

    folder = options.checkpoint_dir or Path(os.environ.get("HEADWAY_CHECKPOINT_DIR", "checkpoints"))
    if (folder / "latest").is_file():
        engine.load_checkpoint(str(folder))
    first = engine.global_steps
    if first and rank == 0:
        print(f"continues after step {first}", flush=True)
    tokens_per_step = ranks * options.batch * options.context
    since, at = first, time.monotonic()
    for step in range(first + 1, options.steps + 1):
        ids = tokens.batch(step, rank, options.batch, options.context).to(engine.device)
        loss = engine(input_ids=ids, labels=ids).loss
        engine.backward(loss)
        engine.step()
        if step % options.log_every == 0 or step in (first + 1, options.steps):
            shown = loss.item()
            rate = (step - since) * tokens_per_step / (time.monotonic() - at)
            report(step=step, loss=shown, tokens=step * tokens_per_step)
            if rank == 0:
                print(f"step {step} loss {shown:.3f} {rate:,.0f} tokens/s", flush=True)
            since, at = step, time.monotonic()
        if step % options.checkpoint_every == 0 or step == options.steps:
            save(engine, folder, step)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
