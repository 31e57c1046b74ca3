"""Claims operations by lease and carries them out. The API only writes rows; everything long happens here."""

from __future__ import annotations

import asyncio
import contextlib
import time
from functools import partial

import structlog

from headway.domain.cluster import Cluster
from headway.domain.slots import Deadline
from headway.errors import HeadwayError, NeedsConfirmation, Refused
from headway.schemas.base import ErrorOut
from headway.schemas.clusters import Document
from headway.server.operations.backups import Keep
from headway.server.operations.datasets import Datasets
from headway.server.operations.rollouts import Rolling
from headway.server.operations.scale_in_wait import Waiting, replaced
from headway.server.operations.slurm_upgrade import backed_up, nodes_follow
from headway.services.billing.collector import read_accounting
from headway.services.cluster.cost_guard import cost_limit_conflict
from headway.services.cluster.planning import scaled_document
from headway.services.context import AppState
from headway.services.error_report import error_out, first_line
from headway.services.mappers import operation_news, prices_of, released, summary_of
from headway.services.read_model.snapshot import OPERATIONS, operation_topic
from headway.store import ClusterRow, Operation, StoreAway
from headway.store.core.operations import MAX_ATTEMPTS
from headway.store.db.transactions import Late

LEASE_S = 30.0
LOOK_S = 1.0  # another server, or a lease that passes, does not wake us
AT_ONCE = 8  # beside those that only wait for jobs
STEADY_S = 600.0
KEEPING = ("backup", "restore", "rotate")
BESIDE = ("backup", "dataset", "roll", "replace")  # the cluster is meanwhile and afterwards what it was
AWAY_S = 2.0  # between looks whether the database is back
MOST_LATE = 5  # questions that were not answered in time, of one operation: one of them takes too long in itself
WAS_AWAY = "the server's database was away; going on"
LAST_ACCOUNTS_S = 20.0

log = structlog.get_logger("headway.reconcile")


class Reconciler:
    """`owner` names this server in leases: no two living ones have the same."""

    def __init__(self, state: AppState, owner: str, *, lease_s: float = LEASE_S) -> None:
        self._state = state
        self._owner = owner
        self._lease_s = lease_s
        self._tasks: set[asyncio.Task[None]] = set()
        # Operations whose plan was looked at again: begun anew, they would meet their own work.
        self._looked: set[str] = set()

    async def run(self) -> None:
        """Until cancelled. What is then under way is cancelled too, and its leases are free for the next server."""
        state = self._state
        try:
            while True:
                state.wake.clear()
                operation = None
                if sum(task.get_name() not in state.waiting for task in self._tasks) < AT_ONCE:
                    operation = await self._claim()
                if operation is None:
                    with contextlib.suppress(TimeoutError):
                        await asyncio.wait_for(state.wake.wait(), LOOK_S)
                    continue
                task = asyncio.create_task(self._hold(operation), name=operation.id)
                self._tasks.add(task)
                task.add_done_callback(self._done)
        finally:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            await state.store.operations.release_leases(self._owner)

    async def _claim(self) -> Operation | None:
        try:
            held = [task.get_name() for task in self._tasks]
            return await self._state.store.operations.claim(self._owner, self._state.clock(), self._lease_s, held)
        except Exception as error:  # a database that is away comes back
            log.error("claim", error=str(error))
            return None

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._state.waiting.discard(task.get_name())
        self._state.wake.set()
        self._state.live.hub.publish(OPERATIONS)
        if not task.cancelled() and task.exception() is not None:
            log.error("operation", operation=task.get_name(), exc_info=task.exception())

    async def _hold(self, operation: Operation) -> None:
        """Carries the operation out while its lease is renewed; a lost lease ends the work here."""
        work = asyncio.create_task(self._carry_out(operation))
        renewal = asyncio.create_task(self._renew(operation))
        try:
            await asyncio.wait({work, renewal}, return_when=asyncio.FIRST_COMPLETED)
            if not work.done():
                log.error("lease lost", operation=operation.id)
        finally:
            for task in (work, renewal):
                task.cancel()
            await asyncio.gather(work, renewal, return_exceptions=True)
        if work.done() and not work.cancelled():
            work.result()

    async def _renew(self, operation: Operation) -> None:
        """Returns when the lease is lost."""
        began = time.monotonic()
        held_until = began + self._lease_s
        while True:
            await asyncio.sleep(self._lease_s / 3)
            try:
                until = self._state.clock() + self._lease_s
                steady = time.monotonic() - began > STEADY_S
                if not await self._state.store.operations.renew(operation.id, self._owner, until, steady=steady):
                    return
                held_until = time.monotonic() + self._lease_s
            except Exception as error:
                log.warning("renew", operation=operation.id, error=str(error))
                if time.monotonic() > held_until:
                    return

    async def _carry_out(self, operation: Operation) -> None:
        state, began = self._state, time.monotonic()
        log.info("operation begins", operation=operation.id, kind=operation.kind, cluster=operation.cluster)
        state.live.tell(operation_news(operation, "running", state.clock()))
        error: ErrorOut | None = None
        kept: tuple[str, ...] = ()
        try:
            if operation.attempts > MAX_ATTEMPTS:
                raise Refused(
                    f"the {operation.kind} brought the server down {MAX_ATTEMPTS} times", hint="headway server logs"
                )
            kept = await self._patiently(operation)
        except Exception as failure:
            if stopping():  # what it met while it put its things away: the next server goes on with it
                log.warning("operation stopped", operation=operation.id, error=str(failure))
                raise asyncio.CancelledError from failure
            if not isinstance(failure, HeadwayError):
                log.error("bug", operation=operation.id, exc_info=failure)
            error = error_out(failure)
        await self._written(operation, error, kept)
        self._looked.discard(operation.id)
        seconds = round(time.monotonic() - began, 2)
        log.info(
            "operation ends", operation=operation.id, seconds=seconds, failed=error is not None,
            message=error.message if error else "",
        )  # fmt: skip
        state.live.touch(operation.cluster)

    async def _patiently(self, operation: Operation) -> tuple[str, ...]:
        """Begun anew where the database was away, as after the server was killed; while it is away for longer than a lease this
        ends with the lease, and whoever claims the operation next goes on. One that asks what the database never answers in
        time fails. Returns the operations that go on with it."""
        said = "the server was started again; going on" if operation.attempts > 1 else ""
        late = 0
        while True:
            try:
                if said:
                    await self._say(operation, "server", said, level="warning")
                return await self._do(operation)
            except StoreAway as error:
                late += isinstance(error, Late)
                if late == MOST_LATE:
                    raise
                log.warning("the database is away", operation=operation.id, error=error.message)
                said = WAS_AWAY
                await asyncio.sleep(AWAY_S)

    async def _written(self, operation: Operation, error: ErrorOut | None, kept: tuple[str, ...]) -> None:
        """What is done is not done again because its end can't be written: that is tried until the lease is over."""
        while True:
            try:
                return await self._end(operation, error, kept)
            except StoreAway as away:
                log.warning("the database is away", operation=operation.id, error=away.message)
                await asyncio.sleep(AWAY_S)

    async def _do(self, operation: Operation) -> tuple[str, ...]:
        say = partial(self._say, operation)
        if operation.kind == "down":
            return await self._down(operation)
        if operation.kind == "roll":
            return await Rolling(self._state, operation, say).run()
        if operation.kind in KEEPING:
            return await self._keep(operation)
        if operation.kind == "dataset":
            return await Datasets(self._state, operation, say).carry_out()
        if operation.kind == "replace":
            return await self._replace(operation)
        return await self._apply(operation)

    async def _end(self, operation: Operation, error: ErrorOut | None, kept: tuple[str, ...]) -> None:
        state, name = self._state, operation.cluster
        if error is not None:
            row = await state.store.clusters.get(name)
            # What runs beside changes nothing of the cluster, and what was refused before it began touched nothing.
            waits = operation.kind not in BESIDE and operation.id in state.waiting
            if waits or (row is not None and row.state in ("changing", "creating")):
                await state.store.clusters.save(name, state="failed")
            first = first_line(error)  # whoever follows is told all of it at the end
            await self._say(operation, operation.kind, first, level="error", done=True)
            state.live.note(name, f"{operation.kind} failed: {first}", level="error")
        elif operation.kind != "down":
            if operation.kind not in BESIDE:
                await state.store.clusters.save(name, state="ready")
            state.live.note(name, f"{operation.kind} by {operation.person} is done")
        await state.store.operations.finish(
            operation.id,
            self._owner,
            "failed" if error else "done",
            error=error.model_dump() if error else None,
            kept=kept,
        )
        word, text = ("failed", first_line(error)) if error else ("done", "")
        state.live.tell(operation_news(operation, word, state.clock(), text))
        state.live.hub.publish(operation_topic(operation.id))

    async def _apply(self, operation: Operation) -> tuple[str, ...]:
        """The operation that goes on with it, where it stepped aside for another."""
        state, name = self._state, operation.cluster
        if await replaced(state, operation):
            await self._say(operation, operation.kind, "nothing is left to do: another took its place", done=True)
            return ()
        row = await state.store.clusters.get(name)
        document = self._document(operation, row)
        cluster = (await state.resolve(document)).cluster
        if operation.params.get("look_again") and operation.attempts == 1 and operation.id not in self._looked:
            changes = await state.work.plan(cluster)
            if changes.asks:
                raise NeedsConfirmation(
                    f"since the apply before it, it would disturb what runs on {name}", hint="headway plan, then apply"
                )
            self._looked.add(operation.id)
        # Machines for jobs may have come since it was asked for.
        before = await state.resolved(row) if row else None
        if over := await cost_limit_conflict(state, before, cluster):
            raise over
        if row is not None and before is not None:
            await backed_up(state, row, before, cluster, partial(self._say, operation))
        await state.store.clusters.save(
            name,
            document.model_dump(),
            summary=summary_of(cluster),
            state="creating" if row is None or row.state == "creating" else "changing",
            owner=document.owner,
        )
        await state.store.prices.record(prices_of(cluster, await state.store.prices.of_cluster(name), state.clock()))
        state.live.touch(name)
        deadline, say = self._deadline(operation), partial(self._say, operation)
        waiting = Waiting(state, operation, cluster, say, deadline)
        try:
            aside = await state.work.apply(cluster, say, deadline, waiting)
        except HeadwayError:
            # Of one machine, perhaps: nodes that were drained to follow their heads do so all the same.
            await nodes_follow(state, operation, cluster, deadline)
            raise
        return await waiting.go_on_later() if aside else await nodes_follow(state, operation, cluster, deadline)

    def _deadline(self, operation: Operation) -> Deadline | None:
        """Of one that stepped aside, what was given it at first, for the nodes it was given for."""
        until, after_s = operation.params.get("until"), operation.params.get("deadline_s")
        if until is not None:
            return Deadline(float(until), frozenset(operation.params["nodes"]))
        if after_s is None:
            return None
        return Deadline((operation.started_at or self._state.clock()) + float(after_s))

    async def _bill_no_more(self, name: str) -> None:
        """Nothing of it is paid for any more, and no job of it runs: an end that accounting says later goes before ours."""
        store, now = self._state.store, self._state.clock()
        await store.machine_lives.end_all(name, int(now))
        await store.runs.end(name, await store.runs.still_running(name), int(now))
        await store.prices.record(released(await store.prices.of_cluster(name), (), now))

    @staticmethod
    def _document(operation: Operation, row: ClusterRow | None) -> Document:
        """What to apply. Only numbers of nodes are asked of a scale: the rest is as whoever was before left it."""
        if "scale" not in operation.params:
            return Document.model_validate(operation.document)
        if row is None:
            raise Refused(f"{operation.cluster} is down", hint="headway apply brings it back")
        return scaled_document(Document.model_validate(row.document), operation.params["scale"])

    async def _down(self, operation: Operation) -> tuple[str, ...]:
        state, name = self._state, operation.cluster
        delete_data = bool(operation.params.get("delete_data"))
        row = await state.store.clusters.get(name)
        if row is None:
            await self._bill_no_more(name)
            await self._say(operation, "cluster", f"{name} is down already", done=True)
            return ()
        await state.store.clusters.save(name, state="changing")
        state.live.touch(name)
        cluster = await state.resolved(row)
        await self._last_accounts(cluster)
        kept = await state.work.down(cluster, partial(self._say, operation), delete_data)
        await self._bill_no_more(name)
        await state.store.incidents.close_all(name)
        await state.store.clusters.delete(name, delete_data=delete_data)
        await state.forget(name)
        return kept

    async def _replace(self, operation: Operation) -> tuple[str, ...]:
        """Of another try it is not known how far the one before came: that machine is made anew."""
        _, cluster = await self._state.cluster(operation.cluster)
        since = operation.created_at if operation.attempts == 1 else None
        await self._state.work.replace(cluster, partial(self._say, operation), operation.params["node"], since)
        return ()

    async def _keep(self, operation: Operation) -> tuple[str, ...]:
        keep = Keep(self._state, operation, partial(self._say, operation))
        if operation.kind == "backup":
            return await keep.backup()
        await (keep.restore() if operation.kind == "restore" else keep.rotate())
        return ()

    async def _last_accounts(self, cluster: Cluster) -> None:
        """What accounting knows is read once more: it may go with the machines. One that does not answer keeps nobody here."""
        try:
            async with asyncio.timeout(LAST_ACCOUNTS_S):
                await read_accounting(self._state, cluster, int(self._state.clock()))
        except (HeadwayError, TimeoutError, OSError) as error:
            log.warning("the ledger misses the end", cluster=cluster.name, error=str(error) or type(error).__name__)

    async def _say(
        self,
        operation: Operation,
        step: str,
        text: str,
        *,
        level: str = "info",
        done: bool = False,
        seconds: float | None = None,
    ) -> None:
        await self._state.store.operations.add_event(operation.id, step, text, level=level, done=done, seconds=seconds)
        self._state.live.hub.publish(operation_topic(operation.id))


def stopping() -> bool:
    """Whether the task that asks was cancelled, also after something else came out of its cleaning up."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
