"""The composition root: one process runs the API, the web page and the background loops, on one state folder."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import hashlib
import os
import resource
import signal
import socket
import time
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import structlog
import uvicorn
from fastapi import FastAPI

from headway import __version__
from headway.api.app import create_app
from headway.catalog.gpuhunt_catalog import PUBLISHED_AT
from headway.errors import HeadwayError, Refused
from headway.server import logging_config, state_files
from headway.server.cluster_backend.backend import Backend
from headway.server.listen_settings import DEFAULT_LISTEN_SETTINGS, DEFAULT_PORT, NOTEBOOK_PORT, ListenSettings
from headway.server.local_tokens import renew_local_tokens, write_local_tokens
from headway.server.log_export import LogExport
from headway.server.machine_clock import is_clock_synchronized
from headway.server.mlflow.process import MlflowProcess
from headway.server.mlflow.worker import MlflowJournals
from headway.server.notebook_proxy import NotebookProxy, origin_of
from headway.server.request_head_limits import BoundedHeaderProtocol
from headway.server.tls_certificate import shown_host
from headway.server.workers.audit_export import AuditExportWorker
from headway.server.workers.backup_schedule import BackupSchedule
from headway.server.workers.billing_worker import BillingWorker
from headway.server.workers.drift_check import DriftCheck
from headway.server.workers.event_listener import EventListener, EventSource
from headway.server.workers.fabric_test_schedule import FabricTestSchedule
from headway.server.workers.job_secret_delivery import JobSecretDelivery
from headway.server.workers.leader_election import LeaderElection
from headway.server.workers.operation_worker import OperationWorker
from headway.server.workers.rented_machines import RentedMachinesCheck
from headway.server.workers.row_rounds import BatchWorker, PipelineScheduleWorker, PromotionWorker, SweepWorker
from headway.server.workers.serving.service_metrics import ServiceMetrics
from headway.server.workers.serving.services import ServiceWorker
from headway.server.workers.slurm_polling import FaultHandler, SnapshotWorker
from headway.server.workers.training_metrics import TrainingMetrics
from headway.server.workers.user_changes import UserChanges
from headway.services.access.submit_rate import DEFAULT_SUBMITS_PER_MINUTE
from headway.services.app_state import AppState
from headway.services.cluster_backend import ClusterBackend
from headway.services.memory_release import release_memory
from headway.services.read_model.live_state import LiveState
from headway.services.server_settings import AuditExport, Oidc, Settings
from headway.store import Store, open_store
from headway.store.db.engine import database_url, shown_url
from headway.store.db.postgres_tls import is_unverified
from headway.validation.hosts import bracketed, is_loopback

SHUTDOWN_S = 3
BACKLOG = 512
NO_AUDIT_EXPORT = AuditExport()
# Thresholds of the garbage collector's generations. Reading ten thousand jobs would trigger full collections of the
# oldest generation again and again, each blocking: those run every TIDY_S seconds only.
GARBAGE = (2_000, 5, 1_000_000)
TIDY_S = 300.0

log = structlog.get_logger("headway.server")


class _Health(FaultHandler, EventSource, Protocol):
    """The health loop of the clusters, fed with readings and with events."""


class ServerBackend(ClusterBackend, Protocol):
    """A cluster backend with what only the server itself calls."""

    @property
    def health(self) -> _Health | None:
        """Returns the health loop; None if this server takes no automatic actions."""
        ...

    async def stand_by(self) -> None:
        """Stops all automatic actions because another server now leads."""
        ...

    async def close(self) -> None:
        """Closes everything that is open for all clusters."""
        ...


MakeBackend = Callable[[Store, Path], ServerBackend]


@dataclass(frozen=True)
class NotebookAddress:
    """Where notebooks are served: their own port, and the URL under which people reach it if that differs."""

    port: int = NOTEBOOK_PORT
    url: str = ""


def _allow_files() -> None:
    """Raises the limit of open files to its maximum: a connection stays open to each machine, and the usual 1,024
    files of a shell or systemd are too few."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def serve(
    state_dir: Path,
    host: str = "127.0.0.1",
    port: int = DEFAULT_PORT,
    url: str = "",
    *,
    data_dir: Path | None = None,
    dataset_roots: tuple[Path, ...] = (),
    notebooks: NotebookAddress = NotebookAddress(),
    listen: ListenSettings = DEFAULT_LISTEN_SETTINGS,
    oidc: Oidc | None = None,
    audit: AuditExport = NO_AUDIT_EXPORT,
    submits_per_minute: int = DEFAULT_SUBMITS_PER_MINUTE,
    offers_url: str = PUBLISHED_AT,
    make_backend: MakeBackend = Backend,
) -> None:
    """Runs the server until SIGTERM or SIGINT. `url` is the database's; `data_dir` is the folder of the clusters'
    data if servers share it (None: the state folder). Port 0 uses a free one; if the default port is in use, a free
    one is taken. Raises Refused if another server uses the state folder."""
    os.umask(0o077)
    _allow_files()
    lock = state_files.lock_state_dir(state_dir)
    try:
        state_files.require_free_space(state_dir)
        logging_config.configure_logging(state_dir)
        server = _Server(
            state_dir,
            data_dir,
            host,
            port,
            url,
            dataset_roots,
            notebooks,
            listen,
            oidc,
            audit,
            make_backend,
            submits_per_minute,
            offers_url,
        )
        asyncio.run(server.run())
    except Exception as error:
        log.error("the server ends because of an error", error=str(error), exc_info=not isinstance(error, HeadwayError))
        raise
    finally:
        state_files.remove_address_file(state_dir)
        lock.close()


@dataclass
class _Server:
    state_dir: Path
    data_dir: Path | None
    host: str
    port: int
    database: str
    dataset_roots: tuple[Path, ...]
    notebooks: NotebookAddress
    listen: ListenSettings
    oidc: Oidc | None
    audit: AuditExport
    make_backend: MakeBackend
    submits_per_minute: int
    offers_url: str

    async def run(self) -> None:
        """Runs the server until it is stopped: opens store and sockets, serves requests, then closes everything."""
        began = time.monotonic()
        store = await open_store(self.state_dir, self.database, data_dir=self.data_dir)
        backend = self.make_backend(store, self.data_dir or self.state_dir)
        try:
            await store.server_locks.register()
            # Bound before anything is written: requests wait in the socket's queue until the app is ready.
            bound = bind_socket(self.host, self.port)
            aside = bind_socket(self.host, self.notebooks.port, default=NOTEBOOK_PORT)
            url = self._url(bound.getsockname()[1])
            public = self.listen.url or url
            apart = self.notebooks.url or origin_of(self.host, aside.getsockname()[1], url)
            state = AppState(store, backend, LiveState(), await self._settings(store, public, apart))
            # This process has the folder's lock, so any process that took leases under this folder's name is dead.
            owner = f"{_folder_name(self.state_dir)}:"
            freed = await store.operations.expire_leases(owner)
            await store.operations.delete_orphaned_secrets()
            app = create_app(state)
            mount_page(app)
            await write_local_tokens(store, self.state_dir, url, state.settings.fingerprint)
            door = NotebookProxy(state)
            await door.listen(aside, self.listen.tls.context if self.listen.tls else None)
            if not is_loopback(self.host) and not state.settings.https:
                log.warning("other machines reach this server without TLS", hint="omit --insecure, give a certificate")
            if is_unverified(self.database):
                log.warning("PostgreSQL's certificate is not verified", hint="omit sslmode in HEADWAY_DATABASE_URL")
            for name in self.audit.in_clear:
                log.warning(f"{name} sends over a network in clear", hint="use https:// or tls://")
            if not is_clock_synchronized():
                log.warning(
                    "the clock of this machine is not synchronized",
                    hint="run a time service: chrony, systemd-timesyncd",
                )
            log.info("server starts", url=url, public=public, notebooks=apart, version=__version__, freed_leases=freed)
            try:
                await self._serve(app, bound, state, backend, f"{owner}{os.getpid()}", url, began)
            finally:
                await door.close()
        finally:
            await backend.close()
            await store.close()
            log.info("server ends")

    async def _serve(
        self,
        app: FastAPI,
        bound: socket.socket,
        state: AppState,
        backend: ServerBackend,
        owner: str,
        url: str,
        began: float,
    ) -> None:
        """Serves requests and runs the background loops until a signal stops them."""
        config = uvicorn.Config(
            app,
            http=BoundedHeaderProtocol,
            log_config=None,
            access_log=False,
            lifespan="off",
            ws="none",
            server_header=False,
            timeout_graceful_shutdown=SHUTDOWN_S,
            # Always set explicitly: by default uvicorn trusts forwarded headers from any client on this machine.
            proxy_headers=bool(self.listen.proxies),
            forwarded_allow_ips=list(self.listen.proxies),
        )
        if self.listen.tls:
            config.load()
            config.ssl = self.listen.tls.context
        http = _Http(config)
        loop = asyncio.get_running_loop()

        def stop() -> None:
            state.live.stopping.set()
            state.live.hub.close()
            http.should_exit = True

        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop)

        def ready() -> None:
            # The path as given: the target of a symbolic link changes when the certificate is renewed.
            cert = str(self.listen.tls.cert.absolute()) if self.listen.tls and not self.listen.tls.own else ""
            state_files.write_address_file(self.state_dir, url, cert, state.settings.fingerprint)
            release_memory()
            gc.freeze()  # what is loaded by now stays in memory and need not be checked again
            gc.set_threshold(*GARBAGE)
            gc.enable()
            log.info("server ready", seconds=round(time.monotonic() - began, 3))

        http.on_started = ready
        poller = SnapshotWorker(state, backend.health)
        led: dict[str, Callable[[], Coroutine[Any, Any, None]]] = {
            "reconcile": OperationWorker(state, owner).run,
            "backups": BackupSchedule(state).run,
            "fabric tests": FabricTestSchedule(state).run,
            "drift": DriftCheck(state).run,
            "rented machines": RentedMachinesCheck(state).run,
            "ledger": BillingWorker(state).run,
            "audit export": AuditExportWorker(state).run,
            "secrets of jobs": JobSecretDelivery(state).run,
            "metrics of trainings": TrainingMetrics(state).run,
            "sweeps": SweepWorker(state).run,
            "services": ServiceWorker(state).run,
            "metrics of services": ServiceMetrics(state).run,
            "batches": BatchWorker(state).run,
            "promotions": PromotionWorker(state).run,
            "schedules of pipelines": PipelineScheduleWorker(state).run,
            "MLflow server": MlflowProcess(state.settings.data, state.mlflow).run,
            "journals of MLflow": MlflowJournals(state).run,
            "changes of users": UserChanges(state).run,
        }
        if backend.health is not None:
            led["events"] = EventListener(state, backend.health).run

        async def stop_leading() -> None:
            poller.cancel_readings()
            await backend.stand_by()

        loops = [
            asyncio.create_task(poller.run(), name="poll"),
            asyncio.create_task(LeaderElection(state, led, stop_leading, _say_if_broken).run(), name="lead"),
            asyncio.create_task(_tidy(), name="tidy"),
            asyncio.create_task(
                renew_local_tokens(state.store, self.state_dir, url, state.settings.fingerprint), name="local tokens"
            ),
        ]
        if self.audit.log_syslog:
            loops.append(asyncio.create_task(LogExport(self.state_dir, self.audit.log_syslog).run(), name="log export"))
        if self.listen.tls and not self.listen.tls.own:
            loops.append(asyncio.create_task(self.listen.tls.watch_renewal(), name="certificate"))
        for task in loops:
            task.add_done_callback(_say_if_broken)
        try:
            await http.serve(sockets=[bound])
        finally:
            for task in loops:
                task.cancel()
            await asyncio.gather(*loops, return_exceptions=True)

    def _url(self, port: int) -> str:
        """Returns the server's own address."""
        if self.listen.tls:
            name = "" if self.listen.tls.own else self.listen.tls.name
            return f"https://{name or bracketed(shown_host(self.host))}:{port}"
        return f"http://{bracketed(shown_host(self.host))}:{port}"

    async def _settings(self, store: Store, url: str, notebooks: str) -> Settings:
        """Returns the settings that the API and the pages use."""
        # Cookies ignore ports: two servers of one host must not overwrite each other's, unless they share a database
        # and so the same sessions. Browsers accept a name that begins with __Host- only over TLS and for the whole
        # host, so that no page on another port can override it.
        name = _folder_name(self.state_dir)
        cookie = (
            f"headway_{await store.server_values.put_if_absent('cookie', name) if store.server_locks.shared else name}"
        )
        return Settings(
            state_dir=self.state_dir,
            data_dir=self.data_dir,
            url=url,
            notebooks=notebooks,
            database=shown_url(database_url(self.state_dir, self.database)),
            cookie=f"__Host-{cookie}" if url.startswith("https://") else cookie,
            allowed_hosts=self.listen.hosts(self.host),
            dataset_roots=self.dataset_roots,
            oidc=self.oidc,
            tls=self.listen.tls is not None,
            fingerprint=self.listen.tls.fingerprint if self.listen.tls and self.listen.tls.own else "",
            proxies=self.listen.proxies,
            audit=self.audit,
            submits_per_minute=self.submits_per_minute,
            offers_url=self.offers_url,
        )


class _Http(uvicorn.Server):
    """uvicorn without its own signal handlers, which would end the process before the background loops have stopped."""

    on_started: Callable[[], None] = staticmethod(lambda: None)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets=sockets)
        if not self.should_exit:
            self.on_started()


async def _tidy() -> None:
    """Collects garbage among long-lived objects every TIDY_S seconds: with ten thousand jobs that takes a tenth of a
    second."""
    while True:
        await asyncio.sleep(TIDY_S)
        release_memory()


def bind_socket(host: str, port: int, default: int = DEFAULT_PORT) -> socket.socket:
    """Returns a listening socket. If the default port is taken, a free one is used; raises Refused if another port
    is taken."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    for choice in dict.fromkeys((port, 0) if port == default else (port,)):
        # With an explicit protocol asyncio disables Nagle's algorithm; otherwise a kept-alive request takes 40 ms
        # longer.
        sock = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            sock.bind((host, choice))
            sock.listen(BACKLOG)  # two sockets may be bound to one port, but only one can listen
        except OSError as error:
            sock.close()
            if choice == default:
                continue
            raise Refused(
                f"the server can't listen on {host} port {choice}: {error.strerror}",
                hint="set HEADWAY_PORT=0 to use a free port",
            ) from None
        sock.set_inheritable(False)
        return sock
    raise Refused(f"the server can't listen on {host}", hint="HEADWAY_HOST")


def mount_page(app: FastAPI) -> None:
    """Adds the web page to the app."""
    from headway.web.app import mount

    mount(app)


def _say_if_broken(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and task.exception() is not None:
        log.error("a worker failed", loop=task.get_name(), exc_info=task.exception())


def _folder_name(state_dir: Path) -> str:
    """Returns a name for this state folder, unique among others: for leases on a shared database, and for the cookie."""
    return hashlib.sha256(f"{socket.gethostname()}:{state_dir.resolve()}".encode()).hexdigest()[:12]
