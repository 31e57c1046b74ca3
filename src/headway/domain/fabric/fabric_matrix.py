"""The figures of a fabric test as a matrix, of nodes or, for many nodes, of leaf switches. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

from headway.domain.slurm.hostlist import natural_key

MOST_NODES = 16  # more are shown by leaf switch


class Measured(Protocol):
    """One measurement, as in schemas.nodes.fabric_tests."""

    @property
    def nodes(self) -> list[str]:
        """Returns the nodes that were measured together; two for a pair."""
        ...

    @property
    def gb_s(self) -> float:
        """Returns the bandwidth in GB/s."""
        ...

    @property
    def slow(self) -> bool:
        """Returns whether the bandwidth is below what this link should have."""
        ...


@dataclass(frozen=True, slots=True)
class MatrixCell:
    """The figure of a pair. `slow`: every figure of the pair (of one of its pairs, between leaf switches) was too low."""

    gb_s: float
    slow: bool


@dataclass(frozen=True, slots=True)
class FabricMatrix:
    """Figures by row and column. `by_leaf`: rows and columns are leaf switches, and a cell is their slowest pair."""

    names: tuple[str, ...]
    cells: Mapping[tuple[str, str], MatrixCell]
    by_leaf: bool

    def cell(self, one: str, other: str) -> MatrixCell | None:
        """Returns the figure between the two; None if it was not measured."""
        return self.cells.get((one, other)) or self.cells.get((other, one))

    @property
    def fastest(self) -> float:
        """The largest figure, in GB/s; 0 without any."""
        return max((cell.gb_s for cell in self.cells.values()), default=0.0)


def fabric_matrix(measurements: Iterable[Measured], leaves: Mapping[str, str]) -> FabricMatrix:
    """Returns the matrix of the pairs. `leaves`: measured node -> leaf switch. Of several figures of a pair the best one
    counts, because other load can only make a figure lower."""
    pairs: dict[tuple[str, str], MatrixCell] = {}
    for one in measurements:
        if len(one.nodes) == 2 and all(node in leaves for node in one.nodes):
            first, second = sorted(one.nodes, key=natural_key)
            known = pairs.get((first, second))
            if known is None or one.gb_s > known.gb_s:
                pairs[first, second] = MatrixCell(one.gb_s, one.slow)
    if len(leaves) <= MOST_NODES:
        return FabricMatrix(tuple(sorted(leaves, key=natural_key)), pairs, by_leaf=False)
    cells: dict[tuple[str, str], MatrixCell] = {}
    for (one_node, other_node), cell in pairs.items():
        low, high = sorted((leaves[one_node], leaves[other_node]), key=natural_key)
        if (known := cells.get((low, high))) is None or cell.gb_s < known.gb_s:
            cells[low, high] = cell
    return FabricMatrix(tuple(sorted(set(leaves.values()), key=natural_key)), cells, by_leaf=True)
