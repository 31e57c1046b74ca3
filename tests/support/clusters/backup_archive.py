"""Backup archives and a slurmctld state folder for tests of backups."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
import zlib
from pathlib import Path

import pytest

from headway.backup.archive import Header, Writer, key_of, new_salt
from headway.backup.create import file_of
from headway.transport.remote_program import program_source

HEADER = Header("lab", 1_790_000_000.0, "1.0", "24.11", new_salt())
KEY = key_of("correct horse", HEADER.salt)
DUMP = b"-- MariaDB dump\nCREATE TABLE x (y int);\n" + b"-- filler\n" * 300_000 + b"-- Dump completed on 2026-01-01\n"


def slurm_state(folder: Path) -> Path:
    """Writes the files of a slurmctld StateSaveLocation and returns the folder."""
    (folder / "hash.3" / "job.13").mkdir(parents=True)
    (folder / "hash.3" / "job.13" / "script").write_text("#!/bin/sh\n")
    for name in ("job_state", "job_state.old", "assoc_usage", "dbd.messages"):
        (folder / name).write_text(name)
    return folder


def state_archive(folder: Path) -> bytes:
    """Returns the archive that node/programs/slurm_state_backup.py makes of this folder."""
    done = subprocess.run(
        [sys.executable, "-c", program_source("slurm_state_backup"), "state", str(folder), "0"],
        capture_output=True,
        check=True,
    )
    return done.stdout


def write_archive(folder: Path, header: Header = HEADER, *, with_key: bytes = KEY, **parts: bytes) -> Path:
    """Writes a backup of these parts and returns its file."""
    path = file_of(folder, header)
    writer = Writer(path, header, with_key)
    for name, data in parts.items():
        writer.begin(name)
        writer.write(data)
        writer.end()
    writer.finish()
    writer.name()
    return path


@pytest.fixture
def parts(tmp_path: Path) -> dict[str, bytes]:
    """Returns the parts of a complete backup."""
    lines = [["uids", {"name": "ann", "uid": 20_003}], ["refills", {"cluster": "lab", "team": "a", "at": 1.0}]]
    return {
        "state": state_archive(slurm_state(tmp_path / "slurmctld")),
        "database": gzip.compress(DUMP),
        "about": json.dumps({"document": {"text": "", "spec": {}}, "owner": "ann"}).encode(),
        "secrets": b'{"munge_key": "eA=="}',
        "records": zlib.compress("".join(json.dumps(line) + "\n" for line in lines).encode()),
    }
