"""Datasets are added through the API from folders and buckets, with rights checked and obstacles reported."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from moto.server import ThreadedMotoServer

from headway.catalog.providers import SSH
from headway.datasets import file_store
from headway.datasets.async_file_store import LocalDatasetFileStore
from headway.datasets.file_progress import FileProgress, Stopped
from headway.datasets.folder_source import FolderSource
from headway.domain.changeset import RESTART, Change, Disturbs
from headway.domain.dataset import conflicting_field
from headway.domain.storage.folders import Dataset, StorageFolders, Volume
from headway.errors import Unreachable
from headway.server.operations import datasets
from headway.store.clusters.operations import MAX_ATTEMPTS
from tests.support.clusters import builders
from tests.support.clusters.dataset_cluster import API, Mounts, add, done, mounts, server, source
from tests.support.servers import server_fakes
from tests.support.servers.server_fakes import Server

__all__ = ["mounts", "server", "source"]  # fixtures


async def test_dataset_source_replaced_by_a_link_is_not_followed(
    server: Server, mounts: Mounts, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever may write above it would have the server read its own secrets into a dataset."""
    real = datasets.FolderSource

    def swapped(path: Path) -> FolderSource:
        source.rename(tmp_path / "away")
        source.symlink_to(tmp_path / "state")
        return real(path)

    monkeypatch.setattr(datasets, "FolderSource", swapped)
    client = await server.client()
    operation = await done(server, await client.post(API, json={"name": "tiny", "source": str(source)}), "failed")
    assert "is a system folder of the server's machine" in operation.error["message"]
    assert mounts.there == set()


async def test_added_version_is_mounted_read_only_and_listed(server: Server, mounts: Mounts, source: Path) -> None:
    operation = await add(server, source)
    assert operation.kept == ("/datasets/tiny/1",)
    assert mounts.there == {"tiny"}
    client = await server.client()
    (row,) = (await client.get(API)).json()
    told = {
        "name": "tiny",
        "version": 1,
        "path": "/datasets/tiny/1",
        "files": 1,
        "bytes": 5,
        "state": "whole",
        "jobs": 0,
    }
    assert told.items() <= row.items()
    cluster = (await server.state.clusters.get("lab"))[1]
    (mounted,) = cluster.storage.datasets
    assert (mounted.mount, mounted.read_only) == ("/datasets/tiny", True)
    assert (Path(mounted.source) / "1" / "a.txt").read_text() == "alpha"
    assert (await client.get("/api/v1/clusters/lab")).json()["state"] == "ready"


async def test_new_version_applies_nothing_and_identical_content_adds_none(
    server: Server, mounts: Mounts, source: Path
) -> None:
    await add(server, source)
    applied = len(server.backend.named("apply"))
    assert (await add(server, source)).kept == ("/datasets/tiny/1",)
    (source / "b.txt").write_text("beta")
    assert (await add(server, source)).kept == ("/datasets/tiny/2",)
    assert len(server.backend.named("apply")) == applied
    assert [version.label for version in await server.store.datasets.versions("lab")] == ["tiny@1", "tiny@2"]


async def test_mount_with_disruptive_changes_waits_for_an_apply(server: Server, mounts: Mounts, source: Path) -> None:
    mounts.other = (Change("unit.restart", "lab-head", "slurmctld.service", "", Disturbs.JOBS),)
    operation = await add(server, source)
    assert mounts.there == set()
    events = await server.store.operations.events_after(operation.id)
    assert any("headway apply mounts it" in event.text and event.level == "warning" for event in events)


async def test_machine_that_does_not_answer_keeps_no_dataset_from_the_others(
    server: Server, mounts: Mounts, source: Path
) -> None:
    """A node that is being repaired does not answer for a while."""
    mounts.other = (Change(RESTART, "lab-1-2", "lab-1-2", "does not answer SSH", Disturbs.JOBS),)
    await add(server, source)
    assert mounts.there == {"tiny"}
    assert server.backend.restarts is False, "its jobs may still run"


async def test_failed_mount_fails_the_operation_but_keeps_the_version(
    server: Server, mounts: Mounts, source: Path
) -> None:
    server.backend.answers["apply"] = Unreachable("lab-1-1 does not answer")
    client = await server.client()
    asked = await client.post(API, json={"name": "tiny", "source": str(source)})
    operation = await done(server, asked, "failed")
    assert "could not be mounted everywhere: lab-1-1 does not answer" in str(operation.error)
    assert len(await server.store.datasets.versions("lab")) == 1
    assert (await client.get("/api/v1/clusters/lab")).json()["state"] == "ready"


async def test_interrupted_dataset_addition_is_continued(
    server: Server, mounts: Mounts, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, stopped = asyncio.Event(), []
    loop = asyncio.get_running_loop()
    real = file_store.DatasetFileStore.import_files

    def waits(self: Any, name: str, of: Any, progress: FileProgress, before: int) -> Any:
        loop.call_soon_threadsafe(begun.set)
        progress.stop.wait(60)
        stopped.append(name)
        raise Stopped("it was stopped")

    monkeypatch.setattr(file_store.DatasetFileStore, "import_files", waits)
    client = await server.client()
    answer = await client.post(API, json={"name": "tiny", "source": str(source)})
    run = asyncio.create_task(server_fakes.OperationWorker(server.state, "test:0").run())
    await asyncio.wait_for(begun.wait(), 60)
    run.cancel()
    await asyncio.gather(run, return_exceptions=True)
    assert stopped == ["tiny"]
    assert await server.store.datasets.versions("lab") == ()
    monkeypatch.setattr(file_store.DatasetFileStore, "import_files", real)
    assert (await done(server, answer)).kept == ("/datasets/tiny/1",)


@pytest.mark.parametrize("place", ["/etc", "/", "/root/.ssh", "/root"])
async def test_refuses_dataset_sources_of_the_host_system(server: Server, place: str) -> None:
    client = await server.client()
    answer = await client.post(API, json={"name": "tiny", "source": place})
    assert answer.status_code == 403, answer.text


async def test_missing_dataset_source_is_reported(server: Server, mounts: Mounts, tmp_path: Path) -> None:
    client = await server.client()
    asked = await client.post(API, json={"name": "tiny", "source": str(tmp_path / "none")})
    assert "No such file" in str((await done(server, asked, "failed")).error)


class Shared:
    """Versions on machines one owns, as the head would keep them."""

    def __init__(self, server: Server, folder: Path) -> None:
        self.file_store = file_store.DatasetFileStore(folder)
        self.near = LocalDatasetFileStore(self.file_store)
        server.backend.clusters["lab"] = {"provider": SSH}
        server.backend.answers["dataset_file_store"] = lambda _: self.near
        server.state.clusters._resolved.clear()
        server.state.clusters.forget_datasets("lab")


async def test_versions_of_an_ssh_cluster_are_kept_on_its_head(
    server: Server, mounts: Mounts, source: Path, tmp_path: Path
) -> None:
    shared = Shared(server, tmp_path / "scratch")
    assert (await add(server, source)).kept == ("/datasets/tiny/1",)
    assert (shared.file_store.folder("tiny") / "1" / "a.txt").read_text() == "alpha"
    assert not (server.state.settings.state_dir / "volumes").exists()
    (mounted,) = (await server.state.clusters.get("lab"))[1].storage.datasets
    assert (mounted.source, mounted.mount) == ("/scratch/.headway/lab/datasets/versions/tiny", "/datasets/tiny")
    assert mounts.there == {"tiny"}
    client = await server.client()
    await done(server, await client.post(f"{API}/tiny/1/verify"))
    await done(server, await client.post(f"{API}/tiny/1/remove", json={}))
    assert not (shared.file_store.folder("tiny") / "1").exists()
    assert mounts.there == set()


async def test_dataset_mounts_conflict_with_storage_of_the_cluster_file(
    server: Server, mounts: Mounts, source: Path
) -> None:
    await add(server, source, "wide")
    server.backend.clusters["lab"] = {"storage": StorageFolders(datasets=(Dataset("wide", str(source), "/mnt/wide"),))}
    client = await server.client()
    answer = await client.post("/api/v1/plan", json=server_fakes.document().model_dump())
    assert answer.status_code == 422
    assert "/datasets/wide holds versions" in answer.text
    server.backend.clusters["lab"] = {
        "storage": StorageFolders(volumes=(Volume("all", "/datasets", "nfs4", "filer:/d"),))
    }
    server.state.clusters._resolved.clear()
    answer = await client.post(API, json={"name": "tiny", "source": str(source)})
    assert "storage.volumes[0]" in answer.json()["detail"]


def test_conflicting_field_finds_overlapping_mounts() -> None:
    storage = StorageFolders(datasets=(Dataset("own", "/d", "/datasets/a/b"),))
    assert conflicting_field(storage, "own") == "storage.datasets[0]"
    assert conflicting_field(storage, "a") == "storage.datasets[0]"
    assert conflicting_field(storage, "aa") == ""


@pytest.fixture
def buckets() -> Iterator[str]:
    s3 = ThreadedMotoServer("127.0.0.1", port=0, verbose=False)
    s3.start()
    host, port = s3.get_host_and_port()
    yield f"http://{host}:{port}"
    s3.stop()


async def test_adds_a_dataset_from_s3_and_deletes_its_credentials(server: Server, mounts: Mounts, buckets: str) -> None:
    import boto3

    keys = {"aws_access_key_id": "AKIA", "aws_secret_access_key": "hush"}
    owner = boto3.client("s3", endpoint_url=buckets, region_name="us-east-1", **keys)
    owner.create_bucket(Bucket="sets")
    owner.put_object(Bucket="sets", Key="tiny/a.txt", Body=b"alpha")
    client = await server.client()
    s3 = {"endpoint_url": buckets, "key_id": "AKIA", "secret": "hush"}
    answer = await client.post(API, json={"name": "tiny", "source": "s3://sets/tiny/", "s3": s3})
    assert "hush" in str(await server.store.secrets.of_cluster("lab"))
    operation = await done(server, answer)
    assert operation.kept == ("/datasets/tiny/1",)
    (one,) = await server.store.datasets.versions("lab")
    assert (one.source, one.files) == ("s3://sets/tiny", 1)
    assert (
        server.state.clusters.dataset_file_store(builders.cluster()).folder("tiny") / "1" / "a.txt"
    ).read_text() == "alpha"
    trail = await server.store.audit.search()
    assert "hush" not in str([operation, await server.store.secrets.of_cluster("lab"), trail])
    wrong = await client.post(API, json={"name": "tiny", "source": "s3://none/tiny", "s3": s3})
    assert "bucket or object does not exist" in str((await done(server, wrong, "failed")).error)
    assert "hush" not in str(await server.store.secrets.of_cluster("lab"))


S3_ASK = {
    "name": "tiny",
    "source": "s3://sets/tiny",
    "s3": {"endpoint_url": "http://127.0.0.1:9", "key_id": "AKIA", "secret": "hush"},
}


async def test_abandoned_dataset_addition_deletes_its_credentials(server: Server, mounts: Mounts) -> None:
    client = await server.client()
    answer = await client.post(API, json=S3_ASK)
    assert "hush" in str(await server.store.secrets.of_cluster("lab"))
    for _ in range(MAX_ATTEMPTS):
        assert await server.store.operations.claim("test:0", server.state.clock(), -1.0) is not None
    assert "the server stopped" in str((await done(server, answer, "failed")).error)
    assert "hush" not in str(await server.store.secrets.of_cluster("lab"))


async def test_dataset_addition_that_cannot_be_queued_stores_no_credentials(
    server: Server, mounts: Mounts, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def away(*_: Any, **__: Any) -> Any:
        raise Unreachable("the database does not answer")

    monkeypatch.setattr(server.store.operations, "enqueue", away)
    client = await server.client()
    answer = await client.post(API, json=S3_ASK)
    assert answer.status_code >= 500
    assert "hush" not in str(await server.store.secrets.of_cluster("lab"))


@pytest.mark.parametrize(
    "ask",
    [
        {"source": "/data", "s3": {}}, {"source": "s3://UPPER/x"}, {"source": "data"},
        {"source": "s3://b/x", "s3": {"endpoint_url": "file:///etc"}},
        {"source": "s3://bucket/x", "s3": {"endpoint_url": "http://me:secret@host"}},
    ],
)  # fmt: skip
async def test_refuses_invalid_dataset_sources(server: Server, ask: dict[str, Any]) -> None:
    client = await server.client()
    assert (await client.post(API, json={"name": "tiny", **ask})).status_code in (400, 422)
