"""The rounds of a batch: each reads its progress on the cluster, and has the dataset version added when the output is complete.

Workers need no server: while none runs, they go on. A round that is interrupted is repeated, and the head submits one job for a
submission, however often it is asked."""

from __future__ import annotations

import asyncio
import base64
import contextlib
from dataclasses import dataclass
from typing import Any

import structlog
from pydantic import ValidationError

from headway.domain.access.role import Role
from headway.domain.cluster import Cluster
from headway.domain.operation_kinds import DatasetParams
from headway.domain.slurm.job_states import ENDED
from headway.errors import HeadwayError, NotAllowed, NotFound, Refused, TooManySubmits, Unreachable
from headway.jobs.batches.batch_run import batch_run
from headway.schemas.submission.batches import BatchProgress
from headway.schemas.submission.exec_commands import ExecIn
from headway.services.access.role_rights import Principal
from headway.services.app_state import AppState
from headway.services.batches.output_source import BATCH_SCHEME
from headway.services.batches.stored_batch import StoredBatch
from headway.services.cluster.operations import queue_operation
from headway.services.jobs.tagged_submission import absent_person, submit_tagged
from headway.store import BatchRow
from headway.transport.remote_program import program_source

READ_S = 20.0  # for the progress of a batch
LAST_READ_S = 180.0  # when its job has ended: slow storage alone must not make it fail
_ANSWER_BYTES = 1 << 20  # of the progress

log = structlog.get_logger("headway.services.batches")


class _Unreadable(HeadwayError):
    """No valid progress of a batch can be read, although its head answers."""


@dataclass(frozen=True)
class _Round:
    """What a round of a batch needs."""

    state: AppState
    cluster: Cluster
    row: BatchRow
    stored: StoredBatch

    async def change(self, **values: Any) -> bool:
        """Stores changes, unless a person has changed the state meanwhile. `why` can be a text of the user's program, and
        PostgreSQL stores no NUL."""
        if "why" in values:
            values["why"] = values["why"].replace("\0", "?")
        return await self.state.store.batches.change(self.row.id, of_state=self.row.state, **values)

    async def fail(self, why: str) -> None:
        """Stores that the batch has failed."""
        await self.change(state="failed", why=why, ended_at=self.state.clock())


async def advance_batch(state: AppState, row: BatchRow) -> None:
    """Does one round of a batch. Raises Unreachable while its cluster does not answer; the next round tries again."""
    _, cluster = await state.clusters.get(row.cluster)
    one = _Round(state, cluster, row, StoredBatch.of(row))
    steps = {"submitting": _submit, "running": _follow, "adding": _follow_operation}
    try:
        await steps.get(row.state, _end)(one)
    except Unreachable:
        raise
    except HeadwayError as error:
        if row.why != error.message:
            await one.change(why=error.message)
        raise


async def _submit(one: _Round) -> None:
    """Submits the job, or finds the one that was submitted before."""
    try:
        who = await absent_person(one.state, one.cluster, one.row.person)
        job = await _submit_as(one, who)
    except (TooManySubmits, Unreachable) as error:  # tried again in the next round
        log.info("a batch waits for its submission", batch=one.row.id, error=error.message)
    except HeadwayError as error:
        await one.fail(error.message)
    else:
        await one.change(state="running", job_id=job)


async def _submit_as(one: _Round, who: Principal, *, on_hold: bool = False) -> int:
    stored, row = one.stored, one.row
    run = batch_run(stored.request, rows=stored.rows, folder=stored.folder, worker=stored.worker)
    if on_hold:
        run.sbatch.append("--hold")
    return await submit_tagged(
        one.state,
        who,
        one.cluster,
        run,
        user=row.user,
        mark=stored.mark,
        series=row.id,
        number=row.submission,
        at=row.submitted_at,
        links={},
        files={stored.worker: program_source("batch_worker")},
    )


async def _follow(one: _Round) -> None:
    """Reads the progress. Has the version added if the output is complete; without it, or without readable progress, the batch
    has failed when its workers have ended."""
    ended = await _job_ended(one)  # before the progress, in which the output of a worker that has ended is seen
    try:
        progress = await _read_progress(one, LAST_READ_S if ended else READ_S)
    except _Unreadable as error:
        if not ended:
            raise
        await one.fail(f"{error.message}; {error.hint}, then headway batch retry {one.row.id}")
        return
    await one.change(progress=progress.model_dump(mode="json"), why="")
    if progress.output:
        await _add_version(one)
    elif ended:
        await one.fail(_failure(progress))


async def _job_ended(one: _Round) -> bool:
    """Returns whether all tasks of the job have ended."""
    states = await one.state.readings.array_states(one.cluster, one.row.job_id)
    return bool(states) and all(state in ENDED for state in states.values())


def _failure(progress: BatchProgress) -> str:
    errors = [worker.error for worker in progress.workers if worker.error]
    why = errors[-1] if errors else "see the log of its job"
    if progress.shards is None:
        return why
    return f"its workers ended before {progress.shards - progress.done_shards} shards were done: {why}"


async def _read_progress(one: _Round, within_s: float) -> BatchProgress:
    """Returns the progress that the worker's program tells, run on the head as the user. The user can change the program and its
    files, so its time (`within_s` seconds) and its answer are limited, and the answer is checked. Raises _Unreadable, and
    Unreachable if the head does not answer."""
    argv = ["python3", one.stored.worker, "status", one.stored.folder]
    hint = f"look into {one.stored.folder}"
    try:
        async with asyncio.timeout(within_s):
            ran = await one.state.backend.commands.run_command(one.cluster, ExecIn(argv=argv), one.row.user)
    except TimeoutError:
        raise _Unreadable(f"the progress can't be read: no answer in {within_s:g} s", hint=hint) from None
    except (NotAllowed, NotFound, Refused) as refused:  # too much output, or a user who may no longer use the cluster
        raise _Unreadable(f"the progress can't be read: {refused.message}", hint=hint) from None
    if ran.code != 0:
        error = base64.b64decode(ran.stderr_b64).decode(errors="replace").strip()
        raise _Unreadable(f"the progress can't be read: {error[-500:]}", hint=hint)
    answer = base64.b64decode(ran.stdout_b64)
    if len(answer) > _ANSWER_BYTES:
        raise _Unreadable(f"the progress can't be read: it has more than {_ANSWER_BYTES} bytes", hint=hint)
    try:
        return BatchProgress.model_validate_json(answer)
    except ValidationError as error:
        raise _Unreadable(f"the progress can't be read: {error.errors()[0]['msg']}", hint=hint) from None


async def _add_version(one: _Round) -> None:
    """Queues the operation that adds the output as a version of the dataset, once."""
    row = one.row
    params = DatasetParams("add", row.name, source=f"{BATCH_SCHEME}{row.id}")
    key = f"{row.id}-{row.submission}"
    operation = await queue_operation(one.state, row.cluster, row.person, params, key=key)
    await one.change(state="adding", operation=operation.id)


async def _follow_operation(one: _Round) -> None:
    """Takes over the result of the operation that adds the version. The batch ends when its job has ended: workers that hang, or
    wait for nodes, must not hold any."""
    operation = await one.state.store.operations.get(one.row.operation)
    if operation.state == "failed":
        error = (operation.error or {}).get("message", "")
        await one.change(state="failed", why=f"the dataset version was not added: {error}")
    elif operation.state == "done":
        number = operation.kept[0].rpartition("/")[2]
        await one.change(state="done", dataset=f"{one.row.name}@{number}")


async def _end(one: _Round) -> None:
    """Cancels the job of a batch that was stopped, or whose version was added or refused, again in each round until it has
    ended."""
    row = one.row
    if not row.job_id:  # its submission may have been interrupted: the head tells the job only to the same submission
        who = Principal(row.person, Role.MEMBER, assigned_user=row.user)
        try:
            await one.change(job_id=await _submit_as(one, who, on_hold=True))
        except (TooManySubmits, Unreachable):  # tried again in the next round
            return
        except HeadwayError as error:
            log.info("a stopped batch has no job", batch=row.id, error=error.message)
            await one.change(ended_at=one.state.clock())
        return
    if await _job_ended(one):
        await one.change(ended_at=one.state.clock())
        return
    with contextlib.suppress(NotFound):
        await one.state.backend.jobs.cancel(one.cluster, str(row.job_id), row.user, as_operator=False)
