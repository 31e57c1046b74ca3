"""A new node image is rolled out node by node in the right order, Slurm receives the right commands, and a roll that
was stopped or killed continues."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from headway.catalog.providers import LOCAL, SSH
from headway.changes.cluster_changes import earlier_image_note
from headway.cluster import observe
from headway.cluster.context import ClusterContext
from headway.domain.changeset import Disturbs
from headway.domain.machine import Machine
from headway.errors import CommandFailed, Refused
from headway.health.context import HealthContext
from headway.health.incidents.verification import NodeTestReport, NodeTestResult
from headway.images.local_images import ImageInfo
from headway.rollout import image_rollout as module
from headway.rollout.image_rollout import halt_rollout, plan_rollout, read_rollout_state, roll_heads, roll_nodes
from headway.rollout.rollout_changes import RolloutState, rollout_changes
from headway.store import StoreUnavailable
from headway.store.db.rows import NodeImage
from headway.store.store import Store
from headway.transport.process import CommandResult
from tests.support import builders

LAB = builders.cluster(4, 0)
NODES = LAB.slot_names
TWO = replace(LAB, controllers=2)
FIRST, SECOND = TWO.heads
OLD, NEW = "localhost/headway-node:debian13-old", "localhost/headway-node:debian13-new"


SLURM = {OLD: "24.11", NEW: "24.11"}


def info(tag: str) -> ImageInfo:
    word = tag[-3:]
    return ImageInfo("debian13", tag, f"id-{word}", word, 1, "", SLURM[tag], tag == NEW)


class Fleet:
    """Machines of an image each, a controller, jobs on nodes. As provider and as Connections."""

    traits = LOCAL

    def __init__(self) -> None:
        self.machines = {name: replace(builders.machine(name), image="id-old") for name in (LAB.head, *NODES)}
        self.jobs: dict[str, set[int]] = {}
        self.reasons: dict[str, str] = {}
        self.order: list[str] = []
        self.bad: set[str] = set()  # images on which tests fail
        self.unmakable: set[str] = set()
        self.lost = False  # the server's database
        self.now = 1000.0
        self.turns = 0
        self.each_turn: Callable[[], None] = lambda: None
        self.alone = 0
        self.at_the_lock: Callable[[], None] = lambda: None  # what others do until it is had
        self.silent: dict[str, int] = {}  # word of scontrol -> so many of these get no answer

    async def list(self, _: str) -> tuple[Machine, ...]:
        return tuple(self.machines.values())

    async def delete(self, machine: Machine) -> None:
        assert self.alone
        assert not self.jobs.get(machine.name), "a node with jobs"
        assert machine.name in self.reasons, "a node in service"
        del self.machines[machine.name]

    async def drop(self, _: str) -> None: ...

    async def remote(self, _: Machine, argv: Sequence[str], *, check: bool = True, **__: Any) -> CommandResult:
        out = ""
        if self.silent.get(argv[1], 0):
            self.silent[argv[1]] -= 1
            raise CommandFailed(argv, 1, "Unable to contact slurm controller")
        if argv[0] == "squeue":
            out = "".join(f"{job} {node}\n" for node, jobs in self.jobs.items() for job in jobs)
        elif argv[0] == "sinfo":
            words = {name: "drained" if name in self.reasons else "idle" for name in NODES}
            out = "".join(f"{name}|{words[name]}|{self.reasons.get(name, 'none')}\n" for name in NODES)
        elif "node" in argv:
            why = self.reasons.get(argv[-1])
            out = (
                f"NodeName={argv[-1]} State={'IDLE' if why is None else f'IDLE+DRAIN Reason={why} [root@2026-01-01]'}\n"
            )
        elif "show" in argv:
            out = f"JobId={argv[-1]} JobState=RUNNING\n"
        elif argv[:2] == ["scontrol", "update"]:
            self._update(argv)
        elif argv[:2] == ["scontrol", "requeue"]:
            self.order.append(f"requeue {argv[2]}")
            self.jobs = {node: jobs - {int(argv[2])} for node, jobs in self.jobs.items()}
        else:
            assert argv[:2] in (["scontrol", "write"], ["scontrol", "notify"]) or argv[0] in ("sacct", "systemctl"), (
                argv
            )
        return CommandResult(tuple(argv), 0, out, "", 0.0)

    def _update(self, argv: Sequence[str]) -> None:
        from headway.domain.slurm.hostlist import expand

        given = dict(word.split("=", 1) for word in argv[2:])
        for name in expand(given["NodeName"]):
            self.order.append(f"{given['State'].lower()} {name}")
            if given["State"] == "RESUME":
                self.reasons.pop(name, None)
            else:
                self.reasons[name] = given["Reason"]

    async def sleep(self, seconds: float) -> None:
        self.now += seconds
        self.turns += 1
        assert self.turns < 200, "it never ends"
        self.each_turn()

    async def say(self, step: str, text: str, **_: Any) -> None:
        self.order.append(f"say {step}: {text}")

    @property
    def did(self) -> list[str]:
        return [line for line in self.order if not line.startswith("say")]

    def images(self) -> dict[str, str]:
        return {name: self.machines[name].image for name in NODES if name in self.machines}


@pytest.fixture
def fleet(monkeypatch: pytest.MonkeyPatch) -> Fleet:
    made = Fleet()

    async def bring(_: Any, __: Any, name: str, ___: Any, *, why: str, image: str) -> None:
        made.order.append(f"make {name} {image[-3:]}")
        if name in made.unmakable:
            raise Refused(f"{name}: no room")
        if made.lost:
            made.lost = False
            raise StoreUnavailable("the server's database does not answer")
        made.machines[name] = replace(builders.machine(name), image=info(image).id)

    async def prove(_: Any, name: str, *, thorough: bool) -> NodeTestReport:
        made.order.append(f"test {name}{' thorough' if thorough else ''}")
        bad = made.machines[name].image[-3:] in made.bad
        return NodeTestReport(name, (NodeTestResult("gpus", not bad, "nvidia-smi lists 0 GPUs, not 8" if bad else ""),))

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

    for name, what in (("provision_machine", bring), ("run_node_tests", prove), ("wait_until_registered", registered)):
        monkeypatch.setattr(module, name, what)
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


def context(fleet: Fleet, store: Store) -> HealthContext:
    env = ClusterContext(cast(Any, fleet), store, cast(Any, fleet), Path("/nowhere"))
    return HealthContext(LAB, env, lambda: fleet.now, fleet.sleep)


async def go(
    fleet: Fleet, store: Store, *, back: bool = False, until: float | None = None, waits: bool = False
) -> bool:
    @asynccontextmanager
    async def alone() -> AsyncIterator[None]:
        fleet.at_the_lock()
        fleet.alone += 1
        yield
        fleet.alone -= 1

    async def waiting() -> bool:
        return waits

    return await roll_nodes(context(fleet, store), fleet.say, alone, waiting, back=back, until=until)


async def test_each_node_is_drained_made_anew_tested_and_returned_one_first(fleet: Fleet, store: Store) -> None:
    assert await go(fleet, store)
    assert set(fleet.images().values()) == {"id-new"}
    assert fleet.reasons == {}
    assert fleet.did[:5] == [
        "drain lab-1-1",
        "make lab-1-1 new",
        "test lab-1-1 thorough",
        "resume lab-1-1",
        "drain lab-1-2",
    ]
    assert [line for line in fleet.did if "thorough" in line] == ["test lab-1-1 thorough"]
    assert fleet.machines[LAB.head].image == "id-old"
    assert await store.node_images.get("lab") == NodeImage("", OLD)
    fleet.order.clear()
    assert await go(fleet, store)
    assert fleet.did == []


async def test_a_node_that_fails_its_tests_stops_the_roll_and_stays_drained(fleet: Fleet, store: Store) -> None:
    fleet.bad = {"new"}
    with pytest.raises(Refused, match="lab-1-1: nvidia-smi lists 0 GPUs") as caught:
        await go(fleet, store)
    assert "--back" in caught.value.hint
    assert fleet.reasons == {"lab-1-1": "headway: rolls: nvidia-smi lists 0 GPUs, not 8"}
    assert fleet.images() == {name: "id-new" if name == "lab-1-1" else "id-old" for name in NODES}
    # What is made for other reasons until it is mended is of the image that works.
    assert await store.node_images.get("lab") == NodeImage(OLD, OLD)
    assert await go(fleet, store, back=True)
    assert (set(fleet.images().values()), fleet.reasons) == ({"id-old"}, {})
    assert await store.node_images.get("lab") == NodeImage(OLD, OLD)


async def test_one_whose_machine_can_not_be_made_stops_it_too(fleet: Fleet, store: Store) -> None:
    fleet.unmakable = {"lab-1-1"}
    with pytest.raises(Refused, match="no room"):
        await go(fleet, store)
    assert fleet.reasons == {"lab-1-1": "headway: rolls: lab-1-1: no room"}
    fleet.unmakable = set()
    assert await go(fleet, store)
    assert set(fleet.images().values()) == {"id-new"}
    assert fleet.reasons == {}


async def test_that_the_server_s_database_is_away_stops_no_roll_for_good(fleet: Fleet, store: Store) -> None:
    fleet.lost = True
    with pytest.raises(StoreUnavailable):
        await go(fleet, store)
    assert fleet.reasons == {"lab-1-1": "headway: rolls"}, "nothing is said of the node"
    assert await go(fleet, store), "begun anew, as after the server was killed"
    assert (set(fleet.images().values()), fleet.reasons) == ({"id-new"}, {})


async def test_without_a_deadline_no_job_is_ended_and_idle_nodes_go_first(fleet: Fleet, store: Store) -> None:
    fleet.jobs = {"lab-1-1": {7}}

    def turn() -> None:
        if fleet.turns == 40:
            fleet.jobs = {}

    fleet.each_turn = turn
    assert await go(fleet, store)
    made = [line.split()[1] for line in fleet.did if line.startswith("make")]
    assert made == ["lab-1-2", "lab-1-3", "lab-1-4", "lab-1-1"]
    assert not [line for line in fleet.did if line.startswith("requeue")]
    assert fleet.turns >= 40


async def test_at_the_deadline_all_are_drained_before_a_job_is_sent_away(fleet: Fleet, store: Store) -> None:
    fleet.jobs = {name: {number} for number, name in enumerate(NODES)}
    assert await go(fleet, store, until=fleet.now + 60)
    first = fleet.did.index("requeue 1")
    assert {f"drain {name}" for name in NODES} <= set(fleet.did[:first])
    assert fleet.did.index("requeue 0") < fleet.did.index("test lab-1-1 thorough") < first
    assert set(fleet.images().values()) == {"id-new"}
    assert fleet.now < 1200


async def test_nodes_that_are_out_for_other_reasons_are_left_alone(fleet: Fleet, store: Store) -> None:
    fleet.reasons = {"lab-1-2": "ann: disk swap", "lab-1-3": "headway: incident 4: XID 79"}
    assert await go(fleet, store)
    assert fleet.images() == {
        "lab-1-1": "id-new", "lab-1-2": "id-old", "lab-1-3": "id-old", "lab-1-4": "id-new",
    }  # fmt: skip
    assert "say lab-1-2: is out of service and stays as it is: ann: disk swap" in fleet.order
    assert len(fleet.reasons) == 2


async def test_a_killed_one_goes_on_where_it_was(fleet: Fleet, store: Store) -> None:
    """One node is of the new image and untested, another has no machine any more."""
    fleet.machines["lab-1-3"] = replace(fleet.machines["lab-1-3"], image="id-new")
    del fleet.machines["lab-1-2"]
    fleet.reasons = {"lab-1-2": "headway: rolls", "lab-1-3": "headway: rolls"}
    assert await go(fleet, store)
    made = [line for line in fleet.did if line.startswith("make")]
    assert made == ["make lab-1-2 new", "make lab-1-1 new", "make lab-1-4 new"]
    assert "test lab-1-3" in fleet.did
    assert fleet.reasons == {}


async def test_it_steps_aside_for_what_waits(fleet: Fleet, store: Store) -> None:
    assert not await go(fleet, store, waits=True)
    assert fleet.did == []


async def test_a_controller_that_is_away_is_waited_for(fleet: Fleet, store: Store) -> None:
    head = fleet.machines.pop(LAB.head)

    def turn() -> None:
        if fleet.turns == 5:
            fleet.machines[LAB.head] = head

    fleet.each_turn = turn
    assert await go(fleet, store)
    assert len([line for line in fleet.order if "waits for the controller" in line]) == 1


async def test_so_is_one_that_does_not_answer_between_two_looks(fleet: Fleet, store: Store) -> None:
    fleet.silent = {"update": 3}
    assert await go(fleet, store)
    assert set(fleet.images().values()) == {"id-new"}
    assert fleet.turns == 3
    assert len([line for line in fleet.order if "waits for the controller" in line]) == 1


async def test_a_job_that_could_not_be_sent_away_is_asked_again_and_not_ended(fleet: Fleet, store: Store) -> None:
    fleet.jobs = {"lab-1-1": {7}}
    fleet.silent = {"requeue": 3}
    assert await go(fleet, store, until=fleet.now)
    assert fleet.turns == 3
    assert set(fleet.images().values()) == {"id-new"}


async def test_a_node_that_others_returned_or_use_when_the_lock_is_had_is_let_be(fleet: Fleet, store: Store) -> None:
    """Another operation had the machines to itself until then: `seen` is as old as that."""

    def returned() -> None:
        del fleet.reasons["lab-1-1"]
        fleet.jobs = {"lab-1-1": {6}}

    def busy() -> None:
        fleet.jobs["lab-1-2"] = {7}

    others = [returned, busy]

    def meanwhile() -> None:
        if others:
            others.pop(0)()

    def turn() -> None:
        fleet.jobs = {}

    fleet.at_the_lock, fleet.each_turn = meanwhile, turn
    assert await go(fleet, store)
    made = [line for line in fleet.did if line.startswith("make")]
    assert len(made) == 4
    assert fleet.did.index("test lab-1-3 thorough") < fleet.did.index("make lab-1-1 new")
    assert set(fleet.images().values()) == {"id-new"}


async def test_a_controller_that_is_away_when_the_lock_is_had_is_waited_for(fleet: Fleet, store: Store) -> None:
    head = fleet.machines[LAB.head]

    def meanwhile() -> None:
        if not fleet.turns:
            del fleet.machines[LAB.head]

    def turn() -> None:
        fleet.machines[LAB.head] = head

    fleet.at_the_lock, fleet.each_turn = meanwhile, turn
    assert await go(fleet, store)
    assert set(fleet.images().values()) == {"id-new"}


async def test_halting_returns_what_was_drained_and_no_more(fleet: Fleet, store: Store) -> None:
    fleet.machines["lab-1-3"] = replace(fleet.machines["lab-1-3"], image="id-new")
    fleet.reasons = {"lab-1-1": "headway: rolls", "lab-1-2": "ann: x", "lab-1-3": "headway: rolls"}
    await halt_rollout(context(fleet, store), fleet.say)
    assert fleet.did == ["resume lab-1-1"]
    assert next(line for line in fleet.order if "stays drained" in line).startswith("say lab-1-3")
    fleet.jobs = {"lab-1-3": {7}}  # of a roll back: it has not been touched
    await halt_rollout(context(fleet, store), fleet.say)
    assert fleet.did[-1] == "resume lab-1-3"


async def test_a_plan_names_nodes_and_why_and_touches_nothing(fleet: Fleet, store: Store) -> None:
    fleet.jobs = {"lab-1-2": {7}}
    fleet.reasons = {"lab-1-4": "ann: x"}
    found = await plan_rollout(context(fleet, store), back=False, head=True, by=False)
    assert [(one.where, one.disturbs) for one in found.changes] == [
        ("lab-1-1", Disturbs.REBUILD), ("lab-1-3", Disturbs.REBUILD), ("lab-1-2", Disturbs.REBUILD),
        ("lab-head", Disturbs.REBUILD),
    ]  # fmt: skip
    assert "once job 7 has ended" in found.changes[2].why
    assert "lab-1-4" in found.notes[0]
    by = await plan_rollout(context(fleet, store), back=False, head=False, by=True)
    assert [one.disturbs for one in by.changes if one.where == "lab-1-2"] == [Disturbs.JOBS]
    assert "--head" in by.notes[-1]
    assert fleet.did == []
    with pytest.raises(Refused, match="no image to go back to"):
        await plan_rollout(context(fleet, store), back=True, head=False, by=False)
    fleet.traits = SSH
    with pytest.raises(Refused, match="you own them"):
        await plan_rollout(context(fleet, store), back=False, head=False, by=False)


async def test_nothing_to_do_says_so(fleet: Fleet, store: Store) -> None:
    fleet.machines = {name: replace(one, image="id-new") for name, one in fleet.machines.items()}
    seen = await read_rollout_state(context(fleet, store))
    assert isinstance(seen, RolloutState)
    found = rollout_changes(LAB, seen, "id-new", NEW, head=True, deadline=False)
    assert (found.changes, found.notes) == ((), ())
    assert NEW in found.why_empty


def test_both_heads_are_planned_the_second_one_first() -> None:
    machines = {name: replace(builders.machine(name), image="id-old") for name in TWO.heads}
    found = rollout_changes(TWO, RolloutState(machines), "id-new", NEW, head=True, deadline=False)
    assert [one.where for one in found.changes] == [SECOND, FIRST]
    assert "slurmctld is away meanwhile" not in found.changes[0].why
    assert f"{SECOND} leads meanwhile" in found.changes[1].why
    note = rollout_changes(TWO, RolloutState(machines), "id-new", NEW, head=False, deadline=False).notes[-1]
    assert note.startswith("lab-head,lab-head2 run another node image and stay as they are; --head")
    machines[FIRST] = replace(machines[FIRST], image="id-new")
    assert [
        one.where
        for one in rollout_changes(TWO, RolloutState(machines), "id-new", NEW, head=True, deadline=False).changes
    ] == [SECOND]


def test_a_plan_names_the_flag_whichever_head_is_of_the_image_before() -> None:
    for head in TWO.heads:
        assert earlier_image_note(TWO, (head, "lab-1-1")).endswith("headway roll lab --head")
    assert earlier_image_note(TWO, ("lab-1-1",)).endswith("headway roll lab")


class Heads(Fleet):
    """The heads alone, and what an apply makes of those that are missing."""

    def __init__(self, *there: str) -> None:
        super().__init__()
        self.machines = {name: replace(builders.machine(name), image="id-old") for name in there}
        self.fails = False

    async def stop(self, machine: Machine) -> None:
        self.order.append(f"stop {machine.name}")

    async def delete(self, machine: Machine) -> None:
        self.order.append(f"delete {machine.name}")
        del self.machines[machine.name]

    async def apply(self, *_: Any) -> None:
        self.order.append("apply")
        if self.fails:
            raise Refused("it did not get there")
        for name in TWO.heads:
            self.machines.setdefault(name, replace(builders.machine(name), image="id-new"))

    async def wait(self, _: Any, __: Any, ___: Any, names: frozenset[str]) -> None:
        self.order.append(f"wait for {len(names)}")

    async def roll(self, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(module, "apply_cluster", self.apply)
        monkeypatch.setattr(module, "wait_for_nodes", self.wait)
        await roll_heads(replace(context(self, store), cluster=TWO), self.say, back=False)


ANEW = {name: [f"stop {name}", f"delete {name}", "apply", "wait for 0"] for name in TWO.heads}


async def test_both_heads_are_made_anew_the_second_one_first(
    fleet: Fleet, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    heads = Heads(FIRST, SECOND)
    await heads.roll(store, monkeypatch)
    assert heads.did == ANEW[SECOND] + ANEW[FIRST]
    heads.order.clear()
    await heads.roll(store, monkeypatch)
    assert heads.did == ["apply", "wait for 0"]


async def test_no_head_goes_while_the_other_one_is_missing(
    fleet: Fleet, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a killed roll may leave it."""
    heads = Heads(FIRST)
    await heads.roll(store, monkeypatch)
    assert heads.did == ["apply", "wait for 0", *ANEW[FIRST]]
    heads = Heads(FIRST, SECOND)
    heads.fails = True
    with pytest.raises(Refused):
        await heads.roll(store, monkeypatch)
    assert heads.did == ANEW[SECOND][:3]
    assert FIRST in heads.machines
