"""Reservations of the cluster file: the changes that lead from those in Slurm to them. Pure.

The data of each Change are words for `headway.slurm.planned_reservations`. Reservations that people made by hand stay: only
those that an apply has made are removed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta

from headway.domain.changeset import Change
from headway.domain.slurm.hostlist import compress
from headway.domain.slurm.reservations import FLAGS, ObservedReservation, ObservedReservations, PlannedReservation

_NO_END = datetime.fromisoformat("2100-01-01")  # Slurm takes "infinite" for one year
_STEP = {"hourly": timedelta(hours=1), "weekly": timedelta(days=7)}  # the others: a day
_ISO = "%Y-%m-%dT%H:%M:%S"


def reservation_changes(
    planned: Iterable[PlannedReservation], all_nodes: Iterable[str], observed: ObservedReservations
) -> list[Change]:
    """Returns the changes, removals first, so that nodes are free for new ones. `all_nodes`: all slots of the cluster."""
    wanted = {one.name: one for one in planned if not is_over(one, observed.now)}
    there = {one.name: one for one in observed.listed}
    found = [
        _change("delete", name, "is no longer in the cluster file", [f"ReservationName={name}"])
        for name in sorted(observed.made & there.keys() - wanted.keys())
    ]
    again = [name for name, one in wanted.items() if name in there and _is_made_again(one, there[name], observed.now)]
    found += [
        _change("delete", name, "has begun, and starts later in the cluster file", [f"ReservationName={name}"])
        for name in again
    ]
    everything = frozenset(all_nodes)
    for name, one in wanted.items():
        if name not in there or name in again:
            words = creation_words(one, observed.now)
            found.append(_change("create", name, description(one), words))
        elif words := list(_differences(one, there[name], everything, observed.now)):
            found.append(_change("update", name, "changes: " + ", ".join(words), [f"ReservationName={name}", *words]))
    return found


def is_over(one: PlannedReservation, now: datetime) -> bool:
    """Returns whether the reservation has ended and does not repeat."""
    return not one.repeat and one.end is not None and one.end <= now


def creation_words(one: PlannedReservation, now: datetime) -> list[str]:
    """Returns the words of `scontrol create reservation`."""
    who = [f"Users={','.join(one.users)}"] if one.users else []
    who += [f"Accounts={','.join(one.accounts)}"] if one.accounts else []
    flags = [f"Flags={','.join(one.flags)}"] if one.flags else []
    return [f"ReservationName={one.name}", *_times(one, now), *_nodes(one), *who, *flags]


def description(one: PlannedReservation) -> str:
    """Returns when it is, where and for whom, in one line."""
    when = f"from {one.start:%Y-%m-%d %H:%M}" + ("" if one.duration_s is None else f" for {_hours(one.duration_s)}")
    where = compress(one.nodes) if one.nodes else "all nodes"
    if one.node_count is not None:
        where = f"{one.node_count} node{'s' * (one.node_count != 1)}"
    return ", ".join(filter(None, (when, one.repeat, where, f"for {', '.join((*one.accounts, *one.users))}")))


def _change(verb: str, name: str, why: str, words: list[str]) -> Change:
    return Change(f"reservation.{verb}", "cluster", name, why, data={"verb": verb, "words": words})


def _times(one: PlannedReservation, now: datetime) -> list[str]:
    """Returns start and end of the present or next occurrence: Slurm refuses times before now."""
    start, end = one.start, one.end or _NO_END
    if one.repeat:
        start = next_start(one, now)
        end = start + (end - one.start)
    began = "now" if start <= now else f"{start:{_ISO}}"
    return [f"StartTime={began}", f"EndTime={end:{_ISO}}"]


def next_start(one: PlannedReservation, now: datetime) -> datetime:
    """Returns the first start of a repeating reservation after now."""
    step = _STEP.get(one.repeat, timedelta(days=1))
    start = one.start
    if start <= now:
        start += step * ((now - start) // step + 1)
    while (one.repeat == "weekday" and start.weekday() > 4) or (one.repeat == "weekend" and start.weekday() < 5):
        start += step
    return start


def _nodes(one: PlannedReservation) -> list[str]:
    partition = [f"PartitionName={one.partition}"] if one.partition else []
    if one.node_count is not None:
        return [f"NodeCnt={one.node_count}", *partition]
    return [f"Nodes={compress(one.nodes) if one.nodes else 'ALL'}"]


def _differences(
    one: PlannedReservation, seen: ObservedReservation, everything: frozenset[str], now: datetime
) -> Iterator[str]:
    """Yields the words of `scontrol update reservation`."""
    end = _end(one, seen)
    if not _same_start(one, seen, now) or seen.end != end:
        yield from [f"EndTime={end:{_ISO}}"] if seen.start <= now else _times(one, now)
    if one.node_count is not None:
        # Without a partition Slurm names the default one.
        if seen.node_count != one.node_count or one.partition not in ("", seen.partition):
            yield from _nodes(one)
    elif frozenset(one.nodes or everything) != frozenset(seen.nodes):
        yield from _nodes(one)
    for key, wanted, there in (("Users", one.users, seen.users), ("Accounts", one.accounts, seen.accounts)):
        if set(wanted) != set(there):
            yield f"{key}={','.join(wanted)}"
    more, less = set(one.flags) - seen.flags, (seen.flags & FLAGS) - set(one.flags)
    if more:
        yield f"Flags+={','.join(sorted(more))}"
    if less:
        yield f"Flags-={','.join(sorted(less))}"


def _is_made_again(one: PlannedReservation, seen: ObservedReservation, now: datetime) -> bool:
    """Returns whether Slurm's has begun, and that of the file starts later. Slurm refuses every start of a reservation that has
    begun, and an end before now."""
    end = _end(one, seen)
    return seen.start <= now and (not _same_start(one, seen, now) or (seen.end != end and end <= now))


def _end(one: PlannedReservation, seen: ObservedReservation) -> datetime:
    """Returns when the occurrence that Slurm has ends by the file."""
    end = one.end or _NO_END
    return seen.start + (end - one.start) if one.repeat else end


def _same_start(one: PlannedReservation, seen: ObservedReservation, now: datetime) -> bool:
    """Returns whether an occurrence starts as in the file. Slurm moves a repeating reservation to its next occurrence,
    and may have made one that had begun from that moment on."""
    if not one.repeat:
        return seen.start == one.start or one.start <= now >= seen.start
    if one.start > now and seen.start != one.start:
        return False
    same_day = one.repeat != "weekly" or seen.start.weekday() == one.start.weekday()
    form = "%M:%S" if one.repeat == "hourly" else "%H:%M:%S"
    return same_day and seen.start.strftime(form) == one.start.strftime(form)


def _hours(seconds: int) -> str:
    hours, minutes = divmod(seconds // 60, 60)
    return f"{hours} h {minutes} min" if hours and minutes else f"{hours} h" if hours else f"{minutes} min"
