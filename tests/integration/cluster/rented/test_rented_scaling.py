"""Groups with `idle` on rented machines: the nodes of a job are launched together, each try is a step of an incident, and no
rented machine is left that Slurm does not need."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from headway.autoscale import autoscaler
from headway.catalog.plans import load_catalogue
from headway.catalog.providers import AWS
from headway.cluster.context import ClusterContext
from headway.cluster.keys.secrets import new_key, public_key
from headway.cluster.rented.missing_machines import end_surplus
from headway.domain.cluster import Cluster, Group
from headway.domain.incident import Incident, IncidentState
from headway.domain.machines.cloud_settings import CloudSettings
from headway.domain.machines.machine import MachineRequest
from headway.domain.operation_progress import ReportProgress
from headway.errors import Refused, Unanswered
from headway.providers.cloud.provider import CloudProvider
from headway.providers.cloud.refusals import NoCapacity
from headway.store import Store
from tests.support.cloud.fake_cloud import FakeCloud
from tests.support.clusters import builders
from tests.support.clusters.slurm_cluster import FakeSlurm

SETTINGS = CloudSettings("r", types={"cpu-64": ("big",)}, head_types=("little",), image="image")
WHOLE = builders.cluster(name="lab", nodes=3, spares=0, plan=load_catalogue()["cpu-64"], provider=AWS)
LAB = replace(WHOLE, groups=(Group("burst", WHOLE.groups[0].plan, 0, 3, slots=WHOLE.slot_names, idle_s=60),))
KEY = new_key()
ONE, TWO, THREE = LAB.slot_names


class ConstantSlurm(FakeSlurm):
    """Its nodes and jobs change only by the tests."""

    def carry_out(self, argv: list[str]) -> None: ...


class World:
    """A cluster with a head at a cloud, and the autoscaler of a server."""

    def __init__(self, folder: Path, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        self.cloud, self.store = FakeCloud(clock=lambda: self.now), store
        self.provider = CloudProvider(AWS, folder, SETTINGS, self.cloud, lambda: self.now, self.sleep)
        self.slurm = ConstantSlurm(LAB.slot_names)
        self.slurm.states = dict.fromkeys(LAB.slot_names, "idle~")
        self.trouble: Exception | None = None
        self.launched: list[tuple[str, ...]] = []
        monkeypatch.setattr(autoscaler, "provision_machines", self.bring)
        monkeypatch.setattr(autoscaler, "update_scrape_targets", self.tell)
        self.context: Any = ClusterContext(self.provider, store, self.slurm, folder)  # type: ignore[arg-type]
        self.start_again()

    def start_again(self) -> None:
        """Starts another server on the same state folder."""
        self.waker = autoscaler.Autoscaler(LAB, self.context, clock=lambda: self.now)

    async def sleep(self, seconds: float) -> None:
        self.now += seconds

    async def tell(self, *_: Any) -> None: ...

    def request(self, name: str) -> MachineRequest:
        return MachineRequest("lab", name, "", "debian13", KEY, public_key(KEY), public_key(KEY), head=name == LAB.head)

    async def rent(self, names: Sequence[str], report: ReportProgress) -> None:
        await self.provider.prepare(LAB)
        offers = await self.provider.offers(LAB, names[0])
        await self.provider.rent(LAB, [self.request(name) for name in names], offers, report)

    async def bring(self, _: Cluster, __: Any, names: Sequence[str], report: ReportProgress) -> None:
        self.launched.append(tuple(names))
        await self.rent(names, report)
        if self.trouble:
            raise self.trouble
        for name in names:
            await self.provider.create(self.request(name))
            self.slurm.states[name] = "allocated"

    async def look(self) -> list[str]:
        self.now += 10
        messages = await self.waker.scale()
        while self.waker.tasks:
            await asyncio.wait(set(self.waker.tasks.values()))
        return [f"{where}: {text}" for where, text in (*messages, *await self.waker.scale())]

    def living(self) -> list[str]:
        return sorted(one.claim.machine for one in self.cloud.living)

    async def incident(self) -> Incident:
        (found,) = await self.store.incidents.search("lab")
        return await self.store.incidents.get(found.number)

    def ask(self, *names: str, job: int = 7) -> None:
        self.slurm.states |= dict.fromkeys(names, "allocated#")
        self.slurm.jobs |= {name: {job} for name in names}


@pytest.fixture
async def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[World]:
    store = await builders.store(tmp_path, lambda: 1000.0)
    made = World(tmp_path, store, monkeypatch)

    async def report(*_: Any, **__: Any) -> None: ...

    await made.rent([LAB.head], report)
    await made.provider.create(made.request(LAB.head))
    yield made
    await store.close()


async def test_nodes_of_a_job_are_launched_together_and_ended_when_slurm_needs_them_no_more(world: World) -> None:
    world.ask(ONE, THREE)
    world.ask(TWO, job=8)
    await world.look()
    assert sorted(world.launched) == [(ONE, THREE), (TWO,)]
    head, *orders = [len(order.claims) for order, _ in world.cloud.orders.values()]
    assert (head, sorted(orders)) == (1, [1, 2])  # both launches run at the same time
    assert world.living() == [ONE, TWO, THREE, LAB.head]
    world.slurm.jobs = {}
    world.slurm.states |= {ONE: "idle~", THREE: "idle%"}
    assert f"{ONE}: machine returned: Slurm does not need it" in await world.look()
    assert world.living() == [TWO, LAB.head]


async def test_machines_are_not_rented_for_what_slurm_needed_before_the_cloud_said_its_prices(world: World) -> None:
    limited = replace(LAB, max_usd_per_hour=Decimal(100))
    world.waker = autoscaler.Autoscaler(limited, world.context, clock=lambda: world.now)
    world.ask(ONE)

    def job_ends(call: str) -> None:
        if call == "offers":
            world.slurm.states[ONE], world.slurm.jobs = "idle~", {}

    world.cloud.before = job_ends
    await world.look()
    assert world.slurm.states[ONE] == "idle~", "the cloud was asked for prices"
    assert world.launched == []


async def test_each_offer_that_can_not_be_had_is_a_step_of_the_incident(world: World) -> None:
    world.cloud.refusals = {("big", "a"): NoCapacity("big", "a")}
    world.ask(ONE, TWO)
    messages = await world.look()
    assert "lab-1-[1-2]: a has no big now: the next offer is tried" in messages
    assert any(line.startswith("lab-1-[1-2]: rented: i-2, i-3, big in b") for line in messages)
    await world.look()
    found = await world.incident()
    assert [step.text for step in found.steps[-2:]] == [
        f"{ONE}: a has no big now: the next offer is tried", f"{ONE} is ready"
    ]  # fmt: skip
    assert found.state is IncidentState.RETURNED
    assert {one.zone for one in world.cloud.living if one.claim.machine != LAB.head} == {"b"}


async def test_job_whose_machines_can_not_be_had_costs_nothing_and_names_each_try(world: World) -> None:
    world.cloud.refusals = {("big", zone): NoCapacity("big", zone) for zone in "ab"}
    world.ask(ONE, TWO)
    await world.look()
    assert world.living() == [LAB.head]
    found = await world.incident()
    assert "no machine can be had for lab-1-[1-2]: a has no big now; b has no big now" in found.steps[-1].text
    assert [words for words in world.slurm.did if "NodeName=lab-1-[1-3] State=DOWN" in words], (
        "all wait for the next try"
    )


async def test_machines_that_do_not_come_up_are_ended_though_the_cluster_has_not_taken_them(world: World) -> None:
    world.trouble = Refused("it does not boot")
    world.ask(ONE, TWO)
    messages = await world.look()
    assert "lab-1-[1-2]: machine could not be created (try 1 in a row): it does not boot" in messages
    assert world.living() == [LAB.head]
    assert await world.provider.begun("lab") == frozenset()


async def test_next_server_goes_on_with_what_slurm_needs_and_ends_the_rest(world: World) -> None:
    """The first one was killed after the launch: the job of one of the nodes was cancelled meanwhile."""
    world.cloud.lost = 1

    async def report(*_: Any, **__: Any) -> None: ...

    with pytest.raises(Unanswered):
        await world.rent([ONE, TWO], report)
    world.start_again()
    world.ask(ONE)
    await world.look()
    assert world.living() == [ONE, LAB.head]
    assert [one.claim.number for one in world.cloud.living if one.claim.machine == ONE] == [1]
    assert await world.provider.begun("lab") == frozenset()


async def test_machine_that_can_not_be_ended_is_an_incident(world: World) -> None:
    async def report(*_: Any, **__: Any) -> None: ...

    await world.rent([ONE], report)

    def refuses(name: str) -> None:
        if name == "terminate":
            raise Refused("not now")

    world.cloud.before = refuses
    assert f"{ONE}: machine could not be returned (try 1 in a row): not now" in await world.look()
    assert (await world.incident()).what == "a machine can't be given back"
    world.cloud.before = lambda _: None
    world.now += 120
    await world.look()
    await world.look()
    assert world.living() == [LAB.head]
    assert (await world.incident()).state is IncidentState.RETURNED


async def test_apply_ends_what_an_unfinished_one_rented_and_no_file_wants(world: World) -> None:
    told = []

    async def report(step: str, text: str, **_: Any) -> None:
        told.append(f"{step}: {text}")

    await world.rent([ONE], report)
    await world.rent([TWO], report)
    told.clear()
    await end_surplus(LAB, world.context, report, (LAB.head, TWO))
    assert world.living() == [TWO, LAB.head]
    assert told == [f"{ONE}: its machine was rented and is not needed: it is ended"]


async def test_machine_that_took_long_to_set_up_gets_time_to_register(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Slurm still says that it powers up when the machine has just been set up, or when the next server looks."""

    async def bring(_: Cluster, __: Any, names: Sequence[str], report: ReportProgress) -> None:
        await world.rent(names, report)
        world.now += 700
        for name in names:
            await world.provider.create(world.request(name))

    monkeypatch.setattr(autoscaler, "provision_machines", bring)
    world.ask(ONE)
    await world.look()
    await world.look()
    assert world.living() == [ONE, LAB.head]
    world.now += 280
    world.start_again()
    await world.look()
    assert world.living() == [ONE, LAB.head]
    world.slurm.jobs = {}
    world.now += 300
    monkeypatch.setattr(autoscaler, "provision_machines", world.bring)
    assert f"{ONE}: machine returned: it did not come up" in await world.look()
