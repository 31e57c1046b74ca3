"""The same client for asyncio: every call runs in a thread, so that the loop goes on. Arguments, answers and errors are
those of `Client` and `Job`, whose signatures these methods carry."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

from headway.errors import Unreachable
from headway.schemas.jobs import JobOut
from headway.sdk.client import Client
from headway.sdk.jobs import POLL_S, Job
from headway.sdk.reconnect import Away

P = ParamSpec("P")
T = TypeVar("T")
S = TypeVar("S")
S_co = TypeVar("S_co", covariant=True)


class _Beside(Protocol[S_co]):
    """What has a blocking twin."""

    @property
    def sync(self) -> S_co: ...


def _threaded(method: Callable[Concatenate[S, P], T]) -> Callable[Concatenate[_Beside[S], P], Coroutine[Any, Any, T]]:
    """The method of the twin, awaited."""

    @functools.wraps(method)
    async def call(self: _Beside[S], /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await asyncio.to_thread(method, self.sync, *args, **kwargs)

    return call


def _starting(
    method: Callable[Concatenate[S, P], Job],
) -> Callable[Concatenate[_Beside[S], P], Coroutine[Any, Any, AsyncJob]]:
    """The same of one that gives a job."""
    threaded = _threaded(method)

    @functools.wraps(method)
    async def call(self: _Beside[S], /, *args: P.args, **kwargs: P.kwargs) -> AsyncJob:
        return AsyncJob(await threaded(self, *args, **kwargs))

    return call


class AsyncClient:
    """`async with AsyncClient() as client: job = await client.run(...)`."""

    def __init__(self, url: str = "", token: str = "") -> None:
        self.sync = Client(url, token)

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.sync.close()

    clusters = _threaded(Client.clusters)
    jobs = _threaded(Client.jobs)
    jobs_page = _threaded(Client.jobs_page)
    run = _starting(Client.run)
    submit = _starting(Client.submit)
    attach = _starting(Client.attach)
    usage = _threaded(Client.usage)
    usage_runs = _threaded(Client.usage_runs)
    node_states = _threaded(Client.node_states)
    invoice = _threaded(Client.invoice)
    invoices = _threaded(Client.invoices)
    close_invoice = _threaded(Client.close_invoice)
    chargeback = _threaded(Client.chargeback)
    goodput = _threaded(Client.goodput)
    goodput_of_job = _threaded(Client.goodput_of_job)
    budgets = _threaded(Client.budgets)
    energy = _threaded(Client.energy)
    capacity = _threaded(Client.capacity)
    estimate = _threaded(Client.estimate)
    datasets = _threaded(Client.datasets)
    add_dataset = _threaded(Client.add_dataset)
    verify_dataset = _threaded(Client.verify_dataset)
    remove_dataset = _threaded(Client.remove_dataset)
    operation = _threaded(Client.operation)
    rebuild_ledger = _threaded(Client.rebuild_ledger)


@dataclass(frozen=True)
class AsyncJob:
    """A submitted job."""

    sync: Job

    @property
    def id(self) -> int:
        return self.sync.id

    @property
    def cluster(self) -> str:
        return self.sync.cluster

    status = _threaded(Job.status)
    tasks = _threaded(Job.tasks)
    lineage = _threaded(Job.lineage)
    cancel = _threaded(Job.cancel)
    retry = _starting(Job.retry)
    rerun = _starting(Job.rerun)

    async def wait(
        self,
        *,
        timeout_s: float | None = None,
        poll_s: float = POLL_S,
        on_lost: Callable[[Unreachable], None] | None = None,
    ) -> JobOut:
        """How it ended. Raises TimeoutError when that takes longer; a server that does not answer is waited for, as
        `Job.wait` does. `on_lost` is called in a thread."""
        away = Away(on_lost)
        async with asyncio.timeout(timeout_s):
            while True:
                found = await asyncio.to_thread(self.sync.polled, away)
                if found is not None and found[1]:
                    return found[0]
                await asyncio.sleep(poll_s)

    async def logs(self, *, follow: bool = False, err: bool = False, task: int | None = None) -> AsyncIterator[str]:
        """Lines of its output."""
        lines = self.sync.logs(follow=follow, err=err, task=task)
        while (line := await asyncio.to_thread(next, lines, None)) is not None:
            yield line
