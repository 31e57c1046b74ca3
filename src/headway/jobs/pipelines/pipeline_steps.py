"""A pipeline as jobs: each step is a run that depends on the jobs of the steps it needs. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from headway.domain.slurm.job_states import FAILED
from headway.domain.slurm.nodes_and_jobs import JobState
from headway.jobs.explain.reason_lines import job_reason
from headway.jobs.pipelines.pipeline_file import STEP_ONLY, Pipeline
from headway.jobs.pipelines.step_plan import StepResult
from headway.schemas.submission.job_field_types import GitIn
from headway.schemas.submission.pipelines import STEP_DONE, PipelineOut, StepOut
from headway.schemas.submission.run_request import RunIn
from headway.store.db.rows import PipelineRow


def step_run(pipeline: Pipeline, name: str, jobs: Mapping[str, int], *, bundle: str, git: GitIn | None) -> RunIn:
    """Returns the run of a step. `jobs` are the jobs of the steps that have to succeed first, by name."""
    step = pipeline.steps[name]
    return RunIn.model_validate(
        {
            **step.model_dump(exclude=set(STEP_ONLY)),  # a step's fields have the names of a run's
            "argv": step.run,
            "name": name,
            "after": [f"ok:{jobs[need]}" for need in step.needs if need in jobs],
            "env": {"HEADWAY_PIPELINE": pipeline.name, **step.env},
            "bundle": bundle,
            "git": git,
        }
    )


def latest_jobs(made: Sequence[tuple[str, int]]) -> dict[str, int]:
    """Returns the current job of each step: the last one submitted. `made` has (step, job) in order of submission."""
    return dict(made)


def steps_to_retry(pipeline: Pipeline, states: Mapping[str, str], names: Sequence[str]) -> list[str]:
    """Returns the steps to run again, in order: the requested steps, or else those that failed, and all that need
    them."""
    first = set(names) or {name for name, state in states.items() if state in FAILED}
    again = pipeline.steps_after(first)
    return [name for name in pipeline.steps_in_order() if name in again]


def pipeline_out(
    row: PipelineRow,
    pipeline: Pipeline,
    made: Sequence[tuple[str, int]],
    jobs: Mapping[int, JobState],
    results: Mapping[str, StepResult] = MappingProxyType({}),
) -> PipelineOut:
    """Returns the pipeline with its steps' states. `made` has every (step, job), in the order in which they were
    submitted. `results`: those that the jobs recorded."""
    now = latest_jobs(made)
    steps = []
    for name in pipeline.steps_in_order():
        job = jobs.get(now.get(name, 0))
        result = results.get(name)
        if result is not None and result.job != now.get(name):  # of an earlier run of the step
            result = None
        shown = shown_state(job, result)
        steps.append(
            StepOut(
                name=name,
                needs=pipeline.steps[name].needs,
                when=pipeline.steps[name].when or "",
                job_id=now.get(name, 0),
                state=shown,
                why=result.why if result and shown == result.shown_state else job_reason(job) if job else "",
                runs=sum(step == name for step, _ in made),
                source=result.source if result else 0,
                outputs=result.outputs if result else {},
            )
        )
    return PipelineOut(
        id=row.id,
        cluster=row.cluster,
        name=row.name,
        person=row.person,
        user=row.user,
        created_at=row.at,
        workdir=row.workdir,
        state=_state([step.state for step in steps]),
        steps=steps,
    )


def shown_state(job: JobState | None, result: StepResult | None) -> str:
    """Returns the state of a step: CACHED or SKIPPED, or that of its job. Slurm forgets jobs; a step with a result succeeded."""
    if result is not None and result.shown_state:
        return result.shown_state
    return job.state if job else "COMPLETED" if result else "UNKNOWN"


def _state(states: Sequence[str]) -> str:
    if any(state in FAILED for state in states):
        return "failed"
    return "done" if all(state in STEP_DONE for state in states) else "running"
