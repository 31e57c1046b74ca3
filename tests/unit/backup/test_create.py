"""Backups contain all parts, are verified and kept by the retention rule. Slurm's state is a folder here, the database
dump a text file."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
import threading
import time
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.jobs import queue_recovery
from headway.backup.archive import FRAME, Damaged, Header
from headway.backup.restore import read_contents
from headway.backup.retention import delete_old_backups
from headway.backup.verify import rows, verify_backup
from headway.transport.remote_program import program_source
from tests.support.clusters.backup_archive import DUMP, HEADER, KEY, parts, slurm_state, state_archive, write_archive

__all__ = ["parts"]  # a fixture


def test_complete_backup_passes_verification(tmp_path: Path, parts: dict[str, bytes]) -> None:
    path = write_archive(tmp_path, **parts)
    proof = verify_backup(path, KEY)
    assert proof.records == 2
    assert proof.bytes == path.stat().st_size
    kept = read_contents(path, KEY)
    assert kept.uids == {"ann": 20_003}
    assert kept.secrets == {"munge_key": "eA=="}
    assert kept.about["owner"] == "ann"


@pytest.mark.parametrize(
    ("part", "data"),
    [
        ("database", gzip.compress(DUMP[: len(DUMP) // 2])),  # mariadb-dump died, and gzip ended well
        ("database", gzip.compress(DUMP)[:-50]),
        ("state", b"not a tar"),
    ],
)
def test_verification_refuses_truncated_or_malformed_part(
    tmp_path: Path, parts: dict[str, bytes], part: str, data: bytes
) -> None:
    with pytest.raises(Damaged, match="incomplete"):
        verify_backup(write_archive(tmp_path, **{**parts, part: data}), KEY)


def test_verification_names_missing_part(tmp_path: Path, parts: dict[str, bytes]) -> None:
    del parts["secrets"]
    with pytest.raises(Damaged, match="lacks secrets"):
        verify_backup(write_archive(tmp_path, **parts), KEY)


def test_slurm_state_is_restored_and_old_state_kept(tmp_path: Path) -> None:
    folder = slurm_state(tmp_path / "slurmctld")
    data = state_archive(folder)
    (folder / "job_state").write_text("of later")
    subprocess.run(
        [sys.executable, "-c", program_source("slurm_state_backup"), "take", str(folder)], input=data, check=True
    )
    assert (folder / "job_state").read_text() == "job_state"
    since = (folder / "job_state").stat().st_mtime - queue_recovery.UNSAVED_S
    assert since > time.time(), "what came after the backup is not submitted again"
    assert (folder / "hash.3" / "job.13" / "script").read_text() == "#!/bin/sh\n"
    assert not (folder / "job_state.old").exists()
    assert (tmp_path / "slurmctld.before-restore" / "job_state").read_text() == "of later"
    assert sorted(one.name for one in tmp_path.iterdir()) == ["slurmctld", "slurmctld.before-restore"]


def test_slurm_state_files_stay_consistent_during_concurrent_renames(tmp_path: Path) -> None:
    """As slurmctld does it, as fast as it can: every file that is kept is a whole one."""
    folder = slurm_state(tmp_path / "slurmctld")
    over = threading.Event()

    def slurmctld() -> None:
        number = 0
        while not over.is_set():
            number += 1
            (folder / "job_state.new").write_text(f"{number}\n" * 20_000)
            (folder / "job_state.new").replace(folder / "job_state")

    writer = threading.Thread(target=slurmctld)
    writer.start()
    try:
        for _ in range(3):
            data = state_archive(folder)
            place = tmp_path / "again"
            subprocess.run(
                [sys.executable, "-c", program_source("slurm_state_backup"), "take", str(place)], input=data, check=True
            )
            lines = (place / "job_state").read_text().splitlines()
            assert len(lines) in (1, 20_000)
            assert len(set(lines)) == 1
    finally:
        over.set()
        writer.join()


def test_reads_records_from_chunks_of_any_size() -> None:
    lines = [["jobs", {"script": "x" * number}] for number in range(400)]
    data = zlib.compress("".join(json.dumps(line) + "\n" for line in lines).encode())

    def pieces() -> Iterator[bytes]:
        for start in range(0, len(data), 7):
            yield data[start : start + 7]

    assert [list(row) for row in rows(pieces())] == lines
    assert len(data) < FRAME


def test_retention_deletes_only_oldest_backups_of_same_cluster(tmp_path: Path) -> None:
    mine = [write_archive(tmp_path, Header("lab", at, "1", "24.11", HEADER.salt), a=b"") for at in (1e9, 2e9, 3e9)]
    other = write_archive(tmp_path, Header("other", 5e8, "1", "24.11", HEADER.salt), a=b"")
    delete_old_backups(tmp_path, "lab", 2, mine[2])
    assert {path for path in (*mine, other) if path.exists()} == {mine[1], mine[2], other}
    late = write_archive(tmp_path, Header("lab", 1.5e9, "1", "24.11", HEADER.salt), a=b"")  # the clock had been ahead
    delete_old_backups(tmp_path, "lab", 1, late)
    assert {path for path in (*mine, late, other) if path.exists()} == {late, other}
