"""Tables for people that fit the terminal; in a pipe every column is printed in full, without colours.

Not rich's tables: those can't drop columns, cut columns below their minimum width, and take nine times as long for a queue of
5,000 jobs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import typer

from headway.cli.output.terminal import (
    Span,
    Terminal,
    detect_terminal,
    display_width,
    paint,
    without_control_characters,
)

Cell = str | Span | list[Span]
GAP = 2


@dataclass(frozen=True, slots=True)
class Column:
    """A table column. `shrink`: it may be cut with an ellipsis, the widest column first, down to `min_width`.
    `drop_order`: columns are left out, the highest first, if the terminal is still too narrow (0: never)."""

    title: str
    right: bool = False
    shrink: bool = False
    drop_order: int = 0
    min_width: int = 12


def print_table(columns: Sequence[Column], rows: Iterable[Sequence[Cell]]) -> None:
    """Prints a table on standard output."""
    typer.echo("\n".join(table_lines(columns, rows, detect_terminal())))


def print_facts(pairs: Iterable[tuple[str, Cell]]) -> None:
    """Prints `name  value` lines on standard output."""
    typer.echo("\n".join(fact_lines(pairs, detect_terminal())))


def table_lines(columns: Sequence[Column], rows: Iterable[Sequence[Cell]], terminal: Terminal) -> list[str]:
    """Returns the lines of a table that fits the terminal. Columns that are empty in every row are left out."""
    cells = [[_spans(cell) for cell in row] for row in rows]
    kept = [i for i in range(len(columns)) if not cells or any(_width(row[i]) for row in cells)]
    widths = {i: max([len(columns[i].title), *(_width(row[i]) for row in cells)]) for i in kept}
    kept, widths = _fit_columns(columns, kept, widths, terminal.width)
    header = [[(columns[i].title, "dim")] for i in kept]
    lines = [_line(header, kept, widths, columns, terminal)]
    lines += [_line([row[i] for i in kept], kept, widths, columns, terminal) for row in cells]
    return lines


def _spans(cell: Cell) -> list[Span]:
    spans = [(cell, "")] if isinstance(cell, str) else [cell] if isinstance(cell, tuple) else cell
    return [(without_control_characters(text), style) for text, style in spans]


def _width(spans: Sequence[Span]) -> int:
    return sum(display_width(text) for text, _ in spans)


def _fit_columns(
    columns: Sequence[Column], kept: list[int], natural: dict[int, int], limit: int | None
) -> tuple[list[int], dict[int, int]]:
    """Returns the columns that are printed and their widths."""
    if limit is None:
        return kept, natural
    while True:
        widths = _shrink_columns(columns, kept, natural, limit, below_minimum=False)
        droppable = [i for i in kept if columns[i].drop_order]
        if _total_width(kept, widths) <= limit:
            return kept, widths
        if not droppable:
            return kept, _shrink_columns(columns, kept, natural, limit, below_minimum=True)
        dropped = max(droppable, key=lambda i: columns[i].drop_order)
        kept = [i for i in kept if i != dropped]


def _total_width(kept: Sequence[int], widths: dict[int, int]) -> int:
    return sum(widths[i] for i in kept) + GAP * (len(kept) - 1)


def _shrink_columns(
    columns: Sequence[Column], kept: Sequence[int], natural: dict[int, int], limit: int, *, below_minimum: bool
) -> dict[int, int]:
    widths = dict(natural)
    floors = {
        i: max(len(columns[i].title), 4 if below_minimum else columns[i].min_width) for i in kept if columns[i].shrink
    }
    while (over := _total_width(kept, widths) - limit) > 0:
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
    terminal: Terminal,
) -> str:
    parts: list[str] = []
    for i, spans in zip(kept, cells, strict=True):
        shown = _truncate(spans, widths[i], terminal)
        text = "".join(paint(t, style, terminal) for t, style in shown)
        pad = " " * (widths[i] - _width(shown))
        parts.append(pad + text if columns[i].right else text + pad)
    return (" " * GAP).join(parts).rstrip()


def _truncate(spans: Sequence[Span], limit: int, terminal: Terminal) -> list[Span]:
    if _width(spans) <= limit:
        return list(spans)
    end = "…" if terminal.unicode else "~"
    out: list[Span] = []
    left = limit - 1
    for text, style in spans:
        part = ""
        for c in text:
            if display_width(part + c) > left:
                break
            part += c
        out.append((part, style))
        left -= display_width(part)
        if part != text:
            break
    return [*out, (end, "dim")]


def fact_lines(pairs: Iterable[tuple[str, Cell]], terminal: Terminal) -> list[str]:
    """Returns `name  value` lines; pairs with an empty value are left out."""
    shown = [(name, _spans(value)) for name, value in pairs]
    shown = [(name, spans) for name, spans in shown if _width(spans)]
    wide = max((len(name) for name, _ in shown), default=0)
    return [
        f"{paint(name.ljust(wide), 'dim', terminal)}  {''.join(paint(t, s, terminal) for t, s in spans)}"
        for name, spans in shown
    ]
