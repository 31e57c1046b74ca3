"""One backup in one file: a readable header line, then encrypted frames.

    headway-backup 1\\n
    {"cluster": "lab", ..., "salt": "...", "file": "..."}\\n          not encrypted, authenticated by every frame
    4 bytes length, AES-256-GCM(kind, payload)                       repeated

The key is derived by scrypt from a passphrase and the salt. Each file has its own key, derived from that one and the
name in its header. The name is new for every file, also for a backup that is started again and has the salt of its
first try, so the number of a frame can be its nonce. Kinds of frames: P begins a part (its name), D has bytes of it, E
ends it ({"bytes", "sha256"}), Z ends the file ({part: {"bytes", "sha256"}}). So a file that was cut short, lengthened,
changed or combined from two files is detected. Only one frame is in memory at a time."""

from __future__ import annotations

import base64
import contextlib
import errno
import hashlib
import json
import os
import secrets as random
import stat
import struct
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import IO

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from cryptography.hazmat.primitives.kdf.scrypt import Scrypt

from headway.errors import NotFound, Refused

MAGIC = b"headway-backup 1\n"
SUFFIX = ".headway-backup"
FRAME = 1 << 20  # bytes of a part in one frame
_LONGEST_LINE = 65_536
_LAST = 1e11  # unix seconds, the limit for `at`
# As strong as N = 2^17 with p = 1 (OWASP ASVS 5.0, appendix C), with a quarter of its memory
_SCRYPT = {"n": 1 << 15, "r": 8, "p": 3}
_LENGTH = struct.Struct(">I")


class Damaged(Refused):
    """The file is not a complete backup, or this key does not open it."""


@dataclass(frozen=True)
class Header:
    """The data of a backup that can be read without the passphrase."""

    cluster: str
    at: float
    headway: str
    slurm_version: str
    salt: str  # base64
    file: str = ""  # the name that this file's own key is derived from; the writer sets it


@dataclass(frozen=True)
class ArchivePart:
    """The size and checksum of one part."""

    bytes: int
    sha256: str


def new_salt() -> str:
    """Returns a random salt as base64."""
    return base64.b64encode(random.token_bytes(16)).decode()


def key_of(passphrase: str, salt: str) -> bytes:
    """Returns the 32-byte key of a passphrase. Takes 32 MiB of memory and a quarter of a second."""
    return Scrypt(salt=base64.b64decode(salt), length=32, **_SCRYPT).derive(passphrase.encode())


def new_name() -> str:
    """Returns a random name for a file's own key."""
    return random.token_hex(16)


def _own_key(key: bytes, file: str) -> bytes:
    return HKDF(SHA256(), length=32, salt=None, info=f"headway-backup {file}".encode()).derive(key)


def read_header(path: Path) -> Header:
    """Returns the header of a backup. Raises NotFound when there is no such file, Damaged when it is not a backup."""
    with _opened(path) as file:
        return _header(path, file)[0]


def _header(path: Path, file: IO[bytes]) -> tuple[Header, bytes]:
    """Returns the header, and the digest of it that each frame authenticates."""
    magic = file.read(len(MAGIC))
    line = file.readline(_LONGEST_LINE)
    try:
        if magic != MAGIC or not line.endswith(b"\n"):
            raise ValueError
        fields = json.loads(line)
        header = Header(**{name: fields[name] for name in Header.__dataclass_fields__})
        words = (header.cluster, header.headway, header.slurm_version, header.salt, header.file)
        if not all(isinstance(word, str) for word in words) or type(header.at) not in (int, float):
            raise ValueError
        if not 0 <= header.at < _LAST:  # this also refuses NaN
            raise ValueError
        base64.b64decode(header.salt, validate=True)
    except (ValueError, KeyError, TypeError):
        raise Damaged(f"{path} is not a Headway backup", hint="headway backups --in DIR lists backups") from None
    return header, hashlib.sha256(magic + line).digest()


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[IO[bytes]]:
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        raise NotFound(f"{path} does not exist on the server's machine", hint="headway backups --in DIR") from None
    except OSError as error:
        raise Refused(f"{path} can't be read: {error.strerror}") from None
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise Refused(f"{path} is not a file", hint="headway backups --in DIR")
    with os.fdopen(handle, "rb") as file:
        yield file


class Writer:
    """Writes one backup under a temporary name; `name` gives it the final name. All methods block: call them in a
    thread."""

    def __init__(self, path: Path, header: Header, key: bytes) -> None:
        self.path = path
        self._beside = path.with_name(f".{path.name}.part")
        header = replace(header, file=new_name())
        self._sealed = AESGCM(_own_key(key, header.file))
        self._number = 0
        self._parts: dict[str, ArchivePart] = {}
        self._name = ""
        self._bytes = 0
        self._sum = hashlib.sha256()
        with _disk_errors(self._beside):
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._beside.unlink(missing_ok=True)
            self._file = os.fdopen(
                os.open(self._beside, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb"
            )
            first = MAGIC + json.dumps(asdict(header)).encode() + b"\n"
            self._vouched = hashlib.sha256(first).digest()
            self._file.write(first)

    def begin(self, part: str) -> None:
        """Begins a part."""
        self._name, self._bytes, self._sum = part, 0, hashlib.sha256()
        self._frame(b"P", part.encode())

    def write(self, data: bytes) -> None:
        """Adds bytes to the current part."""
        for start in range(0, len(data), FRAME):
            piece = data[start : start + FRAME]
            self._sum.update(piece)
            self._bytes += len(piece)
            self._frame(b"D", piece)

    def end(self) -> None:
        """Ends the current part."""
        part = self._parts[self._name] = ArchivePart(self._bytes, self._sum.hexdigest())
        self._frame(b"E", json.dumps(asdict(part)).encode())

    def finish(self) -> Path:
        """Writes the end and syncs the file to disk. Returns its path, which is still temporary."""
        self._frame(b"Z", json.dumps({name: asdict(part) for name, part in self._parts.items()}).encode())
        with _disk_errors(self._beside):
            self._file.flush()
            os.fsync(self._file.fileno())
            self._file.close()
        return self._beside

    def name(self) -> None:
        """Gives the finished file its final name."""
        with _disk_errors(self.path):
            self._beside.replace(self.path)
            folder = os.open(self.path.parent, os.O_RDONLY | os.O_DIRECTORY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)

    def drop(self) -> None:
        """Deletes the unfinished file."""
        with contextlib.suppress(OSError):
            self._file.close()
        with contextlib.suppress(OSError):
            self._beside.unlink(missing_ok=True)

    def _frame(self, kind: bytes, payload: bytes) -> None:
        sealed = self._sealed.encrypt(self._number.to_bytes(12, "big"), kind + payload, self._vouched)
        self._number += 1
        with _disk_errors(self._beside):
            self._file.write(_LENGTH.pack(len(sealed)) + sealed)


@contextlib.contextmanager
def _disk_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise Refused(
                f"the disk of {path.parent} is full: no backup was made, and no partial file is left",
                hint="free space there, or name another folder with --to",
            ) from error
        raise Refused(f"no backup can be written in {path.parent}: {error.strerror}") from error


class ArchiveReader:
    """Reads one backup from its beginning, part by part; each frame is checked before its bytes are returned.
    Blocks, as `Writer` does."""

    def __init__(self, path: Path, key: bytes) -> None:
        self._path = path
        self._ends = contextlib.ExitStack()
        self._file = self._ends.enter_context(_opened(path))
        try:
            self.header, self._vouched = _header(path, self._file)
        except BaseException:
            self._ends.close()
            raise
        self._sealed = AESGCM(_own_key(key, self.header.file))
        self._number = 0
        self._parts: dict[str, ArchivePart] = {}

    def __enter__(self) -> ArchiveReader:
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.close()

    def parts(self) -> Iterator[tuple[str, Iterator[bytes]]]:
        """Yields (name, its bytes) of each part, in the order in which they were written. Bytes of a part that the
        caller does not read are skipped, and checked. Raises Damaged."""
        while True:
            kind, payload = self._frame()
            if kind == b"Z":
                self._end(payload)
                return
            if kind != b"P":
                raise self._damaged("its parts are out of order")
            name = payload.decode()
            pieces = self._pieces(name)
            yield name, pieces
            for _ in pieces:
                pass

    def _pieces(self, name: str) -> Iterator[bytes]:
        count, total = 0, hashlib.sha256()
        while True:
            kind, payload = self._frame()
            if kind == b"E":
                break
            if kind != b"D":
                raise self._damaged(f"{name} is incomplete")
            count += len(payload)
            total.update(payload)
            yield payload
        part = ArchivePart(**json.loads(payload))
        if part != ArchivePart(count, total.hexdigest()):
            raise self._damaged(f"{name} was changed")
        self._parts[name] = part

    def _end(self, payload: bytes) -> None:
        parts = {name: ArchivePart(**part) for name, part in json.loads(payload).items()}
        if parts != self._parts or self._file.read(1):
            raise self._damaged("its end was changed")

    def _frame(self) -> tuple[bytes, bytes]:
        first = self._file.read(_LENGTH.size)
        length = _LENGTH.unpack(first)[0] if len(first) == _LENGTH.size else 0
        sealed = self._file.read(length) if 0 < length <= FRAME + 64 else b""
        if not sealed or len(sealed) < length:
            raise self._damaged("it is truncated")
        try:
            plain = self._sealed.decrypt(self._number.to_bytes(12, "big"), sealed, self._vouched)
        except InvalidTag:
            if self._number == 0:
                raise Damaged(
                    f"the passphrase does not open {self._path}, or its header was changed",
                    hint="give the passphrase of the backup; nothing was changed",
                ) from None
            raise self._damaged(f"frame {self._number} was changed") from None
        self._number += 1
        return plain[:1], plain[1:]

    def _damaged(self, why: str) -> Damaged:
        return Damaged(f"{self._path} is damaged: {why}", hint="use another backup; nothing was changed")


def verify_key(path: Path, key: bytes) -> Header:
    """Returns the header when the key is right. Reads only the first frame. Raises Damaged."""
    with ArchiveReader(path, key) as reader:
        next(reader.parts())
        return reader.header


def list_archives(folder: Path, *, missing_ok: bool = False) -> list[tuple[Path, Header, int]]:
    """Returns (file, header, bytes) of each backup in a folder, the latest first; other files are skipped. Raises
    Refused when there is no such folder."""
    if missing_ok and not folder.exists():
        return []
    try:
        files = [path for path in folder.iterdir() if path.name.endswith(SUFFIX) and not path.name.startswith(".")]
    except OSError as error:
        raise Refused(
            f"{folder} on the server's machine: {error.strerror}", hint="name a folder with backups"
        ) from None
    rows = []
    for path in files:
        with contextlib.suppress(Refused, NotFound, OSError):
            rows.append((path, read_header(path), path.stat().st_size))
    return sorted(rows, key=lambda row: -row[1].at)
