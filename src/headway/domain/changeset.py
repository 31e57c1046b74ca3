"""A change is data: `headway plan` prints the very ChangeSet that apply executes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from headway.domain.survey import Difference

REBUILD = "machine.rebuild"  # kind of a Change: the machine is created again from another node image


class Disturbs(StrEnum):
    """What a change does to work that is running, mildest first."""

    NOTHING = "nothing"
    RECONFIGURE = "reconfigure"  # daemons read their files again; no job notices
    CONTROLLER_RESTART = "controller restart, jobs keep running"
    NODE_RESTART = "slurmd restart, jobs keep running"
    NODE_DRAIN = "node drain"
    REBUILD = "rebuild"  # the node is drained, its machine made anew, tested and returned
    JOBS = "jobs end or are requeued"
    DATA = "data is deleted"


# Changes from here on are shown and asked about before they are carried out.
ASK_FROM = (Disturbs.CONTROLLER_RESTART, Disturbs.NODE_DRAIN, Disturbs.REBUILD, Disturbs.JOBS, Disturbs.DATA)


@dataclass(frozen=True)
class Change:
    """One thing that must change. `kind` says what carries it out ("machine.create", "file.write", "unit.restart", ...),
    `where` the machine or "cluster", `what` the object, `data` details; never a secret."""

    kind: str
    where: str
    what: str
    why: str
    disturbs: Disturbs = Disturbs.NOTHING
    data: Mapping[str, object] = field(default_factory=dict)
    diff: tuple[str, ...] = ()  # changed lines of a non-secret file, "-old" / "+new"


@dataclass(frozen=True)
class ChangeSet:
    """Changes in the order they are carried out. Empty ones say why in `why_empty`; `notes` are what no apply changes and
    somebody might expect it to."""

    cluster: str
    changes: tuple[Change, ...]
    why_empty: str = ""
    notes: tuple[str, ...] = ()
    differences: tuple[Difference, ...] = ()  # machines one owns: where plan and machine disagree

    @property
    def empty(self) -> bool:
        return not self.changes

    @property
    def asks(self) -> tuple[Change, ...]:
        """The changes that disturb something, for which a person is asked."""
        return tuple(c for c in self.changes if c.disturbs in ASK_FROM)
