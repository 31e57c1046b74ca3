"""The latest change of a job's report or output files counts as its last sign of life."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from headway.domain.machines.machine import Machine
from headway.health.jobs.job_activity import quiet_s, read_last_output, running_since
from headway.transport.process import CommandResult
from tests.support.clusters.builders import job, machine

REPORT, OUT, ERR = "/var/lib/headway/reports/7.jsonl", "/scratch/alice/7.out", "/scratch/alice/7.err"


@dataclass
class Files:
    """Files of a head with the times of their last change. As `stat`, it fails for a path that is too long."""

    changed_at: Mapping[str, int]

    async def remote(self, at: Machine, argv: Sequence[str], *, input: bytes, **_: Any) -> CommandResult:  # noqa: A002
        assert list(argv[:3]) == ["xargs", "-0", "stat"]
        paths = input.decode().split("\0")
        assert all(len(path) < 4096 for path in paths), "stat would say nothing of any path"
        lines = [f"{self.changed_at[path]} {path}" for path in paths if path in self.changed_at]
        return CommandResult(tuple(argv), 123, "\n".join(lines), "", 0.0)


async def last_output(files: Mapping[str, int], *jobs: Any) -> dict[int, float]:
    return await read_last_output(Files(files), machine("lab-head"), jobs)


@pytest.mark.parametrize("newest", [REPORT, OUT, ERR])
async def test_the_newest_of_report_and_output_files_counts(newest: str) -> None:
    files = {REPORT: 100, OUT: 100, ERR: 100, newest: 200}
    assert await last_output(files, job(7, stdout=OUT, stderr=ERR)) == {7: 200.0}


async def test_job_without_files_is_missing() -> None:
    assert await last_output({}, job(7, stdout=OUT)) == {}


async def test_odd_output_paths_do_not_affect_other_jobs() -> None:
    odd = job(8, stdout="/" + "x" * 200_000), job(9, stdout="/a\nb"), job(10, stdout="a relative path")
    assert await last_output({OUT: 200}, *odd, job(7, stdout=OUT)) == {7: 200.0}


def test_job_is_quiet_since_its_last_output_or_since_it_resumed() -> None:
    resumed = job(7, start_time=1000, suspend_time=5000)
    assert running_since(resumed) == 5000
    assert quiet_s(resumed, {}, now=6000) == 1000
    assert quiet_s(resumed, {7: 5900.0}, now=6000) == 100
    assert quiet_s(resumed, {7: 4000.0}, now=6000) == 1000
