"""How many replicas a service is to have, and why: from the requests that run or wait, the times of answers, and the hour.
Pure."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass

from headway.domain.serving.service_figures import ServiceFigures, percentile_ms
from headway.jobs.pipelines.cron import parse_cron
from headway.jobs.serving.service_file import Replicas, ScheduledReplicas
from headway.store.db.service_rows import ReplicaRow

FEWEST_ANSWERS = 20  # whose times count
SETTLED_S = (
    120.0  # that a replica has been healthy before times of answers ask for another: they are of up to two minutes
)
LOW_SHARE = 0.5  # of the target: below it, fewer replicas may suffice


@dataclass(frozen=True)
class Limits:
    """The smallest and largest number of replicas now. `why`: the window that sets them; "" for those of the file."""

    min: int
    max: int
    why: str = ""


@dataclass(frozen=True)
class WantedReplicas:
    """How many replicas are to run, and the reason if the number has changed. `low_since`: since when fewer would suffice."""

    number: int
    why: str
    low_since: float | None


def limits_now(replicas: Replicas, least: int, most: int, now: float) -> Limits:
    """Returns the limits at this time (Unix seconds): those of the last window of the schedule that is open. `least` and `most`
    are those that hold otherwise; if a person has changed them, the schedule is ignored."""
    found = Limits(least, most)
    if (least, most) != (replicas.min, replicas.max):
        return found
    for window in replicas.schedule:
        if is_open(window, now):
            low = replicas.min if window.min is None else window.min
            high = max(low, replicas.max if window.max is None else window.max)
            found = Limits(low, high, f"the window {window.cron} of {window.hours:g} hours is open")
    return found


def is_open(window: ScheduledReplicas, now: float) -> bool:
    """Returns whether a window is open: it began within its hours before now."""
    return _is_open(window.cron, window.hours, int(now // 60))


@functools.lru_cache(maxsize=4096)
def _is_open(cron: str, hours: float, minute: int) -> bool:
    return parse_cron(cron).next_after(60 * minute - hours * 3600) <= 60 * minute


def has_settled(replicas: Sequence[ReplicaRow], now: float) -> bool:
    """Returns whether the times of the last minute are those of the present number of replicas: none starts or is sick, and all
    have been healthy for a while."""
    active = [one for one in replicas if one.ended_at is None]
    return all(one.state == "serving" and now - one.since >= SETTLED_S for one in active)


def wanted_replicas(
    replicas: Replicas,
    limits: Limits,
    now_wanted: int,
    active: int,
    low_since: float | None,
    now: float,
    *,
    figures: ServiceFigures | None = None,
    settled: bool = False,
) -> WantedReplicas:
    """Returns how many replicas are to run. `active`: requests that run or wait; `figures`: of the last minute, used if the file
    has `p95_ms` and the number is `settled`. More start at once; fewer follow when for `idle_s` fewer would have sufficed."""
    current = min(max(now_wanted, limits.min), limits.max)
    of_requests = math.ceil(active / replicas.requests)
    of_times, times = _by_times(replicas, current, figures, settled)
    needed = min(max(of_requests, of_times, limits.min), limits.max)
    if needed > now_wanted:
        if min(of_requests, limits.max) >= needed:
            why = f"{active} requests run or wait, {replicas.requests} for each replica"
        elif min(of_times, limits.max) >= needed:
            why = times
        else:
            why = limits.why or f"the smallest number is {limits.min}"
        return WantedReplicas(needed, why, None)
    if current < now_wanted:
        return WantedReplicas(current, limits.why or f"the largest number is {limits.max}", None)
    if needed >= current:
        return WantedReplicas(current, "", None)
    since = low_since if low_since is not None else now
    if now - since < replicas.idle_s:
        return WantedReplicas(current, "", since)
    return WantedReplicas(needed, f"fewer have sufficed for {replicas.idle_s} s", None)


def _by_times(replicas: Replicas, current: int, figures: ServiceFigures | None, settled: bool) -> tuple[int, str]:
    """Returns the number that the times of answers ask for, with the reason: one more while they are above the target, one fewer
    when they are far below it."""
    if replicas.p95_ms is None or current == 0:
        return 0, ""
    p95 = percentile_ms(figures.total, 0.95) if figures is not None else None
    if figures is None or p95 is None or sum(figures.total.values()) < FEWEST_ANSWERS:
        return 0, ""
    if p95 > replicas.p95_ms:
        if not settled:
            return current, ""
        return current + 1, f"95 % of the answers took up to {p95:,.0f} ms, the target is {replicas.p95_ms:,} ms"
    return (current - 1 if p95 < LOW_SHARE * replicas.p95_ms else current), ""


def spare_replicas(replicas: Sequence[ReplicaRow], wanted: int, standby: int, version: int) -> frozenset[int]:
    """Returns the numbers of the healthy replicas of this version that get no requests, because `wanted` others do."""
    if not standby:
        return frozenset()
    healthy = sorted(one.number for one in replicas if one.state == "serving" and one.version == version)
    return frozenset(healthy[wanted:])
