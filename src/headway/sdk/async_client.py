"""The client for asyncio: every method of `Client`, its parts and `Job` runs in a thread, with the same arguments,
results and errors. The methods carry the signatures of their blocking counterparts."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from dataclasses import dataclass
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, TypeVar

from headway.errors import Unreachable
from headway.schemas.jobs import JobOut
from headway.sdk.client import Client
from headway.sdk.connection import Resource
from headway.sdk.reconnect import ServerOutage
from headway.sdk.resources.access import People, Tokens
from headway.sdk.resources.batches import Batches
from headway.sdk.resources.billing import Billing
from headway.sdk.resources.bundles import Bundles
from headway.sdk.resources.clusters import Clusters, Operations
from headway.sdk.resources.exec_commands import Commands
from headway.sdk.resources.incidents import Incidents
from headway.sdk.resources.jobs import POLL_S, Job, Jobs
from headway.sdk.resources.lineage import Lineage
from headway.sdk.resources.models import Models
from headway.sdk.resources.nodes import Nodes
from headway.sdk.resources.notebooks import Notebooks
from headway.sdk.resources.pipelines import Pipelines
from headway.sdk.resources.secrets import Secrets
from headway.sdk.resources.services import Services
from headway.sdk.resources.storage.backups import Backups
from headway.sdk.resources.storage.datasets import Datasets
from headway.sdk.resources.storage.environments import Environments
from headway.sdk.resources.storage.volumes import Storage
from headway.sdk.resources.sweeps import Sweeps

P = ParamSpec("P")
T = TypeVar("T")
S = TypeVar("S")
S_co = TypeVar("S_co", covariant=True)
R = TypeVar("R", bound=Resource)


class _HasSync(Protocol[S_co]):
    """An object with a blocking counterpart."""

    @property
    def sync(self) -> S_co: ...


def _threaded(method: Callable[Concatenate[S, P], T]) -> Callable[Concatenate[_HasSync[S], P], Coroutine[Any, Any, T]]:
    """Returns the blocking method as a coroutine function that runs it in a thread."""

    @functools.wraps(method)
    async def call(self: _HasSync[S], /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await asyncio.to_thread(method, self.sync, *args, **kwargs)

    return call


def _starting(
    method: Callable[Concatenate[S, P], Job],
) -> Callable[Concatenate[_HasSync[S], P], Coroutine[Any, Any, AsyncJob]]:
    """Returns the method as `_threaded` does, for a method that returns a Job: the result is an AsyncJob."""
    threaded = _threaded(method)

    @functools.wraps(method)
    async def call(self: _HasSync[S], /, *args: P.args, **kwargs: P.kwargs) -> AsyncJob:
        return AsyncJob(await threaded(self, *args, **kwargs))

    return call


def _streamed(
    method: Callable[Concatenate[S, P], Iterator[T]],
) -> Callable[Concatenate[_HasSync[S], P], AsyncIterator[T]]:
    """Returns a method that yields asynchronously what the blocking method yields; each step runs in a thread."""

    @functools.wraps(method)
    async def call(self: _HasSync[S], /, *args: P.args, **kwargs: P.kwargs) -> AsyncIterator[T]:
        items = method(self.sync, *args, **kwargs)
        while True:
            item = await asyncio.to_thread(next, items, _END)
            if item is _END:
                return
            yield item

    return call


_END: Any = object()


class AsyncResource(Generic[R]):
    """One part of the API for asyncio."""

    def __init__(self, sync: R) -> None:
        self.sync = sync


class AsyncClusters(AsyncResource[Clusters]):
    """`Clusters` for asyncio."""

    plan = _threaded(Clusters.plan)
    apply = _threaded(Clusters.apply)
    plan_scale = _threaded(Clusters.plan_scale)
    scale = _threaded(Clusters.scale)
    whatif = _threaded(Clusters.whatif)
    whatif_result = _threaded(Clusters.whatif_result)
    whatifs = _threaded(Clusters.whatifs)
    plan_roll = _threaded(Clusters.plan_roll)
    roll = _threaded(Clusters.roll)
    down = _threaded(Clusters.down)
    rotate_key = _threaded(Clusters.rotate_key)
    list = _threaded(Clusters.list)
    get = _threaded(Clusters.get)
    status = _threaded(Clusters.status)
    limits = _threaded(Clusters.limits)
    document = _threaded(Clusters.document)
    ssh_access = _threaded(Clusters.ssh_access)
    slurm_export = _threaded(Clusters.slurm_export)
    only_name = _threaded(Clusters.only_name)


class AsyncOperations(AsyncResource[Operations]):
    """`Operations` for asyncio."""

    get = _threaded(Operations.get)
    list = _threaded(Operations.list)
    events = _streamed(Operations.events)
    wait = _threaded(Operations.wait)


class AsyncJobs(AsyncResource[Jobs]):
    """`Jobs` for asyncio."""

    sbatch = _threaded(Jobs.sbatch)
    check = _threaded(Jobs.check)
    create_run = _threaded(Jobs.create_run)
    tasks = _threaded(Jobs.tasks)
    script = _threaded(Jobs.script)
    lineage = _threaded(Jobs.lineage)
    retry = _threaded(Jobs.retry)
    rerun = _threaded(Jobs.rerun)
    resume = _threaded(Jobs.resume)
    page = _threaded(Jobs.page)
    get = _threaded(Jobs.get)
    stacks = _threaded(Jobs.stacks)
    metrics = _threaded(Jobs.metrics)
    metric_series = _threaded(Jobs.metric_series)
    metrics_csv = _streamed(Jobs.metrics_csv)
    trainings = _threaded(Jobs.trainings)
    training_groups = _threaded(Jobs.training_groups)
    trainings_csv = _streamed(Jobs.trainings_csv)
    annotate = _threaded(Jobs.annotate)
    compare = _threaded(Jobs.compare)
    cancel = _threaded(Jobs.cancel)
    log = _streamed(Jobs.log)
    list = _threaded(Jobs.list)
    run = _starting(Jobs.run)
    submit = _starting(Jobs.submit)
    attach = _starting(Jobs.attach)


class AsyncNotebooks(AsyncResource[Notebooks]):
    """`Notebooks` for asyncio."""

    list = _threaded(Notebooks.list)
    start = _threaded(Notebooks.start)
    get = _threaded(Notebooks.get)
    link = _threaded(Notebooks.link)
    stop = _threaded(Notebooks.stop)


class AsyncLineage(AsyncResource[Lineage]):
    """`Lineage` for asyncio."""

    show = _threaded(Lineage.show)


class AsyncPipelines(AsyncResource[Pipelines]):
    """`Pipelines` for asyncio."""

    start = _threaded(Pipelines.start)
    list = _threaded(Pipelines.list)
    get = _threaded(Pipelines.get)
    retry = _threaded(Pipelines.retry)
    schedule = _threaded(Pipelines.schedule)
    schedules = _threaded(Pipelines.schedules)
    unschedule = _threaded(Pipelines.unschedule)


class AsyncServices(AsyncResource[Services]):
    """`Services` for asyncio."""

    start = _threaded(Services.start)
    list = _threaded(Services.list)
    get = _threaded(Services.get)
    metrics = _threaded(Services.metrics)
    stop = _threaded(Services.stop)
    scale = _threaded(Services.scale)
    create_key = _threaded(Services.create_key)
    keys = _threaded(Services.keys)
    revoke_key = _threaded(Services.revoke_key)


class AsyncBatches(AsyncResource[Batches]):
    """`Batches` for asyncio."""

    start = _threaded(Batches.start)
    list = _threaded(Batches.list)
    get = _threaded(Batches.get)
    stop = _threaded(Batches.stop)
    retry = _threaded(Batches.retry)


class AsyncModels(AsyncResource[Models]):
    """`Models` for asyncio."""

    list = _threaded(Models.list)
    get = _threaded(Models.get)
    approve = _threaded(Models.approve)
    promote = _threaded(Models.promote)
    promotions = _threaded(Models.promotions)
    promotion = _threaded(Models.promotion)
    wait = _threaded(Models.wait)
    required_gates = _threaded(Models.required_gates)
    require_gates = _threaded(Models.require_gates)
    manifest = _threaded(Models.manifest)
    signing_key = _threaded(Models.signing_key)


class AsyncSweeps(AsyncResource[Sweeps]):
    """`Sweeps` for asyncio."""

    start = _threaded(Sweeps.start)
    list = _threaded(Sweeps.list)
    get = _threaded(Sweeps.get)
    add_trials = _threaded(Sweeps.add_trials)
    stop = _threaded(Sweeps.stop)
    run_best = _threaded(Sweeps.run_best)


class AsyncBundles(AsyncResource[Bundles]):
    """`Bundles` for asyncio."""

    exists = _threaded(Bundles.exists)
    upload = _threaded(Bundles.upload)


class AsyncCommands(AsyncResource[Commands]):
    """`Commands` for asyncio."""

    exec = _threaded(Commands.exec)
    stream = _streamed(Commands.stream)


class AsyncIncidents(AsyncResource[Incidents]):
    """`Incidents` for asyncio."""

    list = _threaded(Incidents.list)
    get = _threaded(Incidents.get)
    return_node = _threaded(Incidents.return_node)


class AsyncNodes(AsyncResource[Nodes]):
    """`Nodes` for asyncio."""

    history = _threaded(Nodes.history)
    rented = _threaded(Nodes.rented)
    get = _threaded(Nodes.get)
    drain = _threaded(Nodes.drain)
    return_to_service = _threaded(Nodes.return_to_service)
    reboot = _threaded(Nodes.reboot)
    test = _threaded(Nodes.test)
    test_fabric = _threaded(Nodes.test_fabric)
    fabric_test = _threaded(Nodes.fabric_test)
    inject_fault = _threaded(Nodes.inject_fault)


class AsyncBackups(AsyncResource[Backups]):
    """`Backups` for asyncio."""

    create = _threaded(Backups.create)
    list = _threaded(Backups.list)
    verify = _threaded(Backups.verify)
    restore = _threaded(Backups.restore)


class AsyncSecrets(AsyncResource[Secrets]):
    """`Secrets` for asyncio."""

    list = _threaded(Secrets.list)
    set = _threaded(Secrets.set)
    remove = _threaded(Secrets.remove)


class AsyncStorage(AsyncResource[Storage]):
    """`Storage` for asyncio."""

    get = _threaded(Storage.get)
    benchmark = _threaded(Storage.benchmark)


class AsyncDatasets(AsyncResource[Datasets]):
    """`Datasets` for asyncio."""

    list = _threaded(Datasets.list)
    add = _threaded(Datasets.add)
    verify = _threaded(Datasets.verify)
    remove = _threaded(Datasets.remove)


class AsyncEnvironments(AsyncResource[Environments]):
    """`Environments` for asyncio."""

    list = _threaded(Environments.list)
    get = _threaded(Environments.get)
    add = _threaded(Environments.add)
    remove = _threaded(Environments.remove)


class AsyncBilling(AsyncResource[Billing]):
    """`Billing` for asyncio."""

    usage = _threaded(Billing.usage)
    usage_runs = _threaded(Billing.usage_runs)
    node_states = _threaded(Billing.node_states)
    invoice = _threaded(Billing.invoice)
    invoices = _threaded(Billing.invoices)
    close_invoice = _threaded(Billing.close_invoice)
    chargeback = _threaded(Billing.chargeback)
    goodput = _threaded(Billing.goodput)
    job_goodput = _threaded(Billing.job_goodput)
    budgets = _threaded(Billing.budgets)
    energy = _threaded(Billing.energy)
    capacity = _threaded(Billing.capacity)
    forecast = _threaded(Billing.forecast)
    purchase = _threaded(Billing.purchase)
    estimate = _threaded(Billing.estimate)
    rebuild_ledger = _threaded(Billing.rebuild_ledger)
    offers = _threaded(Billing.offers)
    refresh_offers = _threaded(Billing.refresh_offers)
    size = _threaded(Billing.size)


class AsyncPeople(AsyncResource[People]):
    """`People` for asyncio."""

    list = _threaded(People.list)
    put = _threaded(People.put)
    disable = _threaded(People.disable)
    enable = _threaded(People.enable)
    delete = _threaded(People.delete)
    audit_trail = _streamed(People.audit_trail)
    verify_audit = _threaded(People.verify_audit)


class AsyncTokens(AsyncResource[Tokens]):
    """`Tokens` for asyncio."""

    sign_in_link = _threaded(Tokens.sign_in_link)
    list = _threaded(Tokens.list)
    create = _threaded(Tokens.create)
    revoke = _threaded(Tokens.revoke)


class AsyncClient:
    """A client for asyncio: `async with AsyncClient() as client: job = await client.run(...)`."""

    def __init__(self, url: str = "", token: str = "", *, fingerprint: str | None = None) -> None:
        sync = Client(url, token, fingerprint=fingerprint)
        self.sync = sync
        self.clusters = AsyncClusters(sync.clusters)
        self.operations = AsyncOperations(sync.operations)
        self.jobs = AsyncJobs(sync.jobs)
        self.notebooks = AsyncNotebooks(sync.notebooks)
        self.lineage = AsyncLineage(sync.lineage)
        self.pipelines = AsyncPipelines(sync.pipelines)
        self.sweeps = AsyncSweeps(sync.sweeps)
        self.batches = AsyncBatches(sync.batches)
        self.models = AsyncModels(sync.models)
        self.services = AsyncServices(sync.services)
        self.secrets = AsyncSecrets(sync.secrets)
        self.bundles = AsyncBundles(sync.bundles)
        self.commands = AsyncCommands(sync.commands)
        self.incidents = AsyncIncidents(sync.incidents)
        self.nodes = AsyncNodes(sync.nodes)
        self.backups = AsyncBackups(sync.backups)
        self.storage = AsyncStorage(sync.storage)
        self.datasets = AsyncDatasets(sync.datasets)
        self.environments = AsyncEnvironments(sync.environments)
        self.billing = AsyncBilling(sync.billing)
        self.people = AsyncPeople(sync.people)
        self.tokens = AsyncTokens(sync.tokens)

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.sync.close()

    run = _starting(Client.run)
    submit = _starting(Client.submit)
    me = _threaded(Client.me)
    server = _threaded(Client.server)
    rotate_server_key = _threaded(Client.rotate_server_key)


@dataclass(frozen=True)
class AsyncJob:
    """A submitted job."""

    sync: Job

    @property
    def id(self) -> int:
        """Returns the job id of Slurm."""
        return self.sync.id

    @property
    def cluster(self) -> str:
        """Returns the name of the job's cluster."""
        return self.sync.cluster

    status = _threaded(Job.status)
    tasks = _threaded(Job.tasks)
    lineage = _threaded(Job.lineage)
    cancel = _threaded(Job.cancel)
    retry = _starting(Job.retry)
    rerun = _starting(Job.rerun)
    resume = _starting(Job.resume)
    logs = _streamed(Job.logs)

    async def wait(
        self,
        *,
        timeout_s: float | None = None,
        poll_s: float = POLL_S,
        on_lost: Callable[[Unreachable], None] | None = None,
    ) -> JobOut:
        """Waits until the job has ended and returns it, like `Job.wait`. `on_lost` is called in a thread."""
        outage = ServerOutage(on_lost)
        async with asyncio.timeout(timeout_s):
            while True:
                found = await asyncio.to_thread(self.sync.poll, outage)
                if found is not None and found[1]:
                    return found[0]
                await asyncio.sleep(poll_s)
