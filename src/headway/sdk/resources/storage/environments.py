"""Software environments."""

from __future__ import annotations

import builtins
from pathlib import Path

from headway.errors import NotFound, Refused
from headway.schemas.operations import OperationOut
from headway.schemas.storage.environments import (
    EnvironmentDetailOut,
    EnvironmentIn,
    EnvironmentOut,
    EnvironmentRemoveIn,
)
from headway.sdk.connection import Resource, cluster_path
from headway.sdk.submission import build_request

SOURCES = ("pyproject.toml", "uv.lock")  # every other file is read as requirements.txt


class Environments(Resource):
    """Versioned, read-only Python environments of a cluster."""

    def list(self, cluster: str) -> builtins.list[EnvironmentOut]:
        """Returns every version of every environment, by name and number."""
        return self._connection.get_list(cluster_path(cluster, "environments"), EnvironmentOut)

    def get(self, cluster: str, name: str, version: int) -> EnvironmentDetailOut:
        """Returns one version with its lock."""
        path = cluster_path(cluster, "environments", name, str(int(version)))
        return self._connection.get(path, EnvironmentDetailOut)

    def add(
        self, cluster: str, name: str, requirements: Path | str, *, partition: str = "", team: str = "", user: str = ""
    ) -> OperationOut:
        """Queues the build of a new version from a requirements file, a pyproject.toml or a uv.lock (with the
        pyproject.toml next to it), in a job of this person. `kept` of its operation contains the path."""
        file = Path(requirements)
        source = file.name if file.name in SOURCES else "requirements.txt"
        pyproject = _text(file.with_name("pyproject.toml")) if source == "uv.lock" else ""
        ask = build_request(
            EnvironmentIn, name=name, source=source, text=_text(file), pyproject=pyproject, partition=partition,
            team=team, user=user,
        )  # fmt: skip
        return self._connection.post(cluster_path(cluster, "environments"), OperationOut, ask)

    def remove(self, cluster: str, name: str, version: int, *, force: bool = False) -> OperationOut:
        """Queues the removal of a version. Raises Conflict while a job's lineage names it, unless `force`."""
        path = cluster_path(cluster, "environments", name, str(int(version)), "remove")
        return self._connection.post(path, OperationOut, EnvironmentRemoveIn(force=force))


def _text(file: Path) -> str:
    try:
        return file.read_text()
    except FileNotFoundError:
        raise NotFound(f"{file}: no such file on this machine") from None
    except (OSError, UnicodeDecodeError) as error:
        raise Refused(f"{file} can't be read: {error}", hint="give a text file") from None
