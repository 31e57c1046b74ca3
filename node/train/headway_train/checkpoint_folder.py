"""Checkpoint files on disk, without torch.

    step-00000120/                 published: complete, with manifest.json
    .step-00000120.x7f3a9c1.part/  being written, or left by a run that was killed
    .step-00000100.b81c04d2.gone/  being deleted

A checkpoint gets its final name by one rename after all its files are on disk and the manifest has the size and hash of
each file. So a name without a dot is a complete checkpoint, even if the run was killed. If the disk loses data later, the
files differ from the manifest."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

MANIFEST = "manifest.json"
SCRATCH = Path("/scratch")
RESUMED_FROM = "HEADWAY_RESUMED_FROM"  # JOB-step-N, in a job of `headway job resume`
_PUBLISHED = re.compile(r"step-(\d{8,})")
_CHUNK = 4 * 1024 * 1024


class CheckpointError(Exception):
    """A checkpoint could not be written or read. The message names the checkpoint and the cause."""


@dataclass(frozen=True)
class CheckpointFile:
    """Size in bytes and hash of one file."""

    size: int
    blake2b: str


@dataclass(frozen=True)
class CheckpointManifest:
    """The files of a checkpoint. `time`: Unix seconds; `format`: "dcp" or "torch", see checkpoint_formats.py."""

    step: int
    time: float
    world_size: int
    format: str
    files: dict[str, CheckpointFile]

    @staticmethod
    def parse(text: str) -> CheckpointManifest:
        """Returns the manifest in `text`. Raises ValueError if `text` is not a manifest."""
        try:
            document = json.loads(text)
            files = {
                str(name): CheckpointFile(int(entry["size"]), str(entry["blake2b"]))
                for name, entry in document["files"].items()
            }
            return CheckpointManifest(
                int(document["step"]),
                float(document["time"]),
                int(document["world_size"]),
                str(document["format"]),
                files,
            )
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"is not a manifest: {error!r}") from None


def default_folder() -> Path:
    """Returns $HEADWAY_CHECKPOINT_DIR; otherwise, in a job, a folder on shared scratch that is named by the job's id, which
    a requeued job keeps; outside of a job ./checkpoints. Raises CheckpointError in a job without scratch."""
    if given := os.environ.get("HEADWAY_CHECKPOINT_DIR"):
        return Path(given)
    if job := os.environ.get("SLURM_JOB_ID"):
        mine = SCRATCH / (os.environ.get("USER") or str(os.getuid()))
        _must_be_there(mine)
        return mine / f"{os.environ.get('SLURM_JOB_NAME') or 'job'}-{job}"
    return Path("checkpoints")


def resumed_from(folder: Path) -> str:
    """Returns the checkpoint from which this job continues (JOB-step-N) if it lies in `folder`; "" for other folders and jobs.
    Raises CheckpointError in a job without scratch."""
    label = os.environ.get(RESUMED_FROM, "")
    return label if label and folder == default_folder() else ""


def _must_be_there(place: Path) -> None:
    """Raises CheckpointError if the folder is missing. A missing shared folder is not created: it would lie in the
    container or on this node's disk, and be lost with them."""
    if not place.is_dir():
        raise CheckpointError(
            f"{place} does not exist on {os.uname().nodename}, so checkpoints would be lost with the job: in a container mount "
            f"it (--container-mounts={SCRATCH}), or set HEADWAY_CHECKPOINT_DIR to a folder on shared storage"
        )


def name_of(step: int) -> str:
    """Returns the folder name of a step's checkpoint."""
    return f"step-{step:08d}"


def published_checkpoints(folder: Path) -> list[tuple[int, Path]]:
    """Returns (step, folder) of every published checkpoint, the newest first."""
    try:
        names = os.listdir(folder)
    except FileNotFoundError:
        return []
    found = [(int(match[1]), folder / name) for name in names if (match := _PUBLISHED.fullmatch(name))]
    return sorted(found, reverse=True)


def begin_checkpoint(folder: Path, step: int) -> Path:
    """Creates and returns a new folder for the files of this step. Raises CheckpointError if it would be on scratch and
    scratch is missing."""
    if SCRATCH in folder.parents:
        _must_be_there(SCRATCH)
    folder.mkdir(parents=True, exist_ok=True)
    part = folder / f".{name_of(step)}.{os.urandom(4).hex()}.part"
    part.mkdir()
    return part


def describe_file(path: Path) -> CheckpointFile:
    """Syncs a written file to disk, reads it back, and returns its size and hash. Raises OSError."""
    with path.open("rb") as file:
        os.fsync(file.fileno())
        return _entry(file)


def _entry(file: object) -> CheckpointFile:
    digest, size = hashlib.blake2b(digest_size=32), 0
    while chunk := file.read(_CHUNK):  # type: ignore[attr-defined]
        digest.update(chunk)
        size += len(chunk)
    return CheckpointFile(size, digest.hexdigest())


def publish_checkpoint(part: Path, manifest: CheckpointManifest) -> Path:
    """Renames a written folder to its final name and returns the path. Raises CheckpointError if its files are not those
    of the manifest, because then the ranks wrote to different folders."""
    there = {name for name in os.listdir(part) if name != MANIFEST}
    if there != manifest.files.keys():
        odd = ", ".join(sorted(there ^ manifest.files.keys())[:4])
        raise CheckpointError(f"{part.parent}: {odd} is not seen by all ranks: use a folder on shared storage")
    target = part.parent / name_of(manifest.step)
    with (part / MANIFEST).open("w", encoding="utf-8") as file:
        json.dump(asdict(manifest), file, indent=1)
        file.flush()
        os.fsync(file.fileno())
    _sync(part)
    if target.exists():  # from an earlier run of this job; this run has resumed from an earlier step
        discard(target)
    part.rename(target)
    _sync(part.parent)
    return target


def read_manifest(place: Path) -> CheckpointManifest:
    """Returns the checkpoint's manifest. Raises ValueError with the cause if it can't be used."""
    try:
        manifest = CheckpointManifest.parse((place / MANIFEST).read_text(encoding="utf-8"))
    except OSError as error:
        raise ValueError(f"{MANIFEST}: {error.strerror}") from None
    if place.name != name_of(manifest.step):
        raise ValueError(f"{MANIFEST} is of step {manifest.step}")
    return manifest


def faults(place: Path, manifest: CheckpointManifest, *, share: int = 0, of: int = 1) -> list[str]:
    """Returns the faults of the files as sentences; [] if the files are unchanged. `of` readers share the work; this one
    checks share number `share`. Sizes are checked first, so that a truncated file is found without reading."""
    mine = sorted(manifest.files)[share::of]
    size_faults = [words for name in mine if (words := _size_fault(place / name, manifest.files[name]))]
    if size_faults:
        return size_faults
    return [words for name in mine if (words := _content_fault(place / name, manifest.files[name]))]


def _size_fault(path: Path, entry: CheckpointFile) -> str:
    try:
        size = path.stat().st_size
    except OSError as error:
        return f"{path.name}: {error.strerror}"
    return f"{path.name} has {size} bytes of {entry.size}" if size != entry.size else ""


def _content_fault(path: Path, entry: CheckpointFile) -> str:
    try:
        with path.open("rb") as file:
            found = _entry(file)
    except OSError as error:
        return f"{path.name}: {error.strerror}"
    return f"{path.name} is not what was written" if found != entry else ""


def prune_checkpoints(folder: Path, keep: int, newest: int) -> None:
    """Deletes all but the `keep` newest checkpoints up to step `newest`, which was just written; `Checkpointer(keep=)` is the
    number. Checkpoints of later steps do not count and are kept: this run found them damaged when it resumed."""
    old = [place for step, place in published_checkpoints(folder) if step <= newest][keep:]
    for place in old:
        discard(place)


def delete_incomplete(folder: Path, mine: Iterable[Path] = ()) -> None:
    """Deletes incomplete folders that killed runs have left."""
    kept = {path.name for path in mine}
    for name in os.listdir(folder) if folder.is_dir() else ():
        if re.fullmatch(r"\.step-\d{8,}\.[0-9a-f]{8}\.(part|gone)", name) and name not in kept:
            shutil.rmtree(folder / name, ignore_errors=True)


def discard(place: Path) -> None:
    """Deletes the folder. It is renamed first, so that an interrupted deletion leaves no folder with a checkpoint's
    name."""
    gone = place.with_name(f".{place.name}.{os.urandom(4).hex()}.gone")
    place.rename(gone)
    shutil.rmtree(gone, ignore_errors=True)


def _sync(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def now() -> float:
    """Returns the Unix time in seconds."""
    return round(time.time(), 3)
