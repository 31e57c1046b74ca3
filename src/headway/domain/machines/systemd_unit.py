"""A systemd unit of a machine, and the files that it must have read."""

from __future__ import annotations

from dataclasses import dataclass

from headway.domain.changeset import Disturbs


@dataclass(frozen=True, slots=True)
class Unit:
    """A unit that runs on a machine. `restart_on`: files whose change needs a restart. `reload_on`: files for which
    `reload` (an argv run on the machine) is enough. A unit is stale if its files were written after it started and
    it has not reloaded since."""

    name: str  # "slurmctld.service"
    restart_on: tuple[str, ...] = ()
    reload_on: tuple[str, ...] = ()
    reload: tuple[str, ...] = ()
    disturbs: Disturbs = Disturbs.NOTHING  # what a restart does
    stage: str = "base"  # of bring-up, one of machine_steps.STAGES
    may_fail: bool = False  # a failed start is reported, and the machine works without the unit
