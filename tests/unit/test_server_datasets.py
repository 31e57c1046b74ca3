"""Datasets with versions through the API: added, read again, removed; who may, what stands in the way, what lineage says."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from moto.server import ThreadedMotoServer

from headway.domain.change import Change, ChangeSet, Disturbs
from headway.domain.cluster import Cluster, Dataset, Storage, Volume
from headway.domain.dataset import Version, in_the_way, size
from headway.errors import Refused, Unreachable
from headway.jobs import lineage
from headway.jobs.run import Prepared
from headway.keep import library
from headway.keep.manifest import Folder
from headway.keep.shelf import Near
from headway.server import datasets
from headway.store.operations import MAX_ATTEMPTS
from headway.wire.work import SubmitIn, SubmitOut
from tests import builders
from tests.unit import server_fakes
from tests.unit.server_fakes import Server

API = "/api/v1/clusters/lab/datasets"


class Mounts:
    """A cluster's machines: what is mounted there, and what apply makes of it."""

    def __init__(self, server: Server) -> None:
        self.there: set[str] = set()
        self.other: tuple[Change, ...] = ()
        server.work.answers |= {"plan": self.plan, "apply": self.apply}

    @staticmethod
    def wanted(cluster: Cluster) -> set[str]:
        return {f"{one.mount} of {Path(one.source).name}" for one in cluster.storage.datasets if one.versioned}

    def plan(self, cluster: Cluster) -> ChangeSet:
        attach = [Change("dataset.attach", "cluster", name, "") for name in sorted(self._names(cluster) - self.there)]
        detach = [
            Change("file.remove", "lab-1-1", f"/etc/systemd/system/datasets-{name}.mount", "", Disturbs.JOBS)
            for name in sorted(self.there - self._names(cluster))
        ]
        return ChangeSet(cluster.name, (*attach, *detach, *self.other))

    def apply(self, cluster: Cluster, _: Any) -> None:
        self.there = self._names(cluster)

    @staticmethod
    def _names(cluster: Cluster) -> set[str]:
        return {one.name for one in cluster.storage.datasets if one.versioned}


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Server]:
    (tmp_path / "state").mkdir()
    made = await server_fakes.start(tmp_path / "state", builders.Clock())
    await made.apply()
    yield made
    await made.close()


@pytest.fixture
def mounts(server: Server) -> Mounts:
    return Mounts(server)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    folder = tmp_path / "tiny"
    folder.mkdir()
    (folder / "a.txt").write_text("alpha")
    return folder


async def done(server: Server, answer: Any, state: str = "done") -> Any:
    assert answer.status_code == 202, answer.text
    await server.work_off()
    operation = await server.store.operation(answer.json()["id"])
    assert operation.state == state, operation.error
    return operation


async def add(server: Server, source: Path, name: str = "tiny") -> Any:
    client = await server.client()
    return await done(server, await client.post(API, json={"name": name, "source": str(source)}))


async def test_a_folder_that_becomes_a_link_after_the_look_at_it_is_not_followed(
    server: Server, mounts: Mounts, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever may write above it would have the server read its own secrets into a dataset."""
    real = datasets.Folder

    def swapped(path: Path) -> Folder:
        source.rename(tmp_path / "away")
        source.symlink_to(tmp_path / "state")
        return real(path)

    monkeypatch.setattr(datasets, "Folder", swapped)
    client = await server.client()
    operation = await done(server, await client.post(API, json={"name": "tiny", "source": str(source)}), "failed")
    assert "belongs to the server's machine itself" in operation.error["message"]
    assert mounts.there == set()


async def test_a_version_is_added_mounted_and_listed(server: Server, mounts: Mounts, source: Path) -> None:
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
    cluster = (await server.state.cluster("lab"))[1]
    (mounted,) = cluster.storage.datasets
    assert (mounted.mount, mounted.read_only) == ("/datasets/tiny", True)
    assert (Path(mounted.source) / "1" / "a.txt").read_text() == "alpha"
    assert (await client.get("/api/v1/clusters/lab")).json()["state"] == "ready"


async def test_another_version_changes_nothing_on_machines_and_the_same_content_makes_none(
    server: Server, mounts: Mounts, source: Path
) -> None:
    await add(server, source)
    applied = len(server.work.named("apply"))
    assert (await add(server, source)).kept == ("/datasets/tiny/1",)
    (source / "b.txt").write_text("beta")
    assert (await add(server, source)).kept == ("/datasets/tiny/2",)
    assert len(server.work.named("apply")) == applied
    assert [one.label for one in await server.store.versions("lab")] == ["tiny@1", "tiny@2"]


async def test_a_mount_that_would_come_with_what_disturbs_waits_for_an_apply(
    server: Server, mounts: Mounts, source: Path
) -> None:
    mounts.other = (Change("unit.restart", "lab-head", "slurmctld.service", "", Disturbs.JOBS),)
    operation = await add(server, source)
    assert mounts.there == set()
    events = await server.store.events_after(operation.id)
    assert any("headway apply mounts it" in event.text and event.level == "warning" for event in events)


async def test_machines_that_cannot_mount_it_fail_the_operation_and_keep_the_version(
    server: Server, mounts: Mounts, source: Path
) -> None:
    server.work.answers["apply"] = Unreachable("lab-1-1 does not answer")
    client = await server.client()
    asked = await client.post(API, json={"name": "tiny", "source": str(source)})
    operation = await done(server, asked, "failed")
    assert "could not be mounted everywhere: lab-1-1 does not answer" in str(operation.error)
    assert len(await server.store.versions("lab")) == 1
    assert (await client.get("/api/v1/clusters/lab")).json()["state"] == "ready"


async def test_an_addition_goes_on_when_its_server_is_stopped(
    server: Server, mounts: Mounts, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, stopped = asyncio.Event(), []
    loop = asyncio.get_running_loop()
    real = library.Library.bring

    def waits(self: Any, name: str, of: Any, progress: library.Progress, before: int) -> Any:
        loop.call_soon_threadsafe(begun.set)
        progress.stop.wait(60)
        stopped.append(name)
        raise library.Stopped("it was stopped")

    monkeypatch.setattr(library.Library, "bring", waits)
    client = await server.client()
    answer = await client.post(API, json={"name": "tiny", "source": str(source)})
    run = asyncio.create_task(server_fakes.Reconciler(server.state, "test:0").run())
    await asyncio.wait_for(begun.wait(), 60)
    run.cancel()
    await asyncio.gather(run, return_exceptions=True)
    assert stopped == ["tiny"]
    assert await server.store.versions("lab") == ()
    monkeypatch.setattr(library.Library, "bring", real)
    assert (await done(server, answer)).kept == ("/datasets/tiny/1",)


@pytest.mark.parametrize("place", ["/etc", "/", "/root/.ssh", "/root"])
async def test_nothing_of_the_hosts_own_is_shown_to_a_cluster(server: Server, place: str) -> None:
    client = await server.client()
    answer = await client.post(API, json={"name": "tiny", "source": place})
    assert answer.status_code == 403, answer.text


async def test_a_folder_that_is_not_there_is_said(server: Server, mounts: Mounts, tmp_path: Path) -> None:
    client = await server.client()
    asked = await client.post(API, json={"name": "tiny", "source": str(tmp_path / "none")})
    assert "No such file" in str((await done(server, asked, "failed")).error)


class Shared:
    """Versions on machines one owns, as the head would keep them."""

    def __init__(self, server: Server, folder: Path) -> None:
        self.library = library.Library(folder)
        self.near = Near(self.library)
        server.work.clusters["lab"] = {"provider": "ssh"}
        server.work.answers["shelf"] = lambda _: self.near
        server.state._resolved.clear()
        server.state.datasets_changed("lab")


async def test_on_machines_of_ones_own_the_head_keeps_them(
    server: Server, mounts: Mounts, source: Path, tmp_path: Path
) -> None:
    shared = Shared(server, tmp_path / "scratch")
    assert (await add(server, source)).kept == ("/datasets/tiny/1",)
    assert (shared.library.folder("tiny") / "1" / "a.txt").read_text() == "alpha"
    assert not (server.state.settings.state_dir / "volumes").exists()
    (mounted,) = (await server.state.cluster("lab"))[1].storage.datasets
    assert (mounted.source, mounted.mount) == ("/scratch/.headway/lab/datasets/versions/tiny", "/datasets/tiny")
    assert mounts.there == {"tiny"}
    client = await server.client()
    await done(server, await client.post(f"{API}/tiny/1/verify"))
    await done(server, await client.post(f"{API}/tiny/1/remove", json={}))
    assert not (shared.library.folder("tiny") / "1").exists()
    assert mounts.there == set()


async def test_what_the_file_mounts_there_is_in_the_way_and_the_other_way_round(
    server: Server, mounts: Mounts, source: Path
) -> None:
    await add(server, source, "wide")
    server.work.clusters["lab"] = {"storage": Storage(datasets=(Dataset("wide", str(source), "/mnt/wide"),))}
    client = await server.client()
    answer = await client.post("/api/v1/plan", json=server_fakes.document().model_dump())
    assert answer.status_code == 422
    assert "/datasets/wide holds versions" in answer.text
    server.work.clusters["lab"] = {"storage": Storage(volumes=(Volume("all", "/datasets", "nfs4", "filer:/d"),))}
    server.state._resolved.clear()
    answer = await client.post(API, json={"name": "tiny", "source": str(source)})
    assert "storage.volumes[0]" in answer.json()["detail"]


def test_the_ways_of_being_in_the_way() -> None:
    storage = Storage(datasets=(Dataset("own", "/d", "/datasets/a/b"),))
    assert in_the_way(storage, "own") == "storage.datasets[0]"
    assert in_the_way(storage, "a") == "storage.datasets[0]"
    assert in_the_way(storage, "aa") == ""


async def test_damage_is_named_and_stays_known(server: Server, mounts: Mounts, source: Path) -> None:
    await add(server, source)
    client = await server.client()
    await done(server, await client.post(f"{API}/tiny/1/verify"))
    file = server.state.library(builders.cluster()).folder("tiny") / "1" / "a.txt"
    file.chmod(0o644)
    file.write_text("ALPHA")
    operation = await done(server, await client.post(f"{API}/tiny/1/verify"), "failed")
    assert "a.txt has another content" in str(operation.error)
    (row,) = (await client.get(API)).json()
    assert (row["state"], row["damage"], row["checked_at"]) == ("damaged", "  a.txt has another content", 1000.0)
    assert (await client.post(f"{API}/tiny/7/verify")).status_code == 404


async def test_what_is_damaged_is_brought_again_under_another_number(
    server: Server, mounts: Mounts, source: Path
) -> None:
    await add(server, source)
    client = await server.client()
    file = server.state.library(builders.cluster()).folder("tiny") / "1" / "a.txt"
    file.chmod(0o644)
    file.write_text("ALPHA")
    await done(server, await client.post(f"{API}/tiny/1/verify"), "failed")
    assert (await add(server, source)).kept == ("/datasets/tiny/2",)
    await done(server, await client.post(f"{API}/tiny/2/verify"))


async def test_a_removal_that_failed_is_asked_for_again(
    server: Server, mounts: Mounts, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await add(server, source)
    client = await server.client()

    async def away(*_: Any) -> int:
        raise Unreachable("the head does not answer")

    with monkeypatch.context() as patch:
        patch.setattr(Near, "remove", away)
        await done(server, await client.post(f"{API}/tiny/1/remove", json={}), "failed")
    tree = server.state.library(builders.cluster()).folder("tiny") / "1"
    assert tree.exists()
    await done(server, await client.post(f"{API}/tiny/1/remove", json={}))
    assert not tree.exists()


async def job(server: Server, number: int, script: str) -> None:
    server.work.answers["submit"] = SubmitOut(job_id=number, cluster="lab", user="ann", workdir="/w")
    client = await server.client()
    answer = await client.post("/api/v1/clusters/lab/jobs", json={"script": script})
    assert answer.status_code == 201, answer.text


async def test_a_version_that_lineage_names_stays_unless_forced_and_the_lineage_says_so(
    server: Server, mounts: Mounts, source: Path
) -> None:
    await add(server, source)
    await job(server, 41, "#!/bin/sh\npython train.py --data /datasets/tiny/1/train\n")
    await job(server, 42, "#!/bin/sh\nhostname\n")
    client = await server.client()
    (row,) = (await client.get(API)).json()
    assert row["jobs"] == 1
    refused = await client.post(f"{API}/tiny/1/remove", json={})
    assert refused.status_code == 409
    assert "lineage of job 41:" in refused.json()["detail"]
    await done(server, await client.post(f"{API}/tiny/1/remove", json={"force": True}))
    assert (await client.get(API)).json() == []
    assert not (server.state.library(builders.cluster()).folder("tiny") / "1").exists()
    assert mounts.there == set()
    assert "was removed by ann" in (await client.post(f"{API}/tiny/1/verify")).json()["detail"]
    server.work.answers |= {"job": builders.job(41, "COMPLETED", user="ann"), "run_command": _nothing()}
    (told,) = (await client.get("/api/v1/clusters/lab/jobs/41/lineage")).json()["datasets"]
    assert (told["name"], told["version"], told["removed"]) == ("tiny", "1", "by ann, by force")
    assert (await add(server, source)).kept == ("/datasets/tiny/2",)


def _nothing() -> Any:
    from headway.wire.work import ExecOut

    return ExecOut(code=1, stdout_b64="", stderr_b64="")


async def test_a_removal_that_a_job_came_before_is_refused_when_its_turn_comes(
    server: Server, mounts: Mounts, source: Path
) -> None:
    await add(server, source)
    client = await server.client()
    answer = await client.post(f"{API}/tiny/1/remove", json={})
    await job(server, 41, "#!/bin/sh\ncat /datasets/tiny/1/a.txt\n")
    await done(server, answer, "failed")
    assert len(await server.store.versions("lab")) == 1


async def test_what_is_deleted_with_a_cluster_is_known_no_more_and_kept_data_is_found_again(
    server: Server, mounts: Mounts, source: Path
) -> None:
    await add(server, source)
    server.work.answers["down"] = ()
    client = await server.client()
    await done(server, await client.post("/api/v1/clusters/lab/down", json={}))
    mounts.there = set()
    await server.apply()
    assert mounts.there == {"tiny"}
    await done(server, await client.post("/api/v1/clusters/lab/down", json={"delete_data": True}))
    shutil.rmtree(server.state.settings.state_dir / "volumes")
    mounts.there = set()
    await server.apply()
    assert mounts.there == set()


V1, V2, OTHER = (
    Version("lab", name, n, "0" * 64, 1, 1, "/d", "ann", 1.0) for name, n in (("a", 1), ("a", 2), ("ab", 1))
)


@pytest.mark.parametrize(
    ("request_of", "found"),
    [
        ({"script": "cat /datasets/a/1/x"}, [V1]),
        ({"script": "cat '/datasets/a/2'"}, [V2]),
        ({"script": "cat /datasets/a"}, [V1, V2]),
        ({"script": "cat /datasets/a/*"}, [V1, V2]),
        ({"script": "cat /my/datasets/a/1"}, []),
        ({"script": "cat ${ROOT}/datasets/ab/1"}, [OTHER]),
        ({"script": "", "env": {"DATA": "/datasets/ab/1"}}, [OTHER]),
        ({"script": "", "args": ["--container-mounts=/datasets/a/1:/data,/datasets/ab/1:/more"]}, [V1, OTHER]),
        ({"script": "cat /datasets/a/17"}, []),
    ],
)
def test_which_versions_a_job_names(request_of: dict[str, Any], found: list[Version]) -> None:
    prepared = Prepared(SubmitIn(**request_of), None)
    assert lineage.used(prepared, [V1, V2, OTHER]) == found


def test_lineage_holds_the_digest_of_a_version_and_the_folder_of_another_dataset() -> None:
    own = Dataset("own", "/data/own", "/datasets/own")
    cluster = replace(
        builders.cluster(2), storage=Storage(datasets=(own, Dataset("a", "/v/a", "/datasets/a", versioned=True)))
    )
    kept = lineage.facts(Prepared(SubmitIn(script="x"), None), cluster, [V1])["datasets"]
    assert kept == [
        {"name": "own", "mount": "/datasets/own", "version": "/data/own"},
        {"name": "a", "mount": "/datasets/a/1", "version": "1", "sha256": "0" * 64},
    ]


def test_sizes_for_people() -> None:
    assert [size(n) for n in (0, 1023, 1024, 5 << 30, 3 << 50)] == [
        "0 bytes",
        "1023 bytes",
        "1.0 KiB",
        "5.0 GiB",
        "3072.0 TiB",
    ]


def test_a_refusal_is_one() -> None:
    assert issubclass(library.Stopped, Exception)
    assert not issubclass(library.Stopped, Refused)


@pytest.fixture
def buckets() -> Iterator[str]:
    s3 = ThreadedMotoServer("127.0.0.1", port=0, verbose=False)
    s3.start()
    host, port = s3.get_host_and_port()
    yield f"http://{host}:{port}"
    s3.stop()


async def test_a_bucket_is_brought_in_and_its_keys_are_forgotten(server: Server, mounts: Mounts, buckets: str) -> None:
    import boto3

    keys = {"aws_access_key_id": "AKIA", "aws_secret_access_key": "hush"}
    owner = boto3.client("s3", endpoint_url=buckets, region_name="us-east-1", **keys)
    owner.create_bucket(Bucket="sets")
    owner.put_object(Bucket="sets", Key="tiny/a.txt", Body=b"alpha")
    client = await server.client()
    s3 = {"endpoint_url": buckets, "key_id": "AKIA", "secret": "hush"}
    answer = await client.post(API, json={"name": "tiny", "source": "s3://sets/tiny/", "s3": s3})
    assert "hush" in str(await server.store.secrets("lab"))
    operation = await done(server, answer)
    assert operation.kept == ("/datasets/tiny/1",)
    (one,) = await server.store.versions("lab")
    assert (one.source, one.files) == ("s3://sets/tiny", 1)
    assert (server.state.library(builders.cluster()).folder("tiny") / "1" / "a.txt").read_text() == "alpha"
    trail = await server.store.audit_trail()
    assert "hush" not in str([operation, await server.store.secrets("lab"), trail])
    wrong = await client.post(API, json={"name": "tiny", "source": "s3://none/tiny", "s3": s3})
    assert "no such bucket" in str((await done(server, wrong, "failed")).error)
    assert "hush" not in str(await server.store.secrets("lab"))


S3_ASK = {
    "name": "tiny",
    "source": "s3://sets/tiny",
    "s3": {"endpoint_url": "http://127.0.0.1:9", "key_id": "AKIA", "secret": "hush"},
}


async def test_an_addition_that_is_given_up_leaves_no_keys(server: Server, mounts: Mounts) -> None:
    client = await server.client()
    answer = await client.post(API, json=S3_ASK)
    assert "hush" in str(await server.store.secrets("lab"))
    for _ in range(MAX_ATTEMPTS):
        assert await server.store.claim("test:0", server.state.clock(), -1.0) is not None
    assert "brought the server down" in str((await done(server, answer, "failed")).error)
    assert "hush" not in str(await server.store.secrets("lab"))


async def test_an_addition_that_could_not_be_queued_leaves_no_keys(
    server: Server, mounts: Mounts, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def away(*_: Any, **__: Any) -> Any:
        raise Unreachable("the database is away")

    monkeypatch.setattr(server.store, "enqueue_operation", away)
    client = await server.client()
    answer = await client.post(API, json=S3_ASK)
    assert answer.status_code >= 500
    assert "hush" not in str(await server.store.secrets("lab"))


@pytest.mark.parametrize(
    "ask",
    [
        {"source": "/data", "s3": {}}, {"source": "s3://UPPER/x"}, {"source": "data"},
        {"source": "s3://b/x", "s3": {"endpoint_url": "file:///etc"}},
        {"source": "s3://bucket/x", "s3": {"endpoint_url": "http://me:secret@host"}},
    ],
)  # fmt: skip
async def test_what_is_no_source_is_refused(server: Server, ask: dict[str, Any]) -> None:
    client = await server.client()
    assert (await client.post(API, json={"name": "tiny", **ask})).status_code in (400, 422)


async def test_what_is_staged_is_pinned_copied_and_in_the_lineage(server: Server, mounts: Mounts, source: Path) -> None:
    await add(server, source)
    (source / "b.txt").write_text("beta")
    await add(server, source)
    server.work.answers["submit"] = SubmitOut(job_id=41, cluster="lab", user="ann", workdir="/w")
    client = await server.client()
    jobs = "/api/v1/clusters/lab/jobs"
    answer = await client.post(jobs, json={"script": "#!/bin/sh\ntrue\n", "stage_in": ["tiny"]})
    assert answer.status_code == 201, answer.text
    assert "cp -RT /datasets/tiny/2 /tmp/tiny" in server.work.named("submit")[-1][1].script
    assert await server.store.jobs_of_version("lab", "tiny", 2) == (1, [41])
    assert await server.store.jobs_of_version("lab", "tiny", 1) == (0, [])
    answer = await client.post(
        "/api/v1/clusters/lab/run", json={"argv": ["x"], "stage_in": ["tiny@1"], "dry_run": True}
    )
    assert any("cp -RT /datasets/tiny/1" in line["text"] for line in answer.json()["script"])
    for wrong, status in (("wide", 404), ("tiny@3", 404), ("tiny@0", 422), ("tiny;x", 422)):
        answer = await client.post(jobs, json={"script": "#!/bin/sh\n", "stage_in": [wrong]})
        assert answer.status_code == status, answer.text
