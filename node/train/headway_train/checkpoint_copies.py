"""Copies of published checkpoints in an object store or another folder, so that they outlive the cluster's scratch, and a
training can continue on another cluster. Without torch.

A copy is made after the checkpoint is published, while the training goes on. Its manifest is written last and deleted
first, so a copy with a manifest is complete. Only rank 0 copies."""

from __future__ import annotations

import os
import re
import shutil
import sys
import threading
from pathlib import Path
from typing import Any, Protocol

from headway_train import checkpoint_folder
from headway_train.checkpoint_folder import MANIFEST, CheckpointError, CheckpointManifest

VARIABLE = "HEADWAY_CHECKPOINT_COPY"  # default of Checkpointer's `copy_to`
_S3 = "s3://"
_NAME = re.compile(r"step-(\d{8,})")
_MOST_DELETED = 1000  # keys in one request


class CheckpointStore(Protocol):
    """Where copies are kept. All methods raise an exception if the store can't be reached."""

    def steps(self) -> list[int]:
        """Returns the steps of all complete copies, the newest first."""
        ...

    def put(self, place: Path) -> None:
        """Copies a published checkpoint, replacing an older copy of its step."""
        ...

    def get(self, step: int, name: str, target: Path) -> None:
        """Copies one file of a checkpoint to `target`."""
        ...

    def delete(self, step: int) -> None:
        """Deletes a copy."""
        ...


def open_store(target: str) -> CheckpointStore:
    """Returns the store of `s3://BUCKET/PREFIX` or of a folder. Raises CheckpointError for another address, and without
    boto3."""
    if target.startswith(_S3):
        bucket, _, prefix = target.removeprefix(_S3).partition("/")
        if not bucket:
            raise CheckpointError(f"{target} names no bucket: s3://BUCKET/PREFIX")
        return S3Store(bucket, prefix)
    if "://" in target:
        raise CheckpointError(f"checkpoints can be copied to s3://BUCKET/PREFIX or to a folder, not to {target}")
    return FolderStore(Path(target))


def own_target(target: str) -> str:
    """Returns where this job's copies go. A job that continues from a kept checkpoint of another job has a place of its own below
    the other's: there may be copies of later steps, from which it was to go back."""
    resumed = os.environ.get(checkpoint_folder.RESUMED_FROM, "")
    return f"{target.rstrip('/')}/resumed-{resumed}" if resumed else target


class S3Store:
    """Copies in a bucket. Credentials, region and endpoint come from the environment or the files that boto3 reads."""

    def __init__(self, bucket: str, prefix: str) -> None:
        try:
            import boto3
        except ImportError:
            raise CheckpointError("copying checkpoints to S3 needs boto3: pip install boto3") from None
        self._client: Any = boto3.client("s3")
        self._bucket = bucket
        self._prefix = f"{prefix.strip('/')}/" if prefix.strip("/") else ""

    def steps(self) -> list[int]:
        """Returns the steps of all complete copies, the newest first."""
        found = [key.removeprefix(self._prefix).split("/") for key in self._keys(self._prefix)]
        complete = [parts[0] for parts in found if len(parts) == 2 and parts[1] == MANIFEST]
        return sorted((int(match[1]) for name in complete if (match := _NAME.fullmatch(name))), reverse=True)

    def put(self, place: Path) -> None:
        """Copies a published checkpoint."""
        self.delete(int(place.name.removeprefix("step-")))
        for path in _manifest_last(place):
            self._client.upload_file(str(path), self._bucket, f"{self._prefix}{place.name}/{path.name}")

    def get(self, step: int, name: str, target: Path) -> None:
        """Copies one file of a checkpoint to `target`."""
        key = f"{self._prefix}{checkpoint_folder.name_of(step)}/{name}"
        self._client.download_file(self._bucket, key, str(target))

    def delete(self, step: int) -> None:
        """Deletes a copy."""
        folder = f"{self._prefix}{checkpoint_folder.name_of(step)}/"
        keys = sorted(self._keys(folder), key=lambda key: key != f"{folder}{MANIFEST}")
        if keys:
            self._client.delete_object(Bucket=self._bucket, Key=keys[0])
        for at in range(1, len(keys), _MOST_DELETED):
            objects = [{"Key": key} for key in keys[at : at + _MOST_DELETED]]
            self._client.delete_objects(Bucket=self._bucket, Delete={"Objects": objects, "Quiet": True})

    def _keys(self, prefix: str) -> list[str]:
        pages = self._client.get_paginator("list_objects_v2").paginate(Bucket=self._bucket, Prefix=prefix)
        return [entry["Key"] for page in pages for entry in page.get("Contents", [])]


class FolderStore:
    """Copies in a folder, for example of another file system."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def steps(self) -> list[int]:
        """Returns the steps of all complete copies, the newest first."""
        return [step for step, _ in checkpoint_folder.published_checkpoints(self._folder)]

    def put(self, place: Path) -> None:
        """Copies a published checkpoint."""
        manifest = checkpoint_folder.read_manifest(place)
        part = checkpoint_folder.begin_checkpoint(self._folder, manifest.step)
        try:
            for name in manifest.files:
                shutil.copyfile(place / name, part / name)
                checkpoint_folder.describe_file(part / name)  # to disk
            checkpoint_folder.publish_checkpoint(part, manifest)
        finally:
            shutil.rmtree(part, ignore_errors=True)

    def get(self, step: int, name: str, target: Path) -> None:
        """Copies one file of a checkpoint to `target`."""
        shutil.copyfile(self._folder / checkpoint_folder.name_of(step) / name, target)

    def delete(self, step: int) -> None:
        """Deletes a copy."""
        checkpoint_folder.discard(self._folder / checkpoint_folder.name_of(step))


class CheckpointCopies:
    """Copies checkpoints in a thread, the newest first: one that was published while another was being copied replaces
    those that still wait. The newest `keep` copies are kept."""

    def __init__(self, target: str, keep: int) -> None:
        self.target = target
        self._store = open_store(target)
        self._keep = keep
        self._lock = threading.Lock()
        self._next: Path | None = None
        self._thread: threading.Thread | None = None
        self._fault = ""  # why the newest copy failed

    def add(self, place: Path) -> None:
        """Copies a published checkpoint soon."""
        with self._lock:
            self._next = place
            if self._thread is None:
                # The interpreter waits for it at its end, so the last copy is complete.
                self._thread = threading.Thread(target=self._run, name="checkpoint-copy")
                self._thread.start()

    def wait(self) -> None:
        """Waits until nothing is left to be copied. Raises CheckpointError if the newest checkpoint could not be
        copied."""
        thread = self._thread
        if thread is not None:
            thread.join()
        fault, self._fault = self._fault, ""
        if fault:
            raise CheckpointError(fault)

    def fetch(self, folder: Path) -> Path | None:
        """Copies the newest complete copy into `folder` if that has no checkpoint of its step or a later one. Returns the
        checkpoint, None if there was nothing to copy. Raises CheckpointError."""
        try:
            newest = next(iter(self._store.steps()), None)
            here = next((step for step, _ in checkpoint_folder.published_checkpoints(folder)), -1)
            if newest is None or newest <= here:
                return None
            return self._fetch(newest, folder)
        except CheckpointError:
            raise
        except Exception as error:  # any error of boto3 or of the disk
            raise CheckpointError(f"checkpoints can't be read from {self.target}: {_words(error)}") from None

    def _fetch(self, step: int, folder: Path) -> Path:
        part = checkpoint_folder.begin_checkpoint(folder, step)
        try:
            self._store.get(step, MANIFEST, part / MANIFEST)
            manifest = CheckpointManifest.parse((part / MANIFEST).read_text(encoding="utf-8"))
            for name in manifest.files:
                if "/" in name or name.startswith(".."):
                    raise CheckpointError(f"the manifest of step {step} in {self.target} names the file {name}")
                self._store.get(step, name, part / name)
                checkpoint_folder.describe_file(part / name)  # to disk
            if wrong := checkpoint_folder.faults(part, manifest):
                raise CheckpointError(f"the copy of step {step} in {self.target} is damaged: {'; '.join(wrong[:2])}")
            return checkpoint_folder.publish_checkpoint(part, manifest)
        finally:
            shutil.rmtree(part, ignore_errors=True)

    def _run(self) -> None:
        while True:
            with self._lock:
                place, self._next = self._next, None
                if place is None:
                    self._thread = None
                    return
            try:
                self._store.put(place)
                for step in self._store.steps()[self._keep :]:
                    self._store.delete(step)
                self._fault = ""
            except Exception as error:  # any error of boto3 or of the disk; the next checkpoint is tried again
                if place.exists():  # otherwise newer checkpoints have replaced it
                    self._fault = f"{place.name} could not be copied to {self.target}: {_words(error)}"
                    print(self._fault, file=sys.stderr, flush=True)


def _manifest_last(place: Path) -> list[Path]:
    return sorted(place.iterdir(), key=lambda path: (path.name == MANIFEST, path.name))


def _words(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"
