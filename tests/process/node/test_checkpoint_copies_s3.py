"""Checkpoints are copied to S3 and fetched from there, against moto's server."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
from moto.server import ThreadedMotoServer

sys.path.insert(0, str(Path(__file__).parents[3] / "node" / "train"))

from headway_train.checkpoint_copies import CheckpointCopies
from headway_train.checkpoint_folder import CheckpointError

from tests.unit.node.train.test_checkpoint_folder import save, steps, whole


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Returns a client of a bucket `models`; boto3 finds server and keys in the environment, as in a job."""
    server = ThreadedMotoServer("127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    for name, value in {
        "AWS_ENDPOINT_URL": f"http://{host}:{port}", "AWS_ACCESS_KEY_ID": "AKIAEXAMPLE",
        "AWS_SECRET_ACCESS_KEY": "never", "AWS_DEFAULT_REGION": "us-east-1",
    }.items():  # fmt: skip
        monkeypatch.setenv(name, value)
    client = boto3.client("s3")
    client.create_bucket(Bucket="models")
    yield client
    server.stop()


def keys(client: Any) -> list[str]:
    return [row["Key"] for row in client.list_objects_v2(Bucket="models").get("Contents", [])]


def test_checkpoints_go_to_a_bucket_and_come_back(bucket: Any, tmp_path: Path) -> None:
    copies = CheckpointCopies("s3://models/run7/", keep=2)
    assert copies.fetch(tmp_path / "none") is None
    for step in (5, 10, 15):
        copies.add(save(tmp_path / "run", step))
        copies.wait()
    files = (".metadata", "__0_0.distcp", "manifest.json")
    assert keys(bucket) == [f"run7/step-{step:08d}/{name}" for step in (10, 15) for name in files]
    assert copies.fetch(tmp_path / "elsewhere") == tmp_path / "elsewhere" / "step-00000015"
    assert whole(tmp_path / "elsewhere" / "step-00000015") == []


def test_copy_without_its_manifest_does_not_count(bucket: Any, tmp_path: Path) -> None:
    copies = CheckpointCopies("s3://models", keep=2)
    for step in (5, 10):
        copies.add(save(tmp_path / "run", step))
        copies.wait()
    bucket.delete_object(Bucket="models", Key="step-00000010/manifest.json")
    copies.fetch(tmp_path / "elsewhere")
    assert steps(tmp_path / "elsewhere") == [5]


def test_bucket_that_is_not_there_is_named(bucket: Any, tmp_path: Path) -> None:
    copies = CheckpointCopies("s3://nowhere/run", keep=2)
    with pytest.raises(CheckpointError, match="checkpoints can't be read from s3://nowhere/run: NoSuchBucket"):
        copies.fetch(tmp_path / "run")
    copies.add(save(tmp_path / "run", 5))
    with pytest.raises(CheckpointError, match="step-00000005 could not be copied to s3://nowhere/run"):
        copies.wait()
