"""Configuration of the agent: /etc/headway/agent.json, rendered from the cluster file and the same on all machines. For machines
that the user owns it holds, by machine name, the hardware that was found, which replaces what the plan promises."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from typing import Any

from agent.gpu.mig import Instance, read_instances

PATH = "/etc/headway/agent.json"


@dataclass(frozen=True)
class ExpectedMount:
    """A volume that should be mounted on this machine."""

    path: str
    source: str  # the folder that is mounted there; if it is missing, the volume is not expected
    read_only: bool
    outside: bool = False  # another machine serves it; it can be mounted again when that machine is back


@dataclass(frozen=True)
class Config:
    """The agent's configuration. `gpus`, `gpu_type`, `product`, `gpu_memory_mib`, `memory_mib` and `expects` hold what
    the plan promises; tests compare their figures with `expects`."""

    head: str  # address of the head; on a head, its own address
    other_heads: tuple[str, ...] = ()  # addresses of further heads, to which nodes also send
    first: bool = True  # on a head: whether it is the first head, which leads whenever it can
    first_head: str = ""  # on a second head: address of the first head
    cluster: str = ""  # on a head: name of the cluster
    state: str = "/srv/headway-state/slurmctld"  # on a head: Slurm's StateSaveLocation
    kernel_log: str = "/dev/kmsg"
    simulated: bool = False  # whether the GPUs are simulated
    oversubscribed_cpus: bool = False  # the machine has fewer resources than the plan says
    own_hardware: bool = True  # false: all machines share one host, with its energy counters and its disk
    gpus: int = 0
    driverless_gpus: int = (
        0  # GPUs on the bus of a node that should have GPUs, and none of them had a driver when it joined
    )
    gpu_type: str = ""
    product: str = ""
    gpu_memory_mib: int = 0
    memory_mib: int = 0
    expects: dict[str, float] = field(default_factory=dict)
    # InfiniBand or RoCE devices whose ports all worked when the machine was added
    fabric: frozenset[str] = frozenset()
    mounts: tuple[ExpectedMount, ...] = ()
    offline_response: bool = False  # whether the agent acts on faults at all
    drain_codes: frozenset[int] = frozenset()  # XID codes for which a node is drained
    mig: tuple[Instance, ...] = ()  # MIG instances of each GPU; () = whole GPUs
    mps: bool = False  # jobs may share a GPU by MPS

    @property
    def heads(self) -> tuple[str, ...]:
        """Returns the addresses of all heads."""
        return (self.head, *self.other_heads)


def load_config(path: str = PATH, host: str = "") -> Config:
    """Returns the configuration in the file `path`, for machine `host` (default: this machine's own name). Raises
    OSError or ValueError if there is no readable configuration."""
    with open(path) as file:
        settings: dict[str, Any] = json.load(file)
    settings.update(settings.pop("machines", {}).get(host or os.uname().nodename, {}))
    mounts = tuple(
        ExpectedMount(str(row["path"]), str(row["source"]), bool(row["read_only"]), bool(row.get("outside")))
        for row in settings.pop("mounts", ())
    )
    settings["other_heads"] = tuple(str(address) for address in settings.get("other_heads", ()))
    settings["fabric"] = frozenset(str(name) for name in settings.get("fabric", ()))
    settings["drain_codes"] = frozenset(int(code) for code in settings.get("drain_codes", ()))
    settings["mig"] = read_instances(settings.get("mig", ()))
    known = {name: settings[name] for name in Config.__dataclass_fields__ if name in settings}
    return Config(**known, mounts=mounts)
