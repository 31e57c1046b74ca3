"""The autoscaler creates machines requested by Slurm in the background; a failed creation deletes the machine, closes
the group with backoff and opens an incident."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from headway.autoscale import autoscaler
from headway.cluster.context import ClusterContext
from headway.domain.cluster import Group
from headway.domain.incident import FaultAction, Incident, IncidentState
from headway.domain.machines.machine import Machine
from headway.errors import Refused
from headway.store import Store, StoreUnavailable
from headway.transport.process import CommandResult
from tests.support.clusters import builders
from tests.support.clusters.slurm_cluster import FakeProvider, FakeSlurm

WHOLE = builders.cluster(3, 0)
LAB = replace(WHOLE, groups=(Group("gpu", builders.H100, 0, 3, slots=WHOLE.slot_names, idle_s=60),))


class ConstantSlurm(FakeSlurm):
    """Its nodes and jobs change only by the tests."""

    def carry_out(self, argv: list[str]) -> None: ...


class World:
    """A controller that wants lab-1-1, and a provider."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, store: Store) -> None:
        self.slurm = ConstantSlurm(LAB.slot_names)
        self.slurm.states = {"lab-1-1": "allocated#", "lab-1-2": "idle~", "lab-1-3": "idle~"}
        self.did = self.slurm.did
        self.provider = FakeProvider([builders.machine(LAB.head)], self.did)
        self.told: list[float] = []  # when Prometheus was
        self.deaf = False
        self.now = 1000.0
        self.trouble: Exception | None = None
        self.monkeypatch = monkeypatch
        monkeypatch.setattr(autoscaler, "provision_machines", self.bring)
        monkeypatch.setattr(autoscaler, "update_scrape_targets", self.tell)
        context: Any = ClusterContext(self.provider, store, self.slurm, Path())  # type: ignore[arg-type]
        self.store = store
        self.waker = autoscaler.Autoscaler(LAB, context, clock=lambda: self.now)

    async def bring(self, _: Any, __: Any, names: Sequence[str], ___: Any) -> None:
        (name,) = names
        self.did.append(f"make {name}")
        self.provider.machines[name] = replace(builders.machine(name), started_at=self.now)
        if self.trouble:
            raise self.trouble
        self.slurm.states[name] = "allocated"

    async def tell(self, *_: Any) -> None:
        self.told.append(self.now)
        if self.deaf:
            raise Refused("no answer")

    async def look(self) -> list[str]:
        self.now += 10
        messages = await self.waker.scale()
        while self.waker.tasks:
            await asyncio.wait(list(self.waker.tasks.values()))
        return [words for _, words in (*messages, *await self.waker.scale())]


@pytest.fixture
async def world(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> AsyncIterator[World]:
    store = await builders.store(tmp_path, lambda: 1000.0)
    yield World(monkeypatch, store)
    await store.close()


async def test_creates_machine_in_background_and_reports_it_ready(world: World) -> None:
    messages = await world.look()
    assert world.did == ["make lab-1-1"]
    assert messages[0] == "Slurm needs it: its machine is being created"
    assert messages[1].startswith("is ready after")
    assert await world.look() == []


async def test_failed_creation_deletes_machine_and_closes_group_with_backoff(
    world: World,
) -> None:
    world.trouble = Refused("no capacity")
    messages = await world.look()
    assert "machine could not be created (try 1 in a row): no capacity" in messages
    assert "delete lab-1-1" in world.did
    assert LAB.head in world.provider.machines
    closed = next(words for words in world.did if "State=DOWN" in words)
    until = f"{world.now + 60:.0f}"
    assert closed.endswith(f"NodeName=lab-1-[1-3] State=DOWN Reason=headway: closed until {until}: no capacity")
    world.did.clear()
    assert await world.look() == []  # though Slurm asks still
    world.now += 60
    await world.look()
    assert f"closed until {world.now + 120:.0f}" in next(words for words in world.did if "State=DOWN" in words)
    world.trouble = None
    world.now += 120
    await world.look()
    assert world.waker.backoff.failures == {}


async def incident(world: World) -> Incident:
    (found,) = await world.store.incidents.search("lab")
    return await world.store.incidents.get(found.number)


async def test_failed_creation_incident_stays_open_until_machine_is_up(world: World) -> None:
    world.trouble = Refused("no capacity")
    await world.look()
    found = await incident(world)
    assert (found.node, found.what, found.action) == ("lab-1-1", "a machine can't be made", FaultAction.MAKE)
    assert found.state is IncidentState.REPAIRING
    assert found.steps[-1].text == "lab-1-1: try 1 in a row: no capacity; the next try in 60 s at the earliest"
    world.now += 60
    world.slurm.states |= {"lab-1-1": "idle~", "lab-1-2": "allocated#"}  # another of the group: the same incident
    await world.look()
    assert (await incident(world)).steps[-1].text.startswith("lab-1-2: try 2 in a row: no capacity")
    world.trouble = None
    world.now += 120
    messages = await world.look()
    assert "lab-1-2 is ready" not in messages  # not before it takes work
    await world.look()
    over = await incident(world)
    assert over.state is IncidentState.RETURNED
    assert over.steps[-1].text == "lab-1-2 is ready"


async def test_failed_creation_incident_closes_when_demand_ends(world: World) -> None:
    world.trouble = Refused("no capacity")
    await world.look()
    world.slurm.states["lab-1-1"] = "idle~"
    world.now += 600
    await world.look()
    assert (await incident(world)).state is IncidentState.REPAIRING
    world.now += 61
    await world.look()
    assert (await incident(world)).state is IncidentState.RETURNED


async def test_failed_creation_incident_closes_when_group_size_is_reached(world: World) -> None:
    group = replace(LAB.groups[0], nodes=2, idle_s=None, spot=True)
    world.waker.cluster = replace(LAB, groups=(group,))
    world.slurm.states |= {"lab-1-1": "down", "lab-1-2": "idle"}
    world.slurm.reasons["lab-1-1"] = "headway: no machine"
    world.provider.machines["lab-1-2"] = builders.machine("lab-1-2")
    world.trouble = Refused("no capacity")
    await world.look()
    await world.look()
    assert (await incident(world)).state is IncidentState.REPAIRING
    world.waker.cluster = replace(LAB, groups=(replace(group, nodes=1),))  # somebody has scaled it back
    await world.look()
    over = await incident(world)
    assert (over.state, over.steps[-1].text) == (IncidentState.RETURNED, "the group has all its machines")


async def test_resume_timeout_opens_incident(world: World) -> None:
    world.slurm.states["lab-1-1"], world.slurm.reasons["lab-1-1"] = "down~", "ResumeTimeout reached"
    await world.look()
    assert (await incident(world)).steps[-1].text == "lab-1-1: it was not ready within 900 s, so Slurm marked it DOWN"


@pytest.mark.parametrize("trouble", [TimeoutError(), ValueError("nonsense")], ids=["not at all", "a bug"])
async def test_any_creation_error_delays_next_try(world: World, trouble: Exception) -> None:
    world.trouble = trouble
    await world.look()
    assert "delete lab-1-1" in world.did
    world.did.clear()
    await world.look()
    assert world.did == []
    assert (await incident(world)).state is IncidentState.REPAIRING


async def test_manually_scaled_spot_group_is_refilled_without_closing_slots(world: World) -> None:
    world.waker.cluster = replace(LAB, groups=(replace(LAB.groups[0], nodes=1, idle_s=None, spot=True),))
    world.slurm.states |= {"lab-1-1": "down", "lab-1-2": "down"}
    world.slurm.reasons |= {"lab-1-1": "headway: no machine", "lab-1-2": "headway: no machine"}
    world.trouble = Refused("no capacity")
    messages = await world.look()
    assert messages[0] == "a node is missing: its machine is being created"
    assert world.did == ["make lab-1-1", "delete lab-1-1"]  # and nobody's slots are closed for it
    world.trouble = None
    world.now += 60
    await world.look()
    assert world.did[2:] == ["make lab-1-1"]


async def test_failed_scrape_target_update_keeps_working_node(world: World) -> None:
    world.deaf = True
    messages = await world.look()
    assert "no answer" in messages
    assert "no answer" not in await world.look()  # said once
    assert world.did == ["make lab-1-1"]
    world.deaf = False
    await world.look()
    await world.look()
    assert len(world.told) == 3


async def test_scrape_targets_update_after_machine_is_deleted_elsewhere(world: World) -> None:
    world.slurm.states["lab-1-1"] = "idle~"
    world.provider.machines["lab-1-2"] = builders.machine("lab-1-2")
    world.slurm.states["lab-1-2"] = "idle"
    await world.look()
    world.told.clear()
    del world.provider.machines["lab-1-2"]
    await world.look()
    await world.look()
    assert len(world.told) == 1


async def test_new_autoscaler_updates_scrape_targets_after_restart(world: World) -> None:
    """A roll makes a node anew, the server is started again: the next waker knows nothing of what the one before was at."""
    await world.waker.scale()
    world.now += 10
    await world.waker.scale()
    await world.waker.pause()
    assert "lab-1-1" in world.provider.machines
    world.told.clear()
    world.waker = autoscaler.Autoscaler(world.waker.cluster, world.waker.context, clock=lambda: world.now)
    await world.look()
    await world.look()
    assert len(world.told) == 1


async def test_paused_autoscaler_starts_nothing(world: World) -> None:
    await world.waker.pause()
    assert await world.look() == []
    assert world.did == []


async def test_machine_running_a_job_is_never_deleted(world: World) -> None:
    """Whatever the states say: jobs that began between two looks, or outlive what Slurm says of their node."""
    world.slurm.states |= {"lab-1-1": "idle%", "lab-1-2": "idle~"}
    world.provider.machines |= {name: builders.machine(name) for name in ("lab-1-1", "lab-1-2")}
    world.slurm.jobs = {"lab-1-1": {7}}
    await world.look()
    assert world.did == ["delete lab-1-2"]
    world.slurm.jobs = {}
    await world.look()
    assert world.did == ["delete lab-1-2", "delete lab-1-1"]


@pytest.mark.parametrize("word", ["allocated", "draining"])
async def test_node_that_came_up_despite_creation_error_is_kept(world: World, word: str) -> None:
    """An error after Slurm has heard of the machine: what runs there goes on."""
    world.trouble = Refused("the answer was lost")
    world.slurm.jobs = {"lab-1-1": {7}}

    async def bring(_: Any, __: Any, names: Sequence[str], ___: Any) -> None:
        (name,) = names
        world.provider.machines[name] = replace(builders.machine(name), started_at=world.now)
        world.slurm.states[name] = word
        raise Refused("the answer was lost")

    world.monkeypatch.setattr(autoscaler, "provision_machines", bring)
    await world.look()
    assert "lab-1-1" in world.provider.machines
    assert not [words for words in world.did if "lab-1-1" in words]


async def test_skips_nodes_busy_with_other_operations(world: World) -> None:
    other = Group("other", builders.H100, 0, 1, slots=("lab-1-3",), idle_s=60)
    world.waker.cluster = replace(LAB, groups=(replace(LAB.groups[0], slots=LAB.slot_names[:2]), other))
    world.slurm.states |= {"lab-1-2": "idle~", "lab-1-3": "allocated#"}
    world.provider.machines["lab-1-2"] = builders.machine("lab-1-2")
    world.waker.busy_nodes = frozenset(["lab-1-2"])
    await world.look()
    assert world.did == ["make lab-1-3"]


async def test_group_over_budget_opens_incident_and_backs_off(world: World) -> None:
    world.waker.cluster = replace(
        LAB,
        groups=(replace(LAB.groups[0], price_usd_per_node_hour=Decimal(31)),),
        max_usd_per_hour=Decimal(20),
    )
    await world.look()
    assert f"closed until {world.now + 60:.0f}" in next(words for words in world.did if "State=DOWN" in words)
    found = await incident(world)
    assert "over the limit of 20 USD an hour; the next try in 60 s" in found.steps[-1].text
    world.did.clear()
    world.now += 60
    await world.look()
    assert f"closed until {world.now + 120:.0f}" in next(words for words in world.did if "State=DOWN" in words)
    world.waker.cluster = replace(world.waker.cluster, max_usd_per_hour=Decimal(40))
    world.now += 120
    await world.look()
    assert world.did[-1] == "make lab-1-1"
    await world.look()
    assert (await incident(world)).state is IncidentState.RETURNED
    assert world.waker.over_budget == {}


async def test_successful_creation_does_not_reset_over_budget_backoff(world: World) -> None:
    """A job for two nodes and one for one, where the limit pays for one: the large one's next try waits longer each time."""
    price = Decimal(31)
    world.waker.cluster = replace(
        LAB, groups=(replace(LAB.groups[0], price_usd_per_node_hour=price),), max_usd_per_hour=price + 1
    )
    world.slurm.states |= {"lab-1-2": "allocated#", "lab-1-3": "allocated#"}
    world.slurm.jobs = {"lab-1-1": {4}, "lab-1-2": {5}, "lab-1-3": {5}}
    await world.look()
    assert [words for words in world.did if words.startswith("make")] == ["make lab-1-1"]
    assert world.waker.over_budget == {"gpu": 1}
    await world.look()
    assert world.waker.over_budget == {"gpu": 2}
    assert [words for words in world.did if words.startswith("make")] == ["make lab-1-1"]


async def test_fixed_size_group_is_not_autoscaled(world: World) -> None:
    world.waker.cluster = WHOLE
    assert await world.look() == []
    assert world.did == []


async def test_database_outage_during_creation_is_retried_without_incident(world: World) -> None:
    tries = 0

    async def bring(_: Any, __: Any, names: Sequence[str], ___: Any) -> None:
        nonlocal tries
        (name,) = names
        tries += 1
        world.provider.machines[name] = replace(builders.machine(name), started_at=world.now)
        if tries < 3:
            raise StoreUnavailable("the server's database does not answer")
        world.slurm.states[name] = "allocated"

    world.monkeypatch.setattr(autoscaler, "provision_machines", bring)
    world.monkeypatch.setattr(autoscaler, "STORE_RETRY_S", 0.0)
    messages = await world.look()
    assert messages[1:3] == ["waits: the server's database does not answer"] * 2
    assert messages[3].startswith("is ready after")
    assert (world.did, world.waker.backoff.failures, await world.store.incidents.search("lab")) == ([], {}, ())


async def test_undeletable_machine_opens_incident_and_blocks_nothing_else(world: World) -> None:
    other = Group("other", builders.H100, 0, 1, slots=("lab-1-3",), idle_s=60)
    world.waker.cluster = replace(LAB, groups=(replace(LAB.groups[0], slots=LAB.slot_names[:2]), other))
    world.slurm.states |= {"lab-1-3": "allocated#"}
    world.provider.machines["lab-1-2"], world.provider.stuck = builders.machine("lab-1-2"), {"lab-1-2"}
    messages = await world.look()
    assert "machine could not be returned (try 1 in a row): device busy" in messages
    assert {"make lab-1-1", "make lab-1-3", "delete lab-1-2"} == set(world.did)
    found = await incident(world)
    assert (found.node, found.what, found.action) == ("lab-1-2", "a machine can't be given back", FaultAction.MAKE)
    assert found.steps[-1].text == "try 1 in a row: device busy; the next try in 60 s at the earliest"
    world.did.clear()
    assert await world.look() == []
    assert world.did == []
    world.now += 60
    await world.look()
    assert world.did == ["delete lab-1-2"]
    assert (await incident(world)).steps[-1].text.startswith("try 2 in a row: device busy; the next try in 120 s")
    world.provider.stuck.clear()
    world.now += 120
    assert "machine returned: Slurm does not need it" in await world.look()
    await world.look()
    over = await incident(world)
    assert (over.state, over.steps[-1].text) == (IncidentState.RETURNED, "it is gone")
    assert world.waker.undeletable == {}


async def test_failed_creation_closes_group_even_if_deletion_fails(world: World) -> None:
    world.trouble, world.provider.stuck = Refused("no capacity"), {"lab-1-1"}
    await world.look()
    assert "NodeName=lab-1-[1-3] State=DOWN" in " ".join(world.did)
    assert {one.what for one in await world.store.incidents.search("lab")} == {
        "a machine can't be made",
        "a machine can't be given back",
    }


async def test_failed_deletion_incident_closes_when_slurm_reuses_node(world: World) -> None:
    world.slurm.states |= {"lab-1-1": "idle~", "lab-1-2": "idle~"}
    world.provider.machines["lab-1-2"], world.provider.stuck = builders.machine("lab-1-2"), {"lab-1-2"}
    await world.look()
    world.slurm.states["lab-1-2"] = "allocated"
    await world.look()
    assert (await incident(world)).steps[-1].text == "Slurm needs it again"


async def test_failed_machines_of_one_job_count_as_one_try(world: World) -> None:
    world.slurm.states = dict.fromkeys(LAB.slot_names, "allocated#")
    world.slurm.jobs = {name: {7} for name in LAB.slot_names}
    world.trouble = Refused("503")
    await world.look()
    assert [words for words in world.did if words.startswith("make")] == [f"make {name}" for name in LAB.slot_names]
    assert world.waker.backoff.not_before == {"gpu": world.now + 60}
    closed = {words.rpartition("until ")[2] for words in world.did if "State=DOWN" in words}
    assert closed == {f"{world.now + 60:.0f}: 503"}
    world.now += 60
    await world.look()
    assert world.waker.backoff.failures == {"gpu": 2}


async def test_slurm_refusal_is_reported_once_and_other_actions_continue(world: World) -> None:
    """In every look, for as long as it is so."""
    answer = world.slurm.remote

    async def remote(machine: Machine, argv: Sequence[str], **more: Any) -> CommandResult:
        if "NodeName=lab-1-3" in argv:
            raise Refused("Invalid node state specified")
        return await answer(machine, argv, **more)

    world.monkeypatch.setattr(world.slurm, "remote", remote)
    world.slurm.states["lab-1-3"], world.slurm.reasons["lab-1-3"] = "down~", "ResumeTimeout reached"
    messages = await world.look()
    assert {"Slurm needs it: its machine is being created", "Invalid node state specified"} <= set(messages)
    assert "Invalid node state specified" not in await world.look()
