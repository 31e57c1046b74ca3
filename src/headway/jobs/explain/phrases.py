"""Sentences with moments in them: kept as data, so that they change only when what they say does. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from headway.domain.slurm.state import JobState


@dataclass(frozen=True, slots=True)
class At:
    """A moment, said by how far away it is: "in 14 min"."""

    at: int  # unix seconds


Words = tuple[str | At, ...]


def words_of(*parts: str | At | Sequence[str | At]) -> Words:
    """One after the other, as they are."""
    said: list[str | At] = []
    for part in parts:
        said += [part] if isinstance(part, str | At) else part
    return tuple(one for one in said if one != "")


def told(words: Iterable[str | At], now: float) -> str:
    return "".join(one if isinstance(one, str) else span(one.at - now) for one in words)


def span(seconds: float) -> str:
    """ "in 14 min", "in 2 h 10 min", "in 3 days"; "any moment" for what should have come."""
    if seconds < 1:
        return "any moment"
    return f"in {length(seconds)}"


def length(seconds: float) -> str:
    """ "40 s", "14 min", "2 h 10 min", "3 days"."""
    whole = round(seconds)
    if whole < 90:
        return f"{whole} s"
    minutes = round(whole / 60)
    if minutes < 90:
        return f"{minutes} min"
    hours, rest = divmod(minutes, 60)
    if hours < 48:
        return f"{hours} h {rest} min" if rest else f"{hours} h"
    return f"{round(hours / 24)} days"


def ends(job: JobState, name: str) -> Words:
    """When a running job ends at its limit."""
    if job.time_limit_s is None:
        return (f"job {name} of {job.user} has no time limit",)
    return (f"job {name} of {job.user} ends ", At(job.start_time + job.time_limit_s), " at the latest")


def some(number: int, one: str) -> str:
    return f"{number:,} {one}{'' if number == 1 else 's'}"
