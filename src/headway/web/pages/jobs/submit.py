"""The page that submits a job: a script or a command, checked while it is written, with the expected place and start.

GET  /clusters/NAME/submit          the form; ?from=ID fills it with another job's script, ?example=training with a first
                                    training, ?how=command starts with a command
POST /clusters/NAME/submit/check    checks the input: faults next to their fields, or the expected start (htmx)
POST /clusters/NAME/submit          submits it, and redirects to the job's page
"""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import replace
from functools import partial

from fastapi import Request
from starlette.responses import HTMLResponse, Response

from headway.api.auth.dependencies import Member, State
from headway.api.http.failure_audit import audit_failure
from headway.api.http.security_headers import PAGE_HEADERS
from headway.domain.cluster import Cluster
from headway.domain.environment import NO_ENVIRONMENT
from headway.domain.slurm.nodes_and_jobs import JobState
from headway.errors import HeadwayError, NotAllowed, Unanswered, Unreachable
from headway.jobs.submission.submission_check import sbatch_fault
from headway.schemas.base import FaultOut
from headway.schemas.billing.cost_estimate import EstimateOut
from headway.schemas.submission.submission_check import CheckJobIn, CheckJobOut
from headway.services.access.ownership_rights import cluster_to_work_on
from headway.services.access.role_rights import Principal
from headway.services.app_state import AppState
from headway.services.billing.budgets import cached_budgets
from headway.services.billing.cost_estimate import estimate_cost
from headway.services.jobs import reruns, submission
from headway.services.jobs.clone import clone_source
from headway.services.jobs.scripts.conversion import offer_conversion
from headway.services.storage.environments import environment_choices
from headway.store import StoreUnavailable
from headway.web import form_idempotency
from headway.web.page_routes import page_router
from headway.web.rendering import render, templates
from headway.web.views.submit_page import submit_form as view
from headway.web.views.submit_page.first_training import first_training
from headway.web.views.submit_page.resubmission import changes, copied_from
from headway.web.views.submit_page.submit_form import SubmitForm

router = page_router()
RECENT = 5  # jobs of the person that an empty form offers


@router.get("/clusters/{name}/submit", response_model=None)
async def submit_page(name: str, request: Request, state: State, who: Member) -> Response:
    """Returns the form, empty or filled with another job."""
    number = request.query_params.get("from", "")
    draft = SubmitForm(how="command" if request.query_params.get("how") == "command" else "script")
    if request.query_params.get("example") == "training":
        _, cluster = await state.clusters.get(name)
        draft = SubmitForm(script=first_training(submission.node_offer(state, cluster).gpus))
    copied = number if number.isascii() and number.isdigit() and len(number) < 10 else ""
    if copied:
        draft = SubmitForm.of_clone(await clone_source(state, who, name, int(copied)))
        draft = replace(draft, copied=copied, before=copied_from(draft))
    return await _page(name, state, who, draft, CheckJobOut())


@router.post("/clusters/{name}/submit/check", response_model=None)
async def check_job(name: str, request: Request, state: State, who: Member) -> Response:
    """Checks the form and returns the parts of the page with faults or the expected start."""
    draft = SubmitForm.of(await request.form())
    checked = await _checked(name, state, who, draft)
    price = await _price(name, state, who, draft, checked)
    faults_by_field = view.faults_by_field(checked.faults, draft.how)
    values = {
        "draft": draft,
        "checked": checked,
        "price": price,
        "budgets": [],
        "faults_by_field": faults_by_field,
        "unsure": "",
        "marks": view.marks(draft, checked),
        "changes": await asyncio.to_thread(changes, draft),
        "conversion": await offer_conversion(draft.script) if draft.how == "script" else None,
        "oob": True,
    }
    text = templates().get_template("parts/submit_check.html").render(**values)
    return HTMLResponse(text, headers=PAGE_HEADERS)


@router.post("/clusters/{name}/submit", response_model=None)
async def submit_job(name: str, request: Request, state: State, who: Member) -> Response:
    """Submits the job once, however often the form is sent."""
    form = await request.form()
    return await form_idempotency.submit_once(
        request, form, state, who, partial(_send, name, SubmitForm.of(form), request, state)
    )


async def _send(
    name: str, draft: SubmitForm, request: Request, state: AppState, who: Principal
) -> form_idempotency.FormDone | Response:
    checked = await _checked(name, state, who, draft)
    check_request, _ = view.request(draft)
    if checked.faults or check_request is None:
        return await _page(name, state, who, draft, checked, status=422)
    try:
        number = await _sent(name, draft, check_request, state, who)
    except NotAllowed:
        raise
    except HeadwayError as error:
        await audit_failure(request, error)
        if isinstance(
            error, Unanswered | StoreUnavailable
        ):  # it was sent: sending it under another key might submit a second job
            again = str(
                (await request.form()).get(form_idempotency.KEY_FIELD, "")
            )  # with the same key a resent form is submitted only once
            return await _page(
                name, state, who, draft, checked, status=error.http_status, unsure=error.message, again=again
            )
        page = await _page(name, state, who, draft, _refused(error), status=error.http_status)
        if error.retry_after_s:
            page.headers["retry-after"] = str(error.retry_after_s)
        return page
    return form_idempotency.FormDone(f"/clusters/{name}/jobs/{number}", f"Job {number} is submitted")


async def _sent(name: str, draft: SubmitForm, request: CheckJobIn, state: AppState, who: Principal) -> int:
    if request.run is not None:
        return (await submission.submit_command(state, who, name, request.run)).job_id
    assert request.submit is not None
    if draft.origin:
        return (await reruns.rerun_changed(state, who, name, int(draft.origin), request.submit)).job_id
    return (await submission.submit_script(state, who, name, request.submit)).job_id


async def _checked(name: str, state: AppState, who: Principal, draft: SubmitForm) -> CheckJobOut:
    request, unreadable = view.request(draft)
    if request is None:
        return CheckJobOut(faults=unreadable)
    try:
        return await submission.check_submission(state, who, name, request)
    except NotAllowed:
        raise
    except HeadwayError as error:
        return _refused(error)


async def _price(
    name: str, state: AppState, who: Principal, draft: SubmitForm, checked: CheckJobOut
) -> EstimateOut | None:
    """Returns the estimated price of a job that could be submitted; None for one with faults."""
    request, _ = view.request(draft)
    if request is None or checked.faults:
        return None
    _, cluster = await state.clusters.get(name)
    return await estimate_cost(state, who, cluster, request, checked, submission.node_offer(state, cluster))


def _refused(error: HeadwayError) -> CheckJobOut:
    """Returns the error as a fault, so that the input stays on the page with Slurm's message; without a field if
    Slurm could not be reached."""
    fault = sbatch_fault(error.message, error.hint)
    path = "" if isinstance(error, Unreachable | StoreUnavailable) else fault.path
    return CheckJobOut(faults=[FaultOut(path=path, message=fault.message, hint=fault.hint)])


async def _recent(state: AppState, cluster: Cluster, who: Principal) -> list[JobState]:
    """Returns the person's last jobs, one of each name, newest first. Without accounting only those in the queue."""
    snapshot = state.live.snapshot(cluster.name)
    jobs = snapshot.jobs
    with contextlib.suppress(HeadwayError, TimeoutError, OSError):
        jobs = snapshot.with_ended(await state.readings.history(cluster))
    own = sorted((job for job in jobs if job.user == who.user), key=lambda job: job.submit_time)
    last = {job.name: job for job in own}  # a later job replaces an earlier one of the same name
    return sorted(last.values(), key=lambda job: -job.submit_time)[:RECENT]


async def _page(
    name: str,
    state: AppState,
    who: Principal,
    draft: SubmitForm,
    checked: CheckJobOut,
    *,
    status: int = 200,
    unsure: str = "",
    again: str = "",
) -> Response:
    """Returns the form. `unsure`: why it is unknown whether the job was submitted; `again`: the form key of that
    submission."""
    cluster = await cluster_to_work_on(state, name, who)
    mine = [team.name for team in cluster.teams if who.user in team.users]
    return render(
        "submit.html",
        status=status,
        viewer=who,
        name=name,
        tab="submit",
        draft=draft,
        checked=checked,
        price=None,
        budgets=[budget for budget in await cached_budgets(state, cluster) if budget.team in mine],
        faults_by_field=view.faults_by_field(checked.faults, draft.how),
        partitions=[partition.name for partition in cluster.partitions],
        teams=mine or [team.name for team in cluster.teams],
        node_gpus=submission.node_offer(state, cluster).gpus,
        environments=[NO_ENVIRONMENT, *await environment_choices(state, name)],
        launchers=view.LAUNCHERS,
        example=view.EXAMPLE,
        containers=cluster.containers,
        changes=await asyncio.to_thread(changes, draft),
        form_key=again or form_idempotency.new_form_key(),
        unsure=unsure,
        conversion=None,
        marks=view.marks(draft, checked),
        recent=await _recent(state, cluster, who) if draft == SubmitForm(how=draft.how) else [],
        oob=False,
    )
