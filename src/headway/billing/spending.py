"""Spending in steps of time, such as days: its mean, the forecast to the end of a period, and when a budget is spent.
Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from headway.domain.billing.ledger import DAY_S

MEAN_S = 7 * DAY_S  # the forecast continues the mean of this time


@dataclass(frozen=True, slots=True)
class Step:
    """The amount of one step of time, from `start` until before `end` in unix seconds. Steps follow one another."""

    start: int
    end: int
    amount: Fraction


def mean_per_second(steps: Sequence[Step], now: int, since: int = 0) -> Fraction:
    """Returns the mean amount per second of the last seven days. A step that began earlier counts in part. Time before `since`,
    when nothing could cost yet, and after `now` does not count. Returns 0 without such a time."""
    begin = max(since, now - MEAN_S)
    last = [step for step in steps if step.end > begin and step.start < now]
    if not last or now <= begin:
        return Fraction(0)
    amount = Fraction(0)
    for step in last:
        end = min(step.end, now)
        amount += step.amount * Fraction(end - max(step.start, begin), end - max(step.start, since))
    return amount / (now - max(last[0].start, begin))


def forecast(steps: Sequence[Step], now: int, end: int, since: int = 0, before: Sequence[Step] = ()) -> Fraction:
    """Returns the amount at `end` if the mean of the last seven days continues; after `end`, the amount itself. `before` are
    the steps before the period, which count for the mean alone; without them the mean is of the period's own steps."""
    spent = sum((step.amount for step in steps), Fraction(0))
    return spent + mean_per_second([*before, *steps], now, since) * max(0, end - now)


def spent_at(steps: Sequence[Step], limit: Fraction, now: int, end: int) -> int | None:
    """Returns when the amount reaches the limit if the mean of the last seven days continues; None if that is not before
    `end`, or if it has reached the limit."""
    left = limit - sum((step.amount for step in steps), Fraction(0))
    mean = mean_per_second(steps, now)
    if left <= 0 or mean <= 0:
        return None
    at = now + int(left / mean)
    return at if at < end else None
