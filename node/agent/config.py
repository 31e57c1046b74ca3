"""Configuration of the agent: /etc/headway/agent.json, rendered from the cluster file and the same on all machines. For machines
that the user owns it holds, by machine name, the hardware that was found, which replaces what the plan promises."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from typing import Any

PATH = "/etc/headway/agent.json"


@dataclass(frozen=True)
class Mount:
    path: str
    source: str  # the folder that is mounted there; where that is missing, nothing is
    read_only: bool
    outside: bool = False  # of another machine: it can be mounted again when that is back


@dataclass(frozen=True)
class Config:
    """`gpus` says what the plan promises: count, type, product, memory_mib, and the figures that tests hold against."""

    head: str  # the head's address; a head's own
    other_heads: tuple[str, ...] = ()  # further heads, which nodes speak to as well
    first: bool = True  # of a head: it leads whenever it can
    first_head: str = ""  # of a second head: the first one's address
    cluster: str = ""  # of a head: its name
    state: str = "/srv/headway-state/slurmctld"  # of a head: the folder with Slurm's state
    kernel_log: str = "/dev/kmsg"
    simulated: bool = False  # the GPUs
    oversubscribed_cpus: bool = False  # the machine has less than the plan says
    own_energy: bool = False  # the hardware is this machine's alone: so are its energy counters
    gpus: int = 0
    gpu_type: str = ""
    product: str = ""
    gpu_memory_mib: int = 0
    memory_mib: int = 0
    expects: dict[str, float] = field(default_factory=dict)
    fabric: frozenset[str] = frozenset()  # devices of InfiniBand or RoCE whose ports all worked when it was taken
    mounts: tuple[Mount, ...] = ()
    offline_response: bool = False  # whether anything is done about faults at all
    drain_codes: frozenset[int] = frozenset()  # GPU error codes that take a node out of service

    @property
    def heads(self) -> tuple[str, ...]:
        return (self.head, *self.other_heads)


def load(path: str = PATH, host: str = "") -> Config:
    """`host`: this machine's name, where it is not its own. Raises OSError or ValueError where there is none."""
    with open(path) as file:
        told: dict[str, Any] = json.load(file)
    told.update(told.pop("machines", {}).get(host or os.uname().nodename, {}))
    mounts = tuple(
        Mount(str(row["path"]), str(row["source"]), bool(row["read_only"]), bool(row.get("outside")))
        for row in told.pop("mounts", ())
    )
    told["other_heads"] = tuple(str(address) for address in told.get("other_heads", ()))
    told["fabric"] = frozenset(str(name) for name in told.get("fabric", ()))
    told["drain_codes"] = frozenset(int(code) for code in told.get("drain_codes", ()))
    known = {name: told[name] for name in Config.__dataclass_fields__ if name in told}
    return Config(**known, mounts=mounts)
