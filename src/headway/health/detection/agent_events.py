"""Events from the head's agent: one stream per cluster over its SSH connection."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from headway.domain.access.job_secret import SecretDelivery
from headway.domain.incident import FaultAction, Symptom
from headway.domain.machines.machine import Machine
from headway.render.machine_paths import agent_argv

# The agents' word for it and the kind of stored rows, which a newer server must still read.
OFFLINE_ACTION = "deed"
_MAX_TEXT = 500


@dataclass(frozen=True)
class Heartbeats:
    """The heartbeats of one second. `alive`: number of nodes that sent one; `silent_s`: seconds since the last heartbeat
    of each other node; `relay_away_s`: seconds for which the head's agent itself has been away, during which node
    states are unknown."""

    alive: int = 0
    silent_s: Mapping[str, float] = field(default_factory=dict)
    relay_away_s: float | None = None


@dataclass(frozen=True)
class OfflineAction:
    """An action of the head's agent on a symptom while no server was connected. `id` is the symptom's id with a prefix."""

    id: str
    at: float
    node: str
    symptom_id: str
    requeued: tuple[int, ...] = ()
    not_requeueable: tuple[int, ...] = ()  # jobs that Slurm may not requeue

    @property
    def silent_since(self) -> float | None:
        """Returns the Unix time of the node's last heartbeat if the head's agent set the node DOWN because of its silence
        (node/agent/lost_contact/offline_responder.py). Returns None for other symptoms."""
        word, _, rest = self.symptom_id.partition(" ")
        at = rest.rpartition(" ")[2]
        return float(at) if word == "silent" and at.isdigit() else None


@dataclass(frozen=True)
class JobEvents:
    """Jobs that began or ended on a node, as reported by prolog and epilog. `certain` is False for jobs that are only
    named in slurmctld's log."""

    jobs: tuple[int, ...]
    certain: bool = True


@dataclass(frozen=True)
class PowerRequest:
    """Slurm requests that machines are created or deleted. The node states show which ones."""


AgentEvent = Symptom | Heartbeats | OfflineAction | JobEvents | PowerRequest | SecretDelivery


class StreamsOutput(Protocol):
    """The part of Connections that `stream_events` needs."""

    def stream(self, machine: Machine, argv: Sequence[str], *, timeout_s: float | None = None) -> AsyncIterator[bytes]:
        """Yields a command's standard output as it arrives, as Connections.stream does. Raises CommandFailed or
        Unreachable."""
        ...


async def stream_events(links: StreamsOutput, head: Machine) -> AsyncIterator[AgentEvent]:
    """Yields every stored symptom, then events as they arrive. Ends when the stream ends, and raises what `stream`
    raises."""
    rest = b""
    argv = agent_argv("watch")
    async with contextlib.aclosing(links.stream(head, argv)) as pieces:  # type: ignore[type-var]
        async for piece in pieces:
            *lines, rest = (rest + piece).split(b"\n")
            for line in lines:
                found = parse_event(line)
                if found is not None:
                    yield found


def parse_event(line: bytes) -> AgentEvent | None:
    """Returns the event of one line. Returns None for an unreadable line and for a check that is OK again."""
    try:
        message = json.loads(line)
        if "fault" in message:
            return _parse_symptom(message["fault"])
        if "check" in message:
            return _parse_check(message["check"])
        if OFFLINE_ACTION in message:
            return _parse_offline_action(message[OFFLINE_ACTION])
        if "power" in message:
            return PowerRequest()
        if "secrets" in message:
            return _parse_delivery(message["secrets"])
        if "turns" in message:
            return JobEvents(tuple(int(job) for job in message["turns"]))
        if "named" in message:
            return JobEvents(tuple(int(job) for job in message["named"]), certain=False)
        if "relay" in message:
            return Heartbeats(relay_away_s=float(message["relay"]))
        silent = {str(node): float(age) for node, age in message["silent"].items()}
        return Heartbeats(int(message["alive"]), silent)
    except (ValueError, TypeError, KeyError, AttributeError):
        return None


def _parse_symptom(message: dict[str, Any]) -> Symptom:
    gpu, job, action = message.get("gpu"), message.get("job"), str(message.get("action") or "")
    return Symptom(
        id=str(message["id"])[:128],
        at=float(message["at"]),
        node=str(message["node"]),
        code=int(message.get("code") or 0),
        gpu=None if gpu is None else int(gpu),
        text="".join(c for c in str(message.get("text", "")) if c.isprintable())[:_MAX_TEXT],
        job=None if job is None else int(job),
        kind=str(message.get("kind") or "xid")[:32],
        action=FaultAction(action) if action in {member.value for member in FaultAction} else None,
    )


_SUGGESTED = {
    "mount": FaultAction.MOUNT, "host_disk": FaultAction.HOST_DISK,
    "reset_gpu": FaultAction.RESET, "reboot": FaultAction.REBOOT, "drain": FaultAction.DRAIN, "replace": FaultAction.RMA,
}  # fmt: skip


def _parse_check(message: dict[str, Any]) -> Symptom | None:
    """Returns the symptom of a check of the node's agent, or None if the check is OK. A failed check (state "bad") gets
    the action that the agent suggests; a warning is only recorded."""
    state = str(message["state"])
    if state == "ok":
        return None
    suggested = _SUGGESTED.get(str(message.get("action") or ""), FaultAction.WATCH)
    words = f"{message['check']}: {message.get('reason') or state}"
    row = {**message, "kind": str(message["check"]), "text": words}
    # A full disk of the host is a warning, because it is no fault of the node.
    keeps_action = state == "bad" or suggested is FaultAction.HOST_DISK
    return replace(_parse_symptom(row), action=suggested if keeps_action else FaultAction.WATCH)


def _parse_delivery(message: dict[str, Any]) -> SecretDelivery:
    names = tuple(str(name)[:64] for name in message["names"])
    return SecretDelivery(
        str(message["id"])[:64], float(message["at"]), int(message["job"]), str(message["user"])[:64], names
    )


def _parse_offline_action(message: dict[str, Any]) -> OfflineAction:
    symptom = str(message["signal"])[:100]
    return OfflineAction(
        id=f"{OFFLINE_ACTION} {symptom}",
        at=float(message["at"]),
        node=str(message["node"]),
        symptom_id=symptom,
        requeued=tuple(int(job) for job in message.get("requeued", ())),
        not_requeueable=tuple(int(job) for job in message.get("stay", ())),
    )
