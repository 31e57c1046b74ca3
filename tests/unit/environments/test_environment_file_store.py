"""The program that the server sends to the head answers for versions that are there and for missing ones."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from headway.catalog.providers import SSH
from headway.cluster.context import ClusterContext
from headway.domain.environment import EnvironmentVersion
from headway.domain.machines.machine import Machine
from headway.domain.storage.folders import StorageFolders
from headway.environments.environment_file_store import SshEnvironmentFileStore
from headway.errors import Refused
from headway.transport.process import CommandResult, run_process
from tests.support.clusters import builders


class Head:
    """A provider with one head, and its connection: programs run here."""

    async def list(self, _: str) -> tuple[Machine, ...]:
        return (builders.machine("lab-head"),)

    async def remote(self, _: Machine, argv: Sequence[str], **options: Any) -> CommandResult:
        return await run_process([sys.executable, *argv[1:]], **options)


@pytest.fixture
def file_store(tmp_path: Path) -> SshEnvironmentFileStore:
    cluster = replace(builders.cluster(provider=SSH), storage=StorageFolders(scratch=str(tmp_path)))
    both: Any = Head()
    return SshEnvironmentFileStore(cluster, ClusterContext(both, both, both, Path()))


def version(number: int, digest: str) -> EnvironmentVersion:
    return EnvironmentVersion("lab", "demo", number, digest, "3.13.5", 1, 1, "x", "", "ann", 1.0, 7)


async def test_missing_versions_and_those_with_other_files_are_found(
    file_store: SshEnvironmentFileStore, tmp_path: Path
) -> None:
    folder = tmp_path / ".headway" / "lab" / "environments" / "demo"
    for number, digest in ((1, "a" * 64), (2, "b" * 64)):
        (folder / str(number)).mkdir(parents=True)
        (folder / str(number) / ".headway.json").write_text(json.dumps({"sha256": digest}))
    whole, other, gone = version(1, "a" * 64), version(2, "c" * 64), version(3, "d" * 64)
    assert await file_store.missing([whole, other, gone]) == (other, gone)
    assert await file_store.missing([]) == ()


async def test_error_of_the_program_says_where_and_what_to_do(
    file_store: SshEnvironmentFileStore, tmp_path: Path
) -> None:
    (tmp_path / ".headway").touch()
    with pytest.raises(Refused, match=r"^lab-head: .*Not a directory") as refused:
        await file_store.publish_image("pytorch", 1, "image-x")
    assert refused.value.hint.startswith(f"check the volume of {tmp_path}/.headway/lab/environments")
