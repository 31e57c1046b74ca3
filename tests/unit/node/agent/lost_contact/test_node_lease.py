"""A node without contact to the head kills its own jobs, and the head's agent acts alone while no server is
connected."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest


class Jobs:
    def __init__(self) -> None:
        self.ended = 0

    def __call__(self) -> set[int]:
        self.ended += 1
        return {7}


def lease(jobs: Jobs, asked: Sequence[str] = (), answers: dict[str, tuple[float, float]] | None = None) -> Any:
    from agent.lost_contact.node_lease import Lease

    made = Lease(lambda: list(asked), jobs)
    made.last_contact = made._ticked = 1000.0
    made._queried, made._answers = list(asked), dict(answers or {})
    return made


def pass_time(one: Any, until: float) -> None:
    """Tick by tick, as the thread does."""
    while one._ticked < until:
        one.check(one._ticked + 1)


def test_node_without_contact_ends_its_jobs_once_per_lease() -> None:
    jobs = Jobs()
    one = lease(jobs, ("10.0.0.3", "10.0.0.4"))
    pass_time(one, 1019)
    assert jobs.ended == 0
    pass_time(one, 1040)
    assert jobs.ended == 1
    assert list(one.ended) == [(7, "no contact for 20 s")]
    one.last_contact = 1040.0
    pass_time(one, 1061)
    assert jobs.ended == 2, "and again after the next time"


def test_node_keeps_its_jobs_while_other_nodes_also_miss_the_head() -> None:
    jobs = Jobs()
    others = ("10.0.0.3", "10.0.0.4")
    one = lease(jobs, others)
    for now in range(1001, 1100):
        one._answers = dict.fromkeys(others, (float(now), 1000.0))
        one.check(float(now))
    assert jobs.ended == 0, "others have not heard it either"
    for now in range(1100, 1103):
        one._answers = dict.fromkeys(others, (float(now), now - 1.0))
        one.check(float(now))
    assert list(one.ended) == [(7, "other nodes reach the head and this node does not")]


def test_lease_asks_the_same_known_nodes_until_contact_returns() -> None:
    """Most slots of a cluster that scales have no machine: who asked those would take himself for cut off."""

    class Ears:
        def __init__(self) -> None:
            self.to: set[str] = set()

        def sendto(self, _: bytes, to: tuple[str, int]) -> None:
            self.to.add(to[0])

    class Seals:
        def seal(self, data: bytes) -> bytes:
            return data

    one, ears = lease(Jobs(), ()), Ears()
    one._others = lambda: [f"10.0.1.{number}" for number in range(1, 100)]
    one.known = ["10.0.1.7", "10.0.1.8"]
    one._query_other_nodes(ears, Seals())
    assert ears.to == {"10.0.1.7", "10.0.1.8"}
    one.known = ["10.0.1.9"]
    one._query_other_nodes(ears, Seals())
    assert "10.0.1.9" not in ears.to, "the same ones, as long as it asks"
    one.last_contact = 1010.0
    one._query_other_nodes(ears, Seals())
    assert "10.0.1.9" in ears.to


def test_returning_head_that_answers_other_nodes_first_ends_no_job() -> None:
    jobs = Jobs()
    others = ("10.0.0.3", "10.0.0.4")
    one = lease(jobs, others)
    for now in range(1001, 1060):
        one._answers = dict.fromkeys(others, (float(now), 1000.0))
        one.check(float(now))
    one._answers = dict.fromkeys(others, (1060.0, 1059.9))  # it has answered these, and this node not yet
    one.check(1060.0)
    one.check(1061.0)
    one.last_contact = 1061.5
    one.check(1062.0)
    one.last_contact = 1062.0
    pass_time(one, 1081)
    assert jobs.ended == 0
    one._answers = dict.fromkeys(others, (1082.0, 1081.9))
    one.check(1082.0)
    assert jobs.ended == 0, "what was testified before counts no more"


def test_answers_of_other_nodes_during_the_lease_count_at_its_end() -> None:
    jobs = Jobs()
    one = lease(jobs, ("10.0.0.3",))
    for now in range(1001, 1021):
        one._answers = {"10.0.0.3": (float(now), now - 0.5)}
        one.check(float(now))
    assert list(one.ended) == [(7, "other nodes reach the head and this node does not")]


def test_isolated_minority_ends_its_jobs_but_a_single_node_does_not() -> None:
    jobs = Jobs()
    others = tuple(f"10.0.0.{n}" for n in range(3, 11))
    one = lease(jobs, others)
    for now in range(1001, 1021):
        one._answers = {others[0]: (float(now), 1000.0)}  # its neighbour on the same switch
        one.check(float(now))
    assert jobs.ended == 1
    alone = Jobs()
    pass_time(lease(alone), 1100)
    assert alone.ended == 0


def suspended(jobs: Jobs, **options: Any) -> Any:
    """Returns the lease of a machine that stood still for 30 s and has just noticed it."""
    from agent.lost_contact.node_lease import Lease

    one = Lease(lambda: [], jobs, **options)
    one.last_contact = one._ticked = 1000.0
    one.check(1030.0)
    return one


def test_suspended_machine_ends_its_jobs_when_the_head_ran_meanwhile() -> None:
    jobs = Jobs()
    one = suspended(jobs)
    assert (jobs.ended, one.question) == (0, 1)
    one.take_answer("10.0.0.1", 1, 27.5)
    one.last_contact = 1030.1  # the same answer renews the lease
    one.check(1030.25)
    assert list(one.ended) == [(7, "this machine was frozen")]
    assert one.question == 0


def test_machine_keeps_its_jobs_when_the_head_stood_still_as_well() -> None:
    jobs = Jobs()
    one = suspended(jobs)
    one.check(1030.25)
    one.take_answer("10.0.0.1", 1, 1.2)
    one.last_contact = 1030.3
    pass_time(one, 1040)
    assert jobs.ended == 0
    one._ticked = one.last_contact = 1040.0
    one.check(1075.0)  # it stands still again, alone: the answer to the first question does not count
    one.take_answer("10.0.0.1", 1, 1.2)
    one.check(1076.0)
    assert list(one.ended) == [(7, "this machine was frozen")]


def test_suspended_machine_ends_its_jobs_without_an_answer_within_a_second() -> None:
    jobs = Jobs()
    one = suspended(jobs)
    one.take_answer("10.0.0.1", 1, None)  # the head's agent has started since
    one.check(1030.75)
    assert jobs.ended == 0
    one.check(1031.0)
    assert list(one.ended) == [(7, "this machine was frozen")]


def test_machine_keeps_its_jobs_when_both_heads_stood_still_as_well() -> None:
    jobs = Jobs()
    one = suspended(jobs, heads=2)
    one.take_answer("10.0.0.1", 1, 1.2)
    one.check(1030.25)
    assert (jobs.ended, one.question) == (0, 1), "the other head may have taken over"
    one.take_answer("10.0.0.2", 1, 0.4)
    one.last_contact = 1030.3
    pass_time(one, 1040)
    assert (jobs.ended, one.question) == (0, 0)


def test_suspended_machine_ends_its_jobs_when_one_of_two_heads_ran_meanwhile() -> None:
    for standby in ("10.0.0.1", "10.0.0.2"):
        one = suspended(Jobs(), heads=2)
        for head in ("10.0.0.1", "10.0.0.2"):
            one.take_answer(head, 1, 29.0 if head == standby else 0.5)
        one.last_contact = 1030.1
        one.check(1030.25)
        assert list(one.ended) == [(7, "this machine was frozen")], standby


def test_suspended_machine_ends_its_jobs_when_one_of_two_heads_does_not_answer() -> None:
    jobs = Jobs()
    one = suspended(jobs, heads=2)
    for _ in range(2):
        one.take_answer("10.0.0.1", 1, 0.5)  # the other one may be cut off, lead, and have set the node down
    one.last_contact = 1030.9
    one.check(1030.75)
    assert jobs.ended == 0
    one.check(1031.0)
    assert list(one.ended) == [(7, "this machine was frozen")]


def test_other_node_addresses_lists_every_node_but_the_head(tmp_path: Path) -> None:
    from agent.lost_contact.node_lease import other_node_addresses

    hosts = tmp_path / "hosts"
    hosts.write_text(
        "# x\n127.0.0.1 localhost\n::1 localhost\n10.0.0.1 lab-head head\n10.0.0.3 lab-1-1\n10.0.0.4 lab-1-2\n"
    )
    assert other_node_addresses(["10.0.0.1"], str(hosts)) == ["10.0.0.3", "10.0.0.4"]
    assert other_node_addresses(["10.0.0.1"], str(tmp_path / "none")) == []


def test_ended_job_is_reported_until_the_head_acknowledges_it() -> None:
    from agent.checks.xid_errors import GpuErrors

    faults = GpuErrors("lab-1-2", "boot", gpus=dict)
    faults.record_ended_job("lease", 7, "no contact for 20 s", 2000.0)
    (told,) = faults.pending_message()["faults"]
    assert (told["job"], told["kind"], told["action"]) == (7, "lease", "restart_job")
    faults.acknowledge([told["id"]])
    assert faults.pending_message()["faults"] == []


class PlainMunge:
    """Stands in for MUNGE: seals nothing."""

    def seal(self, data: bytes) -> bytes:
        return data

    def open(self, sealed: bytes) -> tuple[bytes, int]:
        return sealed, 0


def test_lease_goes_on_when_its_port_is_free_again(monkeypatch: pytest.MonkeyPatch) -> None:
    from agent.lost_contact import node_lease

    said: list[str] = []
    blocker = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    blocker.bind(("", 0))
    monkeypatch.setattr(node_lease, "PORT", blocker.getsockname()[1])
    monkeypatch.setattr(node_lease, "log", said.append)
    one = lease(Jobs())
    one.last_contact = one._ticked = time.monotonic()
    one.tick(PlainMunge())
    assert len(said) == 1, "a process of a user has the port"
    blocker.close()
    one.tick(PlainMunge())
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other:
        other.settimeout(60)
        other.sendto(b'{"hears": null}', ("127.0.0.1", node_lease.PORT))
        one.tick(PlainMunge())
        assert json.loads(other.recv(1000))["hears"] < 60
    one._ears.close()


def test_unreadable_leader_file_does_not_end_the_monitor(tmp_path: Path) -> None:
    from agent.failover import leader

    (tmp_path / "ours").write_bytes(b"\xff\xfe\x00")
    assert leader.LeaderMonitor(leader.LeaderFile(True, str(tmp_path)), str(tmp_path / "ours")).check() is False


def test_answer_without_leads_field_renews_the_lease() -> None:
    from agent.roles.node import renews_lease

    assert renews_lease({"now": 1.0, "got": []}), "the agent there is older than this one"
    assert not renews_lease({})


def test_other_node_addresses_excludes_all_heads(tmp_path: Path) -> None:
    from agent.config import load_config
    from agent.lost_contact.node_lease import other_node_addresses

    place = tmp_path / "agent.json"
    place.write_text(json.dumps({"head": "10.0.0.1", "other_heads": ["10.0.0.2"]}))
    hosts = tmp_path / "hosts"
    hosts.write_text("10.0.0.1 lab-head\n10.0.0.2 lab-head2\n10.0.0.3 lab-1-1\n")
    assert other_node_addresses(load_config(str(place)).heads, str(hosts)) == ["10.0.0.3"]
