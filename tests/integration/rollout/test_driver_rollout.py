"""Nodes in service get another GPU driver one by one; a node whose driver does not work stays drained, and the others keep
theirs."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from headway.catalog.mig_profiles import lay_out
from headway.catalog.providers import SSH
from headway.cluster.owned import gpu_drivers, machine_claims
from headway.domain.changeset import Disturbs
from headway.domain.cluster import Cluster
from headway.domain.machines.gpu_driver import DetectedDriver, GpuDriver
from headway.domain.machines.gpu_parts import GpuParts
from headway.domain.machines.survey import DetectedGpu, DetectedHardware, Survey
from headway.domain.slurm.node_reasons import DRIVER_REASON
from headway.errors import Refused
from headway.render.system.agent_config import AGENT, GPU_PARTS
from headway.rollout.driver_rollout import halt_driver_rollout, plan_driver_rollout, roll_drivers
from headway.store.store import Store
from tests.support.clusters.rollout_cluster import LAB, NODES, Fleet, alone, context, fleet, store

__all__ = ["fleet", "store"]
GPUS = tuple(DetectedGpu("NVIDIA L4", 23034, f"0000:0{n}:00.0", (), n) for n in range(2))
WANTED = replace(LAB, gpu_driver=GpuDriver(install=True, branch="580"))


class Drivers:
    """The nodes' drivers, and what their installation does."""

    def __init__(self, fleet: Fleet) -> None:
        self.fleet = fleet
        self.versions = dict.fromkeys(NODES, "570.124.06")
        self.broken: set[str] = set()

    async def survey(self, *_: Any) -> Any:
        surveys = {
            name: Survey(
                name, "10.9.0.1", DetectedHardware(8, 1, 8, 1, 32_000, gpus=GPUS), "debian13", "Debian 13", "6.12", "rack",
                0.0, packages={"dpkg": "1"}, units=frozenset(["slurmd"]),
                driver=DetectedDriver(loaded=version, libraries=version),
            )
            for name, version in self.versions.items()
        }  # fmt: skip
        return SimpleNamespace(surveys=surveys, machines=self.fleet.machines, claimed={})

    async def install(self, _: Any, __: GpuDriver, name: str, *___: Any) -> str:
        self.fleet.note(f"install {name}")
        if name in self.broken:
            raise Refused(f"{name} (10.9.0.1): no module was built for kernel 6.12")
        self.versions[name] = "580.95.05"
        return "580.95.05"


@pytest.fixture
def drivers(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> Drivers:
    made = Drivers(fleet)
    fleet.traits = SSH
    fleet.machines = {name: replace(machine, image="") for name, machine in fleet.machines.items()}
    monkeypatch.setattr(machine_claims, "survey_machines", made.survey)
    monkeypatch.setattr(gpu_drivers, "install_driver", made.install)
    return made


async def roll(fleet: Fleet, store: Store, *, cluster: Cluster = WANTED) -> bool:
    async def waits() -> bool:
        return False

    return await roll_drivers(context(fleet, store, cluster), fleet.report, alone(fleet), waits, until=None)


async def test_each_node_is_drained_gets_the_driver_is_tested_and_returns(
    fleet: Fleet, drivers: Drivers, store: Store
) -> None:
    assert await roll(fleet, store)
    assert set(drivers.versions.values()) == {"580.95.05"}
    assert fleet.reasons == {}
    first = ["drain lab-1-1", "install lab-1-1", "test lab-1-1 thorough", "resume lab-1-1", "drain lab-1-2"]
    assert [line for line in fleet.did if not line.startswith("systemctl")][:5] == first
    fleet.did.clear()
    assert await roll(fleet, store)
    assert fleet.did == []


async def test_driver_that_does_not_work_stops_the_rollout(fleet: Fleet, drivers: Drivers, store: Store) -> None:
    drivers.broken = {"lab-1-1"}
    with pytest.raises(Refused, match=r"no module was built for kernel 6\.12") as caught:
        await roll(fleet, store)
    assert "lab-1-1 stays drained, no other node is changed" in caught.value.hint
    assert "--back" not in caught.value.hint
    assert list(fleet.reasons) == ["lab-1-1"]
    assert sorted(drivers.versions.values()) == ["570.124.06"] * 4
    drivers.broken = set()
    assert await roll(fleet, store)
    assert (set(drivers.versions.values()), fleet.reasons) == ({"580.95.05"}, {})


async def test_plan_names_each_node_and_its_jobs(fleet: Fleet, drivers: Drivers, store: Store) -> None:
    drivers.versions["lab-1-1"] = "580.95.05"
    fleet.jobs["lab-1-2"] = (7,)
    fleet.reasons["lab-1-4"] = "broken fan"
    plan = await plan_driver_rollout(context(fleet, store, WANTED), by=False)
    change = "NVIDIA driver 570.124.06 becomes branch 580, from the machine's distribution"
    assert [(one.where, one.why) for one in plan.changes] == [
        ("lab-1-2", f"{change}; once its jobs have ended"),
        ("lab-1-3", change),
    ]
    assert {one.disturbs for one in plan.changes} == {Disturbs.REBUILD}
    assert plan.notes == ("lab-1-4 is out of service and stays unchanged: broken fan",)
    kept = await plan_driver_rollout(context(fleet, store, LAB), by=False)
    assert kept.empty


async def test_halt_returns_nodes_with_their_former_driver(fleet: Fleet, drivers: Drivers, store: Store) -> None:
    drivers.versions["lab-1-1"] = "580.95.05"
    fleet.reasons |= {"lab-1-1": DRIVER_REASON, "lab-1-2": DRIVER_REASON, "lab-1-3": "headway: rolls"}
    await halt_driver_rollout(context(fleet, store, WANTED), fleet.report)
    assert fleet.reasons == {"lab-1-1": DRIVER_REASON, "lab-1-3": "headway: rolls"}


async def test_node_that_is_changed_and_not_tested_is_finished_although_the_file_says_keep(
    fleet: Fleet, drivers: Drivers, store: Store
) -> None:
    fleet.reasons["lab-1-2"] = DRIVER_REASON
    plan = await plan_driver_rollout(context(fleet, store, LAB), by=False)
    assert [(one.where, one.why) for one in plan.changes] == [
        ("lab-1-2", "its driver is replaced already and not tested yet")
    ]
    assert await roll(fleet, store, cluster=LAB)
    assert fleet.reasons == {}
    assert "test lab-1-2 thorough" in fleet.did


async def test_mig_instances_are_made_again_after_the_driver(
    fleet: Fleet, drivers: Drivers, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A driver that was reloaded has none, and slurmd does not start without their device files."""
    (group,) = WANTED.groups
    divided = replace(WANTED, groups=(replace(group, parts=GpuParts(mig=lay_out(group.plan, {"3g.40gb": 2}))),))
    orders: list[list[str]] = []

    async def query(argv: list[str]) -> str | None:
        if argv[0] == "systemctl":
            orders.append(argv)
        return await Fleet.query(fleet, argv)

    monkeypatch.setattr(fleet, "query", query)
    assert await roll(fleet, store, cluster=divided)
    assert drivers.versions["lab-1-1"] == "580.95.05"
    assert [order for order in orders if GPU_PARTS in order and "cat" not in order][:2] == [
        ["systemctl", action, "slurmd.service", AGENT, GPU_PARTS] for action in ("stop", "start")
    ]
