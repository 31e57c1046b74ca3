"""Running machines are told the addresses of machines that were rented since, and nothing else is changed on them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from headway.catalog.plans import load_catalogue
from headway.catalog.providers import AWS
from headway.changes.machine_changes import DesiredMachine
from headway.cluster.context import ClusterContext
from headway.cluster.desired_state import build_desired_state, read_site
from headway.cluster.rented import address_updates
from headway.domain.machines.machine import Machine, MachineState
from headway.domain.machines.observed_state import ObservedFile, ObservedMachine, ObservedUnit
from headway.domain.machines.site import OwnedSite
from headway.errors import Unreachable
from headway.providers.base import Placement
from tests.support.clusters import builders

LAB = builders.cluster(name="lab", nodes=3, spares=0, plan=load_catalogue()["cpu-64"], provider=AWS)
HEAD, (ONE, TWO, THREE) = LAB.head, LAB.slot_names
OWN = OwnedSite(operators={"root": ("",)}, server_addresses=("10.64.0.1",), nfs=("/home",))
BEFORE = {HEAD: "10.64.0.16", ONE: "10.64.0.17", TWO: "198.18.0.3", THREE: "198.18.0.4"}
AFTER = {**BEFORE, TWO: "10.64.0.5"}


def place(addresses: dict[str, str]) -> Placement:
    return Placement("10.64.0.0/24", "10.64.0.1", addresses, 0, 0, 0, 0, own=OWN)


class World:
    """Machines that were set up with the addresses of BEFORE, and a cloud that has rented the second node since."""

    def __init__(self, store: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        self.addresses = AFTER
        self.machines = {name: builders.machine(name) for name in (HEAD, ONE, TWO)}
        self.silent: set[str] = set()
        self.bare: set[str] = {TWO}
        self.did: dict[str, list[dict[str, Any]]] = {}
        self.told: list[str] = []
        self.store = store
        self.context = ClusterContext(self, store, self, Path())  # type: ignore[arg-type]
        monkeypatch.setattr(address_updates, "observe_machine", self.observe)
        monkeypatch.setattr(address_updates.remote_steps, "run_steps", self.run)
        monkeypatch.setattr(address_updates.machine_claims, "check_ssh_after_firewall", self.check)

    async def find(self, _: Any) -> Placement:
        return place(self.addresses)

    async def list(self, _: str) -> tuple[Machine, ...]:
        return tuple(self.machines.values())

    async def observe(
        self, _: Any, machine: Machine, desired: DesiredMachine
    ) -> tuple[ObservedMachine, dict[str, str]]:
        if machine.name in self.silent:
            raise Unreachable(f"{machine.name} does not answer")
        if machine.name in self.bare:
            return ObservedMachine(), {}
        site = await read_site(LAB, self.context, place(BEFORE), (ONE, TWO), give_uids=False)
        was = build_desired_state(LAB, site, {}).roles[LAB.role_of(machine.name)]
        files = {
            path: ObservedFile(
                was.digests[path], was.files[path].mode, was.files[path].owner, was.files[path].group, 1.0
            )
            for path in desired.files
        }
        units = {unit.name: ObservedUnit(True, True, 2.0, 7, was.loaded[unit.name]) for unit in desired.units}
        return ObservedMachine(files=files, units=units, managed=tuple(was.files)), {}

    async def run(self, _: Any, machine: Machine, steps: Sequence[dict[str, Any]], **__: Any) -> tuple[str, ...]:
        self.did.setdefault(machine.name, []).extend(steps)
        return ()

    async def check(self, *_: Any) -> None: ...

    async def report(self, step: str, text: str, **_: object) -> None:
        self.told.append(f"{step}: {text}")

    async def update(self, *names: str, on: Sequence[str] | None = None) -> dict[str, list[str]]:
        """Returns what was done on each machine: paths of files, and units."""
        self.did.clear()
        await address_updates.update_addresses(LAB, self.context, names, self.report, on=on)
        return {
            name: sorted(step.get("path") or ",".join(step.get("names", [step["op"]])) for step in steps)
            for name, steps in self.did.items()
        }


@pytest.fixture
async def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[World]:
    store = await builders.store(tmp_path, lambda: 1000.0)
    await store.linux_uids.add_to_cluster("lab", ["alice"])
    await store.linux_uids.assign_uids(["alice"])
    yield World(store, monkeypatch)
    await store.close()


async def test_files_with_addresses_are_written_on_machines_that_are_set_up(world: World) -> None:
    did = await world.update(TWO)
    assert set(did) == {HEAD, ONE}
    for name, extra in ((HEAD, {"/etc/exports.d/headway.exports", "nfs-server.service"}), (ONE, set())):
        assert {"/etc/hosts", "/etc/headway/firewall.nft", "headway-firewall.service", *extra} <= set(did[name]), did
    assert not [path for paths in did.values() for path in paths if path.startswith("/etc/slurm")]
    assert world.told == []


async def test_nothing_is_done_where_addresses_are_known(world: World) -> None:
    world.addresses = BEFORE
    assert await world.update(ONE) == {}


async def test_machine_that_does_not_answer_is_reported_and_others_are_told(world: World) -> None:
    world.silent = {ONE}
    assert set(await world.update(TWO)) == {HEAD}
    assert world.told == [f"{ONE}: does not know the addresses of new machines yet: {ONE} does not answer"]


async def test_stopped_machines_and_those_without_headway_are_left_alone(world: World) -> None:
    world.machines[ONE] = replace(world.machines[ONE], state=MachineState.STOPPED)
    world.machines[THREE] = builders.machine(THREE)
    world.bare = {TWO, THREE}
    assert set(await world.update(TWO)) == {HEAD}


async def test_new_machines_are_told_what_was_rented_meanwhile(world: World) -> None:
    world.bare = set()
    did = await world.update(TWO, THREE, on=[ONE])
    assert set(did) == {ONE}
    assert "/etc/hosts" in did[ONE]
