"""Existing dataset versions are verified, found damaged, named by lineage, staged and removed correctly."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import delete, insert

from headway.datasets import file_progress
from headway.datasets.async_file_store import LocalDatasetFileStore
from headway.domain.dataset import DatasetVersion, format_bytes
from headway.domain.storage.folders import Dataset, StorageFolders
from headway.errors import Refused, Unreachable
from headway.jobs.submission import lineage
from headway.jobs.submission.prepare_job import PreparedJob
from headway.schemas.submission.submit_request import SubmitIn, SubmitOut
from headway.store.db import cluster_schema as t
from tests.support.clusters import builders
from tests.support.clusters.dataset_cluster import API, Mounts, add, done, mounts, server, source
from tests.support.servers.server_fakes import Server, reading

__all__ = ["mounts", "server", "source"]  # fixtures


async def test_verify_marks_a_damaged_version_and_names_the_file(server: Server, mounts: Mounts, source: Path) -> None:
    await add(server, source)
    client = await server.client()
    await done(server, await client.post(f"{API}/tiny/1/verify"))
    file = server.state.clusters.dataset_file_store(builders.cluster()).folder("tiny") / "1" / "a.txt"
    file.chmod(0o644)
    file.write_text("ALPHA")
    operation = await done(server, await client.post(f"{API}/tiny/1/verify"), "failed")
    assert "a.txt has different content" in str(operation.error)
    (row,) = (await client.get(API)).json()
    assert (row["state"], row["damage"], row["checked_at"]) == ("damaged", "  a.txt has different content", 1000.0)
    assert (await client.post(f"{API}/tiny/7/verify")).status_code == 404


async def test_damaged_content_is_added_again_as_a_new_version(server: Server, mounts: Mounts, source: Path) -> None:
    await add(server, source)
    client = await server.client()
    file = server.state.clusters.dataset_file_store(builders.cluster()).folder("tiny") / "1" / "a.txt"
    file.chmod(0o644)
    file.write_text("ALPHA")
    await done(server, await client.post(f"{API}/tiny/1/verify"), "failed")
    assert (await add(server, source)).kept == ("/datasets/tiny/2",)
    await done(server, await client.post(f"{API}/tiny/2/verify"))


async def test_failed_removal_can_be_requested_again(
    server: Server, mounts: Mounts, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await add(server, source)
    client = await server.client()

    async def away(*_: Any) -> int:
        raise Unreachable("the head does not answer")

    with monkeypatch.context() as patch:
        patch.setattr(LocalDatasetFileStore, "remove", away)
        await done(server, await client.post(f"{API}/tiny/1/remove", json={}), "failed")
    tree = server.state.clusters.dataset_file_store(builders.cluster()).folder("tiny") / "1"
    assert tree.exists()
    await done(server, await client.post(f"{API}/tiny/1/remove", json={}))
    assert not tree.exists()


async def job(server: Server, number: int, script: str) -> None:
    server.backend.answers["submit"] = SubmitOut(job_id=number, cluster="lab", user="ann", workdir="/w")
    client = await server.client()
    answer = await client.post("/api/v1/clusters/lab/jobs", json={"script": script})
    assert answer.status_code == 201, answer.text


async def test_removing_a_version_used_by_jobs_requires_force(server: Server, mounts: Mounts, source: Path) -> None:
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
    assert not (server.state.clusters.dataset_file_store(builders.cluster()).folder("tiny") / "1").exists()
    assert mounts.there == set()
    assert "was removed by ann" in (await client.post(f"{API}/tiny/1/verify")).json()["detail"]
    server.backend.answers |= {"read": reading(builders.job(41, "COMPLETED", user="ann")), "machines": ()}
    server.backend.answers |= {"job": builders.job(41, "COMPLETED", user="ann"), "run_command": _nothing()}
    (told,) = (await client.get("/api/v1/clusters/lab/jobs/41/lineage")).json()["datasets"]
    assert (told["name"], told["version"], told["removed"]) == ("tiny", "1", "by ann, by force")
    assert (await add(server, source)).kept == ("/datasets/tiny/2",)


async def test_reused_job_id_keeps_dataset_use_of_the_earlier_job(server: Server) -> None:
    """Whose sbatch says any number: see JobRecords.get."""
    for user, version in (("ann", 1), ("mallory", 2), ("ann", 1)):
        await server.store.jobs.record(
            "lab", 41, person=user, user=user, kind="run", request={}, facts={}, audit={}, datasets=[("tiny", version)]
        )
    assert await server.store.datasets.jobs_using("lab", "tiny", 1) == (1, [41])
    assert await server.store.datasets.job_counts("lab") == {("tiny", 1): 1, ("tiny", 2): 1}


def _nothing() -> Any:
    from headway.schemas.submission.exec_commands import ExecOut

    return ExecOut(code=1, stdout_b64="", stderr_b64="")


async def test_removal_is_refused_if_a_job_used_the_version_meanwhile(
    server: Server, mounts: Mounts, source: Path
) -> None:
    await add(server, source)
    client = await server.client()
    answer = await client.post(f"{API}/tiny/1/remove", json={})
    await job(server, 41, "#!/bin/sh\ncat /datasets/tiny/1/a.txt\n")
    await done(server, answer, "failed")
    assert len(await server.store.datasets.versions("lab")) == 1


async def test_kept_datasets_return_with_the_cluster_and_deleted_ones_do_not(
    server: Server, mounts: Mounts, source: Path
) -> None:
    await add(server, source)
    server.backend.answers["take_down"] = ()
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


async def test_version_numbers_are_not_reused_after_losing_records(
    server: Server, mounts: Mounts, source: Path, tmp_path: Path
) -> None:
    """As after a restore of a backup that was made before the version: its files lie on what the machines share."""
    await add(server, source)
    async with server.store.database.write() as db:
        await db.execute(delete(t.datasets))
    (source / "a.txt").write_text("another")
    assert (await add(server, source)).kept == ("/datasets/tiny/2",)
    folder = server.state.clusters.dataset_file_store(builders.cluster()).folder("tiny")
    assert [(folder / number / "a.txt").read_text() for number in "12"] == ["alpha", "another"]
    async with server.store.database.write() as db:
        await db.execute(insert(t.job_datasets).values(cluster="lab", name="wide", number=4, job_id=7))
    assert await server.store.datasets.next_number("lab", "wide") == 5


V1, V2, OTHER = (
    DatasetVersion("lab", name, n, "0" * 64, 1, 1, "/d", "ann", 1.0) for name, n in (("a", 1), ("a", 2), ("ab", 1))
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
def test_finds_dataset_versions_named_in_job_requests(request_of: dict[str, Any], found: list[DatasetVersion]) -> None:
    prepared = PreparedJob(SubmitIn(**request_of), None)
    assert lineage.used_versions(prepared, [V1, V2, OTHER]) == found


def test_lineage_records_version_digests_and_unversioned_sources() -> None:
    own = Dataset("own", "/data/own", "/datasets/own")
    cluster = replace(
        builders.cluster(2), storage=StorageFolders(datasets=(own, Dataset("a", "/v/a", "/datasets/a", versioned=True)))
    )
    kept = lineage.lineage_facts(PreparedJob(SubmitIn(script="x"), None), cluster, [V1])["datasets"]
    assert kept == [
        {"name": "own", "mount": "/datasets/own", "version": "/data/own"},
        {"name": "a", "mount": "/datasets/a/1", "version": "1", "sha256": "0" * 64},
    ]


@pytest.mark.parametrize(
    "request_of",
    [
        {"args": ["--container-image=a+b"]}, {"args": ["--container-image", "a+b"]}, {"args": ["--container-im=a+b"]},
        {"script": "#!/bin/sh\n#SBATCH -N1 --container-image a+b # ours\n"},
        {"script": '#!/bin/sh\n#SBATCH --container-image="a+b"\n'},
        {"script": "#!/bin/sh\n#SBATCH -N1\n#SBATCH hetjob\n#SBATCH --container-image=a+b\n"},
        {"script": "#!/bin/sh\n#SBATCH --container-image=c\n", "args": ["--container-image=a+b"]},
        {"script": "#!/bin/sh\n", "script_args": ["--container-image=a+b", "python3", "x.py"]},
    ],
)  # fmt: skip
def test_finds_the_container_image_named_in_job_requests(request_of: dict[str, Any]) -> None:
    prepared = PreparedJob(SubmitIn(**{"script": "", **request_of}), None)
    assert lineage.lineage_facts(prepared, builders.cluster(2))["container_image"] == "a+b"


def test_format_bytes_uses_binary_units() -> None:
    assert [format_bytes(n) for n in (0, 1023, 1024, 5 << 30, 3 << 50)] == [
        "0 bytes",
        "1023 bytes",
        "1.0 KiB",
        "5.0 GiB",
        "3072.0 TiB",
    ]


def test_stopped_is_not_a_refusal() -> None:
    assert issubclass(file_progress.Stopped, Exception)
    assert not issubclass(file_progress.Stopped, Refused)


async def test_stage_in_pins_a_version_copies_it_and_records_its_use(
    server: Server, mounts: Mounts, source: Path
) -> None:
    await add(server, source)
    (source / "b.txt").write_text("beta")
    await add(server, source)
    server.backend.answers["submit"] = SubmitOut(job_id=41, cluster="lab", user="ann", workdir="/w")
    client = await server.client()
    jobs = "/api/v1/clusters/lab/jobs"
    answer = await client.post(jobs, json={"script": "#!/bin/sh\ntrue\n", "stage_in": ["tiny"]})
    assert answer.status_code == 201, answer.text
    assert "cp -RT /datasets/tiny/2 /tmp/tiny" in server.backend.named("submit")[-1][1].script
    assert await server.store.datasets.jobs_using("lab", "tiny", 2) == (1, [41])
    assert await server.store.datasets.jobs_using("lab", "tiny", 1) == (0, [])
    answer = await client.post(
        "/api/v1/clusters/lab/run", json={"argv": ["x"], "stage_in": ["tiny@1"], "dry_run": True}
    )
    assert any("cp -RT /datasets/tiny/1" in line["text"] for line in answer.json()["script"])
    for wrong, status in (("wide", 404), ("tiny@3", 404), ("tiny@0", 422), ("tiny;x", 422)):
        answer = await client.post(jobs, json={"script": "#!/bin/sh\n", "stage_in": [wrong]})
        assert answer.status_code == status, answer.text
