"""lineage show: what a job, dataset, model or service was made of, and what was made of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from headway.cli import common
from headway.cli.common import ClusterOption
from headway.cli.output.output_formats import Format, Output, print_json
from headway.cli.output.terminal import without_control_characters

if TYPE_CHECKING:
    from headway.schemas.lineage.lineage_graph import LineageGraphOut

app = typer.Typer(
    help="Show what something was made of.", no_args_is_help=True, rich_markup_mode=None, add_completion=False
)


@app.callback()
def _group() -> None:
    """Show what something was made of."""


@app.command("show")
def show(
    of: Annotated[
        str,
        typer.Argument(
            metavar="WHAT",
            help="Job (12), dataset or model (NAME@VERSION) or service; KIND:NAME or TEAM/NAME if two have one name.",
        ),
    ],
    cluster: ClusterOption = None,
    output: Output = Format.table,
) -> None:
    """Show data and code -> job -> model -> service, both ways, as trees.

    headway lineage show iris@3"""
    api = common.connect()
    found = api.lineage.show(common.choose_cluster(api, cluster), of)
    if output is Format.json:
        print_json(found)
        return
    for line in tree_lines(found):
        common.print_line(without_control_characters(line))
    for note in found.notes:
        common.print_note(f"note: {note}")


def tree_lines(graph: LineageGraphOut) -> Iterator[str]:
    """Yields the two trees that begin at the start of the graph. What was shown before is shown without its own branches."""
    before: dict[str, list[str]] = {}
    after: dict[str, list[str]] = {}
    for source, goal in graph.edges:
        before.setdefault(goal, []).append(source)
        after.setdefault(source, []).append(goal)
    yield _text(graph, graph.start)
    for title, others in (("made of", before), ("used by", after)):
        if others.get(graph.start):
            yield title
            yield from _branches(graph, others, graph.start, "", {graph.start})


def _branches(
    graph: LineageGraphOut, others: dict[str, list[str]], key: str, indent: str, shown: set[str]
) -> Iterator[str]:
    keys = others.get(key, [])
    for number, other in enumerate(keys, 1):
        last = number == len(keys)
        again = other in shown and bool(others.get(other))
        yield f"{indent}{'└─' if last else '├─'} {_text(graph, other)}{' (above)' if again else ''}"
        if other not in shown:
            shown.add(other)
            yield from _branches(graph, others, other, f"{indent}{'   ' if last else '│  '}", shown)


def _text(graph: LineageGraphOut, key: str) -> str:
    node = next(node for node in graph.nodes if node.key == key)
    title = node.title if node.title.startswith((node.kind, "commit", "files")) else f"{node.kind} {node.title}"
    return "  ".join(part for part in (title, node.detail, node.state) if part)
