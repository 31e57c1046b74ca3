"""Parses the filters and the order of the table of trainings. Pure."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable

from headway.errors import Refused
from headway.store.jobs.trainings import OPERATORS, VALUES, MetricCondition, MetricKey

_KEY = re.compile(r"([A-Za-z_][A-Za-z0-9_.\-/ ]{0,127}?)(?::(\w+))?")
_CONDITION = re.compile(rf"(.+?)\s*({'|'.join(OPERATORS)})\s*([-+.\deE]+)")
_HINT = "write METRIC, METRIC:lowest or METRIC:highest, for example loss:lowest"


def parse_metric_key(text: str) -> MetricKey:
    """Returns the value that `loss`, `loss:last`, `loss:lowest` or `loss:highest` names. Raises Refused."""
    found = _KEY.fullmatch(text.strip())
    value = (found[2] or "last") if found else ""
    if not found or value not in VALUES:
        raise Refused(f"{text[:200]!r} names no value of a metric", hint=_HINT)
    return MetricKey(found[1], value)


def parse_conditions(texts: Iterable[str]) -> tuple[MetricCondition, ...]:
    """Returns conditions such as `loss<2` and `val/accuracy:highest >= 0.9`. Raises Refused."""
    return tuple(map(_condition, texts))


def _condition(text: str) -> MetricCondition:
    found = _CONDITION.fullmatch(text.strip())
    try:
        number = float(found[3]) if found else math.nan
    except ValueError:
        number = math.nan
    if not found or not math.isfinite(number):
        raise Refused(
            f"{text[:200]!r} is no condition on a metric", hint="write for example loss<2 or accuracy:highest>=0.9"
        )
    return MetricCondition(parse_metric_key(found[1]), found[2], number)


def parse_sort(text: str) -> tuple[MetricKey | None, bool]:
    """Returns (value to sort by or None for the latest first, whether the highest comes first) for "", "loss:lowest" or
    "-accuracy". Raises Refused."""
    return (parse_metric_key(text.removeprefix("-")), text.startswith("-")) if text else (None, False)
