"""import --compare: a site and the cluster that was made of it, side by side."""

from __future__ import annotations

import base64
from dataclasses import asdict
from typing import TYPE_CHECKING

import typer

from headway.cli import common
from headway.cli.output import tables
from headway.cli.output.formatting import plural
from headway.cli.output.output_formats import Format, print_json
from headway.errors import Unreachable

if TYPE_CHECKING:
    from headway.slurm_import.comparison.compare import Comparison
    from headway.slurm_import.comparison.differences import Difference
    from headway.slurm_import.comparison.slurm_state import SlurmState
    from headway.slurm_import.importer import SiteFiles

NOT_EXPLAINED = "NOT EXPLAINED"
_COLUMNS = (
    tables.Column("WHERE", shrink=True), tables.Column("KEY"), tables.Column("SITE", shrink=True),
    tables.Column("CLUSTER", shrink=True), tables.Column("REASON", shrink=True, min_width=30),
)  # fmt: skip
_MOST_NAMED, _LONGEST = 3, 48  # names and characters in a cell of the table; -o json has all
_SECTIONS = {
    "config": "the configuration", "partition": "partitions", "nodes": "nodes", "account": "accounts", "qos": "QOS",
    "share": "shares", "user": "uids",
}  # fmt: skip


def compare_site(source: str, files: SiteFiles, cluster: str, output: Format) -> None:
    """Prints what the site and the cluster say of themselves, each difference with its reason. Raises Exit with status 1
    if one has no reason, or if a part was not compared."""
    from headway.slurm_import.comparison.compare import compare
    from headway.slurm_import.importer import import_site

    imported = import_site(files)
    old, new = _site_state(source, files), cluster_state(cluster)
    found = compare(imported, old, new)
    if output is Format.json:
        print_json(
            {
                "site": {"source": source, "slurm": old.version}, "cluster": {"name": cluster, "slurm": new.version},
                "rehearsal": found.rehearsal, "equal": found.equal, "not_compared": found.missing,
                "unexplained": len(found.unexplained), "differences": [asdict(one) for one in found.differences],
            }
        )  # fmt: skip
    else:
        _print(source, cluster, old, new, found)
    if found.unexplained or found.missing:
        raise typer.Exit(1)


def _site_state(source: str, files: SiteFiles) -> SlurmState:
    from headway.sdk.slurm_site.head import SCHEME, STATE, read_head
    from headway.slurm_import.comparison.slurm_state import read_state

    found = read_head(source, STATE) if source.startswith(SCHEME) else files
    return read_state(found.texts, found.unread)


def cluster_state(cluster: str) -> SlurmState:
    """Returns what the Slurm of a running cluster says. Raises Unreachable if it does not say everything."""
    from headway.schemas.submission.exec_commands import ExecIn
    from headway.sdk.slurm_site.head import STATE, parse_parts, program_text
    from headway.slurm_import.comparison.slurm_state import read_state

    program = base64.b64encode(program_text(STATE)).decode()
    done = common.connect().commands.exec(cluster, ExecIn(argv=["sh", "-s"], stdin_b64=program))
    texts, unread, complete = parse_parts(base64.b64decode(done.stdout_b64))
    if not complete:
        said = base64.b64decode(done.stderr_b64).decode(errors="replace").strip() or "the connection ended"
        raise Unreachable(f"{cluster} did not say everything: {said[-300:]}", hint=f"headway status {cluster}")
    return read_state(texts, unread)


def _print(source: str, cluster: str, old: SlurmState, new: SlurmState, found: Comparison) -> None:
    rehearsal = ", a rehearsal with one node of each group" if found.rehearsal else ""
    common.print_line(f"site: {source}, Slurm {old.version}")
    common.print_line(f"cluster: {cluster}, Slurm {new.version}{rehearsal}")
    rows = _rows(found.differences)
    if rows:
        common.print_line()
        tables.print_table(_COLUMNS, rows)
    common.print_line()
    for name, why in found.missing.items():
        common.print_line(f"not compared: {name}: {why}")
    equal = ", ".join(f"{count:,} of {_SECTIONS[section]}" for section, count in found.equal.items())
    common.print_line(f"equal values: {equal}")
    explained = len(found.differences) - len(found.unexplained)
    common.print_line(f"{plural(explained, 'difference')} with a reason, {len(found.unexplained):,} without")


def _rows(differences: list[Difference]) -> list[list[tables.Cell]]:
    """Returns a row for each difference, those without a reason first. The same one of several partitions or groups is one
    row."""
    merged: dict[tuple[str, str, str], list[Difference]] = {}
    for one in differences:
        merged.setdefault((one.section, one.key, one.reason), []).append(one)
    return [
        [_where(members), members[0].key, _values([m.old for m in members]), _values([m.new for m in members]),
         reason or (NOT_EXPLAINED, "bad")]
        for (_, _, reason), members in sorted(merged.items(), key=lambda row: bool(row[0][2]))
    ]  # fmt: skip


def _where(members: list[Difference]) -> str:
    names = [one.name for one in members if one.name]
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    return f"{members[0].section} {', '.join(names[:_MOST_NAMED])}".strip() + more


def _values(values: list[str]) -> str:
    """Returns the value, cut; of several the first one, marked as such."""
    text = values[0] if len(values[0]) <= _LONGEST else f"{values[0][: _LONGEST - 3]}..."
    return text if len(set(values)) == 1 or text.endswith("...") else f"{text} ..."
