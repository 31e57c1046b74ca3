"""Objects of an S3 bucket, as files of a dataset."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from headway.datasets.source import PIECE, Item, Listing
from headway.errors import HeadwayError, Refused, Unreachable

SCHEME = "s3://"
_PLAIN_ETAG = re.compile(r"[0-9a-f]{32}")  # the content's MD5; an object uploaded in parts has an ETag of another form
_KEYED = ("aws:kms", "aws:kms:dsse")  # with this encryption, an ETag is not an MD5 either
_CONNECT_S, _READ_S, _TRIES = 10, 60, 5
_NAMED = 5


@dataclass(frozen=True)
class S3Access:
    """How a bucket is reached. Without a key, requests are unsigned and read public buckets only."""

    endpoint_url: str = ""  # "" = Amazon's
    region: str = ""
    key_id: str = field(default="", repr=False)
    secret: str = field(default="", repr=False)
    token: str = field(default="", repr=False)  # for temporary keys


class S3Source:
    """`s3://BUCKET/PREFIX` as a source: the objects below the prefix, or the one object with that key."""

    def __init__(self, url: str, access: S3Access) -> None:
        self._bucket, _, prefix = url.removeprefix(SCHEME).partition("/")
        self._prefix = prefix.strip("/")
        self._url = f"{SCHEME}{self._bucket}" + (f"/{self._prefix}" if self._prefix else "")
        self._keys: dict[str, str] = {}  # path -> key
        self._client = _client(access)

    def close(self) -> None:
        """Closes the client."""
        self._client.close()

    def listing(self) -> Listing:
        """Returns the objects as files. Raises Refused when there are none, or a key can't be a file's path."""
        with self._s3_errors():
            found = list(self._objects(f"{self._prefix}/" if self._prefix else ""))
            if not found and self._prefix:
                found = [entry for entry in self._objects(self._prefix) if entry[0] == self._prefix]
        if not found:
            raise Refused(f"{self._url} has no object", hint="headway dataset add NAME --from s3://BUCKET/PREFIX")
        base = "" if len(found) == 1 and found[0][0] == self._prefix else self._prefix
        items, faults = [], []
        for key, count, etag in found:
            path = key.rpartition("/")[2] if not base and self._prefix else key.removeprefix(f"{base}/" if base else "")
            if path.endswith("/") or not path:
                continue  # an object that S3 consoles create for a folder
            if any(part in ("", ".", "..") or len(part.encode()) > 255 or "\0" in part for part in path.split("/")):
                faults.append(f"{key!r} is not a valid file path")
                continue
            self._keys[path] = key
            items.append(Item(path, count, False, f"{count} {etag}"))
        faults += [f"{path} is an object and a folder" for path in sorted(self._keys.keys() & _folders(self._keys))]
        if faults:
            more = f"; and {len(faults) - _NAMED} more" if len(faults) > _NAMED else ""
            raise Refused(
                f"{self._url} has entries that a dataset can't have: {'; '.join(faults[:_NAMED])}{more}",
                hint="give a prefix without them, or rename them",
            )
        return Listing(tuple(sorted(items, key=lambda item: item.path)))

    def _objects(self, prefix: str) -> Iterator[tuple[str, int, str]]:
        """Yields (key, bytes, ETag) of each object."""
        for page in self._client.get_paginator("list_objects_v2").paginate(Bucket=self._bucket, Prefix=prefix):
            for entry in page.get("Contents", ()):
                yield entry["Key"], int(entry["Size"]), entry["ETag"].strip('"')

    def read(self, item: Item) -> Iterator[bytes]:
        """Yields the object, if it is still the one that was listed. The content is checked against the checksum
        that S3 stored with it (by boto3), and against its ETag where that is an MD5. Raises Refused where it
        differs."""
        etag = item.stamp.partition(" ")[2]
        with self._s3_errors(item.path):
            answer = self._client.get_object(
                Bucket=self._bucket, Key=self._keys[item.path], IfMatch=f'"{etag}"', ChecksumMode="ENABLED"
            )
            body, digest = answer["Body"], hashlib.md5(usedforsecurity=False)
            try:
                while piece := body.read(PIECE):
                    digest.update(piece)
                    yield piece
            finally:
                body.close()
        md5 = _PLAIN_ETAG.fullmatch(etag) and answer.get("ServerSideEncryption") not in _KEYED
        if md5 and "SSECustomerAlgorithm" not in answer and digest.hexdigest() != etag:
            raise Refused(f"{self._url}: {item.path} has content that does not match its ETag", hint="add it again")

    @contextmanager
    def _s3_errors(self, path: str = "") -> Iterator[None]:
        """Turns errors of boto3 into Headway's, without the keys."""
        from botocore.exceptions import BotoCoreError, ClientError, ResponseStreamingError

        where = f"{self._url}: {path}" if path else self._url
        try:
            yield
        except ClientError as error:
            raise _refusal(error, where) from None
        except (BotoCoreError, ResponseStreamingError) as error:
            reason = " ".join(str(error).split())
            raise Unreachable(f"{where}: {reason}", hint="add it again: it continues where it stopped") from None


def _refusal(error: Any, where: str) -> HeadwayError:
    code = str(error.response.get("Error", {}).get("Code", ""))
    status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode")
    if code == "PreconditionFailed" or status == 412:
        return Refused(f"{where} was changed while it was read", hint="add it again when no program writes there")
    if code in ("NoSuchBucket", "NoSuchKey") or status == 404:
        return Refused(f"{where}: this bucket or object does not exist", hint="check its name and --endpoint-url")
    if status in (400, 401, 403):
        return Refused(
            f"{where}: these keys may not read it ({code})",
            hint="set AWS_PROFILE, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
        )
    return Unreachable(f"{where}: answered {code or status}", hint="add it again: it continues where it stopped")


def _folders(paths: Any) -> set[str]:
    """Returns every folder in these paths."""
    found: set[str] = set()
    for path in paths:
        above = path.rpartition("/")[0]
        while above and above not in found:
            found.add(above)
            above = above.rpartition("/")[0]
    return found


def _client(access: S3Access) -> Any:
    """Returns an S3 client that uses none of the server's own settings and keys."""
    import boto3
    from botocore import UNSIGNED
    from botocore.config import Config

    more = {} if access.key_id else {"signature_version": UNSIGNED}
    style = {"s3": {"addressing_style": "path"}} if access.endpoint_url else {}
    config = Config(
        connect_timeout=_CONNECT_S,
        read_timeout=_READ_S,
        retries={"total_max_attempts": _TRIES, "mode": "standard"},
        ignore_configured_endpoint_urls=True,
        **more,
        **style,
    )
    return boto3.session.Session().client(
        "s3",
        endpoint_url=access.endpoint_url or None,
        region_name=access.region or "us-east-1",
        aws_access_key_id=access.key_id or None,
        aws_secret_access_key=access.secret or None,
        aws_session_token=access.token or None,
        config=config,
    )
