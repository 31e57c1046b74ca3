"""Datasets are imported from S3, against moto's server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.config import Config
from moto.server import ThreadedMotoServer

from headway.datasets.file_progress import FileProgress
from headway.datasets.file_store import DatasetFileStore
from headway.datasets.s3_source import S3Access, S3Source
from headway.datasets.source import Item
from headway.errors import Refused, Unreachable
from headway.sdk.aws_credentials import s3_access

KEYS = {"key_id": "AKIAEXAMPLE", "secret": "never/to+be=seen"}


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    server = ThreadedMotoServer("127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture
def s3(endpoint: str, request: pytest.FixtureRequest) -> Any:
    """Returns a client with the owner's keys; `s3.bucket` is a bucket for this test alone."""
    client = boto3.client(
        "s3", endpoint_url=endpoint, region_name="us-east-1", aws_access_key_id=KEYS["key_id"],
        aws_secret_access_key=KEYS["secret"], config=Config(ignore_configured_endpoint_urls=True),
    )  # fmt: skip
    client.bucket = "b" + str(abs(hash(request.node.name)))
    client.create_bucket(Bucket=client.bucket)
    return client


def put(s3: Any, **objects: bytes) -> None:
    for key, body in objects.items():
        s3.put_object(Bucket=s3.bucket, Key=key.replace("__", "/"), Body=body)


class Counting(S3Source):
    def __init__(self, *args: Any, dies_at: str = "") -> None:
        super().__init__(*args)
        self.seen: list[str] = []
        self._dies_at = dies_at

    def read(self, item: Item) -> Iterator[bytes]:
        self.seen.append(item.path)
        for piece in super().read(item):
            yield piece
            if item.path == self._dies_at:
                raise KeyboardInterrupt


@pytest.fixture
def file_store(tmp_path: Path) -> DatasetFileStore:
    return DatasetFileStore(tmp_path / "store")


@pytest.fixture
def access(endpoint: str) -> S3Access:
    return S3Access(endpoint, **KEYS)


def test_imports_objects_below_prefix_as_version(s3: Any, file_store: DatasetFileStore, access: S3Access) -> None:
    put(s3, sets__tiny__a=b"alpha", sets__tiny__deep__b=b"b" * 9_000_000, sets__tiny2__c=b"no", sets__tiny__deep__=b"")
    manifest = file_store.import_files("tiny", S3Source(f"s3://{s3.bucket}/sets/tiny", access), FileProgress())
    file_store.publish("tiny", 1, manifest)
    assert [(file.path, file.bytes) for file in manifest.files] == [("a", 5), ("deep/b", 9_000_000)]
    assert (file_store.folder("tiny") / "1/deep/b").read_bytes() == b"b" * 9_000_000
    whole = file_store.import_files("all", S3Source(f"s3://{s3.bucket}", access), FileProgress())
    assert [file.path for file in whole.files] == ["sets/tiny/a", "sets/tiny/deep/b", "sets/tiny2/c"]
    one = file_store.import_files("one", S3Source(f"s3://{s3.bucket}/sets/tiny/a", access), FileProgress())
    assert [(entry.path, entry.sha256) for entry in one.files] == [("a", manifest.files[0].sha256)]


def test_killed_import_resumes_without_fetching_objects_again(
    s3: Any, file_store: DatasetFileStore, access: S3Access
) -> None:
    put(s3, d__a=b"alpha", d__b=b"beta", d__c=b"gamma")
    url = f"s3://{s3.bucket}/d"
    with pytest.raises(KeyboardInterrupt):
        file_store.import_files("tiny", Counting(url, access, dies_at="b"), FileProgress())
    put(s3, d__a=b"ALPHA")
    again = Counting(url, access)
    manifest = file_store.import_files("tiny", again, FileProgress())
    assert again.seen == ["a", "b", "c"]  # a has changed since
    third = Counting(url, access)
    assert file_store.import_files("tiny", third, FileProgress()) == manifest
    assert third.seen == []


def test_imports_multipart_uploaded_object(s3: Any, file_store: DatasetFileStore, access: S3Access) -> None:
    upload = s3.create_multipart_upload(Bucket=s3.bucket, Key="d/big")["UploadId"]
    parts = []
    for number, body in ((1, b"x" * (5 << 20)), (2, b"y")):
        done = s3.upload_part(Bucket=s3.bucket, Key="d/big", UploadId=upload, PartNumber=number, Body=body)
        parts.append({"PartNumber": number, "ETag": done["ETag"]})
    s3.complete_multipart_upload(Bucket=s3.bucket, Key="d/big", UploadId=upload, MultipartUpload={"Parts": parts})
    (entry,) = file_store.import_files("tiny", S3Source(f"s3://{s3.bucket}/d", access), FileProgress()).files
    assert entry.bytes == (5 << 20) + 1


def test_refuses_object_changed_after_listing(s3: Any, access: S3Access) -> None:
    put(s3, d__a=b"alpha")
    bucket = S3Source(f"s3://{s3.bucket}/d", access)
    (item,) = bucket.listing().files
    put(s3, d__a=b"ALPHA")
    with pytest.raises(Refused, match="a was changed while it was read"):
        list(bucket.read(item))


def test_refuses_content_that_does_not_match_etag(s3: Any, access: S3Access, monkeypatch: pytest.MonkeyPatch) -> None:
    put(s3, d__a=b"alpha")
    bucket = S3Source(f"s3://{s3.bucket}/d", access)
    (item,) = bucket.listing().files
    real = bucket._client.get_object

    class Flipped:
        def __init__(self, body: Any) -> None:
            self._body = body

        def read(self, count: int) -> bytes:
            return bytes(byte ^ 1 for byte in self._body.read(count))

        def close(self) -> None:
            self._body.close()

    def flipped(**asked: Any) -> Any:
        answer = real(**asked)
        return {**answer, "Body": Flipped(answer["Body"])}

    monkeypatch.setattr(bucket._client, "get_object", flipped)
    with pytest.raises(Refused, match="content that does not match its ETag"):
        list(bucket.read(item))


def test_refuses_keys_that_are_not_valid_paths(s3: Any, access: S3Access) -> None:
    for key in ("d/a", "d/a/b", "d/../up", "d//x"):
        s3.put_object(Bucket=s3.bucket, Key=key, Body=b"x")
    with pytest.raises(Refused) as error:
        S3Source(f"s3://{s3.bucket}/d", access).listing()
    assert "a is an object and a folder" in error.value.message
    assert "'d/../up' is not a valid file path" in error.value.message


def test_refuses_key_with_empty_path_segment(s3: Any, access: S3Access) -> None:
    put(s3, books__a=b"one", books____a=b"two")
    with pytest.raises(Refused, match="'books//a' is not a valid file path"):
        S3Source(f"s3://{s3.bucket}/books", access).listing()


def test_missing_or_unreachable_bucket_errors_omit_credentials(s3: Any, endpoint: str, access: S3Access) -> None:
    with pytest.raises(Refused, match="bucket or object does not exist") as error:
        S3Source("s3://no-such-bucket-here/x", access).listing()
    assert KEYS["secret"] not in str(error.value) + repr(access)
    with pytest.raises(Refused, match="has no object"):
        S3Source(f"s3://{s3.bucket}/none", access).listing()
    with pytest.raises(Unreachable, match="continues where it stopped"):
        S3Source("s3://bucket/x", S3Access("http://127.0.0.1:1", **KEYS)).listing()


def test_s3_access_uses_standard_aws_credential_sources(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("AWS_PROFILE", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_SESSION_TOKEN", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.delenv("AWS_ACCESS_KEY_ID", raising=False)
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY", raising=False)
    none = s3_access()
    assert (none.key_id, none.endpoint_url) == ("", "")
    (tmp_path / "credentials").write_text("[lab]\naws_access_key_id = A\naws_secret_access_key = B\n")
    (tmp_path / "config").write_text("[profile lab]\nregion = eu-west-1\nendpoint_url = https://s3.example.org\n")
    monkeypatch.setenv("AWS_PROFILE", "lab")
    found = s3_access()
    assert (found.key_id, found.secret, found.region) == ("A", "B", "eu-west-1")
    assert found.endpoint_url == "https://s3.example.org"
    assert s3_access("http://127.0.0.1:9000").endpoint_url == "http://127.0.0.1:9000"
    monkeypatch.setenv("AWS_PROFILE", "none")
    with pytest.raises(Refused, match="can't be used"):
        s3_access()
