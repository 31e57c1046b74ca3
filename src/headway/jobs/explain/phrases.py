"""Sentences with times relative to now ("in 14 min"), kept as data so that they do not change every second. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from headway.domain.slurm.nodes_and_jobs import JobState


@dataclass(frozen=True, slots=True)
class Moment:
    """A time that is shown relative to now: "in 14 min"."""

    unix_s: int  # unix seconds


Phrase = tuple[str | Moment, ...]


def join_phrases(*parts: str | Moment | Sequence[str | Moment]) -> Phrase:
    """Returns texts, moments and phrases as one phrase, without empty texts."""
    joined: list[str | Moment] = []
    for part in parts:
        joined += [part] if isinstance(part, str | Moment) else part
    return tuple(piece for piece in joined if piece != "")


def format_phrase(words: Iterable[str | Moment], now: float) -> str:
    """Returns the phrase as text at the time `now` (unix seconds)."""
    return "".join(word if isinstance(word, str) else format_wait(word.unix_s - now) for word in words)


def format_wait(seconds: float) -> str:
    """Returns "in 14 min", "in 2 h 10 min" or "in 3 days"; "any moment" for a time that has passed."""
    if seconds < 1:
        return "any moment"
    return f"in {format_duration(seconds)}"


def format_duration(seconds: float) -> str:
    """Returns "40 s", "14 min", "2 h 10 min" or "3 days"."""
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


def describe_end(job: JobState, name: str) -> Phrase:
    """Returns when a running job ends at the latest, in words."""
    if job.time_limit_s is None:
        return (f"job {name} of {job.user} has no time limit",)
    return (f"job {name} of {job.user} ends ", Moment(job.start_time + job.time_limit_s), " at the latest")


def count_of(number: int, one: str) -> str:
    """Returns "1 GPU" or "2 GPUs"."""
    return f"{number:,} {one}{'' if number == 1 else 's'}"
