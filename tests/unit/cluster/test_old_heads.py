"""Heads are upgraded to another Slurm version in the right order and from the right image."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from headway.catalog.providers import LOCAL
from headway.cluster import old_heads
from headway.cluster.context import ClusterContext
from headway.domain.changeset import REBUILD, Change, ChangeSet
from headway.domain.machines.machine import Machine
from headway.errors import Refused, Unreachable
from headway.rollout import slurm_upgrade_rules
from headway.store.db.rows import NodeImage
from headway.store.store import Store
from tests.support.clusters import builders
from tests.support.clusters.slurm_cluster import FakeSlurm

LAB = replace(builders.cluster(2), controllers=2, slurm_version="26.05")
FIRST, SECOND = LAB.heads
MACHINES = {name: builders.machine(name) for name in (*LAB.heads, *LAB.slot_names)}
BOTH = ChangeSet(LAB.name, tuple(Change(REBUILD, name, name, "") for name in LAB.heads))


class World:
    """Provider and Slurm; `order` lists in which order they are asked to change something."""

    def __init__(self) -> None:
        self.slurm = FakeSlurm(["lab-1-1", "lab-1-2"])
        self.slurm.states["lab-1-1"] = "mixed"
        self.slurm.reasons["lab-1-2"] = "eve: disk"
        self.order = self.slurm.did
        self.silent: set[str] = set()
        self.no_image = False

    async def stop(self, machine: Machine) -> None:
        self.order.append(f"off {machine.name}")

    async def delete(self, machine: Machine) -> None:
        self.order.append(f"gone {machine.name}")

    async def perform(self, _: Any, machine: Machine, steps: list[Any], **__: Any) -> None:
        if machine.name in self.silent:
            raise Unreachable(machine.name)
        self.order += [f"{step['argv'][2].removesuffix('.service')} {machine.name}" for step in steps]

    async def ensure_image(self, *_: Any, **__: Any) -> Any:
        if self.no_image:
            raise Refused("no mirror")
        self.order.append("image")
        return SimpleNamespace(tag="new")

    async def report(self, *_: Any, **__: Any) -> None: ...


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    made = World()
    monkeypatch.setattr(old_heads, "build", made)
    monkeypatch.setattr(old_heads.remote_steps, "run_steps", made.perform)

    async def head(*_: Any) -> Any:
        return MACHINES[FIRST]

    monkeypatch.setattr(old_heads, "active_or_stopped_head", head)
    monkeypatch.setattr(slurm_upgrade_rules, "active_or_stopped_head", head)
    return made


@pytest.fixture
async def context(tmp_path: Path, world: World) -> AsyncIterator[ClusterContext]:
    store: Store = await builders.store(tmp_path, builders.Clock())
    yield ClusterContext(cast(Any, world), store, cast(Any, world.slurm), Path("/nowhere"))
    await store.close()


async def test_heads_are_removed_after_image_build_and_daemon_stop(world: World, context: ClusterContext) -> None:
    served = await old_heads.remove_old_heads(LAB, context, world.report, BOTH, MACHINES)
    assert served == {"lab-1-1"}, "a node that somebody drained is not waited for"
    daemons = ["slurmrestd", "slurmctld", "slurmdbd", "mariadb"]
    assert world.order == [
        "image",
        "scontrol update NodeName=lab-1-1 State=DRAIN Reason=headway: rolls",
        *(f"{daemon} {SECOND}" for daemon in daemons),
        *(f"{daemon} {FIRST}" for daemon in daemons),
        *(f"off {name}" for name in (SECOND, FIRST)),
        *(f"gone {name}" for name in (SECOND, FIRST)),
    ]


async def test_failed_image_build_leaves_the_heads_untouched(world: World, context: ClusterContext) -> None:
    world.no_image = True
    with pytest.raises(Refused, match="no mirror"):
        await old_heads.remove_old_heads(LAB, context, world.report, BOTH, MACHINES)
    assert world.order == []


async def test_unreachable_head_is_removed_anyway(world: World, context: ClusterContext) -> None:
    world.silent = {SECOND}
    await old_heads.remove_old_heads(LAB, context, world.report, BOTH, MACHINES)
    assert f"gone {SECOND}" in world.order


async def test_changes_without_head_rebuild_remove_no_head(world: World, context: ClusterContext) -> None:
    nodes = ChangeSet(LAB.name, (Change("machine.create", "lab-1-2", "lab-1-2", ""),))
    assert await old_heads.remove_old_heads(LAB, context, world.report, nodes, MACHINES) == frozenset()
    assert world.order == []


IMAGES = tuple(
    SimpleNamespace(id=f"id-{tag}", tag=tag, slurm_version=version)
    for tag, version in (("before", "24.11"), ("after", "26.05"))
)


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch, world: World) -> dict[str, str]:
    """Of which image each machine is."""
    of = dict.fromkeys(MACHINES, "after")

    async def list_images() -> Any:
        return IMAGES

    async def tagged(tag: str) -> Any:
        return next(image for image in IMAGES if image.tag == tag)

    async def listed(_: str) -> Any:
        return tuple(replace(one, image=f"id-{of[name]}") for name, one in MACHINES.items() if name in of)

    monkeypatch.setattr(old_heads.local_images, "list_images", list_images)
    monkeypatch.setattr(old_heads.local_images, "get_image", tagged)
    monkeypatch.setattr(World, "list", staticmethod(listed), raising=False)
    monkeypatch.setattr(World, "traits", LOCAL, raising=False)
    return of


async def test_head_is_not_made_from_an_image_with_another_slurm(context: ClusterContext, made: dict[str, str]) -> None:
    await context.store.node_images.set(LAB.name, NodeImage("before", "before"))
    assert await old_heads.image_tag_of(LAB, context, FIRST, "") == ""
    assert await old_heads.image_tag_of(LAB, context, "lab-1-1", "") == "before"
    assert await old_heads.image_tag_of(LAB, context, FIRST, "after") == "after"


async def test_node_keeps_the_old_image_until_the_heads_are_upgraded(
    context: ClusterContext, made: dict[str, str]
) -> None:
    assert await old_heads.image_tag_of(LAB, context, "lab-1-1", "") == "", "the present image"
    made |= dict.fromkeys(LAB.heads, "before")
    assert await old_heads.image_tag_of(LAB, context, "lab-1-1", "") == "before"
    for name in LAB.heads:
        del made[name]  # while they are made
    assert await old_heads.image_tag_of(LAB, context, "lab-1-1", "") == ""


async def test_rollout_waits_only_for_old_nodes_drained_by_headway(
    context: ClusterContext, made: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    said: dict[str, tuple[str, str]] = {"lab-1-1": ("drained", "headway: rolls"), "lab-1-2": ("drained", "eve: disk")}

    async def reasons(*_: Any) -> Any:
        return said

    monkeypatch.setattr(old_heads.node_commands, "read_node_reasons", reasons)
    assert not await slurm_upgrade_rules.nodes_await_rollout(LAB, context), "all have it"
    made["lab-1-2"] = "before"
    assert not await slurm_upgrade_rules.nodes_await_rollout(LAB, context), "a person drained it"
    made["lab-1-1"] = "before"
    assert await slurm_upgrade_rules.nodes_await_rollout(LAB, context)
    await context.store.node_images.set(LAB.name, NodeImage("before", "before"))
    assert await slurm_upgrade_rules.nodes_await_rollout(LAB, context), "what was drained for it is not left so"
    made |= dict.fromkeys(LAB.heads, "before")
    assert not await slurm_upgrade_rules.nodes_await_rollout(LAB, context), "the heads come first"


async def test_head_upgrade_clears_the_pinned_image_of_the_old_slurm(world: World, context: ClusterContext) -> None:
    await context.store.node_images.set(LAB.name, NodeImage("before", "before"))
    await old_heads.remove_old_heads(LAB, context, world.report, BOTH, MACHINES)
    assert await context.store.node_images.get(LAB.name) == NodeImage("", "before")
