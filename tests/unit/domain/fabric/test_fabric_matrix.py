"""The matrix of a fabric test shows pairs of nodes, or of leaf switches where there are many nodes."""

from __future__ import annotations

from headway.domain.fabric.fabric_matrix import MatrixCell, fabric_matrix
from headway.schemas.nodes.fabric_tests import FabricMeasurementOut


def measured(gb_s: float, *nodes: str, slow: bool = False) -> FabricMeasurementOut:
    return FabricMeasurementOut(kind="leaf" if len(nodes) == 2 else "all", nodes=list(nodes), gb_s=gb_s, slow=slow)


def test_best_figure_of_a_pair_counts_in_both_directions() -> None:
    leaves = {"lab-1-2": "leaf1", "lab-1-10": "leaf1", "lab-1-1": "leaf1"}
    rows = [measured(5, "lab-1-2", "lab-1-10"), measured(9, "lab-1-10", "lab-1-2"), measured(7, *leaves)]
    matrix = fabric_matrix(rows, leaves)
    assert matrix.names == ("lab-1-1", "lab-1-2", "lab-1-10")
    assert matrix.cell("lab-1-10", "lab-1-2") == matrix.cell("lab-1-2", "lab-1-10") == MatrixCell(9, False)
    assert matrix.cell("lab-1-1", "lab-1-2") is None
    assert matrix.fastest == 9


def test_many_nodes_are_shown_by_leaf_switch_with_the_slowest_pair() -> None:
    leaves = {f"lab-{leaf}-{place}": f"leaf{leaf}" for leaf in (1, 2) for place in range(1, 10)}
    rows = [
        measured(90, "lab-1-1", "lab-1-2"),
        measured(20, "lab-1-3", "lab-1-4", slow=True),
        measured(50, "lab-2-1", "lab-1-1"),
    ]
    matrix = fabric_matrix(rows, leaves)
    assert (matrix.by_leaf, matrix.names) == (True, ("leaf1", "leaf2"))
    assert matrix.cell("leaf1", "leaf1") == MatrixCell(20, True)
    assert matrix.cell("leaf2", "leaf1") == MatrixCell(50, False)
    assert matrix.cell("leaf2", "leaf2") is None


def test_nothing_measured_is_an_empty_matrix() -> None:
    assert fabric_matrix([], {}).fastest == 0
