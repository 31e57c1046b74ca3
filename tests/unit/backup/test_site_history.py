"""The history of a Slurm site becomes a backup of its new cluster: what slurmctld knows of jobs and use, and the database."""

from __future__ import annotations

import errno
import gzip
import io
import json
import struct
import tarfile
from pathlib import Path

import pytest

from headway.backup import site_history
from headway.backup.archive import ArchiveReader, Damaged
from headway.errors import NotFound, Refused

KEY = bytes(32)
DUMP = "-- dump\nCREATE TABLE `helix_job_table` (\n);\nINSERT INTO `helix_job_table` VALUES (1);\n-- Dump completed on 2026\n"


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(site_history, "key_of", lambda *_: KEY)


def job_state(protocol: int) -> bytes:
    word = b"PROTOCOL_VERSION\0"
    return struct.pack(">I", len(word)) + word + struct.pack(">H", protocol << 8) + b"jobs" * 20


def site(
    folder: Path, protocol: int = 42, dump: str = DUMP, prefix: str = "slurmctld/", script: bytes = b"#!/bin/sh\n"
) -> Path:
    """Writes the files of a site and returns their folder."""
    folder.mkdir()
    with tarfile.open(folder / "state.tar.gz", "w:gz") as tar:
        for name, data in {
            "node_state": b"nodes", "job_state": job_state(protocol), "job_state.old": b"x", "assoc_usage": b"use",
            "hash.3/job.13/script": script, "resv_state": b"reservations",
        }.items():  # fmt: skip
            member = tarfile.TarInfo(f"{prefix}{name}")
            member.size = len(data)
            member.uname, member.uid = "site", 4711
            tar.addfile(member, io.BytesIO(data))
    with gzip.open(folder / "slurm_acct_db.sql.gz", "wb") as file:
        file.write(dump.encode())
    return folder


def packed(folder: Path, to: Path, slurm: str = "24.11") -> site_history.PackedHistory:
    return site_history.pack_history(folder, {"spec": {"name": "helix"}}, "ann", "helix", slurm, "secret words", to)


def test_packs_jobs_use_and_database(tmp_path: Path) -> None:
    found = packed(site(tmp_path / "site"), tmp_path / "kept")
    assert (found.slurm, found.scripts) == ("24.11", 1)
    with ArchiveReader(found.path, KEY) as reader:
        assert (reader.header.cluster, reader.header.slurm_version) == ("helix", "24.11")
        parts = {name: b"".join(pieces) for name, pieces in reader.parts()}
    with tarfile.open(fileobj=io.BytesIO(parts["state"])) as tar:
        assert [member.name for member in tar] == [".", "./job_state", "./assoc_usage", "./hash.3/job.13/script"]
        assert {member.uname for member in tar} == {"slurm"}
        assert tar.getmember(".").mode == 0o700
    assert gzip.decompress(parts["database"]).decode() == DUMP
    assert json.loads(parts["about"])["document"] == {"spec": {"name": "helix"}}
    assert json.loads(parts["secrets"]) == {}


def test_state_at_the_top_of_the_tar_is_found_too(tmp_path: Path) -> None:
    assert packed(site(tmp_path / "site", prefix="./"), tmp_path / "kept").scripts == 1


def test_refusal_names_the_image_that_reads_the_state(tmp_path: Path) -> None:
    with pytest.raises(Refused) as refused:
        packed(site(tmp_path / "site", protocol=38), tmp_path / "kept")
    assert "give the cluster file image: debian12 (Slurm 22.05)" in refused.value.hint


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            {"protocol": 38},
            "the site's state is of Slurm 22.05, and Slurm 24.11 of the cluster reads that of 23.11, 24.05, 24.11",
        ),
        ({"protocol": 43}, "the site's state is of Slurm 25.05"),
        ({"dump": DUMP.replace("helix", "other")}, "has other, and not the cluster helix"),
        ({"dump": DUMP[:-30]}, "does not end as a dump does"),
    ],
)
def test_refuses_what_the_cluster_could_not_read(tmp_path: Path, change: dict[str, str], words: str) -> None:
    with pytest.raises(Refused, match=words):
        packed(site(tmp_path / "site", **change), tmp_path / "kept")  # type: ignore[arg-type]
    assert not list(tmp_path.glob("kept/*"))


def test_names_files_that_are_missing_or_damaged(tmp_path: Path) -> None:
    with pytest.raises(NotFound):
        packed(tmp_path / "nowhere", tmp_path / "kept")
    (tmp_path / "empty").mkdir()
    with pytest.raises(Refused, match="no file of the state folder"):
        packed(tmp_path / "empty", tmp_path / "kept")
    folder = site(tmp_path / "site")
    state = folder / "state.tar.gz"
    state.write_bytes(state.read_bytes()[:60])
    with pytest.raises(Damaged, match="incomplete"):
        packed(folder, tmp_path / "kept")


@pytest.mark.parametrize("cut_in", [b"PROTOCOL_VERSION", b"#!/bin/sh"])
def test_names_a_state_that_ends_within_a_file(tmp_path: Path, cut_in: bytes) -> None:
    folder = site(tmp_path / "site", script=b"#!/bin/sh\n" + bytes(100_000))
    state = folder / "state.tar.gz"
    stored = gzip.compress(gzip.decompress(state.read_bytes()), compresslevel=0)
    state.write_bytes(stored[: stored.index(cut_in) + 4])
    with pytest.raises(Damaged, match=r"state\.tar\.gz is incomplete"):
        packed(folder, tmp_path / "kept")
    assert not list(tmp_path.glob("kept/*"))


def test_full_disk_while_the_state_is_written_is_no_fault_of_the_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "no space")

    monkeypatch.setattr(site_history.Writer, "write", full)
    with pytest.raises(OSError, match="no space"):
        packed(site(tmp_path / "site"), tmp_path / "kept")
