"""A plan as data: `headway plan` prints the same ChangeSet that an apply executes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from headway.domain.machines.survey import Difference

REBUILD = "machine.rebuild"  # kind of a Change: the machine is created again from another node image
RESTART = "machine.restart"  # kind of a Change: the machine runs but does not answer


class Disturbs(StrEnum):
    """The effect of a change on running work, mildest first."""

    NOTHING = "nothing"
    RECONFIGURE = "reconfigure"  # daemons read their files again; jobs are not affected
    CONTROLLER_RESTART = "controller restart, jobs keep running"
    NODE_RESTART = "slurmd restart, jobs keep running"
    NODE_DRAIN = "node drain"
    REBUILD = "rebuild"  # the node is drained, its machine is created again, tested and returned
    JOBS = "jobs end or are requeued"
    DATA = "data is deleted"


# Headway asks a person to confirm these changes before it carries them out.
ASK_FROM = (Disturbs.CONTROLLER_RESTART, Disturbs.NODE_DRAIN, Disturbs.REBUILD, Disturbs.JOBS, Disturbs.DATA)


@dataclass(frozen=True)
class Change:
    """One thing that must change. `kind` selects the code that carries it out ("machine.create", "file.write",
    "unit.restart", ...), `where` is the machine or "cluster", `what` the object, `data` holds details; never a
    secret."""

    kind: str
    where: str
    what: str
    why: str
    disturbs: Disturbs = Disturbs.NOTHING
    data: Mapping[str, object] = field(default_factory=dict)
    diff: tuple[str, ...] = ()  # changed lines of a non-secret file, "-old" / "+new"


@dataclass(frozen=True)
class ChangeSet:
    """Changes in the order in which they are carried out. `why_empty` explains an empty set; `notes` lists things that
    an apply does not change although a person might expect it."""

    cluster: str
    changes: tuple[Change, ...]
    why_empty: str = ""
    notes: tuple[str, ...] = ()
    differences: tuple[Difference, ...] = ()  # owned machines: where the plan and the machine disagree

    @property
    def empty(self) -> bool:
        """Returns whether nothing must change."""
        return not self.changes

    @property
    def disturbing_changes(self) -> tuple[Change, ...]:
        """Changes that disturb running work and need a person's confirmation."""
        return tuple(c for c in self.changes if c.disturbs in ASK_FROM)
