"""Packs the history of a Slurm site as a backup of the cluster that takes its place: slurmdbd's database and what
slurmctld's state folder has of jobs and of use. A restore of that backup makes the cluster with them.

Not carried: states of nodes, partitions and reservations, because the cluster file says them, and nodes have other names."""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import re
import struct
import tarfile
import time
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from headway import __version__
from headway.backup.archive import SUFFIX, Damaged, Header, Writer, key_of, new_salt
from headway.backup.verify import verify_backup
from headway.catalog.node_images import IMAGES
from headway.errors import NotFound, Refused

_STATE_ENDS, _DUMP_ENDS = (".tar", ".tar.gz", ".tgz"), (".sql", ".sql.gz")
# What slurmctld's state folder has of jobs and of use
_KEPT = ("job_state", "assoc_usage", "qos_usage", "priority_last_decay_ran", "clustername", "dbd.messages")
_SCRIPTS = "hash."  # folders with the scripts of jobs
_SLURM = "slurm"
_DUMPED = b"-- Dump completed"
_JOBS_TABLE = re.compile(rb"CREATE TABLE `([^`]+)_job_table`")
_COPY = 1 << 20
# Protocol of the state files of each Slurm release; a release reads those of the two before it.
_PROTOCOLS = {
    "22.05": 38, "23.02": 39, "23.11": 40, "24.05": 41, "24.11": 42, "25.05": 43, "25.11": 44, "26.05": 45,
}  # fmt: skip
_READ_BEFORE = 2


@dataclass(frozen=True)
class PackedHistory:
    """A backup with the history of a site. `slurm`: release of the site's Slurm; `scripts`: of jobs in the queue."""

    path: Path
    bytes: int
    slurm: str
    scripts: int


def pack_history(
    folder: Path, document: Mapping[str, Any], owner: str, cluster: str, slurm_version: str, passphrase: str, to: Path
) -> PackedHistory:
    """Writes the backup of the cluster with this document into the folder `to`, and verifies it. Raises NotFound and Refused
    if the files of the site are missing, damaged, of another cluster, or of a Slurm that `slurm_version` can't read."""
    state, dump = _only_file(folder, _STATE_ENDS, "the state folder"), _only_file(folder, _DUMP_ENDS, "the database")
    prefix, release = _look_at_state(state)
    _check_release(release, slurm_version)
    header = Header(cluster, time.time(), __version__, slurm_version, new_salt())
    key = key_of(passphrase, header.salt)
    path = to / f"{cluster}-history-{time.strftime('%Y%m%d-%H%M%S', time.gmtime(header.at))}{SUFFIX}"
    writer = Writer(path, header, key)
    try:
        writer.begin("state")
        scripts = _write_state(state, prefix, writer)
        writer.end()
        writer.begin("database")
        _write_dump(dump, cluster, writer)
        writer.end()
        about = {"document": dict(document), "owner": owner, "created_at": header.at}
        for name, data in (("about", json.dumps(about).encode()), ("secrets", b"{}"), ("records", _no_records())):
            writer.begin(name)
            writer.write(data)
            writer.end()
        proof = verify_backup(writer.finish(), key)
        writer.name()
    except BaseException:
        writer.drop()
        raise
    return PackedHistory(path, proof.bytes, release, scripts)


def _only_file(folder: Path, ends: tuple[str, ...], what: str) -> Path:
    if not folder.is_dir():
        raise NotFound(f"{folder} is no folder", hint="name the folder with the site's state and database")
    found = sorted(file for file in folder.iterdir() if file.name.endswith(ends) and file.is_file())
    if len(found) != 1:
        count = "several files" if found else "no file"
        raise Refused(
            f"{folder} has {count} of {what}: {', '.join(f'*{end}' for end in ends)}",
            hint="keep one file; docs/howto/import.md has the commands that write it",
        )
    return found[0]


def _look_at_state(path: Path) -> tuple[str, str]:
    """Returns the folder of the state in the tar, "" or ending with "/", and the Slurm release that wrote it."""
    for tar, member in _members(path):
        folder, _, name = member.name.rpartition("/")
        if name == "job_state" and member.isreg():
            return f"{folder}/" if folder else "", _release_of(_MemberContent(path, tar, member).read(64), path)
    raise Refused(f"{path} has no job_state", hint="it must be a tar of StateSaveLocation")


def _members(path: Path) -> Iterator[tuple[tarfile.TarFile, tarfile.TarInfo]]:
    with _read_errors(path), tarfile.open(path, "r|*") as tar:
        for member in tar:
            yield tar, member


@contextlib.contextmanager
def _read_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except (tarfile.TarError, EOFError, zlib.error, OSError) as error:
        raise Damaged(f"{path} is incomplete: {error}", hint="copy it again") from None


class _MemberContent(io.RawIOBase):
    """The content of a file in the tar. Reading raises Damaged if the tar ends within it."""

    def __init__(self, path: Path, tar: tarfile.TarFile, member: tarfile.TarInfo) -> None:
        self._path = path
        self._content = tar.extractfile(member)

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        with _read_errors(self._path):
            return self._content.read(size) if self._content is not None else b""


def _release_of(start: bytes, path: Path) -> str:
    """Returns the Slurm release of a state file: a word, its length before it, and the version of the protocol."""
    (length,) = struct.unpack(">I", start[:4]) if len(start) > 8 else (0,)
    if start[4 : 4 + length].rstrip(b"\0") != b"PROTOCOL_VERSION" or len(start) < length + 6:
        raise Refused(f"job_state of {path} is no list of jobs of slurmctld", hint="stop slurmctld, then copy it again")
    (protocol,) = struct.unpack(">H", start[4 + length : 6 + length])
    known = {number: name for name, number in _PROTOCOLS.items()}
    return known.get(protocol >> 8, f"of protocol {protocol >> 8}")


def _check_release(release: str, target: str) -> None:
    there, wanted = _PROTOCOLS.get(release, 0), _PROTOCOLS[target]
    if not wanted - _READ_BEFORE <= there <= wanted:
        readable = [name for name, number in _PROTOCOLS.items() if wanted - _READ_BEFORE <= number <= wanted]
        fits = [
            f"image: {name} (Slurm {image.slurm.name})"
            for name, image in IMAGES.items()
            if 0 <= _PROTOCOLS[image.slurm.name] - there <= _READ_BEFORE
        ]
        raise Refused(
            f"the site's state is of Slurm {release}, and Slurm {target} of the cluster reads that of {', '.join(readable)}",
            hint=f"upgrade the site's Slurm first{f', or give the cluster file {fits[0]}' if fits else ''}",
        )


def _write_state(path: Path, prefix: str, writer: Writer) -> int:
    """Writes the kept files, as files of the user slurm. Returns the number of jobs' scripts."""
    scripts = 0
    with (
        gzip.GzipFile(fileobj=_Sink(writer), mode="wb", compresslevel=1) as packed,
        tarfile.open(mode="w|", fileobj=packed) as out,
    ):
        out.addfile(_folder())
        for tar, member in _members(path):
            name = member.name.removeprefix(prefix)
            if not member.name.startswith(prefix) or not (member.isdir() or member.isreg()):
                continue
            if name not in _KEPT and not name.startswith(_SCRIPTS):
                continue
            member.name, member.uname, member.gname = f"./{name}", _SLURM, _SLURM
            scripts += name.endswith("/script")
            out.addfile(member, _MemberContent(path, tar, member) if member.isreg() else None)
    return scripts


def _folder() -> tarfile.TarInfo:
    """Returns the state folder itself, which only the user slurm may write."""
    folder = tarfile.TarInfo(".")
    folder.type, folder.mode, folder.uname, folder.gname = tarfile.DIRTYPE, 0o700, _SLURM, _SLURM
    return folder


def _write_dump(path: Path, cluster: str, writer: Writer) -> None:
    """Writes the compressed dump. Raises Refused if it is not of this cluster, Damaged if it does not end."""
    named, tail = set[bytes](), b""
    with _opened(path) as file, gzip.GzipFile(fileobj=_Sink(writer), mode="wb", compresslevel=1) as packed:
        try:
            while piece := file.read(_COPY):
                packed.write(piece)
                named |= set(_JOBS_TABLE.findall(tail[-200:] + piece))
                tail = (tail[-200:] + piece)[-400:]
        except (EOFError, zlib.error, OSError) as error:
            raise Damaged(f"{path} is incomplete: {error}", hint="dump the database again") from None
    names = sorted(name.decode(errors="replace") for name in named)
    if cluster not in names:
        raise Refused(
            f"{path} has {', '.join(names) or 'no cluster'}, and not the cluster {cluster}",
            hint="the cluster keeps the name of the site: name in the cluster file",
        )
    if _DUMPED not in tail:
        raise Damaged(f"{path} does not end as a dump does", hint="dump the database again")


def _opened(path: Path) -> BinaryIO | gzip.GzipFile:
    return gzip.open(path, "rb") if path.name.endswith(".gz") else path.open("rb")


def _no_records() -> bytes:
    return zlib.compressobj(1).flush()


class _Sink(io.RawIOBase):
    """A writable file whose bytes go to the part of a backup."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self._writer.write(bytes(data))
        return len(data)
