"""View model of an operation's page: its steps, from its event lines. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from headway.schemas.base import ErrorOut
from headway.schemas.clusters import OperationOut
from headway.store import OperationEvent


@dataclass(frozen=True, slots=True)
class Step:
    """One thing an operation does ("machines", a node, "accounts"), as its last line says it."""

    name: str
    text: str
    kind: str  # "running", "done" or "failed"
    warning: bool
    began: float
    seconds: float | None  # None while it runs


@dataclass(frozen=True)
class Progress:
    operation: OperationOut
    steps: tuple[Step, ...]

    @property
    def open(self) -> bool:
        return self.operation.state in ("queued", "running")

    @property
    def done(self) -> int:
        return sum(step.kind == "done" for step in self.steps)

    @property
    def error(self) -> ErrorOut | None:
        return self.operation.error

    @property
    def seconds(self) -> float | None:
        began, ended = self.operation.started_at, self.operation.finished_at
        return None if began is None or ended is None else ended - began


@dataclass
class Steps:
    """One a name, in the order they began, after the lines told so far."""

    seq: int = 0  # of the last line
    _found: dict[str, Step] = field(default_factory=dict)

    def tell(self, events: Iterable[OperationEvent]) -> None:
        for event in events:
            self.seq = event.seq
            before = self._found.get(event.step)
            again = before is None or before.kind != "running"
            began = event.at if again or before is None else before.began
            kind = "failed" if event.level == "error" else "done" if event.done else "running"
            took = event.seconds if event.seconds is not None else event.at - began
            self._found[event.step] = Step(
                event.step,
                event.text,
                kind,
                event.level == "warning" or bool(not again and before and before.warning),
                began,
                None if kind == "running" else took,
            )

    def of(self, operation: OperationOut) -> Progress:
        """A step that is open when the operation has ended did not end well."""
        steps: Iterable[Step] = self._found.values()
        if operation.state in ("done", "failed"):
            steps = (replace(step, kind="failed") if step.kind == "running" else step for step in steps)
        return Progress(operation, tuple(steps))
