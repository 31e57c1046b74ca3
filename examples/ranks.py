"""One process a rank, started by srun (or by ssh): the numbers come from the environment, as DeepSpeed and Lightning read
them. `headway run --nodes 2 --tasks 2 --launcher srun -- python3 ranks.py`"""

from __future__ import annotations

import os

import torch
import torch.distributed as dist


def main() -> None:
    dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    total = torch.tensor([dist.get_rank() + 1.0])
    dist.all_reduce(total)
    place = f"{os.uname().nodename}, {os.environ.get('GLOO_SOCKET_IFNAME', 'no interface')}"
    print(f"rank {dist.get_rank()} of {dist.get_world_size()} on {place}: sum {total.item():.0f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
