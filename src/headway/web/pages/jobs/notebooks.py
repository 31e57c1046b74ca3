"""Notebooks of a cluster: start, open, stop.

GET  /clusters/NAME/notebooks          the page; htmx refreshes its list every few seconds
POST /clusters/NAME/notebooks          starts a notebook
GET  /clusters/NAME/notebooks/ID/open  redirects this browser to the notebook (a form can't: our form-action policy forbids it)
POST /clusters/NAME/notebooks/ID/stop  cancels the notebook's job
"""

from __future__ import annotations

from functools import partial
from typing import Any

from fastapi import Request
from pydantic import ValidationError
from starlette.datastructures import FormData
from starlette.responses import RedirectResponse, Response

from headway.api.auth.dependencies import Anyone, Member, State
from headway.api.http.failure_audit import audit_failure
from headway.domain import notebook_defaults
from headway.errors import HeadwayError
from headway.schemas.submission.notebooks import NotebookIn
from headway.services.access.role_rights import Principal, Right
from headway.services.app_state import AppState
from headway.services.jobs.notebooks import notebooks
from headway.web import form_idempotency
from headway.web.page_routes import page_router
from headway.web.rendering import render

router = page_router()
FIELDS = ("gpus", "time", "partition", "team", "idle_minutes")
DEFAULTS = {
    "gpus": str(notebook_defaults.GPUS),
    "time": notebook_defaults.TIME_LIMIT,
    "partition": "",
    "team": "",
    "idle_minutes": str(notebook_defaults.IDLE_MINUTES),
}


@router.get("/clusters/{name}/notebooks")
async def notebooks_page(name: str, state: State, who: Anyone) -> Response:
    """Returns the page of notebooks."""
    return await _page(name, state, who, DEFAULTS)


@router.post("/clusters/{name}/notebooks")
async def start_notebook(name: str, request: Request, state: State, who: Member) -> Response:
    """Starts a notebook."""
    async with request.form(max_files=0, max_fields=20) as form:
        return await form_idempotency.submit_once(
            request, form, state, who, partial(_start, name, form, request, state)
        )


async def _start(
    name: str, form: FormData, request: Request, state: AppState, who: Principal
) -> form_idempotency.FormDone | Response:
    sent = {key: str(form.get(key, "")).strip() for key in FIELDS}
    try:
        notebook_request = NotebookIn.model_validate({k: v for k, v in sent.items() if v})
        await notebooks.start_notebook(state, who, name, notebook_request)
    except ValidationError as error:
        faults = {str(detail["loc"][0]): detail["msg"] for detail in error.errors(include_url=False)}
        return await _page(name, state, who, sent, faults=faults, status=422)
    except HeadwayError as error:
        await audit_failure(request, error)
        return await _page(name, state, who, sent, error=error, status=error.http_status)
    return form_idempotency.FormDone(f"/clusters/{name}/notebooks")


@router.get("/clusters/{name}/notebooks/{notebook_id}/open")
async def lead_in(name: str, notebook_id: str, state: State, who: Member) -> Response:
    """Redirects the browser to the notebook."""
    link = await notebooks.make_link(state, who, name, notebook_id)
    return RedirectResponse(
        link.url, status_code=303, headers={"Cache-Control": "no-store", "Referrer-Policy": "no-referrer"}
    )


@router.post("/clusters/{name}/notebooks/{notebook_id}/stop")
async def stop_notebook(name: str, notebook_id: str, state: State, who: Member) -> Response:
    """Cancels the notebook's job."""
    await notebooks.stop_notebook(state, who, name, notebook_id)
    return RedirectResponse(f"/clusters/{name}/notebooks", status_code=303)


async def _page(name: str, state: Any, who: Any, sent: dict[str, str], **more: Any) -> Response:
    _, cluster = await state.clusters.get(name)
    found = await notebooks.list_notebooks(state, who, name)
    mine = next((user.teams for user in cluster.users if user.name == who.user), ())
    values = {"faults": {}, "error": None, "status": 200, **more}
    return render(
        "notebooks.html",
        status=values.pop("status"),
        viewer=who,
        name=name,
        tab="notebooks",
        notebooks=found,
        moving=any(row.state in ("waiting", "starting") for row in found),
        cluster=cluster,
        teams=mine if len(mine) > 1 else (),
        may=who.may(Right.RUN_JOBS),
        sent=sent,
        form_key=form_idempotency.new_form_key(),
        **values,
    )
