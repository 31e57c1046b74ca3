"""View models of the filter buttons (chips) above the queue's table. Pure.

A button for a new kind of filter begins in `services/queue/query.py`."""

from __future__ import annotations

from dataclasses import dataclass

from headway.domain.slurm.job_states import JOB_KINDS
from headway.services.queue.search import QueuePage
from headway.web.views.queue.queue_address import QueueAddress

_TITLES = {"running": "Running", "waiting": "Pending", "ended": "Ended"}
_USUAL = ("running", "waiting")  # kinds that are shown while no button is chosen


@dataclass(frozen=True, slots=True)
class Chip:
    """A filter button."""

    title: str
    count: int | None
    href: str
    on: bool


def chips(listed: QueuePage, query: QueueAddress, user: str) -> tuple[Chip, ...]:
    """Returns the filter buttons: one per kind of job, and "Mine" for a person with a user on clusters."""
    found = []
    for kind in JOB_KINDS:
        on = kind in query.show
        others = tuple(other_kind for other_kind in JOB_KINDS if (other_kind in query.show) != (other_kind == kind))
        count = listed.counts[kind] if kind != "ended" or on else None
        found.append(Chip(_TITLES[kind], count, query.to(show=others or _USUAL), on))
    if user:
        mine = query.user == user
        found.append(Chip("Mine", None, query.to(user="" if mine else user), mine))
    return tuple(found)
