"""Operations that wait for jobs on nodes that go, days perhaps. The cluster stays ready meanwhile, so that its watch goes on
acting on faults; and what is asked of it meanwhile goes first."""

from __future__ import annotations

from typing import Any

from headway.api.planning import queued
from headway.api.state import AppState
from headway.store import Operation


class Waiting:
    """headway.api.work.Waiting of one apply or scale. `say`: as cluster.env.Say; `until`: as the apply's deadline."""

    def __init__(self, state: AppState, operation: Operation, say: Any, until: float | None) -> None:
        self._state = state
        self._operation = operation
        self._say = say
        self._until = until
        self._waits = False

    async def begin(self) -> None:
        if not self._waits:
            self._waits = True
            await self._turn("ready")

    async def end(self) -> None:
        if self._waits:
            self._waits = False
            await self._turn("changing")

    async def others(self) -> bool:
        """A roll steps aside for this one itself, and what goes on after another has waited its turn."""
        return any(one.kind != "roll" and "until" not in one.params for one in await self._queued())

    async def go_on_later(self) -> tuple[str, ...]:
        """The operation that goes on with it: the file as it is by then, so whoever comes first may have taken it back. () where
        that one says itself for how long jobs may go on, or takes the cluster down."""
        mine = self._operation
        others = await self._queued()
        if any(one.kind == "down" or one.params.get("deadline_s") is not None for one in others):
            await self._say(mine.kind, "what is asked now takes its place", level="warning", done=True)
            return ()
        await self._say(
            mine.kind, "another operation goes first; nodes that leave stay drained", level="warning", done=True
        )
        row = await self._state.store.cluster(mine.cluster)
        params = {"confirmed": True, "look_again": False, "scale": {}, "until": self._until}
        following = await self._state.store.enqueue_operation(
            mine.cluster, "scale", mine.person, document=row.document if row else mine.document, params=params
        )
        queued(self._state, following)
        return (following.id,)

    async def _turn(self, word: str) -> None:
        await self._state.store.save_cluster(self._operation.cluster, state=word)
        self._state.live.touch(self._operation.cluster)

    async def _queued(self) -> list[Operation]:
        return [one for one in await self._state.store.operations(self._operation.cluster) if one.state == "queued"]
