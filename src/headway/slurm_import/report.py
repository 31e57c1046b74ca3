"""The report of an import: Markdown for people, plain data for programs."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from headway.slurm_import.importer import Imported
from headway.slurm_import.verdicts import Item, Kind, Verdict, count_kinds

_TITLES = {
    Kind.CARRIED: "carried into a field",
    Kind.KEPT: "kept as a key of slurm.conf",
    Kind.SAME: "same as Headway's default",
    Kind.NOT_CARRIED: "not carried",
}
_MOST_NAMED = 12  # lines that one row names; the others are counted
_MOST_OPEN = 30  # rows of a section on the open page; the others are folded
_PLACE = re.compile(r"\b(partitions|teams|qos|reservations|users)\.[a-z0-9_-]+")
_NO_ACTION = ("nothing to do", "")


def needs_person(verdict: Verdict) -> bool:
    """Returns whether a person must do something because an item is not carried."""
    return verdict.kind is Kind.NOT_CARRIED and not verdict.instead.startswith(_NO_ACTION[0]) and verdict.instead != ""


def report_data(imported: Imported) -> dict[str, Any]:
    """Returns everything as plain data: the verdict on each key and line in the order of reading."""
    return {
        "source": imported.source,
        "nodes": imported.nodes,
        "users": imported.users,
        "counts": {kind.value: number for kind, number in count_kinds(imported.entries).items()},
        "unread": imported.unread,
        "notes": imported.notes,
        "verdicts": [
            {
                "file": item.file, "line": item.line, "record": item.context, "key": item.key, "value": item.shown,
                "verdict": verdict.kind.value, "field": verdict.place, "why": verdict.why, "instead": verdict.instead,
            }
            for item, verdict in imported.entries
        ],
        "cluster": imported.spec,
        "catalogue": imported.catalogue,
    }  # fmt: skip


def report_markdown(imported: Imported) -> str:
    """Returns the report: a summary on one page, with all verdicts in folded sections."""
    counts = count_kinds(imported.entries)
    waiting = [(item, verdict) for item, verdict in imported.entries if needs_person(verdict)]
    lines = [
        f"# Import of {_cell(imported.source or 'a Slurm site')}", "",
        f"Nodes: {imported.nodes:,}. Partitions: {len(imported.spec.get('partitions', ())):,}. Users: {imported.users:,}. "
        f"Each of the {len(imported.entries):,} keys and lines that were read has one verdict:", "",
        "| Verdict | Keys and lines |", "|---|---:|",
        *(f"| {_TITLES[kind]} | {number:,} |" for kind, number in counts.items()),
        "", "A cluster made of this file is fresh: it has the site's limits, and neither its history, fair share nor queue. "
        "They come along by `headway adopt`.", "",
    ]  # fmt: skip
    if imported.notes:
        notes = [f"- {_cell(note)}" for note in imported.notes]
        lines += ["## Notes", "", *_first_open(notes, "more notes")]
    if imported.unread:
        unread = [f"- `{_code(p)}`: {_cell(why)}" for p, why in sorted(imported.unread.items())]
        lines += ["## Not read", "", *_first_open(unread, "more that were not read")]
    lines += ["## Yours to decide", ""]
    head = ("| Not carried | Why | Instead |", "|---|---|---|")
    lines += _first_open(_decisions(waiting), "more to decide", head) if waiting else ["Nothing.", ""]
    lines += ["## All verdicts", "", "Equal verdicts on one key share a row; `-o json` lists each.", ""]
    for kind in Kind:
        lines += _details(kind, imported.entries, counts[kind])
    return "\n".join(lines).rstrip() + "\n"


def _first_open(rows: Sequence[str], more: str, head: Sequence[str] = ()) -> list[str]:
    """Returns the rows of a list, or of a table with this head, of which the first ones are open and the others folded."""
    lines = [*head, *rows[:_MOST_OPEN], ""]
    folded = rows[_MOST_OPEN:]
    if folded:
        lines += [f"<details><summary>{len(folded):,} {more}</summary>", "", *head, *folded, "", "</details>", ""]
    return lines


def _decisions(waiting: Iterable[tuple[Item, Verdict]]) -> list[str]:
    """Returns a row of the table for each reason. Reasons that differ only in the name of a partition, team, QOS or the like
    share one."""
    rows: dict[tuple[str, str], dict[str, int]] = {}
    texts: dict[tuple[str, str], set[tuple[str, str]]] = {}
    for item, verdict in waiting:
        reason = (_PLACE.sub(r"\1.NAME", verdict.why), _PLACE.sub(r"\1.NAME", verdict.instead))
        texts.setdefault(reason, set()).add((verdict.why, verdict.instead))
        named = rows.setdefault(reason, {})
        name = item.key or item.value
        named[name] = named.get(name, 0) + 1
    lines = []
    for reason, named in rows.items():
        why, instead = next(iter(texts[reason])) if len(texts[reason]) == 1 else reason
        keys = [
            f"`{_code(key)}`{f' ({number:,})' if number > 1 else ''}"
            for key, number in list(named.items())[:_MOST_NAMED]
        ]
        more = f" and {len(named) - _MOST_NAMED:,} more" if len(named) > _MOST_NAMED else ""
        lines.append(f"| {', '.join(keys)}{more} | {_cell(why)} | {_cell(instead)} |")
    return lines


def _details(kind: Kind, entries: Iterable[tuple[Item, Verdict]], count: int) -> list[str]:
    if not count:
        return []
    rows: dict[tuple[str, str, Verdict], list[Item]] = {}
    for item, verdict in entries:
        if verdict.kind is kind:
            rows.setdefault((item.file, item.key.lower(), verdict), []).append(item)
    lines = [f"<details><summary>{_TITLES[kind][0].upper()}{_TITLES[kind][1:]}: {count:,}</summary>", "",
             "| Where | Key | Value | Field | Why |", "|---|---|---|---|---|"]  # fmt: skip
    for (file, _, verdict), items in rows.items():
        numbers = ", ".join(str(item.line) for item in items[:_MOST_NAMED])
        more = f" and {len(items) - _MOST_NAMED:,} more" if len(items) > _MOST_NAMED else ""
        values = list(dict.fromkeys(item.shown for item in items))
        shown = ", ".join(f"`{_code(value)}`" for value in values[:3] if value) + (" ..." if len(values) > 3 else "")
        why = "; ".join(part for part in (verdict.why, verdict.instead) if part)
        field = f"`{_code(verdict.place)}`" if verdict.place else ""
        lines.append(f"| {_cell(file)}:{numbers}{more} | {_cell(items[0].key)} | {shown} | {field} | {_cell(why)} |")
    return [*lines, "", "</details>", ""]


def _cell(text: str) -> str:
    """Returns text for a cell of a table: characters that Markdown or HTML would read are escaped."""
    plain = "".join(c if c.isprintable() else " " for c in text)
    return plain.replace("&", "&amp;").replace("<", "&lt;").replace("|", "\\|").replace("`", "'").replace("*", "\\*")


def _code(text: str) -> str:
    return "".join(c if c.isprintable() else " " for c in text).replace("`", "'").replace("|", "\\|")


def cluster_yaml_head(imported: Imported, counts: Mapping[Kind, int]) -> str:
    """Returns the comment above an imported cluster file."""
    source = "".join(c if c.isprintable() else " " for c in imported.source)
    return (
        f"# Imported from {source}. report.md has a verdict on each key and line: {counts[Kind.NOT_CARRIED]:,} of "
        f"{len(imported.entries):,} are not carried.\n"
        "# Plans are in catalogue.yaml, in this folder. Prices are 0: set price_usd_per_node_hour there.\n\n"
    )
