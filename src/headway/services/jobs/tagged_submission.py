"""Jobs that the server submits in a person's name while they are away: trials of sweeps, replicas of services, batches.

Each has a tag: asked again with the same one, the head answers with the same job (node/user_helper/idempotency.py)."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from headway.domain.cluster import Cluster
from headway.errors import HeadwayError
from headway.jobs.submission.prepare_job import PreparedJob, prepare_run
from headway.schemas.submission.run_request import RunIn
from headway.services.access.ownership_rights import require_still_listed
from headway.services.access.role_rights import Principal, Right, principal_for
from headway.services.access.submit_rate import limit_submissions
from headway.services.app_state import AppState
from headway.services.jobs.submission import node_offer, record_submission

TAG_KEPT_S = 80_000.0  # seconds for which the head surely knows a tag; see node/user_helper/idempotency.py


async def absent_person(state: AppState, cluster: Cluster, person: str) -> Principal:
    """Returns the principal of a person. Raises HeadwayError if they may no longer submit jobs here."""
    found = await state.store.people.get(person)
    if found is None or found.disabled:
        raise HeadwayError(f"{person} is no person of this server any more")
    who = principal_for(found)
    who.require(Right.RUN_JOBS)
    await require_still_listed(state, cluster, who)
    return who


async def submit_tagged(
    state: AppState,
    who: Principal,
    cluster: Cluster,
    run: RunIn,
    *,
    user: str,
    mark: str,
    series: str,
    number: int,
    at: float,
    links: Mapping[str, str],
    files: Mapping[str, str] | None = None,
) -> int:
    """Submits the job with this number of a series (a sweep, a service), which was stored at `at` (unix seconds), and returns its
    number in Slurm. `files`: path -> text of further files that it needs. Raises Unanswered if it is not known whether it was
    submitted; then it may be called again."""
    prepared = prepare_run(run, cluster, user, mark, offer=node_offer(state, cluster))
    if files and prepared.stage:
        prepared = replace(prepared, stage=replace(prepared.stage, files={**prepared.stage.files, **files}))
    return await submit_prepared(
        state, who, cluster, prepared, "run", user=user, series=series, number=number, at=at, links=links
    )


async def submit_prepared(
    state: AppState,
    who: Principal,
    cluster: Cluster,
    prepared: PreparedJob,
    kind: str,
    *,
    user: str,
    series: str,
    number: int,
    at: float,
    links: Mapping[str, Any],
) -> int:
    """Submits a job of a series, as `submit_tagged`. `kind`: run or rerun, as the job's record says."""
    if state.clock() - at > TAG_KEPT_S:
        raise HeadwayError("its submission was interrupted more than a day ago; it may have a job that no one follows")
    tag = hashlib.sha256(f"{series}\n{number}".encode()).hexdigest()
    who = replace(who, idempotency_key=tag, first_sent_at=at)
    limit_submissions(state.submit_buckets, who, state.clock())
    answer = await state.backend.jobs.submit(cluster, prepared.request, user, prepared.stage, tag=tag)
    await record_submission(state, who, cluster, prepared, user, answer, kind, **links)
    return answer.job_id
