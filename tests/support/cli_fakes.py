"""A fake server that knows only the calls registered by a test, and a way to run a command line against it."""

from __future__ import annotations

import inspect
import io
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from headway.cli import common
from headway.cli.main import main
from headway.schemas.clusters import AccessOut, ChangeOut, ClusterOut
from headway.schemas.jobs import JobOut
from headway.schemas.nodes.incidents import IncidentOut, IncidentStepOut, RequeuedJobOut, TimesOut
from headway.schemas.nodes.nodes import GpuOut, NodeOut
from headway.schemas.operations import EventOut, OperationOut
from headway.sdk.client import PARTS, Client, part_class
from tests.support.clusters import builders

HOST_KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAEC"


def _client_calls() -> frozenset[str]:
    """Returns the names of all calls of the client: "me", "jobs.list", ..."""
    parts = {name: part_class(name) for name in PARTS}
    own = {name for name, member in vars(Client).items() if inspect.isfunction(member)}
    return frozenset(own | {f"{name}.{call}" for name, kind in parts.items() for call in dir(kind)})


CLIENT_CALLS = _client_calls()


class FakeApi:
    """Stands in for `headway.sdk.client.Client`. A call that was not registered fails the test; every call is
    recorded."""

    url = "http://127.0.0.1:1"

    def __init__(self) -> None:
        self.calls: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = []
        self._answers: dict[str, Callable[..., Any]] = {}

    def on(self, name: str, answer: Any) -> FakeApi:
        """Registers a call such as "jobs.list"; `answer` is its result, an exception to raise, or a function of its
        arguments."""
        assert name in CLIENT_CALLS, f"{name} is no call of the client"
        if callable(answer) and not isinstance(answer, type):
            self._answers[name] = answer
        elif isinstance(answer, BaseException):
            self._answers[name] = lambda *_, **__: _raise(answer)
        else:
            self._answers[name] = lambda *_, **__: answer
        return self

    def __getattr__(self, name: str) -> Any:
        if name in CLIENT_CALLS:
            return self.registered(name)
        return _FakePart(self, name)

    def registered(self, name: str) -> Callable[..., Any]:
        """Returns the registered call, which records its arguments."""
        if name not in self._answers:
            raise AssertionError(f"unregistered call: {name}")

        def call(*args: Any, **kwargs: Any) -> Any:
            self.calls.append((name, args, kwargs))
            return self._answers[name](*args, **kwargs)

        return call

    def named(self, name: str) -> list[tuple[tuple[Any, ...], dict[str, Any]]]:
        """Returns the arguments of all recorded calls of this name."""
        return [(args, kwargs) for called, args, kwargs in self.calls if called == name]


class _FakePart:
    """Stands in for a part of the client such as `api.jobs`, whose calls are registered as "jobs.NAME"."""

    def __init__(self, api: FakeApi, name: str) -> None:
        self._api = api
        self._name = name

    def __getattr__(self, call: str) -> Any:
        return self._api.registered(f"{self._name}.{call}")


def _raise(error: BaseException) -> None:
    raise error


@dataclass(frozen=True)
class Ended:
    """The result of a command line."""

    code: int
    out: str
    err: str
    raw: bytes = b""


class Cli:
    """Runs `headway WORDS...` in this process against the fake server."""

    def __init__(self, api: FakeApi, monkeypatch: pytest.MonkeyPatch) -> None:
        self.api = api
        self._patch = monkeypatch

    def __call__(self, *words: str, stdin: bytes | None = None, terminal: bool = False) -> Ended:
        out, err = _Stream(terminal), _Stream(terminal)
        given = _Stream(terminal, stdin or b"")
        with self._patch.context() as patch:
            patch.setattr("sys.stdout", out)
            patch.setattr("sys.stderr", err)
            patch.setattr("sys.stdin", given)
            code = main(list(words))
        return Ended(code, out.text(), err.text(), out.bytes())


@pytest.fixture
def cli(monkeypatch: pytest.MonkeyPatch) -> Cli:
    """Returns a Cli: `cli("ls")` runs the command against `cli.api`."""
    api = FakeApi()
    monkeypatch.setattr(common, "connect", lambda: api)
    monkeypatch.delenv("HEADWAY_URL", raising=False)
    return Cli(api, monkeypatch)


class _Stream(io.TextIOWrapper):
    def __init__(self, terminal: bool, content: bytes = b"") -> None:
        super().__init__(io.BytesIO(content), encoding="utf-8", write_through=True)
        self._terminal = terminal

    def isatty(self) -> bool:
        return self._terminal

    def bytes(self) -> bytes:
        self.flush()
        buffer = self.buffer
        assert isinstance(buffer, io.BytesIO)
        return buffer.getvalue()

    def text(self) -> str:
        return self.bytes().decode(errors="replace")


# --- answers


def cluster(name: str = "lab", **others: Any) -> ClusterOut:
    fields = {"gpus_used": 12, "jobs_running": 1, "jobs_pending": 2, "price_usd_per_hour": "156.00", "as_of": None}
    return builders.cluster_out(name=name, **{**fields, **others})


def node(name: str = "lab-1-1", used: int = 0, **others: Any) -> NodeOut:
    fields: dict[str, Any] = {
        "name": name, "role": "node", "leaf": "leaf1", "machine": "running", "states": ["MIXED"] if used else ["IDLE"],
        "gpus": [GpuOut(index=i, job_id=12 if i < used else None) for i in range(8)], "cpus": 128, "usable": True,
        "memory_mib": 2048000, "partitions": ["train"],
    }  # fmt: skip
    return NodeOut(**{**fields, **others})


def job(number: int = 12, **others: Any) -> JobOut:
    fields: dict[str, Any] = {
        "id": number, "name": "train_ddp", "user": "alice", "account": "vision", "partition": "train",
        "state": "RUNNING", "nodes": ["lab-1-1", "lab-1-2"], "nodelist": "lab-1-[1-2]", "node_count": 2, "gpus": 16,
        "elapsed_s": 247, "time_limit_s": 86400,
    }  # fmt: skip
    return JobOut(**{**fields, **others})


def incident(number: int = 3, state: str = "out of service") -> IncidentOut:
    steps = [
        IncidentStepOut(at=1001.5, state="seen", actor="headway", text="XID 79: fell off", evidence={"at": 1000.0}),
        IncidentStepOut(at=1002.0, state="draining", actor="headway", text="drained: incident 3"),
    ]
    return IncidentOut(
        number=number, cluster="lab", node="lab-1-2", what="XID 79: fell off", action="rma", state=state,
        opened_at=1001.5, fault_at=1000.0, score=3, steps=steps,
        times=TimesOut(detect_s=1.5, drain_s=2.0, requeue_s=2.5),
        jobs=[RequeuedJobOut(job=7, requeued_at=1002.5, running_at=1009.0)],
    )  # fmt: skip


def ssh_access(name: str = "lab", **others: object) -> AccessOut:
    fields = {
        "cluster": name, "user": "alice", "head": f"{name}-head", "address": "10.87.3.2",
        "host_keys": [f"{name}-head {HOST_KEY}", f"10.87.3.2 {HOST_KEY}", f"{name}-1-1 {HOST_KEY}"],
        "machines": {f"{name}-head": "10.87.3.2", f"{name}-1-1": "10.87.3.11", f"{name}-2-1": "10.87.3.12"},
    } | others  # fmt: skip
    return AccessOut.model_validate(fields)


def change(kind: str, where: str, what: str, disturbs: str = "nothing", **others: Any) -> ChangeOut:
    return ChangeOut(kind=kind, where=where, what=what, why=others.pop("why", "it is new"), disturbs=disturbs, **others)


def operation(state: str = "queued", **others: Any) -> OperationOut:
    fields: dict[str, Any] = {
        "id": "op1", "cluster": "lab", "kind": "apply", "state": state, "person": "alice", "created_at": 1000.0,
    }  # fmt: skip
    return OperationOut(**{**fields, **others})


def event(seq: int, step: str, text: str, at: float = 1001.0, **others: Any) -> EventOut:
    return EventOut(seq=seq, at=at, step=step, text=text, **others)
