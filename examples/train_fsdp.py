"""A GPT-shaped training with sharded weights: FSDP2, bfloat16, activation checkpointing, checkpoints of headway_train.

Each rank holds its part of the weights, gradients and optimizer state. The log shows how much that is, the loss, tokens
per second and, on GPUs whose peak is known, MFU. A run that starts again continues from its newest checkpoint, also with
another number of ranks.

    torchrun --nproc_per_node=8 train_fsdp.py --width 2048 --layers 24 --heads 16 --context 2048 --batch 8

The CPU version of FSDP2 needs torch 2.7 or newer. With an older torch and without CUDA the same model and loop run under
DDP, and the first line says so.
"""

from __future__ import annotations

import argparse
import os
import time
import warnings
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch
import torch.distributed as dist
from headway_train import Checkpointer, report
from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel
from train_ddp import CharTransformer, Text

SEED = 20
warnings.filterwarnings("ignore", message="FSDP2-wrapped module .* returned a view")  # nothing changes it in place
# Dense bfloat16 TFLOP/s of one GPU, from NVIDIA's data sheets.
PEAK_TFLOPS = {"A100": 312, "H100": 989, "H200": 989, "L40S": 362, "B200": 2250}


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Train a GPT with weights sharded over all ranks (FSDP2).")
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--data", type=Path, default=Path(__file__).parent / "data", help="folder with *.txt")
    parser.add_argument("--checkpoint-dir", type=Path, default=None, help="default: $HEADWAY_CHECKPOINT_DIR")
    parser.add_argument("--checkpoint-every", type=int, default=25, metavar="STEPS")
    parser.add_argument("--log-every", type=int, default=10, metavar="STEPS")
    parser.add_argument("--batch", type=int, default=4, help="sequences per rank and step")
    parser.add_argument("--context", type=int, default=64, help="tokens per sequence")
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--lr", type=float, default=3e-3)
    return parser.parse_args()


def can_shard(device: torch.device) -> bool:
    """Returns whether this torch has FSDP2 for the device."""
    return (
        hasattr(dist, "fsdp")
        and hasattr(dist.fsdp, "fully_shard")
        and (device.type == "cuda" or hasattr(torch.cpu.Stream, "record_event"))
    )


def shard(model: CharTransformer, device: torch.device) -> nn.Module:
    """Returns the model divided over all ranks, a layer at a time; activations of a layer are computed again in the
    backward pass instead of being kept."""
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    mesh = dist.init_device_mesh(device.type, (dist.get_world_size(),))
    halves = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    policy = {"mp_policy": halves} if device.type == "cuda" else {}
    for number, block in enumerate(model.blocks):
        model.blocks[number] = fully_shard(checkpoint_wrapper(block), mesh=mesh, **policy)
    return fully_shard(model, mesh=mesh, **policy)


def local_weights(model: nn.Module) -> int:
    """Returns the number of weights that this rank holds."""
    return sum(part.to_local().numel() if hasattr(part, "to_local") else part.numel() for part in model.parameters())


def flop_per_token(weights: int, options: argparse.Namespace) -> float:
    """Returns the floating point operations that one token costs in forward and backward pass: 6 per weight, and
    12 * layers * width * context for attention (Chowdhery et al. 2022, PaLM, appendix B)."""
    return 6 * weights + 12 * options.layers * options.width * options.context


def train(options: argparse.Namespace, device: torch.device) -> None:
    rank, ranks = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(SEED)
    text = Text(options.data)
    model: nn.Module = CharTransformer(text.symbols, options.context, options.width, options.layers, options.heads)
    weights = sum(part.numel() for part in model.parameters())
    sharded = can_shard(device)
    model = model.to(device)
    model = shard(model, device) if sharded else DistributedDataParallel(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=options.lr)
    how = "FSDP2" if sharded else "DDP (this torch has no FSDP2 for CPUs)"
    if rank == 0:
        print(f"{how}: {ranks} ranks on {device.type}, {weights:,} weights", flush=True)
    print(f"rank {rank} of {ranks} holds {local_weights(model):,} of {weights:,} weights", flush=True)

    checkpoints = Checkpointer(options.checkpoint_dir, keep=2)
    state = {"model": model, "optimizer": optimizer}
    first = checkpoints.load(state)
    if first and rank == 0:
        print(f"continues after step {first}", flush=True)
    tokens_per_step = ranks * options.batch * options.context
    peak = next((value for name, value in PEAK_TFLOPS.items() if name in device_name(device)), 0)
    since, at = first, time.monotonic()
    for step in range(first + 1, options.steps + 1):
        x, y = (part.to(device) for part in text.batch(step, rank, options.batch, options.context))
        loss = functional.cross_entropy(model(x).flatten(0, 1).float(), y.flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if step % options.log_every == 0 or step in (first + 1, options.steps):
            shown = loss.item()  # waits for the GPU, so that the time below is the steps' own
            rate = (step - since) * tokens_per_step / (time.monotonic() - at)
            mfu = rate * flop_per_token(weights, options) / (peak * 1e12 * ranks) if peak else None
            report(step=step, loss=shown, tokens=step * tokens_per_step, **({"mfu": mfu} if mfu else {}))
            if rank == 0:
                print(
                    f"step {step} loss {shown:.3f} {rate:,.0f} tokens/s" + (f" MFU {mfu:.1%}" if mfu else ""),
                    flush=True,
                )
            since, at = step, time.monotonic()
        warned = checkpoints.warned()
        if warned or step % options.checkpoint_every == 0 or step == options.steps:
            checkpoints.save(step, state, background=True)
        if warned:
            break
    checkpoints.wait()


def device_name(device: torch.device) -> str:
    """Returns the product name of the GPU, "" for a CPU."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else ""


def main() -> None:
    options = arguments()
    on_gpu = torch.cuda.is_available()
    device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0"))) if on_gpu else torch.device("cpu")
    if on_gpu:
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if on_gpu else "gloo")
    try:
        train(options, device)
    finally:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
