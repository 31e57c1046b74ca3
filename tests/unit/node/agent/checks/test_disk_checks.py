"""A disk that jobs have filled drains no node; a failing one does."""

from __future__ import annotations

import errno
import os
from typing import Any

import pytest

from agent import config
from agent.checks import disk_checks, runner, volume_checks

MIB = 1 << 20


def disk(
    monkeypatch: pytest.MonkeyPatch, free_mib: int, free_files: int, jobs: list[int], *, own_hardware: bool = True
) -> Any:
    class Told:
        f_frsize, f_blocks, f_files = MIB, 100_000, 1_000_000
        f_bavail, f_favail = free_mib, free_files

    monkeypatch.setattr(disk_checks.os, "statvfs", lambda _: Told)
    monkeypatch.setattr(disk_checks, "jobs_filling_disk", lambda *_, **__: jobs)
    return disk_checks.disk(runner.MachineReading(config.Config(head="h", own_hardware=own_hardware)))


def test_disk_check_drains_only_if_no_job_filled_the_disk(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert disk(monkeypatch, 5000, 5000, [12]) is None
    full = disk(monkeypatch, 100, 5000, [12, 13])
    assert (full.state, full.action, full.reason) == ("bad", "mount", "100 MiB free in /, held by jobs 12, 13")
    full = disk(monkeypatch, 5000, 10, [12])
    assert (full.action, full.reason) == ("mount", "no inodes left in /: 10 free, held by job 12")
    full = disk(monkeypatch, 100, 5000, [])
    assert (full.state, full.action, full.reason) == ("bad", "drain", "100 MiB free in /")


def test_full_disk_of_a_host_that_machines_share_is_no_fault_of_the_node(monkeypatch: pytest.MonkeyPatch) -> None:
    """The agent does not mark the node as unfit for jobs, because the prolog would then drain one node after the other."""
    full = disk(monkeypatch, 100, 5000, [], own_hardware=False)
    assert (full.state, full.action) == ("warn", "host_disk")
    assert full.reason.startswith("the disk of the host is full, 100 MiB free in /; all local machines share it")
    own = disk(monkeypatch, 100, 5000, [12], own_hardware=False)
    assert (own.state, own.action) == ("bad", "mount"), "the job's node waits for the job to end"


def test_disk_check_remembers_job_owners_for_a_while_after_the_job(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Before it cleans it forgets whose the job was."""
    asked: list[dict[int, int]] = []

    def holders(*_: object, owners: dict[int, int], **__: object) -> list[int]:
        asked.append(owners)
        return []

    class Told:
        f_frsize, f_blocks, f_files, f_bavail, f_favail = MIB, 100_000, 1_000_000, 100, 5000

    here: list[dict[int, int]] = [{20000: 12}, {}, {20001: 13}, {}]
    monkeypatch.setattr(disk_checks.os, "statvfs", lambda _: Told)
    monkeypatch.setattr(disk_checks, "jobs_filling_disk", holders)
    monkeypatch.setattr(disk_checks, "users_of_jobs", lambda: here.pop(0))
    seen = runner.MachineReading(config.Config(head="h"))
    for seen.now in (100.0, 115.0, 690.0, 710.0):
        disk_checks.disk(seen)
    assert asked == [{20000: 12}, {20000: 12}, {20000: 12, 20001: 13}, {20001: 13}]


def test_disk_check_needs_two_bad_readings() -> None:
    assert next(check for check in runner.CHECKS if check.name == "disk").times == 2


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_write_checks_do_not_treat_a_full_disk_as_broken(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    def full(**_: Any) -> Any:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(disk_checks.tempfile, "TemporaryFile", full)
    seen = runner.MachineReading(config.Config(head="h", mounts=(config.ExpectedMount("/scratch", "/", False),)))
    assert disk_checks.disk_writes(seen) is None
    assert volume_checks.scratch_writes(seen) == runner.warn("/scratch is full")
