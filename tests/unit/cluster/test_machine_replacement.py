"""A changed address in `hosts` replaces a machine, releasing the old one, unless the machine is the same."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from headway.catalog.providers import SSH
from headway.changes.cluster_changes import DesiredState, changeset
from headway.changes.desired_accounts import desired_accounts
from headway.cluster import changeset_execution as applying
from headway.cluster.changeset_execution import ChangeSetExecution
from headway.cluster.context import ClusterContext
from headway.cluster.owned import machine_claims
from headway.domain.changeset import Change, ChangeSet, Disturbs
from headway.domain.machines.machine import Machine
from headway.domain.machines.observed_state import Observed
from headway.domain.machines.scale_in_deadline import Deadline
from headway.domain.machines.survey import MachineClaim
from headway.errors import Refused
from tests.support.clusters import builders
from tests.support.clusters.slurm_cluster import FakeSlurm

LAB = builders.cluster(2, 0)
OLD = {name: builders.machine(name) for name in (LAB.head, *LAB.slot_names)}
NEW = replace(OLD["lab-1-2"], address="10.9.0.77", host_key="ssh-ed25519 BBBB")


class World:
    """Machines one owns: lab-1-2 is to be NEW. A controller with jobs on nodes."""

    traits = SSH

    server_id = "s1"

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.slurm = FakeSlurm(LAB.slot_names)
        self.did = self.slurm.did
        self.new = NEW
        self.claim: MachineClaim | None = None
        for name, work in {
            "release_machine": self.leave,
            "claim_machine": self.take,
            "check_shared_folders": self.nothing,
            "store_findings": self.nothing,
        }.items():
            monkeypatch.setattr(machine_claims, name, work)
        monkeypatch.setattr(applying, "read_site", self.nothing)

    async def list(self, _: str) -> tuple[Machine, ...]:
        return tuple(OLD.values())

    async def replaced(self, _: str) -> frozenset[str]:
        return frozenset(["lab-1-2"])

    async def candidate(self, *_: Any) -> Machine:
        raise AssertionError

    note = exports = inventory = candidate

    async def nothing(self, *_: Any, **__: Any) -> None: ...

    async def leave(self, _: Any, machine: Machine, __: Any) -> None:
        self.did.append(f"leave {machine.address}")

    async def take(self, _: Any, __: Any, machine: Machine, **___: Any) -> None:
        self.did.append(f"take {machine.address}")

    async def create(self, request: Any) -> Machine:
        self.did.append(f"create {request}")
        return self.new

    async def delete(self, machine: Machine) -> None:
        self.did.append(f"forget {machine.name}")

    async def run(self, *, deadline: float | None = None, rests: bool = False) -> None:
        context: Any = ClusterContext(self, None, self.slurm, Path())  # type: ignore[arg-type]
        goal = DesiredState(LAB, {}, desired_accounts(LAB))
        machines = {name: one for name, one in OLD.items() if name != "lab-1-2"}
        changes = ChangeSet("lab", (Change("machine.create", "lab-1-2", "lab-1-2", "another machine"),))
        until = None if deadline is None else Deadline(deadline)
        run = ChangeSetExecution(goal, context, self.nothing, None, {}, Observed(machines), changes, until, rests=rests)  # type: ignore[arg-type]

        async def request(name: str) -> Any:
            return name

        run._request = request  # type: ignore[method-assign]
        seen: Any = machine_claims.InventorySurvey(
            LAB,
            self,  # type: ignore[arg-type]
            {"lab-1-2": self.new},
            {"lab-1-2": SimpleNamespace(claim=self.claim)},  # type: ignore[dict-item]
            {},
            frozenset(OLD),
            SimpleNamespace(nfs=(), contained=frozenset()),  # type: ignore[arg-type]
        )
        seen.__dict__["place"] = lambda place: place
        await run.claim_machines(seen)


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    return World(monkeypatch)


async def test_old_machine_is_drained_before_its_release(world: World) -> None:
    await world.run()
    old = OLD["lab-1-2"].address
    assert world.did[:2] == ["scontrol update NodeName=lab-1-2 State=DRAIN Reason=headway: leaves", f"leave {old}"]
    assert world.did[-2:] == ["take 10.9.0.77", "create lab-1-2"]
    assert "forget lab-1-2" not in world.did  # others would be given its new machine


async def test_old_machine_with_a_job_is_not_released_without_deadline(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.slurm.jobs = {"lab-1-2": {7}}
    monkeypatch.setattr("headway.cluster.scaling.scale_in.LATE_JOB_S", 0.0)
    with pytest.raises(Refused, match="lab-1-2 runs job 7"):
        await world.run()
    assert not [words for words in world.did if words.startswith(("leave", "take"))]


async def test_restore_releases_the_old_machine_without_asking_slurm(world: World) -> None:
    world.slurm.jobs = {"lab-1-2": {7}}  # of after the backup: Slurm is about to forget it
    await world.run(rests=True)
    assert world.did[0] == f"leave {OLD['lab-1-2'].address}"
    assert world.did[-2:] == ["take 10.9.0.77", "create lab-1-2"]


async def test_same_machine_with_a_new_address_is_not_released(world: World) -> None:
    world.slurm.jobs = {"lab-1-2": {7}}
    world.new, world.claim = replace(NEW, host_key=OLD["lab-1-2"].host_key), MachineClaim("lab", "s1", "lab-1-2")
    await world.run()
    assert world.did == ["take 10.9.0.77", "create lab-1-2"]


def test_plan_shows_the_disturbance_of_a_machine_replacement() -> None:
    machines = {name: one for name, one in OLD.items() if name != "lab-1-2"}
    goal = DesiredState(LAB, {}, desired_accounts(LAB))

    def disturbs(**jobs: tuple[int, ...]) -> Disturbs:
        found = Observed(
            machines, jobs={name.replace("_", "-"): of for name, of in jobs.items()}, replaced=frozenset(["lab-1-2"])
        )
        (one,) = (change for change in changeset(goal, found).changes if change.kind == "machine.create")
        return one.disturbs

    assert disturbs() is Disturbs.NODE_DRAIN
    assert disturbs(lab_1_2=(7,)) is Disturbs.JOBS
