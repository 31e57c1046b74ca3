"""The latest fabric test: bandwidth between nodes as a matrix, and what is slow.

GET  /clusters/NAME/fabric-test    the latest result
POST /clusters/NAME/fabric-test    queues a test of all idle nodes"""

from __future__ import annotations

from dataclasses import dataclass

from starlette.responses import RedirectResponse, Response

from headway.api.auth.dependencies import Anyone, Operator, State
from headway.domain.fabric.fabric_matrix import FabricMatrix, fabric_matrix
from headway.schemas.nodes.fabric_tests import FabricTestIn
from headway.services.access.role_rights import Right
from headway.services.nodes import fabric_tests
from headway.services.nodes.fabric_tests import latest_fabric_test
from headway.web.page_routes import page_router
from headway.web.rendering import render

router = page_router()
_LEVELS = 5  # colours of the matrix, 1 for the lowest figures


@dataclass(frozen=True, slots=True)
class FabricCell:
    """A cell of the matrix: its figure, its colour (1 to 5), and whether it is slow. `text` is "" if not measured."""

    text: str = ""
    level: int = 0
    slow: bool = False


@router.get("/clusters/{name}/fabric-test")
async def fabric_test_page(name: str, state: State, who: Anyone) -> Response:
    """Returns the page of the latest fabric test."""
    cluster = (await state.clusters.get(name))[1]
    found = await latest_fabric_test(state, name)
    matrix = fabric_matrix(found.measurements, found.leaves) if found else None
    return render(
        "fabric_test.html",
        viewer=who,
        name=name,
        tab="nodes",
        found=found,
        matrix=matrix,
        rows=_rows(matrix) if matrix else [],
        together=[one for one in found.measurements if one.kind == "all"] if found else [],
        simulated=cluster.simulated_gpus,
        may=who.may(Right.OPERATE_NODES),
    )


@router.post("/clusters/{name}/fabric-test")
async def start_fabric_test(name: str, state: State, who: Operator) -> Response:
    """Queues a fabric test of all idle nodes and redirects to its progress."""
    operation = await fabric_tests.start_fabric_test(state, who, name, FabricTestIn())
    return RedirectResponse(f"/operations/{operation.id}", status_code=303)


def _rows(matrix: FabricMatrix) -> list[tuple[str, list[FabricCell]]]:
    return [(one, [_cell(matrix, one, other) for other in matrix.names]) for one in matrix.names]


def _cell(matrix: FabricMatrix, one: str, other: str) -> FabricCell:
    known = matrix.cell(one, other)
    if known is None:
        return FabricCell()
    level = 1 + int((_LEVELS - 1) * known.gb_s / matrix.fastest) if matrix.fastest else 1
    return FabricCell(f"{known.gb_s:.3g}", level, known.slow)
