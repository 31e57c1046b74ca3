"""Nodes fetch the secrets of a job from the heads: sealed requests, sealed answers, files that only the job can read."""

from __future__ import annotations

import contextlib
import json
import os
import pwd
import socket
import stat
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from agent.config import Config
from agent.jobs import secret_files, secret_server
from agent.jobs.secret_files import NoSecrets, ask_head, find_secrets, write_secret_files
from agent.jobs.secret_server import (
    MOST_DELIVERIES,
    SAME_START_S,
    Deliveries,
    SecretServer,
    choose_secrets,
    read_until_closed,
)


@pytest.fixture(autouse=True)
def _patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine may answer later."""
    for module in (secret_files, secret_server):
        monkeypatch.setattr(module, "ANSWER_S", 60.0)


def _me() -> str:
    return pwd.getpwuid(os.getuid()).pw_name


CLUSTER_SECRETS = {
    "revision": 5,
    "users": {"alice": {"wandb": "alices-key"}, "bob": {"wandb": "bobs-key"}},
    "teams": {"vision": {"hf": "team-token", "wandb": "team-key"}},
    "members": {"vision": ["alice", _me()]},
}
JOB = {
    "SLURM_JOB_ID": "7",
    "SLURM_JOB_UID": str(os.getuid()),
    "SLURM_JOB_GID": str(os.getgid()),
    "SLURM_JOB_ACCOUNT": "vision",
    "SPANK_HEADWAY_SECRETS": "wandb,hf",
}


class Seals:
    """MUNGE of one machine: a message opens once, and only a root process opens one for root."""

    def __init__(self, uid: int = 0) -> None:
        self.uid = uid

    def seal(self, data: bytes) -> bytes:
        return f"{self.uid} all ".encode() + data

    def seal_for_root(self, data: bytes) -> bytes:
        return f"{self.uid} root ".encode() + data

    def open(self, sealed: bytes) -> tuple[bytes, int]:
        uid, readers, data = sealed.split(b" ", 2)
        if readers == b"root" and self.uid:
            raise OSError("MUNGE: Unauthorized")
        return data, int(uid)


def answering(**answers: Any) -> secret_files.Ask:
    return lambda head, _: answers[head]


def test_job_gets_own_secrets_before_those_of_its_team() -> None:
    found = choose_secrets(
        CLUSTER_SECRETS, {"uid": 1, "account": "vision", "names": ["wandb", "hf", "x"]}, lambda _: "alice"
    )
    assert found["values"] == {"wandb": "alices-key", "hf": "team-token"}
    assert (found["missing"], found["user"], found["revision"]) == (["x"], "alice", 5)


@pytest.mark.parametrize(("user", "account"), [("bob", "speech"), ("carol", ""), ("uid 4", "visio"), ("bob", "vision")])
def test_job_gets_no_secret_of_other_users_and_teams(user: str, account: str) -> None:
    found = choose_secrets(CLUSTER_SECRETS, {"uid": 1, "account": account, "names": ["hf"]}, lambda _: user)
    assert (found["values"], found["missing"]) == ({}, ["hf"])


@pytest.fixture
def served(tmp_path: Path) -> SecretServer:
    file = tmp_path / "secrets.json"
    file.write_text(json.dumps({**CLUSTER_SECRETS, "users": {_me(): {"wandb": "my-key"}}}))
    server = SecretServer("127.0.0.1", 0, Seals(), str(file), str(tmp_path / "deliveries"))
    server.start()
    return server


def test_files_are_readable_by_the_job_only(
    tmp_path: Path, served: SecretServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in JOB.items():
        monkeypatch.setenv(name, value)
    folder = tmp_path / "job"
    folder.mkdir(mode=0o700)
    write_secret_files(str(folder), str(tmp_path / "failure"), Config(head="127.0.0.1"), Seals(), served.port)
    assert {file.name: file.read_text() for file in folder.iterdir()} == {"wandb": "my-key", "hf": "team-token"}
    assert {stat.S_IMODE(file.stat().st_mode) for file in folder.iterdir()} == {0o400}
    assert stat.S_IMODE(folder.stat().st_mode) == 0o500
    assert not (tmp_path / "failure").exists()


def test_missing_secret_leaves_a_sentence_and_no_file(
    tmp_path: Path, served: SecretServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {**JOB, "SPANK_HEADWAY_SECRETS": "wandb,gone"}.items():
        monkeypatch.setenv(name, value)
    folder, failure = tmp_path / "job", tmp_path / "failure"
    folder.mkdir()
    write_secret_files(str(folder), str(failure), Config(head="127.0.0.1"), Seals(), served.port)
    assert not list(folder.iterdir())
    assert "there is no secret gone" in failure.read_text()
    assert "my-key" not in failure.read_text()


def test_request_that_root_did_not_seal_gets_no_answer(served: SecretServer) -> None:
    request = {"job": 7, "node": "n1", "uid": os.getuid(), "account": "vision", "names": ["wandb"], "number": "n"}
    assert ask_head("127.0.0.1", served.port, request, Seals(uid=1000)) is None


def test_only_root_can_open_the_answer(served: SecretServer) -> None:
    request = {"job": 7, "node": "n1", "uid": os.getuid(), "account": "", "names": ["wandb"]}
    sealed = Seals().seal(json.dumps({"secrets": request}).encode())
    answer = served.answer(sealed, "10.0.0.1")
    assert answer is not None
    with pytest.raises(OSError, match="Unauthorized"):
        Seals(uid=1000).open(answer)


def test_answer_to_another_request_is_not_accepted(served: SecretServer, monkeypatch: pytest.MonkeyPatch) -> None:
    before = served.answer
    monkeypatch.setattr(
        served, "answer", lambda data, sender: (before(data, sender) or b"").replace(b'"number": "n"', b'"number": "m"')
    )
    request = {"job": 7, "node": "n1", "uid": os.getuid(), "account": "", "names": ["wandb"], "number": "n"}
    assert ask_head("127.0.0.1", served.port, request, Seals()) is None


@pytest.mark.parametrize("sealed", [b"0 all {}", b"0 all []", b'0 all {"secrets": {"uid": "x"}}', b"0 all \xff"])
def test_request_without_a_valid_format_gets_no_answer(served: SecretServer, sealed: bytes) -> None:
    assert served.answer(sealed, "10.0.0.1") is None


def test_the_newest_of_several_heads_counts() -> None:
    old = {"revision": 4, "user": "alice", "values": {"wandb": "removed", "hf": "x"}, "missing": []}
    new = {"revision": 5, "user": "alice", "values": {"hf": "x"}, "missing": ["wandb"]}
    for heads in (("a", "b"), ("b", "a")):
        with pytest.raises(NoSecrets, match="there is no secret wandb: alice has none"):
            find_secrets(JOB, heads, answering(a=old, b=new))


def test_a_head_that_is_away_does_not_stop_the_job() -> None:
    there = {"revision": 5, "user": "alice", "values": {"wandb": "k", "hf": "x"}, "missing": []}
    assert find_secrets(JOB, ("a", "b"), answering(a=None, b=there)) == {"wandb": "k", "hf": "x"}


class SimulatedTime:
    """A clock that only sleep moves on."""

    now = 0.0

    def clock(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def test_job_waits_for_a_head_and_then_fails_with_a_sentence() -> None:
    simulated = SimulatedTime()
    answers = [None, {"revision": 0}, {"revision": 5, "user": "a", "values": {"wandb": "k", "hf": "x"}, "missing": []}]
    found = find_secrets(JOB, ("a",), lambda *_: answers.pop(0), simulated.clock, simulated.sleep)
    assert found == {"wandb": "k", "hf": "x"}
    with pytest.raises(NoSecrets, match="no head of the cluster has answered within 30 s: tell an administrator"):
        find_secrets(JOB, ("a",), lambda *_: None, simulated.clock, simulated.sleep)


def test_job_on_a_cluster_where_no_secret_was_ever_set_fails_with_a_sentence_that_says_so() -> None:
    """A new head has none for some seconds too, so the job waits."""
    simulated = SimulatedTime()
    with pytest.raises(NoSecrets, match=r"no secrets have reached the cluster's heads: none was ever set, or"):
        find_secrets(JOB, ("a", "b"), answering(a={"revision": 0}, b=None), simulated.clock, simulated.sleep)
    assert simulated.now == 30


@pytest.mark.parametrize("names", ["../x", "a b", "a\nb", "1", ",".join(f"n{n}" for n in range(17))])
def test_names_that_the_user_may_have_forged_are_refused(names: str) -> None:
    with pytest.raises(NoSecrets, match=r": (give|request)"):
        find_secrets({**JOB, "SPANK_HEADWAY_SECRETS": names}, ("a",), answering())


def test_reading_ends_at_the_deadline_although_bytes_keep_coming() -> None:
    """A time limit for each piece bounds nothing: a sender of one byte every few seconds holds the thread for ever."""
    reader, sender = socket.socketpair()

    def send() -> None:
        with contextlib.suppress(OSError):  # the reader has gone
            while True:
                sender.send(b"x")

    thread = threading.Thread(target=send)
    thread.start()
    with pytest.raises(TimeoutError):
        read_until_closed(reader, 1 << 40, time.monotonic() + 0.05)
    reader.close()
    thread.join()
    sender.close()


def test_message_that_is_too_long_is_not_read() -> None:
    reader, sender = socket.socketpair()
    with reader, sender:
        sender.sendall(b"12345")
        sender.shutdown(socket.SHUT_WR)
        with pytest.raises(OSError, match="more than 4 bytes"):
            read_until_closed(reader, 4, time.monotonic() + 10)


def test_server_goes_on_after_it_could_not_accept_or_start_a_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "secrets.json"
    file.write_text(json.dumps({**CLUSTER_SECRETS, "users": {_me(): {"wandb": "my-key"}}}))
    server = SecretServer("127.0.0.1", 0, Seals(), str(file), str(tmp_path / "deliveries"), pause_s=0.0)
    real_accept, real_start = socket.socket.accept, threading.Thread.start
    errors: list[Exception] = [RuntimeError("can't start new thread"), OSError(24, "Too many open files")]

    def accept(listening: socket.socket) -> Any:
        if errors and isinstance(errors[-1], OSError):
            raise errors.pop()
        return real_accept(listening)

    def start(thread: threading.Thread) -> None:
        if errors and isinstance(errors[-1], RuntimeError):
            raise errors.pop()
        real_start(thread)

    server.start()
    monkeypatch.setattr(socket.socket, "accept", accept)
    monkeypatch.setattr(threading.Thread, "start", start)
    request = {"job": 7, "node": "n1", "uid": os.getuid(), "account": "", "names": ["wandb"], "number": "n"}
    answers = [ask_head("127.0.0.1", server.port, request, Seals()) for _ in range(3)]
    assert errors == []
    assert answers[-1] is not None
    assert answers[-1]["values"] == {"wandb": "my-key"}


def test_each_start_of_a_job_is_recorded_once_for_all_its_nodes(tmp_path: Path) -> None:
    file = tmp_path / "deliveries"
    made = Deliveries(str(file))
    late = 10.0 + SAME_START_S
    requests = ((1.0, 7, "n1"), (2.0, 7, "n2"), (2.0, 8, "n3"), (3.0, 7, "n1"), (4.0, 7, "n2"), (late, 7, "n3"))
    for at, job, node in requests:
        made.record(job, "alice", ["wandb"], node, at)
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    assert [(row["job"], row["at"]) for row in rows] == [(7, 1.0), (8, 2.0), (7, 3.0), (7, late)]
    assert len({row["id"] for row in rows}) == 4
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_records_of_deliveries_have_a_bounded_size(tmp_path: Path) -> None:
    file = tmp_path / "deliveries"
    file.write_text("{}\n" * MOST_DELIVERIES)
    Deliveries(str(file)).record(7, "alice", ["wandb"], "n1", 1.0)
    assert len(file.read_text().splitlines()) == MOST_DELIVERIES // 2 + 1
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
