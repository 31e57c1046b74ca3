"""Text for people: tables that fit the terminal, colours that mean something, GPU cells. Plain where nobody looks."""

from __future__ import annotations

import os
import shutil
import sys
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headway.schemas.clusters import NodeOut

# good: as it should be; busy: in use; warn: look soon; bad: look now; dim: not now
STYLES = {"good": "32", "busy": "36", "warn": "33", "bad": "1;31", "dim": "2", "bold": "1"}

Span = tuple[str, str]  # text, style ("" = plain)
Cell = str | Span | list[Span]

SIMULATED_NOTE = "GPUs are SIMULATED: these machines have no GPU device."
GAP = 2


@dataclass(frozen=True, slots=True)
class Column:
    """`shrink`: may be cut with an ellipsis, the widest first, down to `least`. `drop`: left out, the highest first,
    where the terminal is still too narrow (0: never)."""

    title: str
    right: bool = False
    shrink: bool = False
    drop: int = 0
    least: int = 12


@dataclass(frozen=True, slots=True)
class Screen:
    """Where text goes. `width` None: no limit (a pipe or a file)."""

    colours: bool
    width: int | None
    unicode: bool


def screen() -> Screen:
    """Standard output as it is now; NO_COLOR and TERM=dumb are respected."""
    terminal = sys.stdout.isatty()
    plain = bool(os.environ.get("NO_COLOR")) or os.environ.get("TERM") == "dumb"
    encoding = (sys.stdout.encoding or "ascii").lower().replace("-", "")
    width = shutil.get_terminal_size((80, 24)).columns if terminal else None
    return Screen(terminal and not plain, width, encoding.startswith("utf"))


def paint(text: str, style: str, on: Screen) -> str:
    code = STYLES.get(style)
    return f"\x1b[{code}m{text}\x1b[0m" if code and on.colours and text else text


def clean(text: str) -> str:
    """Without control characters: a job's name must not be able to steer a terminal."""
    return "".join(c if c.isprintable() else "?" for c in text)


def width_of(text: str) -> int:
    return sum(2 if unicodedata.east_asian_width(c) in "WF" else not unicodedata.combining(c) for c in text)


def wrap(text: str, on: Screen, *, indent: int = 0) -> list[str]:
    """The text's own lines, without control characters, cut at blanks where the terminal is too narrow."""
    lines = [clean(line.strip()) for line in text.strip().splitlines()] or [""]
    if on.width is None:
        return lines
    from textwrap import wrap as fold

    room = max(20, on.width - indent)
    return [part for line in lines for part in fold(line, room, break_on_hyphens=False) or [""]]


def table(columns: Sequence[Column], rows: Iterable[Sequence[Cell]], on: Screen) -> list[str]:
    """The lines of a table that fits `on`. Columns that are empty in every row are left out."""
    cells = [[_spans(cell) for cell in row] for row in rows]
    kept = [i for i in range(len(columns)) if not cells or any(_width(row[i]) for row in cells)]
    widths = {i: max([len(columns[i].title), *(_width(row[i]) for row in cells)]) for i in kept}
    kept, widths = _fit(columns, kept, widths, on.width)
    header = [[(columns[i].title, "dim")] for i in kept]
    lines = [_line(header, kept, widths, columns, on)]
    lines += [_line([row[i] for i in kept], kept, widths, columns, on) for row in cells]
    return lines


def _spans(cell: Cell) -> list[Span]:
    spans = [(cell, "")] if isinstance(cell, str) else [cell] if isinstance(cell, tuple) else cell
    return [(clean(text), style) for text, style in spans]


def _width(spans: Sequence[Span]) -> int:
    return sum(width_of(text) for text, _ in spans)


def _fit(
    columns: Sequence[Column], kept: list[int], natural: dict[int, int], limit: int | None
) -> tuple[list[int], dict[int, int]]:
    """Which columns stay, and how wide they are: cut to `least` first, then columns go, then cut further."""
    if limit is None:
        return kept, natural
    while True:
        widths = _shrunk(columns, kept, natural, limit, further=False)
        droppable = [i for i in kept if columns[i].drop]
        if _total(kept, widths) <= limit:
            return kept, widths
        if not droppable:
            return kept, _shrunk(columns, kept, natural, limit, further=True)
        dropped = max(droppable, key=lambda i: columns[i].drop)
        kept = [i for i in kept if i != dropped]


def _total(kept: Sequence[int], widths: dict[int, int]) -> int:
    return sum(widths[i] for i in kept) + GAP * (len(kept) - 1)


def _shrunk(
    columns: Sequence[Column], kept: Sequence[int], natural: dict[int, int], limit: int, *, further: bool
) -> dict[int, int]:
    widths = dict(natural)
    floors = {i: max(len(columns[i].title), 4 if further else columns[i].least) for i in kept if columns[i].shrink}
    while (over := _total(kept, widths) - limit) > 0:
        able = [i for i in floors if widths[i] > floors[i]]
        if not able:
            break
        widest = max(able, key=lambda i: widths[i])
        widths[widest] = max(floors[widest], widths[widest] - max(1, over // 4))
    return widths


def _line(
    cells: Sequence[Sequence[Span]],
    kept: Sequence[int],
    widths: dict[int, int],
    columns: Sequence[Column],
    on: Screen,
) -> str:
    parts: list[str] = []
    for i, spans in zip(kept, cells, strict=True):
        shown = _cut(spans, widths[i], on)
        text = "".join(paint(t, style, on) for t, style in shown)
        pad = " " * (widths[i] - _width(shown))
        parts.append(pad + text if columns[i].right else text + pad)
    return (" " * GAP).join(parts).rstrip()


def _cut(spans: Sequence[Span], room: int, on: Screen) -> list[Span]:
    if _width(spans) <= room:
        return list(spans)
    end = "…" if on.unicode else "~"
    out: list[Span] = []
    left = room - 1
    for text, style in spans:
        part = ""
        for c in text:
            if width_of(part + c) > left:
                break
            part += c
        out.append((part, style))
        left -= width_of(part)
        if part != text:
            break
    return [*out, (end, "dim")]


# --- GPUs, states, times


def gpu_cells(held: Sequence[bool], on: Screen) -> list[Span]:
    """One cell a GPU: filled where a job holds it."""
    full, free = ("█", "░") if on.unicode else ("#", ".")
    return [(full, "busy") if h else (free, "dim") for h in held]


def node_gpus(node: NodeOut, on: Screen) -> list[Span]:
    """`████░░░░ 4/8`; a node that can't be used shows its cells as bad."""
    if not node.gpus:
        return []
    held = [gpu.job_id is not None for gpu in node.gpus]
    cells = gpu_cells(held, on)
    if not node.usable:
        cells = [(text, "bad") for text, _ in cells]
    return [*cells, (f" {sum(held)}/{len(held)}", "")]


_NODE_BAD = {"DOWN", "FAIL", "NOT_RESPONDING", "UNKNOWN", "INVALID_REG", "POWERED_DOWN"}
_NODE_WARN = {"DRAIN", "DRAINED", "DRAINING", "REBOOT_REQUESTED", "COMPLETING", "MAINTENANCE", "FUTURE"}
_NODE_BUSY = {"ALLOCATED", "MIXED"}
_JOB_STYLE = {
    "RUNNING": "good", "COMPLETED": "dim", "PENDING": "warn", "CONFIGURING": "warn", "COMPLETING": "warn",
    "REQUEUED": "warn", "SUSPENDED": "warn", "CANCELLED": "dim",
}  # fmt: skip


def node_style(states: Sequence[str]) -> str:
    found = set(states)
    if found & _NODE_BAD or not found:
        return "bad"
    if found & _NODE_WARN:
        return "warn"
    return "busy" if found & _NODE_BUSY else "good"


def job_style(state: str) -> str:
    return _JOB_STYLE.get(state, "bad")


def duration(seconds: float | None) -> str:
    """Slurm's way: 4:07, 1:04:07, 2-01:04:07; "unlimited" for None."""
    if seconds is None:
        return "unlimited"
    minutes, s = divmod(max(0, int(seconds)), 60)
    hours, m = divmod(minutes, 60)
    days, h = divmod(hours, 24)
    if days:
        return f"{days}-{h:02}:{m:02}:{s:02}"
    return f"{h}:{m:02}:{s:02}" if h else f"{m}:{s:02}"


def moment(unix_s: float | None) -> str:
    """A local date and time; "" for none."""
    if not unix_s:
        return ""
    from datetime import datetime

    return datetime.fromtimestamp(unix_s).astimezone().strftime("%Y-%m-%d %H:%M:%S")


def count(number: int, one: str, many: str = "") -> str:
    """`1 node`, `3 nodes`."""
    return f"{number} {one if number == 1 else many or one + 's'}"


def facts(pairs: Iterable[tuple[str, Cell]], on: Screen) -> list[str]:
    """`name  value` lines, without the empty ones."""
    shown = [(name, _spans(value)) for name, value in pairs]
    shown = [(name, spans) for name, spans in shown if _width(spans)]
    wide = max((len(name) for name, _ in shown), default=0)
    return [
        f"{paint(name.ljust(wide), 'dim', on)}  {''.join(paint(t, s, on) for t, s in spans)}" for name, spans in shown
    ]


def sparkline(values: Sequence[float], on: Screen, room: int = 48) -> str:
    """A small curve of `values`, thinned to `room`; "" where it can't be drawn."""
    finite = [v for v in values if v == v and abs(v) != float("inf")]
    if len(finite) < 2 or not on.unicode:
        return ""
    step = max(1.0, len(finite) / room)
    picked = [finite[int(i * step)] for i in range(min(room, len(finite)))]
    low, high = min(picked), max(picked)
    marks = "▁▂▃▄▅▆▇█"
    return "".join(marks[round((v - low) / (high - low) * 7) if high > low else 0] for v in picked)
