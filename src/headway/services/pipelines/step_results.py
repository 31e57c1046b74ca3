"""The results that the steps of a pipeline recorded in its folder. They are read once a step has ended, and then kept in
the store, because the owner may delete the folder."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping

from headway.domain.cluster import Cluster
from headway.domain.slurm.job_states import ENDED
from headway.domain.slurm.nodes_and_jobs import JobState
from headway.errors import HeadwayError
from headway.jobs.pipelines.pipeline_file import Pipeline
from headway.jobs.pipelines.step_plan import StepResult, read_results
from headway.schemas.submission.exec_commands import ExecIn
from headway.services.app_state import AppState
from headway.store import PipelineRow
from headway.transport.remote_program import program_source

_HAS_RESULT = {"COMPLETED", "CANCELLED"}  # a skipped step's job is cancelled
_LATE_S = 120.0  # a job that ended longer ago without a result will not get one; shared storage may show files late


async def step_results(
    state: AppState,
    cluster: Cluster,
    row: PipelineRow,
    pipeline: Pipeline,
    now: Mapping[str, int],
    jobs: Mapping[int, JobState],
) -> dict[str, StepResult]:
    """Returns the results by step. `now`: the current job of each step. Reads the folder if a job has ended since the last
    time; if the cluster does not answer, returns what is stored."""
    if not pipeline.passes_outputs:
        return {}
    stored = read_results(row.document.get("results"))
    looked = row.document.get("looked", {})
    ended = {
        step: number
        for step, number in now.items()
        if (job := jobs.get(number)) and job.state in _HAS_RESULT and looked.get(step) != number
    }
    missing = {step for step, number in ended.items() if step not in stored or stored[step].job != number}
    if not missing:
        return stored
    try:
        found = read_results(await _run(state, cluster, row, "show", row.workdir))
    except HeadwayError:
        return stored
    known = {step: result for step, result in found.items() if step in ended and result.job == ended[step]}
    late = {step: number for step, number in ended.items() if step in known or _is_late(jobs[number], state.clock())}
    if known or late:
        await state.store.pipelines.save_results(
            row.id, {step: result.model_dump(mode="json") for step, result in known.items()}, late
        )
    return {**stored, **known}


async def forget_results(state: AppState, cluster: Cluster, row: PipelineRow, steps: list[str]) -> None:
    """Deletes the results of steps that are submitted again, so that no other step reads them."""
    await _run(state, cluster, row, "forget", row.workdir, *steps)


def _is_late(job: JobState, now: float) -> bool:
    return job.state in ENDED and 0 < job.end_time < now - _LATE_S


async def _run(state: AppState, cluster: Cluster, row: PipelineRow, *words: str) -> object:
    """Runs the program of steps on the head as the pipeline's owner, and returns its answer. Raises HeadwayError if the
    cluster does not answer."""
    request = ExecIn(argv=["python3", "-I", "-S", "-c", program_source("pipeline_step"), *words], user=row.user)
    done = await state.backend.commands.run_command(cluster, request, row.user)
    try:
        return json.loads(base64.b64decode(done.stdout_b64)) if done.code == 0 else {}
    except ValueError:
        return {}
