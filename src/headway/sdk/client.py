"""The API client: `Client().run(...)`, `.submit(...)`, and a part for each subject: `client.jobs`, `client.billing`, ..."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Self, Unpack

from headway.sdk.connection import Connection, Resource
from headway.sdk.server_address import find_server

if TYPE_CHECKING:
    import httpx

    from headway.schemas.server import KeyRotatedOut, MeOut, ServerOut
    from headway.schemas.submission.run_request import RunOptions
    from headway.sdk.resources.access import People, Tokens
    from headway.sdk.resources.batches import Batches
    from headway.sdk.resources.billing import Billing
    from headway.sdk.resources.bundles import Bundles
    from headway.sdk.resources.clusters import Clusters, Operations
    from headway.sdk.resources.exec_commands import Commands
    from headway.sdk.resources.incidents import Incidents
    from headway.sdk.resources.jobs import Job, Jobs
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

# The class of each part and its module below headway.sdk.resources. A part is imported at its first use, because their
# models take longer to import than most commands take.
PARTS = {
    "clusters": ("clusters", "Clusters"),
    "operations": ("clusters", "Operations"),
    "jobs": ("jobs", "Jobs"),
    "notebooks": ("notebooks", "Notebooks"),
    "lineage": ("lineage", "Lineage"),
    "pipelines": ("pipelines", "Pipelines"),
    "services": ("services", "Services"),
    "sweeps": ("sweeps", "Sweeps"),
    "batches": ("batches", "Batches"),
    "models": ("models", "Models"),
    "secrets": ("secrets", "Secrets"),
    "bundles": ("bundles", "Bundles"),
    "commands": ("exec_commands", "Commands"),
    "incidents": ("incidents", "Incidents"),
    "nodes": ("nodes", "Nodes"),
    "backups": ("storage.backups", "Backups"),
    "storage": ("storage.volumes", "Storage"),
    "datasets": ("storage.datasets", "Datasets"),
    "environments": ("storage.environments", "Environments"),
    "billing": ("billing", "Billing"),
    "people": ("access", "People"),
    "tokens": ("access", "Tokens"),
}


class Client:
    """A client of one server; requests and answers are API models, failures are HeadwayError subclasses.

    `Client()` finds the server as the commands do: HEADWAY_URL and HEADWAY_TOKEN, else this machine's own. Use it as a context
    manager, or call `close`."""

    clusters: Clusters
    operations: Operations
    jobs: Jobs
    notebooks: Notebooks
    lineage: Lineage
    pipelines: Pipelines
    sweeps: Sweeps
    batches: Batches
    models: Models
    services: Services
    secrets: Secrets
    bundles: Bundles
    commands: Commands
    incidents: Incidents
    nodes: Nodes
    backups: Backups
    storage: Storage
    datasets: Datasets
    environments: Environments
    billing: Billing
    people: People
    tokens: Tokens

    def __init__(
        self,
        url: str = "",
        token: str = "",
        *,
        timeout_s: float = 60.0,
        fingerprint: str | None = None,
        refresh: Callable[[], tuple[str, str]] | None = None,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        """Prepares the connection. `fingerprint`: of the only certificate that is accepted; None: the one that is pinned for
        this address, if any; "": an authority must have signed the certificate. `refresh` returns (url, token) again after a
        lost connection: a restarted server may have another port.

        Raises Unreachable ("no server; headway server start") when no `url` is given and no server is found."""
        self._connection = Connection(
            url, token, timeout_s=timeout_s, fingerprint=fingerprint, refresh=refresh, transport=transport
        )

    if not TYPE_CHECKING:  # the annotations above declare the parts

        def __getattr__(self, name: str) -> object:
            """Returns a part of the client, made at its first use."""
            if name not in PARTS:
                raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}", name=name, obj=self)
            part = part_class(name)(self._connection)
            setattr(self, name, part)
            return part

        def __dir__(self) -> list[str]:
            return sorted({*super().__dir__(), *PARTS})

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def url(self) -> str:
        """Returns the server's address; it may change with `reconnect` if the server has moved."""
        return self._connection.url

    def close(self) -> None:
        """Closes the connection."""
        self._connection.close()

    def reconnect(self) -> None:
        """Looks up the server's address again after a lost connection; the next call goes there."""
        self._connection.reconnect()

    @contextmanager
    def forward(
        self, method: str, path: str, *, query: str = "", headers: Mapping[str, str], content: bytes = b""
    ) -> Iterator[httpx.Response]:
        """Yields the response of any request below /api/v1 as it is, also an error, to be read in pieces. Raises Unreachable."""
        with self._connection.forward(method, path, query=query, headers=headers, content=content) as answer:
            yield answer

    def me(self) -> MeOut:
        """Returns how the server identifies this client: person, role, Linux user."""
        from headway.schemas.server import MeOut

        return self._connection.get("/me", MeOut)

    def server(self) -> ServerOut:
        """Returns the server's version, process and state folder."""
        from headway.schemas.server import ServerOut

        return self._connection.get("/server", ServerOut)

    def rotate_server_key(self) -> KeyRotatedOut:
        """Encrypts all secrets in the server's database with a new key. Returns how many there are."""
        from headway.schemas.server import KeyRotatedOut

        return self._connection.post("/server/key/rotate", KeyRotatedOut)

    def run(
        self,
        command: Sequence[str],
        *,
        cluster: str = "",
        files: Path | str | None = None,
        **options: Unpack[RunOptions],
    ) -> Job:
        """Runs a command as a job: short for `jobs.run`."""
        return self.jobs.run(command, cluster=cluster, files=files, **options)

    def submit(
        self,
        path: Path | str,
        args: Sequence[str] = (),
        *,
        cluster: str = "",
        files: Path | str | None = None,
        sbatch: Sequence[str] = (),
        chdir: str = "",
        env: Mapping[str, str] | None = None,
        stage_in: Sequence[str] = (),
        environment: str = "",
        secrets: Sequence[str] = (),
    ) -> Job:
        """Submits a batch script: short for `jobs.submit`."""
        return self.jobs.submit(
            path,
            args,
            cluster=cluster,
            files=files,
            sbatch=sbatch,
            chdir=chdir,
            env=env,
            stage_in=stage_in,
            environment=environment,
            secrets=secrets,
        )


def part_class(name: str) -> type[Resource]:
    """Returns the class of the part of a client with this name."""
    module, part = PARTS[name]
    found: type[Resource] = getattr(import_module(f"headway.sdk.resources.{module}"), part)
    return found


def connect(state_dir: Path | str | None = None) -> Client:
    """Returns a client of the server that `find_server` finds (with `state_dir`: of the server of that folder).

    Raises Unreachable and Refused, like `server_address.find_server`."""
    url, token, refresh = find_server(state_dir)
    return Client(url, token, refresh=refresh)
