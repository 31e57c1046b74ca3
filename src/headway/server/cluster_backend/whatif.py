"""Replays the queue of a cluster in containers of this machine."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from headway.domain.cluster import Cluster
from headway.domain.operation_progress import ReportProgress
from headway.errors import Refused
from headway.parallel_tasks import run_all
from headway.schemas.whatif import WhatIfOut
from headway.server.cluster_backend.connections import ConnectionPool

if TYPE_CHECKING:
    from headway.whatif.container import OnProgress, Progress
    from headway.whatif.outcome import Outcome
    from headway.whatif.trace import Trace

_ACCOUNTING_S = 120.0
_REPORT_S = 5.0  # seconds between two reports of one replay


class WhatIfBackend:
    """Implements services.cluster_backend.ClusterWhatIf."""

    def __init__(self, pool: ConnectionPool) -> None:
        self._pool = pool
        self._one = asyncio.Lock()  # a replay keeps a processor busy

    async def replay(
        self, cluster: Cluster, changed: Cluster | None, since: str, until: str, operation: str, report: ReportProgress
    ) -> WhatIfOut:
        from headway.whatif.comparison import compare_replays

        waits = self._one.locked()
        if waits:
            await report("turn", "waits for another what-if of this server")
        async with self._one:
            if waits:
                await report("turn", "the other what-if has ended", done=True)
            began = time.monotonic()
            trace = await self._trace(cluster, since, until, report)  # not before its turn: it may take much memory
            named = [("present", cluster), *([("changed", changed)] if changed else [])]
            outcomes = await run_all(_replay(key, one, trace, operation, report) for key, one in named)
        replays = [(name, one, outcome) for (name, one), outcome in zip(named, outcomes, strict=True)]
        found = await asyncio.to_thread(compare_replays, trace, replays)
        return found.model_copy(update={"seconds": time.monotonic() - began})

    async def _trace(self, cluster: Cluster, since: str, until: str, report: ReportProgress) -> Trace:
        """Returns the checked jobs of the cluster's accounting. Raises Refused if no job is left, or too many are."""
        from headway.transport.program_io import MAX_OUTPUT
        from headway.whatif.sacct_trace import read_sacct, trace_argv
        from headway.whatif.trace import check_trace

        began = time.monotonic()
        await report("accounting", f"reads the jobs since {since}")
        slurm = await self._pool.slurm(cluster)
        ran = await slurm.links.remote(slurm.head, trace_argv(since, until), timeout_s=_ACCOUNTING_S)
        if len(ran.stdout) >= MAX_OUTPUT // 2:
            raise Refused("accounting has too many jobs in this time", hint="give a shorter time")

        def read() -> Trace:
            jobs, left_out = read_sacct(ran.stdout, time.time())
            return check_trace(jobs, cluster, left_out)

        trace = await asyncio.to_thread(read)
        text = f"{len(trace.jobs):,} jobs of {(trace.last - trace.first) / 3600:.1f} hours"
        await report("accounting", text, done=True, seconds=time.monotonic() - began)
        for warning in trace.warnings:
            await report("accounting", warning, level="warning", done=True)
        return trace


async def _replay(name: str, cluster: Cluster, trace: Trace, operation: str, report: ReportProgress) -> Outcome:
    from headway.whatif.container import run_replay

    began = time.monotonic()
    texts: asyncio.Queue[str] = asyncio.Queue()
    await report(name, "slurmctld starts with the configuration of the cluster file")
    reports = asyncio.create_task(_pass_on(name, texts, report))
    try:
        outcome = await run_replay(cluster, trace, _progress(trace, texts), container=f"{operation}-{name}")
    finally:
        reports.cancel()
    runs = f"{len(outcome.runs):,} of {len(trace.jobs):,} jobs ran"
    await report(name, runs, done=True, seconds=time.monotonic() - began)
    return outcome


async def _pass_on(name: str, texts: asyncio.Queue[str], report: ReportProgress) -> None:
    while True:
        await report(name, await texts.get())


def _progress(trace: Trace, texts: asyncio.Queue[str]) -> OnProgress:
    told = time.monotonic()

    def tell(progress: Progress) -> None:
        nonlocal told
        if time.monotonic() - told >= _REPORT_S:
            told = time.monotonic()
            started = f"{progress.started:,} of {len(trace.jobs):,} jobs started"
            texts.put_nowait(f"{started}, {progress.virtual_s / 3600:.1f} virtual hours after the first submission")

    return tell
