"""A rollout changes drivers first, then the node image, and last how GPUs are divided; own machines have no image."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any, cast

import pytest

from headway.domain.changeset import Change, ChangeSet, Disturbs
from headway.errors import Refused
from headway.health.context import HealthContext
from headway.rollout import cluster_rollout
from tests.support.clusters import builders

IMAGE = Change("machine.rebuild", "lab-1-1", "lab-1-1", "will be rebuilt from debian13-new", Disturbs.REBUILD)
GPUS = Change("node.gpus", "lab-1-2", "GPUs", "each GPU is to be 8 shards, now whole GPUs", Disturbs.NODE_DRAIN)
CONTEXT = cast(HealthContext, SimpleNamespace(cluster=builders.cluster(2, 0)))


class Steps:
    """Plays the two kinds of rollout: `image` is None for machines without images."""

    def __init__(self, image: tuple[Change, ...] | None, gpus: tuple[Change, ...]) -> None:
        self.image, self.gpus, self.done = image, gpus, list[str]()
        self.interrupted = False

    async def has_images(self, _: Any) -> bool:
        return self.image is not None

    async def plan_rollout(self, *_: Any, **__: Any) -> ChangeSet:
        if self.image is None:
            raise Refused("the machines of lab are your own: they have no node image")
        return ChangeSet("lab", self.image, "" if self.image else "every node has it", ("a note",))

    async def plan_parts_rollout(self, *_: Any, **__: Any) -> ChangeSet:
        return ChangeSet("lab", self.gpus, "" if self.gpus else "GPUs are divided as the file says")

    async def plan_driver_rollout(self, *_: Any, **__: Any) -> ChangeSet:
        return ChangeSet("lab", ())

    async def roll_drivers(self, *_: Any, **__: Any) -> bool:
        self.done.append("drivers")
        return True

    async def roll_nodes(self, *_: Any, **__: Any) -> bool:
        self.done.append("image")
        return not self.interrupted

    async def roll_gpu_parts(self, *_: Any, **__: Any) -> bool:
        self.done.append("gpus")
        return True


def playing(monkeypatch: pytest.MonkeyPatch, image: tuple[Change, ...] | None, gpus: tuple[Change, ...]) -> Steps:
    steps = Steps(image, gpus)
    monkeypatch.setattr(cluster_rollout, "driver_rollout", steps)
    monkeypatch.setattr(cluster_rollout, "image_rollout", steps)
    monkeypatch.setattr(cluster_rollout, "gpu_parts_rollout", steps)
    return steps


async def plan(*, back: bool = False) -> ChangeSet:
    return await cluster_rollout.plan_rollout(CONTEXT, back=back, head=False, by=False)


async def roll(*, back: bool = False) -> bool:
    @asynccontextmanager
    async def alone() -> AsyncIterator[None]:
        yield

    async def told(*_: Any, **__: Any) -> None: ...

    async def waits() -> bool:
        return False

    return await cluster_rollout.roll_nodes(CONTEXT, told, alone, waits, back=back, until=None)


async def test_plan_lists_both_kinds_of_change(monkeypatch: pytest.MonkeyPatch) -> None:
    playing(monkeypatch, (IMAGE,), (GPUS,))
    found = await plan()
    assert (found.changes, found.notes) == ((IMAGE, GPUS), ("a note",))
    assert (await plan(back=True)).changes == (IMAGE,)
    playing(monkeypatch, (), ())
    assert (await plan()).why_empty == "every node has it; GPUs are divided as the file says"


async def test_own_machines_without_images_are_rolled_for_their_gpus_only(monkeypatch: pytest.MonkeyPatch) -> None:
    steps = playing(monkeypatch, None, (GPUS,))
    assert (await plan()).changes == (GPUS,)
    assert await roll()
    assert steps.done == ["drivers", "gpus"]
    playing(monkeypatch, None, ())
    with pytest.raises(Refused, match="no node image"):
        await plan()


async def test_the_image_comes_first_and_an_interrupted_one_ends_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    steps = playing(monkeypatch, (IMAGE,), (GPUS,))
    assert await roll()
    assert steps.done == ["drivers", "image", "gpus"]
    steps.interrupted, steps.done = True, []
    assert not await roll()
    assert steps.done == ["drivers", "image"]
    steps.interrupted, steps.done = False, []
    assert await roll(back=True)
    assert steps.done == ["image"]
