"""The table of a what-if: what was, the replay, and the changed cluster, next to each other."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from headway.schemas.whatif import ReplayFiguresOut, WhatIfOut
from headway.web.views.state_wording import count, duration

_TITLES = {"real": "As it was", "present": "Replayed", "changed": "Changed"}
_NONE = "-"


@dataclass(frozen=True, slots=True)
class WhatIfRow:
    """A row: its name, and a text for each column. `better`: the changed cluster does better than the replay, or worse, or
    neither ("")."""

    name: str
    texts: tuple[str, ...]
    better: str = ""


@dataclass(frozen=True, slots=True)
class WhatIfTable:
    """A result as rows. `notes`: jobs that were left out or could not run."""

    result: WhatIfOut
    columns: tuple[str, ...]
    waits: tuple[WhatIfRow, ...]
    figures: tuple[WhatIfRow, ...]
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class WhatIfView:
    """All kept results, the shown one, the id of the operation that runs or waits, and the teams that a cap may be for."""

    results: tuple[WhatIfOut, ...]
    table: WhatIfTable | None
    running: str
    teams: tuple[str, ...]


def whatif_table(found: WhatIfOut) -> WhatIfTable:
    """Returns the result as rows and columns."""
    names = list(found.figures)
    keys = list(dict.fromkeys((row.team, row.size) for one in found.figures.values() for row in one.waits))
    waits = []
    for team, size in keys:
        row = {name: _waits(one, team, size) for name, one in found.figures.items()}
        text = tuple(
            _NONE if median is None or p90 is None else f"{_time(median)} · {_time(p90)}"
            for median, p90 in row.values()
        )
        medians = [row[name][0] for name in ("present", "changed") if name in row]
        name = "All jobs" if team == "all" else f"{team}, {size}"
        waits.append(WhatIfRow(name, text, _better(medians)))
    return WhatIfTable(
        found, tuple(_TITLES.get(name, name) for name in names), tuple(waits), _figure_rows(found), _notes(found)
    )


def _waits(figures: ReplayFiguresOut, team: str, size: str) -> tuple[float | None, float | None]:
    row = next((one for one in figures.waits if (one.team, one.size) == (team, size)), None)
    return (row.median_s, row.p90_s) if row else (None, None)


def _figure_rows(found: WhatIfOut) -> tuple[WhatIfRow, ...]:
    def row(title: str, values: dict[str, float | None], text: Callable[[float], str]) -> WhatIfRow:
        both = [values[name] for name in ("present", "changed") if name in values]
        texts = tuple(_NONE if value is None else text(value) for value in values.values())
        # More nodes lower the utilisation: neither better nor worse by itself.
        return WhatIfRow(title, texts, "" if title == "Utilisation" else _better(both))

    each = found.figures.items()
    return (
        row("Utilisation", {name: one.utilisation for name, one in each}, _share),
        row("Free on nodes with jobs, while jobs wait", {name: one.fragmentation for name, one in each}, _share),
        row("All jobs ended after", {name: one.last_end_s for name, one in each}, _time),
        row("Price of the nodes", {name: one.usd for name, one in each}, _usd),
        row("Price of a GPU-hour in use", {name: one.usd_per_gpu_hour for name, one in each}, _usd),
    )  # fmt: skip


def _better(values: list[float | None]) -> str:
    """Returns whether the second value is lower than the first by more than 2 % (better), or higher (worse)."""
    before, after = values if len(values) == 2 else (None, None)
    if before is None or after is None:
        return ""
    if abs(after - before) <= 0.02 * max(abs(before), abs(after)):
        return ""
    return "better" if after < before else "worse"


def _notes(found: WhatIfOut) -> tuple[str, ...]:
    left_out = (f"{count(number, 'job')} left out: {why}" for why, number in found.left_out.items())
    unable = (
        f"{_TITLES.get(name, name)}: {count(len(jobs), 'job')} {words}: {why} ({_few(jobs)})"
        for words, kinds in (("can never start", found.never_started), ("refused", found.refused))
        for name, reasons in kinds.items()
        for why, jobs in reasons.items()
    )
    return (*found.warnings, *left_out, *unable)


def _share(value: float) -> str:
    return f"{100 * value:.1f} %"


def _usd(value: float) -> str:
    return f"{value:,.2f} USD"


def _time(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else duration(seconds)


def _few(jobs: list[str]) -> str:
    return ", ".join(jobs[:5]) + (" …" if len(jobs) > 5 else "")
