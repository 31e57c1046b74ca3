"""The smallest sharded training: each rank holds a part of the weights (FSDP on GPUs, DDP where there is none).

FSDP's collectives need NCCL, so on a machine without CUDA the same model and loop run under DDP with gloo, and the
first line says so.
"""

from __future__ import annotations

import argparse

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel
from torch.nn.parallel import DistributedDataParallel

WIDTH = 64


def model() -> nn.Module:
    return nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))


def main() -> None:
    parser = argparse.ArgumentParser(description="Train a small model, sharded over all ranks.")
    parser.add_argument("--steps", type=int, default=50)
    steps = parser.parse_args().steps
    torch.manual_seed(7)
    on_gpu = torch.cuda.is_available()
    dist.init_process_group("nccl" if on_gpu else "gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    device = torch.device("cuda" if on_gpu else "cpu")
    wrap = FullyShardedDataParallel if on_gpu else DistributedDataParallel
    sharded = wrap(model().to(device))
    optimizer = torch.optim.AdamW(sharded.parameters(), lr=1e-2)
    if rank == 0:
        print(f"{wrap.__name__}: {world} ranks on {device.type}", flush=True)
    # The task: tell a rotation of the input's numbers apart from the input, the same for all ranks.
    target = torch.randperm(WIDTH)
    for step in range(1, steps + 1):
        draw = torch.Generator().manual_seed(step * world + rank)
        x = torch.randn(32, WIDTH, generator=draw)
        loss = nn.functional.mse_loss(sharded(x.to(device)), x[:, target].to(device))
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        if rank == 0 and (step % 10 == 0 or step == 1):
            print(f"step {step} loss {loss.item():.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
