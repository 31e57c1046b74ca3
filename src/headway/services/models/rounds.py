"""The rounds of a promotion: each does the next step, so that a killed server loses nothing.

pending: reads the version's files and decides the gates that need no job. running: submits and follows the gates' jobs.
promoting: decides the gates again, signs the manifest, then sets the alias. A step that is interrupted is repeated: the head
submits one job for a gate, however often it is asked, and the alias is set to the same version again. Once the manifest is
signed, nothing is checked any more: the alias may be set already."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import structlog

from headway.domain.billing.ledger import Notification
from headway.domain.cluster import Cluster
from headway.domain.slurm.job_states import ENDED
from headway.domain.slurm.nodes_and_jobs import JobState
from headway.errors import HeadwayError, NotFound, Refused, TooManySubmits, Unreachable
from headway.jobs.explain.reason_lines import job_reason
from headway.jobs.promotions.gate_results import DONE, FAILED, SKIPPED, WAITING, GateJobState, GateResult
from headway.jobs.promotions.gates_file import RERUN, gate_job_run
from headway.jobs.promotions.manifest import Promoted, Source, promotion_statement
from headway.jobs.submission.prepare_job import prepare_resubmit
from headway.jobs.submission.requested_resources import without_dependency
from headway.jobs.submission.resume_point import without_resume
from headway.schemas.submission.reruns import RetryIn
from headway.services.access.role_rights import Principal
from headway.services.app_state import AppState
from headway.services.jobs.reruns import request_with_secrets, require_environments
from headway.services.jobs.tagged_submission import absent_person, submit_prepared, submit_tagged
from headway.services.jobs.training_metrics import collect_metrics
from headway.services.mlflow.mlflow_api import MlflowApi
from headway.services.models.gate_facts import check_version, job_metrics, require_rerunnable, source_record
from headway.services.models.model_versions import (
    VersionInRegistry,
    digest_of_files,
    file_digests,
    read_version,
    registry,
    set_alias,
    version_folder,
    version_of_alias,
)
from headway.services.models.promotion_rights import require_still_allowed
from headway.services.models.signing import sign
from headway.services.models.stored_promotion import StoredPromotion, jobs_of, stored_jobs
from headway.store.jobs.promotions import PromotionRow

log = structlog.get_logger("headway.services.models")


@dataclass(frozen=True)
class _Round:
    """What a round of a promotion needs."""

    state: AppState
    cluster: Cluster
    row: PromotionRow
    stored: StoredPromotion
    api: MlflowApi

    async def change(self, **values: Any) -> bool:
        """Stores changes."""
        return await self.state.store.promotions.change(self.row.id, of_state=self.row.state, **values)

    async def version(self) -> VersionInRegistry:
        """Returns the version. Raises NotFound if it was deleted."""
        return await read_version(self.api, self.row.model, self.row.version)

    async def files(self, version: VersionInRegistry) -> dict[str, str]:
        """Returns the digests of the version's files, which must be the same during the whole promotion. Raises Refused."""
        found = await file_digests(self.api, version)
        if self.row.files and digest_of_files(found) != self.row.files:
            raise Refused(f"the files of {self.row.label} changed while its gates were checked")
        return found


async def advance_promotion(state: AppState, row: PromotionRow) -> None:
    """Does one round of a promotion. While its cluster or MLflow does not answer, each round tries again; the first of
    them raises Unreachable."""
    try:
        _, cluster = await state.clusters.get(row.cluster)
        api = await registry(state, cluster, row.team)
        one = _Round(state, cluster, row, StoredPromotion.of(row), api)
        if not row.manifest:
            await require_still_allowed(state, cluster, row, one.stored)
        await _STEPS[row.state](one)
    except Unreachable as error:
        if row.why != error.message:
            await state.store.promotions.change(row.id, of_state=row.state, why=error.message)
            raise
    except HeadwayError as error:
        await _refuse(state, row, error.message)


async def _begin(one: _Round) -> None:
    """Decides the gates that need no job. Begins the jobs only if none of these gates has failed."""
    version = await one.version()
    folder, files = await version_folder(one.api, version), digest_of_files(await one.files(version))
    results = await check_version(one.state, one.cluster, one.row, one.stored.gates, version, files, {})
    if any(result.state == FAILED for result in results):
        shown = [replace(gate, state=SKIPPED) if gate.state == WAITING else gate for gate in results]
        await _refuse(one.state, one.row, _failure(results), shown, files=files)
        return
    names, now = one.stored.gates.job_names(), one.state.clock()
    kept = {**one.row.document, "folder": folder}
    values: dict[str, Any] = {"files": files, "results": _stored(results), "why": "", "document": kept}
    if names:
        await one.change(state="running", jobs=stored_jobs({name: GateJobState(at=now) for name in names}), **values)
    else:
        await one.change(state="promoting", **values)
    one.state.promotions_due.set()


async def _run_jobs(one: _Round) -> None:
    """Submits the jobs that wait for it, and follows the others. Decides all gates when all jobs have ended."""
    jobs = jobs_of(one.row)
    for number, (name, job) in enumerate(jobs.items(), 1):
        if job.state == "submitting":
            jobs[name] = await _submit(one, name, number, job)
            await one.change(jobs=stored_jobs(jobs), why="")
    running = {name: job for name, job in jobs.items() if job.state == "running"}
    if running:
        jobs |= await _follow(one, running)
    unfinished = any(job.state not in (DONE, FAILED) for job in jobs.values())
    if unfinished and stored_jobs(jobs) == dict(one.row.jobs):
        if one.row.why:
            await one.change(why="")
        return
    version = await one.version()
    results = await check_version(one.state, one.cluster, one.row, one.stored.gates, version, one.row.files, jobs)
    await one.change(jobs=stored_jobs(jobs), results=_stored(results), why="")
    if unfinished:
        return
    if any(result.state == FAILED for result in results):
        await _refuse(one.state, one.row, _failure(results), results)
    else:
        await one.change(state="promoting")
        one.state.promotions_due.set()


async def _submit(one: _Round, name: str, number: int, job: GateJobState) -> GateJobState:
    """Returns the job after its submission; a failed one if it was refused. Raises Unreachable if it is to be tried again."""
    try:
        who = await absent_person(one.state, one.cluster, one.row.person)
        if name == RERUN:
            job_id = await _submit_rerun(one, who, number, job)
        else:
            job_id = await _submit_evaluation(one, who, name, number, job)
        return replace(job, state="running", job_id=job_id)
    except TooManySubmits as error:
        raise Unreachable(f"job {name} waits for its submission: {error.message}") from None
    except Unreachable:
        raise
    except HeadwayError as error:
        return replace(job, state=FAILED, why=error.message)


async def _submit_evaluation(one: _Round, who: Principal, name: str, number: int, job: GateJobState) -> int:
    row, stored = one.row, one.stored
    bundle, git = ("", None) if name in stored.required.get("jobs", {}) else (stored.bundle, stored.git)
    run = gate_job_run(
        stored.gates.jobs[name], name, model=row.model, version=row.version, team=row.team, bundle=bundle, git=git
    )
    return await submit_tagged(
        one.state, who, one.cluster, run, user=row.user, mark=stored.mark, series=row.id, number=number, at=job.at, links={}
    )  # fmt: skip


async def _submit_rerun(one: _Round, who: Principal, number: int, job: GateJobState) -> int:
    record = await require_rerunnable(one.state, one.cluster, who, await one.version())
    await require_environments(one.state, record)
    sent = without_dependency(without_resume(request_with_secrets(record, RetryIn())))
    prepared = prepare_resubmit(sent, record.facts, one.cluster, record.user, one.stored.mark)
    return await submit_prepared(
        one.state, who, one.cluster, prepared, RERUN, user=record.user, series=one.row.id, number=number, at=job.at,
        links={"parent": record.job_id},
    )  # fmt: skip


async def _follow(one: _Round, running: Mapping[str, GateJobState]) -> dict[str, GateJobState]:
    """Returns the jobs as they are now. A job that has ended is done when its metrics were read to their end."""
    state, cluster = one.state, one.cluster
    snapshot = await state.readings.snapshot(cluster)
    if snapshot.stale:
        raise Unreachable(snapshot.stale)
    known: dict[int, JobState] = {}
    for job in running.values():
        found = snapshot.by_id.get(job.job_id)
        if found is None:
            with contextlib.suppress(NotFound):
                found = await state.readings.job(cluster, job.job_id)
        if found is not None:
            known[job.job_id] = found
    ended = [job for job in known.values() if job.state in ENDED]
    more = await collect_metrics(state, cluster, ended) if ended else set()
    return {name: await _followed(one, job, known.get(job.job_id), more) for name, job in running.items()}


async def _followed(one: _Round, job: GateJobState, slurm: JobState | None, more: set[int]) -> GateJobState:
    if slurm is None:
        return replace(job, state=FAILED, why=f"Slurm does not know job {job.job_id} any more")
    if slurm.state not in ENDED or job.job_id in more:
        return job
    if slurm.state != "COMPLETED":
        return replace(job, state=FAILED, why=job_reason(slurm) or slurm.state)
    return replace(job, state=DONE, metrics=await job_metrics(one.state, one.cluster.name, job.job_id))


async def _promote(one: _Round) -> None:
    """Decides the gates again and signs the manifest, once, and sets the alias. The manifest tells the files as they are just
    before."""
    row, former = one.row, one.row.document.get("former")
    if not row.manifest:
        version = await one.version()
        files = await one.files(version)
        gates, jobs = one.stored.gates, jobs_of(row)
        results = await check_version(one.state, one.cluster, row, gates, version, row.files, jobs)
        if any(result.state == FAILED for result in results):
            await _refuse(one.state, row, _failure(results), results)
            return
        former = await version_of_alias(one.api, row.model, row.alias)
        promoted = Promoted(
            row.id, row.cluster, row.team, row.model, row.version, row.alias, row.person, row.at, one.state.clock(), former,
            await _source(one, version), results,
        )  # fmt: skip
        manifest = await sign(one.state, row.cluster, promotion_statement(promoted, files))
        document = {**row.document, "former": former}
        await one.change(manifest=manifest, results=_stored(results), document=document)
    await set_alias(one.api, row.model, row.alias, row.version)
    text = f"{row.person} promoted {row.team}/{row.label} to {row.alias}"
    before = f"; before it was {row.model}@{former}" if former and former != row.version else ""
    await _notify(one.state, row, "ModelPromoted", "info", f"{row.label} is {row.alias}", text + before)
    if await one.change(state="promoted", why="", ended_at=one.state.clock()):
        await _audit(one.state, row, "ok")


async def _source(one: _Round, version: VersionInRegistry) -> Source:
    found = Source(version.run, version.source.job, version.source.user)
    record = await source_record(one.state, one.row.cluster, version)
    if record is None:
        return found
    git = record.request.get("git") or {}
    return replace(
        found,
        commit=str(git.get("commit") or ""),
        dirty=bool(git.get("dirty")),
        files=str(record.request.get("bundle") or ""),
        container=str(record.facts.get("container_image") or ""),
        datasets=record.facts.get("datasets", []),
        environments=record.facts.get("environments", []),
    )


async def _refuse(
    state: AppState, row: PromotionRow, why: str, results: Sequence[GateResult] | None = None, **values: Any
) -> None:
    """Stores that the promotion is refused, and tells it."""
    title = f"{row.label} was not promoted to {row.alias}"
    await _notify(state, row, "ModelPromotionRefused", "warning", title, why)
    if results is not None:
        values["results"] = _stored(results)
    if await state.store.promotions.change(
        row.id, of_state=row.state, state="refused", why=why, ended_at=state.clock(), **values
    ):
        await _audit(state, row, "refused")


async def _notify(state: AppState, row: PromotionRow, kind: str, severity: str, title: str, text: str) -> None:
    """Stores a message for the alert channels of the cluster, once for each promotion."""
    notification = Notification(
        f"promotion/{row.id}/{kind}", kind, severity, f"{row.cluster}: {title}", text, int(state.clock())
    )
    await state.store.notifications.add(row.cluster, notification)


async def _audit(state: AppState, row: PromotionRow, result: str) -> None:
    detail = {"promotion": row.id, "model": f"{row.team}/{row.label}", "alias": row.alias}
    await state.store.audit.record(row.person, "model-promoted", row.cluster, detail, result=result)


def _stored(results: Sequence[GateResult]) -> list[dict[str, Any]]:
    return [asdict(result) for result in results]


def _failure(results: Sequence[GateResult]) -> str:
    """Returns which gates have failed, with what each wants and saw."""
    failed = [result for result in results if result.state == FAILED]
    return "; ".join(f"gate {one.name} wants {one.wants}: {one.saw}" for one in failed)


_STEPS = {"pending": _begin, "running": _run_jobs, "promoting": _promote}
