"""Starts a program on every host of a host file over SSH, as DeepSpeed's launcher and mpirun's do.

headway run --nodes 2 -- python3 hostfile_launch.py python3 ranks.py
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys


def main() -> int:
    with open(os.environ["HEADWAY_HOSTFILE"]) as file:
        hosts = [line.split()[0] for line in file if line.strip()]
    kept = {
        name: os.environ[name] for name in ("MASTER_ADDR", "MASTER_PORT", "GLOO_SOCKET_IFNAME") if name in os.environ
    }
    parts = []
    for rank, host in enumerate(hosts):
        env = {**kept, "RANK": str(rank), "WORLD_SIZE": str(len(hosts)), "LOCAL_RANK": "0"}
        words = ["env", "-C", os.getcwd(), *(f"{name}={value}" for name, value in env.items()), *sys.argv[1:]]
        parts.append(subprocess.Popen(["ssh", host, shlex.join(words)]))
    return max(part.wait() for part in parts)


if __name__ == "__main__":
    sys.exit(main())
