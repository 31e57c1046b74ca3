"""A backup archive reads back completely; truncation, changed bits, forged headers and wrong passphrases are
detected."""

from __future__ import annotations

import base64
import errno
import hashlib
import json
import os
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from headway.backup import archive
from headway.backup.archive import ArchiveReader, Damaged, Header, Writer
from headway.errors import NotFound, Refused

PARTS = {"state": os.urandom(3 * archive.FRAME + 17), "about": b"{}", "empty": b""}
HEADER = Header("lab", 1_790_000_000.0, "1.0", "24.11", archive.new_salt())
KEY = archive.key_of("correct horse", HEADER.salt)


def written(folder: Path) -> Path:
    path = folder / f"lab{archive.SUFFIX}"
    writer = Writer(path, HEADER, KEY)
    for name, data in PARTS.items():
        writer.begin(name)
        writer.write(data)
        writer.end()
    writer.finish()
    assert not path.exists()
    writer.name()
    return path


def read(path: Path, key: bytes = KEY) -> dict[str, bytes]:
    with ArchiveReader(path, key) as reader:
        return {name: b"".join(pieces) for name, pieces in reader.parts()}


def test_archive_reads_back_written_parts(tmp_path: Path) -> None:
    path = written(tmp_path)
    assert read(path) == PARTS
    header = archive.read_header(path)
    assert replace(header, file="") == HEADER
    assert archive.verify_key(path, KEY) == header
    assert path.stat().st_mode & 0o777 == 0o600
    assert [one for one, _, _ in archive.list_archives(tmp_path)] == [path]
    assert list(tmp_path.iterdir()) == [path]


def test_archives_with_same_header_and_key_share_no_ciphertext(tmp_path: Path) -> None:
    """A backup that is begun again has the header, and so the key, of its first try: the numbers of frames, which are their
    nonces, count for one file alone."""
    bodies = []
    for name in ("one", "two"):
        _, header, body = written(tmp_path / name).read_bytes().split(b"\n", 2)
        assert json.loads(header)["salt"] == HEADER.salt
        bodies.append(body)
    assert len(bodies[0]) == len(bodies[1])
    assert bodies[0][:200] != bodies[1][:200]


def test_reads_archive_without_file_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive, "new_name", lambda: "")
    assert read(written(tmp_path)) == PARTS


@pytest.mark.parametrize(
    "forged",
    [{"at": "x"}, {"at": None}, {"at": True}, {"at": float("nan")}, {"cluster": 4}, {"file": []}, {"salt": "x"}],
)
def test_forged_header_does_not_hide_other_backups(tmp_path: Path, forged: dict[str, Any]) -> None:
    path = written(tmp_path)
    line = json.dumps({**asdict(archive.read_header(path)), **forged}).encode()
    other = tmp_path / f"forged{archive.SUFFIX}"
    other.write_bytes(archive.MAGIC + line + b"\n")
    with pytest.raises(Damaged):
        archive.read_header(other)
    assert [one for one, _, _ in archive.list_archives(tmp_path)] == [path]


def test_reader_continues_past_unread_parts(tmp_path: Path) -> None:
    path = written(tmp_path)
    with ArchiveReader(path, KEY) as reader:
        assert [name for name, _ in reader.parts()] == list(PARTS)


def test_refuses_wrong_passphrase(tmp_path: Path) -> None:
    path = written(tmp_path)
    with pytest.raises(Damaged, match="passphrase does not open"):
        archive.verify_key(path, archive.key_of("another one", HEADER.salt))


@pytest.mark.parametrize("share", [0.0001, 0.3, 0.7, 0.99999])
def test_detects_single_changed_bit(tmp_path: Path, share: float) -> None:
    path = written(tmp_path)
    data = bytearray(path.read_bytes())
    first = data.index(b"\n", len(archive.MAGIC)) + 1
    data[first + int((len(data) - first) * share)] ^= 1
    path.write_bytes(data)
    with pytest.raises(Damaged):
        read(path)


def test_detects_changed_cluster_name_in_header(tmp_path: Path) -> None:
    path = written(tmp_path)
    path.write_bytes(path.read_bytes().replace(b'"cluster": "lab"', b'"cluster": "bal"', 1))
    with pytest.raises(Damaged):
        read(path)


@pytest.mark.parametrize("cut", [-1, -40, -archive.FRAME])
def test_detects_truncated_or_extended_file(tmp_path: Path, cut: int) -> None:
    path = written(tmp_path)
    whole = path.read_bytes()
    path.write_bytes(whole[:cut])
    with pytest.raises(Damaged):
        read(path)
    path.write_bytes(whole + b"x")
    with pytest.raises(Damaged):
        read(path)


def test_refuses_files_that_are_not_backups(tmp_path: Path) -> None:
    other = tmp_path / f"x{archive.SUFFIX}"
    other.write_bytes(b"#!/bin/sh\n")
    with pytest.raises(Damaged, match="not a Headway backup"):
        archive.read_header(other)
    assert archive.list_archives(tmp_path) == []
    with pytest.raises(NotFound):
        archive.read_header(tmp_path / "none")
    with pytest.raises(Refused):
        archive.list_archives(tmp_path / "none")
    with pytest.raises(Refused, match="is not a file"):
        archive.read_header(tmp_path)


def test_full_disk_leaves_no_partial_archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = Writer(tmp_path / f"lab{archive.SUFFIX}", HEADER, KEY)
    writer.begin("state")

    def full(_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    writer.end()
    with pytest.raises(Refused, match="is full"):
        writer.finish()
    writer.drop()
    assert list(tmp_path.iterdir()) == []


def test_key_is_derived_with_a_cost_that_owasp_asvs_approves() -> None:
    salt = base64.b64decode(HEADER.salt)
    expected = hashlib.scrypt(b"correct horse", salt=salt, n=2**15, r=8, p=3, maxmem=2**26, dklen=32)
    assert expected == KEY
