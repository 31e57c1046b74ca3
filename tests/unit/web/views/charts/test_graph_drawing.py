"""Boxes stand in columns after those that lead to them."""

from __future__ import annotations

from headway.web.views.charts.graph_drawing import GraphNode, draw_graph


def test_boxes_stand_after_all_that_lead_to_them() -> None:
    nodes = [GraphNode(key, key) for key in "abcd"]
    drawing = draw_graph(nodes, [("a", "b"), ("a", "c"), ("b", "d"), ("c", "d"), ("a", "d"), ("a", "gone"), ("a", "b")])
    places = {box.node.key: (box.x, box.y) for box in drawing.boxes}
    assert places["a"][0] < places["b"][0] == places["c"][0] < places["d"][0]
    assert places["b"][1] != places["c"][1]
    assert len(drawing.paths) == 5
    assert "a leads to b" in drawing.label


def test_cycle_and_empty_graph_are_drawn() -> None:
    assert len(draw_graph([GraphNode("a", "a"), GraphNode("b", "b")], [("a", "b"), ("b", "a")]).boxes) == 2
    assert draw_graph([], []).boxes == ()


def test_long_texts_are_cut() -> None:
    (box,) = draw_graph([GraphNode("a", "x" * 60, "y" * 60)], []).boxes
    assert (len(box.title), len(box.line)) == (24, 30)
