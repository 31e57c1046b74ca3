"""A terminal in the browser: GET /clusters/NAME/terminal opens a shell on the login node, with ?job=12 or ?job=12_3 in that job,
with &node=NAME on one of its nodes. The page's script speaks to the API (`api/routers/jobs/exec_commands.py`)."""

from __future__ import annotations

import secrets

from fastapi import Query
from starlette.responses import Response

from headway.api.auth.dependencies import Member, State
from headway.api.http.security_headers import CONTENT_SECURITY_POLICY
from headway.errors import NotFound
from headway.schemas.base import API_PREFIX
from headway.services.access.ownership_rights import authorize_as_owner, cluster_to_work_on
from headway.web.page_routes import page_router
from headway.web.pages.jobs.job_reading import find_job, is_array
from headway.web.rendering import render

router = page_router()


@router.get("/clusters/{name}/terminal")
async def terminal_page(
    name: str,
    state: State,
    who: Member,
    job: str = Query("", pattern=r"^([1-9][0-9]{0,9}(_[0-9]{1,9})?)?$"),
    node: str = Query("", max_length=64),
) -> Response:
    """Returns the page with the terminal."""
    cluster = await cluster_to_work_on(state, name, who)
    found = await find_job(state, cluster, job) if job else None
    if found is not None:
        await authorize_as_owner(state, cluster, who, found, f"open a terminal in job {job}")
        if node and node not in found.nodes:
            raise NotFound(f"job {job} does not run on {node}")
    nonce = secrets.token_urlsafe(18)
    answer = render(
        "terminal.html",
        viewer=who,
        name=name,
        tab="terminal",
        address=f"{API_PREFIX}/clusters/{name}/terminals",
        nonce=nonce,
        job=job,
        array=found is not None and is_array(job, found),
        found=found,
        node=node,
        user=found.user if found is not None else who.user,
    )
    # The emulator makes style sheets and style attributes for its colours and for the size of its letters; only this page may.
    answer.headers["Content-Security-Policy"] = (
        f"{CONTENT_SECURITY_POLICY}; style-src 'self' 'nonce-{nonce}'; style-src-attr 'unsafe-inline'"
    )
    return answer
