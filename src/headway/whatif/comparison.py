"""The answer of a what-if: figures of what was, of the present cluster, and of the changed one, next to each other. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

from headway.domain.cluster import Cluster
from headway.schemas.whatif import ReplayFiguresOut, WhatIfOut
from headway.whatif.figures import figures
from headway.whatif.outcome import Outcome, real_runs
from headway.whatif.trace import Trace

MOST_STARTS = 2000  # jobs; starts of more are left out of the answer


def compare_replays(trace: Trace, replays: Sequence[tuple[str, Cluster, Outcome]]) -> WhatIfOut:
    """Returns the figures of the replays, by name. The first one is that of the present cluster, to which the real starts
    belong."""
    runs = {name: outcome.runs for name, _, outcome in replays}
    found = {name: figures(cluster, trace, outcome.runs) for name, cluster, outcome in replays}
    if real := real_runs(trace.jobs):
        runs = {"real": real, **runs}
        found = {"real": figures(replays[0][1], trace, real), **found}
    starts = {name: {run.job.job_id: run.start for run in listed} for name, listed in runs.items()}
    return WhatIfOut(
        first=trace.first,
        hours=(trace.last - trace.first) / 3600,
        jobs=len(trace.jobs),
        left_out=dict(trace.left_out),
        warnings=list(trace.warnings),
        figures={name: ReplayFiguresOut.model_validate(asdict(one)) for name, one in found.items()},
        starts=starts if len(trace.jobs) <= MOST_STARTS else {},
        never_started={name: outcome.never for name, _, outcome in replays},
        refused={name: outcome.refused for name, _, outcome in replays},
    )
