"""Fault injection sends the right request to the provider and refuses impossible faults."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from headway.catalog.providers import SSH
from headway.cluster.context import ClusterContext
from headway.domain.cluster import Cluster
from headway.domain.machines.machine import Machine, MachineState
from headway.errors import HeadwayError, Refused
from headway.health.fault_injection import inject_fault
from headway.schemas.nodes.incidents import FaultIn
from headway.transport.process import CommandResult
from tests.support.clusters.builders import cluster, machine

LAB = cluster()
NODE = "lab-1-2"


class Host:
    """A provider whose machines may be broken, and the way in."""

    def __init__(self) -> None:
        self.machine = machine(NODE)
        self.done: list[str] = []
        self.refuses = ""

    async def list(self, _: str) -> tuple[Machine, ...]:
        return (machine("lab-head"), self.machine)

    async def kill(self, _: Machine) -> None:
        self.done.append("kill")
        self.machine = replace(self.machine, state=MachineState.STOPPED)

    async def freeze(self, _: Machine) -> None:
        self.done.append("freeze")

    async def thaw(self, _: Machine) -> None:
        self.done.append("thaw")

    async def cut(self, _: Machine) -> None:
        self.done.append("cut")

    async def join(self, _: Machine) -> None:
        self.done.append("join")

    async def reclaim(self, machine: Machine, at: float) -> None:
        self.done.append(f"reclaim {machine.name} in {at - time.time():.0f} s")

    async def start(self, _: Machine) -> None:
        self.done.append("start")

    async def remote(self, at: Machine, argv: Sequence[str], **_: Any) -> CommandResult:
        ask = json.loads(argv[-1])
        words = [
            ask["do"],
            ask.get("unit", ""),
            str(ask["code"] or ""),
            "heal" * ask["heal"],
            "real" * ask.get("real", False),
        ]
        self.done.append(" ".join([*filter(None, words), "on", at.name]))
        if self.refuses:
            return CommandResult(tuple(argv), 97, "", self.refuses, 0.0)
        return CommandResult(tuple(argv), 0, json.dumps({"done": "said"}), "", 0.0)


async def made(host: Host, kind: str, node: str = NODE, of: Cluster = LAB, **more: Any) -> str:
    context = ClusterContext(cast(Any, host), cast(Any, None), cast(Any, host), Path("/nowhere"))
    return await inject_fault(of, context, FaultIn.model_validate({"kind": kind, "node": node, **more}))


async def test_injects_and_heals_fault_on_named_node() -> None:
    host = Host()
    assert await made(host, "xid", code=79, gpu=3) == "lab-1-2: said"
    await made(host, "xid", heal=True)
    await made(host, "kill", daemon="agent")
    await made(host, "kill", node="", daemon="relay")
    await made(host, "kill", node="", daemon="mariadb")
    assert host.done == [
        "xid 79 on lab-1-2",
        "xid heal on lab-1-2",
        "kill headway-agent on lab-1-2",
        "kill headway-agent on lab-head",
        "kill mariadb on lab-head",
    ]


async def test_injects_and_heals_machine_faults() -> None:
    host = Host()
    for kind in ("freeze-node", "cut-network"):
        await made(host, kind)
        await made(host, kind, heal=True)
    await made(host, "kill-node")
    with pytest.raises(HeadwayError, match="is not running"):
        await made(host, "freeze-node")
    await made(host, "kill-node", heal=True)
    assert host.done == ["freeze", "thaw", "cut", "join", "kill", "start"]


async def test_power_of_a_head_can_be_cut() -> None:
    host = Host()
    assert await made(host, "kill-node", node="lab-head") == "lab-head has lost its power"
    assert host.done == ["kill"]


async def test_fault_refused_by_machine_raises_refused() -> None:
    host = Host()
    host.refuses = "no job runs here"
    with pytest.raises(Refused, match="lab-1-2: no job runs here"):
        await made(host, "stall-job")


async def test_injection_on_owned_machines_requires_force() -> None:
    host, owned = Host(), cluster(provider=SSH)
    with pytest.raises(Refused, match="not a local cluster"):
        await made(host, "mount-lost", of=owned)
    assert host.done == []
    await made(host, "mount-lost", of=owned, force=True)
    assert host.done == ["mount-lost real on lab-1-2"]


@pytest.mark.parametrize(
    ("ask", "says"),
    [
        ({"kind": "xid", "node": "lab-9-9", "code": 79}, "no machine lab-9-9"),
        ({"kind": "xid", "node": "lab-head", "code": 79}, "lab-head is a head: xid is a fault of nodes"),
        ({"kind": "reclaim", "node": "lab-head"}, "lab-head is a head"),
        ({"kind": "kill-node", "node": "lab-1-1"}, "no machine"),
        ({"kind": "xid", "code": 79, "gpu": 8}, "GPUs 0 to 7"),
    ],
)
async def test_refuses_fault_on_unknown_node_machine_or_gpu(ask: dict[str, Any], says: str) -> None:
    host = Host()
    with pytest.raises(HeadwayError, match=says):
        await made(host, **ask)
    assert host.done == []


async def test_reclaim_fault_requires_spot_group_and_cannot_be_healed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "time", lambda: 1000.0)
    host = Host()
    with pytest.raises(Refused, match="of group main, whose machines are not spot machines"):
        await made(host, "reclaim")
    spot = replace(LAB, groups=(replace(LAB.groups[0], spot=True),))
    assert await made(host, "reclaim", of=spot, in_s=30) == "lab-1-2 is reclaimed in 30 s"
    assert host.done == ["reclaim lab-1-2 in 30 s"]
    with pytest.raises(Refused, match="can't be healed"):
        await made(host, "reclaim", of=spot, heal=True)
