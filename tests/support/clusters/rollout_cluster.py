"""A cluster whose machines are of the old node image."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from headway.catalog.providers import LOCAL
from headway.cluster import observe
from headway.cluster.context import ClusterContext
from headway.domain.cluster import Cluster
from headway.domain.machines.machine import Machine
from headway.domain.slurm.hostlist import expand
from headway.errors import Refused
from headway.health.context import HealthContext
from headway.health.node_tests import NodeTestOutcome, NodeTestReport
from headway.images.local_images import ImageInfo
from headway.rollout import image_rollout as module
from headway.rollout import node_rollout
from headway.rollout.image_rollout import roll_nodes
from headway.rollout.node_rollout import CreationLock
from headway.store import StoreUnavailable
from headway.store.store import Store
from headway.transport.process import CommandResult
from tests.support.clusters import builders
from tests.support.clusters.slurm_cluster import FakeSlurm

LAB = builders.cluster(4, 0)
NODES = LAB.slot_names
OLD, NEW = "localhost/headway-node:debian13-old", "localhost/headway-node:debian13-new"


SLURM = {OLD: "24.11", NEW: "24.11"}


def info(tag: str) -> ImageInfo:
    word = tag[-3:]
    return ImageInfo("debian13", tag, f"id-{word}", word, 1, "", SLURM[tag], tag == NEW)


class Fleet(FakeSlurm):
    """Slurm and provider of machines, each of an image. `order` lists what is done and said, `did` what is done."""

    traits = LOCAL

    def __init__(self) -> None:
        super().__init__(NODES)
        self.machines = {name: replace(builders.machine(name), image="id-old") for name in (LAB.head, *NODES)}
        self.order: list[str] = []
        self.bad: set[str] = set()  # images on which tests fail
        self.unmakable: set[str] = set()
        self.unfinished: set[str] = set()  # machines without slurmd: their set-up was interrupted
        self.lost = False  # the server's database
        self.now = 1000.0
        self.turns = 0
        self.each_turn: Callable[[], None] = lambda: None
        self.alone = 0
        self.at_the_lock: Callable[[], None] = lambda: None  # what others do until it is had

    async def list(self, _: str) -> tuple[Machine, ...]:
        return tuple(self.machines.values())

    async def delete(self, machine: Machine) -> None:
        assert self.alone
        assert not self.jobs.get(machine.name), "a node with jobs"
        assert machine.name in self.reasons, "a node in service"
        del self.machines[machine.name]

    def note(self, line: str) -> None:
        self.order.append(line)
        self.did.append(line)

    async def remote(self, machine: Machine, argv: Sequence[str], *, check: bool = True, **_: Any) -> CommandResult:
        if argv[0] == "systemctl" and machine.name in self.unfinished:
            return CommandResult(tuple(argv), 3, "inactive\nactive\n", "", 0.0)
        return await super().remote(machine, argv, check=check)

    async def query(self, argv: list[str]) -> str | None:
        return "" if argv[0] == "systemctl" else await super().query(argv)

    def record(self, argv: list[str]) -> None:
        match argv:
            case ["scontrol", "update", nodes, state, *_]:
                for name in expand(nodes.removeprefix("NodeName=")):
                    self.note(f"{state.removeprefix('State=').lower()} {name}")
            case ["scontrol", "requeue", job]:
                self.note(f"requeue {job}")

    async def sleep(self, seconds: float) -> None:
        self.now += seconds
        self.turns += 1
        assert self.turns < 200, "it never ends"
        self.each_turn()

    async def report(self, step: str, text: str, **_: Any) -> None:
        self.order.append(f"say {step}: {text}")

    def images(self) -> dict[str, str]:
        return {name: self.machines[name].image for name in NODES if name in self.machines}


@pytest.fixture
def fleet(monkeypatch: pytest.MonkeyPatch) -> Fleet:
    made = Fleet()

    async def bring(_: Any, __: Any, name: str, ___: Any, *, why: str, image: str) -> None:
        made.note(f"make {name} {image[-3:]}")
        if name in made.unmakable:
            raise Refused(f"{name}: no room")
        if made.lost:
            made.lost = False
            raise StoreUnavailable("the server's database does not answer")
        made.machines[name] = replace(builders.machine(name), image=info(image).id)
        made.unfinished.discard(name)

    async def prove(_: Any, name: str, *, thorough: bool) -> NodeTestReport:
        made.note(f"test {name}{' thorough' if thorough else ''}")
        bad = made.machines[name].image[-3:] in made.bad
        return NodeTestReport(
            name, (NodeTestOutcome("gpus", not bad, "nvidia-smi lists 0 GPUs, not 8" if bad else ""),)
        )

    async def registered(*_: Any) -> str:
        return ""

    async def ensure(*_: Any, **__: Any) -> ImageInfo:
        return info(NEW)

    async def find(_: str) -> ImageInfo:
        return info(NEW)

    async def tagged(tag: str) -> ImageInfo:
        return info(tag)

    async def list_images() -> tuple[ImageInfo, ...]:
        return (info(NEW), info(OLD))

    monkeypatch.setattr(module, "provision_machine", bring)
    monkeypatch.setattr(node_rollout, "run_node_tests", prove)
    monkeypatch.setattr(node_rollout, "wait_until_registered", registered)
    monkeypatch.setattr(module, "build", SimpleNamespace(ensure_image=ensure))
    images = SimpleNamespace(find_current_image=find, get_image=tagged, list_images=list_images)
    monkeypatch.setattr(module, "local_images", images)
    monkeypatch.setattr(module, "recipe", SimpleNamespace(current_tag=lambda _: NEW))
    monkeypatch.setattr(observe.local_images, "list_images", list_images)
    return made


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    made = await builders.store(tmp_path, builders.Clock())
    yield made
    await made.close()


def context(fleet: Fleet, store: Store, cluster: Cluster | None = None) -> HealthContext:
    cluster_context = ClusterContext(cast(Any, fleet), store, cast(Any, fleet), Path("/nowhere"))
    return HealthContext(cluster or LAB, cluster_context, lambda: fleet.now, fleet.sleep)


def alone(fleet: Fleet) -> CreationLock:
    """Returns the lock under which no other code creates machines."""

    @asynccontextmanager
    async def lock() -> AsyncIterator[None]:
        fleet.at_the_lock()
        fleet.alone += 1
        yield
        fleet.alone -= 1

    return lock


async def go(
    fleet: Fleet, store: Store, *, back: bool = False, until: float | None = None, waits: bool = False
) -> bool:
    async def waiting() -> bool:
        return waits

    return await roll_nodes(context(fleet, store), fleet.report, alone(fleet), waiting, back=back, until=until)
