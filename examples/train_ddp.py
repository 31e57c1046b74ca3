"""A small character-level transformer, trained with PyTorch DDP: an example that is real in every part but its size.

Each step draws its batch from (seed, step, rank) alone, so a run that stops and goes on from a checkpoint follows the
same loss curve as one that never stopped, digit by digit. headway_train writes the checkpoints while the training goes
on: a machine that dies half-way through leaves the one before whole. A job that asked to be warned (--signal=USR1@120)
saves once more and ends, and goes on from there when it runs again.

    torchrun --nproc_per_node=1 train_ddp.py --steps 200 --checkpoint-dir /scratch/me/run1
"""

from __future__ import annotations

import argparse
import gc
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

STARTED = time.time()
os.environ.setdefault("OMP_NUM_THREADS", "1")
# The imports below make a million objects that stay: looking for garbage among them meanwhile takes an eighth of their time.
gc.disable()

import torch
import torch.distributed as dist
from headway_train import Checkpointer, report
from torch import nn
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

gc.freeze()
gc.enable()
IMPORTED = time.time()
SEED = 20


class Block(nn.Module):
    """One transformer layer: causal attention and a two-layer network, both added to their input."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        q, k, v = (
            part.view(batch, length, self.heads, width // self.heads).transpose(1, 2)
            for part in self.qkv(self.norm1(x)).split(width, dim=2)
        )
        seen = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(seen.transpose(1, 2).reshape(batch, length, width))
        return x + self.mlp(self.norm2(x))


class CharTransformer(nn.Module):
    """Predicts the next character; `context` is the number of characters it sees."""

    def __init__(self, symbols: int, context: int, width: int, layers: int, heads: int) -> None:
        super().__init__()
        self.symbol, self.place = nn.Embedding(symbols, width), nn.Embedding(context, width)
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(layers)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, symbols)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        places = torch.arange(x.shape[1], device=x.device)
        return self.head(self.norm(self.blocks(self.symbol(x) + self.place(places))))


class Text:
    """The training text as numbers, and the batch of any step."""

    def __init__(self, folder: Path) -> None:
        files = sorted(folder.glob("*.txt"))
        if not files:
            sys.exit(f"train_ddp: no *.txt in {folder}; give the folder with --data")
        text = "\n".join(file.read_text(encoding="utf-8") for file in files)
        alphabet = sorted(set(text))
        numbers = {symbol: number for number, symbol in enumerate(alphabet)}
        self.symbols = len(alphabet)
        self.data = torch.tensor([numbers[symbol] for symbol in text])

    def batch(self, step: int, rank: int, size: int, context: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Inputs and the same shifted by one, each `size` x `context`; the same for the same step and rank, always."""
        draw = torch.Generator().manual_seed((SEED * 1_000_003 + step) * 1_009 + rank)
        starts = torch.randint(len(self.data) - context - 1, (size,), generator=draw)
        rows = torch.stack([self.data[start : start + context + 1] for start in starts.tolist()])
        return rows[:, :-1], rows[:, 1:]


def ask_for_more_time() -> None:
    """What was preempted goes back to the queue by itself as it ends; at its time limit a job has to say so."""
    job, ends = os.environ.get("SLURM_JOB_ID"), float(os.environ.get("SLURM_JOB_END_TIME", "inf"))
    if job and time.time() > ends - 180:
        subprocess.run(["scontrol", "requeue", job], check=False)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Train a small character-level transformer with DDP.")
    parser.add_argument("--steps", type=int, default=120)
    parser.add_argument("--data", type=Path, default=Path(__file__).parent / "data", help="folder with *.txt")
    parser.add_argument("--checkpoint-dir", type=Path, default=None, help="else $HEADWAY_CHECKPOINT_DIR")
    parser.add_argument("--checkpoint-every", type=int, default=20, metavar="STEPS")
    parser.add_argument("--log-every", type=int, default=10, metavar="STEPS")
    parser.add_argument("--batch", type=int, default=4, help="sequences a rank and step")
    parser.add_argument("--context", type=int, default=64, help="characters in a sequence")
    parser.add_argument("--width", type=int, default=48)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--lr", type=float, default=4e-3)
    parser.add_argument("--step-seconds", type=float, default=0.0, help="make each step last at least this long")
    return parser.parse_args()


def train(options: argparse.Namespace) -> None:
    rank, world = dist.get_rank(), dist.get_world_size()
    on_gpu = torch.cuda.is_available()
    device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0"))) if on_gpu else torch.device("cpu")
    torch.manual_seed(SEED)
    text = Text(options.data)
    bare = CharTransformer(text.symbols, options.context, options.width, options.layers, options.heads).to(device)
    model = DistributedDataParallel(bare, device_ids=[device.index] if on_gpu else None)
    optimizer = torch.optim.AdamW(bare.parameters(), lr=options.lr)

    hosts: list[str] = [""] * world
    dist.all_gather_object(hosts, socket.gethostname())
    if rank == 0:
        where = "GPUs" if on_gpu else "CPU (no CUDA device here: GPUs are simulated or absent)"
        size = sum(p.numel() for p in bare.parameters())
        met_s = time.time() - IMPORTED
        print(f"start-up: {IMPORTED - STARTED:.1f} s imports, {met_s:.1f} s until all ranks met", flush=True)
        print(f"training on {where}: {world} ranks on {','.join(hosts)}, {size} parameters", flush=True)

    checkpoints = Checkpointer(options.checkpoint_dir, keep=2)
    state = {"model": model, "optimizer": optimizer}
    first = checkpoints.load(state)
    if first and rank == 0:
        again = os.environ.get("SLURM_RESTART_COUNT", "0")
        print(f"resumed from {checkpoints.directory} at step {first} (restart {again})", flush=True)

    began = time.monotonic()
    for step in range(first + 1, options.steps + 1):
        step_began = time.monotonic()
        x, y = (part.to(device) for part in text.batch(step, rank, options.batch, options.context))
        loss = functional.cross_entropy(model(x).flatten(0, 1), y.flatten())
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        if step % options.log_every == 0 or step in (1, options.steps):
            mean = loss.detach().clone()
            dist.all_reduce(mean)
            if rank == 0:
                rate = (step - first) / (time.monotonic() - began)
                print(f"step {step} loss {mean.item() / world:.6f} steps_per_s {rate:.1f}", flush=True)
                report(step=step, loss=mean.item() / world, tokens=step * world * options.batch * options.context)
        warned = checkpoints.warned()
        if warned or step % options.checkpoint_every == 0 or step == options.steps:
            checkpoints.save(step, state, background=not warned)
        if warned and step < options.steps:
            if rank == 0:
                print(f"warned: saved step {step}, the rest when it runs again", flush=True)
                ask_for_more_time()
            return
        time.sleep(max(0.0, options.step_seconds - (time.monotonic() - step_began)))
    checkpoints.wait()
    if rank == 0:
        print(f"done: {options.steps} steps, checkpoints in {checkpoints.directory}", flush=True)


def main() -> None:
    options = arguments()
    torch.set_num_threads(1)
    dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    try:
        train(options)
    finally:
        # Gloo's threads still let go of what the last collective held, and need Python's lock for it while they hold their
        # own: ended in that moment the process would hang.
        time.sleep(0.2)
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
