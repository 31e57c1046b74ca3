"""Jobs whose batch script is gone are found."""

from __future__ import annotations

from pathlib import Path

from agent.jobs import orphaned_jobs


def test_job_without_batch_stepd_but_with_extern_stepd_is_orphaned(tmp_path: Path) -> None:
    def said(pid: int, what: str) -> None:
        (tmp_path / str(pid)).mkdir(exist_ok=True)
        (tmp_path / str(pid) / "cmdline").write_bytes(what.encode() + b"\0")

    said(1, "slurmstepd: [7.extern]")
    said(2, "slurmstepd: [7.batch]")
    said(3, "slurmstepd: [8.extern]")  # a part of a job whose batch script runs on another node
    said(4, "slurmstepd: [9.extern]")
    said(5, "slurmstepd: [9.batch]")
    said(6, "/usr/sbin/slurmstepd infinity")
    one = orphaned_jobs.OrphanedJobs(str(tmp_path))
    assert one.find_new([1, 2, 3, 4, 5, 6]) == []
    assert one.find_new([1, 3]) == [], "job 9 has ended, job 7 perhaps is ending"
    assert one.find_new([1, 3]) == [7]
    assert one.find_new([1, 3]) == [], "once"
    said(7, "slurmstepd: [7.batch]")
    assert one.find_new([1, 7, 3]) == []
    assert one.find_new([1, 3]) + one.find_new([1, 7, 3]) + one.find_new([1, 3]) == [], "twice in a row"
