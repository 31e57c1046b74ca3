"""A ChangeSet as Markdown, for the comment of a pull or merge request."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from headway.cli.output import formatting
from headway.cli.output.changeset_rows import disturbing_rows, kind_rows
from headway.domain.slurm.hostlist import compress

if TYPE_CHECKING:
    from headway.schemas.clusters import ChangeOut, ChangeSetOut, DifferenceOut

LARGEST_COMMENT = 60_000  # characters; GitHub accepts 65,536
_SPECIAL = re.compile(r"([\\`*_\[\]|~#])")


def changeset_markdown(changes: ChangeSetOut, *, diffs: bool = False) -> str:
    """Returns the changes by kind, then those that disturb running work; with `diffs` also the changed lines of files,
    as many as a comment has room for."""
    lines = [f"### Headway plan: {_text(changes.cluster)}", ""]
    lines += [f"- **Warning:** {_text(f'{w.path}: {w.message}' if w.path else w.message)}" for w in changes.warnings]
    lines += [""] * bool(changes.warnings)
    lines += _differences(changes.differences)
    if not changes.changes:
        why = changes.why_empty or "the cluster matches its file"
        return "\n".join([*lines, f"Nothing to change: {_text(why)}."]) + "\n"
    price = f", {changes.price_usd_per_hour} USD an hour" if changes.price_usd_per_hour else ""
    lines.append(f"**{formatting.plural(len(changes.changes), 'change')}**{price}.")
    disturbing = disturbing_rows(changes.changes)
    if disturbing:
        lines += ["", "**These disturb running work:**", ""]
        lines += [
            f"- {_code(row.subject)}: **{_text(row.disturbs)}**{f' ({_text(row.why)})' if row.why else ''}"
            for row in disturbing
        ]
    lines += ["", "| Change | Count | Where | Effect | Objects |", "|---|---:|---|---|---|"]
    lines += [
        f"| {_code(row.kind)} | {row.count} | {_code(row.where)} | {_text(row.effect)} | {_codes(row.objects)} |"
        for row in kind_rows(changes.changes)
    ]
    text = "\n".join(lines) + "\n"
    return text + "".join(_diffs(changes.changes, LARGEST_COMMENT - len(text))) if diffs else text


def _differences(found: Sequence[DifferenceOut]) -> list[str]:
    if not found:
        return []
    rows = [f"| {_code(d.machine)} | {_text(d.what)} | {_text(d.plan)} | {_text(d.found)} |" for d in found]
    head = "The machines differ from the plan; Slurm is configured with the values found:"
    return [head, "", "| Machine | What | Plan | Found |", "|---|---|---|---|", *rows, ""]


def _diffs(changes: Sequence[ChangeOut], room: int) -> Iterator[str]:
    """Yields a folded block for each changed file; the same lines on several machines are one block."""
    files: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for change in changes:
        if change.diff:
            files.setdefault((change.what, tuple(change.diff)), []).append(change.where)
    left = len(files)
    for (what, diff), where in files.items():
        fence = "`" * max(3, *(len(run) + 1 for run in re.findall(r"`+", "\n".join(diff)) or [""]))
        title = f"{_html(what)} on {_html(compress(dict.fromkeys(where)))}"
        block = (
            f"\n<details><summary>{title}</summary>\n\n{fence}diff\n" + "\n".join(diff) + f"\n{fence}\n\n</details>\n"
        )
        room -= len(block)
        if room < 0:
            yield f"\n{formatting.plural(left, 'more changed file')}: `headway plan --diff` shows all.\n"
            return
        left -= 1
        yield block


def _text(text: str) -> str:
    """Returns the text so that it stays text: no markup, no HTML, no mention of a person."""
    return _html(_SPECIAL.sub(r"\\\1", " ".join(text.split()))).replace("@", "&#64;")


def _html(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _code(text: str) -> str:
    """Returns a code span. No name of a machine, file or setting has a backtick."""
    return f"`{' '.join(text.replace('`', chr(39)).replace('|', '/').split())}`" if text.strip() else ""


def _codes(objects: Sequence[str]) -> str:
    few = ", ".join(_code(one) for one in objects[:4])
    return few + (f" and {len(objects) - 4} more" if len(objects) > 4 else "")
