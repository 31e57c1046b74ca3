"""Notebooks: JupyterLab as a job."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.responses import Response

from headway.api.auth.dependencies import Anyone, Member, State
from headway.api.http.pagination import ANY, Page, States, Words, fits
from headway.schemas.base import API_PREFIX
from headway.schemas.submission.notebooks import NotebookIn, NotebookLinkOut, NotebookOut
from headway.services.jobs.notebooks import notebooks as service

router = APIRouter(prefix=f"{API_PREFIX}/clusters/{{name}}/notebooks", tags=["notebooks"])


@router.get("")
async def list_notebooks(
    name: str,
    state: State,
    who: Anyone,
    page: Page,
    person: Words = ANY,
    status: States = ANY,
) -> list[NotebookOut]:
    """Returns the person's own notebooks, and for admins all of them, the latest first."""
    found = [
        row
        for row in await service.list_notebooks(state, who, name)
        if fits(row.person, person) and fits(row.state, status)
    ]
    return page.cut(found, lambda row: (row.created_at, row.id), newest=True)


@router.post("", status_code=201, name="start")
async def start_notebook(name: str, body: NotebookIn, state: State, who: Member) -> NotebookOut:
    """Submits a notebook job as the person's user."""
    return await service.start_notebook(state, who, name, body)


@router.get("/{notebook_id}")
async def get_notebook(name: str, notebook_id: str, state: State, who: Member) -> NotebookOut:
    """Returns one notebook with its present state."""
    return await service.get_notebook(state, who, name, notebook_id)


@router.post("/{notebook_id}/link", status_code=201, name="link")
async def create_notebook_link(name: str, notebook_id: str, state: State, who: Member) -> NotebookLinkOut:
    """Returns an address that opens the notebook in one browser, once. Only for the notebook's own person."""
    return await service.make_link(state, who, name, notebook_id)


@router.delete("/{notebook_id}", status_code=204, name="stop")
async def stop_notebook(name: str, notebook_id: str, state: State, who: Member) -> Response:
    """Cancels the notebook's job. Saved files are kept."""
    await service.stop_notebook(state, who, name, notebook_id)
    return Response(status_code=204)
