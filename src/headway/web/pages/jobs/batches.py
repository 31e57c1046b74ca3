"""Batches of a cluster.

GET  /clusters/NAME/batches              the list
GET  /clusters/NAME/batches/BATCH        one batch: progress, workers, rows without a result
POST /clusters/NAME/batches/BATCH/stop   stops it
POST /clusters/NAME/batches/BATCH/retry  continues one that has ended before its output was complete"""

from __future__ import annotations

from starlette.responses import Response

from headway.api.auth.dependencies import Anyone, Member, State
from headway.services.access.ownership_rights import may_act_on
from headway.services.batches import batches
from headway.web.page_context import redirect_with_message
from headway.web.page_routes import page_router
from headway.web.rendering import render

router = page_router()
SHOWN = 50  # batches in the list
_WORDS = {"submitting": "waiting", "adding": "running", "stopped": "waiting"}


@router.get("/clusters/{name}/batches")
async def batches_page(name: str, state: State, who: Anyone) -> Response:
    """Returns the list of batches, the latest first."""
    await state.clusters.row(name)
    found = batches.list_batches(await state.store.batches.recent(name, limit=SHOWN))
    return render("batches.html", viewer=who, name=name, tab="batches", batches=found, words=_WORDS)


@router.get("/clusters/{name}/batches/{batch}")
async def batch_page(name: str, batch: str, state: State, who: Anyone) -> Response:
    """Returns the page of one batch."""
    _, cluster = await state.clusters.get(name)
    row = await state.store.batches.get(name, batch)
    found = await batches.get_batch(state, who, name, row.id)
    return render(
        "batch.html",
        viewer=who,
        name=name,
        tab="batches",
        batch=found,
        percent=round(100 * found.done_rows / found.rows, 1) if found.rows else 0.0,
        words=_WORDS,
        may=may_act_on(cluster, who, row),
    )


@router.post("/clusters/{name}/batches/{batch}/stop")
async def stop_batch(name: str, batch: str, state: State, who: Member) -> Response:
    """Stops the batch."""
    found = await batches.stop_batch(state, who, name, batch)
    return redirect_with_message(f"/clusters/{name}/batches/{found.id}", f"Batch {found.name} is being stopped")


@router.post("/clusters/{name}/batches/{batch}/retry")
async def retry_batch(name: str, batch: str, state: State, who: Member) -> Response:
    """Continues the batch."""
    found = await batches.retry_batch(state, who, name, batch)
    return redirect_with_message(f"/clusters/{name}/batches/{found.id}", f"Batch {found.name} continues")
