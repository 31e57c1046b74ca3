"""A drawing of things that lead to each other, in columns from left to right: steps of a pipeline, lineage. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

BOX_WIDTH, BOX_HEIGHT = 190.0, 58.0  # units of the drawing
_GAP_X, _GAP_Y, _MARGIN = 44.0, 14.0, 4.0
_TITLE_LENGTH, _LINE_LENGTH = 24, 30  # characters that fit into a box


@dataclass(frozen=True, slots=True)
class GraphNode:
    """A box. `kind` selects its style: waiting, running, done, failed, cancelled, or "". `href`: "" for no link."""

    key: str
    title: str
    line: str = ""
    kind: str = ""
    href: str = ""


@dataclass(frozen=True, slots=True)
class Box:
    """A node and its place."""

    node: GraphNode
    x: float
    y: float

    @property
    def title(self) -> str:
        """The title, cut to the width of the box."""
        return _cut(self.node.title, _TITLE_LENGTH)

    @property
    def line(self) -> str:
        """The second line, cut to the width of the box."""
        return _cut(self.node.line, _LINE_LENGTH)


@dataclass(frozen=True, slots=True)
class GraphDrawing:
    """Boxes, and SVG paths of the arrows between them. `label`: the graph in words, for people who do not see it."""

    boxes: tuple[Box, ...]
    paths: tuple[str, ...]
    width: float
    height: float
    label: str


def draw_graph(nodes: Sequence[GraphNode], edges: Sequence[tuple[str, str]]) -> GraphDrawing:
    """Returns the drawing. `edges`: (from, to) by key; those of other keys are left out. A node is in the column after the last
    of its predecessors."""
    known = {node.key for node in nodes}
    used = [(source, goal) for source, goal in dict.fromkeys(edges) if {source, goal} <= known and source != goal]
    columns = _columns([node.key for node in nodes], used)
    rows = _rows(columns, used)
    boxes = {
        node.key: Box(
            node,
            _MARGIN + columns[node.key] * (BOX_WIDTH + _GAP_X),
            _MARGIN + rows[node.key] * (BOX_HEIGHT + _GAP_Y),
        )
        for node in nodes
    }
    width = max((box.x for box in boxes.values()), default=0.0) + BOX_WIDTH + _MARGIN
    height = max((box.y for box in boxes.values()), default=0.0) + BOX_HEIGHT + _MARGIN
    titles = {node.key: node.title for node in nodes}
    label = "; ".join(f"{titles[source]} leads to {titles[goal]}" for source, goal in used)
    long = {(source, goal) for source, goal in used if columns[goal] - columns[source] > 1}
    paths = (_path(boxes[edge[0]], boxes[edge[1]], around=edge in long) for edge in used)
    return GraphDrawing(tuple(boxes.values()), tuple(paths), width, height + (_GAP_Y if long else 0.0), label)


def _columns(keys: Sequence[str], edges: Sequence[tuple[str, str]]) -> dict[str, int]:
    """Returns the column of each node: the length of the longest way to it. Edges that close a cycle end the search."""
    columns = dict.fromkeys(keys, 0)
    for _ in keys:
        changed = False
        for source, goal in edges:
            if columns[goal] <= columns[source] < len(keys) - 1:
                columns[goal] = columns[source] + 1
                changed = True
        if not changed:
            break
    return columns


def _rows(columns: Mapping[str, int], edges: Sequence[tuple[str, str]]) -> dict[str, int]:
    """Returns the row of each node in its column. Nodes are near the rows of their predecessors."""
    rows: dict[str, int] = {}
    for column in range(max(columns.values(), default=0) + 1):
        inside = [key for key, place in columns.items() if place == column]
        before = {key: [rows[source] for source, goal in edges if goal == key and source in rows] for key in inside}
        order = sorted(inside, key=lambda key: sum(before[key]) / len(before[key]) if before[key] else 0.0)
        rows |= {key: row for row, key in enumerate(order)}
    return rows


def _path(source: Box, goal: Box, *, around: bool) -> str:
    """Returns the arrow from a box to another. `around`: below the boxes of the columns between them."""
    x, y = source.x + BOX_WIDTH, source.y + BOX_HEIGHT / 2
    to_x, to_y = goal.x, goal.y + BOX_HEIGHT / 2
    if around:
        below, part = max(source.y, goal.y) + BOX_HEIGHT + _GAP_Y / 2, _GAP_X / 2
        down = f"C{x + part:g} {y:g} {x + 4:g} {below:g} {x + _GAP_X:g} {below:g}"
        return f"M{x:g} {y:g}{down}H{to_x - _GAP_X:g}C{to_x - 4:g} {below:g} {to_x - part:g} {to_y:g} {to_x - 5:g} {to_y:g}"
    bend = max((to_x - x) / 2, 16.0)
    return f"M{x:g} {y:g}C{x + bend:g} {y:g} {to_x - bend:g} {to_y:g} {to_x - 5:g} {to_y:g}"


def _cut(text: str, length: int) -> str:
    return text if len(text) <= length else f"{text[: length - 1]}…"
