"""Figures of a service over some time: requests, errors, tokens, and how long answers took. Pure.

Times are counted in buckets, each a tenth larger than the one before: a percentile is right to about 5 %."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

_NUMBERS = ("requests", "errors", "aborted", "prompt_tokens", "generated_tokens")
_BUCKETS = ("total", "first", "first_token")
GROWTH = 1.1  # of the bounds of buckets; bucket N has times up to GROWTH**N milliseconds


@dataclass(frozen=True)
class ServiceFigures:
    """What was counted. `errors`: answers with status 5xx, or that broke off; `aborted`: requests that the client gave up.
    `total`, `first` and `first_token`: how many answers were complete, had their first byte and had their first token within
    the time of a bucket."""

    requests: int = 0
    errors: int = 0
    aborted: int = 0
    prompt_tokens: int = 0
    generated_tokens: int = 0
    total: Mapping[int, int] = field(default_factory=dict)
    first: Mapping[int, int] = field(default_factory=dict)
    first_token: Mapping[int, int] = field(default_factory=dict)

    def __add__(self, other: ServiceFigures) -> ServiceFigures:
        return sum_figures((self, other))

    @property
    def error_rate(self) -> float:
        """Returns the share of failed requests, 0 to 1."""
        return self.errors / self.requests if self.requests else 0.0

    def document(self) -> dict[str, Any]:
        """Returns the figures as JSON has them; those that are 0 are left out."""
        return {name: value for name, value in asdict(self).items() if value}

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> ServiceFigures:
        """Returns the figures of a document."""
        numbers = {name: value for name, value in document.items() if name not in _BUCKETS}
        read: dict[str, Any] = {name: {int(at): n for at, n in document.get(name, {}).items()} for name in _BUCKETS}
        return cls(**numbers, **read)


def sum_figures(figures: Iterable[ServiceFigures]) -> ServiceFigures:
    """Returns the figures of all together."""
    numbers: dict[str, Any] = dict.fromkeys(_NUMBERS, 0)
    buckets: dict[str, Any] = {name: {} for name in _BUCKETS}
    for one in figures:
        for name in _NUMBERS:
            numbers[name] += getattr(one, name)
        for name, total in buckets.items():
            for at, count in getattr(one, name).items():
                total[at] = total.get(at, 0) + count
    return ServiceFigures(**numbers, **buckets)


def percentile_ms(buckets: Mapping[int, int], share: float) -> float | None:
    """Returns the time within which this share (0 to 1) of the answers came, in milliseconds; None without answers."""
    count = sum(buckets.values())
    if not count:
        return None
    left = max(1, math.ceil(count * share))
    for at in sorted(buckets):
        left -= buckets[at]
        if left <= 0:
            return float(GROWTH ** (at - 0.5)) if at else 0.5
    return None


def bucket_of(seconds: float) -> int:
    """Returns the bucket of a time."""
    ms = seconds * 1000
    return max(0, math.ceil(math.log(ms, GROWTH))) if ms > 1 else 0


@dataclass(frozen=True)
class ReplicaCounters:
    """Counters that a replica has published; they grow until it is started again. `first_token`: upper bound in seconds, as it
    writes it -> answers whose first token came within it."""

    prompt_tokens: int = 0
    generated_tokens: int = 0
    first_token: Mapping[str, int] = field(default_factory=dict)

    def since(self, before: ReplicaCounters | None) -> ServiceFigures:
        """Returns what was counted since an earlier reading; everything if there was none, or the replica has started again."""
        base = before or ReplicaCounters()
        if self.generated_tokens < base.generated_tokens or self.prompt_tokens < base.prompt_tokens:
            base = ReplicaCounters()
        buckets: dict[int, int] = {}
        below = below_before = 0
        for upper in sorted(filter(_finite, self.first_token), key=float):
            now, then = self.first_token[upper], base.first_token.get(upper, 0)
            more = (now - below) - (then - below_before)
            below, below_before = now, then
            if more > 0:
                buckets[bucket_of(float(upper))] = more
        return ServiceFigures(
            prompt_tokens=self.prompt_tokens - base.prompt_tokens,
            generated_tokens=self.generated_tokens - base.generated_tokens,
            first_token=buckets,
        )


def _finite(text: str) -> bool:
    try:
        return 0 < float(text) < 1e6
    except ValueError:
        return False


@dataclass(frozen=True)
class MetricsReading:
    """What was read of the services of a cluster, by (TEAM:NAME, replica). The replica is "" for requests that none has answered.
    `after`: the mark for the next reading."""

    after: str = ""
    requests: Mapping[tuple[str, str], ServiceFigures] = field(default_factory=dict)
    counters: Mapping[tuple[str, str], ReplicaCounters] = field(default_factory=dict)
