"""View model of an operation's page: its steps, from its events. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from headway.schemas.base import ErrorOut
from headway.schemas.operations import OperationOut
from headway.store import OperationEvent


@dataclass(frozen=True, slots=True)
class OperationStep:
    """One step of an operation ("machines", a node, "accounts"), with the text of its last event."""

    name: str
    text: str
    kind: str  # "running", "done" or "failed"
    warning: bool
    began: float
    seconds: float | None  # None while it runs


@dataclass(frozen=True)
class OperationView:
    """An operation with its steps."""

    operation: OperationOut
    steps: tuple[OperationStep, ...]

    @property
    def open(self) -> bool:
        """Returns whether the operation is queued or running."""
        return self.operation.state in ("queued", "running")

    @property
    def done(self) -> int:
        """Returns the number of finished steps."""
        return sum(step.kind == "done" for step in self.steps)

    @property
    def error(self) -> ErrorOut | None:
        """Returns the operation's error; None if it has not failed."""
        return self.operation.error

    @property
    def seconds(self) -> float | None:
        """Returns the operation's duration in seconds; None until it has ended."""
        began, ended = self.operation.started_at, self.operation.finished_at
        return None if began is None or ended is None else ended - began


@dataclass
class Steps:
    """The steps by name, in the order in which they began, after the events so far."""

    seq: int = 0  # sequence number of the last event
    _found: dict[str, OperationStep] = field(default_factory=dict)

    def add_events(self, events: Iterable[OperationEvent]) -> None:
        """Adds events."""
        for event in events:
            self.seq = event.seq
            before = self._found.get(event.step)
            again = before is None or before.kind != "running"
            began = event.at if again or before is None else before.began
            kind = "failed" if event.level == "error" else "done" if event.done else "running"
            took = event.seconds if event.seconds is not None else event.at - began
            self._found[event.step] = OperationStep(
                event.step,
                event.text,
                kind,
                event.level == "warning" or bool(not again and before and before.warning),
                began,
                None if kind == "running" else took,
            )

    def of(self, operation: OperationOut) -> OperationView:
        """Returns the operation's progress. A step that is open after the operation's end counts as failed."""
        steps: Iterable[OperationStep] = self._found.values()
        if operation.state in ("done", "failed"):
            steps = (replace(step, kind="failed") if step.kind == "running" else step for step in steps)
        return OperationView(operation, tuple(steps))
