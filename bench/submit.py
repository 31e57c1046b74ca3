"""Submitting through Headway beside plain sbatch, each over a connection that is open already.

Plain is `ssh LOGIN sbatch SCRIPT` through a multiplexed connection of OpenSSH: the cheapest that people have. Headway is the
SDK's call, by way of the server, its own SSH connection and the real sbatch; it also keeps the job's lineage.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from headway import Client
from headway.wire.schemas import SubmitIn
from place import Place, place

RUNS = 25
SCRIPT = "#!/bin/bash\n#SBATCH --hold --output=/dev/null\ntrue\n"


def seconds(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def plain(at: Place) -> Callable[[], object]:
    """`ssh bench sbatch`, over one connection."""
    config = at.folder / "ssh_config"
    config.write_text(at.headway("ssh-config", "bench"))
    shared = ["-o", "ControlMaster=auto", "-o", f"ControlPath={at.folder}/mux", "-o", "ControlPersist=300"]
    argv = ["ssh", "-F", str(config), *shared, "bench", "sbatch", "--parsable"]

    def once() -> None:
        subprocess.run(argv, input=SCRIPT, text=True, capture_output=True, timeout=60, check=True)

    return once


def through(at: Place) -> Callable[[], object]:
    known = json.loads((at.state / "client.json").read_text())
    client = Client(known["url"], known["token"])
    request = SubmitIn(script=SCRIPT, script_name=Path("held.sbatch").name)
    return lambda: client.sbatch("bench", request)


def main() -> None:
    with place() as at:
        at.headway("image", "build", "debian13", timeout_s=3600)
        at.headway("apply", str(at.spec), "--yes")
        bare, ours = plain(at), through(at)
        for work in (bare, ours) * 3:  # warm: connections, the login's environment, the controller
            work()
        took: dict[str, list[float]] = {"plain": [], "headway": []}
        for _ in range(RUNS):  # turn by turn, so that whatever else runs here meets both
            took["plain"].append(seconds(bare))
            took["headway"].append(seconds(ours))
    middle = {name: statistics.median(times) for name, times in took.items()}
    print(f"plain sbatch by ssh: {middle['plain'] * 1000:.0f} ms (median of {RUNS})")
    print(f"headway submit:      {middle['headway'] * 1000:.0f} ms")
    print(f"ratio: {middle['headway'] / middle['plain']:.2f}")


if __name__ == "__main__":
    main()
