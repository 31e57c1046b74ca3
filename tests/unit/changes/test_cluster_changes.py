"""A cluster's ChangeSet reports image, Slurm version and slurm.conf differences, and the jobs that Slurm would end."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from headway.catalog.mig_profiles import lay_out
from headway.catalog.providers import SSH
from headway.changes.cluster_changes import SLURM_CONF, DesiredState, changeset
from headway.changes.desired_accounts import desired_accounts
from headway.changes.machine_changes import DesiredMachine
from headway.cluster import observe as watched
from headway.cluster.context import ClusterContext
from headway.cluster.desired_state import build_desired_state
from headway.cluster.observe import _aborted, _of_earlier_image, heads_with_other_slurm
from headway.domain.changeset import Change, Disturbs
from headway.domain.cluster import Cluster
from headway.domain.machines.gpu_parts import WHOLE, GpuParts
from headway.domain.machines.machine import Machine, MachineState
from headway.domain.machines.managed_file import File
from headway.domain.machines.observed_state import Observed, ObservedFile, ObservedMachine, ObservedUnit
from headway.domain.machines.systemd_unit import Unit
from headway.domain.teams import User
from headway.errors import CommandFailed, Unreachable
from headway.images import local_images
from headway.slurm import node_jobs
from tests.support.clusters import builders

LAB = builders.cluster(2)
CONTROLLER = Unit("slurmctld.service", reload_on=(SLURM_CONF,), reload=("scontrol", "reconfigure"), stage="controller")
UP = ObservedUnit(True, True, 2.0, 7, "")
MADE = tuple(replace(builders.machine(name), image="old") for name in (LAB.head, *LAB.slot_names))


def test_newer_node_image_is_a_note_and_no_change() -> None:
    goal = DesiredState(LAB, {}, desired_accounts(LAB))
    machines = {machine.name: machine for machine in MADE}
    found = changeset(goal, Observed(machines, of_earlier_image=tuple(machines)))
    (note,) = found.notes
    assert "lab-head" in note
    assert f"another node image than {LAB.image}" in note
    assert "rebuild" in note
    assert "headway roll lab --head" in note
    assert changeset(goal, Observed(machines)).notes == ()
    assert not [change for change in found.changes if change.kind.startswith("machine")]


def test_several_people_on_one_host_are_warned_of_its_shared_kernel() -> None:
    """Local machines are privileged containers. Nothing is said where nothing changes, of one person, or of own machines."""
    several = replace(LAB, users=(*LAB.users, User("bob", (), ("default",))))

    def notes(cluster: Cluster, found: tuple[Machine, ...] = ()) -> str:
        goal = DesiredState(cluster, {}, desired_accounts(cluster))
        return " ".join(changeset(goal, Observed({machine.name: machine for machine in found})).notes)

    assert "2 people share the kernel of this host" in notes(several)
    assert "provider ssh" in notes(several)
    assert "share the kernel" not in notes(LAB)
    assert "share the kernel" not in notes(replace(several, provider=SSH))


def test_other_division_of_gpus_is_a_note_about_a_roll() -> None:
    halves = GpuParts(mig=lay_out(LAB.largest_plan, {"3g.40gb": 2}))
    cluster = replace(LAB, groups=(replace(LAB.groups[0], parts=halves),))
    goal = DesiredState(cluster, {}, desired_accounts(cluster), parts_now={"lab-1-1": WHOLE, "lab-1-2": WHOLE})
    found = changeset(goal, Observed({machine.name: machine for machine in MADE}))
    assert found.notes == (
        "lab-1-[1-2]: each GPU is to be 2 x 3g.40gb, now whole GPUs; effect: node drain, one node after the other, jobs go "
        "on: headway roll lab",
    )


async def test_machines_made_from_an_earlier_image_are_listed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    present: Any = None

    async def find(name: str) -> Any:
        if isinstance(present, Exception):
            raise present
        return present

    monkeypatch.setattr(local_images, "find_current_image", find)
    head = replace(MADE[0], image="new")
    assert await _of_earlier_image("debian13", [head, *MADE[1:]]) == tuple(sorted(one.name for one in MADE))
    present = SimpleNamespace(id="new")
    assert await _of_earlier_image("debian13", [head, *MADE[1:]]) == tuple(sorted(one.name for one in MADE[1:]))
    assert (
        await _of_earlier_image("debian13", [replace(one, image="") for one in MADE]) == ()
    )  # of the user's own image
    present = CommandFailed(["podman"], 125, "no")
    assert await _of_earlier_image("debian13", MADE) == ()


def test_head_with_another_slurm_version_is_only_rebuilt() -> None:
    goal = DesiredState(LAB, {}, desired_accounts(LAB))
    machines = {machine.name: machine for machine in MADE}
    found = changeset(goal, Observed(machines, other_slurm={LAB.head: "24.05"}))
    (change,) = [one for one in found.changes if one.where == LAB.head]
    assert (change.kind, change.disturbs) == ("machine.rebuild", Disturbs.REBUILD)
    assert "Slurm 24.05 becomes 24.11" in change.why
    assert change in found.disturbing_changes


async def test_slurm_version_of_a_head_is_that_of_its_image(monkeypatch: pytest.MonkeyPatch) -> None:
    async def list_images() -> tuple[Any, ...]:
        return (SimpleNamespace(id="old", slurm_version="24.05"), SimpleNamespace(id="new", slurm_version="24.11"))

    monkeypatch.setattr(local_images, "list_images", list_images)
    assert await heads_with_other_slurm(LAB, MADE) == {LAB.head: "24.05"}, "a node's may be older"
    assert await heads_with_other_slurm(LAB, [replace(one, image="new") for one in MADE]) == {}
    assert await heads_with_other_slurm(LAB, [replace(one, image="gone") for one in MADE]) == {}
    assert await heads_with_other_slurm(LAB, [replace(one, image="") for one in MADE]) == {}  # of the user's own image


def test_plan_names_jobs_ended_by_partition_and_node_changes() -> None:
    conf = "NodeName=lab-1-[1-2] CPUs=96\nPartitionName=train Nodes=ALL\n"
    desired = DesiredMachine.build({SLURM_CONF: File(conf)}, {}, (CONTROLLER,))
    seen = ObservedMachine({SLURM_CONF: ObservedFile("old", 0o644, "root", "root", 1.0)}, {CONTROLLER.name: UP})
    machines = {LAB.head: builders.machine(LAB.head)}
    old = "NodeName=lab-1-[1-2] CPUs=64\nPartitionName=train Nodes=ALL\nPartitionName=debug Nodes=ALL\n"
    observed = Observed(machines, {LAB.head: seen}, texts={SLURM_CONF: old}, aborted={"debug": (4, 5), "lab-1-1": (6,)})
    goal = DesiredState(LAB, {"head": desired, "node": DesiredMachine.build({}, {}, ())}, desired_accounts(LAB))
    (told,) = [change for change in changeset(goal, observed).disturbing_changes if change.disturbs is Disturbs.JOBS]
    assert (told.kind, told.what) == ("unit.reload", CONTROLLER.name)
    assert told.why == (
        "partition debug is removed and Slurm ends jobs 4, 5; other processors or GPUs on lab-1-1: Slurm ends job 6 there"
    )
    unaborted = changeset(goal, replace(observed, aborted={}))
    assert not [change for change in unaborted.disturbing_changes if change.disturbs is Disturbs.JOBS]


DAMAGES = (
    "DebugFlags=Gres  Power\n",
    "garbage\n",
    "NodeName=lab-2-[1-3 CPUs=4\n",
    'MailDomain="x\n',
    "NodeName=a[1-99999999]\n",
)


@pytest.mark.parametrize("damage", DAMAGES)
async def test_unparsable_slurm_conf_is_replaced_and_reported_in_the_plan(damage: str) -> None:
    """An apply that raised would never get to the one thing that mends it."""
    conf = "NodeName=lab-1-[1-2] CPUs=96\nPartitionName=train Nodes=ALL\n"
    desired = DesiredMachine.build({SLURM_CONF: File(conf)}, {}, (CONTROLLER,))
    goal = DesiredState(LAB, {"head": desired, "node": DesiredMachine.build({}, {}, ())}, desired_accounts(LAB))
    context: Any = SimpleNamespace(connections=None)
    texts = {SLURM_CONF: conf + damage}
    assert await _aborted(goal, context, builders.machine(LAB.head), texts) == ({}, "")
    seen = ObservedMachine({SLURM_CONF: ObservedFile("old", 0o644, "root", "root", 1.0)}, {CONTROLLER.name: UP})
    observed = Observed({LAB.head: builders.machine(LAB.head)}, {LAB.head: seen}, texts=texts)
    told = {change.kind: change for change in changeset(goal, observed).changes if change.where == LAB.head}
    assert told["file.write"].why.startswith("can't be parsed and is replaced: ")
    assert told["unit.restart"].disturbs is Disturbs.CONTROLLER_RESTART
    assert told["unit.restart"].why == "its file can't be parsed"


async def test_plan_asks_if_jobs_to_be_ended_cannot_be_determined(monkeypatch: pytest.MonkeyPatch) -> None:
    conf = "NodeName=lab-1-[1-2] CPUs=96\nPartitionName=train Nodes=ALL\n"
    desired = DesiredMachine.build({SLURM_CONF: File(conf)}, {}, (CONTROLLER,))
    goal = DesiredState(LAB, {"head": desired, "node": DesiredMachine.build({}, {}, ())}, desired_accounts(LAB))
    head, context = builders.machine(LAB.head), cast(Any, SimpleNamespace(connections=None))

    async def unheard(*_: Any) -> Any:
        raise Unreachable("the controller does not answer\nand more")

    monkeypatch.setattr(node_jobs, "jobs_by_partition", unheard)
    monkeypatch.setattr(node_jobs, "jobs_by_node", unheard)
    old = "NodeName=lab-1-[1-2] CPUs=64\nPartitionName=train Nodes=ALL\nPartitionName=debug Nodes=ALL\n"
    assert await _aborted(goal, context, head, {SLURM_CONF: conf}) == ({}, "")
    jobs, why = await _aborted(goal, context, head, {SLURM_CONF: old})
    assert (jobs, why) == ({}, "the controller does not answer")
    seen = ObservedMachine({SLURM_CONF: ObservedFile("old", 0o644, "root", "root", 1.0)}, {CONTROLLER.name: UP})
    observed = Observed({LAB.head: head}, {LAB.head: seen}, texts={SLURM_CONF: old}, unasked=why)
    (told,) = [change for change in changeset(goal, observed).disturbing_changes if change.disturbs is Disturbs.JOBS]
    assert told.why == (
        "partition debug is removed, other processors or GPUs on lab-1-[1-2]; "
        "the jobs that Slurm ends for that are unknown: the controller does not answer"
    )


TWO = replace(LAB, controllers=2)
DEBUG = replace(LAB.partitions[0], name="debug", default=False)


def _goal_of(cluster: Cluster) -> DesiredState:
    site = builders.site(cluster)
    return build_desired_state(cluster, replace(site, addresses={**site.addresses, cluster.heads[1]: "10.9.0.8"}), {})


def _as(desired: DesiredMachine) -> ObservedMachine:
    return ObservedMachine(
        {p: ObservedFile(desired.digests[p], f.mode, f.owner, f.group, 1.0) for p, f in desired.files.items()},
        {unit.name: ObservedUnit(True, True, 2.0, 7, desired.loaded[unit.name]) for unit in desired.units},
        tuple(desired.files),
        frozenset(path for path, _, _ in (*desired.dirs, *desired.homes)),
    )


async def _with_two_heads(monkeypatch: pytest.MonkeyPatch, before: Cluster, first: MachineState) -> list[Change]:
    """What an apply of TWO changes about the controllers, after one of `before`."""
    old = _goal_of(before)
    machines = [builders.machine(TWO.head, first), *(builders.machine(name) for name in TWO.machine_names[1:])]

    async def look_at(_: Any, machine: Any, __: Any, *, with_texts: bool) -> Any:
        wanted = old.roles[TWO.role_of(machine.name)]
        return _as(wanted), {SLURM_CONF: wanted.files[SLURM_CONF].text} if with_texts else {}

    async def queued(_: Any, head: Any, names: list[str]) -> dict[str, tuple[int, ...]]:
        return dict.fromkeys(names, (7, 8))

    async def none(*_: Any) -> Any:
        return None

    async def attached(_: str) -> frozenset[str]:
        return frozenset()

    async def listed(_: str) -> Any:
        return machines

    async def ran(*_: Any, **__: Any) -> Any:
        return SimpleNamespace(code=0, stdout="")

    monkeypatch.setattr(watched, "observe_machine", look_at)
    monkeypatch.setattr(watched, "read_accounts", none)
    monkeypatch.setattr(node_jobs, "jobs_by_partition", queued)
    provider: Any = SimpleNamespace(list=listed, attached=attached)
    connections: Any = SimpleNamespace(remote=ran)
    context = ClusterContext(provider, cast(Any, None), connections, Path("/nowhere"))
    goal = _goal_of(TWO)
    found = changeset(goal, await watched.observe_cluster(goal, context))
    return [change for change in found.changes if change.what == CONTROLLER.name]


async def test_ended_jobs_are_attributed_to_the_leading_controller(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before = replace(TWO, partitions=(*TWO.partitions, DEBUG))
    words = "partition debug is removed and Slurm ends jobs 7, 8"
    first, second = await _with_two_heads(monkeypatch, before, MachineState.RUNNING)
    assert (first.where, first.disturbs, first.why) == (TWO.heads[0], Disturbs.JOBS, words)
    assert (second.where, second.disturbs) == (TWO.heads[1], Disturbs.NOTHING)
    (second,) = await _with_two_heads(monkeypatch, before, MachineState.STOPPED)
    assert (second.where, second.disturbs, second.why) == (TWO.heads[1], Disturbs.JOBS, words)


async def test_restart_of_a_leading_second_controller_is_a_disturbance(monkeypatch: pytest.MonkeyPatch) -> None:
    before = replace(TWO, slurm={"PriorityWeightAge": "5"})
    _, second = await _with_two_heads(monkeypatch, before, MachineState.RUNNING)
    assert second.disturbs is Disturbs.NOTHING
    (second,) = await _with_two_heads(monkeypatch, before, MachineState.STOPPED)
    assert (second.kind, second.disturbs) == ("unit.restart", Disturbs.CONTROLLER_RESTART)


async def test_jobs_by_partition_asks_squeue_for_the_removed_partitions() -> None:
    asked: list[list[str]] = []

    class Remote:
        async def remote(self, _: Any, argv: list[str], **__: Any) -> Any:
            asked.append(argv)
            return SimpleNamespace(stdout="4 debug\n5 train,debug\n6 train\n")

    found = await node_jobs.jobs_by_partition(Remote(), builders.machine(LAB.head), ["debug"])  # type: ignore[arg-type]
    assert found == {"debug": (4, 5)}
    assert "--partition=debug" in asked[0]
    assert await node_jobs.jobs_by_partition(Remote(), builders.machine(LAB.head), []) == {}  # type: ignore[arg-type]
