"""The results that the steps of a pipeline recorded in its folder. They are read once a step has ended, and then kept in
the store, because the owner may delete the folder."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from headway.domain.cluster import Cluster
from headway.domain.slurm.job_states import ENDED
from headway.domain.slurm.nodes_and_jobs import JobState
from headway.errors import HeadwayError, Unanswered
from headway.jobs.pipelines.pipeline_file import Pipeline
from headway.jobs.pipelines.step_plan import StepResult, parse_result, result_path, stored_results
from headway.schemas.submission.exec_commands import ExecIn
from headway.services.app_state import AppState
from headway.store import PipelineRow
from headway.transport.remote_program import program_source

_HAS_RESULT = {"COMPLETED", "CANCELLED"}  # a skipped step's job is cancelled
_LATE_S = 120.0  # a job that ended longer ago without a result will not get one; shared storage may show files late
_MOST_FILES = 64  # of one user, for one request; later requests read the rest
_AGAIN_S = 60.0  # after a failed look at a user's files
_FORGET_S = 60.0


@dataclass(frozen=True, slots=True)
class StepJobs:
    """A pipeline and its jobs. `now`: the current job of each step."""

    row: PipelineRow
    pipeline: Pipeline
    now: Mapping[str, int]
    jobs: Mapping[int, JobState]

    def unread(self) -> dict[str, int]:
        """Returns the steps whose jobs have ended and whose results have not been looked for, with their jobs."""
        if not self.pipeline.passes_outputs:
            return {}
        looked = self.row.document.get("looked", {})
        return {
            step: number
            for step, number in self.now.items()
            if (job := self.jobs.get(number)) and job.state in _HAS_RESULT and looked.get(step) != number
        }


async def step_results(state: AppState, cluster: Cluster, asked: Sequence[StepJobs]) -> list[dict[str, StepResult]]:
    """Returns the results by step of each pipeline. Reads those of jobs that have ended since the last time, with one call for
    each owner; if the cluster does not answer, returns what is stored."""
    paths: dict[str, list[str]] = {}
    for one in asked:
        for step in one.unread():
            paths.setdefault(one.row.user, []).append(result_path(one.row.workdir, step))
    some = {user: of_user[:_MOST_FILES] for user, of_user in paths.items()}
    read = await asyncio.gather(*(_read(state, cluster, user, of_user) for user, of_user in some.items()))
    files = {path: content for of_user in read for path, content in of_user.items()}
    return [await _with_new(state, one, files) for one in asked]


async def all_step_results(state: AppState, cluster: Cluster, one: StepJobs) -> dict[str, StepResult]:
    """Returns the results by step of one pipeline, however many of them have to be read. Raises HeadwayError if the cluster
    does not answer."""
    paths = [result_path(one.row.workdir, step) for step in one.unread()]
    files: dict[str, bytes | None] = {}
    for first in range(0, len(paths), _MOST_FILES):
        block = paths[first : first + _MOST_FILES]
        found = await state.backend.jobs.step_result_files(cluster, one.row.user, block)
        files |= {path: found.get(path) for path in block}
    return await _with_new(state, one, files)


async def _read(state: AppState, cluster: Cluster, user: str, paths: Sequence[str]) -> Mapping[str, bytes | None]:
    """Returns the content of these files by path, None for those that are missing; {} if the cluster does not answer."""

    async def failed_now() -> float:
        return state.clock()

    key = f"{cluster.name}/failed look at step results/{user}"
    failed_at = state.cache.peek(key)
    if failed_at is not None and 0 <= state.clock() - failed_at < _AGAIN_S:
        return {}
    try:
        found = await state.backend.jobs.step_result_files(cluster, user, paths)
    except HeadwayError:
        await state.cache.get(key, 0, failed_now)
        return {}
    return {path: found.get(path) for path in paths}


async def _with_new(state: AppState, one: StepJobs, files: Mapping[str, bytes | None]) -> dict[str, StepResult]:
    """Returns the stored results of a pipeline and those in `files`, and stores these."""
    if not one.pipeline.passes_outputs:
        return {}
    known, looked = {}, {}
    for step, number in one.unread().items():
        path = result_path(one.row.workdir, step)
        if path not in files:
            continue
        content = files[path]
        result = parse_result(content) if content is not None else None
        if result is not None and result.job == number:
            known[step] = result
        if step in known or _is_late(one.jobs[number], state.clock()):
            looked[step] = number
    if looked:
        new = {step: result.model_dump(mode="json") for step, result in known.items()}
        await state.store.pipelines.save_results(one.row.id, new, looked)
    return {**stored_results(one.row.document.get("results", {})), **known}


async def forget_results(
    state: AppState, cluster: Cluster, row: PipelineRow, earlier: Mapping[str, Sequence[int]]
) -> None:
    """Deletes the results that these earlier jobs of steps recorded, so that no other step reads them. Raises HeadwayError if
    the cluster does not answer."""
    words = [f"{step}={number}" for step, numbers in earlier.items() for number in numbers]
    argv = ["python3", "-I", "-S", "-c", program_source("pipeline_step"), "forget", row.workdir, *words]
    try:
        async with asyncio.timeout(_FORGET_S):  # the command runs in a login shell of the owner
            await state.backend.commands.run_command(cluster, ExecIn(argv=argv, user=row.user), row.user)
    except TimeoutError:
        raise Unanswered(
            f"a command of {row.user} on {cluster.name} did not end within {_FORGET_S:g} s",
            hint=f"look at the login files of {row.user}, such as ~/.bash_profile",
        ) from None


def _is_late(job: JobState, now: float) -> bool:
    return job.state in ENDED and 0 < job.end_time < now - _LATE_S
