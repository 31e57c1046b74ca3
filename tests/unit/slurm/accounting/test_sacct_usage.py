"""Usage is read from accounting records of a requeued job, an array, a drained and a dead node, recorded from a real
Slurm."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import pytest

from headway.domain.billing.ledger import NodeSpan, SpanKind
from headway.errors import HeadwayError
from headway.slurm.accounting import sacct_usage
from headway.transport.process import CommandResult
from tests.support.clusters import builders

SAID = Path(__file__).parents[3] / "recorded_slurm" / "24.11"


def test_parses_each_run_of_requeued_job_with_its_own_usage() -> None:
    found = sacct_usage.parse_runs((SAID / "usage_runs.txt").read_text())
    assert [(one.job, one.array_job, one.state) for one in found] == [
        (1, 0, "REQUEUED"), (1, 0, "CANCELLED"), (3, 2, "COMPLETED"), (4, 2, "COMPLETED"), (2, 2, "COMPLETED"),
    ]  # fmt: skip
    first, again = found[:2]
    assert (first.start, first.end, again.start, again.end) == (1795321059, 1795321065, 1795321070, 1795321077)
    assert (first.team, first.user, first.nodes, first.gpus, first.cpus) == ("vision", "alice", ("led-1-1",), 2, 48)
    assert (first.used_memory_mib, again.used_memory_mib) == (290, 290)
    assert (first.memory_mib, first.time_limit_s) == (512 * 1024, None)


def test_ignores_pending_and_never_started_jobs() -> None:
    line = "9|9|ann|vision|train|vision|{}|{}|{}|1795321059|1795321059|{}|{}|60|"
    waiting = line.format("PENDING", "None assigned", "", "Unknown", "Unknown")
    cancelled = line.format("CANCELLED by 0", "None assigned", "", "None", "1795321060")
    running = line.format(
        "RUNNING", "lab-1-[1-2]", "cpu=8,gres/gpu:h100=8,gres/gpu=8,mem=1.5G", "1795321060", "Unknown"
    )
    [found] = sacct_usage.parse_runs(f"{waiting}\n{cancelled}\n{running}")
    assert (found.state, found.end, found.nodes, found.gpu_type) == ("RUNNING", 0, ("lab-1-1", "lab-1-2"), "h100")
    assert (found.memory_mib, found.time_limit_s) == (1536, 3600)


def test_sums_cpu_time_of_steps_and_takes_largest_memory() -> None:
    head = "7|7|ann|vision|train|vision|COMPLETED|n1|cpu=1|1|1|1|9|60|\n"
    used = ("cpu=1-02:00:00,energy=10,mem=2G", "cpu=00:01:30,energy=5,mem=1G", "")
    text = head + "".join(f"7.{i}|7.{i}||vision|||COMPLETED|n1|cpu=1|1|1|1|9||{one}\n" for i, one in enumerate(used))
    [found] = sacct_usage.parse_runs(text + "8.0|8.0||vision|||COMPLETED|n1|cpu=1|1|1|1|9||cpu=00:09:00\n")
    assert (found.used_cpu_s, found.used_memory_mib, found.energy_j) == (26 * 3600 + 90, 2048, 15)


def test_parses_down_and_drained_node_events() -> None:
    found = sacct_usage.parse_node_events(
        (SAID / "usage_events.txt").read_text() + "|1|Unknown||Cluster Registered TRES\n"
    )
    assert found == [
        NodeSpan("led-1-2", SpanKind.DRAINED, 1795321080, 1795321082, "disk swap"),
        NodeSpan("led-1-1", SpanKind.DOWN, 1795321083, 1795321087, "dead"),
    ]
    [odd] = sacct_usage.parse_node_events("n1|5|Unknown|DRAIN|a|b")
    assert (odd.ended, odd.reason) == (0, "a|b")


class Answers:
    """Accounting that says far too much of more than two seconds at once."""

    def __init__(self) -> None:
        self.asked: list[list[str]] = []

    async def remote(self, _: object, argv: list[str], *, timeout_s: float, **__: object) -> CommandResult:
        assert timeout_s > 0
        self.asked.append(argv)
        times = (word.split("=")[1] for word in argv if word.startswith(("--starttime=", "--endtime=")))
        since, until = (datetime.fromisoformat(time) for time in times)
        seconds = (until - since).total_seconds()
        text = f"{since.second}|7|ann|vision|train|vision|COMPLETED|n1|cpu=1|1|1|1|9|60|\n"
        return CommandResult(tuple(argv), 0, text + ("x" * 900 if seconds > 2 else ""), "", 0.1)


async def test_splits_time_span_when_sacct_output_is_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sacct_usage, "MAX_OUTPUT", 400)
    links = Answers()
    found = await sacct_usage.read_runs(links, builders.machine("lab-head"), 1000, 1008)
    assert [one.job for one in found] == [40, 42, 44, 46]
    assert all({"TZ=UTC", "--duplicates", "--allusers"} <= set(asked) for asked in links.asked)
    monkeypatch.setattr(sacct_usage, "MAX_OUTPUT", 2)
    with pytest.raises(HeadwayError, match="one second"):
        await sacct_usage.read_runs(links, builders.machine("lab-head"), 0, 8)


async def test_runs_of_jobs_are_asked_for_by_number_in_halves() -> None:
    class Sacct:
        """Answers for each number with the job and a task of its array; too much for more than two numbers."""

        def __init__(self) -> None:
            self.asked: list[str] = []

        async def remote(self, _: object, argv: list[str], **__: object) -> CommandResult:
            assert "--duplicates" in argv
            assert not any("time=" in word for word in argv)
            self.asked.append(argv[argv.index("-j") + 1])
            numbers = [int(word) for word in self.asked[-1].split(",")]
            rows = [
                f"{job}|7|ann|vision|train|vision|COMPLETED|n1|cpu=1|1|1|1|9|60|"
                for n in numbers
                for job in (n, n + 50)
            ]
            return CommandResult(tuple(argv), 0, "\n".join(rows) + ("x" * 900 if len(numbers) > 2 else ""), "", 0.1)

    sacct = Sacct()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sacct_usage, "MAX_OUTPUT", 1000)
        found = await sacct_usage.read_runs_of_jobs(sacct, builders.machine("lab-head"), [3, 4, 5, 6])
        assert ([one.job for one in found], sacct.asked) == ([3, 4, 5, 6], ["3,4,5,6", "3,4", "5,6"])
        patch.setattr(sacct_usage, "MAX_OUTPUT", 2)
        with pytest.raises(HeadwayError, match="job 3"):
            await sacct_usage.read_runs_of_jobs(sacct, builders.machine("lab-head"), [3])
