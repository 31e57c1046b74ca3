"""A systemd unit a machine runs, and which files it must have read."""

from __future__ import annotations

from dataclasses import dataclass

from headway.domain.changeset import Disturbs


@dataclass(frozen=True, slots=True)
class Unit:
    """`restart_on`: files whose change needs a restart. `reload_on`: files for which `reload` (an argv run on the
    machine) is enough. A unit whose files were written after it started, and not reloaded since, is stale."""

    name: str  # "slurmctld.service"
    restart_on: tuple[str, ...] = ()
    reload_on: tuple[str, ...] = ()
    reload: tuple[str, ...] = ()
    disturbs: Disturbs = Disturbs.NOTHING  # what a restart does
    stage: str = "base"  # "base" | "database" | "accounting" | "controller" | "outside" | "node": the order of bring-up
    may_fail: bool = False  # a start that does not work is told, and the machine works without it
