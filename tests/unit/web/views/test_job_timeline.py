"""The timeline shows how a preempted job ended, or that it went back to the queue."""

from __future__ import annotations

from dataclasses import replace

from headway.schemas.jobs import JobRunOut, JobRunsOut
from headway.web.views.job_timeline import timeline
from tests.support.clusters import builders


def test_timeline_shows_final_preemption_as_the_end() -> None:
    """As with --no-requeue; the runs before another one have."""
    ended = builders.job(7, "PREEMPTED", start_time=300, end_time=500)
    first, last = (
        JobRunOut(state="PREEMPTED", submit_time=1, start_time=at, end_time=at + 200, nodelist="lab-1-1")
        for at in (50, 300)
    )
    steps = timeline("lab", ended, JobRunsOut(runs=[first, last])).steps
    assert [(step.at, step.kind, step.title, step.text) for step in steps if step.at in (250, 500)] == [
        (250, "warn", "Went back to the queue", "preempted"), (500, "bad", "Preempted", ""),
    ]  # fmt: skip
    waits = timeline("lab", replace(ended, state="PENDING"), JobRunsOut(runs=[first, last])).steps
    assert (waits[-1].title, "Preempted" in [step.title for step in waits]) == ("Pending again", False)
