"""Reads the journals of jobs from the clusters, and repeats them on the MLflow server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial

from headway.domain.cluster import Cluster
from headway.domain.slurm.job_states import ENDED
from headway.domain.slurm.nodes_and_jobs import JobState
from headway.errors import Unreachable
from headway.jobs.metrics.reader import MetricsAsk, MetricsPart
from headway.jobs.mlflow.journal_lines import JOURNALS
from headway.mlflow_files import FOLDER
from headway.schemas.server import MlflowOut
from headway.services.app_state import AppState
from headway.services.mlflow.journal_state import JournalState, JournalStates
from headway.services.mlflow.mlflow_api import MlflowApi, workspace_name
from headway.services.mlflow.replay import RUNNING, Replay, UploadedFile, end_runs
from headway.services.mlflow.run_tags import run_tags

PARTS_AT_ONCE = 16  # parts of one journal, before other jobs get their turn


@dataclass
class RepeatedJournals:
    """`complete`: jobs whose journals have nothing more now, or that have none. `asks`: (job, node) where a request waits for an
    answer of the MLflow server. `failed`: errors by job; the rest of its journal waits."""

    complete: set[int] = field(default_factory=set)
    asks: set[tuple[int, str]] = field(default_factory=set)
    failed: dict[int, Exception] = field(default_factory=dict)


def journal_states(state: AppState) -> JournalStates:
    """Returns how far each journal was repeated."""
    return JournalStates(state.settings.data / FOLDER / "journals")


async def team_api(state: AppState, cluster: str, team: str) -> MlflowApi:
    """Returns calls in the workspace of a team, which exists then. Raises Unreachable if the MLflow server does not run."""
    if state.mlflow.http is None:
        raise Unreachable(f"the MLflow server is {state.mlflow.state}", hint="headway mlflow status")
    api = MlflowApi(state.mlflow.http, workspace_name(cluster, team))
    if api.workspace not in state.mlflow.workspaces:
        await api.ensure_workspace(f"team {team} on {cluster}")
        state.mlflow.workspaces.add(api.workspace)
    return api


async def repeat_journals(state: AppState, cluster: Cluster, jobs: Iterable[JobState]) -> RepeatedJournals:
    """Repeats what the journals of these jobs have gained. Only the leader may call this. Raises Unreachable if the cluster
    does not answer. A job whose journal can't be repeated now, such as while the MLflow server does not answer, does not stop the
    others."""
    found = RepeatedJournals()
    states = journal_states(state)
    async with state.mlflow.locks.setdefault(cluster.name, asyncio.Lock()):
        known = {job.id: (job, await asyncio.to_thread(states.read, cluster.name, job.id)) for job in jobs}
        asked = [MetricsAsk(job, one.offset, one.path, JOURNALS) for job, one in known.values()]
        parts = await state.backend.jobs.metric_parts(cluster, asked)
        for number, (job, one) in known.items():
            part = parts.get(number)
            same = part is None or (part.size == one.offset and not one.waiting)
            try:
                if part is None or same or await _repeat_job(state, cluster, job, one, part, found):
                    await _end_runs(state, cluster, job)
                    found.complete.add(number)
            except Exception as error:
                found.failed[number] = error
    return found


async def _end_runs(state: AppState, cluster: Cluster, job: JobState) -> None:
    """Ends the runs that a job which has ended left open."""
    known = await asyncio.to_thread(journal_states(state).read, cluster.name, job.id)
    if has_ended(job) and RUNNING in known.runs.values():
        await end_runs(await team_api(state, cluster.name, job.account), known, job.end_time)
        await asyncio.to_thread(journal_states(state).write, cluster.name, job.id, known)


async def _repeat_job(
    state: AppState, cluster: Cluster, job: JobState, known: JournalState, part: MetricsPart, found: RepeatedJournals
) -> bool:
    """Repeats some parts of a journal. Returns whether it has nothing more."""
    if part.size < known.offset:  # the number of the job was given again
        known = JournalState()
        part = await _read_part(state, cluster, job, known) or part
    known.path = part.path
    api = await team_api(state, cluster.name, job.account)
    files = part.path.removesuffix(".jsonl") + ".files/"
    locked = partial(state.store.promotions.promoted_folders, cluster.name, job.account)
    replay = Replay(api, known, await run_tags(state, cluster, job), _FileReader(state, cluster, job, files), locked)
    try:
        for _ in range(PARTS_AT_ONCE):
            if not part.data:
                break
            await replay.repeat(part.data)
            part = await _read_part(state, cluster, job, known) or MetricsPart(part.path, b"", known.offset)
    finally:
        known.waiting = max(0, part.size - known.offset)
        await asyncio.to_thread(journal_states(state).write, cluster.name, job.id, known)
    found.asks |= {(job.id, node) for node in replay.asks if node in job.nodes}
    return not part.data


async def _read_part(state: AppState, cluster: Cluster, job: JobState, known: JournalState) -> MetricsPart | None:
    asked: Sequence[MetricsAsk] = [MetricsAsk(job, known.offset, known.path, JOURNALS)]
    return (await state.backend.jobs.metric_parts(cluster, asked)).get(job.id)


@dataclass(frozen=True)
class _FileReader:
    """Opens the uploaded files of a job."""

    state: AppState
    cluster: Cluster
    job: JobState
    folder: str

    async def __call__(self, name: str) -> UploadedFile | None:
        first = await self._read(name, 0)
        return UploadedFile(first.size, self._parts(name, first)) if first is not None else None

    async def _parts(self, name: str, first: MetricsPart) -> AsyncIterator[bytes]:
        part: MetricsPart | None = first
        offset = 0
        while part is not None and part.data:
            yield part.data
            offset += len(part.data)
            part = await self._read(name, offset) if offset < first.size else None

    async def _read(self, name: str, offset: int) -> MetricsPart | None:
        ask = MetricsAsk(self.job, offset, self.folder + name, whole_lines=False)
        return (await self.state.backend.jobs.metric_parts(self.cluster, [ask])).get(self.job.id)


def has_ended(job: JobState) -> bool:
    """Returns whether the journal of this job gains nothing more."""
    return job.state in ENDED


async def describe_mlflow(state: AppState) -> MlflowOut:
    """Returns the state of the MLflow server."""
    waiting = await asyncio.to_thread(journal_states(state).waiting)
    return MlflowOut(state=state.mlflow.state, error=state.mlflow.error, waiting_bytes=waiting)
