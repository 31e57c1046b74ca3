"""Carries out sweeps, batches, promotions and schedules of pipelines of all clusters, round by round."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Sequence
from functools import partial
from typing import Generic, Protocol, TypeVar

import structlog

from headway.errors import HeadwayError
from headway.services.app_state import AppState
from headway.store import BatchRow, SweepRow
from headway.store.jobs.pipeline_schedules import PipelineScheduleRow
from headway.store.jobs.promotions import PromotionRow

IDLE_TICK_S = 5.0  # between two looks for rows that another server has stored
_WAIT_S = 2.0  # for rounds of batches and promotions, before others begin

log = structlog.get_logger("headway.server.row_rounds")


class Row(Protocol):
    """A row that has rounds."""

    @property
    def id(self) -> str:
        """Returns its id."""
        ...


R = TypeVar("R", bound=Row)


async def do_rounds(advance_all: Callable[[], Awaitable[bool]], due: asyncio.Event, tick_s: float) -> None:
    """Does rounds until cancelled: at once when `due` is set, else after `tick_s` seconds while there are rows."""
    while True:
        due.clear()
        busy = False
        try:
            busy = await advance_all()
        except Exception as error:
            log.error("rounds", exc_info=error)
        try:
            async with asyncio.timeout(tick_s if busy else IDLE_TICK_S):
                await due.wait()
        except TimeoutError:
            continue


async def advance_rows(rows: Sequence[R], advance: Callable[[R], Awaitable[None]]) -> bool:
    """Does one round of each row. Returns whether there are any."""
    for row in rows:
        try:
            await advance(row)
        except HeadwayError as error:
            log.warning("a round failed", row=row.id, error=error.message)
        except Exception as error:
            log.error("a round failed", row=row.id, exc_info=error)
    return bool(rows)


class TaskRounds(Generic[R]):
    """Rounds as tasks: those of rows with the same key follow each other, and all others go on while they hang."""

    def __init__(self, advance: Callable[[R], Awaitable[None]], key: Callable[[R], Hashable]) -> None:
        self._advance, self._key = advance, key
        self._tasks: dict[Hashable, asyncio.Task[bool]] = {}  # in progress

    async def begin(self, rows: Sequence[R], *, wait_s: float | None = None) -> bool:
        """Begins a round of each row whose key has none in progress, and waits for all at most `wait_s` seconds. Returns whether
        there are any rows."""
        of_key: dict[Hashable, list[R]] = {}
        for row in rows:
            of_key.setdefault(self._key(row), []).append(row)
        for key in of_key.keys() - self._tasks.keys():
            task = self._tasks[key] = asyncio.create_task(advance_rows(of_key[key], self._advance))
            task.add_done_callback(partial(self._forget, key))
        if self._tasks:
            await asyncio.wait(set(self._tasks.values()), timeout=wait_s)
        return bool(rows)

    async def close(self) -> None:
        """Cancels the rounds in progress."""
        left = tuple(self._tasks.values())
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)

    def _forget(self, key: Hashable, _: object) -> None:
        del self._tasks[key]


class SweepWorker:
    """Does a round of each sweep that has not ended."""

    def __init__(self, state: AppState) -> None:
        self._state = state

    async def run(self) -> None:
        """Does rounds until cancelled."""
        await do_rounds(self.advance_all, self._state.sweeps_due, 1.0)

    async def advance_all(self) -> bool:
        """Does one round of each sweep. Returns whether there are any."""
        return await advance_rows(await self._state.store.sweeps.unfinished(), self._advance)

    async def _advance(self, row: SweepRow) -> None:
        from headway.services.sweeps.rounds import advance_sweep

        await advance_sweep(self._state, row)


class PromotionWorker:
    """Does a round of each promotion of a model that has not ended. Rounds read all files of a model, so those of a team follow
    each other, and all others go on meanwhile."""

    def __init__(self, state: AppState) -> None:
        self._state = state
        self._rounds = TaskRounds(self._advance, lambda row: (row.cluster, row.team))

    async def run(self) -> None:
        """Does rounds until cancelled."""
        try:
            await do_rounds(lambda: self.advance_all(wait_s=_WAIT_S), self._state.promotions_due, 2.0)
        finally:
            await self._rounds.close()

    async def advance_all(self, *, wait_s: float | None = None) -> bool:
        """Begins a round of each promotion of the teams that have none in progress, and waits for all at most `wait_s` seconds.
        Returns whether there are any promotions."""
        return await self._rounds.begin(await self._state.store.promotions.unfinished(), wait_s=wait_s)

    async def _advance(self, row: PromotionRow) -> None:
        from headway.services.models.rounds import advance_promotion

        await advance_promotion(self._state, row)


class PipelineScheduleWorker:
    """Starts scheduled pipelines when their time has come."""

    def __init__(self, state: AppState) -> None:
        self._state = state

    async def run(self) -> None:
        """Does rounds until cancelled."""
        await do_rounds(self.advance_all, asyncio.Event(), IDLE_TICK_S)

    async def advance_all(self) -> bool:
        """Does one round of each schedule. Returns whether there are any."""
        return await advance_rows(await self._state.store.pipeline_schedules.all(), self._advance)

    async def _advance(self, row: PipelineScheduleRow) -> None:
        from headway.services.pipelines.schedules import advance_schedule

        await advance_schedule(self._state, row)


class BatchWorker:
    """Does a round of each batch that has not ended. Rounds run programs of people, so those of a person on a cluster follow each
    other, and all others go on while they hang."""

    def __init__(self, state: AppState) -> None:
        self._state = state
        self._rounds = TaskRounds(self._advance, lambda row: (row.cluster, row.person))

    async def run(self) -> None:
        """Does rounds until cancelled."""
        try:
            await do_rounds(lambda: self.advance_all(wait_s=_WAIT_S), self._state.batches_due, 3.0)
        finally:
            await self._rounds.close()

    async def advance_all(self, *, wait_s: float | None = None) -> bool:
        """Begins a round of each batch of those who have none in progress, and waits for all at most `wait_s` seconds. Returns
        whether there are any batches."""
        return await self._rounds.begin(await self._state.store.batches.unfinished(), wait_s=wait_s)

    async def _advance(self, row: BatchRow) -> None:
        from headway.services.batches.rounds import advance_batch

        now = await self._state.store.batches.by_id(row.cluster, row.id)  # rounds before it can have taken long
        if now.ended_at is None:
            await advance_batch(self._state, now)
