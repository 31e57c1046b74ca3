"""Backups contain all parts, are verified and kept by the retention rule. Slurm's state is a folder here, the database
dump a text file."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
import zlib
from collections.abc import Iterator
from pathlib import Path

from agent.jobs import queue_recovery
from headway.backup.archive import FRAME
from headway.backup.verify import record_rows
from headway.transport.remote_program import program_source
from tests.support.clusters.backup_archive import slurm_state, state_archive


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

    assert [list(row) for row in record_rows(pieces())] == lines
    assert len(data) < FRAME
