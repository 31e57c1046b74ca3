"""While no server listens, the head's agent deals with faults itself: once for each, and only on the head that leads."""

from __future__ import annotations

import json
import os
import struct
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest


class Head:
    """scontrol and squeue on the head; anything else fails the test."""

    def __init__(self) -> None:
        self.state, self.reason = "MIXED", ""
        self.jobs: dict[int, str] = {7: "RUNNING", 8: "RUNNING"}
        self.tasks: dict[int, str] = {}
        self.accounted: dict[int, str] = {}  # states as accounting has them
        self.fixed: set[int] = set()
        self.refused: dict[int, str] = {}  # in the controller's words
        self.away = ""  # words that get no answer
        self.done: list[str] = []

    def __call__(self, argv: Sequence[str]) -> tuple[int, str]:
        line = " ".join(argv)
        if self.away and self.away in line:
            return 1, "Unable to contact slurm controller (connect failure)"
        if "show node" in line:
            return 0, f"NodeName=lab-1-2 State={self.state} X=1" + (
                f" Reason={self.reason} [root@2026]" * bool(self.reason)
            )
        if "show job" in line:
            return 0, f"JobId={argv[-1]} JobState={self.jobs[int(argv[-1])]} Reason=None"
        if argv[0] == "squeue" and "--format=%A %i" in argv:
            return 0, "".join(f"{job} {self.tasks.get(job, job)}\n" for job in self.jobs)
        if argv[0] == "squeue":
            asked = line.partition("--states=")[2].split()[0].split(",")
            return 0, "\n".join(str(job) for job, state in self.jobs.items() if state in asked)
        if argv[0] == "sacct":
            return 0, "".join(f"{job}|{self.accounted.get(int(job), 'RUNNING')}\n" for job in argv[-1].split(","))
        assert argv[1] in {"update", "requeue"}, line
        if argv[1] == "requeue" and argv[-1].isdigit() and int(argv[-1]) in self.refused:
            return 1, self.refused[int(argv[-1])]
        if argv[-1].isdigit() and int(argv[-1]) in self.fixed:
            return 1, "Requested operation is presently disabled for job 8"
        self.done.append(" ".join(argv[1:]))
        return 0, ""


class World:
    def __init__(self, folder: Path) -> None:
        self.folder, self.head, self.beats = folder, Head(), {"lab-1-1": 5000.0, "lab-1-2": 5000.0, "lab-1-3": 5000.0}
        self.faults, self.actions, self.watched = (folder / name for name in ("faults", "actions", "watched"))
        self.faults.write_text("")

    def relay(self, **config: Any) -> Any:
        from agent.config import Config
        from agent.lost_contact.offline_responder import OfflineResponder

        known: dict[str, Any] = {
            "offline_response": True,
            "drain_codes": frozenset({79}),
            "state": str(self.folder),
            **config,
        }
        made = OfflineResponder(
            Config("10.0.0.1", **known),
            self.beats,
            str(self.faults),
            str(self.actions),
            str(self.watched),
            self.head,
        )
        made._began = 4000.0
        return made

    def read_at(self, at: float) -> None:
        self.watched.touch()
        os.utime(self.watched, (at, at))

    def fault(self, name: str = "a", code: int = 79, at: float = 4990.0, job: int | None = None) -> None:
        with self.faults.open("a") as file:
            file.write(json.dumps({"id": name, "at": at, "node": "lab-1-2", "code": code, "job": job}) + "\n")

    def told(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.actions.read_text().splitlines()] if self.actions.exists() else []


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_responder_drains_and_requeues_once_while_no_server_listens(world: World) -> None:
    world.fault(job=9)
    world.head.jobs[9] = "FAILED"
    world.head.fixed = {8}
    relay = world.relay()
    relay.check(5000.0)
    drain = "update NodeName=lab-1-2 State=DRAIN Reason=headway: relay: XID 79"
    assert world.head.done == [drain, "requeue 7", "requeue 9"]
    assert world.told() == [{"signal": "a", "node": "lab-1-2", "at": 5000.0, "requeued": [7, 9], "stay": [8]}]
    relay.check(5001.0)
    world.relay().check(5002.0)
    assert len(world.head.done) == 3, "also by an agent that was started again"


@pytest.mark.parametrize("away", ["show node", "State=DRAIN", "--nodelist", "requeue 8"])
def test_responder_retries_commands_the_controller_did_not_answer(world: World, away: str) -> None:
    world.fault()
    world.head.away = away
    relay = world.relay()
    relay.check(5000.0)
    assert world.told() == []
    world.head.away = ""
    world.head.jobs[7] = "COMPLETING" if away.startswith("requeue") else "RUNNING"
    relay.check(5001.0)
    assert [line for line in world.head.done if "requeue" in line] == ["requeue 7", "requeue 8"]
    assert world.head.done[0].startswith("update NodeName=lab-1-2 State=DRAIN")
    assert [(action["requeued"], action["stay"]) for action in world.told()] == [([7, 8], [])]


@pytest.mark.parametrize("away", ["show node", "State=DOWN", "--nodelist"])
def test_responder_retries_until_a_silent_node_is_down(world: World, away: str) -> None:
    world.beats |= {f"lab-2-{n}": 5100.0 for n in range(1, 5)}
    world.beats |= {"lab-1-1": 5100.0, "lab-1-3": 5100.0}
    world.head.away = away
    relay = world.relay()
    relay.check(5100.0)
    assert world.told() == []
    world.head.away = ""
    relay.check(5101.0)
    assert world.head.done == [
        "update NodeName=lab-1-2 State=DOWN Reason=headway: relay: no heartbeat, and its lease has ended"
    ]
    assert [action["requeued"] for action in world.told()] == [[7, 8]]


def test_responder_skips_lines_that_it_can_not_read_and_changes_no_file_of_another(world: World) -> None:
    for line in ("no JSON", "[]", '{"id": "x"}', '{"id": "y", "at": null, "code": 79, "node": "lab-1-2"}'):
        with world.faults.open("a") as file:
            file.write(line + "\n")
    world.fault(job=9)
    world.head.jobs[9] = "FAILED"
    with world.faults.open("a") as file:
        file.write('{"id": "half of a line that is being written')
    before = world.faults.read_text()
    world.relay().check(5000.0)
    assert [action["signal"] for action in world.told()] == ["a"]
    assert world.faults.read_text() == before


def test_responder_does_not_requeue_jobs_that_ended_before_the_fault(world: World) -> None:
    """It holds its nodes for an epilog alone."""
    world.head.jobs = {7: "RUNNING"} | dict.fromkeys(range(8, 14), "COMPLETING")
    world.head.accounted = {8: "COMPLETED", 9: "CANCELLED by 1000", 10: "TIMEOUT", 11: "FAILED", 12: "COMPLETED"}
    world.fault(job=12)  # its script may have made little of its tasks' end
    world.relay().check(5000.0)
    assert world.head.done[1:] == ["requeue 7", "requeue 11", "requeue 12", "requeue 13"]


def test_responder_requeues_completing_jobs_without_accounting(world: World) -> None:
    world.head.jobs = {8: "COMPLETING"}
    world.head.away = "sacct"
    world.fault()
    world.relay().check(5000.0)
    assert world.head.done[1:] == ["requeue 8"]


def test_responder_requeues_only_array_tasks_of_the_node(world: World) -> None:
    """7 is the array's own number too: told just that, Slurm takes the tasks of every other node with it."""
    world.head.jobs, world.head.tasks = {7: "RUNNING"}, {7: "7_2"}
    world.fault()
    world.relay().check(5000.0)
    assert world.head.done[1:] == ["requeue 7_2"]


def test_responder_requeues_the_whole_hetjob(world: World) -> None:
    world.head.jobs, world.head.tasks = {8: "RUNNING"}, {8: "7+1"}
    world.fault()
    world.relay().check(5000.0)
    assert world.head.done[1:] == ["requeue 7"]


def test_responder_accepts_final_requeue_refusals(world: World) -> None:
    world.head.refused = {7: "Job is pending execution for job 7", 8: "Invalid job id specified for job 8"}
    world.fault()
    world.relay().check(5000.0)
    assert [(action["requeued"], action["stay"]) for action in world.told()] == [([7], [8])]


def test_responder_ignores_faults_a_server_may_have_read(world: World) -> None:
    relay = world.relay()
    world.fault("a")
    world.read_at(4995.0)
    relay.check(5000.0)
    assert world.head.done == [], "it was there a moment ago"
    relay.check(5011.0)
    assert world.head.done == [], "it had been read: the server acts on it itself when it is back"
    world.fault("b", code=31, at=5010.0)
    relay.check(5012.0)
    assert world.head.done == []
    world.fault("c", at=5011.0)
    world.relay(offline_response=False).check(5013.0)
    assert world.head.done == []
    relay.check(5013.0)
    assert len(world.told()) == 1


def test_responder_keeps_a_manual_drain_and_requeues_jobs(world: World) -> None:
    world.head.state, world.head.reason = "MIXED+DRAIN", "replacing the NIC"
    world.fault()
    world.relay().check(5000.0)
    assert world.head.done == ["requeue 7", "requeue 8"]


def test_responder_downs_one_silent_node_after_its_lease_but_not_many(world: World) -> None:
    relay = world.relay()
    world.beats |= {"lab-1-1": 5027.0, "lab-1-3": 5027.0}
    relay.check(5027.0)
    assert world.head.done == []
    relay.check(5028.0)
    relay.check(5029.0)
    assert world.head.done == [
        "update NodeName=lab-1-2 State=DOWN Reason=headway: relay: no heartbeat, and its lease has ended"
    ]
    world.head.done.clear()
    relay.check(5100.0)
    assert world.head.done == [], "now all are silent: the network"


def test_second_head_responder_acts_only_while_its_controller_leads(world: World) -> None:
    second = world.relay(first=False)
    world.fault()
    second.check(5000.0)
    assert world.head.done == [], "no head reports which one leads: the first one does"
    beat = world.folder / "heartbeat"
    for number, age_s in ((0, 0), (1, 60)):
        beat.write_bytes(struct.pack(">QQ", int(time.time()) - age_s, number))
        second.check(5001.0)
        assert world.head.done == []
    beat.write_bytes(struct.pack(">QQ", int(time.time()), 1))
    second.check(5002.0)
    assert len(world.told()) == 1


def leads(world: World, number: int, age_s: int = 0) -> None:
    (world.folder / "heartbeat").write_bytes(struct.pack(">QQ", int(time.time()) - age_s, number))


def test_first_head_responder_stands_by_while_the_second_leads(world: World) -> None:
    world.fault()
    world.beats |= {"lab-1-1": 5027.0, "lab-1-3": 5027.0}
    leads(world, 1)
    relay = world.relay()
    relay.check(5028.0)
    assert world.head.done == [], "the second one hears the silent node, perhaps"
    leads(world, 1, age_s=60)
    relay.check(5029.0)
    assert world.told() != [], "no leader is known"


def test_new_leader_waits_for_leases_renewed_by_the_other_head(world: World) -> None:
    relay = world.relay()
    world.beats |= {"lab-1-1": 5060.0, "lab-1-3": 5060.0}
    leads(world, 1)
    relay.check(5030.0)
    leads(world, 0)
    relay.check(5031.0)
    relay.check(5058.0)
    assert world.head.done == [], "a node that was cut off from this one may have been told by the other until 5031"
    relay.check(5059.0)
    assert len(world.head.done) == 1


def test_leader_file_ignores_a_heartbeat_being_written(world: World) -> None:
    from agent.failover.leader import LeaderFile

    leads(world, 0)
    leading = LeaderFile(first=False, state=str(world.folder))
    for change in ((world.folder / "heartbeat").unlink, (world.folder / "heartbeat").touch):
        leading.refresh()
        change()
        leading.refresh()
        assert leading.is_this_head() is False


@pytest.mark.parametrize(
    ("ours", "theirs", "ended"),
    [
        ("lab-head 1", "lab-head 1", 0),
        ("lab-head 1", "lab-head2 7", 1),
        ("lab-head 1", "lab-head 2", 1),  # in between the other led
        ("", "lab-head2 7", 0),  # it stands by, or is no more
        ("lab-head 1", "", 0),
    ],
)
def test_controller_that_lost_leadership_is_ended(
    world: World, monkeypatch: pytest.MonkeyPatch, ours: str, theirs: str, ended: int
) -> None:
    from agent.failover import leader

    done: list[str] = []
    monkeypatch.setattr(leader, "_end", lambda: done.append("kill"))
    for name, text in (("ours", ours), ("leads", theirs)):
        if text:
            (world.folder / name).write_text(f"{text} {world.folder}\n")
    # Its own folder counts: the file may name another one by now.
    looks = leader.LeaderMonitor(leader.LeaderFile(True, str(world.folder / "another")), str(world.folder / "ours"))
    assert not looks.check(), "the two files are not written at one moment"
    assert looks.check() is bool(ended)
    assert len(done) == ended


@pytest.mark.parametrize(
    ("first", "number", "age_s", "renews"),
    [(True, 0, 0, True), (True, 1, 0, False), (False, 0, 0, False), (False, 1, 0, True),
     (False, 0, 13, True), (True, 1, 13, True), (False, None, 0, True), (True, None, 0, True)],
)  # fmt: skip
def test_lease_is_renewed_by_the_leading_head_or_any_if_unknown(
    world: World, first: bool, number: int | None, age_s: int, renews: bool
) -> None:
    from agent.failover.leader import LeaderFile
    from agent.roles.head import NodeMessages as Keeper
    from agent.roles.node import renews_lease as renewed

    if number is not None:
        leads(world, number, age_s)
    leading = LeaderFile(first, str(world.folder))
    leading.refresh()
    keeper = Keeper(str(world.folder / "reports"), str(world.faults), str(world.folder / "turns"))
    keeper.leads = leading.is_this_head() is not False
    answer = keeper.receive(json.dumps({"node": "lab-1-1"}).encode(), 5000.0, 5000.0)
    assert answer is not None
    assert renewed(answer) is renews
