"""The folder of environments that a cluster's machines share. Its head does the work as root, over SSH
(node/programs/environment_store.py)."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Protocol

from headway.cluster.active_head import require_active_head
from headway.cluster.context import ClusterContext
from headway.domain.cluster import Cluster
from headway.domain.environment import FOLDER, EnvironmentVersion
from headway.errors import Refused, Unreachable
from headway.transport.remote_program import program_source

_PUBLISH_S = 3600.0
_TOOL_S = 300.0


@dataclass(frozen=True, slots=True)
class Published:
    """A version that is in its place. `sha256` is that of the lock."""

    number: int
    sha256: str
    lock: str
    python: str
    packages: int
    bytes: int


class EnvironmentFileStore(Protocol):
    """The folder of environments of one cluster."""

    async def provide_uv(self) -> str:
        """Returns the path of the program uv on the machines, after copying it there once. Raises Refused for machines
        of another architecture than the server's."""
        ...

    async def publish(
        self, name: str, number: int, operation: str, user: str, stage: str, latest: EnvironmentVersion | None
    ) -> Published:
        """Copies the environment that a user's job built in `stage` to its place, complete or not at all. If another
        operation has taken `number`, it gets the next free one; an operation that has already published gets the same
        answer. If `latest` has the same packages, the answer has its number, and its files are there again if they were
        missing. Raises Refused."""
        ...

    async def publish_image(self, name: str, number: int, operation: str) -> Published:
        """Makes a version of the node image's own Python and packages. Numbers and repetition are as in `publish`."""
        ...

    async def remove(self, name: str, number: int) -> None:
        """Removes a version. Does nothing when it is gone."""
        ...

    async def missing(self, versions: Sequence[EnvironmentVersion]) -> tuple[EnvironmentVersion, ...]:
        """Returns those of these versions whose files are not in their place, as after a restore."""
        ...


class SshEnvironmentFileStore:
    """Implements EnvironmentFileStore, by programs that the head runs."""

    def __init__(self, cluster: Cluster, context: ClusterContext) -> None:
        self._cluster, self._context = cluster, context

    async def provide_uv(self) -> str:
        program = await asyncio.to_thread(_uv)
        ask = {"name": program.name, "sha256": program.sha256}
        found = await self._call("tool", {**ask, "bytes": 0})
        mine = program.machine
        if found["machine"] != mine:
            raise Refused(
                f"{self._cluster.head} is a machine of type {found['machine']}, and this server has uv for {mine}",
                hint=f"run the server on a machine of type {found['machine']}",
            )
        if not found["present"]:
            data = await asyncio.to_thread(program.path.read_bytes)
            await self._call("tool", {**ask, "bytes": len(data)}, data, timeout_s=_TOOL_S)
        return f"{FOLDER}/.tools/{program.name}"

    async def publish(
        self, name: str, number: int, operation: str, user: str, stage: str, latest: EnvironmentVersion | None
    ) -> Published:
        ask: dict[str, Any] = {"name": name, "number": number, "operation": operation, "user": user, "stage": stage}
        if latest is not None:
            ask["latest"] = {"number": latest.number, "sha256": latest.digest, "python": latest.python}
        return self._published(await self._call("publish", ask, timeout_s=_PUBLISH_S))

    async def publish_image(self, name: str, number: int, operation: str) -> Published:
        return self._published(
            await self._call("publish_image", {"name": name, "number": number, "operation": operation})
        )

    @staticmethod
    def _published(got: Mapping[str, Any]) -> Published:
        return Published(got["number"], got["sha256"], got["lock"], got["python"], got["packages"], got["bytes"])

    async def remove(self, name: str, number: int) -> None:
        await self._call("remove", {"name": name, "number": number}, timeout_s=_PUBLISH_S)

    async def missing(self, versions: Sequence[EnvironmentVersion]) -> tuple[EnvironmentVersion, ...]:
        got = await self._call("digests", {"versions": [(one.name, one.number) for one in versions]})
        return tuple(one for one, digest in zip(versions, got["sha256"], strict=True) if digest != one.digest)

    async def _call(
        self, what: str, ask: Mapping[str, Any], data: bytes | None = None, *, timeout_s: float = 60.0
    ) -> dict[str, Any]:
        head = await require_active_head(self._cluster, self._context, await self._context.machines(self._cluster.name))
        words = json.dumps({"root": self._cluster.environment_folder, **ask})
        argv = ["python3", "-I", "-S", "-c", program_source("environment_store"), what, words]
        ran = await self._context.connections.remote(head, argv, timeout_s=timeout_s, input=data, check=False)
        try:
            answer = dict(json.loads(ran.stdout))
        except ValueError:
            raise Unreachable(f"{head.name}: {ran.stderr.strip()[-500:] or 'no answer'}") from None
        if "error" in answer:
            raise Refused(f"{head.name}: {answer['error']}", hint=str(answer.get("hint", "")))
        return answer


@dataclass(frozen=True, slots=True)
class _Program:
    path: Path
    name: str
    sha256: str
    machine: str


@cache
def _uv() -> _Program:
    """Returns the program uv of the server's own Python packages. It is linked statically, so every Linux of the same
    architecture runs it."""
    import platform
    from importlib.metadata import version

    import uv

    path = Path(uv.find_uv_bin())
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    return _Program(path, f"uv-{version('uv')}", digest, platform.machine())
