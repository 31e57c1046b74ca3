"""The number of an array's tasks by state, for lists: from accounting if it answers quickly, else from the last reading."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence

from headway.domain.cluster import Cluster
from headway.domain.slurm.nodes_and_jobs import JobState
from headway.errors import HeadwayError
from headway.jobs.view.array_tasks import array_out, known_array_out
from headway.schemas.jobs import ArrayOut
from headway.services.app_state import AppState

MAX_READ = 20  # arrays of one page whose tasks are counted by accounting
WAIT_S = 0.5  # a page does not wait longer; what is read later is there for the next update


async def array_counts(
    state: AppState, cluster: Cluster, tasks: Mapping[int, Sequence[JobState]]
) -> dict[int, ArrayOut]:
    """Returns the counts of each array. `tasks`: by array, the records of the last reading."""
    reads = {number: asyncio.create_task(_read(state, cluster, number)) for number in _first(tasks)}
    if reads:
        await asyncio.wait(reads.values(), timeout=WAIT_S)
    found = {number: read.result() for number, read in reads.items() if read.done()}
    return {number: found.get(number) or known_array_out(records) for number, records in tasks.items()}


def _first(tasks: Iterable[int]) -> list[int]:
    return sorted(tasks, reverse=True)[:MAX_READ]


async def _read(state: AppState, cluster: Cluster, number: int) -> ArrayOut | None:
    """Returns the counts of one array; None if they can't be read."""
    try:
        states = await state.readings.array_states(cluster, number)
    except (HeadwayError, TimeoutError, OSError):
        return None
    return array_out(states) if states else None
